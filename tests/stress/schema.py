"""Checks the JSON that `gravel stress` wrote against docs/stress.md: every key printed is explained there, and
every key explained is printed by at least one file. Usage: schema.py stress.md result.json..."""
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from documented_keys import documented, walk  # noqa: E402

# What the user sets, or a tool's arguments: any keys.
OPEN_ENDED = ("options.body", "rounds.expected.arguments", "messages")

keys = documented(sys.argv[1])
printed = {"gravel-stress": set(), "gravel-transcript": set()}
for path in sys.argv[2:]:
    document = json.load(open(path, encoding="utf-8"))
    if document.get("schema") not in printed:
        continue
    assert document["version"] == 1, path
    walk(document, "", printed[document["schema"]], OPEN_ENDED)

wrong = False
for schema, names in printed.items():
    for name in sorted(names - keys.get(schema, set())):
        print(f"{schema}: {name} is printed and not documented")
        wrong = True
    for name in sorted(keys.get(schema, set()) - names):
        print(f"{schema}: {name} is documented and never printed")
        wrong = True
sys.exit(wrong)
