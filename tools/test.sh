#!/bin/sh
# `make test`: every test there is, each step under its own heading, one verdict on the last line.
#
# Takes names of steps as arguments (default: all of them) and
#   MILEPOST_TEST_BUDGET          seconds that the steps may take (default 720 for all of them)
#   MILEPOST_FREETHREADED=build   build the free-threaded interpreter if it is not at hand
#   MILEPOST_WHEEL_PROFILE        cargo profile of the wheel under test (default dev, as the tests of Rust)
#   MILEPOST_PYTEST_WORKERS       how many tests of pytest run at once (default four for each core)
#   MILEPOST_TEST_SEED            of what is drawn at random (default a number of the commit's tree)
# Prints how long each step took and whether all of them kept the budget, and adds a line for each step to
# `test-times.tsv` in the target folder: commit, step, seconds, outcome, seconds of processors.
# Gives exit 0 when all steps passed, 1 when one did not, 2 when something is missing. What the steps
# are, and what they print, is in steps.sh.
set -u
. "$(dirname "$0")/common.sh"
cd "$root" || exit 2

# Two lanes run beside each other. clippy, the tests of Rust and the wheel have one target folder, in which cargo compiles
# for one at a time, with all cores; the fuzzers, each on one core, come last, beside the tests of Rust, which leave a
# part of the cores idle. What talks to servers comes after both lanes: it has the machine for itself.
cargo_lane="fmt clippy unit loom rust tidy"
wheel_lane="wheel stubtest fuzz"
server_lane="pytest freethreaded"
# `unit` and `loom` are parts of `rust`.
everything="fmt clippy rust tidy $wheel_lane $server_lane"
steps=${*:-$everything}
began=$(date +%s)

# crates/python links libpython for its own tests; the loader must find the one of this interpreter.
point_at_python() {
    # The checkers stand apart: what they depend on must not be on the path of the tests.
    venv checks "$PYTHON" "$root/tests/requirements-checks.txt" >"$results/checks" &
    venv=$(venv test "$PYTHON" "$root/tests/requirements.txt") || exit 2
    wait $! || exit 2
    checks=$(cat "$results/checks")
    export venv checks PYO3_PYTHON="$venv/bin/python"
    libdir=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_config_var("LIBDIR") or "")')
    [ -z "$libdir" ] || export LD_LIBRARY_PATH="$libdir${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
}

# steps_of LANE: those of the lane that are wanted.
steps_of() { for step in $1; do case " $steps " in *" $step "*) echo "$step" ;; esac; done; }

refuse_unknown_steps() {
    for step in $steps; do
        case " $cargo_lane $wheel_lane $server_lane " in *" $step "*) continue ;; esac
        say "test: no step \`$step\`"
        say "hint: one of: $cargo_lane $wheel_lane $server_lane"
        exit 2
    done
}

# A session of its own each: what a lane has started can be ended with it.
# run_lanes LANE...: beside each other, to their ends.
run_lanes() {
    lanes=
    trap 'end_lanes; exit 130' INT TERM HUP
    for lane in "$@"; do
        # shellcheck disable=SC2046  # a list of words is meant
        setsid sh tools/steps.sh "$results" $(steps_of "$lane") &
        lanes="$lanes $!"
    done
    wait
}

end_lanes() { for lane in $lanes; do kill -TERM "-$lane" 2>/dev/null; done; }

# names_in OUTCOME: the steps that ended so.
names_in() { cat "$results/$1" 2>/dev/null | tr '\n' ' ' | sed 's/ $//'; }

# MIN min SEC s.
as_minutes() { echo "$(($1 / 60)) min $(($1 % 60)) s"; }

# tell_times SECONDS: of each step and of all of them, and the budget where there is one.
tell_times() {
    commit=$(git rev-parse --short HEAD 2>/dev/null || echo unknown)
    kept=${CARGO_TARGET_DIR:-$root/target}/test-times.tsv
    echo
    # In the order in which they ended; lanes run beside each other, so that their sum is more than the total.
    # What they share is the processors: how many seconds of them each has used says where time goes.
    while read -r step seconds outcome computed; do
        printf '%8s s  %8s s of processors  %s\n' "$seconds" "$computed" "$step"
        printf '%s\t%s\t%s\t%s\t%s\n' "$commit" "$step" "$seconds" "$outcome" "$computed" >>"$kept"
    done <"$results/times"
    # On a machine that has compiled nothing yet.
    budget=${MILEPOST_TEST_BUDGET:-$([ "$steps" != "$everything" ] || echo 720)}
    computed=$(awk '{ sum += $4 } END { print sum + 0 }' "$results/times")
    printf '%8s s  %8s s of processors  total%s\n' "$1" "$computed" "${budget:+, of a budget of $budget s}"
    [ "$1" -le "${budget:-$1}" ] || echo "milepost: over the budget by $(as_minutes $(($1 - budget)))"
}

# A full disk fails every step in words of its own; one line before the first is clearer. A first run writes 3 GB to
# the target folder and 0.5 GB each to the cache and the folder for temporary files.
need_space() {
    target=${CARGO_TARGET_DIR:-$root/target}
    mkdir -p "$target" || exit 2
    [ -d "$target/debug/deps" ] && wanted_mb=1000 || wanted_mb=4500
    for folder in "$target" "$cache" "${TMPDIR:-/tmp}"; do
        free_mb=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
        if [ "$free_mb" -lt "$wanted_mb" ]; then
            say "missing: disk space: $folder has $free_mb MB free, \`make test\` needs $wanted_mb MB"
            say "hint: rm -r $target, or set CARGO_TARGET_DIR, MILEPOST_CACHE and TMPDIR to folders on another disk"
            exit 2
        fi
        wanted_mb=1000
    done
    # A checkout that is compiled once has no use for what makes the next compilation faster, half of the folder, nor
    # for the lines of a backtrace, a fifth of the time that our crates take: a panic names its own line anyway.
    [ -d "$target/debug/incremental" ] || export CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=none
}

refuse_unknown_steps
need_toolchains
need_space
for tool in fmt clippy; do
    cargo "$tool" --version >/dev/null 2>&1 || {
        say "missing: cargo $tool"
        say "hint: rustup component add rustfmt clippy"
        exit 2
    }
done
results=$(mktemp -d) || exit 2
trap 'rm -rf "$results"' EXIT
point_at_python
run_lanes "$cargo_lane" "$wheel_lane"
run_lanes "$server_lane"

passed=$(names_in passed)
failed=$(names_in FAILED)
skipped=$(names_in skipped)
seconds=$(($(date +%s) - began))
took=$(as_minutes "$seconds")
mkdir -p "${CARGO_TARGET_DIR:-$root/target}" && touch "$results/times" && tell_times "$seconds"
echo
# A lane that was killed has left steps without an outcome.
for step in $steps; do
    case " $passed $failed $skipped " in *" $step "*) ;; *) failed="$failed $step" ;; esac
done
if [ -n "$failed" ]; then
    echo "milepost: FAILED: $(echo $failed) (of: $(echo $steps)) after $took"
    exit 1
fi
echo "milepost: passed: $(echo $passed)${skipped:+ (skipped: $skipped)} in $took"
