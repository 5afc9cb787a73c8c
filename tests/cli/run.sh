#!/bin/sh
# gravel run: the environment it gives, the exit codes it passes on, and the signals. The libraries it loads are
# stand-ins that do nothing, and the trace comes from symbol_target.
. "$(dirname "$0")/common.sh"
GRAVEL_LIBDIR=$build/tests/cli/lib
export GRAVEL_LIBDIR
target=$build/tests/cli/symbol_target
record=$(cd "$GRAVEL_LIBDIR" && pwd -P)/libgravel-record.so
audit=$(cd "$GRAVEL_LIBDIR" && pwd -P)/libgravel-audit.so
unset LD_PRELOAD LD_AUDIT CUDA_INJECTION64_PATH LD_LIBRARY_PATH
cd "$scratch" || exit 1
here_real=$(pwd -P)

# has LINE: the program's environment, printed by env, holds the line.
has() { grep -q -x -e "$1" env || { fail "the environment lacks $1"; cat env; }; }
has_not() { ! grep -q -e "$1" env || fail "the environment should not have $1"; }

"$gravel" run -- env > env 2> /dev/null
has "LD_PRELOAD=$record" && has "LD_AUDIT=$audit" && has "CUDA_INJECTION64_PATH=$record"
has "GRAVEL_TRACE=$here_real/gravel.%p.gravel" && has GRAVEL_ARM=first && has GRAVEL_GRAPH= && has GRAVEL_STACKS=1
has GRAVEL_VERBOSE=0 && has_not LD_LIBRARY_PATH && ok
"$gravel" run -o t.gravel --arm every=3 --graph topk --no-stacks -v -- env > env 2> /dev/null
has "GRAVEL_TRACE=$here_real/t.gravel" && has GRAVEL_ARM=every=3 && has GRAVEL_GRAPH=topk && has GRAVEL_STACKS=0
has GRAVEL_VERBOSE=1 && ok
# What was there before stays, behind; and a gravel run in a gravel run adds nothing twice.
LD_PRELOAD=$audit LD_LIBRARY_PATH=/nowhere "$gravel" run -- env > env 2> /dev/null
has "LD_PRELOAD=$record:$audit" && has LD_LIBRARY_PATH=/nowhere && ok
"$gravel" run -- "$gravel" run -- env > env 2> /dev/null
has "LD_PRELOAD=$record" && has "LD_AUDIT=$audit" && ok
CUDA_INJECTION64_PATH=/opt/other.so "$gravel" run -- env > env 2> said
has CUDA_INJECTION64_PATH=/opt/other.so && grep -q "CUDA_INJECTION64_PATH is set to /opt/other.so" said && ok
# The software driver.
expect "no software driver" 125 "soft/libcuda.so.1 was not found.*GRAVEL_LIBDIR" "$gravel" run --soft -- true
mkdir -p lib/soft && cp "$record" "$audit" lib && cp "$record" lib/soft/libcuda.so.1
GRAVEL_LIBDIR=$PWD/lib LD_LIBRARY_PATH=/nowhere "$gravel" run --soft -- env > env 2> /dev/null
has "LD_LIBRARY_PATH=$here_real/lib/soft:/nowhere" && has_not CUDA_INJECTION64_PATH && ok

