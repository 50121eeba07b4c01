#!/bin/sh
# How many files a request passes: builds the wheel without optimisation and traces it. Arguments go to
# tools/files-passed.py; `--functions` lists the functions of each file.
#
# Takes MILEPOST_TRACED_VENV, a virtual environment for the wheel (default: one in the cache). The checkout's
# own target folder is used, so that a second run compiles only what has changed.
set -eu
. "$(dirname "$0")/common.sh"

need_toolchains
venv=${MILEPOST_TRACED_VENV:-$cache/venv-traced}
[ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv"
say "building the wheel without optimisation"
MATURIN_PEP517_ARGS="--locked --profile dev" \
    "$venv/bin/python" -m pip install -q --no-deps --force-reinstall "$root" >&2
exec "$PYTHON" "$root/tools/files-passed.py" "$venv/bin/milepost" "$@"
