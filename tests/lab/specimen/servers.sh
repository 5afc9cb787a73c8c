#!/bin/sh
# The service of plan.yaml: prefill, decode and router of the specimen as one.
#     servers.sh BUILD KERNELS ROUTER-PORT PREFILL-PORT DECODE-PORT [ENGINE-OPTION...]
build=$1 kernels=$2 router=$3 prefill=$4 decode=$5
shift 5
export LD_LIBRARY_PATH="$build/soft"
"$build/gravel-specimen" prefill --port "$prefill" --kernels "$kernels" "$@" &
"$build/gravel-specimen" decode --port "$decode" --kernels "$kernels" "$@" &
# The router is the service's main process; gravel lab stops the other two with it.
exec "$build/gravel-specimen" router --port "$router" --prefill "http://127.0.0.1:$prefill" \
    --decode "http://127.0.0.1:$decode"
