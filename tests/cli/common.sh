# Sourced by the tests of this folder: finds what they test, makes a scratch folder, and counts.
build=$(cd "$1" && pwd)
gravel=$build/gravel
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
passed=0
failed=0

ok() { passed=$((passed + 1)); }

fail() {
    failed=$((failed + 1))
    echo "FAILED: $1"
}

# expect NAME CODE TEXT COMMAND...: the command exits with CODE and says TEXT (a basic regular expression; "" for any)
# on its two outputs together.
expect() {
    e_name=$1 e_code=$2 e_text=$3
    shift 3
    "$@" > "$scratch/output" 2>&1 < /dev/null
    got=$?
    if [ "$got" != "$e_code" ]; then
        fail "$e_name: exit code $got, not $e_code"
        cat "$scratch/output"
    elif [ -n "$e_text" ] && ! tr '\n' ' ' < "$scratch/output" | tr -s ' ' | grep -q -e "$e_text"; then
        fail "$e_name: \"$e_text\" was not said:"
        cat "$scratch/output"
    else
        ok
    fi
}

finish() {
    echo "$(basename "$0" .sh): $passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" != 0 ]
}
