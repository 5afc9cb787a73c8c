"""Compares what gravel recorded of access_truth.py's operations with the bytes that follow from their shapes."""

import json


def parse(output):
    """The cases of the program's output, in the order of their graphs, and the names of those it could not make."""
    cases, refused = [], []
    for line in output.splitlines():
        if line.startswith("case "):
            cases.append(json.loads(line[len("case "):]))
        elif line.startswith("refused "):
            refused.append(line[len("refused "):])
    return cases, refused


def union(ranges):
    """Joined and in order."""
    joined = []
    for start, end in sorted(ranges):
        if joined and start <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([start, end])
    return joined


def clip(ranges, storage):
    return [[max(start, storage[0]), min(end, storage[1])] for start, end in ranges
            if start < storage[1] and end > storage[0]]


def size(ranges):
    return sum(end - start for start, end in ranges)


def covers(outer, inner):
    return size(union(outer)) == size(union(outer + inner))


def first_difference(seen, expected):
    """Where two unions differ first, relative to the first expected byte."""
    base = expected[0][0] if expected else (seen[0][0] if seen else 0)
    for a, b in zip(seen + [None], expected + [None]):
        if a != b:
            def text(piece):
                return "[%d,%d)" % (piece[0] - base, piece[1] - base) if piece else "nothing"
            return "%s instead of %s" % (text(a), text(b))
    return "nothing"


def compare(case, rows):
    """`rows`: those of `gravel show access` that belong to the case's graph. Returns (complaint or None, words)."""
    incomplete = [row for row in rows if row["precision"] == "incomplete"]
    if incomplete:
        return "%s is incomplete: %s" % (incomplete[0]["name"][:60], incomplete[0]["reason"]), None
    if not rows:
        return "nothing was recorded", None
    exact = all(row["precision"] == "exact" for row in rows if row["access"] != "writes")
    bounded = any(row["precision"] != "exact" for row in rows if row["access"] == "writes")

    def ranges(kind, wanted=("exact", "extent")):
        return [[int(a, 16), int(b, 16)] for row in rows if row["access"] == kind and row["precision"] in wanted
                for a, b in row["ranges"]]

    for tensor in case["tensors"]:
        for kind in ("reads", "writes"):
            expected = union(tensor[kind])
            # Of writes, what happened has to be known to the byte; an upper bound may stand beside it.
            pieces = ranges(kind, ("exact",) if kind == "writes" else ("exact", "extent")) + ranges("atomics")
            found = union(clip(pieces, tensor["storage"]))
            # An upper bound may hold more than is read, but inside the tensor only.
            good = found == expected or (kind == "reads" and not exact and covers(found, expected))
            # Of a 64-bit index a kernel with 32-bit indices loads the low half.
            good = good or (kind == "reads" and found == union(tensor.get("low_halves", [])) != [])
            # A kernel that adds into its output may read it or not; what it may not is read beside it.
            if not good and kind == "reads" and tensor["writes"] and not expected:
                good = covers(union(tensor["writes"]), found)
            if not good:
                return "%s of %s: %d bytes instead of %d; first difference %s" % (
                    kind, tensor["name"], size(found), size(expected), first_difference(found, expected)), None
    return None, "%s, %d read, %d written" % (
        "%s%s" % ("exact" if exact else "reads by extent", ", with an upper bound of writes" if bounded else ""),
        sum(size(union(tensor["reads"])) for tensor in case["tensors"]),
        sum(size(union(tensor["writes"])) for tensor in case["tensors"]))
