"""The differential on the software driver: what differs and how it is classed, what is refused, and that the program's
results are its own.

usage: run_diff.py BUILD KERNELS TWINS [TEST...]
"""

import collections
import concurrent.futures
import os
import signal
import subprocess
import sys
import unittest

from run import BUILD, KERNELS, Recorded, incompletes, races

TARGET = BUILD + "/tests/diff_target"
EXPECT = os.path.join(os.path.abspath(sys.argv[3]), "expect.txt")
EVERY = "--diff=every=1"
LAUNCHES = 5
# However slow the machine is, no launch counts as one that hangs, and no search as one that takes too long.
os.environ.update(GRAVEL_STALL_SECONDS="900", GRAVEL_SEARCH_SECONDS="900")
# Of two branches that write the same memory at once, each may come to leave a part of it.
ONE_AFTER_ANOTHER = {"GRAVEL_SOFT_SCHEDULE": "serial"}


def plain(scenario, **more):
    environment = dict(os.environ, LD_LIBRARY_PATH=BUILD + "/soft", **more)
    environment.pop("LD_PRELOAD", None)
    return subprocess.run([TARGET, scenario, KERNELS], env=environment, capture_output=True, text=True, timeout=120,
                          check=True).stdout


def results(printed):
    return [line for line in printed.splitlines() if line.startswith("result")]


def diffs(report):
    return [f for f in report["findings"] if f["id"] == "diff"]


def not_compared(report):
    return [f for f in incompletes(report) if f["kind"] == "not-compared"]


