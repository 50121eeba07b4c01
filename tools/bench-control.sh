#!/bin/sh
# `make bench-control`: pools that steer themselves, against fixed ones. Arguments go to benches/control.
set -eu
. "$(dirname "$0")/common.sh"

need_toolchains
PYTHONPATH="$root/benches" exec "$PYTHON" -m control "$@"
