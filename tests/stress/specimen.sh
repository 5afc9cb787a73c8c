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
# sessions TAG N OPTION...: N sessions of 4 rounds.
sessions() {
    v_tag=$1 v_count=$2
    shift 2
    stress "$v_tag" --model gravel-specimen --scenario "$here/../../specimen/stress.yaml" --sessions "$v_count" --rounds 4 \
        --max-tokens 60 --timeout 100 "$@"
}

# ---- Repaired: every answer is the one that the session brings alone, to the letter.
serve repaired serve --repair || exit 1
sessions repaired 8 --exact
same repaired "0 " "$code $(reasons repaired)"
same repaired "8 8" "$(value repaired sessions.clean) $(value repaired baseline.taken)"
sessions whole 8 --no-stream
same whole "0 " "$code $(reasons whole)"
# An answer that ends before its call: the session brings no more alone, so nothing is said against the server.
sessions short 4 --max-tokens 3
same short "4 alone-too=16" "$code $(reasons short)"
# What the server says of a wrong request reaches the user.
stress refused --model other --sessions 2 --rounds 1
same refused "4 http-status=2" "$code $(reasons refused)"
stop

# ---- The incident: wrong arguments under load, right alone.
serve incident serve --hold 2000000 || exit 1
sessions incident 8
same incident 1 "$code"
same incident 0 "$(value incident sessions.failed)"
value incident by_reason | grep -q alone-too && fail "incident: sessions are wrong alone" || ok
stop

# ---- Prefill, decode and router
serve prefill prefill || exit 1
prefill=${url%/v1}
serve decode decode --repair || exit 1
decode=${url%/v1}
serve router router --prefill "$prefill" --decode "$decode" || exit 1
tries=0
until python3 -c "import urllib.request as u; u.urlopen('${url%/v1}/health', timeout=30)" 2> /dev/null || [ "$tries" -gt 200 ]; do
    tries=$((tries + 1))
    sleep 0.1
done
sessions pair 8
same pair "0 " "$code $(reasons pair)"
stop

# ---- kill -9 in mid-stream
serve killed serve --repair || exit 1
pid=${servers##* }
timeout 200 "$gravel" stress --base-url "$url" --model gravel-specimen --scenario "$here/../../specimen/stress.yaml" \
    --sessions 16 --rounds 8 --max-tokens 60 --tag killed --output "$scratch" > "$scratch/killed.out" \
    2> "$scratch/killed.err" < /dev/null &
stress_pid=$!
tries=0
until grep -q "[1-9][0-9]* rounds" "$scratch/killed.err" || [ "$tries" -gt 600 ]; do
    tries=$((tries + 1))
    sleep 0.02
done
kill -9 "$pid"
wait "$stress_pid"
same killed 4 "$?"
same killed "0 0" "$(value killed sessions.corrupt) $(value killed sessions.unsure)"
stop
finish
