#!/bin/sh
# `gravel fix` on what is wrong: usage, files that cannot be read or written, traces that are cut or damaged.
. "$(dirname "$0")/common.sh"
"$build/tests/cli/make_traces" "$scratch/traces" || exit 1
cp "$here"/*.supp "$scratch/traces"
bad=$(cd "$here/../data/bad" && pwd)
cd "$scratch/traces" || exit 1

expect "no file" 2 "name the trace to fix" "$gravel" fix
expect "bad option" 2 "no option --al-pairs; did you mean --all-pairs" "$gravel" fix --al-pairs race.gravel
expect "output without a name" 2 "needs an argument" "$gravel" fix race.gravel -o
expect "suppressions that are none" 2 "nothing.supp" "$gravel" fix --suppress nothing.supp race.gravel
expect "missing file" 3 "none.gravel: .*No such file" "$gravel" fix none.gravel
expect "no trace" 3 "not a gravel trace" "$gravel" fix "$bad/text.gravel"
expect "one of two files is bad" 3 "none.gravel" "$gravel" fix race.gravel none.gravel
expect "output that cannot be written" 3 "nowhere/fix.json cannot be written: No such file" \
    "$gravel" fix race.gravel -o nowhere/fix.json

# A file is written when there is a fix or nothing to fix, and not when there is none.
expect "nothing to fix" 0 "Nothing to fix.*Written to clean.json.*without an edge" "$gravel" fix clean.gravel -o clean.json
grep -q '"graphs": \[\]' clean.json && ok || fail "the file of nothing to fix has graphs"
expect "no fix" 1 "No fix: the pairs of 1 graph cannot be ordered" "$gravel" fix lost.gravel -o lost.json
[ ! -e lost.json ] && ok || fail "a file was written without a fix"
expect "a fix" 0 "Written to fix.json" "$gravel" fix race.gravel -o fix.json
cp fix.json older.json
expect "the same again" 0 "Written to fix.json" "$gravel" fix race.gravel -o fix.json
cmp -s fix.json older.json && ok || fail "the same trace gave another fix"
[ -z "$(find . -name '*.new')" ] && ok || fail "a half-written file was left"
mkfifo pipe && { cat pipe > piped.json & "$gravel" fix race.gravel -o pipe > /dev/null; wait; }
cmp -s fix.json piped.json && ok || fail "another fix went into a pipe"

# Graphs of two processes that are alike are one graph of the file.
"$gravel" fix race.gravel killed.gravel -o both.json > /dev/null
[ "$(grep -c '"fingerprint"' both.json)" = 1 ] && ok || fail "graphs that are alike are listed twice"

# Cut anywhere, or damaged: an answer or a refusal, never a crash.
for trace in race waits bodies; do
    size=$(wc -c < "$trace.gravel")
    cut=1
    while [ "$cut" -lt "$size" ]; do
        head -c "$cut" "$trace.gravel" > cut.gravel
        "$gravel" fix cut.gravel > ../output 2>&1
        code=$?
        [ "$code" = 0 ] || [ "$code" = 1 ] || [ "$code" = 3 ] || fail "$trace cut at $cut: exit code $code"
        cut=$((cut + 97))
    done
    ok
done
for file in "$bad"/*; do
    "$gravel" fix "$file" > ../output 2>&1
    code=$?
    [ "$code" = 0 ] || [ "$code" = 1 ] || [ "$code" = 3 ] && ok || fail "$file: exit code $code"
done
finish
