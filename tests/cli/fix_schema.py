"""Checks fix files against docs/fix.md and docs/fix.schema.json: every key written is explained in the one and allowed by
the other, and every key explained or required is written by at least one of the files. Usage: fix_schema.py DOCS file..."""
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from documented_keys import documented, walk  # noqa: E402

docs, paths = sys.argv[1], sys.argv[2:]
keys = documented(os.path.join(docs, "fix.md"))["gravel-fix"]
schema = json.load(open(os.path.join(docs, "fix.schema.json"), encoding="utf-8"))
wrong = []
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "null": type(None)}


def check(value, rule, place):
    """The part of JSON Schema that the file uses."""
    if "$ref" in rule:
        rule = schema["$defs"][rule["$ref"].rsplit("/", 1)[1]]
    if "const" in rule and value != rule["const"]:
        wrong.append(f"{place} is not {rule['const']}")
    types = rule.get("type", [])
    types = types if isinstance(types, list) else [types]
    if types and type(value) not in [TYPES[name] for name in types]:
        wrong.append(f"{place} is a {type(value).__name__}")
        return
    if isinstance(value, dict):
        for key in rule["required"]:
            if key not in value:
                wrong.append(f"{place}.{key} is missing")
        for key in value:
            if key not in rule["properties"]:
                wrong.append(f"{place}.{key} is not allowed")
            else:
                check(value[key], rule["properties"][key], f"{place}.{key}")
    elif isinstance(value, list):
        if len(value) > rule["maxItems"]:
            wrong.append(f"{place} is too long")
        for i, item in enumerate(value):
            check(item, rule["items"], f"{place}[{i}]")
    elif isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        wrong.append(f"{place} does not match {rule['pattern']}")
    elif type(value) is int and "minimum" in rule and not rule["minimum"] <= value <= rule["maximum"]:
        wrong.append(f"{place} is outside of its limits")


written = set()
for path in paths:
    document = json.load(open(path, encoding="utf-8"))
    walk(document, "", written)
    check(document, schema, os.path.basename(path))
wrong += [f"{key} is written and not documented" for key in sorted(written - keys)]
wrong += [f"{key} is documented and never written" for key in sorted(keys - written)]
for line in wrong:
    print(line)
sys.exit(bool(wrong))
