"""What the programs of this folder run on: the software driver, or with the argument --gpu the GPU of this machine. There
schedules are no choice, and times are real.
"""
import os
import sys

GPU = "--gpu" in sys.argv
if GPU:
    sys.argv.remove("--gpu")

# For `gravel run`.
OPTIONS = [] if GPU else ["--soft"]


def environment(build=None, schedule=None, **more):
    """Of a run under `gravel run`, or with `build` of one without it. However busy the machine is, no launch hangs."""
    result = dict(os.environ, GRAVEL_STALL_SECONDS="900", GRAVEL_SEARCH_SECONDS="900", **more)
    if build and not GPU:
        result["LD_LIBRARY_PATH"] = os.path.join(build, "soft")
    if schedule and not GPU:
        result["GRAVEL_SOFT_SCHEDULE"] = schedule
    return result
