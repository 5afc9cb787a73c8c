#!/bin/sh
# 10,000 sessions of gravel-specimen with every fault off, under AddressSanitizer with its search for leaks:
# tests/specimen/soak.sh BUILD [SESSIONS]. Fails on a wrong token, a lost page, a leak or a bad access.
set -eu
build=$(cd "${1:?usage: tests/specimen/soak.sh BUILD [SESSIONS]}" && pwd)
sessions=${2:-10000}
cd "$(dirname "$0")/../.."
folder=$build/sanitize-memory
cmake -S . -B "$folder" -G Ninja -DGV_SANITIZE=address,undefined -DCMAKE_BUILD_TYPE=RelWithDebInfo > "$folder.log" 2>&1 &&
    cmake --build "$folder" --target gravel-specimen >> "$folder.log" 2>&1 ||
    { tail -20 "$folder.log"; echo "soak: the build failed; its log is $folder.log"; exit 1; }

# A third of the sessions in each of three ways of decoding.
part=$(((sessions + 2) / 3))
for options in "--keys bf16 --repair" "--keys fp8" "--keys bf16 --repair=record --prove-reuse --eager --split"; do
    # shellcheck disable=SC2086 # a list of options
    LD_LIBRARY_PATH=$folder/soft "$folder/gravel-specimen" run --batch 16 --sessions "$part" --rounds 1 $options > \
        "$build/soak.log" 2>&1 || { cat "$build/soak.log"; exit 1; }
    cat "$build/soak.log"
    grep -q "wrong sessions 0 of $part " "$build/soak.log" || { echo "soak: not every session was right"; exit 1; }
done
