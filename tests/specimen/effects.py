#!/usr/bin/env python3
"""What the faults of gravel-specimen do to answers, under a seeded schedule: some sessions go wrong with each fault of
which that can be seen in a few sessions, and none with a decoy.

    effects.py BUILD
"""
import concurrent.futures
import os
import re
import subprocess
import sys

# None: whether a wrong answer shows is left to chance.
EFFECTS = {
    "early-drop": None,
    "late-fork": True,
    "ordinary-pool": True,
    "shared-workspace": True,
    "pool-reader": True,
    "weak-reference": True,
    "live-table": True,
    "late-transfer": True,
    "disposed-tensor": True,
    "pad-store": None,
    "wrong-slice": True,
    "staging-reuse": True,
    "baked-grid": True,
    "decoy-pad": False,
    "decoy-table": False,
    "decoy-programmatic": False,
    "decoy-split-k": False,
}
OPTIONS = {"weak-reference": ["--breakable"], "late-transfer": ["--split", "--pages", "12"]}
LONGER = ("live-table", "late-transfer", "wrong-slice")


def run(build, fault):
    command = [os.path.join(build, "gravel-specimen"), "run", "--repair", "--batch", "4", "--fault", fault,
               *(["--sessions", "8", "--rounds", "2"] if fault in LONGER else ["--sessions", "4", "--rounds", "1"]),
               *OPTIONS.get(fault, [])]
    environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "soft"), GRAVEL_SOFT_SCHEDULE="seed:1")
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"wrong sessions (\d+) of", done.stdout)
    return int(found.group(1)) if found and not done.returncode else "exit code %d: %s" % (done.returncode, done.stdout)


def main():
    build = sys.argv[1]
    listed = subprocess.run([os.path.join(build, "gravel-specimen"), "faults"], stdout=subprocess.PIPE, text=True,
                            env=dict(os.environ, LD_LIBRARY_PATH=os.path.join(build, "soft"))).stdout
    names = [line.split()[0] for line in listed.splitlines()[1:] if line[:1].strip()]
    bad = sorted(set(names) ^ set(EFFECTS))
    for name in bad:
        print("WRONG: %s is not both in the table of faults and in this test" % name)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        for fault, wrong in zip(EFFECTS, pool.map(lambda fault: run(build, fault), EFFECTS)):
            wanted = EFFECTS[fault]
            ok = isinstance(wrong, int) and (wanted is None or wanted == (wrong > 0))
            print("%-20s %s sessions wrong%s" % (fault, wrong, "" if ok else ": WRONG"))
            bad += [] if ok else [fault]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
