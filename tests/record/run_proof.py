"""Padding, poison and probes on the software driver: what is found, what is not, and that the program's results are its
own.

usage: run_proof.py BUILD KERNELS [TEST...]
"""

import os
import subprocess
import sys
import unittest

from run import BUILD, KERNELS, Recorded, incompletes, races

TARGET = BUILD + "/tests/proof_target"


def plain(scenario):
    environment = dict(os.environ, LD_LIBRARY_PATH=BUILD + "/soft")
    environment.pop("LD_PRELOAD", None)
    return subprocess.run([TARGET, scenario, KERNELS], env=environment, capture_output=True, text=True, timeout=120,
                          check=True).stdout


def results(printed):
    return [line for line in printed.splitlines() if line.startswith("result")]


class Proof(unittest.TestCase):
    def record(self, scenario, *options, **environment):
        run = Recorded([TARGET, scenario, KERNELS], options, environment)
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, 0, run.stderr)
        self.assertEqual(results(run.stdout), results(plain(scenario)), "the program's results are not its own")
        self.printed = dict(line.split(" ", 1) for line in run.stdout.splitlines() if not line.startswith("result"))
        self.observed = [f for f in run.checks[0]["findings"] if "facts" in f]
        return run


class Probes(Proof):
    def test_without_being_asked_all_is_absent(self):
        self.record("probe-right")
        self.assertEqual(self.printed["made"], "0 0")
        self.assertEqual({self.printed[name] for name in ("four", "two", "eight", "again")}, {"-1"})

    def test_equal_results_are_silent(self):
        run = self.record("probe-right", "--probe")
        self.assertEqual(self.printed["made"], "2 2")
        self.assertEqual({self.printed[name] for name in ("four", "two", "eight", "row0", "again")}, {"0"})
        self.assertEqual(self.observed, [])
        self.assertEqual(run.checks[0]["code"], 0)

    def test_a_difference_is_found(self):
        run = self.record("probe-wrong", "--probe")
        self.assertEqual([self.printed[name] for name in ("four", "two", "eight")], ["1", "1", "1"])
        self.assertEqual(run.checks[0]["code"], 1)
        found, = self.observed
        facts = found["facts"]
        self.assertEqual(found["id"], "diff")
        self.assertEqual((facts["source"], facts["name"], facts["layer"], facts["bucket"]), ("probe", "out", 3, 4))
        self.assertEqual((facts["rows"], facts["real_rows"], facts["first_row"], facts["first_element"]), (1, 3, 0, 5))
        self.assertEqual((facts["graph_value"], facts["eager_value"]), ("13.5", "13"))
        self.assertEqual((facts["differing"], facts["elements"], facts["dtype"]), (1, 24, "f32"))
        text = subprocess.run([BUILD + "/gravel", "check", run.paths[0]], capture_output=True, text=True).stdout
        self.assertIn('diff: "out" of layer 3: 1 of 3 real rows differ', text)

    def test_armed_launches_refresh_clones_too(self):
        self.record("probe-wrong", "--probe", "--arm", "all")
        self.assertEqual(self.printed["again"], "1")
        self.record("probe-wrong", "--probe", "--arm", "none")
        self.assertEqual(self.printed["again"], "1")

    def test_nonsense_is_said_and_ignored(self):
        run = self.record("probe-nonsense", "--probe")
        for name in ("empty", "nowhere", "longer than it is", "huge", "into nothing"):
            self.assertEqual(run.stderr.count(f'the probe of "{name}" is left out'), 1, run.stderr)

    def test_clones_can_lie_inside(self):
        self.record("probe-into", "--probe")
        self.assertEqual(self.printed["made"], "1 equal 0")
        self.record("probe-into")
        self.assertEqual(self.printed["made"], "0 equal -1")

    def test_the_budget_is_kept(self):
        run = self.record("probe-budget", "--probe", "--probe-memory", "8")
        self.assertEqual(self.printed["made"], "1 0 1")
        self.assertIn("--probe-memory", run.stderr)
        self.record("probe-budget", "--probe")
        self.assertEqual(self.printed["made"], "1 1 1")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
