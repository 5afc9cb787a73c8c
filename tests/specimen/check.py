#!/usr/bin/env python3
"""Records gravel-specimen in the configurations of expect.txt with `gravel run`, checks the traces, and compares what
is reported with what must be.

    check.py BUILD [WORD...] [--gpu]

With WORDs only the configurations whose options contain one of them. Exits 1 when one of them differs.
"""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile

from device import OPTIONS, environment

HERE = os.path.dirname(os.path.abspath(__file__))
SESSIONS = ["--sessions", "3", "--rounds", "1"]


def configurations(path):
    """[(options, {(id, first, second)})]"""
    result = []
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.split("#")[0].split()
            if words and words[0] == "run":
                result.append((words[1:], set()))
            elif words:
                result[-1][1].add(tuple(words))
    return result


def reported(report):
    """The racing pairs of a report by id and names, and whether everything was seen."""
    pairs = set()
    for finding in report["findings"]:
        if finding["id"] == "incomplete":
            continue
        names = {(n["graph"], n["node"]): n.get("symbol") or n["kind"] for n in finding["nodes"]}
        for pair in finding["pairs"]:
            pairs.add((pair["id"], *(names[pair[side]["graph"], pair[side]["node"]] for side in ("first", "second"))))
    return pairs, report["summary"]["complete"]


def look(build, options, folder, number):
    """What is reported of one configuration: (pairs, complete)."""
    gravel, trace = os.path.join(build, "gravel"), os.path.join(folder, "%d.gravel" % number)
    if "--batch" not in options:
        options = options + ["--batch", "3"]
    command = [gravel, "run", *OPTIONS, "-o", trace, "--", os.path.join(build, "gravel-specimen"), "run", *SESSIONS,
               *options]
    done = subprocess.run(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        return "%s\nexit code %d:\n%s" % (" ".join(command), done.returncode, done.stdout)
    done = subprocess.run([gravel, "check", "--json", trace], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode not in (0, 1):
        return "gravel check: exit code %d:\n%s" % (done.returncode, done.stderr)
    return reported(json.loads(done.stdout))


def main():
    build, words = os.path.abspath(sys.argv[1]), sys.argv[2:]
    chosen = [c for c in configurations(os.path.join(HERE, "expect.txt"))
              if not words or any(word in option for word in words for option in c[0])]
    bad = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        looks = [pool.submit(look, build, options, folder, i) for i, (options, _) in enumerate(chosen)]
        for (options, wanted), future in zip(chosen, looks):
            seen = future.result()
            print("run " + " ".join(options))
            if isinstance(seen, str):
                bad += 1
                print("    WRONG: " + seen)
                continue
            pairs, complete = seen
            for pair in sorted(pairs | wanted):
                mark = "" if pair in pairs and pair in wanted else "WRONG, not reported: " if pair in wanted else \
                    "WRONG, not expected: "
                print("    " + mark + " ".join(pair))
            if not complete:
                print("    WRONG: not everything was seen")
            bad += pairs != wanted or not complete
    print("%d configurations, %d wrong" % (len(chosen), bad))
    return 1 if bad or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
