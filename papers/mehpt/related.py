"""Section IX: level hashing, and a hashed page table without ways, beside ECPT and ME-HPT."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from pagewalk.reproduce import Bars, Figure, Lines, Outcome, Panel, Paper, Row, Run, Runs
from pagewalk.reproduce.figure import Results

from .common import FOUR_KB, LINE, MB, clusters, mapped, scaled

LEVEL, LINEAR = "level hashing", "hash, don't cache"
DESIGNS = ("ECPT", "ME-HPT", LEVEL, LINEAR)
PLACE = "section IX"
SMALLEST, DOUBLINGS, STEPS = 64, 6, 8
SIZES = tuple(round(SMALLEST * 2 ** (i / STEPS)) for i in range(DOUBLINGS * STEPS + 1))
"""MB of SysBench, eight in a doubling."""
ONE_CHUNK_SIZE = 1024
"""MB from which on ME-HPT's chunks are of 1 MB, up to the ways of 64 MB."""
WALKED = ("BFS", "GUPS")
INSTRUCTIONS, WARMUP = 2_000_000, 500_000
"""Instructions of all threads, at every scale: the reads of a walk depend little on them."""


def sized(size: int) -> str:
    """The group of a run of the sweep."""
    return str(size)


def jumps(outcomes: list[Outcome]) -> tuple[float | None, str]:
    """The share of entries that upsizes move which happen at once, with each one's as a note.

    Such an upsize lies between two neighbouring sizes of which the larger has twice the page-table
    memory. What insertions moved in between is in the share too.
    """
    shares, moved, there = [], 0.0, 0.0
    for before, after in pairwise(outcomes):
        pair = (before, after)
        held = [o.since_boot("os.page_table_bytes") or 0.0 for o in pair]
        entries = [o.since_boot("os.table_entries_moved") or 0.0 for o in pair]
        data = [mapped(o) or 0.0 for o in pair]
        if not all(data) or held[1] != 2 * held[0]:
            continue
        lines = sum(clusters(size) for size in data) / 2
        moved, there = moved + entries[1] - entries[0], there + lines
        share, load = (entries[1] - entries[0]) / lines, lines * LINE / held[0]
        shares.append(f"{share:.2f} at a load of {load:.2f}")
    note = (
        f"of the entries that were there in {len(shares)} upsizes: {', '.join(shares)}; an upsize "
        "lies between two sizes, whose mean counts as there, within 5 %"
    )
    return (moved / there if there else None), note


