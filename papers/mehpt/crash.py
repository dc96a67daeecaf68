"""Sections III and VII-B: above an index of 0.7 a 64 MB way cannot be had."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

INDICES = (0.0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 0.95)
PROGRAMS = ("GUPS", "BFS")
DESIGNS = ("Radix", "ECPT", "ME-HPT")
FREQUENCY = 2e9
"""Table III: 2 GHz."""


class Crash(Figure):
    title = "Page-table memory's cost while memory is populated, by fragmentation"
    place = "sections III and VII-B; the sweep goes beyond the paper"
    about = (
        "Kernel time for blocks of page tables and for moved entries, with memory at an index of "
        "0 to 0.95. Above 0.7 a request for 64 MB fails and ECPT cannot finish GUPS (✗), as in the "
        "paper; BFS needs no more than 16 MB and finishes. Below 0.7 prices are ours."
    )
    panels = tuple(
        Panel(Bars("milliseconds", log=True), program, f"{program}, by unusable-free index")
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
                for program in PROGRAMS
                for design in DESIGNS
                for index in INDICES
            }
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        runs = self.runs(paper)
        rows = []
        ended = {}
        for program in PROGRAMS:
            for index in INDICES:
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
        above = [index for index in INDICES if index > 0.7]
        for design, printed in (("ECPT", 1.0), ("ME-HPT", 0.0)):
            found = [ended["GUPS", design, index] for index in above]
            known = not any(outcome.error is not None for outcome in found)
            value = sum(o.failed for o in found) / len(found) if known else None
            rows.append(
                Row(
                    "GUPS above 0.7", f"{design}: share of runs that cannot finish", value,
                    printed, "", "section VII-B", panel="text", average=True,
                )
            )  # fmt: skip
        return rows
