#!/bin/sh
# The steps of `make test`, one after another: steps.sh FOLDER STEP...
#
# Takes what tools/test.sh exports: `venv` and `checks` (the folders of its two environments),
# PYO3_PYTHON, and the settings that are named there. Gives what each step has printed on stdout, in one
# piece under its own heading when the step has ended, and its name as a line of FOLDER/passed,
# FOLDER/FAILED or FOLDER/skipped. A failed step does not hide what the later ones would say.
# It must not be started but by test.sh, which alone knows the verdict: other steps may run beside it.
set -u
. "$(dirname "$0")/common.sh"
cd "$root" || exit 2

results=$1
shift
python_sources="examples lab python tests tools"
# What is drawn at random is drawn from the tree that is tested: one tree has one verdict, and the next one
# draws other cases.
seed=${MILEPOST_TEST_SEED:-$(printf '%d' "0x1$(git rev-parse 'HEAD^{tree}' 2>/dev/null | cut -c 1-7)")}
# The exit code of a step that had nothing to run on.
is_skipped=77

fmt() {
    cargo fmt --all --check &&
        "$checks/bin/ruff" format --no-cache --check $python_sources &&
        "$checks/bin/ruff" check --no-cache $python_sources
}

# The tree is compiled three times and no more: by clippy, for the tests of Rust, and for the wheel. The tests of
# Rust have the feature `faults`, all of them, because each other set of features would be another compilation. The
# wheel has not, as a release: what depends on that feature is compiled for it anew, the rest is what the tests of
# Rust have, in the same profile. (fuzz compiles a crate or two of it for itself.)
with_faults="--workspace --features milepost-python/faults --locked"

clippy() { cargo clippy $with_faults --all-targets -- -D warnings; }

# run_tests TARGETS...: without the examples, which clippy checks, and without the texts of documentation, in which
# there is no code.
run_tests() {
    # Many tests wait for a deadline or a thread most of their time.
    RUST_TEST_THREADS="${RUST_TEST_THREADS:-$(($(nproc) * 2))}" PROPTEST_RNG_SEED="$seed" \
        cargo test $with_faults --no-fail-fast "$@"
}

# Those that stand beside the code, in seconds.
unit() { run_tests --lib --bins --exclude milepost-loom-tests; }

# All are compiled at once. Then unit tests and integration tests run at the same time: cargo runs one program of tests
# after the other, and each half leaves a part of the processors idle.
rust() {
    run_tests --lib --bins --tests --no-run || return 1
    run_tests --test '*' >"$results/rust-tests" 2>&1 &
    tests=$!
    run_tests --lib --bins
    units_status=$?
    wait "$tests"
    tests_status=$?
    cat "$results/rust-tests"
    return $((units_status | tests_status))
}

tidy() { cargo run -q --locked -p xtask -- tidy; }

# Every interleaving of the hand-over: a part of `rust`.
loom() { cargo test --locked -p milepost-loom-tests; }

fuzz() { sh fuzz/smoke.sh 2 "$seed"; }

# build_wheel VENV FOLDER: a wheel for its interpreter, as the only file of the folder.
build_wheel() {
    rm -rf "$2"
    MATURIN_PEP517_ARGS="--locked --profile ${MILEPOST_WHEEL_PROFILE:-dev} --features same-libraries" \
        "$1/bin/python" -m pip wheel -q --no-deps --wheel-dir "$2" "$root"
}

# A library with other features than for the tests of Rust would be compiled a second time, with all that uses it.
same_libraries() {
    tree="cargo tree --locked --prefix none --no-dedupe"
    $tree --workspace --features milepost-python/faults -e normal,build,dev -f '{p} {f}' | sort -u >"$results/of-tests"
    $tree -p milepost-python --features same-libraries -e normal,build -f '{p} {f}' | sort -u >"$results/of-wheel"
    others=$(comm -13 "$results/of-tests" "$results/of-wheel" | grep -v '^milepost-')
    [ -z "$others" ] || {
        say "the wheel under test has libraries with other features than the tests of Rust:"
        say "$others"
        say "hint: name their further features in \`same-libraries\` of crates/python/Cargo.toml"
        return 1
    }
}

