"""Beyond the paper: under which rule of a walk's end its speedup over radix appears."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from . import timing
from .common import APPLICATIONS, FIGURE_9

PERFECT = "perfect TLB"
BASES = ("Radix", "Radix5", "ECPT", "ME-HPT", PERFECT)
KINDS = {"ECPT": "elastic_cuckoo", "ME-HPT": "memory_efficient"}
ALL = " waiting for all"
BARE, SHARED = "Radix" + timing.BARE, timing.SHARED


def designs(paper: Paper) -> dict[str, Design]:
    """Radix, radix of five levels, and both hashed tables under both rules."""
    found = {name: paper.designs[name] for name in BASES}
    found[BARE] = timing.bare(paper.designs["Radix"])
    for name in ("Radix", "ME-HPT", BARE):
        found[name + SHARED] = timing.from_l3(found[name])
    for name, kind in KINDS.items():
        label = f"{name}{ALL}"
        changes = {"page_table": {kind: {"wait_for": "all"}}}
        found[label] = paper.designs[name].changed(label, changes)
    return found


class Latency(Figure):
    title = "Cycles of a walk and speedup, by when a walk has its answer"
    place = "beyond the paper; section VII-B for its averages"
    about = (
        "A walk of a hashed table ends at the probe that matches, or when all probes are back. "
        "Public logs of ECPT's walks on EMT's machine cost 60 or 70 cycles for BFS and 67 or 79 "
        "for PageRank (early and waiting) where radix walks cost 64 and 73, so that a gain over "
        "radix may not be assumed. Radix5 is a tree of five levels; without walk caches every walk "
        "reads all four; 'from L3 on' page tables' lines are in no private cache. A perfect TLB "
        "never walks: no page table gains more than it."
    )
    timing = True
    deviation = FIGURE_9
    panels = (
        Panel(Bars("cycles"), "walk", "Mean cycles of a page walk, without THP"),
        Panel(Bars("reads"), "reads", "Memory reads of a page walk"),
        Panel(Bars("speedup"), "speedup", "Speedup over radix, the measured window alone"),
    )

    def runs(self, paper: Paper) -> Runs:
        return timing.runs(paper, designs(paper).values(), growing=False)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = timing.timings(self.runs(paper), results)
        names = tuple(designs(paper))
        rows = []
        for panel, statistic in (("walk", "walk_cycles_mean"), ("reads", "walk_reads_per_walk")):
            for app in APPLICATIONS:
                for name in names:
                    outcome = found[app, name].window
                    value = outcome.get(statistic)
                    rows.append(Row(app, name, value, failed=outcome.why, panel=panel))
        bars, times = timing.speedups(found, names, timing.nothing, "speedup")
        rows += bars
        for faster, slower, printed in (
            ("ECPT", "Radix", None),
            ("ME-HPT", "Radix", 1.23),
            (f"ECPT{ALL}", "Radix", None),
            (f"ME-HPT{ALL}", "Radix", 1.23),
            ("ME-HPT", "Radix5", None),
            (f"ME-HPT{ALL}", "Radix5", None),
            ("Radix", "Radix5", None),
            ("Radix", BARE, None),
            (PERFECT, "Radix", None),
            ("ME-HPT", BARE, 1.23),
            (f"ME-HPT{ALL}", BARE, 1.23),
            (f"ME-HPT{SHARED}", f"Radix{SHARED}", 1.23),
            (f"ME-HPT{SHARED}", BARE + SHARED, 1.23),
        ):
            value = timing.ratio(times, slower, faster)
            rows.append(
                Row(
                    f"{faster} over {slower}", "", value, printed, "",
                    "section VII-B" if printed else "", panel="text", average=True,
                )
            )  # fmt: skip
        return rows
