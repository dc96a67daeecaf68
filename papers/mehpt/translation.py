"""Figure 9's gap: which assumption makes translation as dear as the paper's speedups need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Run, Runs, geometric, mean
from pagewalk.reproduce.figure import Results

READ = ("BFS", "PR", "GUPS", "SysBench")
GRAPHS = ("BFS", "PR")
RADIX, EFFICIENT, PERFECT = "Radix", "ME-HPT", "perfect TLB"
DESIGNS = (RADIX, EFFICIENT, PERFECT)

# Table III: 4 channels of 8 banks, 1 GHz, DDR. Timings of DDR3 (JEDEC JESD79-3); the controller's
# part makes an idle bank's read the 72 ns that a flat latency has.
BANKS = {
    "ddr": {
        "data_rate_mts": 2000, "channels": 4, "ranks": 1, "bank_groups": 1, "banks": 8,
        "row_bytes": 8192, "tcl_ns": 13.5, "trcd_ns": 13.5, "trp_ns": 13.5, "tras_ns": 36.0,
        "controller_ns": 41.0, "keep_open_ns": 0.0,
    }
}  # fmt: skip


def caches(entries: int, enter: str) -> dict[str, Any]:
    """Radix's walk caches of so many entries a level, and where walks enter the caches."""
    return {
        "mmu.walk_caches.entries": entries,
        "mmu.walk_caches.ways": max(entries, 1),
        "caches.walks_enter": enter,
    }


@dataclass(frozen=True)
class Assumption:
    """Changes to all designs, and the size and load order of the graphs."""

    name: str
    changes: dict[str, Any] = field(default_factory=dict)
    vertices: int = 1_000_000
    # `edges`: GraphBIG built with EDGES=1 reads no vertex file, and makes a vertex when an edge
    # first names it, so that vertices lie between edges.
    order: str = "sorted"


FENCE = {"core.atomics": "fence"}
IN_TURN = {"mmu.walk_caches.serial": True}
MATCHING = {"mmu.cuckoo.kept_probes": "matching"}
DRAM = {"memory.dram": BANKS}
# A tree of 28.2 MB, as BFS has it in table I, maps 14.1 GB: 1.7 million of our vertices.
PRINTED_TREE = 1_700_000

ASSUMPTIONS = (
    Assumption("as table III"),
    Assumption("a ROB of 32", {"core.rob": 32}),
    Assumption("atomics fence", FENCE),
    Assumption("atomics fence, a ROB of 32", FENCE | {"core.rob": 32}),
    Assumption("walk caches in turn", IN_TURN),
    Assumption("only the matching probe kept", MATCHING),
    Assumption("4 channels of 8 banks", DRAM),
    Assumption("graphs of 14 GB", vertices=PRINTED_TREE),
    Assumption("graphs of 14 GB, vertices among edges", vertices=PRINTED_TREE, order="edges"),
    Assumption("8 walk-cache entries", caches(8, "l2")),
    Assumption("no walk caches", caches(0, "l2")),
    Assumption("32 entries, walks from L3", caches(32, "l3")),
    Assumption("8 entries, walks from L3", caches(8, "l3")),
    Assumption("no walk caches, walks from L3", caches(0, "l3")),
    Assumption("all but walk caches and L3", FENCE | IN_TURN | MATCHING | DRAM, PRINTED_TREE),
    Assumption("all", FENCE | MATCHING | DRAM | caches(0, "l3"), PRINTED_TREE),
)


class Translation(Figure):
    title = "The share of translation and the ratio of walks, an assumption at a time"
    place = "beyond the paper; figure 9"
    about = (
        "ME-HPT's published 1.23 over radix needs about 30 % of radix's time in translation and "
        "walks about half as long. Each group changes one assumption that table III leaves open, "
        "for all designs alike. The share is what a perfect TLB saves of radix's cycles. 'From L3' "
        "page tables' lines are in no private cache. On request only, by its name."
    )
    timing = True
    deviation = "mehpt-figure-9"
    panels = (
        Panel(Bars("% of radix's cycles"), "share", "What a perfect TLB saves"),
        Panel(Bars("ratio"), "walks", "Cycles of a walk, radix over ME-HPT"),
        Panel(Bars("cycles"), "radix", "Cycles of a radix walk"),
        Panel(Bars("speedup"), "speedup", "ME-HPT over radix, the measured window alone"),
    )

    def _run(self, paper: Paper, app: str, design: str, assumption: Assumption) -> Run:
        program = paper.applications[app]
        if app in GRAPHS:
            threads = program.program.threads
            if assumption.vertices != 1_000_000:
                program = program.resized(threads=threads, vertices=assumption.vertices)
            if assumption.order != "sorted":
                program = program.resized(threads=threads, order=assumption.order)
        return paper.run(program, design, timing=True, changes=assumption.changes)

    def runs(self, paper: Paper) -> Runs:
        return Runs(
            {
                (app, f"{design}, {assumption.name}"): self._run(paper, app, design, assumption)
                for assumption in ASSUMPTIONS
                for app in READ
                for design in DESIGNS
            }
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows, text = [], []
        for assumption in ASSUMPTIONS:
            shares: list[float | None] = []
            gains: list[float | None] = []
            for app in READ:
                radix, efficient, perfect = (
                    results(runs[app, f"{design}, {assumption.name}"]) for design in DESIGNS
                )
                why = radix.why or efficient.why or perfect.why
                cycles = [o.get("cycles") for o in (radix, efficient, perfect)]
                walks = [o.get("walk_cycles_mean") for o in (radix, efficient)]
                share = gain = ratio = None
                if not why and all(cycles):
                    slow, ours, least = (c or 0.0 for c in cycles)
                    share, gain = 100 * (slow - least) / slow, slow / ours
                if walks[0] and walks[1]:
                    ratio = walks[0] / walks[1]
                shares.append(share)
                gains.append(gain)
                for panel, value in (
                    ("share", share), ("walks", ratio), ("radix", walks[0]), ("speedup", gain),
                ):  # fmt: skip
                    rows.append(Row(app, assumption.name, value, failed=why, panel=panel))
            for name, value, printed, unit in (
                ("share of translation", mean(shares), None, "%"),
                ("ME-HPT over radix", geometric(gains), 1.23, ""),
            ):
                text.append(
                    Row(
                        f"{assumption.name}, mean of {len(READ)}", name, value, printed, unit,
                        "section VII-B" if printed else "", panel="text", average=True,
                    )
                )  # fmt: skip
        return rows + text
