"""The checks behind tests/gpu/run.sh: what each program does natively, what gravel says about it, what gravel costs.

usage: check.py BUILD [WORD...]. See run.sh. Python 3, standard library.
"""

import ctypes
import glob
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

import truth
from expectations import (BENCH_BARS, CANARY_HASH_BAR, DIFFERENTIAL, DIFFERENTIAL_EVERY, PADDED, PROGRAMS,
                          SPECIMEN)

HERE = os.path.dirname(os.path.abspath(__file__))
# All checks take a quarter of an hour, one after the other. Where a machine is lent for less, what is not done by then is
# reported as not run.
DEADLINE = time.monotonic() + float(os.environ.get("GRAVEL_GPU_TEST_SECONDS", "3600"))
SMALL_TRACE = 1 << 20
BENCH_ROUNDS, BENCH_REPLAYS, MEMCHECK_REPLAYS = 3, 1500, 15


def has_gpu():
    """Whether the driver is there and sees a device."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


def library_folders():
    """Where this machine may keep CUDA's libraries: toolkits first, then Python packages."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [home + sub for home in homes if home for sub in ("/lib64", "/lib", "/targets/x86_64-linux/lib")]
    for packages in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path}:
        folders += glob.glob("%s/nvidia/*/lib" % packages)
    return folders


