"""Figure 12: memory latency, misses, and translation latency under low fragmentation."""

from __future__ import annotations

from collections.abc import Mapping

from pagewalk.reproduce import Bars, Figure, Outcome, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, SCENARIOS, Compared, Value
from .counts import l2_mpki, latency
from .fig3 import data, whole
from .printed import LATENCY_SAVED, MPKI_SAVED, TRANSLATION_SAVED, Said

DESIGNS = ("THP low", "Revelator low", "Revelator low, right guesses only")


def tlb_mpki(outcome: Outcome) -> float | None:
    """Misses of the L2 TLB in a thousand instructions."""
    return None if outcome.failed else outcome.get("l2_tlb_mpki")


def cache_mpki(outcome: Outcome) -> float | None:
    """Misses of the L2 cache, likewise."""
    return None if outcome.failed else l2_mpki(outcome)


def translation(outcome: Outcome) -> float | None:
    """Cycles of a load until its address is translated."""
    found = latency(outcome)
    return found.translation if found else None


def walk(outcome: Outcome) -> float | None:
    """Cycles of a walk."""
    return None if outcome.failed else outcome.get("walk_cycles_mean")


# Panel, title, what is read, the paper's means.
READINGS: tuple[tuple[str, str, Value, Mapping[str, Said]], ...] = (
    ("latency", "Memory access latency, from the translation to the data", data, LATENCY_SAVED),
    ("load", "Memory access latency, from the address to the data", whole, LATENCY_SAVED),
    ("tlb", "MPKI of the L2 TLB", tlb_mpki, MPKI_SAVED),
    ("cache", "MPKI of the L2 cache", cache_mpki, MPKI_SAVED),
    ("translation", "Translation latency, of every load", translation, TRANSLATION_SAVED),
    ("walk", "Translation latency, of a walk", walk, TRANSLATION_SAVED),
)
DEVIATIONS = {"tlb": "revelator-figure-12"}
"""Deviations, by the reading that the paper cannot mean."""


class Figure12(Figure):
    title = "Latencies and misses saved over radix page tables"
    place = "figure 12, section 7.1"
    about = (
        SCENARIOS
        + "Each of the three quantities can be read in two ways, and both are drawn. The text "
        "names the L2 TLB, but a fetch into the L2 cache spares no TLB miss, and it goes on to "
        "explain a lower MPKI of the L2 cache. Misses of that are those that found the line "
        "neither there nor on its way. Huge pages save 0.01 % of the memory latency in the "
        "paper, so that translation can be no part of it."
    )
    timing = True
    panels = tuple(Panel(Bars("% saved"), name, title) for name, title, *_ in READINGS)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["Radix", *DESIGNS], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows = []
        for panel, words, read, said in READINGS:
            values = {
                design: [found.saved(app, design, "Radix", read) for app in APPLICATIONS]
                for design in DESIGNS
            }
            rows += [
                Row(
                    app, design, values[design][i], unit="%",
                    failed=found.why(app, design, "Radix"), panel=panel, saved=True,
                )
                for i, app in enumerate(APPLICATIONS)
                for design in DESIGNS
            ]  # fmt: skip
            rows += [
                said[design].row(
                    "mean", design, mean(values[design]), "%", note=words, average=True,
                    panel=panel, saved=True,
                    deviation=DEVIATIONS.get(panel, said[design].deviation),
                )
                if design in said
                else Row(
                    "mean", design, mean(values[design]), unit="%", note=words, average=True,
                    panel=panel, saved=True,
                )
                for design in DESIGNS
            ]  # fmt: skip
        return rows