class Differential(unittest.TestCase):
    def record(self, scenario, *options, schedule="serial", **environment):
        run = Recorded([TARGET, scenario, KERNELS], (EVERY, *options), environment)
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, 0, run.stderr)
        alone = {name: value for name, value in environment.items() if name == "GRAVEL_SOFT_MEMORY"}
        expected = plain(scenario, GRAVEL_SOFT_SCHEDULE=schedule, **alone)
        self.assertEqual(results(run.stdout), results(expected), "the program's results are not its own")
        self.report, = run.checks
        self.rows = run.show("diffs")
        return run

    def assert_equal_launches(self, count=LAUNCHES):
        self.assertEqual([row["status"] for row in self.rows], ["equal"] * count)
        self.assertEqual(diffs(self.report), [])
        self.assertEqual(not_compared(self.report), [])
        self.assertEqual(self.report["code"], 0)

    def assert_refused(self, part, count=1):
        self.assertEqual([row["status"] for row in self.rows], ["not compared"] * count)
        self.assertIn(part, self.rows[0]["reason"])
        self.assertEqual(diffs(self.report), [])
        found, = not_compared(self.report)
        self.assertIn(part, found["reason"])
        self.assertEqual(self.report["code"], 0)
        self.assertFalse(self.report["summary"]["complete"])

    # ---- What differs ----

    def test_what_is_kept_between_launches_is_left_alone(self):
        run = self.record("kept")
        self.assert_equal_launches()
        # No accesses are recorded for it.
        self.assertEqual(run.show("access"), [])
        self.assertEqual({row["recorded"] for row in run.show("launches")}, {"no"})
        # The first launch is compared with two orders, later ones with one each.
        self.assertEqual([row["replays"] for row in self.rows], [2, 1, 1, 1, 1])

    def test_every_schedule_leaves_the_same(self):
        for schedule in ("serial", "seed:5"):
            self.record("kept", GRAVEL_SOFT_SCHEDULE=schedule)
            self.assert_equal_launches()

    def test_copies_can_lie_in_host_memory(self):
        self.record("kept", GRAVEL_DIFF_MEMORY="0")
        self.assert_equal_launches()

    def test_a_difference_under_a_type_and_a_tolerance(self):
        self.record("near", **ONE_AFTER_ANOTHER)
        found = diffs(self.report)[0]
        facts = found["facts"]
        self.assertEqual(facts["class"], "order-dependent")
        self.assertEqual((facts["dtype"], facts["dtype_from"]), ("f32", "guessed from the kernel's name"))
        self.assertEqual((facts["elements"], facts["first_element"]), (256, 0))
        self.assertEqual({facts["graph_value"], facts["serial_value"]}, {"1", "1.00000012"})
        self.assertEqual(facts["largest"], "1.1920929e-07")
        self.assertEqual(found["allocation"]["size"], 1024)
        self.assertEqual(self.report["code"], 1)
        self.record("near", "--diff-dtype", "fill=i32", **ONE_AFTER_ANOTHER)
        facts = diffs(self.report)[0]["facts"]
        self.assertEqual((facts["dtype"], facts["dtype_from"], facts["largest"]), ("i32", "declared", "1"))
        for tolerance in ("ulp=1", "relative=1e-6"):
            self.record("near", "--diff-tolerance", tolerance, **ONE_AFTER_ANOTHER)
            self.assertEqual(diffs(self.report), [])
            self.assertEqual(self.report["code"], 0)

    def test_nodes_that_are_not_deterministic_are_no_finding(self):
        self.record("noisy")
        classes = {(f["nodes"][0]["name"], f["facts"]["class"]) for f in diffs(self.report)}
        self.assertEqual(classes, {("sum_f32", "non-deterministic")})
        self.assertTrue(all(f["facts"]["unstable"] for f in diffs(self.report)))
        self.assertEqual(self.report["code"], 0)

    def test_padded_rows_do_not_count(self):
        self.record("padded", **ONE_AFTER_ANOTHER)
        self.assertEqual({row["status"] for row in self.rows}, {"equal"})
        self.assertTrue(any(row["ignored_bytes"] for row in self.rows))
        self.record("real-rows", **ONE_AFTER_ANOTHER)
        self.assertTrue(any(row["ignored_bytes"] for row in self.rows))
        self.assertEqual({f["facts"]["class"] for f in diffs(self.report)}, {"order-dependent"})
        self.assertLessEqual(max(f["bytes"] for f in diffs(self.report)), 128)

    def test_the_exit_code_can_be_asked_for(self):
        run = Recorded([TARGET, "near", KERNELS], ("--diff", "--error-exitcode", "77"))
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, 77, run.stderr)

    def test_which_launches(self):
        self.record("kept", "--diff=every=2")
        self.assertEqual([row["status"] for row in self.rows], ["equal"] * 3)
        self.record("kept", "--diff=first")
        self.assertEqual([row["status"] for row in self.rows], ["equal"])
        # A launch that is due for both is armed, and the next one is compared.
        run = self.record("kept", "--diff=first", "--arm", "first")
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["complete"] + ["no"] * 4)
        self.assertEqual([row["launch"] for row in self.rows], [run.show("launches")[1]["launch"]])
        self.record("kept", "--graph", "no_such_kernel")
        self.assertEqual(self.rows, [])

    def test_a_graph_without_nodes(self):
        self.record("nothing")
        self.assert_equal_launches(2)

    def test_a_graph_that_was_launched_too_seldom_is_not_passed_over(self):
        run = Recorded([BUILD + "/twins/scratch", "clean", "1"], ("--diff", "--arm", "first"))
        self.addCleanup(run.folder.cleanup)
        found, = not_compared(run.checks[0])
        self.assertIn("no launch of this graph came to be compared", found["reason"])

    # ---- What is kept from one checked launch to the next ----

    def test_addresses_that_change_are_followed(self):
        self.record("table")
        self.assert_equal_launches(8)

    def test_nodes_that_change_are_followed(self):
        self.record("changes")
        self.assert_equal_launches(11)

    def test_graphs_that_take_turns(self):
        self.record("turns")
        self.assert_equal_launches(20)

    def test_all_kinds_of_nodes_run_in_a_row(self):
        for environment in ({}, {"GRAVEL_DIFF_MEMORY": "0"}):
            self.record("kinds", **environment)
            self.assert_equal_launches()

    def test_a_difference_of_a_later_launch(self):
        self.record("late", **ONE_AFTER_ANOTHER)
        self.assertEqual([row["status"] for row in self.rows][:3], ["equal"] * 3)
        self.assertIn("differs", [row["status"] for row in self.rows][3:])
        found = diffs(self.report)[0]
        self.assertEqual((found["nodes"][0]["name"], found["facts"]["class"]), ("add_f32", "order-dependent"))
        self.assertEqual({found["facts"]["graph_value"], found["facts"]["serial_value"]}, {"0", "1"})
        self.assertEqual(found["facts"]["elements"], 1)

    def test_more_changes_than_the_journal_has_room_for(self):
        self.record("large")
        self.assert_equal_launches(3)
        # 20 MiB and what goes with them, and a journal of 16 MiB; the changes need one of 20.
        self.record("large", GRAVEL_DIFF_MEMORY="38", GRAVEL_DIFF_HOST_MEMORY="0")
        self.assert_refused("do not fit", 3)

    def test_a_program_that_needs_the_memory_gets_it(self):
        self.record("grows", GRAVEL_SOFT_MEMORY=str(128 << 20))
        self.assert_equal_launches(6)

    def test_contexts_that_end(self):
        self.record("contexts")
        self.assert_equal_launches(4)

    def test_a_node_that_waits_in_a_later_launch_is_helped(self):
        run = self.record("waits-late", schedule="free", GRAVEL_STALL_SECONDS="1")
        states = [row["status"] for row in self.rows]
        self.assertIn("not compared", states)
        reasons = {row["reason"] for row in self.rows if row["status"] == "not compared"}
        # On a machine that stops the process for a second the graph itself may seem to wait.
        self.assertTrue(any("made no progress" in r or "did not come to an end" in r for r in reasons), reasons)
        self.assertEqual(diffs(self.report), [])
        self.assertEqual(run.code, 0)

    def test_a_launch_that_waits_for_the_program_is_let_go(self):
        self.record("unfinished", schedule="free", GRAVEL_STALL_SECONDS="1")
        self.assertEqual(self.rows[1]["status"], "not compared")
        self.assertIn("did not come to an end", self.rows[1]["reason"])
        self.assertNotIn("differs", {row["status"] for row in self.rows})

    # ---- What is not compared ----

    def test_host_functions_are_called_once(self):
        self.record("host-function")
        self.assert_refused("host function")

    def test_copies_to_the_host_are_refused(self):
        self.record("to-host")
        self.assert_refused("copies to host memory")

    def test_memory_that_the_processor_sees_is_refused(self):
        self.record("pinned")
        self.assert_refused("page-locked")

    def test_without_room_nothing_is_compared(self):
        run = self.record("kept", GRAVEL_DIFF_MEMORY="0", GRAVEL_DIFF_HOST_MEMORY="0")
        self.assert_refused("does not fit", LAUNCHES)
        self.assertIn("5 NOT compared", run.stderr)
        self.assertEqual(run.stderr.count("does not fit"), 1)

    def test_inputs_that_change_are_no_finding(self):
        run = Recorded([TARGET, "host-input-changes", KERNELS], (EVERY,))
        self.addCleanup(run.folder.cleanup)
        self.report, = run.checks
        self.rows = run.show("diffs")
        self.assert_refused("inputs changed during the check", LAUNCHES)

    def test_memory_that_somebody_else_writes_is_no_finding(self):
        self.record("device-input-changes")
        self.assertEqual(self.rows[0]["status"], "not compared")
        self.assertIn("inputs changed during the check", self.rows[0]["reason"])
        self.assertEqual(diffs(self.report), [])

    def test_other_threads_are_held_meanwhile(self):
        self.record("threads")
        self.assertEqual(diffs(self.report), [])
        # On a machine that stops the other thread for seconds inside the driver the graph may be given up; in any other
        # case launches are compared.
        reasons = {finding["reason"] for finding in not_compared(self.report)}
        self.assertLessEqual(reasons, {"other work in its context did not come to an end"})
        self.assertTrue(reasons or "equal" in {row["status"] for row in self.rows})

    def test_a_kill_leaves_a_trace(self):
        run = Recorded([TARGET, "killed", KERNELS], (EVERY,))
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, -signal.SIGKILL)
        self.assertEqual(diffs(run.checks[0]), [])
        self.assertFalse(run.checks[0]["traces"][0]["ended"])
        self.assertEqual(run.show("diffs"), [])


