#!/usr/bin/env python3
"""kill -9 of `gravel lab` at random instants: kill.py BUILD KILLS [SEED]

A run and a minimisation are killed again and again and resumed; in the end their reports must equal those of undisturbed
ones with the same seed, no trial may have been lost or counted twice, and no process may be left. Some trials meet an
infrastructure error at the first attempt, so that kills fall between attempts too."""
import os
import random
import signal
import subprocess
import sys
import time

from labtest import Lab, check, same_result

MINIMISE = """\
minimise:
  cell: {keys: bf16, overlap: "on"}
  changes:
    a: {environment: {A: 1}}
    b: {environment: {B: 1}}
    off: {environment: {C: 1}}
    d: {environment: {D: 1}}
"""


def kill_and_resume(lab, kind, plan, reference, kills, whole, rng):
    """Kills until `kills` were spent or the experiment has ended. Returns how many it took."""
    done = 0
    begun = False
    while done < kills:
        run = subprocess.Popen([lab.gravel, "lab", "resume" if begun else kind, plan, "--quiet",
                                *(["--kind", kind] if begun else [])], cwd=lab.here, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
        # Anywhere in the first third of what an undisturbed one takes; now and then in the first milliseconds, where the
        # ledger is made.
        time.sleep(rng.choice([rng.uniform(0, 0.02), rng.uniform(0, whole / 3), rng.uniform(0, whole / 3)]))
        run.kill()
        _, errors = run.communicate()
        if run.returncode in (0, 1, 4):
            break
        if run.returncode != -signal.SIGKILL:
            # Killed before the experiment was there: then there is nothing to resume yet.
            check(begun and ("holds no experiment" in errors or "no ledger" in errors), run.returncode, errors)
            begun = False
            continue
        done += 1
        begun = True
        # What the killed one ran is gone or going; the next one does not start before it is.
    for _ in range(2):
        last = lab.run("resume", plan, "--kind", kind, "--quiet")
        if last.returncode in (0, 1, 4):
            break
        last = lab.run(kind, plan, "--quiet")
    check(last.returncode in (0, 1, 4), last.stderr)
    result = lab.report(plan, "--kind", kind)
    check(same_result(result) == same_result(reference), "the resumed result differs", result, reference)
    return done


def main():
    build, kills = sys.argv[1], int(sys.argv[2])
    rng = random.Random(int(sys.argv[3]) if len(sys.argv) > 3 else 1)
    lab = Lab(build)
    total = rounds = 0
    try:
        flaky = lab.write("flaky.sh", """\
# The first attempt of every third trial fails: the attempt's folder ends with its number.
case $1 in *[0369]-1) exit 7 ;; esac
shift
exec "$@"
""")
        def make(name):
            plan = lab.plan(name, NAME="kill", SEED="17", ENVIRONMENT=', FAKE_CHILDREN: 2', REST=MINIMISE, SESSIONS="10",
                            DESIGN="design: {kind: full, blocks: 12}")
            with open(plan) as text:
                changed = text.read().replace(f'command: ["{lab.here}/fake_service"',
                                              f'command: [sh, {flaky}, "${{out}}", "{lab.here}/fake_service"')
            # The set {off} cures: its variable is what the service needs.
            changed = changed.replace('FAKE_CHILDREN: 2', 'FAKE_CHILDREN: 2, FAKE_NEEDS: "${env.NEEDS}"')
            return lab.write(f"{name}.yaml", changed)

        os.environ["NEEDS"] = "C"
        reference, whole = {}, {}
        plan = make("undisturbed")
        for kind in ("run", "minimise"):
            start = time.monotonic()
            lab.run(kind, plan, "--quiet")
            whole[kind] = time.monotonic() - start
            reference[kind] = lab.report(plan, "--kind", kind)
        check(reference["minimise"]["changes"] == ["off"], reference["minimise"])
        check(reference["run"]["without_counts"], "no attempt failed")
        while total < kills:
            name = f"killed{rounds}"
            plan = make(name)
            for kind in ("run", "minimise"):
                if total < kills:
                    total += kill_and_resume(lab, kind, plan, reference[kind], kills - total, whole[kind], rng)
                    lost = lab.rows(name, "SELECT t.experiment, t.number FROM lab_trial t LEFT JOIN lab_attempt a ON "
                                          "a.experiment = t.experiment AND a.trial = t.number AND a.final = 1 "
                                          "GROUP BY t.experiment, t.number HAVING count(a.trial) != 1")
                    check(not lost, "trials lost or ended twice", lost)
            rounds += 1
        check(not lab.processes(), "processes are left")
    except BaseException:
        for pid in lab.processes(wait=0):
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        lab.close()
    print(f"kill: {total} kills in {rounds} rounds; every resumed result equals the undisturbed one")


main()
