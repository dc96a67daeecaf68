"""Table 2: the programs, what they map, and how often they miss the L2 TLB."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Outcome, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS
from .printed import FOOTPRINT_GB, L2_TLB_MPKI, V2_WALKS

GB = 1 << 30


def mapped(outcome: Outcome) -> float | None:
    """GB of the program that are mapped."""
    parts = [outcome.get(f"mapped_{size}") for size in ("4kb", "2mb", "1gb")]
    return None if outcome.failed else sum(part or 0 for part in parts) / GB


class Table2(Figure):
    title = "The programs: what they map, and misses of the L2 TLB"
    place = "table 2, section 6.3; second version"
    about = (
        "GraphBIG's programs in its own layout on LDBC-like graphs: the paper says neither which "
        "graph nor which layout. A GUPS table is a power of two, so that its 10 GB are 8 here. The "
        "paper chose programs with more than 5 misses of the L2 TLB in a thousand instructions; "
        "its second version gives page walks in a thousand instructions."
    )
    timing = True
    deviation = "revelator-table-2"
    panels = (
        Panel(Bars("GB"), "memory", "Memory mapped"),
        Panel(Bars("misses a kilo-instruction"), "misses", "Misses of the L2 TLB"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["Radix"], timing=True)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        memory, misses, walks = [], [], []
        for (app, _), run in self.runs(paper).items():
            outcome = results(run)
            why = outcome.why
            value = None if why else outcome.get("l2_tlb_mpki")
            memory.append(
                FOOTPRINT_GB[app].row(
                    app, "Radix", mapped(outcome), "GB", failed=why, panel="memory"
                )
            )
            misses.append(L2_TLB_MPKI.row(app, "Radix", value, failed=why, panel="misses"))
            walks.append(
                V2_WALKS[app].row(app, "walks, second version", value, failed=why, panel="walks")
            )
        return [*memory, *misses, *walks]
