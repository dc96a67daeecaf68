"""Numbers of the paper that each reading of its resize rule reproduces."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pagewalk.reproduce import Figure, Outcome, Paper, Row, Run, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import (
    APPLICATIONS,
    FOUR_KB,
    KB,
    LINE,
    MB,
    TABLE_1_DATA_GB,
    TABLE_1_ECPT_MB,
    TABLE_1_WAY_KB,
    TWO_MB,
    WAYS,
    way_chunks,
    way_statistic,
)

THRESHOLDS = (0.6, 0.65, 0.7, 0.75)
RATES = (1.0, 1.25, 1.35, 1.45, 1.5, 2.0, 3.0)
RULES = ("finish", "wait")
WITHIN = 0.03
"""Tolerance, as a share of the printed number, which is rounded to about a hundredth."""

# Data of column 1 of table I, or the data that the printed tree maps if they are less.
DATA_GB = TABLE_1_DATA_GB | {"BC": 8.6, "MUMmer": 0.7, "TC": 2.05}
# Figure 15: the data of the six programs with 9.3 GB, of a million vertices.
SMALL_GB = {"1K": 9.3 / 1000, "10K": 9.3 / 100, "100K": 9.3 / 10}
WHOLE = ("ECPT", "ME-HPT all ways", "ME-HPT")
CHUNKS, LARGE, HUGE = "ME-HPT chunks alone", "ME-HPT1MB", "ME-HPT+THP"
PEAK = "os.page_table_peak_bytes"


@dataclass(frozen=True)
class Reading:
    """A threshold, slots migrated an insertion, and what a resize does that is due meanwhile."""

    upsize_at: float
    migrated: float
    when_due: str

    @property
    def name(self) -> str:
        """The name of the reading in a row."""
        return f"{self.upsize_at:g}, {self.migrated:g} slots, {self.when_due}"


@dataclass
class Score:
    """Cells of the paper that fit, by their place."""

    fits: dict[str, int] = field(default_factory=dict)
    cells: dict[str, int] = field(default_factory=dict)
    misses: list[str] = field(default_factory=list)

    def cell(self, place: str, what: str, value: float | None, low: float, high: float = 0) -> None:
        """One printed number, or a range of it."""
        top = max(low, high)
        fits = value is not None and low * (1 - WITHIN) <= value <= top * (1 + WITHIN)
        self.cells[place] = self.cells.get(place, 0) + 1
        self.fits[place] = self.fits.get(place, 0) + fits
        if not fits:
            shown = "nothing" if value is None else f"{value:.3g}"
            self.misses.append(f"{what} {shown} for {low:g}")


class Readings(Figure):
    title = "Cells of the paper that fit under each reading of when a table is resized"
    place = "tables I and III; figures 10, 11, 12, 14 and 15; sections IV-C, VII-D, VII-E1"
    about = (
        "Table III upsizes at an occupancy of 0.6, and no text says what becomes of a resize that "
        "is due while one is under way: it may wait, and the table fills meanwhile. Each reading "
        "is a threshold, the slots migrated an insertion, and the rule. A page table depends on "
        "how much is mapped and not on what for, so one program of the given size stands for each "
        "application: with table I's data, or what its printed tree maps where that is less (BC "
        f"8.6, TC 2.05, MUMmer 0.7 GB). A cell fits within {WITHIN:.0%} of the printed number. "
        "The note names the cells that do not fit."
    )

    def _run(self, paper: Paper, data_gb: float, design: str, reading: Reading) -> Run:
        app = paper.applications["SysBench"].resized(size=f"{round(data_gb * 1024 * 1024)}KiB")
        chosen = paper.designs[design]
        kind = "elastic_cuckoo" if design == "ECPT" else "memory_efficient"
        return paper.run(
            app,
            chosen.changed(
                f"{design} {reading.name}",
                {
                    f"page_table.{kind}": {
                        "upsize_at": reading.upsize_at,
                        "migrated_per_insertion": reading.migrated,
                        "when_due": reading.when_due,
                    }
                },
            ),
        )

    def runs(self, paper: Paper) -> Runs:
        return Runs(
            {
                (f"{size:g}", f"{design} {reading.name}"): self._run(paper, size, design, reading)
                for reading in readings()
                for size, design in wanted()
            }
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        for reading in readings():

            def of(size: float, design: str, reading: Reading = reading) -> Outcome:
                return results(runs[f"{size:g}", f"{design} {reading.name}"])

            score = Score()
            table_1(score, of)
            figure_10(score, of)
            figures_11_to_14(score, of)
            figure_15(score, of)
            sections(score, of)
            for place, cells in score.cells.items():
                rows.append(Row(reading.name, place, float(score.fits[place]), unit=f"of {cells}"))
            rows.append(
                Row(
                    reading.name, "all cells", float(sum(score.fits.values())), None,
                    f"of {sum(score.cells.values())}", note="; ".join(score.misses), average=True,
                )
            )  # fmt: skip
        return rows


def readings() -> Iterable[Reading]:
    """All readings."""
    return itertools.starmap(Reading, itertools.product(THRESHOLDS, RATES, RULES))


def wanted() -> Iterable[tuple[float, str]]:
    """The simulated sizes and designs."""
    sizes = sorted(set(DATA_GB.values()))
    return dict.fromkeys(
        [
            *itertools.product(sizes, WHOLE),
            *itertools.product((DATA_GB["GUPS"], DATA_GB["MUMmer"]), (CHUNKS,)),
            *itertools.product(SMALL_GB.values(), ("ME-HPT", LARGE)),
            (DATA_GB["GUPS"], HUGE),
        ]
    )


Of = Callable[[float, str], Outcome]
"""The outcome of a size with a design."""


def way_kb(outcome: Outcome) -> list[float]:
    """The ways of the 4 KB table in ascending order."""
    return sorted(slots * LINE / KB for slots in way_statistic(outcome, FOUR_KB, "slots"))


def padded(ways: list[float]) -> list[float | None]:
    """A number a way, or none of each."""
    return [*ways] if ways else [None] * WAYS


def table_1(score: Score, of: Of) -> None:
    """ECPT's two columns without THP."""
    for app in APPLICATIONS:
        outcome = of(DATA_GB[app], "ECPT")
        way, whole = outcome.get("largest_contiguous_bytes"), outcome.get(PEAK)
        score.cell("table I", f"{app}'s way", way and way / KB, TABLE_1_WAY_KB[app])
        score.cell("table I", f"{app}'s ECPT", whole and whole / MB, TABLE_1_ECPT_MB[app])


