"""Padding, poison and probes on the software driver: what is found, what is not, and that the program's results are its
own.

usage: run_proof.py BUILD KERNELS [TEST...]
"""

import os
import subprocess
import sys
import unittest

from run import BUILD, HERE, KERNELS, Recorded, incompletes

TARGET = BUILD + "/tests/proof_target"
# However slow the machine is, no launch counts as one that hangs, and no search as one that takes too long.
os.environ.update(GRAVEL_STALL_SECONDS="900", GRAVEL_SEARCH_SECONDS="900")


def plain(scenario):
    environment = dict(os.environ, LD_LIBRARY_PATH=BUILD + "/soft")
    environment.pop("LD_PRELOAD", None)
    return subprocess.run([TARGET, scenario, KERNELS], env=environment, capture_output=True, text=True, timeout=600,
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

    def test_tensors_in_two_allocations(self):
        self.record("probe-adjoining", "--probe")
        self.assertEqual([self.printed[name] for name in ("made", "equal", "other")], ["1", "0", "1"])

    def test_the_budget_is_kept(self):
        run = self.record("probe-budget", "--probe", "--probe-memory", "8")
        self.assertEqual(self.printed["made"], "1 0 1")
        self.assertIn("--probe-memory", run.stderr)
        self.record("probe-budget", "--probe")
        self.assertEqual(self.printed["made"], "1 1 1")


@unittest.skipIf("thread" in os.environ.get("GV_SANITIZE", ""), "Python is not built with ThreadSanitizer")
class Python(unittest.TestCase):
    def record(self, *options):
        run = Recorded([sys.executable, os.path.join(HERE, "proof_target.py"), KERNELS], options)
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, 0, run.stderr)
        return run

    def test_all_calls(self):
        run = self.record("--probe", "--pad", "--poison")
        self.assertEqual(run.stdout, "made 2 equal 0 fallback 1\n")
        self.assertEqual([(row["what"], row["result"]) for row in run.show("perturbed")],
                         [("padding", "checked"), ("poison", "checked")])
        self.assertEqual([f for f in run.checks[0]["findings"] if "facts" in f], [])

    def test_without_being_asked(self):
        self.assertEqual(self.record().stdout, "made 0 equal None fallback None\n")


