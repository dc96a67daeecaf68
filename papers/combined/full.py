"""Wrong guesses in full memory, and their savings with fewer tiers or a perfect filter."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, PRESSURES, Compared, numbers, pressed, speedups

KINDS = {
    "Radix, data": "Guess Radix",
    "Radix, data and entries": "Revelator",
    "ECPT, data": "Guess ECPT",
}
FILTERS: dict[str, dict[str, object]] = {
    "as shipped": {},
    "one tier": {"engine.revelator.degree": 1},
    "two tiers": {"engine.revelator.degree": 2},
    "right ones only": {"engine.revelator.filter": "perfect"},
}
HIGH = PRESSURES[2:]


class Full(Figure):
    title = "Which guesses to make where memory is full"
    place = "native, 4 KB pages"
    about = (
        "The kernel tries six tiers; the engine guesses as many lines as they name ('as shipped'), "
        "those of the first or the first two, or, with a filter that nobody can build, the right "
        "ones only."
    )
    timing = True
    panels = tuple(Panel(Bars("speedup over radix"), str(p), f"{p} % denied") for p in HIGH)

    def _designs(self, paper: Paper, pressure: int) -> dict[str, Design]:
        found = {}
        for kind, base in KINDS.items():
            for words, changes in FILTERS.items():
                design = pressed(paper, base, pressure)
                name = f"{kind}, {words}"
                found[name] = design.changed(f"{design.label}, {words}", dict(changes))
        return found

    def runs(self, paper: Paper) -> Runs:
        designs = [d for p in HIGH for d in self._designs(paper, p).values()]
        return paper.cross(APPLICATIONS, ["Radix", *designs], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, "Radix")
        rows = []
        for pressure in HIGH:
            labels = {name: d.label for name, d in self._designs(paper, pressure).items()}
            rows += speedups(found, labels, str(pressure))
            rows += numbers(found, labels, f"numbers {pressure}")
        return rows
