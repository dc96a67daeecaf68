"""Figure 3: memory access latency with perfect speculation."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Outcome, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, Compared
from .counts import latency
from .printed import PERFECT_LATENCY

DESIGN = "Perfect Speculation of data"


def whole(outcome: Outcome) -> float | None:
    """Cycles of a load from its address to its data."""
    found = latency(outcome)
    return found.whole if found else None


def data(outcome: Outcome) -> float | None:
    """Cycles of a load from its translation to its data."""
    found = latency(outcome)
    return found.data if found else None


READINGS = (
    ("data", "From the translation to the data", data),
    ("whole", "From the address to the data", whole),
)


class Figure3(Figure):
    title = "Memory access latency saved by perfect speculation"
    place = "figure 3, section 3.1"
    about = (
        "The paper does not say where its latency begins: with the translation known, as its "
        "numbers for huge pages in figure 12 suggest, or with the address. Both are drawn."
    )
    timing = True
    panels = tuple(Panel(Bars("% saved"), name, title) for name, title, _ in READINGS)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["Radix", DESIGN], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows = []
        for panel, words, read in READINGS:
            values = {app: found.saved(app, DESIGN, "Radix", read) for app in APPLICATIONS}
            rows += [
                Row(
                    app, DESIGN, value, unit="%", failed=found.why(app, DESIGN, "Radix"),
                    panel=panel, saved=True,
                )
                for app, value in values.items()
            ]  # fmt: skip
            rows.append(
                PERFECT_LATENCY.row(
                    "mean", DESIGN, mean(values.values()), "%", note=words, average=True,
                    panel=panel, saved=True,
                )
            )  # fmt: skip
        return rows
