"""Compares runs with what they should come to. Usage: check.py FOLDER. FOLDER has
- expected: lines of TAG CODE [REASON=ROUNDS...], with TAG.json and TAG.code beside it;
- holds: lines of NUMBER, TAG, VALUES and PATHS with tabs between them, with held-NUMBER, a run's JSON, beside it.
Prints what differs, and "N passed, N failed"."""
import json
import sys

folder = sys.argv[1]
passed = failed = 0


def check(what, wanted, find):
    global passed, failed
    try:
        found = find()
    except (OSError, ValueError, LookupError) as error:
        found = repr(error)
    passed += found == wanted
    failed += found != wanted
    if found != wanted:
        print(f"FAILED: {what}: {found}, not {wanted}")


def load(name):
    with open(f"{folder}/{name}", encoding="utf-8") as file:
        return json.load(file)


def reasons(result):
    return " ".join(f"{item['reason']}={item['rounds']}" for item in result["by_reason"])


def run(tag):
    with open(f"{folder}/{tag}.code", encoding="utf-8") as file:
        code = file.read().strip()
    result = load(tag + ".json")
    return f"{code} {result['exit_code']} {reasons(result)}"


def value(result, path):
    if path == "reasons":
        return reasons(result)
    for key in path.split("."):
        result = result[int(key)] if isinstance(result, list) else result[key]
    return str(result)


for line in open(folder + "/expected", encoding="utf-8"):
    tag, code, *wanted = line.split()
    check(tag, f"{code} {code} {' '.join(wanted)}", lambda: run(tag))
for line in open(folder + "/holds", encoding="utf-8"):
    number, tag, values, paths = line.rstrip("\n").split("\t")
    check(f"{tag}, {paths}", values, lambda: " ".join(value(load(f"held-{number}"), path) for path in paths.split()))
print(f"{passed} passed, {failed} failed")