def figure_10(score: Score, of: Of) -> None:
    """Averages of what is saved without THP."""
    shares, saved, in_place = [], [], []
    for app in APPLICATIONS:
        peaks = [of(DATA_GB[app], design).since_boot(PEAK) for design in WHOLE]
        if None in peaks:
            continue
        ecpt, one, both = (peak or 0.0 for peak in peaks)
        shares.append(100 * (ecpt - both) / ecpt)
        in_place.append(100 * (ecpt - one) / ecpt)
        saved.append((ecpt - both) / MB)
    whole, part = mean(shares), mean(in_place)
    score.cell("figure 10", "% saved", whole, 43)
    score.cell("figure 10", "MB saved", mean(saved), 37)
    score.cell(
        "figure 10", "in place", 100 * part / whole if whole and part is not None else None, 75, 80
    )


def figures_11_to_14(score: Score, of: Of) -> None:
    """ME-HPT's ways and entries."""
    upsizes = {
        app: way_statistic(of(DATA_GB[app], "ME-HPT"), FOUR_KB, "upsizes") for app in DATA_GB
    }
    for way, printed in enumerate((10.6, 10.5, 9.9)):
        values = [u[way] for u in upsizes.values() if u]
        score.cell("figure 11", f"upsizes of way {way}", mean(values), printed)
    for app in ("GUPS", "SysBench"):
        score.cell("figure 11", f"{app}'s upsizes", max(upsizes[app], default=None), 13)
        for kb in padded(way_kb(of(DATA_GB[app], "ME-HPT"))):
            score.cell("figure 12", f"{app}'s way in KB", kb, 64 * 1024)
        entries = of(DATA_GB[app], "ME-HPT").since_boot("page_table.l2p.entries")
        score.cell("figure 14", f"{app}'s entries", entries, 192)
    for kb in padded(way_kb(of(DATA_GB["MUMmer"], "ME-HPT")))[:2]:
        score.cell("figure 12", "MUMmer's way in KB", kb, 512)
    entries = of(DATA_GB["MUMmer"], "ME-HPT").since_boot("page_table.l2p.entries_peak")
    score.cell("figure 14", "MUMmer's entries at most", entries, 195)
    entries = of(DATA_GB["TC"], "ME-HPT").since_boot("page_table.l2p.entries")
    score.cell("figure 14", "TC's entries", entries, 11)


def figure_15(score: Score, of: Of) -> None:
    """Mean ways of small graphs."""
    for design, printed in (("ME-HPT", (16, 128, 1024)), (LARGE, (1024, 1024, 1024))):
        for (name, size), kb in zip(SMALL_GB.items(), printed, strict=True):
            ways = way_statistic(of(size, design), FOUR_KB, "bytes")
            value = sum(ways) / len(ways) / KB if ways else None
            score.cell("figure 15", f"{design} {name}", value, kb)


def sections(score: Score, of: Of) -> None:
    """Scores the numbers of the text beside the figures."""
    big, small = DATA_GB["GUPS"], DATA_GB["MUMmer"]
    for design, chunk, memory in (("ME-HPT", 1024, 192), (CHUNKS, 8192, 288)):
        outcome = of(big, design)
        largest = outcome.since_boot(f"{FOUR_KB}.largest_contiguous_bytes")
        peak = outcome.since_boot(f"{FOUR_KB}.peak_bytes")
        score.cell("section VII-D", f"{design}'s chunk", largest and largest / KB, chunk)
        score.cell("section VII-D", f"{design}'s MB", peak and peak / MB, memory)
    chunks = way_chunks(of(small, "ME-HPT"), FOUR_KB)
    score.cell("section VII-D", "MUMmer's ways of 8 KB chunks", float(chunks.count(8 * KB)), 2)
    peaks = way_statistic(of(small, CHUNKS), FOUR_KB, "peak_bytes")
    score.cell("section VII-D", "MUMmer's 1 MB chunks", min(peaks) // MB if peaks else None, 2)
    shares = []
    for app in APPLICATIONS:
        outcome = of(DATA_GB[app], "ECPT")
        lines = outcome.since_boot(f"{FOUR_KB}.inserted")
        both = outcome.since_boot(f"{FOUR_KB}.coexisting_insertions")
        shares.append(100 * both / lines if lines and both is not None else None)
    score.cell("section IV-C", "% with two tables", mean(shares), 87.3)
    for way in padded(way_statistic(of(big, HUGE), TWO_MB, "upsizes")):
        score.cell("section VII-E1", "upsizes of a 2 MB way", way, 5)
    changes = way_statistic(of(big, "ME-HPT"), FOUR_KB, "chunk_changes")
    score.cell("section VII-E1", "changes of chunk size", max(changes, default=None), 1)
