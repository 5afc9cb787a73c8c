#!/usr/bin/env python3
"""gravel lab with a fake service that is a real process: end_to_end.py BUILD TEST"""
import json
import os
import signal
import subprocess

from labtest import FACTORS, check, main, same_result, wait_for

DESCRIBES = "keys=bf16, overlap=on"


def fingerprint(lab):
    plan = lab.plan(ENVIRONMENT=", FAKE_CHILDREN: 3", REST='comparisons: [{name: both, from: {keys: bf16, overlap: "on"}, '
                                                           'to: {keys: fp8, overlap: "off"}}]')
    lab.run("check", plan, code=0)
    done = lab.run("run", plan, code=1)
    check("Corrupt where keys=bf16 and overlap=on (an interaction" in done.stdout.replace("\n  ", " "), done.stdout)
    report = lab.report(plan)
    verdicts = {tuple(cell["cell"].values()): cell["verdict"] for cell in report["cells"]}
    check(verdicts == {("bf16", "on"): "corrupt", ("bf16", "off"): "clean", ("fp8", "on"): "clean",
                       ("fp8", "off"): "clean"}, verdicts)
    check(any("both: keys and overlap were changed together" in text for text in report["conclusions"]), report)
    # The counts are those of the fake service's own rate, session by session.
    sessions = lab.rows("plan", "SELECT trial, count(*), sum(verdict = 'corrupt') FROM lab_session GROUP BY trial")
    trials = lab.rows("plan", "SELECT trial, sessions, corrupt FROM lab_attempt WHERE final = 1")
    check(sorted(sessions) == sorted(trials), sessions, trials)
    # Every trial has its three manifests, with the service's own program among the mapped files.
    stages = lab.rows("plan", "SELECT trial, count(*) FROM lab_attempt_manifest GROUP BY trial")
    check(stages and all(count == 3 for _, count in stages), stages)
    mapped = lab.rows("plan", "SELECT manifest FROM lab_manifest m JOIN lab_attempt_manifest a USING(sha256) "
                              "WHERE a.stage = 'started' LIMIT 1")[0][0]
    real = os.path.realpath(lab.path("fake_service"))
    check(len(json.loads(mapped)["mapped"][real]) == 64, mapped)
    # Blocks are in random order, and another seed gives another order.
    order = [row[0] for row in lab.rows("plan", "SELECT subject FROM lab_trial WHERE block = 1 ORDER BY number")]
    lab.plan("other", SEED="6")
    lab.run("run", lab.path("other.yaml"), "--quiet", code=1)
    other = [row[0] for row in lab.rows("other", "SELECT subject FROM lab_trial WHERE block = 1 ORDER BY number")]
    check(sorted(order) == sorted(other) and order != other, order, other)
    for form, mark in [("text", "Fingerprint"), ("markdown", "| keys | overlap |"), ("html", "<svg")]:
        check(mark in lab.run("report", plan, "--format", form, code=1).stdout, form)
    # Run once: the same plan is not begun again, and its report can be asked for after the plan's file has changed.
    check("was run already" in lab.run("run", plan, code=2).stderr, "second run")
    with open(plan, "a") as out:
        out.write("\n# changed\n")
    check("has changed" in lab.run("report", plan, code=1).stderr, "changed plan")
    check("has changed" in lab.run("resume", plan, code=2).stderr, "changed plan, resumed")


def append_only(lab):
    plan = lab.plan(DESIGN="design: {kind: full, blocks: 1}")
    lab.run("run", plan)
    import sqlite3
    connection = sqlite3.connect(lab.path("plan.lab", "ledger.sqlite"))
    for sql in ("UPDATE lab_attempt SET corrupt = 0", "DELETE FROM lab_trial", "DELETE FROM lab_event"):
        try:
            connection.execute(sql)
            raise AssertionError(sql)
        except sqlite3.DatabaseError as error:
            check("append-only" in str(error), error)
    connection.close()


