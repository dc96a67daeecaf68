"""Figures 11 to 14 with the times of the engine's hardware."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from . import fig13, fig14
from .common import Compared, swept
from .fig12 import READINGS
from .readings import APPLICATIONS, PROGRAMS

TIMES = {"engine.revelator.latency": 9, "engine.revelator.interval": 1}
"""Cycles to the first guess, and from one candidate to the next, in `rtl/spec_engine`."""
SHIPPED, HARDWARE = "as shipped", "hardware's times"
PRESSURE = 80
"""Per cent of the frames that the hash may not take, for figure 13."""
LEVELS = ("Revelator low", "Revelator high")
PANELS = (("speedup", "Speedup over radix"), ("saved", "% saved over radix"))


@dataclass(frozen=True)
class Bar:
    """One of the paper's bars: its figure, and our design of it."""

    name: str
    design: Design

    @property
    def slow(self) -> Design:
        """The design with the hardware's times."""
        return self.design.changed(f"{self.design.label}, {HARDWARE}", TIMES)


def of_all(paper: Paper) -> list[Bar]:
    """Bars whose means are over all programs."""
    levels = [Bar(f"figure 11, {name.split()[-1]}", paper.designs[name]) for name in LEVELS]
    return levels + [Bar(f"figure 14, {d.label}", d) for d in fig14.designs(paper)]


def of_sweep(paper: Paper) -> list[Bar]:
    """Bars of a sweep, with fewer programs."""
    return [
        Bar(f"figure 13, {PRESSURE} %, N={n}", fig13.design(paper, n, PRESSURE / 100))
        for n in fig13.NUMBERS
    ]


class Hardware(Figure):
    title = "Revelator with the times of its hardware"
    place = "figures 11 to 14"
    about = (
        "The paper gives no latency of the engine. The shipped design has one for all guesses. "
        "The hardware in rtl/spec_engine needs more cycles to the first guess, and one for each "
        "further candidate. BFS has the weight of the seven programs of GraphBIG."
    )
    timing = True
    panels = tuple(Panel(Bars(title), name, title) for name, title in PANELS)

    def runs(self, paper: Paper) -> Runs:
        return self._runs(paper, of_all(paper), PROGRAMS) | self._sweep(paper)

    def _sweep(self, paper: Paper) -> Runs:
        return self._runs(paper, of_sweep(paper), swept(paper))

    @staticmethod
    def _runs(paper: Paper, bars: list[Bar], apps: tuple[str, ...]) -> Runs:
        designs = [design for bar in bars for design in (bar.design, bar.slow)]
        return paper.cross(apps, ["Radix", *designs], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        low, *_ = levels = of_all(paper)
        found = Compared(self.runs(paper), results, APPLICATIONS)
        sweep = Compared(self._sweep(paper), results, swept(paper))
        rows = [*self._speedups(found, levels), *self._speedups(sweep, of_sweep(paper))]
        for _, title, read, _ in READINGS:
            for series, design in ((SHIPPED, low.design), (HARDWARE, low.slow)):
                saved = [found.saved(app, design.label, "Radix", read) for app in APPLICATIONS]
                rows.append(
                    Row(
                        f"figure 12: {title}", series, mean(saved), unit="%",
                        average=True, panel="saved", saved=True,
                    )
                )  # fmt: skip
        return rows

    @staticmethod
    def _speedups(found: Compared, bars: list[Bar]) -> Iterator[Row]:
        for bar in bars:
            for series, design in ((SHIPPED, bar.design), (HARDWARE, bar.slow)):
                value = found.speedup(design.label, "Radix").geometric
                yield Row(bar.name, series, value, average=True, panel="speedup")
