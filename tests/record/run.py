"""Runs the recorder's target program through `gravel run` on the software driver and checks what the traces say.

usage: run.py BUILD KERNELS [SCENARIO...]
"""

import glob
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

BUILD, KERNELS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
GRAVEL, TARGET = BUILD + "/gravel", BUILD + "/tests/record_target"
HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = 4096


def line_of(marker, source="target.c"):
    with open(os.path.join(HERE, source)) as file:
        for number, text in enumerate(file, 1):
            if "LAUNCH:" + marker in text:
                return number
    raise AssertionError("no marker " + marker)


class Recorded:
    """One run: its exit code, its stderr and what check says of each trace."""

    def __init__(self, command, options=(), environment=None):
        self.folder = tempfile.TemporaryDirectory()
        trace = self.folder.name + "/t.gravel"
        env = dict(os.environ, **(environment or {}))
        result = subprocess.run([GRAVEL, "run", "--soft", "-o", trace, *options, "--", *command], env=env,
                                capture_output=True, text=True, timeout=600)
        self.code, self.stderr, self.stdout = result.returncode, result.stderr, result.stdout
        self.paths = sorted(glob.glob(trace + "*"))
        self.checks = [self.check(path) for path in self.paths]

    def check(self, path):
        result = subprocess.run([GRAVEL, "check", "--json", path], capture_output=True, text=True, timeout=600)
        if result.returncode not in (0, 1):
            raise AssertionError(f"check: {result.returncode}: {result.stderr}")
        report = json.loads(result.stdout)
        report["code"] = result.returncode
        return report

    def show(self, table, path=None):
        result = subprocess.run([GRAVEL, "show", path or self.paths[0], table, "--json"], capture_output=True,
                                text=True, check=True)
        return json.loads(result.stdout)["rows"]


def races(report):
    return [f for f in report["findings"] if f["id"].startswith("race-")]


def incompletes(report):
    return [f for f in report["findings"] if f["id"] == "incomplete"]


