#!/bin/sh
# Processor time of a request, of one installed build over another: arguments go to benches/pair.py.
# `bench-pair.sh BEFORE AFTER`, each a `milepost` of a virtual environment with a release wheel.
set -eu
. "$(dirname "$0")/common.sh"

need_python || exit 2
exec "$PYTHON" "$root/benches/pair.py" "$@"
