#!/bin/sh
# gravel doctor: right about what is there and what is not.
. "$(dirname "$0")/common.sh"
unset LD_PRELOAD LD_AUDIT LD_LIBRARY_PATH CUDA_HOME CUDA_PATH VIRTUAL_ENV CONDA_PREFIX
cd "$scratch" || exit 1
mkdir -p none toolkit/compute-sanitizer with/soft

# answer ID STATE TEXT: in the answers last asked for, the check has this state and its text or remedy holds TEXT.
answer() {
    python3 - "$1" "$2" "$3" << 'PYTHON' && ok || { fail "$1 is not $2 ($3)"; cat answers; }
import json, sys
check = {c["id"]: c for c in json.load(open("answers"))["checks"]}[sys.argv[1]]
sys.exit(not (check["state"] == sys.argv[2] and sys.argv[3] in check["found"] + " " + (check["remedy"] or "")))
PYTHON
}

GRAVEL_LIBDIR=$PWD/none GRAVEL_SANITIZER=$PWD/none "$gravel" doctor --json > answers
[ $? = 1 ] && ok || fail "nothing is there, and doctor does not exit with 1"
answer libraries missing "GRAVEL_LIBDIR"
answer soft missing "soft/libcuda.so.1 was not found"
answer sanitizer missing "$PWD/none"
answer output ok "$PWD"

# Stand-ins: libraries that load, a driver and a Sanitizer that are none.
cp "$build"/tests/cli/lib/*.so with
cp with/libgravel-record.so with/soft/libcuda.so.1
cp with/libgravel-record.so toolkit/compute-sanitizer/libsanitizer-public.so
# As one that reports tensor copies would: those that this machine really has come after it.
printf HopperTmaLoadGenerator >> toolkit/compute-sanitizer/libsanitizer-public.so
GRAVEL_LIBDIR=$PWD/with CUDA_HOME=$PWD/toolkit "$gravel" doctor --json > answers
[ $? = 1 ] && ok || fail "a driver that is none was believed"
answer libraries ok "$PWD/with/libgravel-record.so"
answer linker ok "LD_AUDIT and LD_PRELOAD"
answer soft missing "lacks functions"
answer patches missing "built without"
grep -q "toolkit/compute-sanitizer/libsanitizer-public.so" answers && ok || fail "CUDA_HOME was not looked at"

# A library for another machine: the dynamic linker's complaint is passed on.
echo "not a library" > with/libgravel-audit.so
GRAVEL_LIBDIR=$PWD/with "$gravel" doctor --json > answers
answer linker missing "did not take gravel's libraries"

GRAVEL_LIBDIR=$PWD/none "$gravel" doctor > text
grep -q "Recording on a GPU: *does not work" text && ok || fail "no verdict in the text"
# A line that holds a path is as long as the place where gravel was built makes it.
wide=$(awk 'length > 100' text | grep -v ' /')
[ -z "$wide" ] && ok || fail "wider than 100 columns: $wide"
expect "an operand" 2 "takes no operand" "$gravel" doctor now

# Where the real libraries were built, recording on the software driver works.
if [ -e "$build/libgravel-record.so" ] && [ -e "$build/libgravel-audit.so" ] && [ -e "$build/soft/libcuda.so.1" ]; then
    "$gravel" doctor --json > answers
    [ $? = 0 ] && ok || { fail "recording should work here"; cat answers; }
    answer libraries ok ""
    answer linker ok ""
    answer soft ok "software"
fi
finish
