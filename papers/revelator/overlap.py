"""Section 3.2: the same program under four conditions, and how many pages lie in the same frame."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from pagewalk.reproduce import Bars, Figure, Outcome, Panel, Paper, Row, Run, Runs
from pagewalk.reproduce.figure import Results

from .printed import OVERLAP

ALONE, BESIDE = "microbenchmark", "microbenchmark and another"
BOOTS = 1000
"""Between the seeds of two scenarios, so that each has booted by itself."""


@dataclass(frozen=True)
class Scenario:
    """A condition of the paper, as it is simulated."""

    application: str
    changes: dict[str, Any] = field(default_factory=dict)
    process: int = 0
    """Index of the program's process on the machine."""


# Ours: the paper says no more of its machine than these names.
SCENARIOS = {
    "alone": Scenario(ALONE, {"os.occupied": 0.3}),
    "beside another": Scenario(BESIDE, {"os.occupied": 0.3}, process=1),
    "after a reboot": Scenario(ALONE),
    "fragmented": Scenario(
        ALONE, {"os.occupied": 0.3, "os.fragmentation": {"unusable_free_index": 0.9}}
    ),
}
DESIGNS = {"buddy": "Radix", "tiered hash": "Revelator"}


def frames(outcome: Outcome, process: int) -> dict[int, int]:
    """Frames of the program's pages, by virtual address."""
    if outcome.failed or outcome.result.mappings is None:
        return {}
    return {page.address: page.at for page in outcome.result.mappings if page.process == process}


def overlap(one: dict[int, int], other: dict[int, int]) -> float | None:
    """Per cent of the pages that both have which lie in the same frame."""
    shared = one.keys() & other.keys()
    return 100 * sum(one[at] == other[at] for at in shared) / len(shared) if shared else None


class Overlap(Figure):
    title = "Pages in the same frame in two runs of a program of 1 MB"
    place = "section 3.2"
    about = (
        "Four conditions: alone and beside another program on a machine of which other programs "
        "hold three tenths of the frames, right after it has booted, and fragmented (an "
        "unusable-free index of 0.9 for 2 MB); the paper does not describe its own. Each machine "
        "has booted by itself. A simulated machine has no history but this, so that two that have "
        "just booted would agree. With Revelator's hash, pages lie where they did unless another "
        "page was there."
    )
    deviation = "revelator-overlap"
    seeds = 3
    panels = (Panel(Bars("% of the pages")),)

    def runs(self, paper: Paper) -> Runs:
        return Runs(
            {
                (name, label): self._run(paper, number, scenario, design)
                for number, (name, scenario) in enumerate(SCENARIOS.items())
                for label, design in DESIGNS.items()
            }
        )

    def _run(self, paper: Paper, number: int, scenario: Scenario, design: str) -> Run:
        run = paper.run(scenario.application, design, changes=scenario.changes)
        return replace(
            run,
            seed=run.seed + number * BOOTS,
            # Pages are placed before the first timed instruction.
            instructions=1000,
            warmup=0,
            mappings=True,
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        outcomes = {key: results(run) for key, run in self.runs(paper).items()}
        rows = []
        for one, other in combinations(SCENARIOS, 2):
            for label in DESIGNS:
                both = [outcomes[name, label] for name in (one, other)]
                places = [
                    frames(outcome, SCENARIOS[name].process)
                    for outcome, name in zip(both, (one, other), strict=True)
                ]
                value = overlap(*places)
                why = next((outcome.why for outcome in both if outcome.failed), "")
                group = f"{one}, {other}"
                if label == "buddy":
                    rows.append(OVERLAP.row(group, label, value, "%", failed=why, average=True))
                else:
                    rows.append(Row(group, label, value, unit="%", failed=why))
        return rows
