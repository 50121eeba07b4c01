#!/bin/sh
# `make wheels`: what is published, in dist/: a manylinux wheel for each CPython, and the command without Python.
#
# Takes ARGS: versions of CPython (default: all of them), or `static` for the command alone. zig links against glibc
# 2.28, so that a wheel runs on any distribution since 2019; maturin knows the headers of every CPython, none has to
# be here. Each wheel whose interpreter is here is installed into a bare environment and serves a request there; the
# others are named as not tried. Exit 1 when a wheel does not serve; maturin refuses one that
# asks for a newer glibc.
set -eu
. "$(dirname "$0")/common.sh"
cd "$root"

need_toolchains
tools=$(venv wheels "$PYTHON" "$root/tools/requirements-wheels.txt")
PATH=$tools/bin:$PATH
versions=${*:-3.10 3.11 3.12 3.13 3.14 3.13t static}
target=${CARGO_TARGET_DIR:-$root/target}
machine=$(uname -m)
# Equal sources give equal files: the times in archives are those of the commit, and no path of this machine is kept.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$root=milepost --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo"
export SOURCE_DATE_EPOCH RUSTFLAGS PATH
mkdir -p dist

# interpreter_of VERSION: an interpreter of that version that is here, or nothing.
interpreter_of() {
    for folder in ${PYENV_ROOT:-$HOME/.pyenv}/versions/"${1%t}".*/bin $(echo "$PATH" | tr ':' ' '); do
        [ -x "$folder/python$1" ] && "$folder/python$1" -c 'import venv, ensurepip' 2>/dev/null || continue
        echo "$folder/python$1"
        return
    done
    # Where `make freethreaded` keeps the one that it builds.
    [ ! -x "$cache/python$1/bin/python$1" ] || echo "$cache/python$1/bin/python$1"
}

build_wheel() {
    say "building the wheel for CPython $1"
    maturin build --release --locked --strip --zig --compatibility manylinux_2_28 \
        --target "$machine-unknown-linux-gnu" --interpreter "$1" --out "$target/wheels-$1" >/dev/null
    for wheel in "$target/wheels-$1"/*.whl; do
        mv "$wheel" dist/
        try_wheel "$1" "dist/$(basename "$wheel")"
    done
}

try_wheel() {
    interpreter=$(interpreter_of "$1")
    if [ -z "$interpreter" ]; then
        say "not tried, because CPython $1 is not here: $2"
        return
    fi
    fresh=$(mktemp -d)
    "$interpreter" -m venv "$fresh/venv"
    "$fresh/venv/bin/python" -m pip install -q --no-index "$2"
    "$fresh/venv/bin/python" tools/try_command.py "$fresh/venv/bin/milepost" app
    rm -r "$fresh"
    say "serves: $2"
}

# Without Python: files, redirects, and the commands that read logs and make load. musl, so that it runs anywhere.
build_static() {
    triple=$machine-unknown-linux-musl
    rustup target list --installed 2>/dev/null | grep -q "$triple" || rustup target add "$triple"
    say "building the command without Python"
    cargo zigbuild -q --release --locked --target "$triple" --package milepost
    cp "$target/$triple/release/milepost" "dist/milepost-$machine-linux"
    if ldd "dist/milepost-$machine-linux" >/dev/null 2>&1; then
        say "dist/milepost-$machine-linux is not static"
        exit 1
    fi
    "$PYTHON" tools/try_command.py "dist/milepost-$machine-linux" files
    say "serves: dist/milepost-$machine-linux"
}

for version in $versions; do
    case $version in
        static) build_static ;;
        *) build_wheel "$version" ;;
    esac
done
# One file of sums for each kind of machine, so that those of several can lie in one folder.
(
    cd dist
    for file in *"$machine"*.whl "milepost-$machine-linux"; do
        [ ! -f "$file" ] || sha256sum -- "$file"
    done >"SHA256SUMS-$machine"
)
say "in dist/: $(cd dist && echo *)"
