#!/bin/sh
# Prints the benchmarks of `gravel check`: run.sh BUILD [small]. "small" leaves out the runs that take minutes.
# Times are printed and never asserted: the machine may be busy. The races that each trace holds are verified.
set -eu
build=${1:-build}
size=${2:-full}
bench=$build/bench/check_bench
[ -x "$bench" ] || { echo "bench: $bench is missing; run \`make build\`" >&2; exit 2; }
directory=$(mktemp -d "${TMPDIR:-/tmp}/gravel-bench.XXXXXX")
trap 'rm -rf "$directory"' EXIT INT TERM
gravel=$build/gravel

# case NAME SHAPE...: generates a trace, checks it, and runs the command on it where it is built.
case_() {
    name=$1; shift
    echo "== $name"
    "$bench" generate "$directory/trace.gravel" "$@"
    "$bench" check "$directory/trace.gravel" "$@" | tee "$directory/$(echo "$name" | tr ' ' _)"
    if [ -x "$gravel" ]; then
        printf 'gravel check: '
        "$bench" run "$gravel" check "$directory/trace.gravel"
    fi
}
# cpu NAME: processor seconds of a case's check.
cpu() { sed -n 's/^check: .*cpu \([0-9.]*\) s .*/\1/p' "$directory/$(echo "$1" | tr ' ' _)"; }
# compare NAME: all unordered pairs of nodes of the trace at hand, one by one.
compare() {
    "$bench" pairs "$directory/trace.gravel" | tee "$directory/pairs"
    all=$(sed -n 's/^all pairs: .*cpu \([0-9.]*\) s.*/\1/p' "$directory/pairs")
    echo "   all pairs against the whole check: $(ratio "$all" "$(cpu "$1")") times the processor time"
}
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.1f", a / b }'; }

# shape: NODES CHAINS EDGES RANGES-PER-NODE RACES SEED
case_ "879 nodes" 879 8 1132 12 6 1
if [ -x "$gravel" ]; then
    printf 'gravel --version (start and end of a process): '
    "$bench" run "$gravel" --version
fi
echo "   bar: 5 ms"

case_ "10 million ranges" 10000 64 0 1020 36 1
echo "   bar: 2 s and 1024 MiB on one core"
[ "$size" = full ] && compare "10 million ranges"

case_ "1 million ranges" 1000 64 0 1020 24 1
compare "1 million ranges"

if [ "$size" = full ]; then
    case_ "100 million ranges" 10000 64 0 10200 36 1
    echo "   10 to 100 million ranges: $(ratio "$(cpu "100 million ranges")" "$(cpu "10 million ranges")") times the processor time (bar: 12)"
fi

# The fewest edges for 1,000 conflicts that have nothing to do with one another: the bar of docs/fix.md.
if [ -x "$gravel" ]; then
    echo "== a fix for 1,000 conflicts"
    "$bench" generate "$directory/trace.gravel" 10000 64 0 100 1000 1
    printf 'gravel check: '
    "$bench" run "$gravel" check "$directory/trace.gravel"
    printf 'gravel fix: '
    "$bench" run "$gravel" fix "$directory/trace.gravel"
    "$gravel" fix "$directory/trace.gravel" | sed -n 's/^  \[fix\].* \(pairs=[0-9]* edges=[0-9]* at_least=[0-9]*\).*/   \1/p'
    echo "   bar: 10 s on one core"
fi

sh "$(dirname "$0")/stress.sh" "$build"
