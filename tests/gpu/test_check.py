"""check.py's comparison, on reports that are right and on reports that are wrong in one thing each."""

import copy
import os
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402
import truth  # noqa: E402
from expectations import PROGRAMS  # noqa: E402

RACE = next(program for program in PROGRAMS if program["file"] == "race_static")["buggy"]["races"]
LINES = check.marker_lines("race.cu")


def node(index, kernel):
    line, = LINES[kernel]
    return {"graph": 1, "node": index, "kind": "kernel", "name": kernel, "full_name": kernel + "(float*)", "symbol": None,
            "place": {"kind": "host", "file": "/somewhere/race.cu", "line": line, "function": "main"}}


def side(index, access):
    return {"graph": 1, "node": index, "reads": "R" in access, "writes": "W" in access, "atomic": "A" in access}


def report():
    def pair(first, second):
        return {"id": "race-waw", "first": first, "second": second, "bytes": 262144}

    nodes = [node(i, kernel) for i, kernel in enumerate(("fill_left", "sum_left", "fill_right", "sum_right"))]
    pairs = [pair(side(1, "R"), side(2, "W")), pair(side(0, "W"), side(2, "W")), pair(side(0, "W"), side(3, "R"))]
    finding = {"id": "race-war", "confidence": "certain", "suppressed": False, "nodes": nodes, "pairs": pairs}
    return {"findings": [finding], "traces": [{"notes": []}], "summary": {"complete": True}}


class Races(unittest.TestCase):
    def complaint(self, change):
        changed = copy.deepcopy(report())
        change(changed["findings"])
        return check.compare_races(changed, RACE, "race.cu")

    def test_the_right_report_passes(self):
        self.assertIsNone(check.compare_races(report(), RACE, "race.cu"))

    def test_sides_may_be_named_in_either_order(self):
        def swap(findings):
            pair = findings[0]["pairs"][0]
            pair["first"], pair["second"] = pair["second"], pair["first"]
        self.assertIsNone(self.complaint(swap))

    def test_each_wrong_thing_is_seen(self):
        changes = {
            "no finding": lambda findings: findings.clear(),
            "finding twice": lambda findings: findings.append(findings[0]),
            "confidence": lambda findings: findings[0].update(confidence="likely"),
            "missing pair": lambda findings: findings[0]["pairs"].pop(),
            "pair twice": lambda findings: findings[0]["pairs"].append(findings[0]["pairs"][0]),
            "bytes": lambda findings: findings[0]["pairs"][2].update(bytes=262140),
            "access": lambda findings: findings[0]["pairs"][0]["first"].update(writes=True),
            "atomic": lambda findings: findings[0]["pairs"][0]["first"].update(atomic=True),
            "line": lambda findings: findings[0]["nodes"][1]["place"].update(line=1),
            "file": lambda findings: findings[0]["nodes"][1]["place"].update(file="/somewhere/else.cu"),
            "no place": lambda findings: findings[0]["nodes"][1].update(place=None),
            "kernel": lambda findings: findings[0]["nodes"][3].update(name="other", full_name="other()"),
        }
        for name, change in changes.items():
            with self.subTest(name):
                self.assertIsNotNone(self.complaint(change))

    def test_a_clean_program_must_have_no_race(self):
        self.assertIsNone(check.compare_races({"findings": []}, None, "race.cu"))
        self.assertIsNotNone(check.compare_races(report(), None, "race.cu"))


class Completeness(unittest.TestCase):
    def incomplete(self, kind, reason):
        changed = report()
        changed["findings"].append({"id": "incomplete", "kind": kind, "reason": reason, "node_name": None})
        changed["summary"]["complete"] = False
        return changed

    def test_complete(self):
        self.assertIsNone(check.compare_incompleteness(report(), None))
        self.assertIsNotNone(check.compare_incompleteness(self.incomplete("node", "TMA"), None))

    def test_incomplete(self):
        wanted = ("node", "TMA")
        self.assertIsNone(check.compare_incompleteness(self.incomplete("node", "it uses TMA"), wanted))
        self.assertIsNotNone(check.compare_incompleteness(report(), wanted))
        self.assertIsNotNone(check.compare_incompleteness(self.incomplete("graph", "it uses TMA"), wanted))
        self.assertIsNotNone(check.compare_incompleteness(self.incomplete("node", "it uses textures"), wanted))


