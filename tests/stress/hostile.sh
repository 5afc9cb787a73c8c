#!/bin/sh
# Every bad manner of a server is classed, and none hangs or crashes `gravel stress`: hostile.sh BUILD
. "$(dirname "$0")/../cli/common.sh"
. "$(dirname "$0")/common.sh"

# hostile MODE CODE REASONS [OPTION...]: 6 sessions of 2 rounds.
seen=
hostile() {
    h_mode=$1 h_code=$2 h_reasons=$3
    shift 3
    seen="$seen $h_mode"
    h_tag=$h_mode.stream h_timeout=200
    # Long where an answer comes in the end, short where none does.
    case $h_reasons in timeout*) h_timeout=1 ;; esac
    case " $* " in *" --no-stream "*) h_tag=$h_mode.whole ;; esac
    later "$h_tag" "$h_code" "$h_reasons" --sessions 6 --rounds 2 --max-tokens 100 --timeout "$h_timeout" "$@"
}
start hostile "$tools/hostile_server" --sessions 6 --rounds 2 || exit 1
hostile_url=$url

hostile right 0 ""
hostile right-bytes 0 ""
hostile close-kept 0 ""
hostile bad-last-chunk 0 ""
hostile done-unended 0 ""
hostile drip 4 "timeout=6"
hostile never 4 "timeout=6"
hostile never-after-head 4 "timeout=6"
hostile endless 4 "too-large=6"
hostile endless-comments 4 "too-large=6"
hostile endless-line 4 "too-large=6"
hostile endless-event 4 "too-large=6"
hostile endless-headers 4 "too-large=6"
hostile endless-header 4 "too-large=6"
hostile endless-continue 4 "too-large=6"
hostile endless-error 4 "too-large=6"
hostile invalid-utf8 4 "invalid-utf8=6"
hostile bad-chunk 4 "http-protocol=6"
hostile bad-chunk-early 4 "http-protocol=6"
hostile wrong-schema 4 "wrong-schema=6"
hostile wrong-schema-list 4 "wrong-schema=6"
hostile wrong-schema-calls 4 "wrong-schema=6"
hostile many-calls 4 "too-large=6"
hostile hole-in-calls 4 "wrong-schema=6"
hostile not-json 4 "not-json=6"
hostile deep-json 4 "not-json=6"
hostile error-event 4 "server-error=6"
hostile whole-for-stream 4 "wrong-schema=6"
hostile html 4 "wrong-schema=6"
hostile empty 4 "cut=6"
hostile redirect 4 "redirect=6"
hostile reset 4 "reset=6"
hostile reset-at-once 4 "reset=6"
hostile close 4 "reset=6"
hostile no-done 4 "no-done=6"
hostile no-finish 4 "cut=6"
hostile cut-event 4 "cut=6"
hostile short-body 4 "cut=6"
hostile cut-chunks 4 "cut=6"
hostile not-http 4 "http-protocol=6"
hostile binary 4 "http-protocol=6"
hostile status-401 4 "unauthorised=6"
hostile status-404 4 "http-status=6"
hostile status-429 4 "rate-limited=6"
hostile status-503 4 "http-status=6"
hostile leak-key 1 "no-call=6" --rounds 1 --baseline off

hostile right 0 "" --no-stream
hostile close-kept 0 "" --no-stream
hostile html 4 "not-json=6" --no-stream
hostile empty 4 "not-json=6" --no-stream
hostile wrong-schema 4 "not-json=6" --no-stream
hostile short-body 4 "cut=6" --no-stream
hostile never 4 "timeout=6" --no-stream
hostile endless 4 "too-large=6" --no-stream
hostile reset-at-once 4 "reset=6" --no-stream

compare

# Every mode that the server has was run.
for mode in $("$tools/hostile_server" --sessions 1 list); do
    case " $seen " in *" $mode "*) ok ;; *) fail "the mode $mode is not tested" ;; esac
done

# A server's text cannot steer the terminal.
if grep -q "$(printf '\033')" "$scratch/status-503.stream.out"; then fail "an escape sequence was printed"; else ok; fi

# Nobody listens: a port that was bound and given back. Another program may take it in between, so it is bound again.
python3 - "$scratch/refused.port" << 'END' &
import socket, sys, time
s = socket.socket()
s.bind(("127.0.0.1", 0))
open(sys.argv[1] + ".new", "w").write(str(s.getsockname()[1]))
import os
os.rename(sys.argv[1] + ".new", sys.argv[1])
time.sleep(60)
END
holder=$!
while [ ! -s "$scratch/refused.port" ]; do sleep 0.05; done
url=http://127.0.0.1:$(cat "$scratch/refused.port")/v1
stress refused --sessions 6 --rounds 2
same refused 4 "$code"
holds refused "refused=6" reasons
kill "$holder"
wait "$holder" 2> /dev/null

# The key goes to the server, and nowhere else, even when the server repeats it.
GRAVEL_API_KEY=sk-test-0123456789abcdef
export GRAVEL_API_KEY
url=$hostile_url
for mode in status-401 leak-key; do
    stress "$mode.key" --sessions 3 --rounds 1 --baseline off
    grep -q -r -e "sk-test" "$scratch/$mode.key.out" "$scratch/$mode.key.err" "$scratch/$mode.key.json" \
        "$scratch/$mode.key.transcripts" && fail "$mode: the key was written" || ok
    grep -q -e '\*\*\*\*' "$scratch/$mode.key.json" && ok || fail "$mode: the server did not get the key"
done
stop
compare
finish
