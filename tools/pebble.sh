#!/bin/sh
# Builds the ACME server of the tests: pebble, and a name server for it.
#
# Takes MILEPOST_CACHE. Gives both programs in the folder `pebble` of the cache. Without Go 1.24 or later, it says so
# and gives exit 0: the tests that need them are skipped, and name this script.
set -u
. "$(dirname "$0")/common.sh"

version=v2.10.1
folder=$cache/pebble
[ "$(cat "$folder/version" 2>/dev/null)" = "$version" ] && exit 0
if ! command -v go >/dev/null 2>&1; then
    say "missing: go 1.24 or later, for the tests of automatic certificates"
    exit 0
fi
mkdir -p "$folder"
for program in pebble pebble-challtestsrv; do
    GOBIN=$folder go install "github.com/letsencrypt/pebble/v2/cmd/$program@$version" || exit 0
done
echo "$version" >"$folder/version"
