"""Beyond the paper: each technique alone, all off and all on."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, FOUR_KB, KB, MB, scaled

DESIGNS = ("ECPT", "ME-HPT chunks alone", "in place alone", "per way alone", "ME-HPT")


class Techniques(Figure):
    title = "ME-HPT's techniques, each alone"
    place = "beyond the paper"
    about = (
        "Without any, ME-HPT is ECPT. Chunks are the L2P table and changing chunk sizes, which the "
        "paper describes together."
    )
    panels = (
        Panel(
            Bars("size", log=True, sizes=KB), "block", "Largest contiguous block of the 4 KB table"
        ),
        Panel(Bars("size", log=True, sizes=MB), "memory", "Most memory of page tables"),
        Panel(Bars("milliseconds", log=True), "cost", "Cost of page-table memory in populating"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, DESIGNS)

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        rows: dict[str, list[Row]] = {"block": [], "memory": [], "cost": []}
        for (app, design), run in self.runs(paper).items():
            outcome = results(run)
            why = outcome.why
            cost = scaled(outcome.since_boot("os.populate_table_cycles"), 2e6)
            for panel, value, unit in (
                (
                    "block",
                    scaled(outcome.since_boot(f"{FOUR_KB}.largest_contiguous_bytes"), KB),
                    "KB",
                ),
                ("memory", scaled(outcome.since_boot("os.page_table_peak_bytes"), MB), "MB"),
                ("cost", None if why else cost, "ms"),
            ):
                rows[panel].append(Row(app, design, value, unit=unit, failed=why, panel=panel))
        return [row for panel in rows.values() for row in panel]
