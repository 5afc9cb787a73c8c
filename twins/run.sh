#!/bin/sh
# Records both variants of every twin, checks the traces, and compares what is reported with twins/expect.txt. One edge
# repairs each race: `gravel fix` must find it, and must have checked the trace again with it.
#     twins/run.sh BUILD [soft|gpu] [TWIN...]
# Ends in a table and the line `N pairs: N detected, N missed, N false`; exits 0 if all were detected and none was
# false, 1 if not, 2 if something could not be run. Traces and reports stay in BUILD/twins/out.
set -u
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${1:?usage: twins/run.sh BUILD [soft|gpu] [TWIN...]}" && pwd) || exit 2
device=${2:-soft}
case $device in
soft) option=--soft ;;
gpu) option= ;;
*) echo "twins/run.sh: the device is soft or gpu, not $device" >&2; exit 2 ;;
esac
shift
[ $# -gt 0 ] && shift
twins=${*:-$(awk '!/^#/ && NF { print $1 }' "$here/expect.txt" | uniq)}

if [ "$device" = soft ]; then
    # However busy the machine is.
    GRAVEL_STALL_SECONDS=200 GRAVEL_SEARCH_SECONDS=200
    export GRAVEL_STALL_SECONDS GRAVEL_SEARCH_SECONDS
fi

out=$build/twins/out
mkdir -p "$out" && rm -f "$out"/*.gravel "$out"/*.json "$out"/*.log "$out"/*.fix.txt || exit 2
for twin in $twins; do
    # What a twin needs beside the default, if anything.
    options=$(cat "$here/$twin/options" 2> /dev/null)
    for variant in buggy clean; do
        trace=$out/$twin.$variant.gravel
        # shellcheck disable=SC2086 # no option on a GPU, several of a twin
        "$build/gravel" run -o "$trace" $option $options -- "$build/twins/$twin" $variant > "$out/$twin.$variant.log" 2>&1 ||
            echo "exit code $?" >> "$out/$twin.$variant.log"
        "$build/gravel" check --json "$trace" > "$out/$twin.$variant.json" 2>> "$out/$twin.$variant.log"
    done
    "$build/gravel" fix -o "$out/$twin.fix.json" "$out/$twin.buggy.gravel" > "$out/$twin.fix.txt" 2>&1 ||
        echo "exit code $?" >> "$out/$twin.fix.txt"
done
# shellcheck disable=SC2086 # a list of names
python3 "$here/compare.py" "$here/expect.txt" "$out" $twins
