#!/bin/sh
# `make test`: every test there is, each step under its own heading, one verdict on the last line.
#
# Takes names of steps as arguments (default: all of them, in the order below) and
#   MILEPOST_FREETHREADED=build   build the free-threaded interpreter if it is not at hand
#   MILEPOST_WHEEL_PROFILE        cargo profile of the wheel under test (default quick)
# Gives exit 0 when all steps passed, 1 when one did not, 2 when something is missing. A failed step
# does not hide what the later ones would say.
set -u
. "$(dirname "$0")/common.sh"
cd "$root" || exit 2

steps=${*:-fmt clippy rust tidy loom fuzz wheel stubtest pytest freethreaded}
began=$(date +%s)
failed=
skipped=
python_sources="examples python tests"

fmt() {
    cargo fmt --all --check &&
        "$checks/bin/ruff" format --no-cache --check $python_sources &&
        "$checks/bin/ruff" check --no-cache $python_sources
}

clippy() {
    cargo clippy --workspace --all-targets --locked -- -D warnings &&
        cargo clippy -p milepost-server --all-targets --features faults --locked -- -D warnings
}

# The feature `faults` is for its own tests alone: the others run what is released.
rust() {
    cargo test --workspace --locked --no-fail-fast &&
        cargo test -p milepost-server --locked --no-fail-fast --features faults --lib --test faults
}

tidy() { cargo run -q --locked -p xtask -- tidy; }

# Every interleaving of the hand-over; a target folder of its own because `--cfg loom` changes every
# crate, and optimised because there are many interleavings.
loom() {
    RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$root/target}/loom" \
        cargo test --locked --profile quick -p milepost-model
}

fuzz() { sh fuzz/smoke.sh; }

# build_wheel VENV
build_wheel() {
    MATURIN_PEP517_ARGS="--locked --profile ${MILEPOST_WHEEL_PROFILE:-quick}" \
        "$1/bin/python" -m pip install -q --no-deps --force-reinstall "$root"
}

# The tests must see the wheel as its users do, never the folder python/ of the checkout.
from_elsewhere() { (cd / && "$@"); }

wheel() { build_wheel "$venv"; }

stubtest() {
    build_wheel "$checks" &&
        from_elsewhere "$checks/bin/python" -m mypy.stubtest milepost._milepost &&
        from_elsewhere "$checks/bin/python" -m mypy --cache-dir "$cache/mypy" --strict -p milepost
}

# Tests with programs that are not there are skipped, and say so.
pytest() {
    sh tools/need.sh logrotate rsyslogd || true
    from_elsewhere "$venv/bin/python" -m pytest -c "$root/pyproject.toml" "$root/tests" -rs
}

# What the supervisor does by itself is the same whatever its processes run on, and was tested a step before.
without_interpreter() {
    for noun in control scale spread recycling reload_numbers systemd container counters; do
        printf -- '--ignore-glob */test_%s.py ' "$noun"
    done
}

freethreaded() {
    if [ "${MILEPOST_FREETHREADED:-}" = build ]; then
        interpreter=$(sh tools/freethreaded.sh) || return 1
    elif ! interpreter=$(sh tools/freethreaded.sh --at-hand); then
        echo 'free-threaded: not at hand, skipped (make freethreaded builds it)'
        skipped="$skipped freethreaded"
        return 0
    fi
    ft_venv=$(venv test-freethreaded "$interpreter" "$root/tests/requirements-freethreaded.txt") || return 1
    # Patterns for pytest, not for the shell.
    without=$(without_interpreter)
    set -f
    build_wheel "$ft_venv" &&
        from_elsewhere "$ft_venv/bin/python" -m pytest -c "$root/pyproject.toml" "$root/tests" \
            --ignore-glob '*/test_frameworks_*' $without
}

# crates/python links libpython for its own tests; the loader must find the one of this interpreter.
point_at_python() {
    venv=$(venv test "$PYTHON" "$root/tests/requirements.txt") || exit 2
    # The checkers stand apart: what they depend on must not be on the path of the tests.
    checks=$(venv checks "$PYTHON" "$root/tests/requirements-checks.txt") || exit 2
    export PYO3_PYTHON="$venv/bin/python"
    libdir=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR") or "")')
    [ -z "$libdir" ] || export LD_LIBRARY_PATH="$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

run_step() {
    step_began=$(date +%s)
    echo
    echo "== $1"
    if "$1"; then verdict=passed; else verdict=FAILED; failed="$failed $1"; fi
    echo "== $1: $verdict after $(($(date +%s) - step_began)) s"
}

need_toolchains
for tool in fmt clippy; do
    cargo "$tool" --version >/dev/null 2>&1 || {
        say "missing: cargo $tool"
        say "hint: rustup component add rustfmt clippy"
        exit 2
    }
done
point_at_python
for step in $steps; do run_step "$step"; done

echo
took="$((($(date +%s) - began) / 60)) min $((($(date +%s) - began) % 60)) s"
if [ -n "$failed" ]; then
    echo "milepost: FAILED:$failed (of: $(echo $steps)) after $took"
    exit 1
fi
echo "milepost: passed: $(echo $steps)${skipped:+ (skipped:$skipped)} in $took"
