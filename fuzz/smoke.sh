#!/bin/sh
# Fuzzes every target for a while, each from its seeds:
#     fuzz/smoke.sh [SECONDS per target, default 10] [SEED of the random numbers, default a new one each time]
# Exits 1 and says where the input is when a target fails, 2 when it could not run.
#
# Plain cargo on the stable toolchain: the coverage counters are a pass of LLVM that rustc can be asked
# for, and libfuzzer-sys brings the fuzzer itself (a C++ compiler builds it). Without a sanitizer, which
# would need nightly; the crates under test have no unsafe code.
set -u

seconds=${1:-10}
seed=${2:-0}
targets="head decoded chunked reply upstream_request upstream_response endpoint_load line request_start trace frames tls_records websocket"
fuzz=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd) || exit 2
target_dir=${CARGO_TARGET_DIR:-$fuzz/../target}/fuzz
host=$(rustc -vV | sed -n 's/^host: //p') || exit 2

# `--target` keeps the counters out of build scripts, which have no fuzzer to report to.
RUSTFLAGS="-Cpasses=sancov-module \
 -Cllvm-args=-sanitizer-coverage-level=4 \
 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
 -Cllvm-args=-sanitizer-coverage-pc-table \
 -Cllvm-args=-sanitizer-coverage-trace-compares \
 --cfg fuzzing" \
    cargo build --quiet --release --locked --manifest-path "$fuzz/Cargo.toml" \
    --target "$host" --target-dir "$target_dir" || exit 2

for target in $targets; do
    corpus=$target_dir/corpus/$target
    found=$target_dir/found/$target
    output=$target_dir/$target.txt
    mkdir -p "$corpus" "$found" || exit 2
    # The first folder takes what is found to be new; the seeds are only read.
    "$target_dir/$host/release/$target" -seed="$seed" -max_total_time="$seconds" -max_len=1024 -timeout=5 \
        -dict="$fuzz/http.dict" -artifact_prefix="$found/" -print_final_stats=1 \
        "$corpus" "$fuzz/seeds/$target" >"$output" 2>&1
    status=$?
    if [ $status -ne 0 ]; then
        tail -n 40 "$output" >&2
        input=$(sed -n 's/.*Test unit written to //p' "$output" | tail -n 1)
        echo "fuzz: $target failed with ${input:-no input written, see $output}" >&2
        echo "hint: run it again with $target_dir/$host/release/$target ${input:-INPUT}" >&2
        exit 1
    fi
    # A fuzzer without counters sees nothing new after its seeds and would pass for ever.
    coverage=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' "$output" | tail -n 1)
    if [ "${coverage:-0}" -lt 50 ]; then
        echo "fuzz: $target ran without coverage feedback (cov: ${coverage:-none}), see $output" >&2
        exit 2
    fi
    runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$output")
    echo "fuzz: $target: ${runs:-?} runs in $seconds s, $coverage edges, no fault"
done
