"""Section VII-D: what the L2P table would need without in-place and per-way resizing."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Outcome, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import (
    CHOSEN,
    FOUR_KB,
    GB,
    KB,
    LINE,
    MB,
    TABLE_1,
    UPSIZE_AT,
    L2p,
    clusters,
    mapped,
    size_words,
    way_chunks,
    way_statistic,
)

SMALL = ("MUMmer", "MUMmer 0.7 GB", "MUMmer 0.45 GB")
PROGRAMS = ("GUPS", "SysBench", "SysBench 46 GB", *SMALL)
ALL, CHUNKS = "ME-HPT", "ME-HPT chunks alone"
PLACE = "section VII-D"
CHUNK_KB = {ALL: 1024.0, CHUNKS: 8192.0}
MEMORY_MB = {ALL: 192.0, CHUNKS: 288.0}
MUMMER_WAYS_KB = (512, 512, 1024)
"""Section VII-E2 has 0.5 MB for most of the ways; one 1 MB chunk is the third."""


def entries(outcome: Outcome) -> str:
    """The most entries that a way's 4 KB pages had of the L2P table, as a sentence."""
    most, l2p = way_statistic(outcome, FOUR_KB, "l2p_entries_peak"), L2p.of(outcome)
    if not most or l2p is None:
        return ""
    return (
        f"; a way used {max(most):.0f} of its {l2p.way} L2P entries at a time "
        f"(at most {l2p.one_size} for chunks of one size)"
    )


def printed_ways(outcome: Outcome) -> str:
    """A sentence on the load of the paper's ways of MUMmer."""
    data = mapped(outcome)
    if not data:
        return ""
    lines, slots = clusters(data), sum(MUMMER_WAYS_KB) * KB / LINE
    verdict = "above" if lines / slots > UPSIZE_AT else "below"
    return (
        f"{data / GB:.2f} GB are {lines / 1e3:.1f} K clusters; ways of 0.5, 0.5 and 1 MB have "
        f"{slots / 1e3:.1f} K slots: a load of {lines / slots:.2f}, {verdict} the threshold of "
        f"{UPSIZE_AT}"
    )


def _chosen(app: str) -> str:
    return CHOSEN if app.endswith(" GB") else ""


class Overflow(Figure):
    title = "Chunks with and without the techniques that make tables smaller"
    place = PLACE
    about = (
        "The paper argues that without in-place and per-way resizing GUPS and SysBench need "
        "192 + 96 entries of 1 MB chunks where a page size has 192, hence chunks of 8 MB; and that "
        "MUMmer has chunks of 8 KB in two ways and one of 1 MB in the third, without them two "
        "chunks of 1 MB in each. 'SysBench 46 GB' is what the paper's ways can hold. Of MUMmer, "
        "6.9 GB are table I's data, 0.7 GB what its tree of 1.4 MB maps, and 0.45 GB a size at "
        "which the text's ways, and the 4.5 MB of ECPT in table I, come out: ways of 0.5, 0.5 and "
        "1 MB hold no 0.7 GB. Two 1 MB chunks are the old and the new way during a resize."
    )
    deviation = TABLE_1
    panels = (
        Panel(Bars("size", log=True, sizes=KB), "chunk", "Largest chunk"),
        Panel(Bars("MB"), "memory", "Most memory of the 4 KB table"),
        Panel(Bars("ways"), "ways", "MUMmer: ways of ME-HPT by the size of their chunks"),
        Panel(Bars("chunks"), "two", "MUMmer: 1 MB chunks that every way had, most at a time"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(PROGRAMS, [ALL, CHUNKS])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        for (app, design), run in runs.items():
            outcome = results(run)
            largest = outcome.since_boot(f"{FOUR_KB}.largest_contiguous_bytes")
            peak = outcome.since_boot(f"{FOUR_KB}.peak_bytes")
            chunk = None if largest is None else largest / KB
            small = app in SMALL
            rows.append(
                Row(
                    app, design, chunk, None if small else CHUNK_KB[design], "KB",
                    "" if small else PLACE, failed=outcome.why, panel="chunk",
                    by_construction=_chosen(app),
                )
            )  # fmt: skip
            ways = [slots * LINE for slots in way_statistic(outcome, FOUR_KB, "slots")]
            note = "ways of " + ", ".join(size_words(size) for size in sorted(ways)) if ways else ""
            rows.append(
                Row(
                    app, design, None if peak is None else peak / MB,
                    None if small else MEMORY_MB[design], "MB",
                    "" if small else f"{PLACE}: 192 entries of 1 MB, and 96 Mbytes more",
                    note + entries(outcome), outcome.why, panel="memory",
                    by_construction=_chosen(app),
                )
            )  # fmt: skip
        for app in SMALL:
            outcome = results(runs[app, ALL])
            found = way_chunks(outcome, FOUR_KB)
            for size, printed in ((8 * KB, 2.0), (MB, 1.0)):
                rows.append(
                    Row(
                        app, f"ways in {size_words(size)} chunks",
                        float(found.count(size)) if found else None, printed, "ways", PLACE,
                        printed_ways(outcome), outcome.why, panel="ways",
                        by_construction=_chosen(app),
                    )
                )  # fmt: skip
            outcome = results(runs[app, CHUNKS])
            peaks = way_statistic(outcome, FOUR_KB, "peak_bytes")
            rows.append(
                Row(
                    app, CHUNKS, float(min(peaks) // MB) if peaks else None, 2.0, "chunks", PLACE,
                    failed=outcome.why, panel="two",
                    by_construction=_chosen(app),
                )
            )  # fmt: skip
        outcome = results(runs["GUPS", ALL])
        l2p = L2p.of(outcome)
        capacity = float(l2p.one_size * l2p.ways) if l2p else None
        rows.append(
            Row(
                "entries of a page size", "capacity", capacity,
                192.0, "entries", PLACE,
                "arithmetic of the design as it was resolved: two sub-tables (its own and that of "
                "1 GB pages) of each way",
                outcome.why, panel="text",
            )
        )  # fmt: skip
        return rows
