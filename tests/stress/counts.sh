#!/bin/sh
# What `gravel stress` counts, against a server whose wrong answers are known: counts.sh BUILD
. "$(dirname "$0")/../cli/common.sh"
. "$(dirname "$0")/common.sh"

# wrong KIND CODE REASONS: 8 sessions of 2 rounds, of which 3 get one wrong answer, streamed and whole.
wrong() {
    later "$1.stream" "$2" "$3" --sessions 8 --rounds 2
    later "$1.whole" "$2" "$3" --sessions 8 --rounds 2 --no-stream
}

# ---- The incident's numbers
start incident "$tools/null_server" --sessions 60 --rounds 4 --wrong wrong-arguments --wrong-count 10
stress incident --sessions 60 --rounds 4 --max-tokens 2500 --timeout 240
same incident 1 "$code"
same incident "CORRUPTION sessions: 10/60 = 16.7 % (95 % interval 8.3-28.5 %)" "$(tail -1 "$scratch/incident.out")"
holds incident "10 60 50" sessions.corrupt sessions.measured sessions.clean
holds incident "3 3 2 2" by_round.0.corrupt by_round.1.corrupt by_round.2.corrupt by_round.3.corrupt
same incident 10 "$(find "$scratch/incident.transcripts" -name 'session-*.json' | wc -l | tr -d ' ')"
holds incident "10 0" baseline.taken baseline.cached
# The baselines are on disk now. The transcripts of the run before are gone, and their number is bounded.
stress incident --sessions 60 --rounds 4 --transcripts 4
holds incident "0 10" baseline.taken baseline.cached
holds incident "4 6" transcripts.kept transcripts.left_out
same incident-again 4 "$(find "$scratch/incident.transcripts" -name 'session-*.json' | wc -l | tr -d ' ')"
stress incident --sessions 60 --rounds 4 --refresh --transcripts 0
holds incident "10 0" baseline.taken baseline.cached
# A transcript says what was expected and what came, and is JSON.
stress incident --sessions 60 --rounds 4
python3 - "$scratch/incident.transcripts/session-000001.json" << 'END' && ok || fail "the transcript"
import json, sys
t = json.load(open(sys.argv[1]))
assert t["schema"] == "gravel-transcript" and t["version"] == 1 and t["session"] == 1
(finding,) = t["rounds"]
assert finding["round"] == 2 and finding["reasons"] == ["wrong-arguments"]
assert "Nowhere" in finding["reply"]["tool_calls"][0]["arguments"]
# Later rounds were measured with the right history.
roles = [m["role"] for m in t["messages"]]
assert roles == ["system"] + ["user", "assistant", "tool"] * 3 + ["user"], roles
said = json.loads(t["messages"][5]["tool_calls"][0]["function"]["arguments"])
assert said == finding["expected"]["arguments"]
assert t["messages"][6]["tool_call_id"] == t["messages"][5]["tool_calls"][0]["id"]
END
# The same seed gives the same sessions, another one others: the server knows those of seed 1 only.
stress seed --sessions 60 --rounds 4 --seed 2 --baseline off
holds seed "60" sessions.corrupt
# Fewer at a time, spread out, with think time: the same counts.
stress paced --sessions 20 --rounds 4 --concurrency 5 --ramp 0.2 --think 0-0.05
holds paced "10" sessions.corrupt
stop

# ---- Every kind of wrong answer
start kinds "$tools/null_server" --sessions 8 --rounds 2 --wrong by-tag --wrong-count 3
wrong no-call 1 "no-call=3"
wrong length-no-call 1 "length-no-call=3"
wrong length-in-call 1 "length-in-call=3"
wrong bad-json 1 "bad-json=3"
wrong unknown-tool 1 "unknown-tool=3"
wrong wrong-tool 1 "wrong-tool=3 wrong-type=3"
wrong wrong-type 1 "wrong-type=3"
wrong wrong-arguments 1 "wrong-arguments=3"
wrong extra-call 1 "extra-call=3"
wrong template-fragment 1 "template-fragment=3"
wrong fragment-in-argument 1 "template-fragment=3 wrong-arguments=3"
wrong garbled 1 "garbled=3"
wrong loop 1 "loop=3"
wrong text-too 0 ""
wrong refusal 4 "refusal=3"
compare
stop
# The model is wrong alone too: nothing is said against the server, and too little is measured.
start alone "$tools/null_server" --sessions 8 --rounds 2 --wrong wrong-arguments --wrong-count 3 --wrong-alone
stress alone --sessions 8 --rounds 2
same alone 4 "$code"
holds alone "alone-too=3" reasons
stop

# ---- The baseline of all, and --exact
start exact "$tools/null_server" --sessions 8 --rounds 2 --wrong text-too --wrong-count 3
stress exact --sessions 8 --rounds 2 --baseline all
same exact 0 "$code"
holds exact "8" baseline.taken
holds exact "3" baseline.drifted_rounds
stress exact --sessions 8 --rounds 2 --exact
same exact 1 "$code"
holds exact "text-differs=3" reasons
holds exact "0 8" baseline.taken baseline.cached
stop

# ---- 2,000 sessions at a time, in one thread and 200 MiB
start many "$tools/null_server" --sessions 2000 --rounds 1 --ctx 20
python3 - "$gravel" "$url" "$scratch" << 'END' && ok || fail "2,000 sessions at a time"
import json, resource, subprocess, sys
gravel, url, scratch = sys.argv[1:]
options = ["--sessions", "2000", "--rounds", "1", "--ctx", "20", "--baseline", "off", "--quiet", "--tag", "many"]
code = subprocess.call([gravel, "stress", "--base-url", url, "--model", "m", *options, "--output", scratch],
                       stdout=subprocess.DEVNULL)
