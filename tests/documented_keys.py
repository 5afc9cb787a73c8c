"""What the checks of JSON against its document share: the keys a document explains, and those a value has."""
import re


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


def walk(value, place, found, open_ended=()):
    """Adds the keys of a value to `found`, with dots for nesting; not those inside a member that is `open_ended`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            name = f"{place}.{key}" if place else key
            found.add(name)
            if name not in open_ended:
                walk(inner, name, found, open_ended)
    elif isinstance(value, list):
        for inner in value:
            walk(inner, place, found, open_ended)
