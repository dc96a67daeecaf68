"""Figures 11 and 12 again: one choice of ours at a time changed, and other ways to count."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pagewalk.reproduce import Design, Figure, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results
from pagewalk.view.quantities import parse_bytes

from .common import Compared, Value
from .counts import l2_mpki, l2_mpki_of_sniper, l2_mpki_with_late, of_a_miss, of_a_translation
from .fig12 import translation, walk
from .printed import MPKI_SAVED, SPEEDUP_HIGH, SPEEDUP_LOW, TRANSLATION_SAVED, Said

Json = dict[str, Any]

PROGRAMS = ("BFS", "XS", "RND", "DLRM", "GEN")
APPLICATIONS = (PROGRAMS[0],) * 7 + PROGRAMS[1:]
"""BFS stands for the seven programs of GraphBIG."""
RADIX, LOW, HIGH = "Radix", "THP low", "THP high"
OURS = ("Revelator low", "Revelator low, right guesses only")


MEMORY_GB = 128
"""Table 1."""
VERTEX_GB = 8.33e-6
"""GB of a vertex in GraphBIG's layout: 67 GB are 8 million vertices."""


def footprint(paper: Paper, app: str) -> float:
    """GiB that a program has."""
    program = paper.applications[app].program
    if program.size is None:
        return VERTEX_GB * int(program.params["vertices"])
    return parse_bytes(program.size, app) / (1 << 30)


@dataclass(frozen=True)
class Change:
    """Changed keys: of every design, and of huge pages under low and high fragmentation.

    `first` are the shares of the program's memory that are huge under each. The first requests
    get them.
    """

    name: str
    everywhere: Json = field(default_factory=dict)
    low: Json = field(default_factory=dict)
    high: Json = field(default_factory=dict)
    first: tuple[float, float] | None = None

    def designs(self, paper: Paper, app: str) -> dict[str, Design]:
        """Radix and huge pages so changed, by what they are without."""
        low, high = self.low, self.high
        if self.first:
            part = footprint(paper, app) / MEMORY_GB
            low, high = (free(round(share * part, 6)) for share in self.first)
        keys: dict[str, Json] = {RADIX: {}, LOW: low, HIGH: high}
        return {
            name: paper.designs[name].changed(
                f"{name}, {self.name}" if self.everywhere or more else name,
                {**self.everywhere, **more},
            )
            for name, more in keys.items()
        }


def served(share: float) -> Json:
    """Keys by which that share of the requests for 2 MB blocks succeeds, each at random."""
    return {"os.fragmentation": {"served_2mb": share}}


def free(share: float) -> Json:
    """Keys by which that share of the memory's 2 MB blocks is free, for the first requests."""
    return {"os.fragmentation": {"available_2mb": share}}


PROMOTED = {"placement.reservation.promotion_threshold": 0.0}
LONG_WALKS = Change("no walk caches", {"mmu.walk_caches.entries": 0})
CHANGES = (
    Change("as shipped"),
    Change("80 and 20 % of the requests served", low=served(0.8), high=served(0.2)),
    Change("75 and 15 % of the program's memory, to who asks first", first=(0.75, 0.15)),
    Change(
        "75 and 15 % of the machine's memory, to who asks first", low=free(0.75), high=free(0.15)
    ),
    Change("promotion at the first touch", low=PROMOTED, high=PROMOTED),
    Change("16 walkers", {"mmu.walkers": 16}),
    LONG_WALKS,
    Change("an L2 TLB of 2,048 entries more for 2 MB pages", {
        "mmu.l2.main.page_sizes": ["4KB"],
        "mmu.l2.large": {"page_sizes": ["2MB"], "entries": 2048, "ways": 16, "latency": 12},
    }),
    Change("an L1 TLB of 128 entries for 2 MB pages", {"mmu.l1d.large.entries": 128}),
)  # fmt: skip

# Quantities by name, with their reader and the paper's numbers.
SAVED: tuple[tuple[str, Value, Mapping[str, Said]], ...] = (
    ("MPKI of the L2 cache", l2_mpki, MPKI_SAVED),
    ("the same, prefetches of the L1 counted", l2_mpki_of_sniper, MPKI_SAVED),
    ("the same, waits for lines on their way counted", l2_mpki_with_late, MPKI_SAVED),
    ("translation latency of a load", translation, TRANSLATION_SAVED),
    ("translation latency of a translation", of_a_translation, TRANSLATION_SAVED),
    ("translation latency of a miss of the L1 TLBs", of_a_miss, TRANSLATION_SAVED),
    ("latency of a walk", walk, TRANSLATION_SAVED),
)


class Readings(Figure):
    title = "Huge pages and Revelator, read in other ways"
    place = "figures 11 and 12, section 7.1"
    about = (
        "Speedups of huge pages over radix on the same machine with one choice of ours at a time "
        "changed, and what is saved under low fragmentation by other ways to count. BFS has the "
        "weight of the seven programs of GraphBIG."
    )
    timing = True
    deviation = "revelator-l2-mpki"

    def runs(self, paper: Paper) -> Runs:
        designs: list[str | Design] = [*OURS, *(_longer(paper, name) for name in OURS)]
        runs = paper.cross(PROGRAMS, designs, timing=True)
        for app in PROGRAMS:
            changed = (d for change in CHANGES for d in change.designs(paper, app).values())
            runs |= Runs({(app, d.label): paper.run(app, d, timing=True) for d in changed})
        return runs

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows = []
        for change in CHANGES:
            labels = {n: d.label for n, d in change.designs(paper, PROGRAMS[0]).items()}
            for name, said in ((LOW, SPEEDUP_LOW[LOW]), (HIGH, SPEEDUP_HIGH[HIGH])):
                of = found.speedup(labels[name], labels[RADIX])
                rows.append(said.row(change.name, name, of.geometric, average=True))
        for what, read, saved in SAVED:
            rows += [self._saved(found, what, read, saved, name) for name in (LOW, *OURS)]
        for what, read, saved in SAVED[:3]:
            rows += [
                self._saved(found, what, read, saved, name, LONG_WALKS.name)
                for name in (LOW, *OURS)
            ]
        return rows

    @staticmethod
    def _saved(
        found: Compared,
        what: str,
        read: Value,
        said: Mapping[str, Said],
        name: str,
        with_: str = "",
    ) -> Row:
        design, base = (f"{n}, {with_}" if with_ else n for n in (name, RADIX))
        value = mean(found.saved(app, design, base, read) for app in APPLICATIONS)
        group = f"{what}, {with_}" if with_ else what
        if name in said:
            return said[name].row(group, name, value, "%", saved=True, average=True)
        return Row(group, name, value, unit="%", saved=True, average=True)


def _longer(paper: Paper, name: str) -> Design:
    keys = LONG_WALKS.everywhere
    return paper.designs[name].changed(f"{name}, {LONG_WALKS.name}", keys)
