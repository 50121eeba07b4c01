#!/bin/sh
# `make lab`: measurements beside peers and published tables. Arguments go to `python3 -m lab`.
set -eu
. "$(dirname "$0")/common.sh"

need_toolchains
folder=$(venv lab "$PYTHON" "$root/lab/requirements.txt")
cd "$root"
exec "$folder/bin/python" -m lab "$@"