# install_wheel VENV FOLDER
install_wheel() { "$1/bin/python" -m pip install -q --no-deps --force-reinstall "$2"/*.whl; }

# One wheel for the tests and for the checkers, whose interpreter is the same, and one for the free-threaded
# interpreter where it is at hand. They are compiled while others test: those may have the cores.
wheel() {
    renice -n 10 -p $$ >/dev/null
    # Of the step `pytest`, which then need not wait for them.
    need_programs
    same_libraries &&
        build_wheel "$venv" "$results/wheel" &&
        install_wheel "$venv" "$results/wheel" &&
        compile_tests &&
        install_wheel "$checks" "$results/wheel" &&
        if interpreter=$(find_freethreaded); then
            ft_venv=$(freethreaded_venv) && build_wheel "$ft_venv" "$results/wheel-freethreaded"
        fi
}

# Where the free-threaded interpreter is; it is built where that is asked for.
find_freethreaded() {
    case "${MILEPOST_FREETHREADED:-}" in
        build) sh tools/freethreaded.sh ;;
        *) sh tools/freethreaded.sh --at-hand ;;
    esac
}

freethreaded_venv() { venv test-freethreaded "$interpreter" "$root/tests/requirements-freethreaded.txt"; }

# The tests must see the wheel as its users do, never the folder python/ of the checkout.
from_elsewhere() { (cd / && "$@"); }

stubtest() {
    from_elsewhere "$checks/bin/python" -m mypy.stubtest milepost._milepost &&
        from_elsewhere "$checks/bin/python" -m mypy --cache-dir "$cache/mypy" --strict -p milepost
}

# compile_tests: pytest rewrites the assertions of all tests. It keeps what it has made, which each worker would make
# again if none had made it before them. No server of a test keeps anything: see `environment` in tests/serving.py.
# What is wrong with a test is told by the step `pytest`.
compile_tests() {
    from_elsewhere env PYTHONDONTWRITEBYTECODE= "$venv/bin/python" -m pytest -c "$root/pyproject.toml" "$root/tests" \
        --collect-only -qq -m "not conformance" >/dev/null || true
}

# run_pytest VENV ARGUMENT...: most tests wait for a server most of the time, so that more of them than there
# are cores run at once: three for each core leave a sixth of the processors idle. Neighbours stay together, for the
# servers that they share.
run_pytest() {
    of_venv=$1
    shift
    from_elsewhere "$of_venv/bin/python" -m pytest -c "$root/pyproject.toml" "$root/tests" \
        -n "${MILEPOST_PYTEST_WORKERS:-$(($(nproc) * 4))}" --dist worksteal -m "not conformance" "$@"
}

# Tests with programs that are not there are skipped, and say so.
need_programs() { sh tools/need.sh logrotate rsyslogd strace nginx nginx-stream || true; }

pytest() {
    need_programs
    run_pytest "$venv" -rs
}

# What supervisor, files, logs, load generator, simulator and documentation do is the same whatever interpreter
# there is, and was tested a step before.
without_interpreter() {
    for noun in http2 control scale spread recycling reload_numbers systemd container counters upgrade \
        log_daemons log_numbers files static_complete descriptors http_refusals bad_input lab whatif \
        certificates deploy docs_claims docs_links documented_settings init examples django_command; do
        printf -- '--ignore-glob */test_%s.py ' "$noun"
    done
    printf -- '--ignore-glob */test_bench*.py '
}

freethreaded() {
    if ! interpreter=$(find_freethreaded); then
        [ "${MILEPOST_FREETHREADED:-}" != build ] || return 1
        echo 'free-threaded: not at hand, skipped (make freethreaded builds it)'
        return "$is_skipped"
    fi
    ft_venv=$(freethreaded_venv) || return 1
    # Patterns for pytest, not for the shell.
    without=$(without_interpreter)
    set -f
    { [ -d "$results/wheel-freethreaded" ] || build_wheel "$ft_venv" "$results/wheel-freethreaded"; } &&
        (set +f && install_wheel "$ft_venv" "$results/wheel-freethreaded") &&
        run_pytest "$ft_venv" --ignore-glob '*/test_frameworks_*' $without
}

# processors_used FILE: writes the seconds of processors that all steps of this lane have used. A subshell, as of `$()`,
# would have used none.
processors_used() {
    times >"$1.times"
    # `1m2.5s 0m3.1s` of the shell, then of its children.
    awk 'NR == 2 { split($1 "s" $2, at, /[ms]+/); print int(at[1] * 60 + at[2] + at[3] * 60 + at[4]) }' "$1.times" >"$1"
}

run_step() {
    step_began=$(date +%s)
    processors_used "$results/$1.before"
    echo "-- $1: under way"
    "$1" >"$results/$1.txt" 2>&1
    case $? in
        0) outcome=passed ;;
        "$is_skipped") outcome=skipped ;;
        *) outcome=FAILED ;;
    esac
    step_took=$(($(date +%s) - step_began))
    processors_used "$results/$1.after"
    step_computed=$(($(cat "$results/$1.after") - $(cat "$results/$1.before")))
    echo "$1" >>"$results/$outcome"
    printf '%s\t%s\t%s\t%s\n' "$1" "$step_took" "$outcome" "$step_computed" >>"$results/times"
    # Steps that run beside each other must not print into each other's sections.
    {
        flock 9
        printf '\n== %s\n' "$1"
        cat "$results/$1.txt"
        echo "== $1: $outcome after $step_took s"
    } 9>"$results/printing"
}

for step in "$@"; do run_step "$step"; done
