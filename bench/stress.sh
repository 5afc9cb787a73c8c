#!/bin/sh
# Prints what `gravel stress` can drive, against a server that answers at once: stress.sh BUILD. The client has one core
# and the server another. Beside it stands wrk (Debian's package), which sends one fixed request again and again and
# looks at no answer: what the server and the kernel can do. Speeds are printed and never asserted; what the sessions
# came to is.
set -eu
build=${1:-build}
gravel=$build/gravel
server=$build/tests/stress/null_server
[ -x "$server" ] || { echo "bench: $server is missing; run \`make build\`" >&2; exit 2; }
directory=$(mktemp -d "${TMPDIR:-/tmp}/gravel-bench.XXXXXX")
trap 'exec 9>&-; rm -rf "$directory"' EXIT INT TERM
client_core= server_core=
if [ "$(nproc)" -gt 1 ] && command -v taskset > /dev/null; then client_core="taskset -c 0" server_core="taskset -c 1"; fi

start() {
    rm -f "$directory/port" "$directory/pipe"
    mkfifo "$directory/pipe"
    $server_core "$server" "$@" "$directory/port" < "$directory/pipe" > "$directory/served" &
    pid=$!
    exec 9<> "$directory/pipe"
    while [ ! -s "$directory/port" ]; do sleep 0.05; done
    url=http://127.0.0.1:$(cat "$directory/port")/v1
}
stop() {
    exec 9>&-
    wait "$pid" || true
}

# load NAME SESSIONS CONCURRENCY LINES OPTION...: sessions of 4 rounds.
load() {
    name=$1 sessions=$2 concurrency=$3 lines=$4
    shift 4
    start --sessions "$sessions" --rounds 4 --ctx "$lines"
    $client_core python3 - "$directory/usage" "$gravel" stress --base-url "$url" --model m --sessions "$sessions" \
        --rounds 4 --ctx "$lines" --concurrency "$concurrency" --baseline off --quiet --tag bench --output "$directory" \
        "$@" << 'END'
import os, resource, subprocess, sys
code = subprocess.call(sys.argv[2:], stdout=subprocess.DEVNULL)
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
open(sys.argv[1], "w").write(f"{code} {usage.ru_utime + usage.ru_stime} {usage.ru_maxrss}\n")
END
    stop
    python3 - "$name" "$directory" "$sessions" << 'END'
import json, sys
name, folder, sessions = sys.argv[1], sys.argv[2], int(sys.argv[3])
code, cpu, rss = open(folder + "/usage").read().split()
result = json.load(open(folder + "/bench.json"))
requests, _, size = open(folder + "/served").read().split()[:3]
assert code == "0" and result["sessions"]["clean"] == sessions, result["by_reason"]
assert int(requests) == sessions * 4, requests
wall = result["throughput"]["seconds"]
tokens = result["throughput"]["tokens"]
print(f"{name}: {int(requests) / wall:,.0f} requests/s, {sessions / wall:,.0f} sessions/s, {tokens / wall:,.0f} tokens/s; "
      f"{float(cpu) / int(requests) * 1e3:.3f} ms of processor a request, at most {int(rss) / 1024:.0f} MiB; "
      f"bodies of {int(size) // int(requests):,} bytes")
open(folder + "/size", "w").write(str(int(size) // int(requests)))
END
}

echo "== gravel stress against a server that answers at once"
load "stream, 64 at a time" 4000 64 60
load "whole, 64 at a time" 4000 64 60 --no-stream
cp "$directory/size" "$directory/size.60"
load "2,000 at a time" 4000 2000 60
echo "   bar: 2,000 sessions at a time on one core within 200 MiB"
load "2,000 at a time, contexts of 300 lines" 4000 2000 300

if ! command -v wrk > /dev/null; then
    echo "wrk is not installed (apt-get install wrk): nothing to compare with"
    exit 0
fi
start --sessions 100 --rounds 4
# A body of the size of the sessions' with 60 lines.
cat > "$directory/request.lua" << 'END'
wrk.method = "POST"
wrk.body = "{\"x\":\"" .. string.rep("x", SIZE) .. "\"}"
wrk.headers["X-Request-Id"] = "wrk-s7-r2"
wrk.headers["Accept"] = "ACCEPT"
wrk.headers["Content-Type"] = "application/json"
END
for form in event-stream json; do
    sed -e "s/SIZE/$(cat "$directory/size.60")/" -e "s/ACCEPT/$form/" "$directory/request.lua" > "$directory/$form.lua"
    $client_core wrk -t1 -c64 -d5 -s "$directory/$form.lua" "$url/chat/completions" > "$directory/wrk"
    rate=$(sed -n 's/^Requests\/sec: *//p' "$directory/wrk")
    echo "wrk, one thread, 64 connections, $form: $rate requests/s"
done
stop