class Padding(Proof):
    def pad(self, scenario, *options, **environment):
        return self.record(scenario, "--pad", *options, **environment)

    def row(self, run):
        rows = [row for row in run.show("perturbed") if row["what"] == "padding"]
        self.assertEqual(len(rows), 1, rows)
        return rows[0]

    def test_rows_that_are_skipped_are_silent(self):
        run = self.pad("pad-skipped")
        self.assertEqual(self.observed, [])
        row = self.row(run)
        self.assertEqual((row["result"], row["real_rows"]), ("checked", 2))
        self.assertEqual(row["patterns"], "mark,zeros,ones,nan,large,first-row")
        self.assertEqual(row["bytes"], 2 * 32 + 2 * 4)

    def test_a_stale_slot_is_written(self):
        run = self.pad("pad-stale")
        found, = self.observed
        self.assertEqual((found["id"], found["bytes"]), ("pad-write", 2 * 32))
        self.assertEqual(found["nodes"][0]["name"], "store_rows")
        self.assertEqual(found["facts"]["patterns"], "mark")
        self.assertEqual(run.checks[0]["code"], 1)
        self.assertEqual(len(found["ranges"]), 1)
        place = int(found["ranges"][0][0], 16) - int(found["allocation"]["address"], 16)
        self.assertEqual(place, 3 * 32)  # slots 3 and 4 of the cache

    def test_a_stale_slot_that_holds_the_same_already(self):
        run = self.pad("pad-same")
        found, = self.observed
        self.assertEqual((found["id"], found["nodes"][0]["name"]), ("pad-write", "store_rows"))
        self.assertEqual(found["facts"]["patterns"], "mark")
        # Each byte that any pattern changed: the exponents of a few numbers stay what they are.
        self.assertGreater(found["bytes"], 48)
        self.assertLessEqual(found["bytes"], 64)
        self.assertEqual(self.row(run)["result"], "checked")

    def test_a_reserved_slot_is_silent(self):
        self.pad("pad-reserved")
        self.assertEqual(self.observed, [])

    def test_memory_in_two_allocations(self):
        run = self.pad("pad-adjoining", "--poison")
        self.assertEqual(self.observed, [])
        rows = {row["what"]: row for row in run.show("perturbed")}
        self.assertEqual([rows[what]["result"] for what in ("padding", "poison")], ["checked", "checked"])
        self.assertEqual(rows["padding"]["bytes"], 3 * (256 + 4) + 3 * (32 + 4))
        self.assertEqual(rows["padding"]["patterns"], "mark,zeros,ones,nan,large,first-row")
        self.assertEqual(rows["poison"]["bytes"], (8 + 2 * 4) * 256)

    def test_a_real_row_that_depends_on_padding(self):
        self.pad("pad-largest")
        found, = self.observed
        facts = found["facts"]
        self.assertEqual((found["id"], facts["name"], facts["rows"], facts["real_rows"]), ("pad-read", "out", 2, 2))
        self.assertEqual((facts["first_row"], facts["last_row"]), (0, 1))
        self.assertIn("nan", facts["patterns"])
        self.assertEqual(found["nodes"][0]["name"], "divide_rows")

    def test_no_value_that_is_safe(self):
        run = self.pad("pad-unmarked")
        self.assertEqual(self.observed, [])
        self.assertIn("GRAVEL_ROWS_ZERO_IS_PAD", self.row(run)["reason"])
        self.assertTrue(any("padding" in f["reason"] for f in incompletes(run.checks[0])))

    def test_host_functions_are_refused(self):
        run = self.pad("pad-host")
        self.assertEqual(self.row(run)["result"], "refused")
        self.assertIn("host function", self.row(run)["reason"])

    def test_state_is_kept(self):
        self.pad("pad-state", "--arm", "none")
        self.assertEqual(self.observed, [])
        self.record("pad-state", "--pad=every=1", "--arm", "first")
        self.assertEqual(self.observed, [])

    def test_nonsense_is_said_and_ignored(self):
        run = self.pad("pad-nonsense")
        self.assertEqual(self.observed, [])
        for name in ("null", "nowhere", "longer than it is", "neither", "flags", "outside"):
            self.assertEqual(run.stderr.count(f'declared as "{name}"'), 1, run.stderr)
        self.assertEqual(self.row(run)["result"], "checked")

    def test_other_threads_writes_are_kept(self):
        run = self.record("pad-beside", "--pad=every=1")
        states = {row["result"] for row in run.show("perturbed")}
        self.assertLessEqual(states, {"checked", "refused", "unstable"})
        self.assertEqual(self.observed, [])

    def test_without_being_asked_nothing_is_repeated(self):
        run = self.record("pad-stale")
        self.assertEqual(run.show("perturbed"), [])
        self.assertEqual(self.observed, [])


