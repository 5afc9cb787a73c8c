"""Kernels that the recorder does not see, on the software driver: what becomes known of them, what check makes of it,
and that the program's memory is left as a plain run leaves it.

usage: run_opaque.py BUILD KERNELS TWINS [TEST...]
"""

import functools
import os
import re
import subprocess
import sys
import unittest

from run import BUILD, KERNELS, Recorded, incompletes, races

TARGET = BUILD + "/tests/record_opaque"
TWINS = os.path.abspath(sys.argv[3])
COLUMNS, ROWS, PITCH = 64, 16, 128
TENSOR = ROWS * PITCH
VARIABLE = 8  # bytes of the one variable of the module


@functools.lru_cache(maxsize=None)
def plain(scenario):
    """What the program prints without a recorder."""
    environment = dict(os.environ, LD_LIBRARY_PATH=BUILD + "/soft", GRAVEL_SOFT_SCHEDULE="serial")
    environment.pop("LD_PRELOAD", None)
    return subprocess.run([TARGET, scenario, KERNELS], env=environment, capture_output=True, text=True, timeout=600,
                          check=True).stdout


def sums(printed):
    return [line for line in printed.splitlines() if line.startswith("memory")]


def brief(report):
    """The findings in a few words."""
    return [f"{finding['id']} {finding.get('kind', '')} {finding.get('reason', '')}" for finding in report["findings"]]


class Run:
    def __init__(self, test, scenario, blind, **environment):
        # Serial, because what a racy graph leaves must not depend on who comes first.
        environment = {"GRAVEL_SOFT_BLIND": blind, "GRAVEL_SOFT_SCHEDULE": "serial", **environment}
        self.recorded = Recorded([TARGET, scenario, KERNELS], (), environment)
        test.addCleanup(self.recorded.folder.cleanup)
        test.assertEqual(self.recorded.code, 0, self.recorded.stderr)
        # The first launch ran armed: every byte is as after a plain one.
        test.assertEqual(sums(self.recorded.stdout), sums(plain(scenario)))
        self.report = self.recorded.checks[0]
        place = re.search(r"pool (\d+) table (\d+) sums (\d+) beside (\d+)", self.recorded.stdout)
        self.pool, self.table, self.sums, self.beside = map(int, place.groups())
        self.at = [int(line.split()[2]) for line in self.recorded.stdout.splitlines() if line.startswith("at ")]

    @functools.cached_property
    def rows(self):
        return self.recorded.show("access")

    def bytes(self, node, access, **want):
        """The bytes of all records of a node of this kind, as a set of places."""
        found = set()
        for row in self.rows:
            if row["node"] == node and row["access"] == access and all(row[key] == want[key] for key in want):
                for start, end in row["ranges"]:
                    found.update(range(int(start, 16), int(end, 16)))
        return found

    def tensor(self, number):
        start = self.pool + number * TENSOR
        return {start + row * PITCH + column for row in range(ROWS) for column in range(COLUMNS)}

    def reasons(self):
        return [finding["reason"] for finding in incompletes(self.report)]


class Opaque(unittest.TestCase):
    """What the tests below share."""

    def run_of(self, scenario, blind, **environment):
        return Run(self, scenario, blind, **environment)

    def assert_clean(self, run):
        self.assertEqual(brief(run.report), [])

    def assert_writes_are_exact(self, run, expected, node=0):
        self.assert_clean(run)
        self.assertEqual(run.bytes(node, "writes", precision="exact", source="compared"), expected)
        self.assertEqual(run.bytes(node, "writes", precision="extent"), set())
        self.assertEqual(run.bytes(node, "reads", precision="extent"), set())


