"""Checks the traces that were recorded on a GPU (tests/data/gpu) against what was found in them then.

usage: gpu_traces.py GRAVEL [--update]

Beside NAME.gravel stands NAME.expect: the exit code of `gravel check` and the properties of its findings, which do not
change when the wording does. --update writes them anew; look at the difference before you commit it. In the traces the
folder that the programs were in has been replaced by /home/user.
"""

import glob
import os
import subprocess
import sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu")


def verdict(gravel, path):
    result = subprocess.run([gravel, "check", path], capture_output=True, text=True, timeout=60)
    lines = [f"exit {result.returncode}"]
    lines += [line.strip() for line in result.stdout.splitlines() if line.strip().startswith("[properties]")]
    # Where the two sides were launched: the point of a report.
    lines += [" ".join(line.split()) for line in result.stdout.splitlines() if ", launched at " in line]
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    gravel, update = os.path.abspath(sys.argv[1]), "--update" in sys.argv
    failed = passed = 0
    for path in sorted(glob.glob(HERE + "/*.gravel")):
        name = os.path.basename(path)[: -len(".gravel")]
        expected_path = f"{HERE}/{name}.expect"
        seen = verdict(gravel, path)
        if os.path.getsize(path) > 1 << 20:
            print(f"{name}: larger than 1 MiB")
            failed += 1
        elif update:
            with open(expected_path, "w") as file:
                file.write(seen)
        else:
            with open(expected_path) as file:
                expected = file.read()
            if seen == expected:
                passed += 1
            else:
                failed += 1
                print(f"--- {name}: expected\n{expected}--- {name}: seen\n{seen}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(1 if failed or not (passed or update) else 0)


main()
