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
    timeout 120 "$gravel" stress --base-url "$url" --model m --tag "$s_tag" --output "$scratch" --quiet "$@" \
        > "$scratch/$s_tag.out" 2> "$scratch/$s_tag.err" < /dev/null
    code=$?
}

# value TAG PATH: a value of the run's JSON, such as sessions.corrupt.
value() {
    python3 -c '
import json, sys
at = json.load(open(sys.argv[1]))
for key in sys.argv[2].split("."):
    at = at[int(key)] if isinstance(at, list) else at[key]
print(at)' "$scratch/$1.json" "$2"
}

# reasons TAG: every reason of the run, with the number of its rounds: "wrong-arguments=10 timeout=2".
reasons() {
    python3 -c '
import json, sys
print(" ".join("%s=%d" % (item["reason"], item["rounds"]) for item in json.load(open(sys.argv[1]))["by_reason"]))' \
        "$scratch/$1.json"
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