class Known(Opaque):
    """What becomes known of a kernel."""

    # ---- Stores that are not seen, by a kernel whose reads are ----

    def test_stores_are_found_to_the_byte(self):
        for scenario in ("one-fill", "kept-fill", "complement-fill"):
            with self.subTest(scenario=scenario):
                run = self.run_of(scenario, "tensor_fill:stores")
                self.assert_writes_are_exact(run, run.tensor(1))

    def test_what_is_read_is_never_changed(self):
        run = self.run_of("reads-between", "tensor_fill_from:stores")
        self.assert_writes_are_exact(run, run.tensor(1))
        # The four bytes it reads are among those it writes: it does not run again.
        run = self.run_of("reads-inside", "tensor_fill_from:stores")
        self.assert_clean(run)
        certain = run.bytes(0, "writes", precision="exact")
        self.assertTrue(certain and certain <= run.tensor(1))
        self.assertEqual(run.bytes(0, "writes", precision="extent"), run.tensor(1))

    def test_a_kernel_that_writes_in_place_does_not_run_again(self):
        run = self.run_of("in-place", "tensor_increase:stores")
        self.assert_clean(run)
        self.assertEqual(run.bytes(0, "reads", precision="exact"), run.tensor(1))
        self.assertEqual(run.bytes(0, "writes", precision="exact", source="compared"), run.tensor(1))

    def test_a_kernel_that_counts_does_not_run_again(self):
        run = self.run_of("counted", "tensor_fill_counted:stores")
        self.assert_clean(run)
        self.assertEqual(len(run.bytes(0, "atomics", precision="exact")), 4)
        self.assertEqual(run.bytes(0, "writes", precision="extent"), run.tensor(1))

    def test_a_kernel_that_reads_other_things_in_its_second_run(self):
        run = self.run_of("fickle", "tensor_fill_fickle:stores")
        self.assert_clean(run)
        self.assertEqual(run.bytes(0, "writes", precision="extent"), run.tensor(1))

    # ---- Loads that are not seen ----

    def test_loads_leave_the_writes_exact(self):
        run = self.run_of("one-next", "tensor_next:loads")
        self.assert_clean(run)
        self.assertEqual(run.bytes(0, "writes"), run.tensor(3))
        self.assertEqual(run.bytes(0, "writes", precision="extent"), set())
        self.assertEqual(run.bytes(0, "reads", source="tensor map"), run.tensor(1) | run.tensor(3))

    def test_loads_and_stores_are_known_by_their_tensors(self):
        run = self.run_of("one-next", "tensor_next:loads+stores")
        self.assert_clean(run)
        self.assertEqual(run.bytes(0, "writes", precision="exact", source="compared"), run.tensor(3))
        for access in ("reads", "writes"):
            self.assertEqual(run.bytes(0, access, precision="extent", source="tensor map"),
                             run.tensor(1) | run.tensor(3))
            self.assertEqual(run.bytes(0, access, source="reached"), set())

    def test_updates_are_atomic(self):
        run = self.run_of("updates", "tensor_add:updates")
        self.assert_clean(run)
        self.assertEqual(run.bytes(0, "writes", precision="exact"), set())
        changed = run.bytes(0, "atomics", precision="exact", source="compared")
        self.assertTrue(changed and changed <= run.tensor(1))
        self.assertEqual(run.bytes(0, "writes", precision="extent"), run.tensor(1))

    # ---- Where maps stand ----

    def test_a_map_in_memory_is_found(self):
        run = self.run_of("map-in-memory", "tensor_fill_through:stores")
        self.assert_writes_are_exact(run, run.tensor(2))

    def test_a_map_that_is_replaced_may_lead_anywhere(self):
        run = self.run_of("map-in-memory", "tensor_fill_through:loads+stores+replaces")
        self.assert_clean(run)
        reached = run.bytes(0, "writes", source="reached")
        self.assertEqual(len(reached), 32 * TENSOR + 4096 + VARIABLE)
        self.assertTrue(run.tensor(31) <= reached)

    def test_a_map_that_the_kernel_makes_itself(self):
        run = self.run_of("own-map", "tensor_fill_by_own:stores+replaces")
        self.assert_clean(run)
        # It runs again, though it reads the map that it has written, and all that it stores is seen.
        self.assertTrue(run.tensor(2) <= run.bytes(0, "writes", precision="exact", source="compared"))
        # Such a map may have held something else before: what it led to is anybody's guess.
        self.assertTrue(run.tensor(31) <= run.bytes(0, "writes", precision="extent", source="reached"))

    def test_a_map_of_more_than_its_memory(self):
        run = self.run_of("endless", "tensor_fill:stores")
        self.assert_clean(run)
        extent = run.bytes(0, "writes", source="reached")
        self.assertTrue(run.tensor(1) <= extent)
        self.assertLess(max(extent), run.pool + 32 * TENSOR)

    def test_a_kernel_without_a_map_is_incomplete(self):
        run = self.run_of("pointers", "sum_all:loads+stores")
        self.assertEqual(len(run.reasons()), 1)
        self.assertIn("no tensor map of it was found", run.reasons()[0])

    # ---- Kernels of which nothing is seen ----

    def test_an_unseen_kernel_is_known_by_what_it_reaches(self):
        run = self.run_of("one-next", "tensor_next")
        self.assert_clean(run)
        self.assertEqual(run.bytes(0, "writes", precision="exact", source="compared"), run.tensor(3))
        for access in ("reads", "writes"):
            reached = run.bytes(0, access, precision="extent", source="reached")
            self.assertEqual(len(reached), 32 * TENSOR + VARIABLE)
            self.assertTrue(run.tensor(0) <= reached)

    def test_its_changes_may_be_atomic(self):
        run = self.run_of("one-next", "tensor_next:all+atomics")
        self.assert_clean(run)
        self.assertEqual(run.bytes(0, "writes", precision="exact", source="changed"), run.tensor(3))

    def test_arrays_of_pointers_are_followed(self):
        run = self.run_of("pointers", "sum_all")
        self.assert_clean(run)
        reached = run.bytes(0, "reads", source="reached")
        expected = {place + i for place in (*run.at[1:4], run.sums) for i in range(1024)}
        expected |= {run.table + i for i in range(256)}
        self.assertTrue(expected <= reached)
        self.assertEqual(len(reached), len(expected) + VARIABLE)
        self.assertFalse(run.beside in reached)
        written = run.bytes(0, "writes", precision="exact")
        self.assertTrue(written and written <= {run.sums + i for i in range(1024)})

    def test_variables_are_followed(self):
        run = self.run_of("variable", "fill_output")
        self.assert_clean(run)
        reached = run.bytes(1, "writes", source="reached")
        expected = {run.at[1] + i for i in range(1024)}
        self.assertEqual(len(reached), 1024 + VARIABLE)
        self.assertTrue(expected <= reached)
        self.assertFalse(run.beside in reached)

    # ---- Limits ----

    def test_without_memory_for_copies_extents_are_left(self):
        for environment in ({"GRAVEL_COMPARE_MEMORY": "0"}, {"GRAVEL_SOFT_MEMORY": "6000000"}):
            with self.subTest(environment=environment):
                run = self.run_of("one-fill", "tensor_fill:stores", **environment)
                self.assert_clean(run)
                self.assertEqual(run.bytes(0, "writes", precision="exact"), set())
                self.assertEqual(run.bytes(0, "writes", precision="extent"), run.tensor(1))

    def test_without_memory_to_search_the_node_is_incomplete(self):
        run = self.run_of("one-fill", "tensor_fill:stores", GRAVEL_SOFT_MEMORY="100000")
        self.assertEqual(len(run.reasons()), 1)
        self.assertIn("could not be allocated", run.reasons()[0])

    def test_without_searching_the_node_is_incomplete(self):
        for environment in ({"GRAVEL_SEARCH_MEMORY": "0"}, {"GRAVEL_SEARCH_SECONDS": "0"}):
            with self.subTest(environment=environment):
                run = self.run_of("one-fill", "tensor_fill:stores", **environment)
                self.assertEqual([f for f in brief(run.report) if f.startswith("race")], [])
                self.assertEqual(len(run.reasons()), 1)
                self.assertIn("could not be searched", run.reasons()[0])


