#!/bin/sh
# `make bench`: Milepost beside its peers, in one run on this machine. Arguments go to benches/run.py.
set -eu
. "$(dirname "$0")/common.sh"

need_toolchains
exec "$PYTHON" "$root/benches/run.py" "$@"
