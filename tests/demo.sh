#!/bin/sh
# The main job in about a minute, on the software driver: an inference engine whose answers are sometimes wrong, what
# gravel says of it after watching one decode step, the fewest edges that repair it, and the repaired engine.
#     tests/demo.sh BUILD
set -eu
build=${1:?usage: tests/demo.sh BUILD}
cd "$(dirname "$0")/.."
out=$build/demo
mkdir -p "$out"
rm -f "$out"/*.gravel

say() { printf '\n%s\n' "$*"; }
run() { printf '\n$ %s\n' "$*"; "$@" || code=$?; }

say "1. gravel-specimen is a small inference engine. Agents ask its model to call a tool whose arguments stand earlier in
   the conversation, so that the right answer is always known. Some answers are wrong, without any error. When? Each
   number counts the sessions that went wrong; what is varied is the format of the index's keys, whether the indexer
   overlaps with the rest in a stream of its own, how many requests are decoded at a time, and whether a captured CUDA
   graph is replayed or every kernel is launched:"
code=0
run python3 -B tests/specimen/fingerprint.py "$build" --sessions 6 --rounds 1 --batch 3 --schedule seed:8
[ "$code" = 0 ] || { echo "demo: that is not the fingerprint of the incident"; exit 1; }
say "   bf16 keys, overlap and a batch: all three are needed, and even then some sessions are right. Graph or eager makes no
   difference. Flags can be toggled like this for days, and none of them says what is wrong."

say "2. The same engine under gravel. The first replay of the graph is run one node at a time, and every byte that a node
   reads or writes is noted; all others run as they always do:"
code=0
run "$build/gravel" run --soft -o "$out/incident.gravel" -- \
    "$build/gravel-specimen" run --batch 8 --buckets 8 --sessions 8 --rounds 1
[ "$code" = 0 ] || { echo "demo: the engine did not run"; exit 1; }

say "3. Which two operations conflict?"
code=0
run "$build/gravel" check "$out/incident.gravel"
echo "(exit code $code: 1 means that something was found)"
[ "$code" = 1 ] || { echo "demo: the race was not found"; exit 1; }
say "   In both layers: the tensor of the index's queries was dropped when the indexer's host code returned. The caching
   allocator gave its block to pack_q's output at once, in the main stream, while the indexer's streams had not even
   begun. With fp8 keys or a batch of one the block is too small or another one fits better (docs/specimen.md)."

say "4. What is the smallest fix? The fewest edges that order all of that, and what a person would write instead:"
code=0
run "$build/gravel" fix "$out/incident.gravel" -o "$out/fix.json"
[ "$code" = 0 ] || { echo "demo: no fix was found"; exit 1; }

say "   The same engine, unchanged, with these edges put into its graph while it runs; its streams still overlap:"
code=0
run "$build/gravel" run --soft --fix "$out/fix.json" -o "$out/fixed.gravel" -- \
    "$build/gravel-specimen" run --batch 8 --buckets 8 --sessions 8 --rounds 1 | tee "$out/fixed.txt"
grep -q 'wrong sessions 0 of 8' "$out/fixed.txt" || { echo "demo: the fix does not repair the engine"; exit 1; }

say "5. The repaired engine keeps that tensor until the streams have joined:"
code=0
run "$build/gravel" run --soft -o "$out/repaired.gravel" -- \
    "$build/gravel-specimen" run --batch 8 --buckets 8 --sessions 8 --rounds 1 --repair
[ "$code" = 0 ] || { echo "demo: the repaired engine did not run"; exit 1; }
code=0
run "$build/gravel" check "$out/repaired.gravel"
echo "(exit code $code)"
[ "$code" = 0 ] || { echo "demo: something was found in the repaired engine"; exit 1; }

say "On a machine with a GPU leave out --soft and name your own program:
    gravel run -o t.gravel -- python serve.py
    gravel check t.gravel
    gravel fix t.gravel -o fix.json
How the engine works and breaks: docs/specimen.md; its other faults: gravel-specimen faults. The smallest programs with
one fault each are in twins/; \`make twins\` runs them all."