def run_twin(twin, variant):
    """The first launch is armed, the others are compared. Two serial orders decide, and no schedule."""
    environment = {"GRAVEL_SOFT_SCHEDULE": "seed:1"}
    run = Recorded([BUILD + "/twins/" + twin, variant, "2"], (EVERY, "--arm", "first"), environment)
    rows = run.show("diffs")
    run.folder.cleanup()
    return run.checks[0], rows


class Twins(unittest.TestCase):
    def test_every_race_is_proved_and_no_clean_variant_differs(self):
        expected = collections.defaultdict(set)
        with open(EXPECT) as file:
            for line in file:
                if line.strip() and not line.startswith("#"):
                    twin, finding, _, *sides = line.split()
                    if finding.startswith("race-"):
                        expected[twin].update(sides)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            runs = {key: pool.submit(run_twin, *key) for twin in expected for key in ((twin, "buggy"), (twin, "clean"))}
        for twin, sides in expected.items():
            with self.subTest(twin=twin):
                report, rows = runs[twin, "buggy"].result()
                clean, clean_rows = runs[twin, "clean"].result()
                if rows[0]["status"] == "not compared":
                    self.assertIn("conditional", rows[0]["reason"])
                    self.assertIn(twin, ("if-body", "loop-beside", "loop-swap"))
                    continue
                found = diffs(report)
                self.assertTrue(found, "nothing differs")
                first = found[0]
                self.assertEqual(first["facts"]["class"], "order-dependent")
                self.assertEqual(first["confidence"], "certain")
                self.assertIn(first["nodes"][0]["symbol"] or first["nodes"][0]["kind"], sides)
                self.assertIn(first["facts"]["race"], {pair["id"] for race in races(report) for pair in race["pairs"]})
                self.assertEqual(diffs(clean), [])
                self.assertEqual([row["status"] for row in clean_rows], ["equal"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[4:], verbosity=2)
