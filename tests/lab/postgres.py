#!/usr/bin/env python3
"""gravel lab with a ledger in PostgreSQL: postgres.py BUILD [TEST]

Starts a server of its own that listens on a socket in a folder of its own. Exits with 77 (skipped) where PostgreSQL's
server is not installed."""
import glob
import json
import os
import pwd
import shutil
import subprocess
import sys
import tempfile

from labtest import Lab, check, same_result, wait_for

SKIPPED = 77


class Server:
    def __init__(self):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
        self.programs = os.path.dirname(found[-1]) if found else None
        if not self.programs:
            return
        self.folder = tempfile.mkdtemp(prefix="gravel-pg-")
        # The server refuses to run as root.
        self.user = "postgres" if os.getuid() == 0 else None
        if self.user:
            entry = pwd.getpwnam(self.user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
        self.data = os.path.join(self.folder, "data")
        self.command("initdb", "-D", self.data, "-A", "trust", "-U", "lab", "--no-sync")
        self.command("pg_ctl", "-D", self.data, "-w", "-l", os.path.join(self.folder, "log"), "-o",
                     f"-c listen_addresses='' -k {self.folder}", "start")
        self.url = f"postgresql://lab@/postgres?host={self.folder}"

    def command(self, name, *arguments):
        words = [os.path.join(self.programs, name), *arguments]
        if self.user:
            words = ["runuser", "-u", self.user, "--", *words]
        done = subprocess.run(words, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=120) if name != "pg_ctl" else subprocess.run(
                                  words, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                  stderr=subprocess.DEVNULL, text=True, timeout=120)
        check(done.returncode == 0, name, done.stdout)

    def query(self, sql):
        done = subprocess.run([os.path.join(self.programs, "psql"), "-XAtq", self.url, "-c", sql], capture_output=True,
                              text=True, timeout=60)
        return done.returncode, done.stdout.strip(), done.stderr

    def close(self):
        self.command("pg_ctl", "-D", self.data, "-m", "immediate", "stop")
        shutil.rmtree(self.folder, ignore_errors=True)


def trials(lab):
    """The trials that are held: a fake trial each."""
    found = []
    for pid in lab.processes(wait=0):
        try:
            if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "fake_trial":
                found.append(pid)
        except OSError:
            pass  # it has ended
    return found


def workers(lab, server):
    """Three workers, of which one is killed in a trial, come to what one comes to with SQLite; no trial is run twice."""
    hold = lab.path("hold")
    plan = lab.plan(ENVIRONMENT=f", FAKE_CHILDREN: 1, FAKE_HOLD: {hold}")
    lab.run("run", plan, "--quiet", code=1)
    alone = lab.report(plan)
    where = ["--ledger", server.url]
    lab.write("hold", "")
    runs = [lab.start("run", plan, "--quiet", "--output", lab.path(f"host{i}"), *where) for i in range(3)]
    # Each holds a trial when the first one is killed in its own.
    wait_for(lambda: len(trials(lab)) >= 3, "a trial of each worker")
    runs[0].kill()
    runs[0].communicate()
    os.remove(hold)
    for run in runs[1:]:
        _, errors = run.communicate(timeout=250)
        check(run.returncode == 1, run.returncode, errors)
    together = json.loads(lab.run("report", plan, "--json", *where).stdout)
    check(same_result(together) == same_result(alone), together, alone)
    _, twice, _ = server.query("SELECT count(*) FROM (SELECT trial FROM lab_attempt WHERE final = 1 GROUP BY trial "
                               "HAVING count(*) != 1) x")
    check(twice == "0", twice)
    _, hosts, _ = server.query("SELECT count(DISTINCT regexp_replace(folder, '/run-.*', '')) FROM lab_attempt")
    check(int(hosts) >= 2, "one worker did everything", hosts)
    # Append-only there too.
    for sql in ("UPDATE lab_attempt SET corrupt = 0", "DELETE FROM lab_trial", "TRUNCATE lab_event"):
        code, _, errors = server.query(sql)
        check(code != 0 and "append-only" in errors, sql, errors)
    check("was run already" in lab.run("run", plan, *where, code=2).stderr, "second run")


def worker_verb(lab, server):
    """A worker takes what is there to claim and goes; its ledger's address comes by the environment."""
    hold = lab.path("hold")
    plan = lab.plan(ENVIRONMENT=f", FAKE_HOLD: {hold}")
    where = ["--ledger", server.url]
    lab.write("hold", "")
    # Plan the first block without running it: a run that is killed at once leaves it pending.
    run = lab.start("run", plan, "--quiet", *where)
    wait_for(lambda: trials(lab), "a trial")
    run.kill()
    run.communicate()
    os.remove(hold)
    # Its claim ends with its connection, once the server has noticed.
    wait_for(lambda: server.query("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND "
                                  "pid != pg_backend_pid()")[1] == "0", "the end of its connection")
    environment = dict(os.environ, GRAVEL_LAB_LEDGER=server.url)
    done = lab.run("worker", "--output", lab.path("worker"), env=environment)
    check(done.returncode in (0, 1), done.returncode, done.stderr)
    check(server.query("SELECT count(*) FROM lab_trial t WHERE NOT EXISTS (SELECT 1 FROM lab_attempt a WHERE "
                       "a.trial = t.number AND final = 1)")[1] == "0", "trials are left")
    lab.run("resume", *where, "--quiet", plan, code=1)


def unreachable(lab, server):
    """A server that is not there, and a lost password, are told as such."""
    plan = lab.plan()
    done = lab.run("run", plan, "--ledger", "postgresql://lab:hunter2@/postgres?host=/nowhere", code=3)
    check("cannot be reached" in done.stderr and "hunter2" not in done.stderr, done.stderr)


def main():
    build = sys.argv[1]
    server = Server()
    if not server.programs:
        print("skipped: PostgreSQL's server is not installed (apt-get install postgresql)")
        sys.exit(SKIPPED)
    try:
        for test in (workers, worker_verb, unreachable):
            server.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            lab = Lab(build)
            try:
                test(lab, server)
            finally:
                lab.close()
            print(f"{test.__name__}: passed")
    finally:
        server.close()


if __name__ == "__main__":
    main()
