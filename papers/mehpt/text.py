"""Statements of sections IV-C and VII-E beside the figures."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Outcome, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import (
    APPLICATIONS,
    BIG_MACHINE,
    CHOSEN,
    CLUSTER,
    FOUR_KB,
    MB,
    TABLE_1,
    TWO_MB,
    UPSIZE_AT,
    WAYS,
    way_statistic,
)

PLACE = "section VII-E1"
LESS = "SysBench 46 GB"
HUGE = ("GUPS", "SysBench", LESS)


def upsizes(outcome: Outcome, table: str) -> list[float | None]:
    """Upsizes of each way; 0 for a table that never got a line."""
    found = way_statistic(outcome, table, "upsizes")
    if found:
        return [*found]
    return [None if outcome.failed else 0.0] * WAYS


def load(outcome: Outcome) -> str:
    """A sentence on the load of the 2 MB tables."""
    huge = outcome.get("mapped_2mb") or 0.0
    slots = sum(way_statistic(outcome, TWO_MB, "slots"))
    if not slots:
        return ""
    lines = huge / (2 * MB) / CLUSTER
    return (
        f"{huge / (1 << 30):g} GB in 2 MB pages are {lines:,.0f} clusters; the ways have "
        f"{slots:,.0f} slots: a load of {lines / slots:.3f} (threshold {UPSIZE_AT})"
    )


class Text(Figure):
    title = "Upsizes of the 2 MB tables, changes of chunk size, and two tables side by side"
    place = "sections IV-C and VII-E1"
    about = (
        "A 2 MB table's clusters map 512 times as much as a 4 KB table's, so that with the same "
        "data its ways have nine upsizes less: the paper's 13 of GUPS and SysBench without THP "
        "(figure 11) would be 4, and its 5 with THP would be 14. Here 64 GB take 13 or 14 and 4 or "
        f"5, and '{LESS}' 13 and 4. "
        + BIG_MACHINE
        + " The share with two tables is of insertions of lines into ECPT's 4 KB table while an "
        "old and a new table lived, from boot to the end; the paper's is of execution time."
    )
    deviation = TABLE_1

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(APPLICATIONS, ["ECPT", "ME-HPT", "ME-HPT+THP"]) | paper.cross(
            [LESS], ["ME-HPT+THP"]
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        for app in (*APPLICATIONS, LESS):
            outcome = results(runs[app, "ME-HPT+THP"])
            note = load(outcome) if app in HUGE else ""
            if app == LESS:
                note += "; the paper's 5 speaks for 64 GB"
            printed = 5.0 if app in HUGE else 0.0
            rows += [
                Row(
                    app, f"upsizes of the 2 MB table, way {way}", value, printed, "", PLACE,
                    note, outcome.why, average=app in HUGE,
                    by_construction=CHOSEN if app == LESS else "",
                )
                for way, value in enumerate(upsizes(outcome, TWO_MB))
            ]  # fmt: skip
            rows += [
                Row(
                    app, f"upsizes of the 1 GB table, way {way}", value, 0.0, "", PLACE,
                    failed=outcome.why,
                )
                for way, value in enumerate(upsizes(outcome, "page_table.1gb"))
            ]  # fmt: skip
        for app in APPLICATIONS:
            outcome = results(runs[app, "ME-HPT"])
            ways = way_statistic(outcome, FOUR_KB, "chunk_changes")
            most = max(ways) if ways else None
            note = "the paper: at most one" + ("; 8 MB chunks: see 'printed'" if most == 2 else "")
            rows.append(
                Row(
                    app, "changes of chunk size, the way with most", most, 1.0, "", PLACE, note,
                    outcome.why,
                )
            )  # fmt: skip
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
                average=True, deviation="mehpt-two-tables",
            )
        )  # fmt: skip
        return rows
