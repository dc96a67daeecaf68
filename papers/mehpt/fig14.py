"""Figure 14: entries of the L2P table in use."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import ALL_SIZES, APPLICATIONS, BIG_MACHINE, CHOSEN_SIZES, TABLE_1, VARIANTS

PLACE = "section VII-E4"
PRINTED = {("GUPS", "ME-HPT"): 192.0, ("SysBench", "ME-HPT"): 192.0}


class Figure14(Figure):
    title = "Entries of the L2P table in use"
    place = "figure 14, section VII-E4"
    about = (
        "Entries in use at the end, of 288. While a way goes over from 64 chunks of 8 KB to one of "
        "1 MB it holds both: with all three ways that is 195, the number that the paper gives for "
        "MUMmer, and the most that nearly every application here has at a time. The paper gives 11 "
        "for TC and 195 for MUMmer without saying whether with THP; they stand beside both. "
        + BIG_MACHINE
    )
    deviation = TABLE_1
    panels = (
        Panel(Bars("entries"), "", "At the end"),
        Panel(Bars("entries"), "most", "Most at a time"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(ALL_SIZES, ["ME-HPT", "ME-HPT+THP"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        rows = []
        entries = {}
        for (app, design), run in self.runs(paper).items():
            outcome = results(run)
            value = outcome.since_boot("page_table.l2p.entries")
            most = outcome.since_boot("page_table.l2p.entries_peak")
            entries[app, design] = value
            if app not in APPLICATIONS:
                continue
            printed = {"TC": 11.0, "MUMmer": 195.0}.get(app, PRINTED.get((app, design)))
            place = PLACE if app in ("TC", "MUMmer") else "section VII-D" if printed else ""
            rows.append(Row(app, design, value, printed, "entries", place, failed=outcome.why))
            rows.append(
                Row(app, f"{design}, most", most, unit="entries", failed=outcome.why, panel="most")
            )
        for variant, other in VARIANTS:
            average = mean(
                entries[other.get(app, app), design]
                for app in APPLICATIONS
                for design in ("ME-HPT", "ME-HPT+THP")
            )
            rows.append(
                Row("mean", f"all bars{variant}", average, 52.5, "entries", PLACE, panel="text",
                    average=True, by_construction=CHOSEN_SIZES if variant else "")
            )  # fmt: skip
        return rows
