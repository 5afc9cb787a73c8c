"""The incident's fix: the specimen is recorded in the incident's configuration, `gravel fix` names its edges, and every
smaller set of edges is tried. Usage: fix.py BUILD"""
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile

build = os.path.abspath(sys.argv[1])
gravel = os.path.join(build, "gravel")


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def table(trace, name):
    return json.loads(run(gravel, "show", "--json", trace, name)[1])["rows"]


def closure(count, edges):
    """For each node the set of nodes that it leads to, as bits; every edge leads to a node with a greater number."""
    leads = [1 << n for n in range(count)]
    for start in range(count - 1, -1, -1):
        for end in edges.get(start, ()):
            leads[start] |= leads[end]
    return leads


def fewest(nodes, edges, pairs, limit):
    """The least number of added edges, all forward in the order of making, that order every pair; None if it is not
    below `limit`."""
    place = {node["node"]: node["order"] - 1 for node in nodes}
    forward = {}
    for edge in edges:
        forward.setdefault(place[edge["from"]], []).append(place[edge["to"]])
    pairs = {(place[a], place[b]) for a, b in pairs}
    leads = closure(len(nodes), forward)
    assert all(a < b and not leads[a] >> b & 1 for a, b in pairs), "a pair is ordered already, or against the program"
    # An edge that orders no pair alone may still help others: none is left out.
    candidates = [(a, b) for a in range(len(nodes)) for b in range(a + 1, len(nodes)) if not leads[a] >> b & 1]
    for size in range(1, limit):
        for added in itertools.combinations(candidates, size):
            more = {start: list(ends) for start, ends in forward.items()}
            for a, b in added:
                more.setdefault(a, []).append(b)
            now = closure(len(nodes), more)
            if all(now[a] >> b & 1 for a, b in pairs):
                return size
    return None


def main():
    with tempfile.TemporaryDirectory() as folder:
        trace, fix = os.path.join(folder, "t.gravel"), os.path.join(folder, "fix.json")
        code, said = run(gravel, "run", "--soft", "-o", trace, "--", os.path.join(build, "gravel-specimen"), "run", "--batch",
                         "8", "--buckets", "8", "--sessions", "8", "--rounds", "1")
        assert code == 0, said
        code, said = run(gravel, "fix", trace, "-o", fix)
        said = " ".join(said.split())
        assert code == 0 and "Checked again with them, the traces have no race." in said, said
        (edges, at_least), = re.findall(r"\[fix\][^\[]* edges=(\d+) at_least=(\d+)", said)
        assert edges == at_least, said
        written = json.load(open(fix, encoding="utf-8"))["graphs"]
        assert len(written) == 1 and len(written[0]["edges"]) == int(edges), written
        for edge in written[0]["edges"]:
            assert not edge["reversed"] and edge["path"] == [] and edge["orders"], edge
        # The overlap that is left: far from all of it goes, as it does with the branches on one stream.
        cost = written[0]["cost"]
        assert cost["before"] <= cost["after"] < cost["side_streams"] <= cost["serial"], cost

        report = json.loads(run(gravel, "check", "--json", trace)[1])
        pairs = [(pair["first"]["node"], pair["second"]["node"]) for finding in report["findings"]
                 for pair in finding.get("pairs", [])]
        graph = report["findings"][0]["graph"]["id"]
        nodes = [row for row in table(trace, "nodes") if row["graph"] == graph]
        arcs = [row for row in table(trace, "edges") if row["graph"] == graph]
        assert pairs and all(row["kind"] == "ordinary" for row in arcs)
        less = fewest(nodes, arcs, pairs, int(edges))
        assert less is None, f"{less} edges are enough, and gravel fix adds {edges}"
        print(f"{len(nodes)} nodes, {len(pairs)} pairs: {edges} edges, and no fewer do")


main()
