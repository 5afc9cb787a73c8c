#!/usr/bin/env python3
"""The worked example of docs/lab.md: specimen.py BUILD [whole]

The specimen's prefill, decode and router under gravel stress: the fingerprint of the incident with the cell that it never
ran, and the one change that is enough. `whole` runs specimen/plan.yaml as it is; without it fewer sessions of fewer rounds
are run, at a lower confidence."""
import os
import shutil
import sys

from labtest import Lab, check

HERE = os.path.dirname(os.path.abspath(__file__))


def main():
    lab = Lab(sys.argv[1])
    whole = "whole" in sys.argv[2:]
    folder = os.path.join(HERE, "specimen")
    for name in os.listdir(folder):
        shutil.copy(os.path.join(folder, name), lab.here)
    text = open(lab.path("plan.yaml")).read()
    check("copy: ../../../specimen" in text, "the plan's source")
    text = text.replace("copy: ../../../specimen", f"copy: {os.path.join(HERE, '../../specimen')}")
    if not whole:
        text = text.replace("sessions: 24", "sessions: 30").replace("confidence: 0.99", "confidence: 0.9")
        text = text.replace("design: {kind: full,", "design: {kind: full, exclude: [{keys: fp8}],")
    plan = lab.write("plan.yaml", text)
    os.environ["BUILD"] = lab.build
    os.environ["ROUNDS"] = "4" if whole else "2"
    os.environ["XDG_CACHE_HOME"] = lab.path("cache")
    try:
        done = lab.run("run", plan, "--quiet", timeout=3600)
        check(done.returncode == 1, done.returncode, done.stdout, done.stderr)
        report = lab.report(plan)
        verdicts = {tuple(cell["cell"].values()): cell["verdict"] for cell in report["cells"]}
        for (keys, capture, overlap), verdict in verdicts.items():
            corrupt = keys == "bf16" and overlap == "on"
            check(verdict == ("corrupt" if corrupt else "clean"), keys, capture, overlap, verdict, done.stdout)
        sentences = " ".join(report["conclusions"])
        where = "keys=bf16 and overlap=on" if whole else "overlap=on"
        check(len(verdicts) == (8 if whole else 4) and f"Corrupt where {where}" in sentences, sentences)
        check("capture and overlap were changed together" in sentences and
              "So capture=eager alone is not enough, overlap=off alone is enough." in sentences, sentences)
        if whole:
            print(done.stdout)
        done = lab.run("minimise", plan, "--quiet", timeout=3600)
        found = lab.report(plan)
        check(done.returncode == 0 and found["changes"] == ["overlap off"], done.stdout, done.stderr)
        check(0 < found["error_bound"] < (0.01 if whole else 0.1), found["error_bound"])
        if whole:
            print(done.stdout)
    finally:
        lab.close()
    print("specimen: passed")


main()
