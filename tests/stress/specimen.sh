#!/bin/sh
# `gravel stress` against the specimen's servers on the software driver: the incident is seen, its repair is clean, and
# a server that dies is a failure and no corruption: specimen.sh BUILD
. "$(dirname "$0")/../cli/common.sh"
. "$(dirname "$0")/common.sh"

# serve NAME COMMAND OPTION...: one of the specimen's servers.
serve() {
    v_name=$1
    shift
    start "$v_name" env LD_LIBRARY_PATH="$build/soft" "$build/gravel-specimen" "$@" --port 0 --port-file
}
# sessions TAG N OPTION...: N sessions of 2 rounds.
sessions() {
    v_tag=$1 v_count=$2
    shift 2
    stress "$v_tag" --model gravel-specimen --scenario "$here/../../specimen/stress.yaml" --sessions "$v_count" --rounds 2 \
        --max-tokens 60 --timeout 100 "$@"
}

# ---- Repaired: every answer is the one that the session brings alone, to the letter.
serve repaired serve --repair || exit 1
pid=${servers##* }
sessions repaired 4 --exact
same repaired 0 "$code"
holds repaired "" reasons
holds repaired "4 4" sessions.clean baseline.taken
sessions whole 4 --no-stream
same whole 0 "$code"
holds whole "" reasons
# An answer that ends before its call: the session brings no more alone, so nothing is said against the server.
sessions short 2 --max-tokens 3
same short 4 "$code"
holds short "alone-too=4" reasons
# What the server says of a wrong request reaches the user.
stress refused --model other --sessions 2 --rounds 1
same refused 4 "$code"
holds refused "http-status=2" reasons

# ---- kill -9 in mid-stream
timeout 200 "$gravel" stress --base-url "$url" --model gravel-specimen --scenario "$here/../../specimen/stress.yaml" \
    --sessions 8 --rounds 8 --max-tokens 60 --tag killed --output "$scratch" > "$scratch/killed.out" \
    2> "$scratch/killed.err" < /dev/null &
stress_pid=$!
tries=0
until grep -q "at work" "$scratch/killed.err" 2> /dev/null || [ "$tries" -gt 600 ]; do
    tries=$((tries + 1))
    sleep 0.02
done
kill -9 "$pid"
wait "$stress_pid"
same killed 4 "$?"
holds killed "0 0" sessions.corrupt sessions.unsure
stop

# ---- The incident: wrong arguments under load, right alone.
serve incident serve --hold 2000000 || exit 1
sessions incident 8 --rounds 4
same incident 1 "$code"
holds incident "0" sessions.failed
grep -q alone-too "$scratch/incident.json" && fail "incident: sessions are wrong alone" || ok
stop

# ---- Prefill, decode and router
serve prefill prefill || exit 1
prefill=${url%/v1}
serve decode decode --repair || exit 1
decode=${url%/v1}
serve router router --prefill "$prefill" --decode "$decode" || exit 1
tries=0
until python3 -c "import urllib.request as u; u.urlopen('${url%/v1}/readiness', timeout=30)" 2> /dev/null || [ "$tries" -gt 200 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
sessions pair 4
same pair 0 "$code"
holds pair "" reasons
stop

compare
finish