def without_counts(lab):
    """A service that will not start, dies, is deaf or hangs, and a trial that hangs, fails or is lost: never a pass."""
    one = 'design: {kind: cells, cells: [{keys: bf16, overlap: "on"}], blocks: 3}'
    cases = [
        ("dies", dict(ENVIRONMENT=", FAKE_START: die"), "infrastructure", "ended before it was ready: exit code 3"),
        ("deaf", dict(ENVIRONMENT=", FAKE_START: deaf", START="1s"), "infrastructure", "not ready within 1 s"),
        ("hangs", dict(ENVIRONMENT=", FAKE_START: hang", START="1s"), "infrastructure", "not ready within 1 s"),
        ("late", dict(ENVIRONMENT=", FAKE_START: late", START="0.5s"), "infrastructure", "not ready within 0.5 s"),
        ("killed", dict(ENVIRONMENT=", FAKE_DIE_AT: 7"), "infrastructure", "the service ended while the trial ran|"
                                                                           "the trial's command ended with exit code 6"),
        ("stuck", dict(TRIAL=", --hang", TIMEOUT="0.5s"), "timed out", "did not end within"),
        ("odd", dict(TRIAL=', --exit, "9"'), "infrastructure", "ended with exit code 9"),
        ("lost", dict(TRIAL=', --failed, "3"', ALLOWED="2"), "infrastructure", "3 of 20 sessions failed"),
    ]
    for name, values, outcome, reason in cases:
        lab.plan(name, RETRIES="0", DESIGN=one, **values)
        done = lab.run("run", lab.path(name + ".yaml"), code=4)
        report = lab.report(lab.path(name + ".yaml"))
        cell = report["cells"][0]
        check(cell["sessions"] == 0 and cell["verdict"] == "undecided" and cell["given_up"], name, cell)
        check("not measured" in done.stdout, name, done.stdout)
        attempts = report["without_counts"]
        check(len(attempts) == 3 and all(a["outcome"] == outcome for a in attempts), name, attempts)
        check(all(any(part in a["reason"] for part in reason.split("|")) for a in attempts), name, attempts)
        check(not lab.processes(), name, "left processes")
    tail = lab.rows("dies", "SELECT log_tail FROM lab_attempt LIMIT 1")[0][0]
    check("cannot allocate the KV cache" in tail, tail)


def never_works(lab):
    """A service that never starts is told after a few attempts, not after all of them; mended, the run goes on."""
    switch = lab.write("switch", "broken")
    plan = lab.plan(RETRIES="2")
    with open(plan) as text:
        changed = text.read().replace(f'command: ["{lab.here}/fake_service"',
                                      f'command: [sh, -c, "test ! -e {switch} || {{ echo no switch; exit 9; }}; exec \\"$@\\"", '
                                      f'x, "{lab.here}/fake_service"')
    lab.write("plan.yaml", changed)
    done = lab.run("run", plan, code=3)
    check("none had counts" in done.stderr and "exit code 9" in done.stderr, done.stderr)
    check(lab.rows("plan", "SELECT count(*) FROM lab_attempt")[0][0] == 6, "attempts")
    os.remove(switch)
    lab.run("resume", plan, code=1)
    check({c["verdict"] for c in lab.report(plan)["cells"]} == {"clean", "corrupt"}, "mended")


def retries(lab):
    """What fails for a reason that passes is tried again, and the trial is counted once."""
    script = lab.write("flaky.sh", 'test -e "$1/once" || { touch "$1/once"; exit 7; }\nshift\nexec "$@"\n')
    plan = lab.plan(DESIGN='design: {kind: cells, cells: [{keys: bf16, overlap: "off"}], blocks: 1}')
    with open(plan) as text:
        changed = text.read().replace(f'command: ["{lab.here}/fake_service"',
                                      f'command: [sh, {script}, "{lab.here}", "{lab.here}/fake_service"')
    lab.write("plan.yaml", changed)
    lab.run("run", plan, code=0)
    attempts = lab.rows("plan", "SELECT attempt, outcome, final FROM lab_attempt ORDER BY attempt")
    check(attempts == [(1, "infrastructure", 0), (2, "counted", 1)], attempts)


def manifests(lab):
    """What was measured is not what was meant: the trial is void."""
    one = 'design: {kind: cells, cells: [{keys: bf16, overlap: "off"}], blocks: 3}'
    lab.write("weights", "a")
    cases = [
        # A launcher that drops the variable that the cell is about.
        ("lost", dict(ENVIRONMENT=", FAKE_LOSE: 1"), "FAKE_OVERLAP=not there, and 0 was meant"),
        # A declared file that changes while the trial runs.
        ("touched", dict(ENVIRONMENT=f", FAKE_TOUCH: {lab.path('weights')}", SERVICE=f"  files: [{lab.path('weights')}]"),
         "weights changed while the trial ran"),
        ("absent", dict(SERVICE="  files: [nowhere.bin]"), "nowhere.bin is missing"),
    ]
    for name, values, reason in cases:
        lab.plan(name, RETRIES="0", DESIGN=one, **values)
        lab.run("run", lab.path(name + ".yaml"), code=4)
        attempts = lab.report(lab.path(name + ".yaml"))["without_counts"]
        check(len(attempts) == 3 and all(a["outcome"] == "void" and reason in a["reason"] for a in attempts), name, attempts)
    # A variable that looks like a key is kept as a checksum.
    lab.plan("secret", DESIGN=one.replace("blocks: 3", "blocks: 1"), ENVIRONMENT=", MY_API_KEY: hunter2")
    lab.run("run", lab.path("secret.yaml"), code=0)
    texts = [row[0] for row in lab.rows("secret", "SELECT manifest FROM lab_manifest")]
    check(texts and not any("hunter2" in text for text in texts) and any("MY_API_KEY" in text for text in texts), texts)


