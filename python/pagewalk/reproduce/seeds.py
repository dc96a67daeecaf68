"""Several seeds: rows of all seeds are merged into one, with their spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from pagewalk.reproduce.figure import Row
from pagewalk.reproduce.means import mean

Place = tuple[str, str, str, str, int]


def placed(rows: Iterable[Row]) -> dict[Place, Row]:
    """Rows by their position; the last part numbers rows of equal position."""
    count: Counter[tuple[str, str, str, str]] = Counter()
    found = {}
    for row in rows:
        place = (row.panel, row.group, row.series, row.part)
        one = (*place, count[place])
        found[one] = row
        count[place] += 1
    return found


def together(of_seeds: Sequence[list[Row]]) -> list[Row]:
    """Merges the rows of each seed: mean, smallest and largest value.

    If some seeds lack a row, the merged row is that of the others, and notes it.
    """
    if len(of_seeds) == 1:
        return of_seeds[0]
    seeds = [placed(rows) for rows in of_seeds]
    places = dict.fromkeys(place for rows in seeds for place in rows)
    return [_one([rows.get(place) for rows in seeds]) for place in places]


def _one(rows: list[Row | None]) -> Row:
    there = [row for row in rows if row is not None]
    values = [row.value for row in there if row.value is not None]
    first = next((row for row in there if row.value is not None), there[0])
    note = first.note
    if values and len(values) < len(rows):
        why = next((row.failed for row in there if row.failed), "they give no number")
        note = "; ".join(
            part for part in (note, f"of {len(values)} of {len(rows)} seeds: {why}") if part
        )
    return replace(
        first,
        value=mean(values),
        low=min(values, default=None),
        high=max(values, default=None),
        seeds=len(values),
        note=note,
    )
