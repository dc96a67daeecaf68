"""Beyond the paper: figure 9 where walks cost what its speedups over radix need."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from . import timing
from .common import FIGURE_9
from .timing import GROWING_WINDOW

NAMES = ("Radix", "ECPT", "ME-HPT")
THP = ("Radix+THP", "ME-HPT+THP")


def designs(paper: Paper) -> dict[str, Design]:
    """Page tables' lines in no private cache, and radix without walk caches."""
    found = {}
    for name in (*NAMES, *THP):
        design = paper.designs[name]
        found[name] = timing.from_l3(timing.bare(design) if name.startswith("Radix") else design)
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
    deviation = FIGURE_9
    panels = tuple(Panel(Bars("speedup"), name, title) for name, title, _ in GROWING_WINDOW)

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
        rows, averages = timing.accounted(grown, NAMES, GROWING_WINDOW)
        huge = {key: timed for key, timed in found.items() if key[1] in THP}
        _, words, alone = GROWING_WINDOW[0]
        times = {key: timing.elapsed(timed, alone) for key, timed in huge.items()}
        return rows + averages + timing.averages(times, words)
