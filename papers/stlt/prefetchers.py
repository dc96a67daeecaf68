"""Figure 19, right: what hardware prefetchers do to programs without an STLT."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Figure, Panel, Paper, Row, Runs, mean
from pagewalk.reproduce.figure import Results

from .common import PROGRAMS, Case, Found, runs
from .printed import DISTANCE_ACCURACY, PREFETCHERS, SLOWER, VLDP_MISSES, VLDP_READS

SERIES = ("TLB distance", "VLDP", "Simple")
LIMITED, UNLIMITED = "7.6 GB/s", "unlimited bandwidth"
MEMORY: dict[str, tuple[tuple[str, object], ...]] = {
    LIMITED: (),
    UNLIMITED: (("memory.dram.fixed.bandwidth_gbs", 0.0),),
}


def cases(memory: str) -> dict[tuple[str, str], Case]:
    """Zipf, values of 64 bytes."""
    return {
        (program, series): Case(program, "Original", design=series, keys=MEMORY[memory])
        for program in PROGRAMS
        for series in SERIES
    }


class Prefetchers(Figure):
    title = "Slowdown by prefetchers without an STLT"
    place = "figure 19 (right), section IV-F"
    about = (
        "Zipf, values of 64 bytes; per cent slower than without a prefetcher, below 0: faster. "
        "Lines that are fetched in vain delay others on the memory's channel. Beside it the same "
        "without a limit on bandwidth, where they delay nobody."
    )
    timing = True
    deviation = PREFETCHERS
    panels = tuple(Panel(Bars("% slower"), memory, memory) for memory in MEMORY)

    def runs(self, paper: Paper) -> Runs:
        return runs(paper, (c for memory in MEMORY for c in cases(memory).values()))

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Found(paper, results)
        rows: list[Row] = []
        for memory in MEMORY:
            for (program, series), case in cases(memory).items():
                speed = found.over(case, case.base)
                slower = 100 * (1 - speed) if speed else None
                rows.append(
                    Row(program, series, slower, unit="%", panel=memory, failed=found.why(case))
                )
            for series, said in SLOWER.items():
                values = [r.value for r in rows if (r.panel, r.series) == (memory, series)]
                rows.append(said.row("Mean", series, mean(values), "%", panel=memory, average=True))
            rows += self._vldp(found, memory)
        return rows

    @staticmethod
    def _vldp(found: Found, memory: str) -> list[Row]:
        more: dict[str, float | None] = {}
        fewer: dict[str, float | None] = {}
        accuracy: list[float | None] = []
        for program in PROGRAMS:
            case = cases(memory)[program, "VLDP"]
            reads, before = (found.a_request(c, "dram_reads") for c in (case, case.base))
            more[program] = reads / before if reads and before else None
            fewer[program] = found.saved(case, "l3.misses")
            distance = cases(memory)[program, "TLB distance"]
            useful = found.get(distance, "core.0.mmu.prefetcher.useful")
            issued = found.get(distance, "core.0.mmu.prefetcher.fetched")
            accuracy.append(100 * useful / issued if useful is not None and issued else None)
        more["Mean"], fewer["Mean"] = mean(more.values()), mean(fewer.values())
        rows = [
            said.row(f"{memory}: {name}", "lines from DRAM with VLDP, times", more[name],
                     panel="text", average=True)
            for name, said in VLDP_READS.items()
        ]  # fmt: skip
        rows += [
            said.row(f"{memory}: {name}", "misses of the L3 that VLDP saves", fewer[name], "%",
                     panel="text", average=True)
            for name, said in VLDP_MISSES.items()
        ]  # fmt: skip
        known = [value for value in accuracy if value is not None]
        rows.append(
            DISTANCE_ACCURACY.row(
                f"{memory}: largest", "translations that were of use", max(known, default=None),
                "%", panel="text", average=True,
            )
        )  # fmt: skip
        return rows
