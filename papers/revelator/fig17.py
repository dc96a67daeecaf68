"""Figure 17: energy over radix page tables."""

from __future__ import annotations

from pagewalk.measurements.energy import GROUPS
from pagewalk.reproduce import Bars, Figure, Outcome, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, SCENARIOS, Compared
from .counts import energy
from .printed import ENERGY_SAVED

DESIGNS = (
    "THP low",
    "Revelator low",
    "Revelator low, right guesses only",
    "THP high",
    "Revelator high",
    "Revelator high, right guesses only",
)


def total(outcome: Outcome) -> float | None:
    """Millijoules of the run."""
    return sum(energy(outcome).values()) or None


class Figure17(Figure):
    title = "Energy over radix page tables"
    place = "figure 17, section 7.1"
    about = (
        SCENARIOS
        + "The paper took its energies from McPAT; ours are of CACTI's and DRAM's data sheets' "
        "numbers for each access, and of what leaks meanwhile. Parts are means over the "
        "programs, in per cent of radix's whole."
    )
    timing = True
    panels = (
        Panel(Bars("energy over radix"), "", "Energy"),
        Panel(Bars("% of radix's energy", stacked=True, averages=False), "parts", "By part"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["Radix", *DESIGNS], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        bars = [
            Row(
                app, design, found.ratio(app, design, "Radix", total),
                failed=found.why(app, design, "Radix"),
            )
            for app in APPLICATIONS
            for design in DESIGNS
        ]  # fmt: skip
        means = [self._saved(found, design) for design in DESIGNS]
        return bars + means + self._parts(found)

    @staticmethod
    def _saved(found: Compared, design: str) -> Row:
        value = mean(found.saved(app, design, "Radix", total) for app in APPLICATIONS)
        group, said = f"saved by {design}", ENERGY_SAVED.get(design)
        if said:
            return said.row(group, "", value, "%", average=True, panel="text", saved=True)
        return Row(group, "", value, unit="%", average=True, panel="text", saved=True)

    @staticmethod
    def _parts(found: Compared) -> list[Row]:
        spent = {
            (app, design): energy(found.results(found.runs[app, design]))
            for app in APPLICATIONS
            for design in ("Radix", *DESIGNS)
        }
        found_kinds = {kind for of in spent.values() for kind in of}
        kinds = {kind: words for kind, words in GROUPS.items() if kind in found_kinds}
        rows = []
        for design in ("Radix", *DESIGNS):
            for kind, words in kinds.items():
                shares = [
                    100 * of.get(kind, 0.0) / sum(base.values())
                    for app in APPLICATIONS
                    if (of := spent[app, design]) and (base := spent[app, "Radix"])
                ]
                rows.append(Row(design, "mean", mean(shares), unit="%", part=words, panel="parts"))
        return rows
