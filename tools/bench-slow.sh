#!/bin/sh
# `make bench-slow`: slow clients and slow disks beside ordinary ones. Arguments go to benches/slow.
set -eu
. "$(dirname "$0")/common.sh"

need_toolchains
PYTHONPATH="$root/benches" exec "$PYTHON" -m slow "$@"