class Related(Figure):
    title = "Other hashed page tables: entries moved, memory and reads of a walk"
    place = "section IX; beyond the paper but for what it says of level hashing"
    about = (
        "Section IX: level hashing moves a third of the entries in an upsize and reads four "
        "buckets a lookup, in-place resizing moves half and reads nothing in addition, and frees "
        "none of the old table. Counted with SysBench of 64 MB to 4 GB. Level hashing empties its "
        "bottom level, a third of its slots; a bucket here is one cluster where the original has "
        "several slots, so that it grows when less than half full, and its two levels are not "
        "equally full. It and 'Hash, Don't Cache' (open addressing, 4 MB at first) double at once, "
        "the cuckoo tables a few entries an insertion. Memory given back is looked at from 1 GB "
        "on, where ME-HPT's chunks stay 1 MB: a change of their size is out of place and frees the "
        "old ones. Entries are clusters of eight. Reads are of 2 million instructions, at every "
        "scale; of ECPT and ME-HPT what the cuckoo walk caches leave of three ways of three page "
        "sizes."
    )
    panels = (
        Panel(Bars("share moved"), "share", "Share of the entries that an upsize moves"),
        Panel(
            Lines("size of SysBench", "entries moved", log_x=True, sizes_x=MB), "moved",
            "Entries moved from an empty table on, by resizes and by insertions",
        ),
        Panel(
            Lines("size of SysBench", "size", log_x=True, log_y=True, sizes_x=MB, sizes_y=MB),
            "memory",
            "Most page-table memory",
        ),
        Panel(Bars("share of the most"), "freed", "Page-table memory given back after an upsize"),
        Panel(Bars("reads"), "reads", "Memory reads of a page walk"),
        Panel(Bars("size", log=True, sizes=MB), "block", "Largest contiguous block"),
        Panel(Bars("size", log=True, sizes=MB), "peak", "Most page-table memory"),
    )  # fmt: skip

    def _sweep(self, paper: Paper, size: int, design: str) -> Run:
        app = replace(paper.applications["SysBench"].resized(size=f"{size}MiB"), changes={})
        return paper.run(app, design)

    def _walked(self, paper: Paper, app: str, design: str) -> Run:
        return replace(paper.run(app, design), instructions=INSTRUCTIONS, warmup=WARMUP)

    def runs(self, paper: Paper) -> Runs:
        return Runs(
            {
                (sized(size), design): self._sweep(paper, size, design)
                for size in SIZES
                for design in DESIGNS
            }
            | {
                (app, design): self._walked(paper, app, design)
                for app in WALKED
                for design in DESIGNS
            }
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        sweep = {d: [results(runs[sized(size), d]) for size in SIZES] for d in DESIGNS}
        rows = shares(sweep)
        for panel, statistic, unit in (
            ("moved", "os.table_entries_moved", 1),
            ("memory", "os.page_table_peak_bytes", MB),
        ):
            for design, outcomes in sweep.items():
                for size, outcome in zip(SIZES, outcomes, strict=True):
                    value = scaled(outcome.since_boot(statistic), unit)
                    words = "entries" if unit == 1 else "MB"
                    rows.append(
                        Row(sized(size), design, value, unit=words, failed=outcome.why, panel=panel)
                    )
        for design, outcomes in sweep.items():
            large = [o for size, o in zip(SIZES, outcomes, strict=True) if size >= ONE_CHUNK_SIZE]
            rows.append(
                Row(
                    "SysBench", design, given_back(large), 0.0 if design == "ME-HPT" else None,
                    "", PLACE if design == "ME-HPT" else "",
                    "the largest share of its most memory that a table no longer had at the end "
                    "of a run", why(outcomes), panel="freed", average=True,
                )
            )  # fmt: skip
        for app in WALKED:
            found = {design: results(runs[app, design]) for design in DESIGNS}
            for design, outcome in found.items():
                printed = 4.0 if design == LEVEL else None
                rows += [
                    Row(
                        app, design, outcome.get("walk_reads_per_walk"), printed, "reads",
                        PLACE if printed else "", failed=outcome.why, panel="reads", average=True,
                    ),
                    Row(
                        app, design, scaled(outcome.since_boot("os.largest_contiguous_bytes"), MB),
                        unit="MB", failed=outcome.why, panel="block",
                    ),
                    Row(
                        app, design, scaled(outcome.since_boot("os.page_table_peak_bytes"), MB),
                        unit="MB", failed=outcome.why, panel="peak",
                    ),
                ]  # fmt: skip
            ecpt, ours = (found[d].get("walk_reads_per_walk") for d in ("ECPT", "ME-HPT"))
            over = ours / ecpt if ours and ecpt else None
            rows.append(
                Row(
                    app, "reads of a walk, ME-HPT over ECPT", over, 1.0, "", PLACE,
                    "the paper: no additional memory references per lookup",
                    panel="text", average=True,
                )
            )  # fmt: skip
        return rows


def why(outcomes: list[Outcome]) -> str:
    """The first reason for which there are no numbers."""
    return next((outcome.why for outcome in outcomes if outcome.failed), "")


def shares(sweep: dict[str, list[Outcome]]) -> list[Row]:
    """The share of entries that upsizes move, of each design."""
    rows = []
    for design, printed in (("ECPT", None), ("ME-HPT", 0.5)):
        moved, stayed, out = (
            sweep[design][-1].since_boot(f"{FOUR_KB}.{name}") or 0.0
            for name in ("moved", "stayed", "moved_out_of_place")
        )
        rehashed = moved + stayed + out
        note = "of the entries that upsizes rehashed, from an empty table to 4 GB"
        share = (moved + out) / rehashed if rehashed else None
        if moved + stayed:
            note += f"; in place: {share:.2f} with the changes of chunk size"
            share = moved / (moved + stayed)
        rows.append(
            Row(
                "an upsize", design, share, printed, "", "section VII-E3" if printed else "", note,
                why(sweep[design]), panel="share", average=True,
            )
        )  # fmt: skip
    for design, printed in ((LEVEL, 1 / 3), (LINEAR, None)):
        value, note = jumps(sweep[design])
        rows.append(
            Row(
                "an upsize", design, value, printed, "", PLACE if printed else "", note,
                why(sweep[design]), panel="share", average=True,
            )
        )  # fmt: skip
    return rows


def given_back(outcomes: list[Outcome]) -> float | None:
    """The largest share of its most memory that a table no longer had at the end of a run."""
    held = [
        (outcome.since_boot("os.page_table_peak_bytes"), outcome.since_boot("os.page_table_bytes"))
        for outcome in outcomes
    ]
    found = [1 - now / most for most, now in held if most and now is not None]
    return max(found, default=None)
