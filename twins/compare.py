"""Compares the reports of the twins' runs with what is expected of them (twins/run.sh calls it).

    compare.py EXPECT FOLDER TWIN...

FOLDER has TWIN.buggy.json and TWIN.clean.json from `gravel check --json`, TWIN.VARIANT.log with what the program
and the commands printed, and TWIN.fix.txt and TWIN.fix.json of `gravel fix`.
"""

import collections
import json
import os
import re
import sys


def expected_pairs(path):
    pairs = collections.defaultdict(list)
    for line in open(path):
        if line.strip() and not line.startswith("#"):
            twin, finding_id, size, first, second = line.split()
            pairs[twin].append((finding_id, int(size), first, second))
    return pairs


def reported_pairs(report):
    """All racing pairs of a report, and whether everything could be seen."""
    pairs = []
    for finding in report["findings"]:
        if finding["id"] == "incomplete":
            continue
        if "facts" in finding:  # observed: one node, where it is known
            names = [n.get("symbol") or n["kind"] for n in finding["nodes"]] or ["-"]
            pairs.append((finding["id"], finding["bytes"], names[0], "-"))
            continue
        names = {(n["graph"], n["node"]): n.get("symbol") or n["kind"] for n in finding["nodes"]}
        for pair in finding["pairs"]:
            first, second = (names[pair[side]["graph"], pair[side]["node"]] for side in ("first", "second"))
            pairs.append((pair["id"], pair["bytes"], first, second))
    return pairs, report["summary"]["complete"]


def printed(folder, twin, variant):
    path = os.path.join(folder, f"{twin}.{variant}.log")
    if not os.path.exists(path):
        return ""
    with open(path, errors="replace") as log:
        return log.read()


def read(folder, twin, variant):
    """What one run showed: (pairs, complete, wrong results, what went wrong with the run or None)."""
    base = os.path.join(folder, f"{twin}.{variant}")
    log = printed(folder, twin, variant)
    wrong = re.search(r"^wrong (\d+ of \d+)$", log, re.M)
    failed = re.search(r"^exit code \d+$", log, re.M)
    if not wrong or failed:
        return [], False, "-", f"did not run, see {base}.log"
    try:
        with open(base + ".json") as file:
            pairs, complete = reported_pairs(json.load(file))
    except (OSError, ValueError, KeyError) as error:
        return [], False, wrong[1], f"no report: {error!r}, see {base}.log"
    return pairs, complete, wrong[1], None if complete else "not everything could be seen"


def fix_problem(folder, twin, pairs):
    """Why the fix of the buggy variant is none: it must be the one edge that repairs every race. What is no race has no
    order that would repair it, and must get no edge."""
    wanted = 1 if any(pair[0].startswith("race-") for pair in pairs) else 0
    try:
        said = " ".join(open(os.path.join(folder, f"{twin}.fix.txt"), encoding="utf-8", errors="replace").read().split())
        graphs = json.load(open(os.path.join(folder, f"{twin}.fix.json"), encoding="utf-8"))["graphs"]
    except (OSError, ValueError) as trouble:
        return f"no fix: {trouble}"
    edges = [edge for graph in graphs for edge in graph["edges"]]
    if not wanted:
        return f"a fix of what no edge repairs: {said[-200:]}" if edges or "Nothing to fix:" not in said else None
    if len(edges) != 1 or " edges=1 at_least=1 " not in said or "1 edge. Checked again with it, the traces have no race." not in said:
        return f"no fix of one edge: {said[-200:]}"
    return None


def text(pairs):
    return "; ".join(f"{i} {size} {first} {second}" for i, size, first, second in pairs) or "nothing"


def main():
    expect, folder, twins = expected_pairs(sys.argv[1]), sys.argv[2], sys.argv[3:]
    detected = missed = false = unfixed = 0
    troubled = []  # runs that went wrong
    print(f"{'twin':<14} {'wrong when buggy':<17} {'when clean':<11} verdict")
    for twin in twins:
        pairs, _, buggy_wrong, problem = read(folder, twin, "buggy")
        clean_pairs, _, clean_wrong, clean_problem = read(folder, twin, "clean")
        notes = []
        troubled += [(twin, variant) for variant, wrong in (("buggy", problem), ("clean", clean_problem)) if wrong]
        if not problem and sorted(pairs) == sorted(expect[twin]) and expect[twin]:
            detected += 1
            verdict = "detected"
            notes.append(text(pairs))
        else:
            missed += 1
            verdict = "MISSED"
            notes.append(problem or f"expected {text(expect[twin])}, reported {text(pairs)}")
        unrepaired = None if problem else fix_problem(folder, twin, expect[twin])
        if unrepaired:
            verdict += ", NO FIX"
            notes.append(unrepaired)
            unfixed += 1
        # A clean variant that could not be looked at whole has not been cleared either.
        if clean_pairs or clean_problem:
            false += 1
            verdict += ", FALSE"
            notes.append(f"clean variant: {clean_problem or text(clean_pairs)}")
        print(f"{twin:<14} {buggy_wrong:<17} {clean_wrong:<11} {verdict}: {'. '.join(notes)}")
    for twin, variant in troubled:
        print(f"-- {twin} {variant} printed:\n{printed(folder, twin, variant)[-4000:]}")
    print(f"{len(twins)} pairs: {detected} detected, {missed} missed, {false} false")
    return 0 if detected == len(twins) and not false and not unfixed else 1


if __name__ == "__main__":
    sys.exit(main())
