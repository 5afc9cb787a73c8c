#!/usr/bin/env python3
"""The specimen under `gravel run --pad` and `--probe`: the faults that these are for are found under their ids, and
nothing is said of the engine without them, nor of decoys.

    proof.py BUILD
"""
import json
import os
import subprocess
import sys
import tempfile

BUILD = os.path.abspath(sys.argv[1])
GRAVEL, SPECIMEN = BUILD + "/gravel", BUILD + "/gravel-specimen"
SMALL = ["run", "--sessions", "8", "--rounds", "1", "--batch", "4", "--buckets", "4", "--repair"]
PROBED = ["run", "--sessions", "6", "--rounds", "1", "--batch", "3", "--hold", "20000", "--probe"]
failures = []
# However slow the machine is, no launch counts as one that hangs, and no search as one that takes too long.
os.environ.update(GRAVEL_STALL_SECONDS="900", GRAVEL_SEARCH_SECONDS="900")


def record(folder, options, arguments, schedule):
    """What is observed, the rows of `gravel show perturbed`, and what the program printed."""
    trace = folder + "/t.gravel"
    if os.path.exists(trace):
        os.remove(trace)
    done = subprocess.run([GRAVEL, "run", "--soft", *options, "-o", trace, "--", SPECIMEN, *arguments],
                          env=dict(os.environ, GRAVEL_SOFT_SCHEDULE=schedule), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{arguments}: exit code {done.returncode}: {done.stderr}")
    report = json.loads(subprocess.run([GRAVEL, "check", "--json", trace], capture_output=True, text=True).stdout)
    rows = json.loads(subprocess.run([GRAVEL, "show", trace, "perturbed", "--json"], capture_output=True, text=True,
                                     check=True).stdout)["rows"]
    return [f for f in report["findings"] if "facts" in f], rows, done.stdout


def expect(condition, what):
    if not condition:
        failures.append(what)
        print("FAILED:", what)


def pad(folder):
    for faults in ([], ["decoy-pad"], ["decoy-table"], ["decoy-programmatic"], ["decoy-split-k"], ["pad-store"]):
        # What padded rows of an earlier step store differs from what is there once their pages have a new owner.
        option = "--pad=every=2" if "pad-store" in faults else "--pad"
        arguments = SMALL + [word for fault in faults for word in ("--fault", fault)]
        found, rows, printed = record(folder, [option], arguments, "serial")
        name = faults[0] if faults else "the engine as it is"
        expect("wrong sessions 0 of 8" in printed, f"{name}: sessions went wrong while launches were repeated")
        expect(rows and all(row["result"] == "checked" for row in rows), f"{name}: not checked: {rows}")
        ids = sorted({finding["id"] for finding in found})
        expect(ids == (["pad-write"] if "pad-store" in faults else []), f"{name}: reported {ids}")
        print(f"{name}: {len(rows)} launches checked, {ids or 'nothing'} reported")


# Whether the tensor is overwritten in time depends on the schedule; which seeds show it, on the compiler.
def probe(folder):
    for seed in range(1, 9):
        found, _, printed = record(folder, ["--probe", "--arm", "none"], PROBED, f"seed:{seed}")
        differing = int(printed.rsplit("compared, ", 1)[1].split()[0])
        expect(bool(found) == (differing > 0), f"seed {seed}: {differing} searches differ and {len(found)} are reported")
        if not found:
            continue
        facts = found[0]["facts"]
        expect((found[0]["id"], facts["source"], facts["name"]) == ("diff", "probe", "index-logits"), f"{found[0]}")
        again, _, printed = record(folder, ["--probe", "--arm", "none"], PROBED + ["--repair"], f"seed:{seed}")
        expect(not again and ", 0 differ" in printed, f"seed {seed}, repaired: {printed}")
        print(f"probe: with seed {seed} {differing} searches of the index differ from the eager ones; repaired, none")
        return
    expect(False, "with no seed did a search differ from the eager one")


with tempfile.TemporaryDirectory() as temporary:
    pad(temporary)
    probe(temporary)
sys.exit(bool(failures))