def source(lab):
    """Patches, hunks, file swaps and revisions in a work tree of each trial; the user's own tree stays as it is."""
    repo = lab.path("repo")
    os.makedirs(repo)

    def git(*words):
        return subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@t", "-C", repo, *words], check=True,
                              capture_output=True, text=True).stdout

    git("init", "-q")
    filler = "".join(f"line {i}\n" for i in range(30))
    lab.write("repo/safe", "no\n" + filler)
    git("add", "safe")
    git("commit", "-qm", "one")
    lab.write("repo/safe", "yes\n" + filler)
    git("commit", "-qam", "two")
    fixed = git("rev-parse", "HEAD").strip()
    lab.write("repo/safe", "yes\n" + filler.replace("line 25\n", "line 25 changed\n"))
    lab.write("both.patch", git("diff", "HEAD~1"))
    git("checkout", "-q", "-f", "HEAD~1")
    lab.write("repo/safe", "no\nmine\n")  # the user's own change, uncommitted
    lab.write("swap", "yes\n")
    lab.write("broken.patch", "--- a/safe\n+++ b/safe\n@@ -1,2 +1,2 @@\n-nothing like it\n+yes\n line 0\n")
    factors = f"""\
factors:
  how:
    as it is: {{}}
    patched: {{patch: both.patch}}
    swapped: {{files: {{safe: swap}}}}
    newer: {{revision: {fixed}}}
    broken: {{patch: broken.patch}}
"""
    plan = lab.plan(FACTORS=factors, SERVICE="  source: {git: repo, revision: HEAD}",
                    REST="""\
minimise:
  cell: {how: as it is}
  changes:
    both: {patch: both.patch, split: true}
    needless: {environment: {NEEDLESS: 1}}
""")
    before = git("status", "--porcelain"), open(lab.path("repo", "safe")).read()
    lab.run("run", plan, code=1)
    report = lab.report(plan)
    verdicts = {cell["cell"]["how"]: cell["verdict"] for cell in report["cells"]}
    check(verdicts == {"as it is": "corrupt", "patched": "clean", "swapped": "clean", "newer": "clean",
                       "broken": "undecided"}, verdicts)
    reasons = [a["reason"] for a in report["without_counts"]]
    check(len(reasons) == 3 and all('patch of "broken" does not fit' in reason for reason in reasons), reasons)
    lab.run("minimise", plan, code=0)
    found = lab.report(plan, "--kind", "minimise")
    check(found["changes"] == ["both: hunk 1"] and found["result"] == "found", found)
    check(before == (git("status", "--porcelain"), open(lab.path("repo", "safe")).read()), "the user's tree changed")
    check(git("worktree", "list").count("\n") == 1, git("worktree", "list"))


def minimise(lab):
    """Two of five changes are needed together; a sixth stops the service from starting."""
    factors = 'factors: {a: {x: {environment: {LEVEL: 1}}, y: {environment: {LEVEL: 2}}}}'
    changes = "\n".join(f"    c{i}: {{environment: {{C{i}: 1}}}}" for i in range(5))
    rest = f"minimise:\n  cell: {{a: x}}\n  together: 2\n  changes:\n{changes}\n"
    plan = lab.plan(FACTORS=factors, REST=rest, ENVIRONMENT=', FAKE_NEEDS: "C1 C3"')
    done = lab.run("minimise", plan, code=0)
    check("c1, c3 together are enough" in done.stdout, done.stdout)
    found = lab.report(plan)
    check(found["changes"] == ["c1", "c3"] and found["result"] == "found", found)
    check(0 < found["error_bound"] < 0.05, found["error_bound"])
    recorded = lab.rows("plan", "SELECT count(*) FROM lab_decision")[0][0]
    check(recorded == len(found["decisions"]), recorded)
    sets = [tuple(d["changes"]) for d in found["decisions"]]
    check(len(set(sets)) == len(sets), "a set was decided twice", sets)
    # Without a cure among the changes the answer is that there is none, not some set.
    lab.plan("none", FACTORS=factors, REST=rest, ENVIRONMENT=', FAKE_NEEDS: "C1 C9"')
    check(lab.run("minimise", lab.path("none.yaml"), code=1).stdout.count("fails with all changes together") == 1, "none")
    # Nothing needed.
    lab.plan("clean", FACTORS=factors, REST=rest, RATE="0")
    check("passes without any change" in lab.run("minimise", lab.path("clean.yaml"), code=0).stdout, "clean")
    # A change that breaks the service is never a pass: it is left out.
    lab.plan("breaks", FACTORS=factors, RETRIES="0", START="2s", ENVIRONMENT=', FAKE_NEEDS: "C1"',
             REST="minimise:\n  cell: {a: x}\n  changes:\n    good: {environment: {C1: 1}}\n"
                  "    bad: {environment: {FAKE_START: die}}\n")
    broken = lab.run("minimise", lab.path("breaks.yaml"), code=4)
    check("could not be decided" in broken.stdout, broken.stdout)


