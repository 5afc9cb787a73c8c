"""Runs the program with a pool of pages through `gravel run --canary` on the software driver and checks what the traces
say. The program checks its own results.

usage: run_canary.py BUILD KERNELS [SCENARIO...]
"""

import os
import signal
import subprocess
import sys
import unittest

from run import BUILD, GRAVEL, HERE, KERNELS, Recorded, incompletes, races

PROGRAM = BUILD + "/tests/record_canary"
STEPS = 8


def canaries(report):
    return [f for f in report["findings"] if f["id"] == "canary"]


class Canary(unittest.TestCase):
    def record(self, scenario, options=("--canary",), environment=None, code=0):
        # However busy the machine is: a hash is waited for, and pages that a transfer wrote are.
        run = Recorded([PROGRAM, scenario, KERNELS], options, dict({"GRAVEL_STALL_SECONDS": "2000"}, **(environment or {})))
        self.addCleanup(run.folder.cleanup)
        self.assertEqual(run.code, code, run.stderr)
        return run

    def finding(self, scenario, options=("--canary",)):
        run = self.record(scenario, options)
        found = canaries(run.checks[0])
        self.assertEqual(len(found), 1, run.checks[0]["findings"])
        self.assertEqual(races(run.checks[0]), [])
        self.assertEqual(run.checks[0]["code"], 1)
        self.assertEqual((found[0]["facts"]["name"], found[0]["facts"]["step"]), ("pool", 5))
        self.assertEqual((found[0]["launches"], found[0]["facts"]["page_bytes"]), (2, 400))
        return found[0]

    def assert_silent(self, run):
        self.assertEqual(run.checks[0]["findings"], [], run.stderr)
        self.assertNotIn("canary: ", run.stderr)

    # ---- Who wrote the page ----

    def test_a_node(self):
        found = self.finding("graph-buggy")
        facts = found["facts"]
        self.assertEqual((facts["expected"], facts["found"], facts["outside"], facts["pages"]), (2, 3, 1, "11"))
        self.assertEqual((facts["evidence"], facts["writer"], facts["writers"]), ("seen", "node", 1))
        self.assertEqual([node["name"] for node in found["nodes"]], ["store_slots"])
        self.assertTrue(found["nodes"][0]["place"]["file"].endswith("canary.c"))
        self.assertEqual(found["bytes"], 400)

    def test_a_kernel_outside_of_graphs(self):
        facts = self.finding("eager-buggy")["facts"]
        # Not recorded where the page changed first, and recorded where it changed the second time.
        self.assertEqual((facts["evidence"], facts["writer"], facts["seen_steps"]), ("seen", "kernel", 1))
        self.assertNotEqual(facts["writer_function"], 0)
        self.assertNotEqual(facts["writer_stack"], 0)

    def test_a_copy(self):
        facts = self.finding("copy-buggy")["facts"]
        self.assertEqual((facts["evidence"], facts["writer"], facts["seen_steps"]), ("seen", "memcpy", 2))

    def test_a_transfer_that_goes_on_after_its_end(self):
        facts = self.finding("transfer-buggy")["facts"]
        self.assertEqual((facts["pages"], facts["evidence"], facts["writer"]), ("9", "seen", "memcpy"))

    def test_nobody_on_a_stream(self):
        facts = self.finding("host-buggy")["facts"]
        self.assertEqual((facts["evidence"], facts["ruled_out_steps"], facts["writers"]), ("ruled-out", 1, 0))

    def test_not_known(self):
        facts = self.finding("eager-buggy", ("--canary", "--arm", "none"))["facts"]
        self.assertIn(facts["evidence"], ("seen", "unknown"))
        facts = self.finding("graph-buggy", ("--canary", "--arm", "none"))["facts"]
        self.assertEqual((facts["evidence"], facts["writers"]), ("unknown", 0))

    # ---- What may change ----

    def test_the_clean_twins_are_silent(self):
        for kind in ("graph", "eager", "copy", "index", "callback", "all", "transfer", "threads", "host"):
            with self.subTest(kind=kind):
                run = self.record(kind + "-clean")
                self.assert_silent(run)
                self.assertIn("; 1 region hashed 8 times, pages changed against what was declared in 0", run.stderr)
                rows = run.show("canary")
                self.assertEqual([row["state"] for row in rows], ["first"] + ["checked"] * (STEPS - 1))
                self.assertEqual({row["outside"] for row in rows}, {0})

    def test_ways_to_declare(self):
        for kind in ("index", "callback"):
            with self.subTest(kind=kind):
                self.assertEqual(self.finding(kind + "-buggy")["facts"]["pages"], "11")
        self.assert_silent(self.record("all-buggy"))

    def test_without_a_declaration_nothing_is_said(self):
        report = self.record("undeclared-buggy").checks[0]
        self.assertEqual(canaries(report), [])
        self.assertEqual([f["kind"] for f in incompletes(report)], ["trace"])
        self.assertIn("never declared", incompletes(report)[0]["reason"])

    def test_every(self):
        run = self.record("graph-buggy", ("--canary=every=3",))
        facts = canaries(run.checks[0])[0]["facts"]
        # The first step gives the hashes to compare with, then the third and sixth are hashed.
        self.assertEqual((facts["first_step"], facts["step"], facts["pages"]), (4, 6, "11"))
        self.assert_silent(self.record("graph-clean", ("--canary=log,every=3",)))

    @unittest.skipIf(os.environ.get("GV_SANITIZE"), "a sanitizer's library would have to be loaded before Python is")
    def test_the_module_for_python(self):
        folder = os.path.join(HERE, "..", "..", "python")
        for way in ("clean", "buggy"):
            run = Recorded([sys.executable, "-B", os.path.join(HERE, "canary_module.py"), folder, way], ("--canary",),
                           {"GRAVEL_STALL_SECONDS": "2000"})
            self.addCleanup(run.folder.cleanup)
            self.assertEqual((run.code, run.stdout), (0, "done\n"), run.stderr)
            if way == "clean":
                self.assert_silent(run)
            else:
                facts = canaries(run.checks[0])[0]["facts"]
                self.assertEqual((facts["step"], facts["pages"], facts["writer"]), (4, "5", "memset"))

    # ---- Endings ----

    def test_the_last_step(self):
        run = self.record("unended-buggy")
        said, after = run.stderr.index("canary: step 5"), run.stderr.index("after the last step")
        self.assertLess(said, after)
        self.assertEqual(canaries(run.checks[0])[0]["facts"]["step"], 5)

    def test_abort(self):
        run = self.record("graph-buggy", ("--canary=abort",), code=-signal.SIGABRT)
        self.assertNotIn("done", run.stdout)
        self.assertTrue(run.checks[0]["traces"][0]["ended"])
        facts = canaries(run.checks[0])[0]["facts"]
        self.assertEqual((facts["step"], facts["evidence"]), (5, "seen"))
        self.record("graph-clean", ("--canary=abort",))

    def test_record_all(self):
        facts = self.finding("eager-buggy", ("--canary=record",))["facts"]
        self.assertEqual(facts["evidence"], "seen")

    def test_freed(self):
        run = self.record("freed")
        self.assertEqual(run.checks[0]["findings"], [], run.stderr)
        notes = [note["text"] for note in run.checks[0]["traces"][0]["notes"]]
        self.assertTrue(any("memory is freed" in text for text in notes), notes)

    def test_without_steps(self):
        self.assert_silent(self.record("quiet"))

    def test_a_step_in_a_capture(self):
        run = self.record("captured")
        self.assertEqual(run.checks[0]["findings"], [], run.stderr)
        self.assertEqual(run.show("canary")[0]["reason"], "a capture was under way")

    def test_nonsense(self):
        run = self.record("nonsense")
        self.assertEqual(canaries(run.checks[0]), [])
        for what in ("null", "huge", "too long", "page"):
            self.assertIn('"%s"' % what, run.stderr)
        self.assertEqual(run.stderr.count('"pool"'), 1, run.stderr)  # once, however much of it there is

    def test_the_self_test(self):
        run = self.record("graph-buggy", environment={"GRAVEL_CANARY_SELF_TEST": "fail"})
        self.assertEqual(canaries(run.checks[0]), [])
        self.assertFalse(run.checks[0]["summary"]["complete"])
        self.assertIn("canaries and checksums are off", incompletes(run.checks[0])[0]["reason"])

    # ---- Checksums ----

    def diff(self, a, b):
        result = subprocess.run([GRAVEL, "diff", a.paths[0], b.paths[0]], capture_output=True, text=True)
        return result.returncode, result.stdout + result.stderr

    def test_diff(self):
        clean, again = (self.record("graph-clean", ("--checksums",)) for _ in range(2))
        self.assertEqual(clean.checks[0]["findings"], [])
        code, text = self.diff(clean, again)
        self.assertEqual((code, text.splitlines()[-1]), (0, "the same"), text)
        code, text = self.diff(clean, self.record("eager-clean", ("--checksums",)))
        self.assertEqual(code, 0, text)
        code, text = self.diff(clean, self.record("graph-buggy", ("--checksums",)))
        self.assertEqual(code, 1)
        self.assertEqual(text.splitlines()[0], 'first difference: step 5, "pool": 1 of 12 pages differ: 11')
        # What a transfer wrote is compared too.
        code, text = self.diff(clean, self.record("transfer-clean", ("--checksums",)))
        self.assertIn('step 1, "pool": 1 of 12 pages differ: 9', text)

    def test_diff_of_unequal_traces(self):
        clean = self.record("graph-clean", ("--checksums",))
        code, text = self.diff(clean, self.record("graph-clean", ("--canary", "--checksums")))
        self.assertEqual(code, 0, text)
        code, text = self.diff(clean, self.record("captured", ("--checksums",)))
        self.assertEqual(code, 1, text)
        self.assertIn("incomplete: 1 step", text)
        code, text = self.diff(clean, self.record("graph-clean", ("--canary=every=2", "--checksums")))
        self.assertEqual((code, text.splitlines()[-1]), (0, "the same; incomplete"), text)
        code, text = self.diff(clean, self.record("graph-clean"))
        self.assertEqual(code, 3, text)
        self.assertEqual(subprocess.run([GRAVEL, "diff", clean.paths[0]], capture_output=True).returncode, 2)

    # ---- Patterns ----

    def test_patterns(self):
        pattern = ("--canary", "--canary-region", "const:size=4800,page=400")
        self.assert_silent(self.record("matched-clean", pattern))
        run = self.record("matched-buggy", pattern)
        facts = canaries(run.checks[0])[0]["facts"]
        self.assertEqual((facts["expected"], facts["found"], facts["pages"], facts["writer"]), (0, 1, "3", "memcpy"))
        self.assertIn("const:size=4800", facts["name"])
        run = self.record("matched-buggy", ("--canary", "--canary-region", "size=4K..5K,page=400"))
        self.assertEqual(canaries(run.checks[0]), [])
        self.assertIn(1, [row["changed"] for row in run.show("canary")])
        self.assertFalse(run.checks[0]["summary"]["complete"])
        self.assert_silent(self.record("matched-buggy", ("--canary", "--canary-region", "const:size=1..2")))
        run = self.record("matched-buggy", ("--canary", "--canary-region", "const:stack=no_such_function"))
        self.assert_silent(run)

    def test_wrong_options(self):
        for options in (("--canary=loud",), ("--canary=every=0",), ("--canary-region", "size=1"),
                        ("--canary", "--canary-region", "size=x"), ("--canary", "--canary-region", "colour=red")):
            result = subprocess.run([GRAVEL, "run", "--soft", *options, "--", "true"], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2, options)

    def test_without_the_option_nothing_happens(self):
        run = self.record("graph-buggy", ())
        self.assertEqual(run.checks[0]["findings"], [])
        self.assertEqual(run.show("canary"), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:])
