#!/bin/sh
# `make bench-reload`: reloads, crashes and spread over processes and drivers. Arguments go to benches/reload.
set -eu
. "$(dirname "$0")/common.sh"

need_toolchains
PYTHONPATH="$root/benches" exec "$PYTHON" -m reload "$@"
