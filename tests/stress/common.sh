# Sourced by the tests of this folder, after tests/cli/common.sh: servers and what a run came to.
tools=$build/tests/stress
export XDG_CACHE_HOME="$scratch/cache"
unset GRAVEL_API_KEY http_proxy https_proxy 2> /dev/null
servers=
started=0

# start NAME PROGRAM ARGUMENT...: starts a server and sets `url`. It ends when the test does: its standard input is a
# pipe that this shell holds open.
start() {
    started=$((started + 1))
    s_name=$1-$started
    shift
    mkfifo "$scratch/$s_name.pipe"
    "$@" "$scratch/$s_name.port" < "$scratch/$s_name.pipe" > "$scratch/$s_name.log" 2>&1 &
    servers="$servers $!"
    # Opened for both directions, so that the shell does not wait for a reader.
    exec 9<> "$scratch/$s_name.pipe"
    tries=0
    while [ ! -s "$scratch/$s_name.port" ]; do
        tries=$((tries + 1))
        [ "$tries" -gt 600 ] && { fail "$s_name did not start: $(cat "$scratch/$s_name.log")"; return 1; }
        sleep 0.05
    done
    url=http://127.0.0.1:$(cat "$scratch/$s_name.port")/v1
}

# Ends every server that was started.
stop() {
    exec 9>&-
    for s_pid in $servers; do
        kill "$s_pid" 2> /dev/null
        wait "$s_pid" 2> /dev/null
    done
    servers=
}
trap 'stop; rm -rf "$scratch"' EXIT

# stress TAG OPTION...: runs `gravel stress` against $url; sets `code`. Its output is in $scratch/TAG.out and .err.
stress() {
    s_tag=$1
    shift
    timeout 400 "$gravel" stress --base-url "$url" --model m --tag "$s_tag" --output "$scratch" --quiet "$@" \
        > "$scratch/$s_tag.out" 2> "$scratch/$s_tag.err" < /dev/null
    code=$?
}

# later TAG CODE REASONS OPTION...: a run of its own beside others; `compare` waits for all and looks at them. At most 8
# at a time: many of them wait for a server that does not answer.
runs=0
later() {
    l_tag=$1
    echo "$l_tag $2 $3" >> "$scratch/expected"
    shift 3
    ( stress "$l_tag" "$@"; echo "$code" > "$scratch/$l_tag.code" ) &
    jobs="$jobs $!"
    runs=$((runs + 1))
    [ $((runs % 8)) != 0 ] || wait_for_jobs
}
jobs=
wait_for_jobs() {
    for j_pid in $jobs; do wait "$j_pid"; done
    jobs=
}
compare() {
    wait_for_jobs
    touch "$scratch/expected" "$scratch/holds"
    result=$(python3 -S "$here/check.py" "$scratch")
    echo "$result" | grep FAILED
    passed=$((passed + $(echo "$result" | sed -n 's/^\([0-9]*\) passed.*/\1/p')))
    failed=$((failed + $(echo "$result" | sed -n 's/.*passed, \([0-9]*\) failed/\1/p')))
    rm -f "$scratch/expected" "$scratch/holds"
}

# holds TAG VALUES PATH...: the run's JSON as it is now has these values (with a blank between them) at these places, such
# as sessions.corrupt; "reasons" stands for "wrong-arguments=10 timeout=2". Looked at by `compare`, all at once: starting
# a process for each would take most of the test's time.
holding=0
holds() {
    holding=$((holding + 1))
    o_tag=$1 o_values=$2
    shift 2
    cp "$scratch/$o_tag.json" "$scratch/held-$holding" 2> /dev/null
    printf '%s\t%s\t%s\t%s\n' "$holding" "$o_tag" "$o_values" "$*" >> "$scratch/holds"
}

# same NAME EXPECTED GOT
same() {
    if [ "$2" = "$3" ]; then
        ok
    else
        fail "$1: \"$3\", not \"$2\""
        tail -5 "$scratch/$1.err" 2> /dev/null
    fi
}
