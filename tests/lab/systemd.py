#!/usr/bin/env python3
"""gravel lab with a service that is a unit of a real systemd: systemd.py BUILD. The manager is a user's, started for the
test in a mount namespace of its own, so that neither the machine's manager nor its /run is touched. Exit code 77 where
that is not possible: no systemd, no right to a namespace, or no cgroup to write to."""
import os
import shutil
import signal
import subprocess
import sys
import time

from labtest import Lab, check, wait_for

MANAGER = "/lib/systemd/systemd"
UNIT = """\
[Service]
ExecStart=@HERE@/fake_service --port ${FAKE_PORT} --rate 50
Environment=FAKE_OVERLAP=1 FAKE_LEFT="by the unit"
"""
FACTORS = """\
factors:
  capture:
    graph: {environment: {FAKE_CAPTURE: graph}}
    eager: {environment: {FAKE_CAPTURE: eager}}
  overlap:
    "on": {environment: {FAKE_OVERLAP: 1}}
    "off": {environment: {FAKE_OVERLAP: 0}}
"""


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def enter_namespace():
    """Runs this test again in a mount namespace whose /run says that systemd runs here."""
    if not os.path.exists(MANAGER) or not shutil.which("systemctl") or not shutil.which("unshare"):
        skip("systemd is not installed")
    script = "mount -t tmpfs tmpfs /run && mkdir -p /run/systemd/system && exec \"$@\""
    if subprocess.run(["unshare", "-m", "sh", "-c", script, "x", "true"], capture_output=True).returncode != 0:
        skip("a mount namespace needs root")
    os.execvp("unshare", ["unshare", "-m", "sh", "-c", script, "x", sys.executable, "-B", *sys.argv, "inside"])


def start_manager(lab):
    runtime, home = lab.path("runtime"), lab.path("home")
    os.mkdir(runtime, 0o700)
    os.mkdir(home)
    os.environ.update(XDG_RUNTIME_DIR=runtime, HOME=home, XDG_CONFIG_HOME=lab.path("config"))
    os.environ.pop("DBUS_SESSION_BUS_ADDRESS", None)
    log = open(lab.path("manager.log"), "w")
    manager = subprocess.Popen([MANAGER, "--user", "--unit=basic.target", "--log-target=console"], stdout=log, stderr=log)
    # The manager answers once its first job is done; one that cannot work here (no cgroup) ends, or never answers.
    until = time.monotonic() + 60
    while subprocess.run(["systemctl", "--user", "is-system-running", "--wait"], capture_output=True).stdout.strip() \
            not in (b"running", b"degraded"):
        if manager.poll() is not None or time.monotonic() > until:
            manager.kill()
            skip("a user's manager does not run here: " + open(lab.path("manager.log")).read()[-300:])
        time.sleep(0.05)
    return manager


def plan(lab, name, **values):
    path = lab.plan(name, FACTORS=FACTORS, **values)
    with open(path) as text:
        changed = text.read()
    command = f'  command: ["{lab.here}/fake_service", --port, "${{port}}", --rate, "50"]\n'
    check(command in changed, changed)
    changed = changed.replace(command, "  unit: gravel-fake.service\n  user_unit: true\n")
    changed = changed.replace("environment: {FAKE_SEED:", 'environment: {FAKE_PORT: "${port}", FAKE_SEED:')
    return lab.write(name + ".yaml", changed)


def show(property):
    done = subprocess.run(["systemctl", "--user", "show", f"--property={property}", "--value", "gravel-fake.service"],
                          capture_output=True, text=True, check=True)
    return done.stdout.strip()


def left_as_it_was(lab):
    check(show("ActiveState") in ("inactive", "failed"), show("ActiveState"))
    check(show("DropInPaths") == "", show("DropInPaths"))
    check(not lab.processes(), "left processes")


def fingerprint(lab):
    path = plan(lab, "plan")
    lab.run("check", path, code=0)
    lab.run("run", path, code=1)
    verdicts = {tuple(cell["cell"].values()): cell["verdict"] for cell in lab.report(path)["cells"]}
    check(verdicts == {("graph", "on"): "corrupt", ("graph", "off"): "clean", ("eager", "on"): "clean",
                       ("eager", "off"): "clean"}, verdicts)
    # The manifest is of the process that systemd started: the plan's variables and the unit's own.
    rows = lab.rows("plan", "SELECT DISTINCT manifest FROM lab_manifest m JOIN lab_attempt_manifest a USING(sha256) "
                            "WHERE a.stage = 'started'")
    texts = [row[0] for row in rows]
    check(texts and all("FAKE_SEED" in text and "by the unit" in text for text in texts), texts[:1])
    check(any(os.path.realpath(lab.path("fake_service")) in text for text in texts), texts[:1])
    left_as_it_was(lab)


def without_counts(lab):
    one = 'design: {kind: cells, cells: [{capture: graph, overlap: "on"}], blocks: 1}'
    for name, variables, start, reason in [
            ("dies", ", FAKE_START: die", "120s", "before it was ready|has no main process"),
            ("deaf", ", FAKE_START: deaf", "1s", "not ready within 1 s"),
            ("killed", ", FAKE_DIE_AT: 7", "120s", "ended while the trial ran|ended with exit code 6"),
            ("odd", ', FAKE_NOTE: "50 % of \\"it\\" \\\\"', "120s", None)]:
        path = plan(lab, name, RETRIES="0", DESIGN=one, ENVIRONMENT=variables, START=start)
        lab.run("run", path)
        report = lab.report(path)
        if reason:
            attempts = report["without_counts"]
            check(attempts and attempts[0]["outcome"] == "infrastructure" and
                  any(part in attempts[0]["reason"] for part in reason.split("|")), name, attempts)
        else:  # quoting: what the plan says is what the process has
            check(report["cells"][0]["sessions"] == 20, report["cells"])
            text = lab.rows(name, "SELECT manifest FROM lab_manifest m JOIN lab_attempt_manifest a USING(sha256) "
                                  "WHERE a.stage = 'started'")[0][0]
            check('50 % of \\"it\\" \\\\' in text, text)
        left_as_it_was(lab)


def interrupted(lab):
    """kill -9 of the lab in a trial: the next one stops the unit, takes its drop-in away and goes on."""
    hold, touched = lab.write("hold", ""), lab.path("touched")
    path = plan(lab, "cut", ENVIRONMENT=f", FAKE_TOUCH: {touched}, FAKE_HOLD: {hold}")
    running = lab.start("run", path)
    wait_for(lambda: os.path.exists(touched) or running.poll() is not None, "a trial")
    running.send_signal(signal.SIGKILL)
    running.communicate()
    check(show("DropInPaths") != "", "the drop-in is there while the trial runs")
    os.remove(hold)
    lab.run("resume", path, code=1)
    check({c["verdict"] for c in lab.report(path)["cells"]} == {"clean", "corrupt"}, "resumed")
    left_as_it_was(lab)


def main():
    if "inside" not in sys.argv:
        enter_namespace()
    lab = Lab(sys.argv[1])
    manager = None
    try:
        manager = start_manager(lab)
        folder = lab.path("config", "systemd", "user")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "gravel-fake.service"), "w") as out:
            out.write(UNIT.replace("@HERE@", lab.here))
        subprocess.run(["systemctl", "--user", "daemon-reload"], check=True)
        for test in (fingerprint, without_counts, interrupted):
            test(lab)
    finally:
        if manager:
            manager.terminate()
            manager.wait()
        for pid in lab.processes(wait=0):
            os.kill(pid, signal.SIGKILL)
        lab.close()
    print("systemd: passed")


main()
