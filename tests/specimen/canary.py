#!/usr/bin/env python3
"""Runs gravel-specimen under `gravel run --canary` on the software driver or with --gpu: which faults write pages that no step declared,
who is named, and that nothing is said where nothing is wrong, with transfers going on.

    canary.py BUILD [--steps N] [--gpu]

With --steps the runs without a fault go on for that many hashed steps all in all (`make specimen-canary`: 10,000) instead
of a few. Exits 1 when something differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

from device import OPTIONS, environment

# Options of runs of which nothing may be said. Few pages: each belongs to many requests.
CLEAN = (["--repair", "--split", "--pages", "12"],
         ["--repair", "--keys", "fp8"],
         ["--repair=record", "--fault", "decoy-pad"],
         ["--repair", "--fault", "decoy-table", "--breakable"])


class Failure(Exception):
    pass


class Run:
    """One recorded run: what `gravel check` says, and the rows of `gravel show canary`."""

    def __init__(self, build, canary, sessions, options, batch=3, rounds=1):
        self.name = " ".join([canary, *options])
        gravel = os.path.join(build, "gravel")
        with tempfile.TemporaryDirectory() as folder:
            trace = os.path.join(folder, "t.gravel")
            self.execute([gravel, "run", *OPTIONS, canary, "-o", trace, "--", os.path.join(build, "gravel-specimen"),
                          "run", "--sessions", str(sessions), "--rounds", str(rounds), "--batch", str(batch), *options])
            self.report = json.loads(self.execute([gravel, "check", "--json", trace], (0, 1)))
            self.rows = json.loads(self.execute([gravel, "show", trace, "canary", "--json"]))["rows"]

    def execute(self, command, codes=(0,)):
        done = subprocess.run(command, env=environment(), capture_output=True, text=True)
        if done.returncode not in codes:
            raise Failure("%s\nexit code %d:\n%s%s" % (" ".join(command), done.returncode, done.stdout, done.stderr))
        return done.stdout

    def canaries(self):
        return [f for f in self.report["findings"] if f["id"] == "canary"]

    def expect(self, condition, what):
        if not condition:
            raise Failure("%s: %s: %s" % (self.name, what, json.dumps(self.report["findings"], indent=1)[:4000]))


def check_clean(build, options, sessions):
    run = Run(build, "--canary", sessions, options)
    run.expect(not run.canaries(), "a page is said to have changed")
    run.expect({row["state"] for row in run.rows} == {"first", "checked"}, "not every step was hashed and compared")
    run.expect(any(row["changed"] for row in run.rows), "no page changed at all")
    steps = {(row["region"], row["step"]) for row in run.rows if row["state"] == "checked"}
    return max(step for _, step in steps)


def check_pad_store(build):
    run = Run(build, "--canary", 8, ["--repair", "--fault", "pad-store"], 8)
    found = run.canaries()
    run.expect(found, "nothing was found")
    for finding in found:
        facts = finding["facts"]
        run.expect(facts["found"] > facts["expected"] - facts["outside"] and facts["outside"] >= 1, "counts")
    seen = [f for f in found if f["facts"]["evidence"] == "seen"]
    run.expect(seen, "no writer was seen")
    names = {node["name"] for f in seen for node in f["nodes"]}
    run.expect(names <= {"compress_core", "compress_index_bf16", "store_window_keys"}, "another writer: %s" % names)
    run.expect(all(node["place"]["file"].endswith("forward.c") for f in seen for node in f["nodes"]), "its line")


def check_late_transfer(build, whole):
    # Two such steps, the second one recorded, or only the first.
    fault = ["--repair", "--fault", "late-transfer", "--split", "--pages"]
    run = Run(build, "--canary=record", 6, fault + ["4"], 2, 2) if whole else Run(build, "--canary", 8, fault + ["6"])
    found = run.canaries()
    run.expect(len(found) == 1, "not one finding")
    facts = found[0]["facts"]
    run.expect(facts["name"] == "index keys 1", "another region")
    run.expect(facts["outside"] >= 1 and facts["found"] >= facts["outside"], "counts")
    # No kernel and no copy of the process writes there: a kernel must not be blamed.
    run.expect(facts["evidence"] == "ruled-out" or not whole, "that it was nobody on a stream")
    run.expect(facts["evidence"] in ("ruled-out", "other-launch", "unknown"), "who wrote it")
    return facts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build", type=os.path.abspath)
    parser.add_argument("--steps", type=int, default=0)
    options = parser.parse_args()
    try:
        steps = 0
        for clean in CLEAN[:2] if not options.steps else CLEAN:
            sessions = 4
            done = check_clean(options.build, clean, sessions)
            if options.steps:
                wanted = options.steps // len(CLEAN) + 1
                # The first steps are fewer sessions' than the later ones: twice as many as these promise are enough.
                done = check_clean(options.build, clean, 2 * sessions * wanted // done + 4)
            steps += done
        print("%d steps without a fault, and nothing said of them" % steps)
        if options.steps and steps < options.steps:
            raise Failure("fewer steps than asked for")
        check_pad_store(options.build)
        facts = check_late_transfer(options.build, options.steps > 0)
        print("late-transfer: step %d, expected %d, found %d: %s" %
              (facts["step"], facts["expected"], facts["found"], facts["evidence"]))
    except Failure as failure:
        print(failure, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
