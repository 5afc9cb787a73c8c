#!/usr/bin/env python3
"""The incident's fix applied to the running specimen: recorded, fixed by `gravel fix`, and run with `gravel run --fix` on
the software driver with a seeded schedule or with --gpu on a GPU.

    fix_live.py BUILD [--gpu] [--shape SESSIONSxROUNDS]... [--batch 8] [--schedule seed:1]

For each shape: some sessions are wrong without the fix, none with it, and some again without it. Prints how long a run
takes with the fix against one with overlap switched off, which is the cure that the incident ended with: times of
the processor on the software driver. Exits 1 when something does not hold.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import time

from device import GPU, OPTIONS, environment


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--shape", action="append")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--schedule", default="seed:1")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    gravel = os.path.join(build, "gravel")
    specimen = [os.path.join(build, "gravel-specimen"), "run", "--batch", str(options.batch)]
    shapes = [tuple(map(int, shape.split("x"))) for shape in options.shape or ["60x4", "40x3"]]
    wrong = []

    with tempfile.TemporaryDirectory() as folder:
        fix = os.path.join(folder, "fix.json")

        def call(command, schedule=None):
            start = time.monotonic()
            done = subprocess.run(command, cwd=folder, env=environment(schedule=schedule), capture_output=True, text=True)
            if done.returncode:
                sys.exit("%s\nexit code %d:\n%s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
            return done, time.monotonic() - start

        def sessions(done, count):
            found = re.search(r"wrong sessions (\d+) of (\d+)", done.stdout)
            if not found or int(found[2]) != count:
                sys.exit("no count of sessions in:\n" + done.stdout)
            return int(found[1])

        trace = os.path.join(folder, "t.gravel")
        call([gravel, "run", *OPTIONS, "-o", trace, "--", *specimen, "--sessions", str(options.batch), "--rounds", "1"])
        said, _ = call([gravel, "fix", "-o", fix, trace])
        print(re.search(r"^fix of .*$", said.stdout, re.M)[0])
        fixed = [gravel, "run", *OPTIONS, "--fix", fix, "--"]
        plain = [gravel, "run", *OPTIONS, "--arm", "none", "--no-stacks", "--"]
        for count, rounds in shapes:
            shape = ["--sessions", str(count), "--rounds", str(rounds)]
            before = sessions(call(plain + specimen + shape, options.schedule)[0], count)
            done, _ = call(fixed + specimen + shape, options.schedule)
            with_fix = sessions(done, count)
            after = sessions(call(plain + specimen + shape, options.schedule)[0], count)
            print("%d x %d (%s): %d wrong without the fix, %d with it, %d without it again" %
                  (count, rounds, "on a GPU" if GPU else options.schedule, before, with_fix, after))
            if not before or with_fix or (not after if GPU else after != before):
                wrong.append("%d x %d" % (count, rounds))
            if "ran with its edges" not in done.stderr and "ran with their edges" not in done.stderr:
                wrong.append("no graph ran with the edges: " + done.stderr)
            # Free schedule: branches run side by side, as far as there are cores. A GPU has to do enough that the
            # start of the process does not count.
            many = count * (10 if GPU else 1)
            shape[1] = str(many)
            cure = call(fixed + specimen + shape + ["--overlap", "off"], "free")
            mine = call(fixed + specimen + shape, "free")
            print("throughput with the fix against overlap off: %.2f" % (cure[1] / mine[1]))
            if sessions(cure[0], many) or sessions(mine[0], many):
                wrong.append("%d x %d, free" % (count, rounds))
    for line in wrong:
        print("WRONG: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
