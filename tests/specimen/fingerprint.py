#!/usr/bin/env python3
"""The fingerprint of the incident: wrong sessions of gravel-specimen in every combination of key format, graph or eager,
overlap on or off, and batch of one or many, on the software driver with a seeded schedule or with
--gpu on a GPU.

    fingerprint.py BUILD [--gpu] [--sessions 60] [--rounds 4] [--batch 8] [--schedule seed:1] [--expect FILE] [--compiler VERSION]

Prints the table. Exits 1 when a combination is wrong that should be right, or right that should be wrong, or when the
counts are not those of FILE. The counts depend on what the compiler made of the kernels: they are compared only if
VERSION begins as FILE says.
"""
import argparse
import concurrent.futures
import itertools
import os
import re
import subprocess
import sys

from device import GPU, environment

KEYS, MODES, OVERLAPS = ("bf16", "fp8"), ("graph", "eager"), ("on", "off")


def run(build, cell, options):
    """The number of wrong sessions of one combination."""
    keys, mode, overlap, batch = cell
    command = [os.path.join(build, "gravel-specimen"), "run", "--keys", keys, "--" + mode, "--overlap", overlap,
               "--batch", str(batch), "--sessions", str(options.sessions), "--rounds", str(options.rounds)]
    done = subprocess.run(command, env=environment(build, options.schedule), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    found = re.search(r"wrong sessions (\d+) of (\d+)", done.stdout)
    if done.returncode or not found or int(found.group(2)) != options.sessions:
        sys.exit("%s\nexit code %d:\n%s" % (" ".join(command), done.returncode, done.stdout))
    return int(found.group(1))


def expected_counts(path, compiler):
    """{cell: count} of a file, and whether they can be expected of this compiler."""
    counts, version = {}, None
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            words = line.split("#")[0].split()
            if words and words[0] == "compiler":
                version = words[1]
            elif words:
                counts[tuple(words[:4])] = int(words[4])
    return counts, bool(version and compiler and (compiler + ".").startswith(version + "."))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--sessions", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--schedule", default="seed:1")
    parser.add_argument("--expect")
    parser.add_argument("--compiler")
    parser.add_argument("--jobs", type=int, default=1 if GPU else os.cpu_count() or 1)
    options = parser.parse_args()

    cells = list(itertools.product(KEYS, MODES, OVERLAPS, (1, options.batch)))
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        counts = dict(zip(cells, pool.map(lambda cell: run(options.build, cell, options), cells)))

    print("Wrong sessions of %d, %d round%s each (%s):\n" %
          (options.sessions, options.rounds, "s" if options.rounds > 1 else "", "on a GPU" if GPU else options.schedule))
    print("    keys  overlap  batch   graph          eager")
    for keys, overlap, batch in itertools.product(KEYS, OVERLAPS, (1, options.batch)):
        both = ["%3d (%4.1f %%)" % (n, 100 * n / options.sessions)
                for n in (counts[keys, mode, overlap, batch] for mode in MODES)]
        print("    %-5s %-8s %-7s %s   %s" % (keys, overlap, batch, *both))

    wrong = []
    for (keys, mode, overlap, batch), count in counts.items():
        guilty = keys == "bf16" and overlap == "on" and batch > 1
        if guilty != (count > 0):
            wrong.append("%s keys, %s, overlap %s, batch %d: %d wrong sessions, expected %s" %
                         (keys, mode, overlap, batch, count, "some" if guilty else "none"))
    if options.expect:
        wanted, same_compiler = expected_counts(options.expect, options.compiler)
        for (keys, mode, overlap, batch), count in counts.items():
            want = wanted.get((keys, mode, overlap, "1" if batch == 1 else "many"))
            if same_compiler and count != want:
                wrong.append("%s keys, %s, overlap %s, batch %d: %d wrong sessions, expected exactly %s" %
                             (keys, mode, overlap, batch, count, want))
        print("\nExact counts %s." % ("compared" if same_compiler else
                                      "not compared: another compiler than the one they are of"))
    print()
    for line in wrong:
        print("WRONG: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