class Expectations(unittest.TestCase):
    def test_every_marker_is_in_its_source(self):
        for program in PROGRAMS:
            source = program.get("source", program["file"])
            lines = check.marker_lines(source)
            for pair in program.get("buggy", {}).get("races", {}).get("pairs", []):
                for kernel, marker, _ in pair["sides"]:
                    self.assertIn(marker, lines, source)
                    self.assertTrue(kernel)


class Truth(unittest.TestCase):
    """An operation that reads 64 bytes at 0x1000 and writes 32 at 0x2010, in storages of 256 bytes."""

    CASE = {"name": "copy", "tensors": [
        {"name": "a", "storage": [0xfc0, 0x10c0], "reads": [[0x1000, 0x1040]], "writes": []},
        {"name": "out", "storage": [0x2000, 0x2100], "reads": [], "writes": [[0x2010, 0x2020], [0x2020, 0x2030]]}]}

    def rows(self, reads="0x1000 0x1040", writes="0x2010 0x2030", precision="exact", atomics="", bound=""):
        def row(kind, text, precision):
            return {"access": kind, "precision": precision, "name": "kernel", "reason": "TMA",
                    "ranges": [pair.split() for pair in text.split(",")] if text else []}
        return [row("reads", reads, precision), row("writes", writes, "exact"), row("atomics", atomics, "exact"),
                row("writes", bound, "extent")]

    def complaint(self, **changes):
        return truth.compare(self.CASE, self.rows(**changes))[0]

    def test_the_right_sets_pass(self):
        self.assertIsNone(self.complaint())
        self.assertIsNone(self.complaint(reads="0x1000 0x1020,0x1020 0x1040,0x500000 0x500010"))
        self.assertIsNone(self.complaint(writes="0x2010 0x2018", atomics="0x2018 0x2030"))
        self.assertIsNone(self.complaint(reads="0xfe0 0x1040", precision="extent"))
        self.assertIsNone(self.complaint(bound="0x1000 0x1040,0x2010 0x2030"))

    def test_half_of_an_index(self):
        case = {"name": "gather", "tensors": [
            {"name": "at", "storage": [0x1000, 0x1040], "reads": [[0x1010, 0x1020]], "writes": [],
             "low_halves": [[0x1010, 0x1014], [0x1018, 0x101c]]}]}
        for reads, good in (("0x1010 0x1020", True), ("0x1010 0x1014,0x1018 0x101c", True), ("0x1010 0x1014", False),
                            ("0x1014 0x1018,0x101c 0x1020", False)):
            self.assertEqual(truth.compare(case, self.rows(reads=reads, writes=""))[0] is None, good, reads)

    def test_each_wrong_thing_is_seen(self):
        for name, changes in {
            "a byte too little read": {"reads": "0x1000 0x103f"},
            "a byte too much read": {"reads": "0xfff 0x1040"},
            "an extent too small": {"reads": "0x1000 0x103f", "precision": "extent"},
            "a byte too little written": {"writes": "0x2011 0x2030"},
            "a byte too much written": {"writes": "0x2010 0x2031"},
            "written by an upper bound alone": {"writes": "", "bound": "0x2010 0x2030"},
            "input written": {"writes": "0x2010 0x2030,0x1000 0x1001"},
            "input changed atomically": {"atomics": "0x1000 0x1004"},
            "output's surroundings read": {"reads": "0x1000 0x1040,0x2000 0x2004"},
            "incomplete": {"precision": "incomplete"},
        }.items():
            with self.subTest(name):
                self.assertIsNotNone(self.complaint(**changes))
        self.assertIsNotNone(truth.compare(self.CASE, [])[0])

    def test_lines(self):
        cases, refused = truth.parse('case {"name": "x", "tensors": []}\nrefused y: no kernel\nother\n')
        self.assertEqual([case["name"] for case in cases], ["x"])
        self.assertEqual(refused, ["y: no kernel"])


