#!/bin/sh
# Runs openai_client.py with PyPI's openai client, which is put into build/deps/openai once for all builds.
# usage: openai_client.sh BUILD. Exits 77 (ctest: skipped) only where PyPI cannot be reached.
set -u
build=${1:?usage: openai_client.sh BUILD}
here=$(cd "$(dirname "$0")" && pwd)
home=$here/../../build/deps/openai
log=$build/openai-install.log
mkdir -p "$here/../../build/deps" "$build"

# Builds that are tested at the same time wait for one another here.
exec 9> "$here/../../build/deps/openai.lock"
flock 9
if ! "$home/bin/python3" -c 'import openai' 2> /dev/null; then
    rm -rf "$home"
    if ! { python3 -m venv "$home" && timeout 240 "$home/bin/python3" -m pip install --quiet \
        --disable-pip-version-check --no-compile 'openai==3.*'; } > "$log" 2>&1; then
        rm -rf "$home"
        cat "$log"
        network='Could not find a version|No matching|Temporary failure|Connection|Timeout|timed out|ProtocolError'
        network="$network|IncompleteRead|SSLError|MaxRetryError|HTTPError|Max retries|NetworkError"
        if [ ! -s "$log" ] || grep -qE "$network" "$log"; then
            echo "skipped: PyPI cannot be reached, so there is no openai client to test with"
            exit 77
        fi
        echo "FAILED: the openai client could not be installed"
        exit 1
    fi
fi
flock -u 9
exec 9>&-
exec "$home/bin/python3" "$here/openai_client.py" "$build"
