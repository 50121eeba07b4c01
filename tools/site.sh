#!/bin/sh
# `make site`: the documentation site, from the Markdown pages of the checkout.
#
# Takes nothing but the checkout; the generator (tools/site/requirements.txt) gets an environment of its own in
# the cache. Gives target/site/index.html. A dead link, a missing anchor, a page without a place in the
# navigation and a page that loads something from another host are faults: exit 1.
set -eu
. "$(dirname "$0")/common.sh"
cd "$root"

need_python || exit 2
environment=$(venv site "$PYTHON" "$root/tools/site/requirements.txt")
target=${CARGO_TARGET_DIR:-$root/target}
source=$target/site-source
rm -rf "$source" "$target/site"
mkdir -p "$source/lab"
# Where they are in the repository, because links between them are relative.
cp -R docs deploy CHANGELOG.md ARCHITECTURE.md LICENSE* "$source"
cp lab/README.md "$source/lab/"
cp README.md "$source/index.md"
"$environment/bin/sphinx-build" -q -W --keep-going -E -b html -d "$target/site-doctrees" -c tools/site \
    "$source" "$target/site"
"$environment/bin/python" tools/site/check.py "$target/site"
say "the site is $target/site/index.html"
