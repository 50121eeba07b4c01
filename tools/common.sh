# Sourced by the scripts here: where things are kept, and what must be there before anything starts.
#
# Takes MILEPOST_CACHE (default ~/.cache/milepost) and PYTHON (default python3). Gives `root`,
# `cache`, `say`, `need_toolchains` and `venv`. It must not write into the checkout.
# shellcheck shell=sh

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${MILEPOST_CACHE:-${HOME:?}/.cache/milepost}
PYTHON=${PYTHON:-python3}
export PYTHON
mkdir -p "$cache"

# One bare pip everywhere: quiet, no advice about newer versions of itself.
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

say() { echo "milepost: $*" >&2; }

# Names everything that is missing at once; exit 2 then.
need_toolchains() {
    missing=0
    need_rust || missing=1
    need_python || missing=1
    sh "$root/tools/need.sh" cc "$@" || missing=1
    [ "$missing" = 0 ] || exit 2
}

need_rust() {
    if ! command -v cargo >/dev/null 2>&1; then
        say "missing: cargo, the Rust toolchain"
        say "hint: https://rustup.rs, or: apt-get install rustup && rustup default stable"
        return 1
    fi
    wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
    found=$(rustc --version | cut -d' ' -f2)
    if [ "$(printf '%s\n%s\n' "$wanted" "${found%%-*}" | sort -V | head -n 1)" != "$wanted" ]; then
        say "rustc is \`$found\`, at least \`$wanted\` is needed"
        say "hint: rustup update stable"
        return 1
    fi
}

need_python() {
    if ! "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; then
        say "missing: Python 3.10 or later (\`$PYTHON\` is $("$PYTHON" --version 2>/dev/null || echo absent))"
        say "hint: apt-get install python3 python3-dev python3-venv, or name another one: PYTHON=python3.12"
        return 1
    fi
    sh "$root/tools/need.sh" python-venv python-headers
}

# venv NAME INTERPRETER REQUIREMENTS: prints the folder of a virtual environment in the cache that
# holds exactly these requirements. It is made anew when the interpreter or the requirements change.
venv() {
    folder=$cache/venv-$1
    # Two checkouts share the cache: the sum keeps them from taking each other's environment for theirs.
    sum=$({ "$2" -VV; "$2" -c 'import sys; print(sys.base_prefix)'; cat "$3"; } | cksum | tr ' ' '-')
    if [ "$(cat "$folder/made-from" 2>/dev/null)" != "$sum" ]; then
        say "making $folder with $("$2" --version)"
        rm -rf "$folder"
        "$2" -m venv "$folder" >&2
        "$folder/bin/python" -m pip install -q -r "$3" >&2
        echo "$sum" >"$folder/made-from"
    fi
    echo "$folder"
}