result = json.load(open(scratch + "/many.json"))
assert code == 0 and result["sessions"]["clean"] == 2000, result["by_reason"]
assert result["options"]["concurrency"] == 2000
used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
# A sanitizer's own memory is not the client's.
assert used < 200 or b"AddressSanitizer" in open(gravel, "rb").read(), f"{used} MiB"
END
stop

# ---- A scenario of one's own, with nothing expected in one round
cat > "$scratch/own.yaml" << 'END'
name: own
system: "Answer. ${context}"
values: {city: {pick: [Rome, Oslo]}}
facts: ["We are in ${city}."]
rounds:
  - user: Where are we?
    expect: {text: "${city}"}
  - user: Say something.
END
start own "$tools/null_server" --scenario "$scratch/own.yaml" --sessions 6 --rounds 2
stress own --scenario "$scratch/own.yaml" --sessions 6 --rounds 2
same own 0 "$code"
holds own "6" baseline.taken
stress own --scenario "$scratch/own.yaml" --sessions 6 --rounds 2 --baseline off
same own 4 "$code"
holds own "not-compared=6" reasons
stop

# ---- Keys
start keys "$tools/null_server" --sessions 4 --rounds 1 --key right-key-12345
GRAVEL_API_KEY=right-key-12345 stress keys --sessions 4 --rounds 1
same keys 0 "$code"
GRAVEL_API_KEY=wrong-key-12345 stress keys --sessions 4 --rounds 1
same keys 4 "$code"
holds keys "unauthorised=4" reasons
grep -q -r wrong-key "$scratch/keys.json" "$scratch/keys.out" "$scratch/keys.err" && fail "keys: the key was written" || ok
OTHER=right-key-12345 stress keys --sessions 4 --rounds 1 --api-key-env OTHER
same keys 0 "$code"
stress keys --sessions 4 --rounds 1 --api-key-env NOT_SET_AT_ALL
same keys 2 "$code"
stop

# ---- Interruption: what was measured is reported, and nothing is called clean.
start stopped "$tools/null_server" --sessions 4 --rounds 3
"$gravel" stress --base-url "$url" --model m --tag stopped --output "$scratch" --sessions 4 --rounds 3 --think 600 \
    > "$scratch/stopped.out" 2> "$scratch/stopped.err" < /dev/null &
stress_pid=$!
tries=0
until grep -q "4 at work" "$scratch/stopped.err" 2> /dev/null || [ "$tries" -gt 600 ]; do
    tries=$((tries + 1))
    sleep 0.05
done
kill -TERM "$stress_pid"
wait "$stress_pid"
same stopped 4 "$?"
grep -q "INTERRUPTED" "$scratch/stopped.out" && ok || fail "stopped: not said"
holds stopped "4" sessions.failed
stop

# ---- Usage
url=http://127.0.0.1:1/v1
expect "no URL" 2 "say where the server is" "$gravel" stress --model m
expect "no model" 2 "name the model" "$gravel" stress --base-url "$url"
expect "operand" 2 "is no option" "$gravel" stress --base-url "$url" --model m what
expect "URL without a scheme" 2 "must begin with http" "$gravel" stress --base-url localhost:80 --model m --output "$scratch"
expect "model that is no UTF-8" 2 "must be UTF-8" "$gravel" stress --base-url "$url" --model "$(printf 'a\377')"
expect "tag" 2 "tag takes" "$gravel" stress --base-url "$url" --model m --tag ../x
expect "body" 2 "cannot set \"model\"" "$gravel" stress --base-url "$url" --model m --body 'model="x"'
expect "body that is no JSON" 2 "text needs quotes" "$gravel" stress --base-url "$url" --model m --body 'user=x'
expect "think" 2 "think takes" "$gravel" stress --base-url "$url" --model m --think 3-2
expect "exact with temperature" 2 "leave --temperature out" "$gravel" stress --base-url "$url" --model m --exact --temperature 1
touch "$scratch/file"
expect "folder" 3 "name another folder" "$gravel" stress --base-url "$url" --model m --output "$scratch/file/none"
expect "scenario that is not there" 3 "cannot be opened" "$gravel" stress --base-url "$url" --model m --scenario "$scratch/none"
printf 'rounds:\n  - usr: x\n' > "$scratch/bad.yaml"
expect "scenario with a mistake" 2 "bad.yaml:2: a round has no key" "$gravel" stress --base-url "$url" --model m --scenario "$scratch/bad.yaml"
echo '{"mine": 1}' > "$scratch/taken.json"
expect "a file of another kind" 2 "is no result of gravel stress" "$gravel" stress --base-url "$url" --model m --tag taken --output "$scratch"
expect "host" 3 "cannot be found" "$gravel" stress --base-url http://no-such-host.invalid/v1 --model m --output "$scratch"
"$gravel" stress --print-scenario > "$scratch/printed.yaml" && cmp -s "$scratch/printed.yaml" "$here/../../src/stress/depots.yaml" && ok || fail "--print-scenario"

# ---- The JSON has the keys that docs/stress.md explains, and no other.
python3 "$here/schema.py" "$here/../../docs/stress.md" "$scratch"/*.json "$scratch"/incident.transcripts/*.json && ok || fail "docs/stress.md"
compare
finish
