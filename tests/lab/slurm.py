#!/usr/bin/env python3
"""gravel lab whose trials are Slurm jobs: slurm.py BUILD

Starts a cluster of one node, with daemons, state and keys in a folder of its own, and a PostgreSQL server for the ledger.
Needs root, because slurmd does. Exits with 77 (skipped) where Slurm, PostgreSQL or root is missing; `make lab-slurm`
installs what is missing first."""
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from labtest import Lab, check, same_result
from postgres import SKIPPED, Server

CONFIGURATION = """\
ClusterName=gravel
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/builtin
ReturnToService=2
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=500 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:4
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Cluster:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="gravel-slurm-")
        os.chmod(self.folder, 0o755)
        for name in ("state", "spool"):
            os.makedirs(os.path.join(self.folder, name))
        self.daemons = []
        controller, node = free_ports(2)
        path = os.path.join(self.folder, "slurm.conf")
        with open(path, "w") as out:
            out.write(CONFIGURATION.format(folder=self.folder, host=socket.gethostname().split(".")[0],
                                           controller=controller, node=node, cpus=os.cpu_count()))
        key = os.path.join(self.folder, "munge.key")
        with open(key, "wb") as out:
            out.write(os.urandom(64))
        os.chmod(key, 0o600)
        os.environ["SLURM_CONF"] = path
        self.start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={self.folder}/munge.socket",
                   f"--pid-file={self.folder}/munged.pid", f"--log-file={self.folder}/munged.log",
                   f"--seed-file={self.folder}/munged.seed")
        self.wait("munge", lambda: os.path.exists(f"{self.folder}/munge.socket"))
        self.start("slurmctld", "-D", "-c")
        self.start("slurmd", "-D", "-c")
        self.wait("an idle node", lambda: "idle" in subprocess.run(["sinfo", "-h", "-o", "%T"], capture_output=True,
                                                                   text=True).stdout)

    def start(self, name, *arguments):
        program = shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")
        log = open(os.path.join(self.folder, f"{name}.out"), "w")
        self.daemons.append(subprocess.Popen([program, *arguments], stdout=log, stderr=log, stdin=subprocess.DEVNULL))

    def wait(self, what, done):
        until = time.monotonic() + 60
        while not done():
            if time.monotonic() > until:
                for name in sorted(os.listdir(self.folder)):
                    if name.endswith((".log", ".out")):
                        print(name, open(os.path.join(self.folder, name), errors="replace").read()[-2000:])
                raise AssertionError(f"{what} did not come within 60 s")
            time.sleep(0.2)

    def close(self):
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def run_as_jobs(lab, server):
    plan = lab.plan(ENVIRONMENT=", FAKE_CHILDREN: 1", SESSIONS="20")
    lab.run("run", plan, "--quiet", code=1)
    alone = lab.report(plan)
    os.makedirs(lab.path("jobs"))
    text = open(plan).read() + "executor: {kind: slurm, jobs: 3, options: [--ntasks=1]}\n"
    jobs = lab.write("jobs/plan.yaml", text)
    check("needs a ledger" in lab.run("run", jobs, code=2).stderr, "a ledger that is not shared")
    done = lab.run("run", jobs, "--ledger", server.url, "--output", lab.path("jobs.lab"))
    check(done.returncode == 1, done.returncode, done.stdout, done.stderr)
    together = json.loads(lab.run("report", "--ledger", server.url, "--json").stdout)
    check(same_result(together) == same_result(alone), together, alone)
    logs = [name for name in os.listdir(lab.path("jobs.lab")) if name.startswith("slurm-") and name.endswith(".log")
            and name != "slurm-command.log"]
    check(len(logs) >= 2, "no trial ran as a job", logs)
    print(f"{len(logs)} jobs ran {together['trials']} trials; the report equals that of one process with SQLite")


def failing_jobs(lab, server):
    """Jobs that cannot do anything end the run with a message, not in an endless row of jobs."""
    plan = lab.plan(REST="executor: {kind: slurm, jobs: 2, options: [--chdir=/]}\n")
    broken = lab.write("gravel-that-fails", "#!/bin/sh\nexit 9\n")
    os.chmod(broken, 0o755)
    text = open(plan).read().replace("--chdir=/", f"\"--export=ALL,GRAVEL_LAB_PROGRAM={broken}\"")
    lab.write("plan.yaml", text)
    done = lab.run("run", plan, "--ledger", server.url, "--output", lab.path("broken.lab"))
    check(done.returncode == 3 and "ended without a result" in done.stderr, done.returncode, done.stderr)


def main():
    missing = [name for name in ("sbatch", "squeue", "slurmctld", "slurmd", "munged")
               if not (shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin"))]
    if missing or os.getuid() != 0:
        print("skipped: " + (f"{', '.join(missing)} not installed; `make lab-slurm` installs Slurm" if missing
                             else "slurmd needs root"))
        sys.exit(SKIPPED)
    server = Server()
    if not server.programs:
        print("skipped: PostgreSQL's server is not installed; `make lab-slurm` installs it")
        sys.exit(SKIPPED)
    cluster = None
    try:
        cluster = Cluster()
        for test in (run_as_jobs, failing_jobs):
            server.query("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
            lab = Lab(sys.argv[1])
            try:
                test(lab, server)
            finally:
                lab.close()
            print(f"{test.__name__}: passed")
    finally:
        if cluster:
            cluster.close()
        server.close()


main()
