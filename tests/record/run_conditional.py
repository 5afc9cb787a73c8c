"""Runs the recorder's program with conditional nodes through `gravel run` on the software driver and checks what the
traces say. The program checks its own results.

usage: run_conditional.py BUILD KERNELS [SCENARIO...]
"""

import collections
import sys
import unittest

from run import BUILD, BYTES, KERNELS, Recorded, incompletes, line_of, races

PROGRAM = BUILD + "/tests/record_conditional"


class Conditional(unittest.TestCase):
    def record(self, scenario, options=(), environment=None):
        run = Recorded([PROGRAM, scenario, KERNELS], options, environment)
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, 0, run.stderr)
        return run

    def assert_complete(self, report):
        self.assertEqual(report["findings"], [])
        self.assertTrue(report["summary"]["complete"])
        coverage = report["summary"]["coverage"]
        self.assertGreater(coverage["exact"], 0)
        self.assertEqual(coverage["exact"] + coverage["nothing"], coverage["nodes"])

    def records(self, run):
        """How often each kernel was recorded in the first recorded launch, by name: once for each execution."""
        rows = run.show("access")
        seen = {(row["name"], row["node"], row["graph"], row["execution"]) for row in rows
                if row["launch"] == rows[0]["launch"]}
        return collections.Counter(name for name, *_ in seen)

    # ---- What runs, and what races ----

    def test_a_race_in_a_body(self):
        report = self.record("if-race").checks[0]
        found = races(report)
        self.assertEqual(len(found), 1)
        self.assertEqual((found[0]["id"], found[0]["confidence"]), ("race-raw", "certain"))
        self.assertEqual(found[0]["graph"]["origin"], "body")
        self.assertEqual(found[0]["pairs"][0]["bytes"], BYTES)
        self.assertEqual({node["name"] for node in found[0]["nodes"]}, {"fill", "add_one"})
        self.assertEqual(incompletes(report), [])

    def test_a_body_in_order_is_clean(self):
        self.assert_complete(self.record("if-clean").checks[0])

    def test_one_launch_executes_one_of_two_bodies(self):
        run = self.record("if-else")
        self.assertEqual(races(run.checks[0]), [])
        self.assertEqual([(f["kind"], f["affected"]) for f in incompletes(run.checks[0])], [("not-executed", 1)])
        self.assertFalse(run.checks[0]["summary"]["complete"])
        rows = run.show("coverage")
        self.assertEqual(sum(row["not_executed"] for row in rows), 1)
        self.assertEqual([(r["state"], r["nodes"]) for row in rows for r in row["reasons"]], [("not_executed", 1)])
        self.assertEqual(sum(row["nodes"] for row in rows), run.checks[0]["summary"]["coverage"]["nodes"])
        # Two launches execute both.
        self.assert_complete(self.record("if-else", options=("--arm", "all")).checks[0])

    def test_iterations_come_one_after_the_other(self):
        run = self.record("while-clean")
        self.assert_complete(run.checks[0])
        self.assertEqual(self.records(run), {"write_turn": 5, "read_turn": 5, "count_down": 5})

    def test_a_loop_races_with_a_node_beside_it(self):
        found = races(self.record("while-race").checks[0])
        self.assertEqual(len(found), 1)
        self.assertEqual(found[0]["graph"]["origin"], "built")
        self.assertEqual(len(found[0]["pairs"]), 1)
        self.assertEqual(found[0]["pairs"][0]["bytes"], BYTES)
        edge = {node["node"]: node["kind"] for node in found[0]["nodes"] if node["graph"] == found[0]["graph"]["id"]}
        self.assertEqual(edge[found[0]["edge"]["from"]], "conditional")
        self.assert_complete(self.record("while-ordered").checks[0])

    def test_a_loop_that_is_not_entered(self):
        report = self.record("while-zero").checks[0]
        self.assertEqual([(f["kind"], f["affected"]) for f in incompletes(report)], [("not-executed", 2)])
        self.assertEqual(report["summary"]["coverage"]["not_executed"], 2)

    def test_switch(self):
        report = self.record("switch").checks[0]
        self.assertEqual([f["kind"] for f in incompletes(report)], ["not-executed"] * 3)
        self.assert_complete(self.record("switch", options=("--arm", "all")).checks[0])

    def test_nesting(self):
        run = self.record("nested", options=("--arm", "all"))
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["complete"] * 2)
        # Six iterations of the loop; of the inner node's bodies those for 3, 2 and 1, the body for 0 never.
        self.assertEqual(self.records(run), {"set_condition": 6, "count_down": 6, "add_one": 6 + 3})
        self.assertEqual([f["kind"] for f in incompletes(run.checks[0])], ["not-executed"])

    def test_captured_bodies_and_packed_parameters(self):
        run = self.record("captured")
        self.assert_complete(run.checks[0])
        self.assertEqual(self.records(run), {"fill": 1 + 3, "count_down": 3, "add_one": 1})
        lines = {row["name"]: row["place"]["line"] for row in run.show("nodes") if row["place"]}
        self.assertEqual(lines["count_down"], line_of("packed", "conditional.c"))

    # ---- Changes ----

    def test_nodes_of_bodies_that_change(self):
        found = races(self.record("changed").checks[0])
        self.assertEqual([finding["id"] for finding in found], ["race-waw"])

    def test_updates(self):
        run = self.record("updated", options=("--arm", "all"))
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["complete"] * 2)
        self.assert_complete(run.checks[0])

    # ---- Limits ----

    def test_a_loop_longer_than_the_limit_goes_on_unrecorded(self):
        run = self.record("long-loop", environment={"GRAVEL_LOOP_ITERATIONS": "3"}, options=("--arm", "all"))
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["failed"] * 2)
        self.assertIn("GRAVEL_LOOP_ITERATIONS", incompletes(run.checks[0])[0]["reason"])
        # Three iterations, and the node behind the loop.
        self.assertEqual(self.records(run), {"add_one": 3 + 1, "count_down": 3})
        self.assert_complete(self.record("long-loop", environment={"GRAVEL_LOOP_ITERATIONS": "12"}).checks[0])

    def test_a_nested_loop_longer_than_the_limit(self):
        report = self.record("nested", environment={"GRAVEL_LOOP_ITERATIONS": "2"}).checks[0]
        self.assertTrue(any("went on unrecorded" in f["reason"] for f in incompletes(report)))

    def test_a_body_that_waits_for_the_program(self):
        run = self.record("waits", environment={"GRAVEL_STALL_SECONDS": "2"})
        self.assertIn("wait_for_flag", run.stderr)
        self.assertTrue(incompletes(run.checks[0]))

    def test_a_node_that_waits_beside_a_branch_that_sets(self):
        # For a flag of that branch: the host learns what both have set. For the program: the driver has to.
        for scenario in "waits-beside", "waits-outside":
            for value in "0", "1":
                run = self.record(scenario, environment={"GRAVEL_STALL_SECONDS": "1", "VALUE": value})
                self.assertIn("wait_for_flag", run.stderr)
                self.assertTrue(incompletes(run.checks[0]))

    # ---- What cannot be followed is launched as it is ----

    def assert_refused(self, scenario, reason):
        run = self.record(scenario)
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["refused"])
        self.assertEqual(races(run.checks[0]), [])
        self.assertIn(reason, incompletes(run.checks[0])[0]["reason"])

    def test_a_value_from_an_earlier_launch(self):
        reason = "it may decide by what an earlier launch has set"
        run = self.record("from-before")
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["refused", "no", "no"])
        self.assertIn(reason, incompletes(run.checks[0])[0]["reason"])
        # A handle in device memory is not seen to be set in front.
        self.assert_refused("from-memory-alone", reason)

    def test_a_value_from_an_earlier_iteration(self):
        self.assert_refused("from-iteration-before", "it may decide by what an earlier iteration has set")

    # ---- Where values come from ----

    def test_a_handle_in_device_memory(self):
        run = self.record("from-memory")
        self.assert_complete(run.checks[0])
        self.assertEqual(self.records(run), {"set_from_memory": 1, "fill": 1})

    def test_a_default_is_assigned_once_a_launch(self):
        for options, environment in ((), None), (("--arm", "all"), None), ((), {"GRAVEL_LOOP_ITERATIONS": "1"}):
            run = self.record("default-in-loop", options, environment)
            self.assertEqual(self.records(run)["set_condition"], 1)

    def test_graphs_with_handles_of_the_same_numbers(self):
        run = self.record("same-numbers", options=("--arm", "all"))
        self.assert_complete(run.checks[0])
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["complete"] * 6)

    def test_setting_and_deciding_without_order(self):
        report = self.record("unordered").checks[0]
        self.assertFalse(report["summary"]["complete"])
        self.assertIn("depend on timing", incompletes(report)[0]["reason"])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
