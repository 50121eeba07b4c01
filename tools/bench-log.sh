#!/bin/sh
# `make bench-log`: what the access log costs, and that no line is lost. Arguments go to benches/log.
set -eu
. "$(dirname "$0")/common.sh"

need_toolchains
PYTHONPATH="$root/benches" exec "$PYTHON" -m log "$@"
