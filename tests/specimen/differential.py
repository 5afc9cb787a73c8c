#!/usr/bin/env python3
"""gravel-specimen under `gravel run --diff`: with the incident, launches differ from serial replays at a node that a race
names; repaired, no launch does.

    differential.py BUILD [STEPS] [--gpu]

STEPS: how many decode steps of the repaired engine are compared, at least; a few without it.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

from device import OPTIONS, environment

SCHEDULE = "seed:8"
STEPS_A_SESSION = 4  # at least, with three sessions at a time


def record(build, folder, *options):
    """What the engine printed, what check reports, and the table of compared launches."""
    gravel, trace = os.path.join(build, "gravel"), os.path.join(folder, "t.gravel")
    # The first launch of each graph is armed, so that differing bytes are laid to nodes by what these have written.
    command = [gravel, "run", *OPTIONS, "--arm", "first", "--diff=every=1", "-o", trace, "--",
               os.path.join(build, "gravel-specimen"), "run", "--rounds", "1", "--batch", "3", *options]
    done = subprocess.run(command, env=environment(schedule=SCHEDULE), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit("%s\nexit code %d:\n%s" % (" ".join(command), done.returncode, done.stdout))
    report = subprocess.run([gravel, "check", "--json", trace], stdout=subprocess.PIPE, text=True)
    rows = subprocess.run([gravel, "show", "--json", trace, "diffs"], stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout, json.loads(report.stdout), json.loads(rows.stdout)["rows"], report.returncode


def expect(condition, what, output):
    if not condition:
        sys.exit("WRONG: %s\n%s" % (what, output))


def compared(rows, output):
    states = [row["status"] for row in rows]
    expect("not compared" not in states, "not compared: %s" % {row["reason"] for row in rows}, output)
    return len(states), states.count("differs")


def main():
    build = os.path.abspath(sys.argv[1])
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        output, report, rows, code = record(build, folder, "--sessions", "2")
        all_launches, differing = compared(rows, output)
        found = [f for f in report["findings"] if f["id"] == "diff"]
        print("incident: %d of %d launches differ: %s" %
              (differing, all_launches, ", ".join("%s (%s)" % (f["nodes"][0]["name"], f["facts"].get("race") or
                                                               "after " + f["facts"].get("race_before", "no race"))
                                                  for f in found)))
        expect(code == 1 and differing, "no launch differs", output)
        expect({f["facts"]["class"] for f in found} == {"order-dependent"}, "other classes", output)
        expect(any(f["facts"].get("race") and f["confidence"] == "certain" for f in found), "no race names the node", output)
        # Wherever a difference shows first, a race comes before it or is there.
        expect(all(f["facts"].get("race") or f["facts"].get("race_before") for f in found), "a difference without a race",
               output)

        sessions = max(2, steps // STEPS_A_SESSION)
        output, report, rows, code = record(build, folder, "--sessions", str(sessions), "--repair")
        all_launches, differing = compared(rows, output)
        print("repaired: %d of %d launches differ" % (differing, all_launches))
        expect(differing == 0 and code == 0, "a launch differs", output)
        expect(all_launches >= steps, "only %d steps were compared" % all_launches, output)
        expect(re.search(r"wrong sessions 0 of", output), "a session is wrong", output)


if __name__ == "__main__":
    main()
