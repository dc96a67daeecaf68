"""What sections IV-C and VII-E state beside the figures."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, FOUR_KB, TWO_MB, way_statistic

PLACE = "section VII-E1"
HUGE = ("GUPS", "SysBench")


class Text(Figure):
    title = "Upsizes of the 2 MB tables, changes of chunk size, and two tables side by side"
    place = "sections IV-C and VII-E1"
    about = (
        "The share with two tables is of insertions of lines into ECPT's 4 KB table while an old "
        "and a new table lived, from boot to the end; the paper's is of execution time."
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["ECPT", "ME-HPT", "ME-HPT+THP"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        for app in APPLICATIONS:
            outcome = results(runs[app, "ME-HPT+THP"])
            ways = way_statistic(outcome, TWO_MB, "upsizes")
            most = max(ways) if ways else (None if outcome.failed else 0.0)
            printed = 5.0 if app in HUGE else 0.0
            rows.append(
                Row(
                    app, "upsizes of the 2 MB table, a way", most, printed, "", PLACE,
                    failed=outcome.why,
                )
            )  # fmt: skip
            giant = way_statistic(outcome, "page_table.1gb", "upsizes")
            most = max(giant) if giant else (None if outcome.failed else 0.0)
            rows.append(
                Row(
                    app, "upsizes of the 1 GB table, a way", most, 0.0, "", PLACE,
                    failed=outcome.why,
                )
            )  # fmt: skip
            outcome = results(runs[app, "ME-HPT"])
            ways = way_statistic(outcome, FOUR_KB, "chunk_changes")
            most = max(ways) if ways else None
            note = "the paper: at most one" + ("; 8 MB chunks: see 'printed'" if most == 2 else "")
            rows.append(
                Row(app, "changes of chunk size, a way", most, 1.0, "", PLACE, note, outcome.why)
            )
        shares = []
        for app in APPLICATIONS:
            outcome = results(runs[app, "ECPT"])
            lines = outcome.since_boot(f"{FOUR_KB}.inserted")
            both = outcome.since_boot(f"{FOUR_KB}.coexisting_insertions")
            share = 100 * both / lines if lines and both is not None else None
            shares.append(share)
            rows.append(Row(app, "two tables side by side", share, unit="%", failed=outcome.why))
        rows.append(
            Row(
                "mean", "two tables side by side", mean(shares), 87.3, "%", "section IV-C",
                average=True,
            )
        )  # fmt: skip
        return rows
