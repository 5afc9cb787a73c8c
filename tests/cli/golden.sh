#!/bin/sh
# Compares what gravel prints about the written traces with tests/golden, byte by byte.
# GOLDEN_UPDATE=1 writes the files anew; read the difference before you commit it.
. "$(dirname "$0")/common.sh"
golden=$here/../golden
"$build/tests/cli/make_traces" "$scratch/traces" || exit 1
cp "$here"/*.supp "$scratch/traces"
cd "$scratch/traces" || exit 1

# golden FILE CODE ARGUMENT...: standard output, then standard error behind a line of dashes, then the exit code.
golden() {
    file=$1 code=$2
    shift 2
    "$gravel" "$@" > ../stdout 2> ../stderr
    got=$?
    {
        echo "\$ gravel $*"
        cat ../stdout
        [ -s ../stderr ] && echo "---- standard error" && cat ../stderr
        echo "---- exit code $got"
    } > ../raw
    # Where a frame begins depends on how well the time in it compresses.
    sed 's/at byte [0-9]*/at byte N/' ../raw > ../golden
    [ "$got" = "$code" ] || fail "$file: exit code $got, not $code"
    if [ "${GOLDEN_UPDATE:-0}" = 1 ]; then
        mkdir -p "$golden" && cp ../golden "$golden/$file"
    fi
    if diff -u "$golden/$file" ../golden; then ok; else fail "$file differs"; fi
}

# golden_file FILE WRITTEN: a file that a command wrote.
golden_file() {
    [ "${GOLDEN_UPDATE:-0}" = 1 ] && cp "$2" "$golden/$1"
    if diff -u "$golden/$1" "$2"; then ok; else fail "$1 differs"; fi
}

golden check-clean.txt 0 check clean.gravel
golden check-race.txt 1 check race.gravel
golden check-race-verbose.txt 1 check --verbose race.gravel
golden check-group.txt 1 check group.gravel
golden check-group-all-pairs.txt 1 check --all-pairs group.gravel
golden check-incomplete.txt 0 check incomplete.gravel
golden check-incomplete-required.txt 1 check --require-complete incomplete.gravel
golden check-waits.txt 1 check --all-pairs waits.gravel
golden check-several.txt 1 check several.gravel
golden check-buckets.txt 1 check buckets.gravel
golden check-buckets-verbose.txt 1 check --verbose buckets.gravel
golden check-buckets-files.txt 1 check rank.gravel buckets.gravel
golden check-child.txt 1 check child.gravel
golden check-bodies.txt 1 check bodies.gravel
golden check-ranges.txt 1 check --ranges 2 ranges.gravel
golden check-extents.txt 1 check extents.gravel
golden check-hostile.txt 1 check hostile.gravel
golden check-no-graphs.txt 0 check no-graphs.gravel
golden check-truncated.txt 0 check truncated.gravel
golden check-killed.txt 1 check killed.gravel
golden check-files.txt 1 check clean.gravel rank.gravel race.gravel
golden check-suppressed.txt 0 check --suppress race.supp race.gravel
golden check-suppressed-incomplete.txt 0 check --require-complete --suppress incomplete.supp incomplete.gravel
golden check-suppressed-in-part.txt 1 check --suppress group.supp group.gravel
for trace in race group child bodies waits buckets built; do
    golden "fix-$trace.txt" 0 fix "$trace.gravel"
done
# The file, after what is printed.
for trace in race child waits buckets clean; do
    "$gravel" fix -o "$trace.json" "$trace.gravel" > /dev/null
    golden_file "fix-$trace.json" "$trace.json"
done
golden fix-alike.txt 0 fix race.gravel killed.gravel
golden fix-lost.txt 1 fix lost.gravel
golden fix-nothing.txt 0 fix clean.gravel
golden fix-nothing-seen.txt 0 fix incomplete.gravel
golden fix-several.txt 0 fix several.gravel
golden fix-files.txt 0 fix clean.gravel rank.gravel buckets.gravel
golden fix-group-all-pairs.txt 0 fix --all-pairs group.gravel
golden fix-race-verbose.txt 0 fix --verbose race.gravel
golden fix-hostile.txt 0 fix hostile.gravel
golden fix-suppressed.txt 0 fix --suppress race.supp race.gravel
golden check-race.json 1 check --json race.gravel
golden check-group.json 1 check --json group.gravel
golden check-waits.json 1 check --json waits.gravel
golden check-several.json 1 check --json several.gravel
golden check-buckets.json 1 check --json buckets.gravel
golden check-extents.json 1 check --json extents.gravel
golden check-bodies.json 1 check --json bodies.gravel
golden check-hostile.json 1 check --json hostile.gravel
golden check-suppressed.json 0 check --json --suppress race.supp race.gravel
for table in graphs nodes edges access coverage allocations launches; do
    golden "show-several-$table.txt" 0 show several.gravel "$table"
    golden "show-several-$table.json" 0 show --json several.gravel "$table"
done
golden check-diffs.txt 1 check diffs.gravel
golden check-diffs.json 1 check --json diffs.gravel
golden show-diffs.txt 0 show diffs.gravel diffs
golden show-diffs.json 0 show --json diffs.gravel diffs
golden show-group-nodes.txt 0 show group.gravel nodes
golden show-incomplete-access.txt 0 show incomplete.gravel access --graph 1
golden show-waits-access.txt 0 show waits.gravel access
golden show-child-graphs.txt 0 show child.gravel graphs
golden show-child-nodes.txt 0 show child.gravel nodes --graph 2
golden show-ranges-access.txt 0 show ranges.gravel access
golden show-extents-access.txt 0 show extents.gravel access
golden show-bodies-nodes.txt 0 show bodies.gravel nodes
golden show-bodies-access.txt 0 show bodies.gravel access
golden show-bodies-coverage.txt 0 show bodies.gravel coverage
golden show-bodies-coverage.json 0 show --json bodies.gravel coverage
golden show-bodies-coverage-graph.txt 0 show bodies.gravel coverage --graph 1
golden show-bodies-coverage-body.txt 0 show bodies.gravel coverage --graph 3
golden show-buckets-coverage.txt 0 show buckets.gravel coverage
golden show-extents-coverage.txt 0 show extents.gravel coverage
golden show-no-graphs-coverage.txt 0 show no-graphs.gravel coverage
golden show-nothing.txt 0 show no-graphs.gravel graphs
golden show-truncated.txt 0 show truncated.gravel nodes

# The JSON that was just compared is JSON, has the members that docs/findings.md promises, and nothing else.
python3 "$here/schema.py" "$here/../../docs/findings.md" "$golden"/check-*.json "$golden"/show-*.json && ok || fail "the JSON is not as documented"

python3 "$here/fix_schema.py" "$here/../../docs" "$golden"/fix-*.json && ok || fail "the fix file is not as documented"

# Reports stay within 100 columns, but for the lines made for programs and messages on standard error.
wide=$(grep -h -v -e '^  \[[a-z]*\]' -e '^\$' -e '^gravel: ' "$golden"/check-*.txt "$golden"/fix-*.txt | awk 'length > 100')
[ -z "$wide" ] && ok || fail "wider than 100 columns: $wide"
finish
