#!/bin/sh
# Fuzzes the readers of traces and fix files and what `gravel stress` reads: tests/fuzz/run.sh SECONDS [FOLDER [KIND...]]. The harnesses
# (trace, records, answer, scenario, fix) run one after the other, SECONDS each, from the kept corpus. What they find (new
# inputs, crashes) goes into FOLDER, by default build-fuzz/found; nothing in the repository changes. Fails when an input
# crashed, leaked or ran for more than 10 s.
set -eu
seconds=${1:?"usage: tests/fuzz/run.sh SECONDS [FOLDER]"}
cd "$(dirname "$0")/../.."
build=build-fuzz
found=${2:-$build/found}
shift
[ "$#" = 0 ] || shift
[ "$#" != 0 ] || set -- trace records answer scenario fix
cmake -S . -B "$build" -G Ninja -DCMAKE_C_COMPILER=clang -DGV_FUZZ=ON \
    -DGV_SANITIZE=fuzzer-no-link,address,undefined > /dev/null
for kind; do
    cmake --build "$build" --target "fuzz_$kind"
    dict=tests/fuzz/$kind.dict
    [ -f "$dict" ] || dict=tests/fuzz/records.dict
    mkdir -p "$found/$kind"
    "$build/fuzz_$kind" -max_total_time="$seconds" -max_len=16384 -timeout=10 -rss_limit_mb=2048 -use_value_profile=1 \
        -dict="$dict" -artifact_prefix="$found/$kind-" -print_final_stats=1 \
        "$found/$kind" "tests/fuzz/corpus/$kind"
done
