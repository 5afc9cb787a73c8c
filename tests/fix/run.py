"""Fix files applied to live programs on the software driver: `gravel run --fix`, end to end.

usage: run.py BUILD TWINS [TEST...]

TWINS is the folder of the twins' sources, whose expect.txt names them.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

BUILD, TWINS = sys.argv[1:3]
GRAVEL = os.path.join(BUILD, "gravel")
TARGET = os.path.join(BUILD, "twins", "fix-target")
MAKE_FIX = os.path.join(BUILD, "tests", "make_fix")
SEEDS = range(1, 1 + int(os.environ.get("GV_FIX_SEEDS", "1")))
LAUNCHES = "10"

# What two nodes compute when they are ordered is not what the program means: its two sides update the same bytes, and
# only a buffer of its own for each would be right. The fix makes the outcome the same each time, and no more.
ONLY_ORDERED = {"atomic", "copy-2d"}


def twins():
    """Those with a race: nothing else can be put right by an edge."""
    with open(os.path.join(TWINS, "expect.txt")) as file:
        rows = [line.split() for line in file if line.strip() and not line.startswith("#")]
    return list(dict.fromkeys(row[0] for row in rows if row[1].startswith("race-")))


class Done:
    def __init__(self, result, traces=()):
        self.code, self.out, self.err, self.traces = result.returncode, result.stdout, result.stderr, list(traces)

    @property
    def wrong(self):
        """How many results were wrong, of all processes."""
        return [int(k) for k in re.findall(r"^wrong (\d+) of \d+$", self.out, re.M)]


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.runs = 0

    def path(self, name):
        return os.path.join(self.folder, name)

    def gravel(self, *arguments, environment=None):
        env = dict(os.environ, **(environment or {}))
        return Done(subprocess.run([GRAVEL, *arguments], capture_output=True, text=True, env=env, cwd=self.folder))

    def run_it(self, program, *options, seed=None, **environment):
        """Runs a program under gravel run; a seed makes its schedule."""
        self.runs += 1
        before = set(os.listdir(self.folder))
        if seed is not None:
            environment["GRAVEL_SOFT_SCHEDULE"] = f"seed:{seed}"
        done = self.gravel("run", "--soft", "-o", f"run{self.runs}.%p.gravel", *options, "--", *program,
                           environment=environment)
        new = sorted(set(os.listdir(self.folder)) - before)
        done.traces = [self.path(name) for name in new if name.endswith(".gravel")]
        self.assertEqual([name for name in new if not name.endswith(".gravel")], [], "left behind")
        return done

    def bare(self, program, seed):
        """Without gravel."""
        environment = dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "soft"), GRAVEL_SOFT_SCHEDULE=f"seed:{seed}")
        return Done(subprocess.run(program, capture_output=True, text=True, env=environment))

    def record(self, program):
        done = self.run_it(program, "--arm", "first")
        self.assertEqual(done.code, 0, done.err)
        return done.traces[0]

    def check(self, *traces):
        report = json.loads(self.gravel("check", "--json", *traces).out)
        return report

    def make_fix(self, trace, *edges):
        """A fix file with these (graph, from, to), in the words of make_fix.c."""
        name = self.path("fix.json")
        words = [str(word) for edge in edges for word in edge]
        subprocess.run([MAKE_FIX, trace, name, *words], check=True)
        return name

    def gravel_fix(self, *traces):
        name = self.path("fix.json")
        done = self.gravel("fix", "-o", name, *traces)
        self.assertEqual(done.code, 0, done.out + done.err)
        return name

    def applied(self, trace):
        """What a trace says was done: rows of `gravel show FILE fixes`."""
        return json.loads(self.gravel("show", "--json", trace, "fixes").out)["rows"]

    def assert_clean(self, trace):
        report = self.check(trace)
        self.assertEqual([finding["id"] for finding in report["findings"]], [])
        self.assertTrue(report["summary"]["complete"])


class Twins(Case):
    """Each race twin: wrong without its fix, right with it, under the same schedules; and the recorder sees no race."""

    def fixed(self, name):
        program = [os.path.join(BUILD, "twins", name), "buggy", LAUNCHES]
        fix = self.gravel_fix(self.record(program))
        for seed in SEEDS:
            self.assertGreater(self.bare(program, seed).wrong[0], 0, f"seed {seed} does not show the fault")
            done = self.run_it(program, "--fix", fix, seed=seed)
            self.assertIn(done.wrong, [[0], [int(LAUNCHES)]] if name in ONLY_ORDERED else [[0]], done.err)
            self.assertIn("ran with its edges", done.err)
            # Such a trace has the graphs and no launch: it is not to be taken for a clean one.
            self.assertFalse(self.check(done.traces[0])["summary"]["complete"])
            armed = self.run_it(program, "--fix", fix, "--arm", "first", seed=seed)
            self.assertEqual((armed.code, armed.wrong), (0, done.wrong), armed.err)
            self.assert_clean(armed.traces[0])
        # The clean variant does not need them, and is not changed by them.
        clean = [program[0], "clean", LAUNCHES]
        done = self.run_it(clean, "--fix", fix, seed=1)
        self.assertEqual((done.code, done.wrong), (0, [0]), done.err)


def add_twin(name):
    setattr(Twins, "test_" + name.replace("-", "_"), lambda self: self.fixed(name))


for twin in twins():
    add_twin(twin)


class Programs(Case):
    """Programs that make their graphs in other ways."""

    EDGE = ("1", "use_left", "make_right")

    def target(self, scenario, variant="buggy", launches=LAUNCHES):
        return [TARGET, scenario, variant, launches]

    def fix_of(self, scenario, *edges):
        return self.make_fix(self.record(self.target(scenario)), *(edges or [self.EDGE]))

    def assert_fixed(self, scenario, fix, *options):
        """Right with the fix under seeds under which it is wrong without. Returns the last run."""
        for seed in SEEDS:
            bare = self.bare(self.target(scenario), seed)
            self.assertGreater(sum(bare.wrong), 0, f"seed {seed} does not show the fault")
            done = self.run_it(self.target(scenario), "--fix", fix, *options, seed=seed)
            self.assertEqual((done.code, sum(done.wrong)), (0, 0), done.err)
        return done

    def assert_refused(self, scenario, fix, reason, variant="buggy"):
        """The program runs as it does without a fix file, and the reason is said once."""
        bare = self.bare(self.target(scenario, variant), 1)
        done = self.run_it(self.target(scenario, variant), "--fix", fix, seed=1)
        self.assertEqual((done.code, done.out), (bare.code, bare.out))
        said = [line for line in done.err.splitlines() if reason in line]
        self.assertGreaterEqual(len(said), 1, done.err)
        return done

    def test_plain(self):
        fix = self.fix_of("plain")
        done = self.assert_fixed("plain", fix)
        rows = self.applied(done.traces[0])
        self.assertEqual([(row["status"], row["match"], row["reason"]) for row in rows], [("applied", "exact", None)])
        edges = json.loads(self.gravel("show", "--json", done.traces[0], "edges").out)["rows"]
        added = [(edge["from_name"], edge["to_name"]) for edge in edges if edge["added"]]
        self.assertEqual(added, [("use_left", "make_right")])

    def test_updates(self):
        done = self.assert_fixed("update", self.fix_of("update"))
        self.assertNotIn("without the edges", done.err)

    def test_updates_that_are_armed(self):
        done = self.assert_fixed("update", self.fix_of("update"), "--arm", "all")
        self.assert_clean(done.traces[0])
        rows = self.applied(done.traces[0])
        self.assertEqual([row["status"] for row in rows], ["applied"] * (int(LAUNCHES) + 1))
        self.assertEqual([row["match"] for row in rows], ["exact"] + ["exec"] * int(LAUNCHES))

    def test_an_update_of_another_structure_fails_as_it_would(self):
        fix = self.fix_of("plain")
        bare = self.bare(self.target("other-update"), 1)
        done = self.run_it(self.target("other-update"), "--fix", fix)
        self.assertEqual(bare.out.splitlines()[0], done.out.splitlines()[0])
        self.assertEqual(done.wrong, [0])

    def test_parameters_of_the_exec(self):
        self.assert_fixed("set-parameters", self.fix_of("set-parameters"))

    def test_a_child_graph(self):
        self.assert_fixed("child", self.fix_of("child", ("1/1.0", "use_left", "make_right")))

    def test_a_child_graph_that_is_replaced(self):
        fix = self.fix_of("new-child", ("1/1.0", "use_left", "make_right"))
        self.assert_fixed("new-child", fix)
        done = self.assert_fixed("new-child", fix, "--arm", "all")
        self.assert_clean(done.traces[0])

    def test_a_body(self):
        self.assert_fixed("body", self.fix_of("body", ("1/0.0", "use_left", "make_right")))

    def test_two_threads(self):
        self.assert_fixed_free("threads")

    def assert_fixed_free(self, scenario):
        # The promise of a seed is for one thread.
        fix = self.fix_of("plain")
        for _ in range(2):
            done = self.run_it(self.target(scenario), "--fix", fix)
            self.assertEqual((done.code, sum(done.wrong)), (0, 0), done.err)

    def test_ranks(self):
        fix = self.fix_of("plain")
        done = self.run_it(self.target("ranks"), "--fix", fix, seed=1)
        self.assertEqual((done.code, done.wrong), (0, [0, 0]), done.err)
        self.assertEqual(len(done.traces), 2)
        for trace in done.traces:
            self.assertEqual([row["status"] for row in self.applied(trace)], ["applied"])

    def test_another_bucket(self):
        done = self.run_it(self.target("larger"), "--fix", self.fix_of("plain"), seed=1)
        self.assertEqual(done.wrong, [0])
        self.assertIn("in another size", done.err)
        self.assertEqual([row["match"] for row in self.applied(done.traces[0])], ["without shapes"])

    def test_two_entries_that_fit_and_differ(self):
        # Made from two sizes, each with an edge of its own; the third size is neither.
        first = self.fix_of("plain")
        with open(first) as file:
            both = json.load(file)
        second = self.make_fix(self.record(self.target("larger")), ("1", "make_left", "make_right"))
        with open(second) as file:
            both["graphs"] += json.load(file)["graphs"]
        fix = self.path("both.json")
        with open(fix, "w") as file:
            json.dump(both, file)
        os.rename(fix, fix := self.path("fix.json"))
        self.assert_refused("largest", fix, "graphs 1 and 2 of the fix file")

    def test_another_program(self):
        fix = self.fix_of("plain")
        done = self.assert_refused("extra", fix, "has 5 nodes, and this one 6")
        self.assertIn("was never made by the program", done.err)
        done = self.run_it([os.path.join(BUILD, "twins", "diamond"), "clean", LAUNCHES], "--fix", fix)
        self.assertEqual((done.code, done.wrong), (0, [0]), done.err)
        self.assertIn("was never made by the program", done.err)

    def test_a_program_that_has_the_edge(self):
        # Fingerprints of the two variants differ in the edge, so the fix is made from the clean one.
        fix = self.make_fix(self.record(self.target("plain", "clean")), self.EDGE)
        done = self.run_it(self.target("plain", "clean"), "--fix", fix, seed=1)
        self.assertEqual(done.wrong, [0])
        self.assertIn("already", done.err)

    def test_needless_edges(self):
        fix = self.make_fix(self.record(self.target("plain", "clean")), ("1", "make_left", "use_right"),
                            ("1", "make_left", "use_left"), ("1", "hold", "use_right"))
        bare = self.bare(self.target("plain", "clean"), 1)
        done = self.run_it(self.target("plain", "clean"), "--fix", fix, seed=1)
        self.assertEqual((done.code, done.out), (bare.code, bare.out))
        self.assertIn("ran with its edges", done.err)
        empty = self.make_fix(self.record(self.target("plain", "clean")))
        done = self.run_it(self.target("plain", "clean"), "--fix", empty, seed=1)
        self.assertEqual((done.code, done.out), (bare.code, bare.out))
        self.assertIn("adds no edge", done.err)

    def test_a_cycle_is_refused(self):
        fix = self.fix_of("plain", ("1", "use_left", "make_left"))
        self.assert_refused("plain", fix, "would make a cycle")
        fix = self.fix_of("plain", ("1", "use_left", "make_right"), ("1", "use_right", "make_left"))
        self.assert_refused("plain", fix, "would make a cycle")

    def test_a_driver_that_does_not_take_the_edges(self):
        fix = self.fix_of("plain")
        bare = self.bare(self.target("plain"), 1)
        done = self.run_it(self.target("plain"), "--fix", fix, seed=1, GRAVEL_SOFT_MOST_EDGES="3")
        self.assertEqual((done.code, done.out), (bare.code, bare.out), done.err)
        self.assertIn("did not take the graph with the added edges", done.err)
        self.assertEqual([row["status"] for row in self.applied(done.traces[0])], ["failed"])
        # One that does not take the program's own graph either: the program gets that, and nothing is said of edges.
        done = self.run_it(self.target("plain"), "--fix", fix, seed=1, GRAVEL_SOFT_MOST_EDGES="2")
        self.assertEqual((done.code, done.wrong), (1, []))
        self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", done.err)
        self.assertNotIn("did not take", done.err)

    def test_memory_nodes_are_refused(self):
        self.assert_refused("memory", self.fix_of("memory"), "allocates or frees memory in its nodes")

    def test_the_program_sees_its_own_graph(self):
        fix = self.fix_of("seen")
        bare = self.bare(self.target("seen"), 1)
        done = self.run_it(self.target("seen"), "--fix", fix)
        self.assertIn("with 1 added edge", done.err)
        self.assertEqual(done.out, bare.out)
        lines = [line.split(": ", 1)[1] for line in done.out.splitlines() if " nodes:" in line]
        self.assertEqual(len(set(lines)), 1)

    def test_an_edge_around_a_programmatic_one_is_not_seen_either(self):
        twin = [os.path.join(BUILD, "twins", "pdl-wait"), "buggy", LAUNCHES]
        fix = self.gravel_fix(self.record(twin))
        done = self.run_it(twin, "--fix", fix, "--arm", "first")
        rows = self.applied(done.traces[0])
        # By way of an empty node, which is the last.
        self.assertEqual(rows[0]["edges"], [[0, 4], [4, 1]])

    def test_times_of_nodes(self):
        done = self.run_it(self.target("plain", "clean"), "--times", "--arm", "first")
        self.assertEqual(done.wrong, [0])
        rows = json.loads(self.gravel("show", "--json", done.traces[0], "nodes").out)["rows"]
        times = {row["name"]: row["time_ns"] for row in rows if row["time_ns"]}
        # The one that does nothing else holds its branch up for 0.1 ms. What takes no longer than two events do has none.
        self.assertLessEqual(set(times), {"make_left", "hold", "use_left", "make_right", "use_right"})
        self.assertGreater(times["hold"], 90000)
        trace = self.run_it(self.target("plain"), "--times", "--arm", "first").traces[0]
        self.assertIn("unrecorded", self.gravel("fix", trace).out)
        self.assertIn("while they were recorded", self.gravel("fix", self.record(self.target("plain"))).out)

    def test_a_trace_made_with_a_fix_makes_no_other(self):
        # The fix leaves a race, and a file made of this trace would lack its edges.
        fix = self.fix_of("plain", ("1", "make_left", "use_right"))
        done = self.run_it(self.target("plain"), "--fix", fix, "--arm", "first")
        self.assertNotEqual(self.check(done.traces[0])["findings"], [])
        self.assertIn("record it without --fix", self.gravel("fix", done.traces[0]).err)

    def test_an_edge_left_out(self):
        fix = self.fix_of("plain")
        done = self.run_it(self.target("plain"), "--fix", fix, "--fix-leave-out", "1", "--arm", "first", seed=1)
        self.assertGreater(done.wrong[0], 0)
        self.assertEqual(len(self.check(done.traces[0])["findings"]), 1)
        done = self.gravel("run", "--soft", "--fix", fix, "--fix-leave-out", "2", "--", *self.target("plain"))
        self.assertEqual((done.code, done.out), (2, ""))
        self.assertIn("1 edge", done.err)

    def test_bad_files_stop_before_the_program_starts(self):
        good = self.fix_of("plain")
        with open(good) as file:
            text = file.read()
        for what, words in (("", "fix.json"), (text[:-20], "fix.json"), (text.replace('"gravel_fix": 1', '"gravel_fix": 9'),
                            "version"), (text.replace('"edges"', '"adges"'), "adges"),
                            (text.replace('"node": 4', '"node": 400'), "400")):
            if what == text:
                continue
            bad = self.path("bad.json")
            with open(bad, "w") as file:
                file.write(what)
            done = self.gravel("run", "--soft", "--fix", bad, "--", *self.target("plain"))
            self.assertEqual((done.code, done.out), (125, ""), done.err)
            self.assertIn("bad.json", done.err)
            os.remove(bad)
        done = self.gravel("run", "--soft", "--fix", "/nowhere/fix.json", "--", *self.target("plain"))
        self.assertEqual((done.code, done.out), (125, ""))

    def test_what_was_prepared_is_gone(self):
        # The recorder finds what gravel run prepared damaged: it says so, and the program runs as it is.
        broken = self.path("broken")
        with open(broken, "wb") as file:
            file.write(b"not a trace")
        environment = dict(os.environ, LD_PRELOAD=os.path.join(BUILD, "libgravel-record.so"),
                           LD_AUDIT=os.path.join(BUILD, "libgravel-audit.so"),
                           LD_LIBRARY_PATH=os.path.join(BUILD, "soft"), GRAVEL_TRACE=self.path("t.gravel"),
                           GRAVEL_ARM="none", GRAVEL_FIX=broken, GRAVEL_LIGHT="1", GRAVEL_SOFT_SCHEDULE="seed:1")
        done = Done(subprocess.run(self.target("plain"), capture_output=True, text=True, env=environment))
        self.assertEqual(done.code, 0)
        self.assertGreater(done.wrong[0], 0)
        self.assertIn("No edge is added", done.err)


class Verify(Case):
    """gravel fix --verify."""

    EDGE = ("1", "use_left", "make_right")
    PROGRAM = [TARGET, "plain", "buggy", "3"]

    def verify(self, fix, program, *options, environment=None):
        table = self.path("verify.json")
        before = set(os.listdir(self.folder))
        environment = dict(environment or {}, TMPDIR=self.folder)
        done = self.gravel("fix", "--verify", fix, "--soft", "-o", table, *options, "--", *program,
                           environment=environment)
        with open(table) as file:
            report = json.load(file)
        self.assertEqual(report["holds"], done.code == 0)
        left = [name for name in set(os.listdir(self.folder)) - before if name.startswith("gravel-verify")]
        self.assertEqual(bool(left), done.code != 0)
        return done, [(row["edge"], row["result"]) for row in report["checks"]], report["checks"]

    def test_a_fix_holds(self):
        fix = self.gravel_fix(self.record(self.PROGRAM))
        test = f"{TARGET} plain buggy 5 | grep '^wrong 0 of 5$'"
        done, rows, checks = self.verify(fix, self.PROGRAM, "--test", test)
        self.assertEqual((done.code, rows), (0, [(None, "holds"), (None, "holds"), (None, "holds"), (1, "holds")]),
                         done.out + done.err)
        self.assertIn("race-", checks[3]["detail"])
        self.assertIn("all of it holds", done.out)

    def test_a_needless_edge_and_a_test_that_fails(self):
        fix = self.make_fix(self.record(self.PROGRAM), self.EDGE, ("1", "make_left", "use_right"))
        done, rows, checks = self.verify(fix, self.PROGRAM, "--test", "exit 3")
        self.assertEqual((done.code, rows), (1, [(None, "holds"), (None, "holds"), (None, "fails"), (1, "holds"),
                                                 (2, "fails")]), done.out + done.err)
        self.assertIn("not needed", checks[4]["detail"])
        self.assertIn("code 3", checks[2]["detail"])

    def test_a_fix_of_another_program(self):
        fix = self.gravel_fix(self.record(self.PROGRAM))
        done, rows, checks = self.verify(fix, [TARGET, "extra", "buggy", "3"])
        self.assertEqual((done.code, rows[0], rows[2]), (1, (None, "fails"), (None, "not_asked")), done.out)
        self.assertIn("race", checks[0]["detail"])

    def test_a_fix_that_is_refused(self):
        fix = self.make_fix(self.record(self.PROGRAM), ("1", "use_left", "make_left"))
        done, rows, checks = self.verify(fix, self.PROGRAM)
        self.assertEqual((done.code, rows[0]), (1, (None, "fails")), done.out)

    def test_what_was_not_seen_is_no_success(self):
        fix = self.gravel_fix(self.record(self.PROGRAM))
        done, rows, checks = self.verify(fix, self.PROGRAM, environment={
            "GRAVEL_SOFT_BLIND": "use_left", "GRAVEL_COMPARE_MEMORY": "0", "GRAVEL_SEARCH_MEMORY": "0"})
        self.assertNotEqual(done.code, 0)
        self.assertEqual(rows[0], (None, "not_known"), done.out)

    def test_a_bad_file(self):
        done = self.gravel("fix", "--verify", "/nowhere/fix.json", "--soft", "--", *self.PROGRAM)
        self.assertEqual((done.code, done.out), (3, ""))
        done = self.gravel("fix", "--verify", "/nowhere/fix.json", "--soft")
        self.assertEqual(done.code, 2)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[3:], verbosity=1)
