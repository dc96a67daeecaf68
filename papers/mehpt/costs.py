"""Costs that the text calls small or wasteful: L2P table, re-insertions, chunks of 1 MB alone."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Outcome, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, FOUR_KB, GRAPHS, KB, TWO_MB, L2p, way_statistic

PHYSICAL_BITS = 46
"""Bits of a physical address (section V-B)."""
PAGE_TABLES = (FOUR_KB, TWO_MB, "page_table.1gb")
EFFICIENT, HUGE = "ME-HPT", "ME-HPT+THP"
LARGE, BOTH = "ME-HPT1MB", "ME-HPT1MB+8KB"
SIZES = ((1_000, "1K"), (10_000, "10K"))


def downsizes(outcome: Outcome) -> float | None:
    """Downsizes of all ways of all page sizes."""
    found = [way_statistic(outcome, table, "downsizes") for table in PAGE_TABLES]
    return sum(map(sum, found)) if any(found) else None


def prices(outcome: Outcome) -> dict[str, float]:
    """The kernel's, in nanoseconds, as the run had them."""
    found: dict[str, float] = outcome.result.config["os"]["prices"]
    return found


def switch(outcome: Outcome) -> float | None:
    """Nanoseconds that a switch from one such process to another takes for their page tables."""
    entries = outcome.since_boot("page_table.l2p.entries")
    return None if entries is None else 2 * entries * prices(outcome)["register_ns"]


def reinsertions(outcome: Outcome) -> tuple[float, float] | None:
    """Nanoseconds of all re-insertions, and of the accesses to the L2P table among them."""
    kicks = [outcome.since_boot(f"{table}.reinsertions") for table in PAGE_TABLES]
    if all(k is None for k in kicks):
        return None
    total = sum(k or 0.0 for k in kicks)
    price = prices(outcome)
    return total * (price["moved_entry_ns"] + price["l2p_access_ns"]), total * price[
        "l2p_access_ns"
    ]


class Costs(Figure):
    title = "The L2P table's size, context switches, re-insertions, and chunks of 1 MB alone"
    place = "sections IV-A, V-B, V-C, V-D, VII-E1, VII-E5 and VII-E6"
    about = (
        "The text gives the L2P table 1.16 KB, sees no downsizes, calls the cost of saving and "
        "restoring entries modest and that of re-insertions negligible, and says that chunks of "
        "1 MB alone waste memory and reduce performance for small graphs; it prints no further "
        "numbers. The size is arithmetic of the design as it was resolved. A switch saves and "
        "restores the entries in use of two processes of the application, at our price of 1 ns "
        "each, beside 700 ns of any switch. Re-insertions are counted in the runs, at our price of "
        "100 ns each and the paper's 4 cycles for the L2P table."
    )

    def runs(self, paper: Paper) -> Runs:
        small = {
            (f"{app} {name}", design): paper.run(
                paper.applications[app].resized(vertices=vertices), design
            )
            for vertices, name in SIZES
            for app in GRAPHS
            for design in (LARGE, BOTH)
        }
        return paper.cross(APPLICATIONS, [EFFICIENT, HUGE]) | Runs(small)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        return [
            *self.structure(runs, results),
            *self.kernel(runs, results),
            *self.small_graphs(runs, results),
        ]

    def structure(self, runs: Runs, results: Results) -> list[Row]:
        """The table's size, and that ways never shrink."""
        outcome = results(runs["GUPS", EFFICIENT])
        l2p = L2p.of(outcome)
        size = None
        if l2p:
            offset = min(l2p.chunks).bit_length() - 1
            size = l2p.ways * l2p.way * (PHYSICAL_BITS - offset) / 8 / KB
        rows = [
            Row("L2P table", "size", size, 1.16, "KB", "section V-B", failed=outcome.why,
                average=True)
        ]  # fmt: skip
        for design in (EFFICIENT, HUGE):
            found = [downsizes(results(runs[app, design])) for app in APPLICATIONS]
            known = [value for value in found if value is not None]
            rows.append(
                Row(
                    "downsizes of all ways, all applications", design,
                    sum(known) if len(known) == len(found) else None, 0.0, "", "section VII-E1",
                    average=True,
                )
            )  # fmt: skip
        return rows

    def kernel(self, runs: Runs, results: Results) -> list[Row]:
        """Context switches and re-insertions."""
        rows = []
        switches, shares, lookups = [], [], []
        for app in APPLICATIONS:
            outcome = results(runs[app, EFFICIENT])
            cost = switch(outcome)
            switches.append(cost)
            rows.append(
                Row(app, "save and restore of a switch", cost, unit="ns", failed=outcome.why)
            )
            spent, whole = reinsertions(outcome), outcome.since_boot("os.populate_cycles")
            share = part = None
            if spent and whole:
                kernel_ns = whole / outcome.result.config["frequency_ghz"]
                share, part = (100 * ns / kernel_ns for ns in spent)
            shares.append(share)
            lookups.append(part)
            rows.append(
                Row(
                    app, "re-insertions, of the kernel's time for first touches", share, unit="%",
                    failed=outcome.why,
                )
            )  # fmt: skip
        for name, values, unit, place in (
            ("save and restore of a switch", switches, "ns", "section V-C: modest"),
            ("re-insertions, of the kernel's time for first touches", shares, "%",
             "section VII-E6"),
            ("L2P accesses of re-insertions, of the same", lookups, "%",
             "section VII-E6: negligible"),
        ):  # fmt: skip
            rows.append(Row("mean", name, mean(values), None, unit, place, average=True))
        return rows

    def small_graphs(self, runs: Runs, results: Results) -> list[Row]:
        """Rows on the cost of chunks of 1 MB alone for small graphs."""
        rows = []
        for _, name in SIZES:
            for words, statistic in (
                ("page tables' memory", "os.page_table_peak_bytes"),
                ("kernel's time of page tables", "os.populate_table_cycles"),
            ):
                ratios = []
                for app in GRAPHS:
                    large, both = (
                        results(runs[f"{app} {name}", design]).since_boot(statistic)
                        for design in (LARGE, BOTH)
                    )
                    ratios.append(large / both if large and both else None)
                rows.append(
                    Row(
                        f"{name} nodes", f"{words}, {LARGE} over {BOTH}", mean(ratios), None,
                        "times", "section VII-E5", average=True,
                    )
                )  # fmt: skip
        return rows
