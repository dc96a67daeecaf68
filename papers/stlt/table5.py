"""Table V: misses of STLT and SLB, and what uniform requests must miss."""

from __future__ import annotations

from pagewalk.reproduce import Figure, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    DISTRIBUTIONS,
    EARLIER,
    KEYS,
    MB,
    ROW_BYTES,
    SCALED,
    Case,
    Found,
    conflicts,
    crowded_out_zipf,
    never_requested,
    never_requested_latest,
    never_requested_zipf,
    runs,
)  # fmt: skip
from .printed import MISSES, TABLE_5, UNIFORM

SERIES = ("SLB", "STLT")
WAYS = 4


def closed_form(megabytes: float, ways: int = WAYS) -> float:
    """Per cent of uniform requests that miss a table of the paper's, of its size or another."""
    sets = megabytes * MB / ROW_BYTES / ways
    full = conflicts(KEYS, sets, ways)
    return 100 * (1 - (1 - full) * (1 - never_requested(EARLIER, KEYS)))


def closed_form_zipf(keys: float = KEYS, requests: float = EARLIER) -> tuple[float, float]:
    """Per cent of zipf's requests that miss: for keys never requested, and in all."""
    sets = 512 * MB / ROW_BYTES / WAYS * keys / KEYS
    new = never_requested_zipf(requests, keys)
    return 100 * new, 100 * (1 - (1 - new) * (1 - crowded_out_zipf(keys, sets, WAYS)))


def of_misses(per_cent: float) -> float:
    """MB of the 4-way table that would miss so often."""
    low, high = 16.0, 4096.0
    while high - low > 0.01:
        middle = (low + high) / 2
        low, high = (middle, high) if closed_form(middle) > per_cent else (low, middle)
    return low


class Table5(Figure):
    title = "Misses of STLT and SLB"
    place = "table V, section IV-B"
    about = (
        SCALED + "Of an STLT they are counted, on Redis with values of 128 bytes. Of an SLB they "
        "come from the instructions of the ordered and the unordered map, which have the same "
        "requests. The closed forms count the keys that 80 million requests never asked for (a "
        "table that admits each key misses those), and the keys for which their set has no room: "
        "10 million keys over 8,388,608 sets are 1.19 a set, of which 4 have a row. Zipf has "
        "10,000,000,001 items at each number of keys, so fewer keys miss less often."
    )
    timing = True

    def _cases(self) -> list[Case]:
        return [
            Case(program, table, name, 128)
            for name in DISTRIBUTIONS
            for program in ("Redis", "umap", "map")
            for table in SERIES
        ]

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, self._cases())

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows = []
        for (name, series), printed in TABLE_5.items():
            case = Case("Redis" if series == "STLT" else "map", series, name, 128)
            value = found.missed(case) if series == "STLT" else found.missed_in_software(case)
            rows.append(
                Row(
                    name, series, value, printed, "%", "table V", failed=found.why(case),
                    deviation=UNIFORM if name == "uniform" else MISSES, average=True,
                )
            )  # fmt: skip
        for name in DISTRIBUTIONS:
            # The counted misses of the machine's table, by the way that software's are found.
            case = Case("map", "STLT", name, 128)
            rows.append(
                Row(name, "STLT, on the map", found.missed(case), unit="%", panel="text",
                    failed=found.why(case))
            )  # fmt: skip
        rows += [
            Row(
                f"uniform requests, {size} MB, {ways} ways", "closed form",
                closed_form(size, ways), unit="%", panel="text",
            )
            for size, ways in ((512, 4), (256, 4), (512, 2), (512, 1))
        ]  # fmt: skip
        at_scale = KEYS / int(getattr(paper, "fewer"))  # noqa: B009 (own class)
        for where, keys in (("paper", KEYS), ("scale", at_scale)):
            new, every = closed_form_zipf(keys, EARLIER * keys / KEYS)
            latest = 100 * never_requested_latest(EARLIER * keys / KEYS, keys)
            rows += [
                Row(f"zipf, {where}, never requested", "closed form", new, unit="%", panel="text"),
                Row(f"zipf, {where}, STLT", "closed form", every, unit="%", panel="text"),
                Row(f"latest, {where}, never requested", "closed form", latest, unit="%",
                    panel="text"),
            ]  # fmt: skip
        rows.append(
            Row(
                f"a table that misses {TABLE_5['uniform', 'STLT']} % of uniform requests",
                "closed form", of_misses(TABLE_5["uniform", "STLT"]), unit="MB", panel="text",
            )
        )  # fmt: skip
        return rows
