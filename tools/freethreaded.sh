#!/bin/sh
# Builds a free-threaded CPython 3.13 ("3.13t") from Debian's source package and keeps it.
#
# Takes: a Debian mirror, the one that apt already uses; MILEPOST_CACHE (default
# ~/.cache/milepost) as the place to keep it. Gives: CACHE/python3.13t with bin/python3.13t and,
# when all is done, the file READY; prints the interpreter's path on stdout and everything else on
# stderr. Run again it only prints the path. With `--at-hand` it builds nothing: exit 1 if absent.
# It must not change what apt installs: its list of sources and its state live in a folder of
# their own, so that no package of another release can reach the system.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
cache=${MILEPOST_CACHE:-${HOME:?}/.cache/milepost}
prefix=$cache/python3.13t
python=$prefix/bin/python3.13t
work=$cache/build-python3.13t

say() { echo "milepost: freethreaded: $*" >&2; }

is_ready() { [ -e "$prefix/READY" ] && [ -x "$python" ]; }

# The mirror of the main archive, in either of apt's two notations.
configured_mirror() {
    { cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs:[[:space:]]*\([^[:space:]]*\).*/\1/p'
      cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
          sed -n 's/^deb[[:space:]]\(\[[^]]*\][[:space:]]*\)\{0,1\}\([^[:space:]]*\).*/\2/p'
    } | grep '/debian/*$' | head -n 1
}

# Fetches orig.tar.xz of the newest python3.13 of the first suite that has it.
fetch_source() {
    mirror=$(configured_mirror)
    mirror=${mirror:-http://deb.debian.org/debian}
    keyring=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e "$keyring" ] || { say "no $keyring"; say "hint: apt-get install debian-archive-keyring"; return 2; }
    for suite in trixie testing; do
        rm -rf "$work/apt" && mkdir -p "$work/apt/lists/partial" "$work/apt/cache/archives/partial" "$work/apt/parts"
        echo "deb-src [signed-by=$keyring] $mirror $suite main" >"$work/apt/sources.list"
        say "asking $mirror ($suite) for the source of python3.13"
        if private_apt update && (cd "$work" && private_apt source --download-only python3.13); then return 0; fi
    done
    say "no mirror gave the source package python3.13"
    return 2
}

# The sandbox user of apt cannot write below a home folder that only its owner may enter.
private_apt() {
    apt-get -qq -o Dir::Etc::sourcelist="$work/apt/sources.list" -o Dir::Etc::sourceparts="$work/apt/parts" \
        -o Dir::State::lists="$work/apt/lists" -o Dir::Cache="$work/apt/cache" \
        -o APT::Sandbox::User="$(id -un)" "$@" >&2
}

build() {
    (cd "$work" && tar -xf python3.13_*.orig.tar.xz)
    source=$(find "$work" -maxdepth 1 -type d -name 'Python-3.13*' -o -maxdepth 1 -type d -name 'python3.13*' | head -n 1)
    cd "$source"
    say "configuring $(basename "$source")"
    ./configure --quiet --disable-gil --disable-test-modules --without-static-libpython --enable-shared \
        --prefix="$prefix" LDFLAGS="-Wl,-rpath,$prefix/lib" >"$work/configure.log" 2>&1 || fail_with "$work/configure.log"
    say "building, 4 to 8 minutes on two cores; log: $work/make.log"
    make -s -j"${MILEPOST_JOBS:-2}" >"$work/make.log" 2>&1 || fail_with "$work/make.log"
    make -s install >"$work/install.log" 2>&1 || fail_with "$work/install.log"
}

fail_with() { tail -n 30 "$1" >&2; say "failed; the whole log is $1"; exit 2; }

# What the tests of the server need from it: no GIL, TLS for pip, SQLite for the frameworks.
prove() {
    "$python" -c 'import ssl, sqlite3, zlib, ctypes, sys; sys.exit(sys._is_gil_enabled())' ||
        { say "the interpreter that was built lacks a module or has its GIL"; exit 2; }
}

if is_ready; then echo "$python"; exit 0; fi
[ "${1:-}" = --at-hand ] && exit 1

sh "$here/need.sh" cc make xz pkg-config openssl-headers zlib-headers ffi-headers sqlite-headers
mkdir -p "$work"
# Two of these at once would write into each other's tree.
exec 9>"$cache/python3.13t.lock"
flock 9
if is_ready; then echo "$python"; exit 0; fi
rm -rf "$prefix"
[ -n "$(find "$work" -maxdepth 1 -name 'python3.13_*.orig.tar.xz')" ] || fetch_source
build
prove
"$python" --version >"$prefix/READY"
rm -rf "$work"
echo "$python"
