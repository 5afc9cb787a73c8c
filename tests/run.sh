#!/bin/sh
# All tests that need no GPU: tests/run.sh BUILD. The unit and end-to-end tests and the twins in BUILD, and the
# unit and recorder tests once more with AddressSanitizer and UndefinedBehaviorSanitizer and with ThreadSanitizer.
# Ends in one line `N passed, N failed`; exits 1 when something failed.
set -u
build=${1:?usage: tests/run.sh BUILD}
here=$(cd "$(dirname "$0")/.." && pwd)
cd "$here" || exit 2
jobs=$(nproc 2> /dev/null || echo 2)
passed=0
failed=0

# Adds what a ctest run counted. "97% tests passed, 2 tests failed out of 60"
count() {
    line=$(grep 'tests passed,' "$1" | tail -1)
    total=$(echo "$line" | sed -n 's/.*out of \([0-9]*\).*/\1/p')
    bad=$(echo "$line" | sed -n 's/.*, \([0-9]*\) tests failed.*/\1/p')
    if [ -z "$total" ]; then
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
    grep -E '(Failed|Timeout|Not Run|Exception|\*\*\*)' "$folder/ctest.log" && sed -n '/Output from\|Errors while/,$p' "$folder/ctest.log" | head -5
    grep 'tests passed,' "$folder/ctest.log"
    [ -s "$folder/ctest.log" ] && grep -q '\*\*\*' "$folder/ctest.log" && sed -n '1,400p' "$folder/ctest.log"
    count "$folder/ctest.log"
}

# sanitized NAME SANITIZERS CTEST-ARGUMENTS...: a build of its own beside BUILD.
sanitized() {
    name=$1 sanitizer=$2 folder=$build/sanitize-$1
    shift 2
    if cmake -S . -B "$folder" -G Ninja -DGV_SANITIZE="$sanitizer" -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        > "$folder.log" 2>&1 && cmake --build "$folder" >> "$folder.log" 2>&1; then
        tests "tests with -fsanitize=$sanitizer" "$folder" "$@"
    else
        tail -30 "$folder.log"
        echo "the build with -fsanitize=$sanitizer failed; its log is $folder.log"
        failed=$((failed + 1))
    fi
}

tests "unit and end-to-end tests" "$build"

echo "== twins on the software driver"
if sh twins/run.sh "$build"; then passed=$((passed + 1)); else failed=$((failed + 1)); fi

sanitized memory address,undefined -L 'unit|end-to-end'
sanitized threads thread -L 'unit|end-to-end'

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