def interrupted(lab):
    """SIGINT and SIGTERM stop everything and lose nothing."""
    hold, asked = lab.path("hold"), lab.path("asked")
    plan = lab.plan(ENVIRONMENT=f", FAKE_CHILDREN: 2, FAKE_HOLD: {hold}, FAKE_TOUCH: {asked}")
    for number in (signal.SIGINT, signal.SIGTERM):
        # Held, as it could be over before the signal comes. The first one is somewhere in its start, the second in a trial.
        lab.write("hold", "")
        run = lab.start("resume" if number == signal.SIGTERM else "run", plan)
        wait_for(lambda: lab.processes(wait=0), "the service")
        if number == signal.SIGTERM:
            wait_for(lambda: os.path.exists(asked), "a trial")
        run.send_signal(number)
        _, errors = run.communicate(timeout=120)
        check(run.returncode == 130 and "nothing is lost" in errors, run.returncode, errors)
        check(not lab.processes(), "left processes")
        if os.path.exists(asked):
            os.remove(asked)
    # While one runs, a second one does not.
    run = lab.start("resume", plan)
    wait_for(lambda: lab.processes(wait=0), "the service")
    check("another gravel lab" in lab.run("resume", plan, code=2).stderr, "a second one")
    check("not ended" in lab.run("status", plan, code=0).stdout, "status")
    os.remove(hold)
    run.communicate(timeout=250)
    check(run.returncode == 1, run.returncode)
    lab.plan("undisturbed", NAME="plan", ENVIRONMENT=f", FAKE_CHILDREN: 2, FAKE_HOLD: {hold}, FAKE_TOUCH: {asked}")
    lab.run("run", lab.path("undisturbed.yaml"), code=1)
    check(same_result(lab.report(plan)) == same_result(lab.report(lab.path("undisturbed.yaml"))), "results differ")


def bad_plans(lab):
    """Each mistake is refused with its line and a remedy."""
    good = open(lab.plan()).read()
    cases = [
        ("version: 1", "version: 2", "`version: 1`"),
        ("  health:", "  helth:", 'no key "helth"'),
        ("sessions: 20", "sessions: many", "`sessions` must be a whole number"),
        ("${port}/health", "${prot}/health", "no placeholder ${prot}"),
        ("timeout: 60s", "timeout: soon", "must be a time such as 90s"),
        ("kind: full", "kind: partial", "full, one-factor, fraction or cells"),
        ("clean: 0.01", "clean: 0.2", "must be below `corrupt`"),
        ("format: json", "format: xml", "format: json"),
        ("corrupt: /counts/corrupt", "corrupt: counts.corrupt", "begins with \"/\""),
        ("FAKE_OVERLAP: 0", "FAKE_OVERLAP: 0, patch: x.patch", None),
        ('"off": {environment', '"off": {patch: nowhere.patch, environment', "nowhere.patch is not there"),
        ("fp8: {arguments", "fp8: {environment: {FAKE_OVERLAP: 1}, arguments", "both set FAKE_OVERLAP"),
    ]
    for old, new, message in cases:
        check(old in good, old)
        lab.write("bad.yaml", good.replace(old, new, 1))
        done = lab.run("check", lab.path("bad.yaml"))
        if message is None:
            check(done.returncode == 0, done.stderr)
            continue
        check(done.returncode in (2, 3) and message in done.stderr and "bad.yaml" in done.stderr, old, done.stderr)
    check("cannot be opened" in lab.run("check", lab.path("nowhere.yaml"), code=3).stderr, "no plan")
    check("no ledger" in lab.run("status", lab.path("plan.yaml"), code=3).stderr, "no ledger")
    check("no part `minimise`" in lab.run("minimise", lab.path("plan.yaml"), code=2).stderr, "no minimise")
    lab.write("junk", "this is no ledger" * 100)
    check("no ledger" in lab.run("status", "--ledger", lab.path("junk"), code=3).stderr, "junk ledger")
    check("did you mean" in lab.run("chekc", lab.path("plan.yaml"), code=2).stderr, "nearest verb")


main({test.__name__: test for test in (fingerprint, append_only, without_counts, never_works, retries, manifests, source, minimise,
                                       interrupted, bad_plans)})
