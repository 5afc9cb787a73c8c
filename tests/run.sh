#!/bin/sh
# All tests that need no GPU: tests/run.sh BUILD. The unit and end-to-end tests and the twins in BUILD, and the
# unit and recorder tests once more with AddressSanitizer and UndefinedBehaviorSanitizer and with ThreadSanitizer.
# What failing tests printed comes last, before a line for each of them and one line `N passed, N failed`: of a long
# log, the end is what people see. Exits 1 when something failed.
set -u
build=${1:?usage: tests/run.sh BUILD}
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here" || exit 2
jobs=$(nproc 2> /dev/null || echo 2)
passed=0
failed=0
names=$build/failed-tests.txt outputs=$build/failed-outputs.txt # of all stages
: > "$names"
: > "$outputs"

# shorten MOST: the first and the last lines of what comes in, and how many are left out between them.
shorten() {
    awk -v most="$1" '{ line[NR] = $0 }
        END { for (i = 1; i <= NR; i++)
                  if (NR <= most || i <= most / 2 || i > NR - most / 2) print line[i]
                  else if (i == int(most / 2) + 1) print "[" NR - 2 * int(most / 2) " lines left out]" }'
}

# failure STAGE NAME HOW: notes a failure; what was printed comes in.
failure() {
    echo "$1: $2: $3" >> "$names"
    { echo "---- $2 ($1): $3"; shorten 200; echo; } >> "$outputs"
}

# Notes the failures in the log of a ctest run. Under a line such as " 3/121 Test #7: name ....***Failed  0.2 sec"
# stands what the test printed, up to the line of another test or of the summary.
note_failures() {
    stage=$1 log=$2
    awk '/^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / && /\*\*\*/ && !/\*\*\*Skipped/ { print $0 }' "$log" |
        while read -r line; do
            name=$(echo "$line" | sed 's/^[^:]*: \([^ ]*\) .*/\1/')
            how=$(echo "$line" | sed 's/.*\*\*\*//; s/  */ /g')
            LINE=$line awk '
                function trimmed(s) { sub(/^ +/, "", s); sub(/ +$/, "", s); return s }
                /^ *[0-9]+\/[0-9]+ Test +#[0-9]+: / { on = trimmed($0) == trimmed(ENVIRON["LINE"]); next }
                /^ +Start +[0-9]+: / || /^[0-9]+% tests passed/ { on = 0 }
                on' "$log" | failure "$stage" "$name" "$how"
        done
}

# Adds what a ctest run counted. "97% tests passed, 2 tests failed out of 60"
count() {
    stage=$1 log=$2
    line=$(grep 'tests passed,' "$log" | tail -1)
    total=$(echo "$line" | sed -n 's/.*out of \([0-9]*\).*/\1/p')
    bad=$(echo "$line" | sed -n 's/.*, \([0-9]*\) tests\{0,1\} failed.*/\1/p')
    if [ -z "$total" ] || [ -z "$bad" ]; then
        failure "$stage" ctest "ended without a summary" < "$log"
        failed=$((failed + 1))
        return
    fi
    passed=$((passed + total - bad))
    failed=$((failed + bad))
}

# tests NAME BUILD CTEST-ARGUMENTS...
tests() {
    name=$1 folder=$2
    shift 2
    echo "== $name"
    ctest --test-dir "$folder" --output-on-failure -j "$jobs" "$@" > "$folder/ctest.log" 2>&1
    grep -E '\*\*\*|tests passed,' "$folder/ctest.log"
    note_failures "$name" "$folder/ctest.log"
    count "$name" "$folder/ctest.log"
}

# sanitized NAME SANITIZERS CTEST-ARGUMENTS...: a build of its own beside BUILD.
sanitized() {
    name=$1 sanitizer=$2 folder=$build/sanitize-$1
    shift 2
    if cmake -S . -B "$folder" -G Ninja -DGV_SANITIZE="$sanitizer" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        > "$folder.log" 2>&1 && cmake --build "$folder" >> "$folder.log" 2>&1; then
        tests "tests with -fsanitize=$sanitizer" "$folder" "$@"
    else
        tail -30 "$folder.log" | failure "the build with -fsanitize=$sanitizer" build "its log is $folder.log"
        failed=$((failed + 1))
    fi
}

tests "unit and end-to-end tests" "$build"

echo "== twins on the software driver"
if sh twins/run.sh "$build" > "$build/twins.log" 2>&1; then
    tail -1 "$build/twins.log"
    passed=$((passed + 1))
else
    # shellcheck disable=SC2094 # both only read it
    failure "twins on the software driver" twins/run.sh "$(tail -1 "$build/twins.log")" < "$build/twins.log"
    failed=$((failed + 1))
fi

sanitized memory address,undefined -L 'unit|end-to-end'
sanitized threads thread -L 'unit|end-to-end'

if [ -s "$names" ]; then
    echo "== What failed"
    shorten 1500 < "$outputs"
    echo "== Failed (stage: test: how)"
    cat "$names"
fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