class Decided(Opaque):
    """What the race detector makes of it."""

    def assert_race(self, run, finding_id, confidence, expected):
        found = races(run.report)
        self.assertEqual(len(found), 1, brief(run.report))
        self.assertEqual(found[0]["id"], finding_id)
        self.assertEqual(found[0]["confidence"], confidence)
        self.assertEqual(len(found[0]["pairs"]), 1)
        # A byte that had its new value before is not known to be written, unless the kernel ran again.
        self.assertIn(found[0]["pairs"][0]["bytes"], range(expected * 9 // 10, expected + 1))

    def test_two_unseen_writers_race(self):
        for blind in ("tensor_fill:stores", "tensor_fill:loads+stores", "tensor_fill"):
            with self.subTest(blind=blind):
                self.assert_race(self.run_of("race-fills", blind), "race-waw", "certain", COLUMNS * ROWS)

    def test_two_unseen_writers_of_two_tensors_do_not(self):
        self.assert_clean(self.run_of("clean-fills", "tensor_fill:stores"))
        # What each of them has a map of is its own.
        self.assert_clean(self.run_of("clean-fills", "tensor_fill:loads+stores"))

    def test_an_unseen_reader_and_an_unseen_writer(self):
        # Its loads are seen, and the other's stores are found.
        self.assert_race(self.run_of("race-nexts", "tensor_next:stores"), "race-raw", "certain", COLUMNS * ROWS)
        # The other's stores are found, its loads are only known by the tensor.
        self.assert_race(self.run_of("race-nexts", "tensor_next:loads+stores"), "race-raw", "likely", COLUMNS * ROWS)

    def test_an_update_of_an_unseen_input(self):
        self.assert_race(self.run_of("race-input", "tensor_next:loads+stores"), "race-war", "likely", COLUMNS * ROWS)
        self.assert_clean(self.run_of("clean-input", "tensor_next:loads+stores"))

    def test_a_few_rows_of_an_unseen_input_are_undecided(self):
        run = self.run_of("row-of-input", "tensor_next:loads+stores")
        self.assertEqual([f for f in brief(run.report) if f.startswith("race")], [])
        self.assertEqual([finding["kind"] for finding in incompletes(run.report)], ["overlap"])

    def test_readers_of_one_tensor(self):
        self.assert_clean(self.run_of("clean-nexts", "tensor_next:stores"))
        self.assert_clean(self.run_of("clean-nexts", "tensor_next:loads"))
        # Either might write the tensor that both read: undecided, and no race.
        run = self.run_of("clean-nexts", "tensor_next:loads+stores")
        self.assertEqual([f for f in brief(run.report) if f.startswith("race")], [])
        self.assertEqual([finding["kind"] for finding in incompletes(run.report)], ["overlap"])

    def test_blocks_of_one_pool(self):
        run = self.run_of("clean-pool", "copy_plain")
        self.assertEqual([f for f in brief(run.report) if f.startswith("race")], [])
        self.assertEqual([finding["kind"] for finding in incompletes(run.report)], ["overlap"])
        found = races(self.run_of("race-pool", "copy_plain").report)
        self.assertEqual([finding["id"] for finding in found], ["race-waw"])

    # ---- The twins, blindfolded ----

    def test_twins_of_unseen_kernels(self):
        """No clean one is called a race, no buggy one is called clean, and some are still found. All of them are
        tried when GRAVEL_ALL_TWINS is set."""
        with open(os.path.join(TWINS, "kernels.cu")) as file:
            text = file.read()
        kernels = re.findall(r"^(?:GRAVEL_KERNEL|PRODUCER|CONSUMER)\((\w+)[,)]", text, re.M)
        kernels = [name for name in kernels if name not in ("name", "hold")]
        # What a GPU's machine code would say.
        blind = ",".join(name + ":all+atomics" if name.startswith("count") else name for name in kernels)
        self.assertGreater(len(kernels), 10)
        names = ["atomic", "copy-2d", "in-place", "one-byte", "scratch"]
        if os.environ.get("GRAVEL_ALL_TWINS"):
            names = sorted(name for name in os.listdir(TWINS) if os.path.exists(f"{TWINS}/{name}/{name}.c"))
        found = []
        for name in names:
            for variant in ("buggy", "clean"):
                with self.subTest(twin=name, variant=variant):
                    run = Recorded([f"{BUILD}/twins/{name}", variant], (), {"GRAVEL_SOFT_BLIND": blind})
                    self.addCleanup(run.folder.cleanup)
                    self.assertEqual(run.code, 0, run.stderr)
                    report = run.checks[0]
                    if variant == "clean":
                        self.assertEqual([f for f in brief(report) if f.startswith("race")], [])
                    else:
                        self.assertNotEqual(brief(report), [])
                        found += [name] if races(report) else []
        self.assertGreaterEqual(len(found), len(names) // 3, found)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=2)
