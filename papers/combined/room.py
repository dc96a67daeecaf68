"""Contiguous memory for hashed page tables when a hash places the pages of data."""

from __future__ import annotations

from pagewalk.reproduce import Design, Figure, Outcome, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, TABLES

CONTIGUOUS = "placement.tiered_hash.contiguous_mb"
MB = 1 << 20
HASHED = tuple(table for table in TABLES if table != "Radix")


def spared(paper: Paper, table: str, mb: int) -> Design:
    """Pages by hash over `table`, which leaves so much memory whole."""
    label = f"{table}, {mb} MB spared"
    return paper.designs[f"Guess {table}"].changed(label, {CONTIGUOUS: mb})


class Room(Figure):
    title = "The largest block that a page table got, beside pages placed by hash"
    place = "all memory is populated, nothing is timed"
    about = (
        "Pages that hashes place leave no large block whole. 'Spared' is memory whose frames no "
        "hash names (placement.tiered_hash.contiguous_mb). A design that found no block for its "
        "page table cannot finish."
    )

    def runs(self, paper: Paper) -> Runs:
        hashed = [spared(paper, table, mb) for table in HASHED for mb in (0, 1024)]
        return paper.cross(APPLICATIONS, [*TABLES, "Guess Radix", *hashed])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        designs = dict.fromkeys(design for (_, design), _ in runs.items())
        rows = []
        for app in APPLICATIONS:
            for design in designs:
                outcome = results(runs[app, design])
                block = self._mb(outcome, "largest_contiguous_bytes")
                rows.append(Row(design, app, block, unit="MB", failed=outcome.why, panel="block"))
                table = self._mb(outcome, "page_table_bytes")
                rows.append(Row(design, app, table, unit="MB", failed=outcome.why, panel="memory"))
        unit = f"of {len(APPLICATIONS)} programs"
        for design in designs:
            ends = sum(not results(runs[app, design]).failed for app in APPLICATIONS)
            rows.append(Row(design, "", float(ends), unit=unit, panel="finished", average=True))
        return rows

    @staticmethod
    def _mb(outcome: Outcome, name: str) -> float | None:
        value = None if outcome.failed else outcome.get(name)
        return None if value is None else value / MB
