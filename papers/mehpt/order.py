"""Beyond the paper: figure 9 where walks cost what its speedups over radix need."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from . import timing
from .common import TIMED_VARIANTS

NAMES = ("Radix", "ECPT", "ME-HPT")
THP = ("Radix+THP", "ME-HPT+THP")
ASSUMPTIONS = (
    ("window", "The program alone", timing.nothing),
    ("resizes", "With what the tables' growth takes in the window", timing.resizes),
    ("growth", "With the first touches that make the tables grow", timing.growth),
)


def designs(paper: Paper, names: tuple[str, ...] = (*NAMES, *THP)) -> dict[str, Design]:
    """Page tables' lines in no private cache, and radix without walk caches."""
    found = {}
    for name in names:
        changes: dict[str, object] = {"caches": {"walks_enter": "l3"}}
        if name.startswith("Radix"):
            changes["mmu.walk_caches.entries"] = 0
        found[name] = paper.designs[name].changed(f"{name} from L3 on", changes)
    return found


class Order(Figure):
    title = "Figure 9 with page tables' lines in no private cache and radix without walk caches"
    place = "beyond the paper; figure 9"
    about = (
        "By default a walk finds page tables' lines in the core's own caches, and radix skips "
        "levels by its walk caches, as table III has them; then hashed tables gain little over "
        "radix (see latency). Here walks enter at the shared L3, and a radix walk reads all its "
        "levels: the two assumptions that together bring the paper's average speedup. The bars "
        "show, for each application, whether ME-HPT, ECPT and radix then come in the order of "
        "figure 9."
    )
    timing = True
    panels = tuple(Panel(Bars("speedup"), name, title) for name, title, _ in ASSUMPTIONS)

    def runs(self, paper: Paper) -> Runs:
        chosen = designs(paper)
        grown = [chosen[name] for name in NAMES]
        huge = [chosen[name] for name in THP]
        return timing.runs(paper, grown, timing.ALL_SIZES) | timing.runs(paper, huge, growing=False)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        labels = {design.label: name for name, design in designs(paper).items()}
        found = {
            (app, labels[label]): timed
            for (app, label), timed in timing.timings(self.runs(paper), results).items()
        }
        grown = {key: timed for key, timed in found.items() if key[1] in NAMES}
        rows: list[Row] = []
        averages: list[Row] = []
        for panel, words, cost in ASSUMPTIONS:
            bars, times = timing.speedups(grown, NAMES, cost, panel)
            rows += bars
            for variant, instead in TIMED_VARIANTS:
                chosen = timing.replaced(times, instead)
                averages += _averages(chosen, words + variant)
        times = {key: timing.elapsed(timed, timing.nothing) for key, timed in found.items()}
        averages.append(_average(times, *THP, 1.28, ASSUMPTIONS[0][1]))
        return rows + averages


def _average(times: timing.Times, slower: str, faster: str, printed: float, words: str) -> Row:
    return Row(
        f"{faster} over {slower}", words, timing.ratio(times, slower, faster), printed, "",
        "section VII-B", panel="text", average=True,
    )  # fmt: skip


def _averages(times: timing.Times, words: str) -> list[Row]:
    return [
        _average(times, "ECPT", "ME-HPT", 1.09, words),
        _average(times, "Radix", "ME-HPT", 1.23, words),
        timing.ordered(times, "ECPT", "ME-HPT", words, "section VII-B: in practically all cases"),
        timing.ordered(times, "Radix", "ME-HPT", words, "figure 9"),
        timing.ordered(times, "Radix", "ECPT", words, "figure 9"),
    ]
