#!/bin/sh
# What is no trace: each time one clear line, with what to do, and the documented exit code.
. "$(dirname "$0")/common.sh"
"$build/tests/cli/make_traces" "$scratch/traces" || exit 1
cd "$scratch/traces" || exit 1
echo "print('hello')" > text.gravel
mkdir folder.gravel
: > empty.gravel
head -c 1000000 /dev/urandom > random.gravel
head -c 1000000 /dev/zero > zeros.gravel
printf '\050\265\057\375' > magic.gravel

one_line() {
    what=$1 text=$2 file=$3
    for command in "check $file" "check --json $file" "show $file nodes"; do
        # shellcheck disable=SC2086
        expect "$what: $command" 3 "^gravel: $file: .*$text" "$gravel" $command
        [ "$(wc -l < "$scratch/output")" = 1 ] || fail "$what: $command: not one line"
    done
}
one_line "text file" "not a gravel trace.*gravel run" text.gravel
one_line "folder" "directory; name the trace files" folder.gravel
one_line "empty file" "empty" empty.gravel
one_line "random bytes" "not a gravel trace.*gravel run" random.gravel
one_line "zeros" "not a gravel trace.*gravel run" zeros.gravel
one_line "nothing but a magic number" "nothing can be read of it" magic.gravel
one_line "later major version" "a trace of format 2.*use a gravel at least as new" later.gravel
one_line "missing file" "No such file" missing.gravel
if [ "$(id -u)" != 0 ]; then
    cp clean.gravel secret.gravel && chmod 0 secret.gravel
    one_line "unreadable file" "Permission denied" secret.gravel
fi
expect "one of two files is bad" 3 "text.gravel: not a gravel trace.*leave the unreadable out" \
    "$gravel" check clean.gravel text.gravel

# Cut anywhere, a trace is analysed as far as it goes, or refused where nothing is left: never a crash.
size=$(wc -c < race.gravel)
cut=1
while [ "$cut" -lt "$size" ]; do
    head -c "$cut" race.gravel > cut.gravel
    "$gravel" check cut.gravel > ../output 2>&1
    code=$?
    case $code in
    0 | 1) grep -q "NOT complete" ../output && ok || fail "cut at $cut: called complete" ;;
    3) ok ;;
    *) fail "cut at $cut: exit code $code" ;;
    esac
    cut=$((cut + 7))
done

# Wrong usage.
expect "no file" 2 "name the trace" "$gravel" check
expect "bad option" 2 "no option --jsn; did you mean --json" "$gravel" check --jsn clean.gravel
expect "bad letter" 2 "no option -z" "$gravel" check -z clean.gravel
expect "option after the file" 0 '"schema": "gravel-check"' "$gravel" check clean.gravel --json
expect "missing argument" 2 "needs an argument" "$gravel" check clean.gravel --ranges
expect "argument too much" 2 "takes no argument" "$gravel" check --json=1 clean.gravel
expect "number too small" 2 "from 1 to" "$gravel" check --ranges 0 clean.gravel
expect "no number" 2 "from 1 to" "$gravel" check --ranges x clean.gravel
expect "show without a table" 2 "name the table" "$gravel" show clean.gravel
expect "show with a bad table" 2 'did you mean "nodes"' "$gravel" show clean.gravel node
expect "show with two tables" 2 "too much" "$gravel" show clean.gravel nodes edges
expect "graph that is not there" 2 "no graph #9.*lists them" "$gravel" show clean.gravel nodes --graph 9
expect "allocations of a graph" 2 "belong to no graph" "$gravel" show clean.gravel allocations --graph 1
expect "unknown command" 2 'did you mean "check"' "$gravel" chek
expect "unlike any command" 2 "gravel --help" "$gravel" xyzzy
expect "option before the command" 2 "before the command" "$gravel" --json check
expect "no command" 2 "Usage" "$gravel"

# Suppression files.
printf '{\n a\n race-war\n colour: x\n}\n' > bad-key.supp
printf '{\n a\n race-xyz\n}\n' > bad-id.supp
printf '{\n a\n race-war\n' > open.supp
printf 'a race\n' > outside.supp
printf '{\n a\n}\n' > no-id.supp
printf '{\n a\n race-war\n first:\n}\n' > no-glob.supp
printf '{\n a\n race-war\n first: x\n first: y\n}\n' > twice.supp
expect "suppression with a bad key" 2 'bad-key.supp:4: "colour: x"' "$gravel" check --suppress bad-key.supp clean.gravel
expect "suppression with a bad id" 2 'bad-id.supp:1: no finding has the id "race-xyz"' "$gravel" check --suppress bad-id.supp clean.gravel
expect "suppression left open" 2 "open.supp:1: .*not closed" "$gravel" check --suppress open.supp clean.gravel
expect "text outside a block" 2 "outside.supp:1: expected" "$gravel" check --suppress outside.supp clean.gravel
expect "suppression without an id" 2 "no-id.supp:1: .*needs a name and" "$gravel" check --suppress no-id.supp clean.gravel
expect "suppression without a glob" 2 "no-glob.supp:4: a glob is missing" "$gravel" check --suppress no-glob.supp clean.gravel
expect "suppression with a line twice" 2 "twice.supp:5: .*twice" "$gravel" check --suppress twice.supp clean.gravel
expect "no suppression file" 2 "cannot be read: No such file" "$gravel" check --suppress missing.supp clean.gravel
expect "folder of suppressions" 2 "cannot be read: Is a directory" "$gravel" check --suppress folder.gravel clean.gravel
expect "binary suppressions" 2 "not a text file" "$gravel" check --suppress zeros.gravel clean.gravel

# Output that cannot be written is said to be lost.
if [ -w /dev/full ]; then
    "$gravel" check clean.gravel > /dev/full 2> ../output
    [ $? = 3 ] && grep -q "could not be written: No space left" ../output && ok || fail "a full disk went unnoticed"
    "$gravel" show clean.gravel nodes > /dev/full 2> ../output
    [ $? = 3 ] && grep -q "could not be written: No space left" ../output && ok || fail "a full disk went unnoticed (show)"
fi
finish
