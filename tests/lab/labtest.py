"""What the tests of `gravel lab` share: a folder of their own with copies of the fake programs, plans, and ways to look at
a ledger and at processes. The copies give every test's processes a path of their own to be found by."""
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

FACTORS = """\
factors:
  keys:
    bf16: {arguments: [--keys, bf16]}
    fp8: {arguments: [--keys, fp8]}
  overlap:
    "on": {environment: {FAKE_OVERLAP: 1}}
    "off": {environment: {FAKE_OVERLAP: 0}}
"""

PLAN = """\
version: 1
name: @NAME@
seed: @SEED@
retries: @RETRIES@
service:
  command: ["@HERE@/fake_service", --port, "${port}", --rate, "@RATE@"]
  environment: {FAKE_SEED: "${seed}"@ENVIRONMENT@}
@SERVICE@
  health: http://127.0.0.1:${port}/health
  ready:
    url: http://127.0.0.1:${port}/v1/chat/completions
    body: {model: x, messages: [{role: user, content: hello}], max_tokens: 4}
    expect: /choices/0/message/content
    timeout: 60s
  start_timeout: @START@
  stop: {timeout: 2s}
@FACTORS@
trial:
  command: ["@HERE@/fake_trial", --port, "${port}", --sessions, "${sessions}", --json, "${out}/counts.json"@TRIAL@]
  sessions: @SESSIONS@
  timeout: @TIMEOUT@
  failed_allowed: @ALLOWED@
  counts:
    format: json
    file: "${out}/counts.json"
    sessions: /counts/sessions
    corrupt: /counts/corrupt
    failed: /counts/failed
    list: /sessions
    verdict: /class
@DESIGN@
stop: {clean: 0.01, corrupt: 0.15, confidence: 0.95}
@REST@
"""


class Lab:
    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.gravel = os.path.join(self.build, "gravel")
        self.here = tempfile.mkdtemp(prefix="gravel-lab-")
        for name in ("fake_service", "fake_trial"):
            shutil.copy2(os.path.join(self.build, "tests", name), self.here)

    def close(self):
        left = self.processes()
        shutil.rmtree(self.here, ignore_errors=True)
        if left:
            raise AssertionError(f"processes are left: {left}")

    def path(self, *names):
        return os.path.join(self.here, *names)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as out:
            out.write(text)
        return self.path(name)

    def plan(self, name="plan", **values):
        """A plan file; the values replace @KEY@ in PLAN."""
        defaults = dict(NAME=name, SEED="5", RETRIES="2", RATE="50", ENVIRONMENT="", SERVICE="", START="120s",
                        FACTORS=FACTORS, TRIAL="", SESSIONS="20", TIMEOUT="120s", ALLOWED="0",
                        DESIGN="design: {kind: full, blocks: 6}", REST="")
        text = PLAN
        for key, value in {**defaults, **values}.items():
            text = text.replace(f"@{key}@", value)
        return self.write(f"{name}.yaml", text.replace("@HERE@", self.here))

    def start(self, *arguments, **keywords):
        return subprocess.Popen([self.gravel, "lab", *arguments], cwd=self.here, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, **keywords)

    def run(self, *arguments, code=None, timeout=800, **keywords):
        done = subprocess.run([self.gravel, "lab", *arguments], cwd=self.here, capture_output=True, text=True,
                              timeout=timeout, **keywords)
        if code is not None and done.returncode != code:
            raise AssertionError(f"gravel lab {' '.join(arguments)}: exit code {done.returncode}, not {code}\n"
                                 f"{done.stdout}\n{done.stderr}")
        return done

    def report(self, plan, *arguments):
        done = self.run("report", plan, "--json", *arguments)
        return json.loads(done.stdout)

    def rows(self, name, sql, *parameters):
        connection = sqlite3.connect(f"file:{self.path(name + '.lab', 'ledger.sqlite')}?mode=ro", uri=True)
        try:
            return connection.execute(sql, parameters).fetchall()
        finally:
            connection.close()

    def processes(self, wait=30):
        """Processes that run a program of this test's folder, after waiting a little for them to go."""
        until = time.monotonic() + wait
        while True:
            found = []
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    if os.readlink(f"/proc/{pid}/exe").startswith(self.here):
                        found.append(int(pid))
                except OSError:
                    pass
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.05)


def wait_for(condition, what, patience=120):
    """Returns the first true value of condition()."""
    until = time.monotonic() + patience
    while not (value := condition()):
        check(time.monotonic() < until, "waited in vain for", what)
        time.sleep(0.01)
    return value


def same_result(report):
    """The part of a report that does not depend on the clock."""
    return {key: value for key, value in report.items() if key != "timing"}


def check(condition, *what):
    if not condition:
        raise AssertionError(" ".join(str(part) for part in what))


def main(tests):
    """Runs the test named on the command line: BUILD NAME [ARGUMENT...]."""
    build, name = sys.argv[1], sys.argv[2]
    lab = Lab(build)
    try:
        tests[name](lab, *sys.argv[3:])
    except BaseException:
        for pid in lab.processes(wait=0):
            os.kill(pid, signal.SIGKILL)
        raise
    finally:
        lab.close()
    print(f"{name}: passed")
