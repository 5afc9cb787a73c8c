#!/bin/sh
# The main job in under a minute, on the software driver: a program whose captured graph computes wrong values, what
# gravel says of it after watching one replay, and the repaired program. tests/demo.sh BUILD
set -eu
build=${1:?usage: tests/demo.sh BUILD}
cd "$(dirname "$0")/.."
out=$build/demo
mkdir -p "$out"
rm -f "$out"/*.gravel

say() { printf '\n%s\n' "$*"; }
run() { printf '\n$ %s\n' "$*"; "$@" || code=$?; }

say "1. A program captures a graph of two branches. A small allocator, with the rules of PyTorch's, hands a block that
   the side branch still reads to the main branch. Replayed 50 times:"
LD_LIBRARY_PATH=$build/soft run "$build/twins/early-reuse" buggy 50

say "2. The same program, unchanged, under gravel. The first replay of the graph is run one node at a time and every
   byte it reads or writes is noted; the other 49 run as they always do:"
run "$build/gravel" run --soft -o "$out/buggy.gravel" -- "$build/twins/early-reuse" buggy 50

say "3. Which two operations conflict?"
code=0
run "$build/gravel" check "$out/buggy.gravel"
echo "(exit code $code: 1 means that something was found)"
[ "$code" = 1 ] || { echo "demo: the race was not found"; exit 1; }

say "4. The repaired program tells the allocator of the second use (tensor.record_stream in PyTorch):"
run "$build/gravel" run --soft -o "$out/clean.gravel" -- "$build/twins/early-reuse" clean 50
code=0
run "$build/gravel" check "$out/clean.gravel"
echo "(exit code $code)"
[ "$code" = 0 ] || { echo "demo: something was found in the repaired program"; exit 1; }

say "On a machine with a GPU leave out --soft and name your own program:
    gravel run -o t.gravel -- python serve.py
    gravel check t.gravel
The faults gravel is tested on are in twins/; \`make twins\` runs them all."