class Unstable(Proof):
    """Graphs that leave some bytes in another state at each launch."""

    def pad(self, scenario, *options):
        run = self.record(scenario, "--pad=every=1", *options)
        self.rows = [row for row in run.show("perturbed") if row["what"] == "padding"]
        self.assertTrue(self.rows)
        return run

    def found(self):
        return sorted({f["id"] for f in self.observed})

    def test_bytes_nobody_asks_about_are_left_out(self):
        run = self.pad("pad-unstable")
        self.assertEqual(self.observed, [])
        self.assertEqual({row["result"] for row in self.rows}, {"checked"})
        for row in self.rows:
            # The workspace and the padding's slot vary; only the first would have been compared.
            self.assertGreater(row["unstable_bytes"], 0)
            self.assertTrue(64 < row["left_out_bytes"] <= 128, row)
        text = subprocess.run([BUILD + "/gravel", "check", run.paths[0]], capture_output=True, text=True).stdout
        self.assertRegex(text, r"4 launches repeated with other padding: no effect \(\d+ unstable bytes left out\)")
        tried = run.checks[0]["summary"]["tried"]
        self.assertEqual(tried["pad_left_out_bytes"], max(row["left_out_bytes"] for row in self.rows))

    def test_a_stale_slot_is_written_beside_them(self):
        self.pad("pad-unstable-stale")
        self.assertEqual(self.found(), ["pad-write"])
        self.assertEqual(len(self.observed), 1)
        self.assertEqual(self.observed[0]["nodes"][0]["name"], "store_in_any_order")
        self.assertEqual(self.observed[0]["launches"], len(self.rows))
        self.assertEqual({row["result"] for row in self.rows}, {"checked"})

    def test_rows_that_race_for_a_slot_that_is_not_declared(self):
        self.pad("pad-unstable-slot")
        self.assertEqual(self.observed, [])
        self.assertTrue(all(row["left_out_bytes"] > 64 for row in self.rows))

    def test_a_real_row_depends_on_padding_beside_them(self):
        self.pad("pad-unstable-rows")
        self.assertEqual(self.found(), ["pad-read"])
        self.assertEqual({row["result"] for row in self.rows}, {"checked"})

    def test_one_byte_of_many_at_a_time(self):
        self.pad("pad-unstable-anywhere")
        self.assertEqual(self.found(), ["pad-write"])
        self.assertEqual([(row["result"], row["left_out_bytes"]) for row in self.rows], [("checked", 4 * 4096)])
        run = self.pad("pad-unstable-everywhere")
        self.assertEqual(self.observed, [])
        self.assertEqual([row["result"] for row in self.rows], ["unstable"])
        self.assertIn("every time", self.rows[0]["reason"])
        self.assertIn("NOT checked", run.stderr)

    def test_unstable_results_are_no_verdict(self):
        run = self.pad("pad-unstable-output")
        self.assertEqual(self.observed, [])
        self.assertEqual({row["result"] for row in self.rows}, {"unstable"})
        self.assertTrue(all('"out"' in row["reason"] for row in self.rows))
        self.assertTrue(any("padding" in f["reason"] for f in incompletes(run.checks[0])))
        self.assertIn("NOT checked", run.stderr)

    def test_stable_bytes_of_unstable_results_still_show_it(self):
        run = self.pad("pad-unstable-both")
        self.assertEqual(self.found(), ["pad-read"])
        self.assertEqual(self.observed[0]["nodes"][0]["name"], "divide_rows")
        self.assertEqual({row["result"] for row in self.rows}, {"unstable"})
        self.assertEqual(run.checks[0]["summary"]["tried"]["pad_effects"], len(self.rows))

    def test_poison(self):
        for scenario, ids in (("poison-unstable", []), ("poison-unstable-stale", ["stale-read"])):
            run = self.record(scenario, "--poison=every=1")
            self.assertEqual(self.found(), ids)
            rows = run.show("perturbed")
            self.assertEqual({row["result"] for row in rows}, {"checked"})
            self.assertTrue(all(row["left_out_bytes"] for row in rows))
            if ids:
                self.assertEqual(self.observed[0]["facts"]["name"], "between")
                self.assertEqual(self.observed[0]["nodes"][0]["node"], 3)

    def test_poison_where_no_output_is_declared(self):
        run = self.record("poison-undeclared", "--poison")
        self.assertEqual(self.observed, [])
        self.assertEqual([row["result"] for row in run.show("perturbed")], ["unstable"])


class Poison(Proof):
    def test_written_memory_is_silent(self):
        run = self.record("poison-written", "--poison=every=1")
        self.assertEqual(self.observed, [])
        rows = run.show("perturbed")
        self.assertEqual([(row["what"], row["result"], row["bytes"]) for row in rows], [("poison", "checked", 128)] * 3)

    def test_unwritten_memory_is_read(self):
        run = self.record("poison-stale", "--poison")
        found, = self.observed
        self.assertEqual((found["id"], found["facts"]["name"]), ("stale-read", "between"))
        self.assertEqual(found["nodes"][0]["node"], 1)
        self.assertEqual(run.checks[0]["code"], 1)

    def test_recorded_accesses_show_it_too(self):
        for options in ((), ("--poison=every=1", "--arm", "first")):
            self.record("poison-stale", *options)
            found, = self.observed
            self.assertEqual((found["id"], found["facts"]["name"], found["nodes"][0]["node"]),
                             ("stale-read", "between", 1))
            self.assertEqual(found["bytes"], 32)
            self.assertEqual(found["facts"]["source"], "access-sets,poison" if options else "access-sets")
        self.record("poison-written", "--poison=every=1", "--arm", "all")
        self.assertEqual(self.observed, [])

    def test_state_is_reported_and_kept(self):
        self.record("poison-state", "--poison=every=1")
        found, = self.observed
        self.assertEqual((found["id"], found["facts"]["name"], found["launches"]), ("stale-read", "state", 3))

    def test_memory_of_the_graph(self):
        self.record("poison-own", "--poison")
        found, = self.observed
        self.assertEqual(found["id"], "stale-read")
        self.assertIn("during a capture", found["facts"]["name"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
