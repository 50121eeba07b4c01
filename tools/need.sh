#!/bin/sh
# Sees to it that programs and headers are there: need.sh WHAT...
#
# WHAT is one of the words in `package_of` below. What is missing is installed from apt when this
# runs as root on a system that has apt, and named with the package that brings it otherwise.
# Gives exit 0 when everything is there, 2 when something is missing and could not be had.
# It must not touch anything but apt's own state.
set -u

package_of() {
    case "$1" in
        cc) echo gcc ;;
        make) echo make ;;
        python-venv) echo python3-venv ;;
        python-headers) echo python3-dev ;;
        openssl-headers) echo libssl-dev ;;
        zlib-headers) echo zlib1g-dev ;;
        ffi-headers) echo libffi-dev ;;
        sqlite-headers) echo libsqlite3-dev ;;
        xz) echo xz-utils ;;
        pkg-config) echo pkg-config ;;
        logrotate) echo logrotate ;;
        rsyslogd) echo rsyslog ;;
        strace) echo strace ;;
        redis-server) echo redis-server ;;
        postgres) echo postgresql ;;
        nginx) echo nginx ;;
        nginx-stream) echo libnginx-mod-stream ;;
        mmdebstrap) echo mmdebstrap ;;
        prometheus) echo prometheus ;;
        node) echo nodejs ;;
        npm) echo npm ;;
        chromium) echo chromium ;;
        *) echo "" ;;
    esac
}

has_header() { printf '#include <%s>\n' "$1" | cc -E - >/dev/null 2>&1; }

python_says() { "${PYTHON:-python3}" -c "$1" >/dev/null 2>&1; }

is_there() {
    case "$1" in
        cc) command -v cc >/dev/null 2>&1 && has_header stdlib.h ;;
        make | xz | pkg-config | logrotate | rsyslogd | strace | redis-server | nginx | mmdebstrap | prometheus | node | npm | chromium) command -v "$1" >/dev/null 2>&1 ;;
        # Debian keeps the server out of the path.
        nginx-stream) ls /usr/lib/nginx/modules/ngx_stream_module.so >/dev/null 2>&1 ;;
        postgres) ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 ;;
        python-venv) python_says 'import venv, ensurepip' ;;
        python-headers) python_says 'import os, sysconfig; os.stat(os.path.join(sysconfig.get_paths()["include"], "Python.h"))' ;;
        openssl-headers) has_header openssl/ssl.h ;;
        zlib-headers) has_header zlib.h ;;
        ffi-headers) has_header ffi.h ;;
        sqlite-headers) has_header sqlite3.h ;;
        *) echo "milepost: need.sh: \`$1\` is not a word it knows" >&2; return 1 ;;
    esac
}

missing_of() { for what in "$@"; do is_there "$what" || printf '%s ' "$what"; done; }

packages_of() { for what in "$@"; do package_of "$what"; done | sort -u | tr '\n' ' '; }

missing=$(missing_of "$@")
[ -z "$missing" ] && exit 0

# shellcheck disable=SC2086  # a list of words is meant
packages=$(packages_of $missing)
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "milepost: installing from apt: $packages" >&2
    # shellcheck disable=SC2086
    # In run level 1 a package does not start its server: the tests start their own.
    { apt-get -qq update && DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 \
        apt-get -qq install -y --no-install-recommends $packages; } >&2 ||
        echo "milepost: apt-get failed, see above" >&2
    missing=$(missing_of "$@")
    [ -z "$missing" ] && exit 0
fi
echo "milepost: missing: $missing" >&2
echo "hint: apt-get install $packages" >&2
exit 2