class Output(unittest.TestCase):
    def test_wrong_line(self):
        self.assertEqual(check.Outcome(0, "nodes 4\nwrong 3 of 200 replays\n", "", 1).wrong(), (3, 200))
        self.assertIsNone(check.Outcome(0, "wrong of replays\n", "", 1).wrong())

    def test_bench_line(self):
        line = "first 12.5000 ms, median 0.7000 ms a replay over 99 replays\n"
        self.assertEqual(check.bench_times(check.Outcome(0, line, "", 1)), (12.5, 0.7))
        self.assertIsNone(check.bench_times(check.Outcome(1, line, "", 1)))

    def test_replay_line(self):
        outcome = check.Outcome(0, "replay 1.100 ms, on one stream 1.850 ms, ratio 0.595\nwrong 0 of 50 replays\n", "", 1)
        self.assertEqual(check.replay_ratio(outcome), 0.595)
        self.assertIsNone(check.replay_ratio(check.Outcome(0, "wrong 0 of 50 replays\n", "", 1)))

    def test_graph_lines(self):
        lines = "batch 8: first 12.5 ms, median 0.7 ms a replay\nbatch 1: first 9 ms, median 0.5 ms a replay\n"
        self.assertEqual(check.graph_times(check.Outcome(0, lines, "", 1)), {"batch 8": (12.5, 0.7), "batch 1": (9, 0.5)})


def launches(*states, **more):
    return [dict({"status": state, "reason": None, "replays": 1, "graph_milliseconds": "2.00",
                  "serial_milliseconds": "3.00"}, **more) for state in states]


class Differential(unittest.TestCase):
    def complaint(self, rows, differs):
        return check.judge_differential(rows, {"differs": differs, "launches": 3})

    def test_what_must_differ_differs_first(self):
        self.assertIsNone(self.complaint(launches("differs", "equal", "differs"), True))
        self.assertIsNotNone(self.complaint(launches("equal", "differs", "differs"), True))

    def test_what_must_be_equal_is_equal(self):
        self.assertIsNone(self.complaint(launches("equal", "equal", "equal"), False))
        self.assertIsNotNone(self.complaint(launches("equal", "equal", "differs"), False))

    def test_each_launch_must_be_compared(self):
        for rows in ([], launches("equal", "equal"), launches("equal", "equal", "not compared", reason="no room")):
            for differs in (True, False):
                self.assertIsNotNone(self.complaint(rows, differs))
        self.assertIn("no room", self.complaint(launches("not compared", "equal", "equal", reason="no room"), False))

    def test_cost_is_in_native_replays(self):
        self.assertEqual(check.differential_cost(launches("equal", "equal", "equal")), 2.5)


class Canaries(unittest.TestCase):
    FACTS = {"outside": 1, "found": 2, "expected": 1, "evidence": "seen"}

    def report(self, **changes):
        return {"findings": [{"id": "canary", "facts": dict(self.FACTS, **changes)}]}

    def test_ratios(self):
        line = "pages of   16384 bytes: hash   3000.0 GB/s, copy   4000.0 GB/s (read and written): %d %%\n"
        self.assertEqual(check.hash_ratios(line % 75 + "bar: 70 % of the copy on a GPU\n"), {16384: 75})
        self.assertEqual(check.hash_ratios("hash_bench: no memory\n"), {})

    def test_findings(self):
        self.assertIsNone(check.judge_canary({"findings": []}, ""))
        self.assertIsNone(check.judge_canary({"findings": [{"id": "race-war"}]}, ""))
        self.assertIsNotNone(check.judge_canary(self.report(), ""))
        self.assertIsNone(check.judge_canary(self.report(), "pad-store"))
        self.assertIsNotNone(check.judge_canary(self.report(evidence="unknown"), "pad-store"))
        self.assertIsNotNone(check.judge_canary(self.report(outside=0), "pad-store"))
        self.assertIsNotNone(check.judge_canary({"findings": []}, "pad-store"))


if __name__ == "__main__":
    unittest.main()
