"""Figure 1: what addressing takes of Redis."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import Case, Found, runs
from .printed import ADDRESSING, REDIS

BASE = Case("Redis", "Original")
NO_WALKS = BASE.of(design="Perfect TLB")
SHORT = Case("Redis", "STLT")
SHORT_NO_WALKS = SHORT.of(design="Perfect TLB, STLT")
SIPHASH = SHORT.of(fast_hash="siphash")
SIP_INSTRUCTIONS, XXH3_INSTRUCTIONS = 133, 45
"""Instructions of the fast hashes as they are executed (docs/workloads.md)."""


class Figure1(Figure):
    title = "What finding a record takes of Redis"
    place = "figure 1"
    about = (
        "Each part is what the program saves when it is taken away. Translation: TLBs that never "
        "miss. Hashing: SipHash for xxh3 in front of the table is a difference of 88 instructions "
        "a key; all 133 cost in proportion, what they keep out of the core's window included. "
        "Index traversal: with TLBs that never miss, what the table saves beside hashing; its own "
        "row is still read, so that is the least it can be. The rest is reading the request, the "
        "value and the reply. The paper measured the whole server with perf, whose kinds of work "
        "it does not define."
    )
    timing = True
    panels = (Panel(Bars("% of the cycles", stacked=True)),)

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, (BASE, NO_WALKS, SHORT, SHORT_NO_WALKS, SIPHASH))

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        cases = (BASE, NO_WALKS, SHORT, SHORT_NO_WALKS, SIPHASH)
        whole, no_walks, short, short_no_walks, sip = (found.cycles(case) for case in cases)
        why = next((found.outcome(case).why for case in cases if found.outcome(case).why), "")
        parts: dict[str, float | None] = dict.fromkeys(
            ("hashing", "index traversal, at least", "translation", "the rest")
        )
        if whole and no_walks and short and short_no_walks and sip:
            differ = SIP_INSTRUCTIONS - XXH3_INSTRUCTIONS
            hashing = (sip - short) * SIP_INSTRUCTIONS / differ
            translation = whole - no_walks
            traversal = no_walks - short_no_walks - (sip - short)
            rest = whole - hashing - translation - traversal
            values = (hashing, traversal, translation, rest)
            parts = {name: 100 * value / whole for name, value in zip(parts, values, strict=True)}
        known = [value for value in parts.values() if value is not None]
        addressing = sum(known[:-1]) if known else None
        return [
            *(
                Row("Redis", "", value, unit="%", part=name, failed=why)
                for name, value in parts.items()
            ),
            ADDRESSING.row(
                "Redis", "addressing", addressing, "%", average=True, panel="text",
                deviation=REDIS,
            ),
        ]  # fmt: skip
