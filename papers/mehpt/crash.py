"""Sections III and VII-B: above an index of 0.7 a 64 MB way cannot be had."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

COMPACTS = 0.7
"""The index up to which a block of 64 MB can be had (section VII-B)."""
INDICES = (0.0, 0.2, 0.4, 0.6, 0.7, 0.75, 0.85, 0.95)
ABOVE = tuple(index for index in INDICES if index > COMPACTS)
PROGRAMS = {"GUPS": INDICES, "SysBench": (COMPACTS, 0.75, 0.95), "BFS": INDICES}
"""Fragmentation indices of each program's runs; SysBench has those that the paper names."""
DESIGNS = ("Radix", "ECPT", "ME-HPT")
CONSTANT = "above 0.7 requests for 64 MB fail since a key says so (os.compaction)"
FREQUENCY = 2e9
"""Table III: 2 GHz."""


class Crash(Figure):
    title = "Page-table memory's cost while memory is populated, by fragmentation"
    place = "sections III and VII-B; the sweep goes beyond the paper"
    about = (
        "Kernel time for blocks of page tables and for moved entries, with memory at an index of "
        "0 to 0.95. Above 0.7 a request for 64 MB fails and ECPT cannot finish GUPS and SysBench "
        "(✗), as in the paper; BFS needs no more than 16 MB and finishes. The paper gives prices "
        "at 0.7 only: below it ours fall with the square of the index to that of zeroing, and "
        "above it they stay those of 0.7, so that the bars there are equal by assumption. "
        "SysBench is looked at with three of them."
    )
    panels = tuple(
        Panel(
            Bars("milliseconds", log=True),
            program,
            f"{program}, by unusable-free index (price above 0.7: that of 0.7)",
        )
        for program in PROGRAMS
    )

    def runs(self, paper: Paper) -> Runs:
        return Runs(
            {
                (program, f"{design} {index}"): paper.run(
                    program,
                    design,
                    changes={"os.fragmentation": {"unusable_free_index": index}},
                )
                for program, indices in PROGRAMS.items()
                for design in DESIGNS
                for index in indices
            }
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        ended = {}
        for program, indices in PROGRAMS.items():
            for index in indices:
                for design in DESIGNS:
                    outcome = results(runs[program, f"{design} {index}"])
                    cycles = outcome.since_boot("os.populate_table_cycles")
                    value = None if cycles is None or outcome.failed else 1e3 * cycles / FREQUENCY
                    rows.append(
                        Row(
                            f"{index:g}", design, value, unit="ms", failed=outcome.why,
                            panel=program,
                        )
                    )  # fmt: skip
                    ended[program, design, index] = outcome
        for program in ("GUPS", "SysBench"):
            for design, printed in (("ECPT", 1.0), ("ME-HPT", 0.0)):
                found = [
                    ended[program, design, index] for index in PROGRAMS[program] if index in ABOVE
                ]
                known = not any(outcome.error is not None for outcome in found)
                value = sum(o.failed for o in found) / len(found) if known else None
                rows.append(
                    Row(
                        f"{program} above 0.7", f"{design}: share of runs that cannot finish",
                        value, printed, "", "section VII-B", panel="text", average=True,
                        by_construction=CONSTANT if design == "ECPT" else "",
                    )
                )  # fmt: skip
        return rows