# Exit codes.
expect "success" 0 "no trace was written" "$gravel" run -- true
expect "failure" 1 "" "$gravel" run -- false
expect "exit 7" 7 "" "$gravel" run -- sh -c 'exit 7'
expect "not found" 127 "no such program in PATH" "$gravel" run -- no-such-program
expect "not found with a folder" 127 "there is no such program" "$gravel" run -- ./no-such-program
echo "not a program" > plain && chmod 644 plain
expect "not executable" 126 "cannot be executed: Permission denied.*chmod" "$gravel" run -- ./plain
expect "a folder" 126 "cannot be executed" "$gravel" run -- ./lib
expect "no program" 2 "name the program" "$gravel" run
expect "options end at the program" 0 "" "$gravel" run -- sh -c 'exit 0' --arm nonsense
expect "no double dash needed" 3 "" "$gravel" run sh -c 'exit 3'
expect "bad --arm" 2 "takes first" "$gravel" run --arm 0 -- true
expect "bad --error-exitcode" 2 "from 1 to 255" "$gravel" run --error-exitcode 256 -- true
expect "no libraries" 125 "libgravel-record.so was not found.*/lib/soft" env GRAVEL_LIBDIR="$PWD/lib/soft" "$gravel" run -- true
mkdir "a b" && cp lib/*.so "a b"
expect "libraries in a folder with a blank" 125 "a blank or a colon" env GRAVEL_LIBDIR="$PWD/a b" "$gravel" run -- true
expect "output folder missing" 125 "cannot be written to the folder" "$gravel" run -o nowhere/t.gravel -- true
expect "output is a folder" 2 "names a folder" "$gravel" run -o lib/ -- true
expect "output is someone's file" 2 "no gravel trace" "$gravel" run -o plain -- true
grep -q "not a program" plain && ok || fail "a file that is no trace was removed"
expect "%p in a folder" 2 "%p may stand" "$gravel" run -o lib%p/t.gravel -- true

# Signals: the program's death is gravel's own, and what is sent to gravel reaches the program.
sh -c '"$0" run -- sh -c "kill -9 \$\$"' "$gravel" 2> /dev/null
[ $? = 137 ] && ok || fail "kill -9 of the program is not 137"
python3 - "$gravel" << 'PYTHON' && ok || fail "a signal was not passed on or not died of"
import signal, subprocess, sys, time
gravel = sys.argv[1]
# Killed by the same signal, not by an exit code that looks like it.
assert subprocess.run([gravel, "run", "--", "sh", "-c", "kill -9 $$"], stderr=subprocess.DEVNULL).returncode == -9
assert subprocess.run([gravel, "run", "--", "sh", "-c", "kill -SEGV $$"], stderr=subprocess.DEVNULL).returncode == -11
for number in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1:
    script = f"import signal, sys, time\nsignal.signal({int(number)}, lambda *_: sys.exit(40))\nprint('ready', flush=True)\ntime.sleep(60)"
    child = subprocess.Popen([gravel, "run", "--", sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert child.stdout.readline() == b"ready\n"
    child.send_signal(number)
    assert child.wait(30) == 40, (number, child.returncode)
child = subprocess.Popen([gravel, "run", "--", "sh", "-c", "echo ready; exec sleep 60"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
assert child.stdout.readline() == b"ready\n"
child.terminate()
assert child.wait(30) == -15, child.returncode
# A parent that ignores SIGCHLD must not cost the exit code.
ignored = lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN)
assert subprocess.run([gravel, "run", "--", "sh", "-c", "exit 9"], stderr=subprocess.DEVNULL, preexec_fn=ignored).returncode == 9
PYTHON

# Traces: names, what is said at the end, and the check on request.
expect "a trace" 0 "gravel: t.gravel: 1 graph, 1 launch recorded gravel: next: gravel check t.gravel" \
    "$gravel" run -o t.gravel -- "$target"
expect "the trace again" 0 "t.gravel: 1 graph" "$gravel" run -o t.gravel -- "$target"
expect "the program's exit code" 7 "t.gravel: 1 graph" "$gravel" run -o t.gravel -- "$target" exit
expect "a program that dies" 134 "t.gravel: 1 graph" "$gravel" run -o t.gravel -- "$target" die
expect "a child" 0 "gravel check f.gravel f.gravel.[0-9]*.gravel" "$gravel" run -o f.gravel -- "$target" fork
rm -f ./*.gravel
expect "names with the process id" 0 "gravel.[0-9]*.gravel gravel.[0-9]*.gravel: 2 graphs" "$gravel" run -- "$target" fork
[ "$(ls gravel.[0-9]*.gravel | wc -l)" = 2 ] && ok || fail "not two traces by process id"
expect "an old trace is not counted" 0 "no trace was written" "$gravel" run -- true
expect "the check at the end" 42 "race-waw in graph #1.*1 race in 1 recorded graph" \
    "$gravel" run -o t.gravel --error-exitcode 42 -- "$target"
expect "the check comes before the program's code" 42 "" "$gravel" run -o t.gravel --error-exitcode 42 -- "$target" exit
expect "the check of nothing" 7 "no trace" "$gravel" run -o t.gravel --error-exitcode 42 -- sh -c 'exit 7'
# A process that outlives the program keeps its trace to itself until it ends.
mkfifo hold
expect "a process left behind" 0 "l.gravel.[0-9]*.gravel: process [0-9]* still writes to it" \
    "$gravel" run -o l.gravel -- "$target" linger
timeout 120 sh -c ': > hold' && ok || fail "the process left behind is not there"
finish
