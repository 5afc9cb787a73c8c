#!/bin/sh
# Installs what the build needs and is missing: Debian packages by apt, and from PyPI the CUDA headers, nvcc and the
# Sanitizer API's headers where no toolkit is installed. Prints nothing when all is there.
set -eu
build=${1:-build}
mkdir -p "$build"

packages="cmake ninja-build gcc g++ libc6-dev pkg-config libzstd-dev libjansson-dev libdw-dev libelf-dev zlib1g-dev
libbz2-dev liblzma-dev uthash-dev libcmocka-dev libcbor-dev libyaml-dev libcurl4-openssl-dev
libmicrohttpd-dev libsodium-dev libxxhash-dev libsqlite3-dev libpq-dev libpq5 python3 python3-venv clang libclang-rt-14-dev clang-format clang-tidy git"
missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
    echo "deps: installing$missing"
    $sudo apt-get update -qq
    DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing > "$build/apt.log" 2>&1 ||
        { tail -20 "$build/apt.log"; echo "deps: apt-get failed; the log is $build/apt.log" >&2; exit 1; }
fi

# CUDA parts: a toolkit in CUDA_HOME or /usr/local/cuda wins; what it lacks comes from PyPI.
cuda=build/deps/cuda
sanitizer=build/deps/sanitizer
have() { for home in "${CUDA_HOME:-}" /usr/local/cuda "$cuda/nvidia/cu13"; do
    [ -n "$home" ] && [ -e "$home/$1" ] && return 0; done; return 1; }
wheels=
have include/cuda.h || wheels="$wheels nvidia-cuda-runtime==13.0.*"
have bin/nvcc || wheels="$wheels nvidia-cuda-nvcc==13.0.* nvidia-nvvm==13.0.* nvidia-cuda-crt==13.0.* nvidia-cuda-runtime==13.0.* nvidia-cuda-cccl==13.0.*"
have lib/libcudadevrt.a || have lib64/libcudadevrt.a || wheels="$wheels nvidia-cuda-runtime==13.0.*"
pip_to() { # pip_to FOLDER WHEEL...: a folder of its own for each set, as pip replaces what is in one
    folder=$1; shift
    echo "deps: fetching from PyPI: $*"
    if ! python3 -m pip --version > /dev/null 2>&1; then
        if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
        $sudo apt-get update -qq
        DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends python3-pip > "$build/apt.log" 2>&1
    fi
    python3 -m pip install --quiet --no-deps --disable-pip-version-check --root-user-action=ignore \
        --target "$folder" "$@" > "$build/pip.log" 2>&1 ||
        { tail -5 "$build/pip.log"; echo "deps: pip failed; set CUDA_HOME to an installed toolkit instead" >&2; exit 1; }
}
[ -z "$wheels" ] || pip_to "$cuda" $wheels
# The Sanitizer from a release that reports TMA tensor loads (13.3 and later), whatever a toolkit has: the recorder
# prefers it at run time, and falls back to the toolkit's where a driver is too old for it (docs/sanitizer.md).
tensor_copies=
for home in "${CUDA_HOME:-}" /usr/local/cuda "$sanitizer/nvidia/cu13"; do
    [ -z "$home" ] || ! grep -qs SANITIZER_INSTRUCTION_TMA_LOAD "$home/compute-sanitizer/include/sanitizer_patching.h" ||
        tensor_copies=1
done
[ -n "$tensor_copies" ] || pip_to "$sanitizer" nvidia-cuda-sanitizer-api==13.5.25
