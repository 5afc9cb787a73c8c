#!/bin/sh
# --help and the manual pages tell the same, and the pages are well formed.
. "$(dirname "$0")/common.sh"
man=$here/../../docs/man

expect "version" 0 "^gravel [0-9]*\.[0-9]*\.[0-9]* $" "$gravel" --version
expect "overview" 0 "Commands:" "$gravel" --help
expect "overview by help" 0 "Commands:" "$gravel" help
expect "help of what is not there" 2 'did you mean "check"' "$gravel" help chek
for command in run check fix diff show doctor stress lab; do
    expect "$command --help" 0 "Usage: gravel $command" "$gravel" "$command" --help
    expect "$command -h" 0 "Usage: gravel $command" "$gravel" "$command" -h
    expect "help $command" 0 "Usage: gravel $command" "$gravel" help "$command"
    "$gravel" help "$command" | grep -o -e '--[a-z][a-z-]*' | sort -u > "$scratch/help"
    # ".It Fl -output Ar FILE" and ".It Fl o , Fl -output": what an option list of mdoc names.
    sed -n 's/^\.It //p' "$man/gravel-$command.1" | grep -o -e 'Fl -[a-z][a-z-]*' | sed 's/Fl /-/' | sort -u > "$scratch/man"
    # The examples in --help may show options of other commands; those of its own all stand under Options.
    sed -n '/^Options:/,/^$/p' > "$scratch/own" << HELP
$("$gravel" help "$command")
HELP
    grep -o -e '^ *\(-[a-z], \)\?--[a-z][a-z-]*' "$scratch/own" | grep -o -e '--[a-z-]*' | sort -u > "$scratch/help"
    if diff "$scratch/help" "$scratch/man"; then ok; else fail "--help and the manual page of $command differ"; fi
    grep -q "^\.Xr gravel-$command 1" "$man/gravel.1" && ok || fail "gravel.1 does not name gravel-$command"
    wide=$("$gravel" help "$command" | awk 'length > 100')
    [ -z "$wide" ] && ok || fail "help of $command is wider than 100 columns: $wide"
done

if command -v mandoc > /dev/null; then
    for page in "$man"/*.1; do
        # The operating system's name on the last line is the reader's, not ours.
        mandoc -T lint -W warning "$page" > "$scratch/lint" 2>&1
        if [ -s "$scratch/lint" ]; then
            fail "$(cat "$scratch/lint")"
        else
            ok
        fi
    done
fi
finish
