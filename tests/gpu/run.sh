#!/bin/sh
# Runs every check that needs a GPU: tests/gpu/run.sh BUILD [WORD...]. With words, only checks whose name has one of
# them. Builds nothing, since a GPU machine may have no compiler; BUILD comes from `make build` elsewhere. Prints a
# Markdown table, also written to $OUT/gpu-results.md when OUT is set, row by row. All of them take a quarter of an hour;
# GRAVEL_GPU_TEST_SECONDS sets a limit, and what is not done by then is reported as not run. Exit code: 0 all passed, 1
# some failed, 2 BUILD is not a build, 3 there is no GPU here.
set -u
build=${1:?usage: tests/gpu/run.sh BUILD [WORD...]}
shift
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v python3 > /dev/null; then
    echo "gpu-test: python3 was not found; the checks are written in it" >&2
    exit 2
fi
exec python3 -B "$here/check.py" "$build" "$@"
