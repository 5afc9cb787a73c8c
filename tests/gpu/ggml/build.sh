#!/bin/sh
# Builds ggml_decode, a decode graph of ggml's CUDA back end, into BUILD/gpu, where `make gpu-test` looks for it:
#     sh tests/gpu/ggml/build.sh GGML BUILD
# GGML is a source tree of ggml (any place outside this repository). Needs nvcc and CMake; takes half an hour or so on
# two cores. The CUDA libraries stay shared: check.py's environment must reach libcudart and libcublas.
set -eu
ggml=${1:?usage: build.sh GGML BUILD}
build=${2:?usage: build.sh GGML BUILD}
here=$(cd "$(dirname "$0")" && pwd)
cmake -S "$ggml" -B "$ggml/build-gravel" -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES=90a-real -DGGML_CUDA_FA=OFF -DGGML_CUDA_NCCL=OFF -DGGML_CUDA_GRAPHS=ON -DGGML_OPENMP=OFF \
    -DGGML_NATIVE=OFF -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF
cmake --build "$ggml/build-gravel" -j "$(nproc)"
cuda=$(dirname "$(dirname "$(command -v nvcc)")")
mkdir -p "$build/gpu"
gcc -std=c17 -O2 -g -I"$ggml/include" -c -o "$build/gpu/ggml_decode.o" "$here/decode.c"
# shellcheck disable=SC2046
g++ -o "$build/gpu/ggml_decode" "$build/gpu/ggml_decode.o" -static-libstdc++ -static-libgcc \
    -Wl,--start-group $(find "$ggml/build-gravel" -name '*.a') -Wl,--end-group \
    -L"$cuda/lib64" -L"$cuda/lib64/stubs" -lcudart -lcublas -lcublasLt -lcuda -lpthread -ldl -lm
rm "$build/gpu/ggml_decode.o"
