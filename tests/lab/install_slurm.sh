#!/bin/sh
# Installs what tests/lab/slurm.py needs and is missing, without starting any daemon of the machine's own.
set -eu
missing=
for package in slurm-wlm munge postgresql; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'install ok installed' || missing="$missing $package"
done
[ -n "$missing" ] || exit 0
if [ "$(id -u)" = 0 ]; then sudo=; else sudo=sudo; fi
echo "lab-slurm: installing$missing"
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends $missing > /dev/null
