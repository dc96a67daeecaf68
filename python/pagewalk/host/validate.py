"""Validation: one program on this processor and on a simulated one."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TextIO

from pagewalk.host import files, perf_counters
from pagewalk.host.standard_input import rewind
from pagewalk.view.quantities import significant
from pagewalk.view.terminal import console, grid, line, numbers, words

if TYPE_CHECKING:
    from pagewalk.measurements.design import DesignResult
    from pagewalk.result import Result

Json = dict[str, Any]

MEANINGS = {
    "instructions": "instructions",
    "l1d_tlb_misses": "L1 data TLB misses",
    "l2_tlb_misses": "of these, L2 TLB misses",
    "walks": "page walks of the data side",
    "cycles": "cycles in user mode",
    "ipc": "instructions a cycle",
    "l1d_tlb_mpki": "L1 data TLB misses a thousand instructions",
    "l2_tlb_mpki": "L2 TLB misses a thousand instructions",
}


@dataclass(frozen=True)
class Compared:
    """One quantity, measured and simulated."""

    name: str
    meaning: str
    measured: float | None
    """The median of all runs; none where the processor has no such event."""
    least: float | None
    most: float | None
    simulated: float

    @property
    def ratio(self) -> float | None:
        """Simulated over measured."""
        return self.simulated / self.measured if self.measured else None


@dataclass(frozen=True)
class Validation:
    """Measured counts beside those of a simulation."""

    processor: perf_counters.Processor
    events: perf_counters.Events
    quantities: list[Compared]
    notes: list[str]
    result: Result

    def to_json(self) -> str:
        """The comparison and the whole result of the simulation, as JSON."""
        quantities = [{**asdict(q), "ratio": q.ratio} for q in self.quantities]
        return json.dumps(
            {
                "processor": asdict(self.processor),
                "events": self.events,
                "quantities": quantities,
                "notes": self.notes,
                "simulation": json.loads(self.result.to_json()),
            },
            indent=2,
            ensure_ascii=False,
        )

    def write_json(self, path: str) -> None:
        """Writes the JSON to a file atomically."""
        files.write(path, (self.to_json() + "\n").encode())


def design_of_this_host(processor: perf_counters.Processor) -> str:
    """The shipped design that is nearest to how this host translates."""
    huge = perf_counters.HUGE_PAGES.exists() and "[always]" in perf_counters.HUGE_PAGES.read_text()
    return ("thp" if huge else "radix") + ("-virtual" if processor.hypervisor else "")


def measure(
    program: Sequence[str], events: perf_counters.Events, *, region: bool, runs: int
) -> list[perf_counters.Counts]:
    """Several runs on this processor. Raises `Failure` as `counters.count`."""
    counted = []
    for _ in range(runs):
        rewind()
        counted.append(perf_counters.count(program, events, region=region))
    return counted


def simulated(design: DesignResult) -> dict[str, float]:
    """The counters that the simulated processor would show in user mode."""
    cores = [s for s in design.statistics if s.path.startswith("core.")]

    def total(ending: str, name: str) -> float:
        return sum(s.value for s in cores if s.path.endswith(ending) and s.name == name)

    instructions = design["instructions"]
    return {
        "instructions": instructions,
        "l1d_tlb_misses": design["l1d_tlb_mpki"] * instructions / 1000,
        "l2_tlb_misses": design["l2_tlb_mpki"] * instructions / 1000,
        "walks": design["walks"],
        "cycles": design["cycles"] - total(".cycles", "kernel"),
    }


def with_rates(values: dict[str, float]) -> dict[str, float]:
    """The counts, with IPC and MPKIs."""
    instructions, rates = values["instructions"], {}
    rates["ipc"] = instructions / values["cycles"] if values["cycles"] else 0.0
    for level in ("l1d_tlb", "l2_tlb"):
        rates[f"{level}_mpki"] = 1000 * values[f"{level}_misses"] / max(instructions, 1)
    return {**values, **rates}


def compare(
    processor: perf_counters.Processor,
    events: perf_counters.Events,
    runs: Sequence[perf_counters.Counts],
    result: Result,
    *,
    region: bool,
) -> Validation:
    """Puts the two side by side."""
    there = [with_rates(run.values) for run in runs]
    quantities = []
    for name, value in with_rates(simulated(result.designs[0])).items():
        seen = [run[name] for run in there if name in run]
        middle = statistics.median(seen) if seen else None
        least, most = min(seen, default=None), max(seen, default=None)
        quantities.append(Compared(name, MEANINGS[name], middle, least, most, value))
    shared = min(run.shared for run in runs)
    return Validation(
        processor, events, quantities, _notes(processor, shared, region=region), result
    )


def _notes(processor: perf_counters.Processor, shared: float, *, region: bool) -> list[str]:
    """Caveats of the measured numbers."""
    notes = []
    if shared < 0.999:
        notes.append(
            f"perf shared the counters with others: it counted {100 * shared:.0f} % of the time "
            "and scaled, so ratios between events are estimates"
        )
    if processor.hypervisor:
        notes.append(
            "this is a virtual machine: which pages its host uses and how much of the L3 it has "
            "cannot be seen from inside; --design and --set say what is simulated"
        )
    if not region:
        notes.append(
            "the whole process is counted on both sides, with the loader and first touches; "
            "--roi takes the region between the marks of pagewalk.h"
        )
    return notes


def show(validation: Validation, design: str, machine: str, stream: TextIO) -> None:
    """The report on the terminal."""
    out = console(stream)
    out.print(line(("measured   ", "dim"), validation.processor.name))
    out.print(line(("simulated  ", "dim"), f"{machine}, {design}"))
    table = grid()
    words(table)
    numbers(table, "measured", "bold")
    numbers(table, "least")
    numbers(table, "most")
    numbers(table, "simulated", "bold")
    numbers(table, "simulated/measured")
    table.show_header = True
    for q in validation.quantities:
        cells = (q.measured, q.least, q.most, q.simulated, q.ratio)
        shown = ["–" if value is None else significant(value) for value in cells]
        table.add_row(q.meaning, *shown)
    out.print(table)
    for note in validation.notes:
        out.print(line(("note: ", "dim"), note))
