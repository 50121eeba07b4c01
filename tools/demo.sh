#!/bin/sh
# `make demo`: builds Milepost, serves the bookshop with it and says what to open.
#
# Takes PORT (default 8000). Everything that is installed or stored goes below the cache folder.
set -eu
. "$(dirname "$0")/common.sh"

need_toolchains
port=${PORT:-8000}
venv=$(venv demo "$PYTHON" "$root/examples/bookshop/requirements.txt")
say "building the wheel in release; the first time takes some minutes"
"$venv/bin/python" -m pip install -q --no-deps --force-reinstall "$root"

export BOOKSHOP_DATA="${BOOKSHOP_DATA:-$cache/bookshop}"
cat <<TEXT

  The bookshop, on Milepost
    http://127.0.0.1:$port/                    list, search, one page per book
    http://127.0.0.1:$port/api/books           the same as JSON
    http://127.0.0.1:$port/uploads             upload a cover, see its size and SHA-256
    http://127.0.0.1:$port/slow?ms=300         an answer that takes its time
    http://127.0.0.1:$port/static/logo.svg     a file; the application never hears of it

  How to read a line of the access log: who, when, what, status, bytes, referer, agent, and then
  where the time went, in seconds:
    receive   from the first byte of the request until it was complete and handed on
    queue     waiting for a free thread of the pool
    run       in the application
    send      from the application's end until the kernel had the last byte
    total     all of it
  Six slow requests at once: four threads run, and the \`queue\` of the other two grows.
    for i in 1 2 3 4 5 6; do curl -s "http://127.0.0.1:$port/slow?ms=300" & done; wait
  Ctrl-C stops it: what has been received is still answered.

TEXT
cd "$root"
exec "$venv/bin/milepost" serve --config examples/bookshop/milepost.toml --bind "127.0.0.1:$port"
