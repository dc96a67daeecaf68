"""Section VII-D: what the L2P table would need without in-place and per-way resizing."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import FOUR_KB, KB, LINE, MB, size_words, way_statistic

PROGRAMS = ("GUPS", "SysBench", "SysBench 46 GB", "MUMmer", "MUMmer 0.7 GB")
CAPACITY = 192
"""Entries that a page size can have: 64 of each of three ways (figure 6)."""


class Overflow(Figure):
    title = "Chunks with and without the techniques that make tables smaller"
    place = "section VII-D"
    about = (
        "The paper argues that without in-place and per-way resizing GUPS and SysBench need "
        "192 + 96 entries of 1 MB chunks where a page size has 192, hence chunks of 8 MB; and that "
        "MUMmer's ways go from 8 KB chunks in two and 1 MB in one to two chunks of 1 MB in each. "
        "'SysBench 46 GB' and 'MUMmer 0.7 GB' are what the paper's ways and tree can hold."
    )
    panels = (
        Panel(Bars("KB", log=True), "chunk", "Largest chunk"),
        Panel(Bars("MB"), "memory", "Most memory of the 4 KB table"),
    )

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(PROGRAMS, ["ME-HPT", "ME-HPT chunks alone"])

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        printed = {
            ("GUPS", "ME-HPT"): 1024.0,
            ("SysBench", "ME-HPT"): 1024.0,
            ("GUPS", "ME-HPT chunks alone"): 8192.0,
            ("SysBench", "ME-HPT chunks alone"): 8192.0,
            ("MUMmer", "ME-HPT"): 1024.0,
            ("MUMmer", "ME-HPT chunks alone"): 1024.0,
        }
        memory = {
            ("GUPS", "ME-HPT"): 192.0,
            ("SysBench", "ME-HPT"): 192.0,
            ("GUPS", "ME-HPT chunks alone"): 288.0,
            ("SysBench", "ME-HPT chunks alone"): 288.0,
        }
        for (app, design), run in runs.items():
            outcome = results(run)
            largest = outcome.since_boot(f"{FOUR_KB}.largest_contiguous_bytes")
            peak = outcome.since_boot(f"{FOUR_KB}.peak_bytes")
            key = (app.removesuffix(" 46 GB").removesuffix(" 0.7 GB"), design)
            chunk = None if largest is None else largest / KB
            rows.append(
                Row(
                    app, design, chunk, printed[key], "KB", "section VII-D",
                    failed=outcome.why, panel="chunk",
                )
            )  # fmt: skip
            ways = [slots * LINE for slots in way_statistic(outcome, FOUR_KB, "slots")]
            note = "ways of " + ", ".join(size_words(size) for size in sorted(ways)) if ways else ""
            in_use = way_statistic(outcome, FOUR_KB, "l2p_entries_peak")
            if in_use:
                note += f"; at most {max(in_use):.0f} of 64 L2P entries of a way"
            rows.append(
                Row(
                    app, design, None if peak is None else peak / MB, memory.get(key), "MB",
                    "section VII-D: 192 entries of 1 MB, and 96 Mbytes more", note,
                    outcome.why, panel="memory",
                )
            )  # fmt: skip
        rows.append(
            Row(
                "entries of a page size", "capacity", CAPACITY, 192.0, "entries",
                "section VII-D", "2 x 32 entries x 3 ways: its own and those of 1 GB pages",
                panel="text",
            )
        )  # fmt: skip
        return rows