def environment():
    """The environment of the programs: with libcudart.so.13 in reach, wherever this machine has it."""
    folders = [folder for folder in library_folders() if os.path.exists(folder + "/libcudart.so.13")]
    path = ":".join(folders[:1] + [os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
    # A stalled node is waited for this long; spin_flag.cu waits longer before it gives up.
    return dict(os.environ, LD_LIBRARY_PATH=path, GRAVEL_STALL_SECONDS="2", PYTHONDONTWRITEBYTECODE="1")


class Outcome:
    """What a command did: exit code (None: out of time), output, seconds."""

    def __init__(self, code, output, errors, seconds):
        self.code, self.output, self.errors, self.seconds = code, output, errors, seconds

    def wrong(self):
        """(wrong, replays) of the program's last line, or None."""
        found = re.search(r"^wrong (\d+) of (\d+) replays$", self.output, re.MULTILINE)
        return (int(found.group(1)), int(found.group(2))) if found else None

    def was_not_started(self):
        """Whether the time of the whole session was up before this command's turn."""
        return self.code is None and self.seconds == 0

    def brief(self):
        if self.code is None:
            return "out of time after %.0f s" % self.seconds
        last = (self.errors.strip() or self.output.strip()).splitlines()[-1:]
        return "exit code %d: %s" % (self.code, last[0][:160] if last else "no output")


class Session:
    """One run of this script: the build, the scratch folder, the table."""

    def __init__(self, build, words):
        self.build, self.words = os.path.abspath(build), words
        self.gravel = os.path.join(self.build, "gravel")
        self.out = os.environ.get("OUT")
        self.folder = tempfile.mkdtemp(prefix="gravel-gpu-test-")
        self.environment = environment()
        self.rows, self.log = [], []

    def wants(self, name):
        return not self.words or any(word in name for word in self.words)

    def run(self, command, limit=120):
        limit = min(limit, DEADLINE - time.monotonic())
        start = time.monotonic()
        if limit <= 1:
            return Outcome(None, "", "", 0)
        try:
            child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                     errors="replace", env=self.environment, cwd=self.folder, start_new_session=True)
        except OSError as error:
            return Outcome(127, "", str(error), 0)
        try:
            output, errors = child.communicate(timeout=limit)
            outcome = Outcome(child.returncode, output, errors, time.monotonic() - start)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, 9)
            output, errors = child.communicate()
            outcome = Outcome(None, output, errors, time.monotonic() - start)
        self.log.append("$ %s\n%s%s[%s, %.1f s]\n" % (" ".join(command), outcome.output[-8000:], outcome.errors[-8000:],
                                                      outcome.code, outcome.seconds))
        self.write("gpu-log.txt", "\n".join(self.log))
        return outcome

    def write(self, name, text):
        if self.out:
            os.makedirs(self.out, exist_ok=True)
            with open(os.path.join(self.out, name), "w") as file:
                file.write(text)

    def keep(self, path):
        """Copies a small file to $OUT."""
        if self.out and os.path.exists(path) and os.path.getsize(path) < SMALL_TRACE:
            os.makedirs(self.out, exist_ok=True)
            shutil.copy(path, self.out)

    def row(self, check, expected, seen, passed):
        """One line of the table. `passed` None: the check could not be made."""
        self.rows.append((check, expected, seen, {True: "pass", False: "FAIL", None: "not run"}[passed]))
        print("%-8s %s: %s (expected: %s)" % (self.rows[-1][3], check, seen, expected), flush=True)
        self.write("gpu-results.md", self.table())

    def table(self):
        lines = ["| check | expected | seen | result |", "|---|---|---|---|"]
        lines += ["| %s |" % " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) for row in self.rows]
        counts = {word: sum(row[3] == word for row in self.rows) for word in ("pass", "FAIL", "not run")}
        lines += ["", "%d checks: %d passed, %d failed, %d not run" % (len(self.rows), counts["pass"], counts["FAIL"],
                                                                     counts["not run"])]
        return "\n".join(lines) + "\n"

    def failed(self):
        return any(row[3] != "pass" for row in self.rows)


# ---- Programs ---------------------------------------------------------------------------------------------------

def marker_lines(source):
    """Line numbers of the `LAUNCH:name` comments of a source, by name."""
    lines = {}
    with open(os.path.join(HERE, source)) as file:
        for number, line in enumerate(file, 1):
            for name in re.findall(r"LAUNCH:(\w+)", line):
                lines.setdefault(name, set()).add(number)
    return lines


def side_is(expected, side, nodes, source, lines):
    """Whether a side of a pair is the expected one: kernel, access, and the line of its launch."""
    kernel, marker, access = expected
    node = nodes.get((side["graph"], side["node"]), {})
    place = node.get("place") or {}
    seen = ("R" if side["reads"] else "") + ("W" if side["writes"] else "") + ("A" if side["atomic"] else "")
    return (any(kernel in (node.get(key) or "") for key in ("name", "full_name", "symbol"))
            and (access is None or access == seen)
            and os.path.basename(place.get("file") or "") == source and place.get("line") in lines[marker])


def describe_pair(pair, nodes):
    words = []
    for side in (pair["first"], pair["second"]):
        node = nodes.get((side["graph"], side["node"]), {})
        place = node.get("place") or {}
        access = ("R" if side["reads"] else "") + ("W" if side["writes"] else "") + ("A" if side["atomic"] else "")
        words.append("%s %s %s:%s" % (access, (node.get("name") or "?")[:40], os.path.basename(place.get("file") or "?"),
                                      place.get("line")))
    return "%s, %d bytes" % (" / ".join(words), pair["bytes"])


def compare_races(report, expected, source):
    """A sentence on what is not as expected in the races of a report, or None."""
    races = [finding for finding in report["findings"] if finding["id"].startswith("race-") and not finding["suppressed"]]
    lines = marker_lines(source)
    if not expected:
        return None if not races else "%d races, first: %s" % (len(races), first_pair(races[0]))
    graphs = expected.get("graphs", 1)
    if len(races) != graphs:
        return "%d findings instead of %d" % (len(races), graphs)
    for finding in races:
        nodes = {(node["graph"], node["node"]): node for node in finding["nodes"]}
        if finding["confidence"] != "certain":
            return "confidence %s instead of certain" % finding["confidence"]
        left = [pair for pair in expected["pairs"] for _ in range(pair.get("count", 1))]
        for pair in finding["pairs"]:
            for wanted in left:
                a, b = wanted["sides"]
                orders = ((pair["first"], pair["second"]), (pair["second"], pair["first"]))
                if pair["bytes"] == wanted["bytes"] and any(
                        side_is(a, one, nodes, source, lines) and side_is(b, other, nodes, source, lines)
                        for one, other in orders):
                    left.remove(wanted)
                    break
            else:
                return "unexpected pair: " + describe_pair(pair, nodes)
        if left:
            return "%d pairs missing, first: %r" % (len(left), left[0])
    return None


def first_pair(finding):
    nodes = {(node["graph"], node["node"]): node for node in finding["nodes"]}
    return describe_pair(finding["pairs"][0], nodes)


def summary_of(report):
    races = [finding for finding in report["findings"] if finding["id"].startswith("race-")]
    if not races:
        return "no race"
    return "%d finding(s), %d pair(s); first: %s" % (len(races), sum(len(race["pairs"]) for race in races),
                                                    first_pair(races[0]))


def compare_incompleteness(report, wanted):
    """`wanted`: None when the graph must be called complete, else (kind, text): a finding of that kind must be there,
    and the text in its reason, the name of its node or a note."""
    found = [finding for finding in report["findings"] if finding["id"] == "incomplete"]
    if wanted is None:
        return None if report["summary"]["complete"] and not found else \
            "incomplete: " + ", ".join("%s (%s)" % (finding["kind"], (finding["reason"] or "")[:120]) for finding in found)
    kind, text = wanted
    if report["summary"]["complete"]:
        return "called complete"
    if not any(finding["kind"] == kind for finding in found):
        return "no incompleteness of kind %s, but %s" % (kind, sorted({finding["kind"] for finding in found}))
    texts = [finding.get(key) or "" for finding in found for key in ("reason", "node_name")]
    texts += [note["text"] for trace in report["traces"] for note in trace["notes"]]
    return None if any(text in one for one in texts) else "nothing says %r" % text


def check_wrong(session, name, outcome, bounds):
    low, high = bounds
    wrong = outcome.wrong()
    expected = "%d wrong" % low if low == high else "%d or more wrong" % low
    if outcome.code != 0 or not wrong:
        session.row(name, expected, outcome.brief(), None if outcome.was_not_started() else False)
        return
    session.row(name, expected, "wrong %d of %d replays" % wrong, low <= wrong[0] <= (wrong[1] if high is None else high))


def variables(program):
    """`env` and the variables that a program wants, among them the way to a library that not every program may see."""
    wanted = dict(program.get("environment", {}))
    if program.get("library"):
        folders = [folder for folder in library_folders() if os.path.exists(os.path.join(folder, program["library"]))]
        wanted["LD_LIBRARY_PATH"] = ":".join(folders[:1] + [environment()["LD_LIBRARY_PATH"]])
    return ["env"] + ["%s=%s" % item for item in wanted.items()] if wanted else []


def run_program(session, program):
    if program.get("optional") and not os.path.exists(os.path.join(session.build, "gpu", program["file"])):
        if session.wants(program["name"]):
            session.row(program["name"], "built by " + program["optional"], "not built", None)
        return
    if program["file"].endswith(".py"):
        command, source = [sys.executable, os.path.join(HERE, program["file"])], program["file"]
    else:
        command, source = [os.path.join(session.build, "gpu", program["file"])], program["source"]
    for variant in ("buggy", "clean"):
        spec = program.get(variant)
        name = "%s %s" % (program["name"], variant)
        if not spec or not session.wants(name):
            continue
        arguments = command + program.get("arguments", {}).get(variant, [variant])
        arguments = variables(program) + arguments
        native = session.run(arguments)
        check_wrong(session, name + ", native", native, spec["native"])

        trace = os.path.join(session.folder, "%s-%s.gravel" % (program["file"].replace(".py", ""), variant))
        recorded = session.run([session.gravel, "run", "-o", trace, "--arm", program.get("arm", "first"), "--"] + arguments)
        check_wrong(session, name + ", recorded", recorded, spec["recorded"])
        if spec.get("overhead"):
            check_overhead(session, name, arguments, native, recorded)
        check_report(session, name, trace, spec, source)
        if spec.get("trace"):
            check_size(session, name, trace, *spec["trace"])


def graph_times(outcome):
    """(first, median) milliseconds of each graph that a program names with its times."""
    found = re.findall(r"^(.+): first ([\d.]+) ms, median ([\d.]+) ms a replay", outcome.output, re.MULTILINE)
    return {graph: (float(first), float(median)) for graph, first, median in found}


def check_overhead(session, name, arguments, native, recorded):
    """Each graph's armed replay against memcheck's replay of the same graph."""
    sanitizer = find_sanitizer()
    watched = graph_times(session.run([sanitizer, "--tool", "memcheck"] + arguments + ["2"], limit=200)) if sanitizer else {}
    plain, armed = graph_times(native), graph_times(recorded)
    for graph in plain:
        seen = "%.2f ms (%.1fx native)" % (armed[graph][0], armed[graph][0] / plain[graph][1]) if graph in armed else "no time"
        if graph in watched:
            seen += "; memcheck %.2f ms (%.1fx)" % (watched[graph][1], watched[graph][1] / plain[graph][1])
        both = graph in armed and graph in watched
        session.row("%s, armed replay of %s" % (name, graph), "no slower than memcheck", seen,
                    armed[graph][0] <= watched[graph][1] if both else None)


def check_size(session, name, trace, least_nodes, most_bytes):
    shown = session.run([session.gravel, "show", trace, "graphs", "--json"])
    try:
        nodes = max(row["nodes"] for row in json.loads(shown.output)["rows"])
    except (ValueError, KeyError):
        nodes = 0
    size = os.path.getsize(trace) if os.path.exists(trace) else 0
    session.row(name + ", trace", "%d nodes or more in at most %d bytes" % (least_nodes, most_bytes),
                "%d nodes, %d bytes" % (nodes, size), nodes >= least_nodes and 0 < size <= most_bytes)


def check_report(session, name, trace, spec, source):
    expected_code = 1 if spec.get("races") else 0
    check = session.run([session.gravel, "check", "--json", trace])
    if check.was_not_started():
        session.row(name + ", report", "JSON", check.brief(), None)
        return
    session.keep(trace)
    session.write(os.path.basename(trace) + ".json", check.output[:SMALL_TRACE])
    try:
        report = json.loads(check.output)
        complaint = compare_races(report, spec.get("races"), source)
        words = spec["races"]["words"] if spec.get("races") else "no race"
        session.row(name + ", races", words, complaint or summary_of(report), complaint is None)
        complaint = compare_incompleteness(report, spec.get("incomplete"))
        session.row(name + ", completeness", "incomplete: %s, %s" % spec["incomplete"] if spec.get("incomplete") else
                    "complete", complaint or "as expected", complaint is None)
    except (ValueError, KeyError, TypeError) as error:
        session.row(name + ", report", "JSON", "%s; %s: %s" % (check.brief(), type(error).__name__, error), False)
    session.row(name + ", exit code of check", str(expected_code), str(check.code), check.code == expected_code)


# ---- Overhead ---------------------------------------------------------------------------------------------------

def bench_times(outcome):
    """(first, median) in milliseconds, or None."""
    found = re.search(r"^first ([\d.]+) ms, median ([\d.]+) ms", outcome.output, re.MULTILINE)
    return (float(found.group(1)), float(found.group(2))) if outcome.code == 0 and found else None


def find_sanitizer():
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    for path in [home + "/bin/compute-sanitizer" for home in homes if home] + [shutil.which("compute-sanitizer")]:
        if path and os.access(path, os.X_OK):
            return path
    return None


def run_bench(session):
    """Each round runs the program natively, traced only, and armed once, so that clocks and neighbours change for all
    alike; ratios are taken within a round and the median of the rounds counts."""
    if not session.wants("torch_bench"):
        return
    program = [sys.executable, os.path.join(HERE, "torch_bench.py")]
    times, trace = [], os.path.join(session.folder, "torch_bench.gravel")
    for number in range(BENCH_ROUNDS):
        commands = {"native": [], "traced": [session.gravel, "run", "-o", trace + ".none", "--arm", "none", "--"],
                    "armed": [session.gravel, "run", "-o", trace, "--arm", "first", "--"]}
        outcomes = {way: session.run(prefix + program + [str(BENCH_REPLAYS)]) for way, prefix in commands.items()}
        measured = {way: bench_times(outcome) for way, outcome in outcomes.items()}
        if None in measured.values():
            broken = next(way for way in measured if measured[way] is None)
            session.row("torch_bench, %s run %d" % (broken, number + 1), "times", outcomes[broken].brief(),
                        None if outcomes[broken].was_not_started() else False)
            return
        times.append(measured)
        if number == 0:
            for way in outcomes:
                check_wrong(session, "torch_bench, %s result" % way, outcomes[way], (0, 0))
            check_report(session, "torch_bench", trace, {}, "torch_bench.py")

    def ratio(way):
        return statistics.median(measured[way][1] / measured["native"][1] for measured in times)

    native = statistics.median(measured["native"][1] for measured in times)
    armed = statistics.median(measured["armed"][0] for measured in times)
    session.row("torch_bench, a replay", "-", "%.3f ms natively (median of %d runs)" % (native, BENCH_ROUNDS), True)
    for way, words in (("traced", "never armed"), ("armed", "after arming")):
        bar = BENCH_BARS[way]
        session.row("torch_bench, " + words, "at most %.2fx" % bar, "%.3fx native" % ratio(way), ratio(way) <= bar)

    sanitizer = find_sanitizer()
    if not sanitizer:
        session.row("torch_bench, armed replay", "no slower than memcheck", "%.2f ms; no compute-sanitizer" % armed, None)
        return
    outcome = session.run([sanitizer, "--tool", "memcheck"] + program + [str(MEMCHECK_REPLAYS)], limit=200)
    memcheck = bench_times(outcome)
    seen = "%.2f ms (%.1fx native)" % (armed, armed / native)
    if not memcheck:
        session.row("torch_bench, armed replay", "no slower than memcheck", seen + "; memcheck: " + outcome.brief(), None)
        return
    session.row("torch_bench, armed replay", "no slower than memcheck", "%s; memcheck %.2f ms (%.1fx)" %
                (seen, memcheck[1], memcheck[1] / native), armed <= memcheck[1])


# ---- Fixes ------------------------------------------------------------------------------------------------------

def replay_ratio(outcome):
    """How long a replay takes against the same step on one stream, or None."""
    found = re.search(r"^replay ([\d.]+) ms, on one stream ([\d.]+) ms, ratio ([\d.]+)$", outcome.output, re.MULTILINE)
    return float(found.group(3)) if found else None


def run_fix(session, name, command, most_ratio=None):
    """Recorded, fixed by gravel fix, and run with the edges added: the program itself is the same each time."""
    if not session.wants(name):
        return
    trace, fix = (os.path.join(session.folder, name + end) for end in (".fix.gravel", ".json"))
    native = session.run(command)
    check_wrong(session, name + ", native", native, (1, None))
    session.run([session.gravel, "run", "-o", trace, "--times", "--arm", "first", "--"] + command)
    made = session.run([session.gravel, "fix", "-o", fix, trace])
    session.keep(fix)
    session.row(name + ", gravel fix", "exit code 0, a fix file", "exit code %s" % made.code,
                None if made.was_not_started() else made.code == 0 and os.path.exists(fix))
    fixed = session.run([session.gravel, "run", "-o", trace + ".fixed", "--fix", fix, "--"] + command)
    check_wrong(session, name + ", gravel run --fix", fixed, (0, 0))
    session.row(name + ", the edges are in use", "said", "said" if "ran with its edges" in fixed.errors else fixed.brief(),
                None if fixed.was_not_started() else "ran with its edges" in fixed.errors)
    if most_ratio:
        before, after = replay_ratio(native), replay_ratio(fixed)
        session.row(name + ", overlap kept", "at most %.2f of the same step on one stream" % most_ratio,
                    "%s without the fix, %s with it" % (before, after), after is not None and after <= most_ratio)
    verified = session.run([session.gravel, "fix", "--verify", fix, "--"] + command, limit=240)
    session.row(name + ", gravel fix --verify", "exit code 0", "exit code %s: %s" % (
        verified.code, " / ".join(line for line in verified.output.splitlines() if line.strip())[:300]),
                None if verified.was_not_started() else verified.code == 0)


def run_other_fixes(session):
    """Correct programs with a fix without edges, and with one whose edge changes nothing: the results stay."""
    make_fix = os.path.join(session.build, "tests", "make_fix")
    for model in ("llama", "moe", "hybrid"):
        name = "unneeded fix of torch_decode %s" % model
        if not session.wants(name):
            continue
        if not os.path.exists(make_fix):
            session.row(name, "tests/make_fix in the build", "not there", None)
            continue
        trace, fix = (os.path.join(session.folder, model + end) for end in (".gravel", ".json"))
        command = [sys.executable, os.path.join(HERE, "torch_decode.py"), model]
        session.run([session.gravel, "run", "-o", trace, "--arm", "none", "--"] + command)
        for kind, edge in (("empty", []), ("needless", ["1", "0", "9"])):
            made = session.run([make_fix, trace, fix] + edge)
            fixed = session.run([session.gravel, "run", "-o", trace + ".fixed", "--fix", fix, "--"] + command)
            check_wrong(session, "%s, %s" % (name, kind), fixed, (0, 0))
            if edge:
                used = made.code == 0 and "ran with its edges" in fixed.errors
                session.row(name + ", the edge is in use", "said", "said" if used else made.brief() + "; " + fixed.brief(),
                            None if fixed.was_not_started() else used)


def run_fixes(session):
    run_other_fixes(session)
    run_fix(session, "fix of race", [os.path.join(session.build, "gpu", "race_static"), "buggy"])
    run_fix(session, "fix of torch_race", [sys.executable, os.path.join(HERE, "torch_race.py"), "buggy"])
    run_fix(session, "fix of torch_fix", [sys.executable, os.path.join(HERE, "torch_fix.py")], most_ratio=0.8)


# ---- Ground truth -----------------------------------------------------------------------------------------------

def run_truth(session, name, command, least):
    """Operations whose access sets follow from their shapes, printed by the command: one row each."""
    if not session.wants(name):
        return
    trace = os.path.join(session.folder, name + ".gravel")
    recorded = session.run([session.gravel, "run", "-o", trace, "--arm", "first", "--"] + command, limit=240)
    shown = session.run([session.gravel, "show", trace, "access", "--json"])
    cases, refused = truth.parse(recorded.output)
    try:
        rows = json.loads(shown.output)["rows"]
    except (ValueError, KeyError):
        session.row(name, "access sets", "%s; %s" % (recorded.brief(), shown.brief()),
                    None if recorded.was_not_started() else False)
        return
    session.keep(trace)
    graphs = sorted({row["graph"] for row in rows})
    complete = recorded.code == 0 and len(graphs) == len(cases)
    session.row(name, "every case in a graph of its own, at least %d" % least,
                "%d cases, %d graphs, %d refused%s" % (len(cases), len(graphs), len(refused),
                                                       "".join("; " + text[:90] for text in refused)),
                complete and len(cases) >= least)
    if not complete:
        return
    for case, graph in zip(cases, graphs):
        complaint, words = truth.compare(case, [row for row in rows if row["graph"] == graph])
        session.row("%s, %s" % (name, case["name"]), "the bytes of its shapes", complaint or words, complaint is None)


# ---- Padding, poison and probes ----------------------------------------------------------------------------------

def judge_observed(report, rows, spec):
    """What is wrong with the observed findings and the table of repeated launches, or None."""
    ids = sorted({finding["id"] for finding in report["findings"] if "facts" in finding})
    if ids != sorted(spec["ids"]):
        return "reported %s" % (", ".join(ids) or "nothing")
    unchecked = sorted({row["reason"] for row in rows if row["result"] != "checked"})
    if unchecked or len(rows) < spec["repeated"]:
        return "%d launches repeated%s" % (len(rows), "".join("; " + reason for reason in unchecked))
    return None


def run_padded(session):
    for spec in PADDED:
        if not session.wants("padding") and not session.wants(spec["name"]):
            continue
        name, trace = "padding: " + spec["name"], os.path.join(session.folder, "padded.gravel")
        program = [sys.executable, os.path.join(HERE, spec["arguments"][0])] + spec["arguments"][1:]
        outcome = session.run([session.gravel, "run", *spec["options"], "-o", trace, "--"] + program, limit=300)
        expected = ", ".join(spec["ids"]) or "nothing"
        shown = session.run([session.gravel, "show", trace, "perturbed", "--json"])
        checked = session.run([session.gravel, "check", "--json", trace])
        if outcome.code != 0 or shown.code != 0 or checked.code not in (0, 1):
            session.row(name, expected, outcome.brief(), None if outcome.was_not_started() else False)
            continue
        wrong = judge_observed(json.loads(checked.output), json.loads(shown.output)["rows"], spec)
        session.row(name, expected, wrong or expected, not wrong)


# ---- The differential -------------------------------------------------------------------------------------------

def judge_differential(rows, spec):
    """What is wrong with the table of compared launches, or None."""
    states = [row["status"] for row in rows]
    if len(rows) != spec["launches"] or "not compared" in states:
        reasons = sorted({row["reason"] for row in rows if row["reason"]})
        return "%d of %d launches compared%s" % (len(states) - states.count("not compared"), spec["launches"],
                                                 ": " + "; ".join(reasons) if reasons else "")
    if spec["differs"]:
        return None if states[0] == "differs" else "the first compared launch does not differ"
    return None if set(states) == {"equal"} else "%d launches differ" % states.count("differs")


def differential_cost(rows):
    """Graph and serial replays of a launch in native replays: the median of those after the first."""
    return statistics.median((float(row["graph_milliseconds"]) + row["replays"] * float(row["serial_milliseconds"])) /
                             float(row["graph_milliseconds"]) for row in rows[1:])


def run_differential(session):
    for spec in DIFFERENTIAL:
        if not session.wants("differential") and not session.wants(spec["name"]):
            continue
        name, trace = "differential: " + spec["name"], os.path.join(session.folder, "diff.gravel")
        program = [sys.executable, os.path.join(HERE, spec["arguments"][0])] + spec["arguments"][1:]
        outcome = session.run([session.gravel, "run", "--diff=every=1", "-o", trace, "--"] + program, limit=300)
        expected = "proved in the first launch" if spec["differs"] else "no difference in %d" % spec["launches"]
        shown = session.run([session.gravel, "show", trace, "diffs", "--json"])
        if outcome.code != 0 or shown.code != 0:
            session.row(name, expected, outcome.brief(), None if outcome.was_not_started() else False)
            continue
        rows = json.loads(shown.output)["rows"]
        wrong = judge_differential(rows, spec)
        code = session.run([session.gravel, "check", trace]).code
        if not wrong and code != (1 if spec["differs"] else 0):
            wrong = "exit code %s of check" % code
        first = rows[0]["first_name"] if rows and rows[0]["first_name"] else "no node"
        session.row(name, expected, wrong or ("at " + first if spec["differs"] else "none"), not wrong)
        if not wrong and "cost" in spec:
            cost, total = differential_cost(rows), statistics.median(float(row["native_replays"]) for row in rows[1:])
            session.row(name + ", cost", "graph and serial replay at most %.1fx native" % spec["cost"],
                        "%.2fx, with everything %.2fx" % (cost, total), cost <= spec["cost"])
    if not session.wants("differential"):
        return
    every = DIFFERENTIAL_EVERY
    program = [sys.executable, os.path.join(HERE, "torch_bench.py"), str(every["replays"])]
    prefix = [session.gravel, "run", "--diff=every=%d" % every["every"], "-o", os.path.join(session.folder, "e.gravel"),
              "--"]
    means = []
    for command in (program, prefix + program):
        outcome = session.run(command, limit=200)
        found = re.search(r"^mean ([\d.]+) ms", outcome.output, re.MULTILINE)
        if outcome.code != 0 or not found:
            session.row("differential, every %d" % every["every"], "times", outcome.brief(),
                        None if outcome.was_not_started() else False)
            return
        means.append(float(found.group(1)))
    session.row("differential, every %d" % every["every"], "at most %.2fx" % every["bar"],
                "%.3fx" % (means[1] / means[0]), means[1] / means[0] <= every["bar"])


# ---- The rest ---------------------------------------------------------------------------------------------------

def run_doctor(session):
    if session.wants("doctor"):
        outcome = session.run([session.gravel, "doctor"])
        session.row("doctor", "exit code 0", "exit code %s" % outcome.code, outcome.code == 0)


def run_tensor_maps(session):
    """The driver's tensor maps decoded, and TMA loads against the bytes that a map and coordinates name."""
    if not session.wants("tensor_maps"):
        return
    outcome = session.run([os.path.join(session.build, "gpu", "tensor_maps")])
    found = re.findall(r"^tensor maps: (.*)$", outcome.output, re.MULTILINE)
    session.row("tensor_maps", "none wrong", found[-1] if found else outcome.brief(),
                None if outcome.was_not_started() else outcome.code == 0)


def run_twins(session):
    if not session.wants("twins"):
        return
    script = os.path.join(HERE, "..", "..", "twins", "run.sh")
    outcome = session.run(["sh", script, session.build, "gpu"], limit=200)
    found = re.findall(r"^(\d+) pairs: (\d+) detected, (\d+) missed, (\d+) false$", outcome.output, re.MULTILINE)
    expected = "every pair detected, none missed, none false; exit code 0"
    if not found:
        session.row("twins", expected, outcome.brief(), None if outcome.was_not_started() else False)
        return
    pairs, detected, missed, false = map(int, found[-1])
    session.row("twins", expected, "%d pairs: %d detected, %d missed, %d false; exit code %s" %
                (pairs, detected, missed, false, outcome.code),
                pairs > 0 and detected == pairs and missed == 0 and false == 0 and outcome.code == 0)


# ---- Canaries ---------------------------------------------------------------------------------------------------

def hash_ratios(output):
    """{bytes of a page: percent of the copy} of bench/hash_bench."""
    found = re.findall(r"^pages of +(\d+) bytes: .*: (\d+) %$", output, re.MULTILINE)
    return {int(page): int(percent) for page, percent in found}


def judge_canary(report, fault):
    """What is wrong with a report of the specimen under --canary, or None."""
    found = [f for f in report["findings"] if f["id"] == "canary"]
    if not fault:
        return "%d findings" % len(found) if found else None
    facts = [f["facts"] for f in found]
    if not facts or any(f["outside"] < 1 or f["found"] < f["outside"] for f in facts):
        return "%d findings: %s" % (len(found), facts[:1])
    return None if any(f["evidence"] == "seen" for f in facts) else "no writer is named"


def run_canary(session):
    if not session.wants("canary"):
        return
    outcome = session.run([os.path.join(session.build, "bench", "hash_bench")])
    ratios = hash_ratios(outcome.output)
    expected = "at least %d %% of the copy bandwidth" % CANARY_HASH_BAR
    if outcome.code != 0 or not ratios:
        session.row("canary hash", expected, outcome.brief(), None if outcome.was_not_started() else False)
    for page, percent in ratios.items():
        session.row("canary hash, pages of %d bytes" % page, expected, "%d %%" % percent, percent >= CANARY_HASH_BAR)
    specimen = [os.path.join(session.build, "gravel-specimen"), "run", "--sessions", "16", "--repair"]
    for fault in ("", "pad-store"):
        trace = os.path.join(session.folder, "canary.gravel")
        options = ["--fault", fault] if fault else []
        run = session.run([session.gravel, "run", "--canary", "-o", trace, "--"] + specimen + options, limit=200)
        shown = session.run([session.gravel, "check", "--json", trace])
        name, expected = "canary, specimen %s" % (fault or "without a fault"), "its writer named" if fault else "silence"
        if run.code != 0 or shown.code not in (0, 1):
            session.row(name, expected, run.brief(), None if run.was_not_started() else False)
            continue
        wrong = judge_canary(json.loads(shown.output), fault)
        session.row(name, expected, wrong or expected, not wrong)


# ---- The specimen -----------------------------------------------------------------------------------------------

def run_specimen(session):
    """The specimen's own checks (tests/specimen), on this GPU."""
    for what, expected, command, limit in SPECIMEN:
        name = "specimen: " + what
        if not session.wants(name):
            continue
        script = os.path.join(HERE, "..", "specimen", command[0])
        outcome = session.run([sys.executable, "-B", script, session.build] + command[1:] + ["--gpu"], limit=limit)
        session.write("specimen-%s.txt" % command[0].replace(".py", ""), outcome.output + outcome.errors)
        lines = [line.strip() for line in (outcome.output + outcome.errors).splitlines() if line.strip()]
        seen = "; ".join(lines[-4:] if outcome.code == 0 else [line for line in lines if "WRONG" in line][:4] or lines[-4:])
        session.row(name, expected, seen[:400] if outcome.code is not None else outcome.brief(),
                    None if outcome.was_not_started() else outcome.code == 0)


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    session = Session(sys.argv[1], sys.argv[2:])
    if not os.access(session.gravel, os.X_OK) or not os.path.isdir(os.path.join(session.build, "gpu")):
        print("gpu-test: %s has no gravel and gpu/ programs; run `make build` on a machine with nvcc" % session.build,
              file=sys.stderr)
        return 2
    if not has_gpu():
        print("gpu-test: there is no GPU here (libcuda.so.1 is missing or sees no device); nothing was run",
              file=sys.stderr)
        return 3
    try:
        run_doctor(session)
        for program in PROGRAMS:
            run_program(session, program)
        run_tensor_maps(session)
        run_truth(session, "tensor_loads", [os.path.join(session.build, "gpu", "tensor_maps"), "graphs"], 30)
        run_truth(session, "access_truth", [sys.executable, os.path.join(HERE, "access_truth.py")], 30)
        run_twins(session)
        run_fixes(session)
        run_bench(session)
        run_differential(session)
        run_canary(session)
        run_padded(session)
        run_specimen(session)
    finally:
        shutil.rmtree(session.folder, ignore_errors=True)
    print("\n" + session.table())
    return 1 if session.failed() else 0


if __name__ == "__main__":
    sys.exit(main())
