"""Checks JSON outputs against the keys that docs/findings.md documents: every key printed is explained there, and every
key explained is printed by at least one of the outputs. Usage: schema.py findings.md output.json..."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from documented_keys import documented, walk  # noqa: E402


def normal(name):
    """A place and a stack have the same members wherever they stand."""
    if name.startswith("rows."):
        return "rows"
    name = re.sub(r".*\bplace\.", "place.", name)
    name = re.sub(r".*\bstack\.", "stack.", name)
    return re.sub(r".*\bpairs\.(first|second)\.", "side.", name)


keys = documented(sys.argv[1])
printed = {schema: set() for schema in keys}
for path in sys.argv[2:]:
    text = open(path, encoding="utf-8").read()
    # Golden files have the command before the output and the exit code after it.
    document = json.loads(text[text.index("\n") + 1 : text.index("\n----") + 1])
    found = set()
    walk(document, "", found, {"findings.facts"})  # which ones there are depends on the id
    assert document["version"] == 1, path
    printed[document["schema"]] |= {normal(name) for name in found}

wrong = False
for schema in ("gravel-check", "gravel-show"):
    for name in sorted(printed[schema] - keys[schema]):
        print(f"{schema}: {name} is printed and not documented")
        wrong = True
    for name in sorted(keys[schema] - printed[schema]):
        print(f"{schema}: {name} is documented and never printed")
        wrong = True
sys.exit(wrong)