class EndToEnd(unittest.TestCase):
    def record(self, scenario, way="proc", options=(), environment=None):
        run = Recorded([TARGET, way, scenario, KERNELS], options, environment)
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, 0, run.stderr)
        return run

    def assert_scratch_race(self, report, incomplete=()):
        """Both branches write and read one scratch buffer: three pairs of nodes, one missing order."""
        found = races(report)
        self.assertEqual(len(found), 1, found)
        self.assertEqual(report["code"], 1)
        self.assertEqual(found[0]["confidence"], "certain")
        self.assertEqual(len(found[0]["pairs"]), 3)
        self.assertEqual({pair["bytes"] for pair in found[0]["pairs"]}, {BYTES})
        self.assertEqual([finding["kind"] for finding in incompletes(report)], list(incomplete))

    # ---- Ways into the driver ----

    def test_every_way_in(self):
        for way in ("linked", "dlsym", "proc", "proc-ptsz"):
            with self.subTest(way=way):
                run = self.record("race", way)
                self.assertEqual(len(run.paths), 1, run.stderr)
                self.assert_scratch_race(run.checks[0])

    def test_places_are_the_launching_lines(self):
        finding = races(self.record("race").checks[0])[0]
        lines = {(node["name"], node["place"]["line"]) for node in finding["nodes"]}
        self.assertTrue(lines <= {("fill", line_of("fill")), ("add_one", line_of("add"))}, lines)
        self.assertTrue(all(node["place"]["file"].endswith("target.c") for node in finding["nodes"]))

    def test_clean_is_silent_and_right(self):
        run = self.record("clean")
        self.assertEqual(run.checks[0]["findings"], [])
        self.assertEqual(run.checks[0]["code"], 0)
        self.assertTrue(run.checks[0]["traces"][0]["ended"])

    # ---- When to arm ----

    def armed(self, options):
        launches = self.record("six", options=options).show("launches")
        self.assertEqual(len(launches), 6)
        return [i + 1 for i, row in enumerate(launches) if row["recorded"] == "complete"]

    def test_arm_policies(self):
        self.assertEqual(self.armed(()), [1])
        self.assertEqual(self.armed(("--arm", "first")), [1])
        self.assertEqual(self.armed(("--arm", "4")), [4])
        self.assertEqual(self.armed(("--arm", "every=2")), [1, 3, 5])
        self.assertEqual(self.armed(("--arm", "all")), [1, 2, 3, 4, 5, 6])
        self.assertEqual(self.armed(("--arm", "none")), [])

    def test_graph_option_chooses(self):
        self.assertEqual(self.armed(("--graph", "add_one")), [1])
        self.assertEqual(self.armed(("--graph", "1")), [1])
        self.assertEqual(self.armed(("--graph", "no_such_kernel")), [])
        self.assertEqual(self.armed(("--graph", "2")), [])

    def test_never_armed_is_not_clean(self):
        report = self.record("race", options=("--arm", "none")).checks[0]
        self.assertEqual(races(report), [])
        self.assertEqual(len(incompletes(report)), 1)

    def test_the_program_can_ask(self):
        # Without arming the nodes are not kept: the request is refused with the reason, and the launch runs.
        run = self.record("arm-next", options=("--arm", "none"))
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["no", "no", "refused", "no", "no"])
        self.assertIn("--arm none", run.show("launches")[2]["reason"])
        launches = self.record("arm-next", options=("--arm", "100")).show("launches")
        self.assertEqual([row["recorded"] for row in launches], ["no", "no", "complete", "no", "no"])

    # ---- Operations outside of graphs ----

    def operations(self, run):
        printed = subprocess.run([BUILD + "/tests/record_operations", run.paths[0]], capture_output=True, text=True,
                                 check=True).stdout
        return [(line.split()[0], *map(int, line.split()[1:])) for line in printed.splitlines()]

    def test_operations(self):
        for way in ("proc", "linked"):
            with self.subTest(way=way):
                all_of_them = self.operations(self.record("operations", way))
                one, two, legacy = 1, 2, 3
                device, pool = 1, 2
                from_host, to_host, pageable, synchronous = 1, 2, 4, 8
                self.assertEqual(all_of_them, [
                    ("stream-create", one, 0, 0, 0),
                    ("stream-create", two, 0, 0, 0),
                    ("alloc", 0, device, BYTES, 0),
                    ("memcpy", legacy, 0, 4, from_host | pageable | synchronous),
                    ("context-sync", 0, 1, 0, 0),
                    ("memset", one, 0, BYTES, 0),
                    ("kernel", one, 1, 0, 0),
                    ("event-record", one, 1, 0, 0),
                    ("event-wait", two, 1, 0, 0),
                    ("host-function", two, 0, 0, 0),
                    ("event-sync", 0, 1, 0, 0),
                    ("event-query", 0, 1, 0, 0),
                    ("value-write", one, 0, 4, 0),
                    ("value-wait", two, 0, 4, 1),
                    ("alloc", two, pool, BYTES, 0),
                    ("memcpy", two, 0, BYTES, 0),
                    ("free", two, pool, 0, 0),
                    ("stream-sync", two, 0, 0, 0),
                    ("stream-query", two, 0, 0, 0),
                    ("memcpy", legacy, 0, 4, to_host | pageable | synchronous),
                    ("host-order", 0, 5, 0, 0),
                    ("host-order", 0, 5, 0, 1),
                    ("context-sync", 0, 1, 0, 0),
                    ("event-destroy", 0, 1, 0, 0),
                    ("stream-destroy", two, 0, 0, 0),
                    ("free", 0, device, 0, 0),
                ])

    def test_a_refused_free_ends_no_life(self):
        kinds = [row[0] for row in self.operations(self.record("free-refused"))]
        self.assertEqual(kinds, ["alloc", "stream-create", "capture-begin", "capture-end", "memset", "stream-sync",
                                 "free"])

    def test_per_thread_default_stream_is_another(self):
        all_of_them = self.operations(self.record("operations", "proc-ptsz"))
        copies = [row for row in all_of_them if row[0] == "memcpy" and row[4]]
        self.assertEqual(len({row[1] for row in copies}), 1)
        self.assertNotIn(copies[0][1], (1, 2))

    # ---- Changes of an executable graph ----

    def test_update_is_followed(self):
        self.assert_scratch_race(self.record("update").checks[0])

    def test_set_params_is_followed(self):
        found = races(self.record("set-params").checks[0])
        self.assertEqual(len(found), 1)
        kernels = {node["name"] for node in found[0]["nodes"]}
        self.assertEqual(kernels, {"fill", "add_one"})

    def test_disabled_nodes_do_not_race(self):
        for scenario in ("disabled", "disabled-update"):
            with self.subTest(scenario):
                report = self.record(scenario).checks[0]
                self.assertEqual(report["findings"], [])
                self.assertTrue(report["summary"]["complete"])

    # ---- Kinds of nodes ----

    def test_child_graph(self):
        found = races(self.record("child").checks[0])
        self.assertEqual(len(found), 1)
        self.assertEqual(found[0]["id"], "race-waw")
        self.assertEqual(len(found[0]["pairs"]), 2)
        kernels = [node for node in found[0]["nodes"] if node["kind"] == "kernel"]
        self.assertEqual({node["place"]["line"] for node in kernels}, {line_of("node")})

    def test_copies_and_sets(self):
        report = self.record("copies").checks[0]
        found = races(report)
        self.assertEqual(len(found), 1)
        self.assertEqual(found[0]["pairs"][0]["bytes"], BYTES)
        self.assertEqual({node["place"]["line"] for node in found[0]["nodes"]}, {line_of("set"), line_of("copy")})
        # What the host function touches is not seen, and that is said.
        self.assertEqual(len(incompletes(report)), 1)

    def test_empty_graph(self):
        report = self.record("empty").checks[0]
        self.assertEqual((report["findings"], report["code"]), ([], 0))

    def test_alloc_nodes_are_refused_with_the_reason(self):
        report = self.record("alloc-nodes").checks[0]
        self.assertEqual(races(report), [])
        self.assertEqual(len(incompletes(report)), 1)
        self.assertIn("allocates or frees memory", incompletes(report)[0]["reason"])

    def test_stall_is_named_and_overcome(self):
        run = self.record("stall", environment={"GRAVEL_STALL_SECONDS": "2"})
        self.assertIn("wait_for_flag", run.stderr)
        report = run.checks[0]
        self.assertTrue(any("made no progress" in f["reason"] for f in incompletes(report)), report)

    def test_stall_in_a_child_graph(self):
        report = self.record("child-stall", environment={"GRAVEL_STALL_SECONDS": "2"}).checks[0]
        self.assertTrue(any("made no progress" in f["reason"] for f in incompletes(report)), report)

    def test_waiting_for_the_program_does_not_hang_it(self):
        run = self.record("host-wait", environment={"GRAVEL_STALL_SECONDS": "2"})
        self.assertIn("outside of it", run.stderr)
        self.assertEqual(len(run.show("launches")), 3)
        self.assertTrue(incompletes(run.checks[0]))

    def test_a_context_that_is_never_idle_is_given_up(self):
        run = self.record("busy", options=("--arm", "all"))
        # Two attempts that are put off and the last one; then it is not tried again.
        self.assertEqual([row["recorded"] for row in run.show("launches")], ["no", "no", "refused"] + ["no"] * 27)
        self.assertIn("did not come to an end", incompletes(run.checks[0])[0]["reason"])

    def test_a_capture_whose_stream_is_destroyed_is_over(self):
        self.assert_scratch_race(self.record("capture-gone").checks[0])

    # ---- Processes and threads ----

    def test_two_threads_capture_at_once(self):
        report = self.record("threads").checks[0]
        self.assert_scratch_race(report)

    def test_killed_process_leaves_what_was_recorded(self):
        run = Recorded([TARGET, "proc", "killed", KERNELS])
        self.addCleanup(run.folder.cleanup)
        self.assertIn(run.code, (-signal.SIGKILL, 128 + signal.SIGKILL), run.stderr)
        self.assertFalse(run.checks[0]["traces"][0]["ended"])
        self.assert_scratch_race(run.checks[0], incomplete=["trace"])

    def test_quick_exit_ends_the_trace(self):
        run = self.record("quick-exit")
        self.assertTrue(run.checks[0]["traces"][0]["ended"])
        self.assert_scratch_race(run.checks[0])

    def test_exec_makes_a_second_trace(self):
        run = self.record("exec")
        self.assertEqual(len(run.paths), 2)
        found = [len(races(report)) for report in run.checks]
        self.assertEqual(sorted(found), [0, 1])

    def test_fork_after_start(self):
        run = self.record("fork-after")
        self.assertEqual(len(run.paths), 1)
        self.assert_scratch_race(run.checks[0])

    def test_fork_before_start(self):
        run = self.record("fork-before")
        self.assertEqual(len(run.paths), 2)
        self.assertEqual(sorted(len(races(report)) for report in run.checks), [0, 1])

    def test_one_file_a_process_by_pattern(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([GRAVEL, "run", "--soft", "-o", folder + "/p-%p.gravel", "--", TARGET, "proc", "fork-before",
                            KERNELS], check=True, capture_output=True, timeout=600)
            names = os.listdir(folder)
            self.assertEqual(len(names), 2)
            self.assertTrue(all(re.fullmatch(r"p-\d+\.gravel", name) for name in names), names)

    def test_program_without_cuda_leaves_no_file(self):
        run = Recorded(["true"])
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.paths, [])

    def test_process_without_a_context_leaves_no_file(self):
        self.assertEqual(self.record("init-only").paths, [])

    # ---- Failing open ----

    def run_preloaded(self, trace, before=None):
        environment = dict(os.environ, LD_LIBRARY_PATH=BUILD + "/soft", LD_PRELOAD=BUILD + "/libgravel-record.so",
                           LD_AUDIT=BUILD + "/libgravel-audit.so")
        environment.pop("GRAVEL_TRACE", None)
        if trace:
            environment["GRAVEL_TRACE"] = trace
        result = subprocess.run([TARGET, "proc", "clean", KERNELS], env=environment, capture_output=True, text=True,
                                timeout=600, preexec_fn=before)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result.stderr

    def test_trace_that_cannot_be_created(self):
        self.assertIn("gravel: ", self.run_preloaded("/nonexistent-folder/t.gravel"))

    def test_trace_on_a_full_disk(self):
        with tempfile.TemporaryDirectory() as folder:
            said = self.run_preloaded(folder + "/%p", lambda: os.symlink("/dev/full", f"{folder}/{os.getpid()}"))
        self.assertIn("No space left on device", said)
        self.assertIn("recording is off", said)

    def test_preloaded_without_being_asked(self):
        self.assertEqual(self.run_preloaded(None), "")

    # ---- Python ----

    @unittest.skipIf("thread" in os.environ.get("GV_SANITIZE", ""), "Python is not built with ThreadSanitizer")
    def test_python_frames(self):
        script = os.path.join(HERE, "target.py")
        run = Recorded([sys.executable, script, KERNELS])
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, 0, run.stderr)
        self.assert_scratch_race(run.checks[0])
        for node in races(run.checks[0])[0]["nodes"]:
            self.assertEqual(node["place"]["kind"], "python")
            self.assertTrue(node["place"]["file"].endswith("target.py"))
            marker = "fill" if node["name"] == "fill" else "add"
            self.assertEqual(node["place"]["line"], line_of(marker, "target.py"))
            self.assertEqual(node["place"]["function"], "launch_" + marker)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]], verbosity=2)
