"""Checks JSON outputs against the keys that docs/findings.md documents: every key printed is explained there, and every
key explained is printed by at least one of the outputs. Usage: schema.py findings.md output.json..."""
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
            walk(inner, name, found)
    elif isinstance(value, list):
        for inner in value:
            walk(inner, place, found)


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
    walk(document, "", found)
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
