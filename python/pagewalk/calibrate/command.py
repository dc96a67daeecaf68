"""The command: measure, determine, write the file, simulate, show."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from pagewalk import native
from pagewalk.calibrate import benchmarks, findings, machine_file, rules, simulated
from pagewalk.calibrate.benchmarks import Benchmark, Plan
from pagewalk.calibrate.findings import Finding, Times
from pagewalk.config import machines
from pagewalk.config.source import DEFAULT_DESIGN
from pagewalk.engine_types import HostProcessor
from pagewalk.errors import Failure, Terminated
from pagewalk.host import files
from pagewalk.view.progress import Bar
from pagewalk.view.quantities import significant
from pagewalk.view.terminal import console, grid, line, numbers, words

Json = dict[str, Any]

MEMINFO = Path("/proc/meminfo")
ROUNDS, QUICK_ROUNDS = 7, 2
MEMORY, QUICK_MEMORY = 1 << 30, 64 << 20
"""Most bytes of memory of the benchmarks."""
QUICK_WARMUP = 30_000


@dataclass(frozen=True)
class Row:
    """One micro-benchmark, on this host and simulated with its file."""

    name: str
    unit: str
    measured: float
    spread: tuple[float, float]
    simulated: float | None

    @property
    def error(self) -> float | None:
        """Simulated over measured, less one."""
        return None if self.simulated is None else self.simulated / self.measured - 1


@dataclass(frozen=True)
class Calibration:
    """All that a calibration found."""

    path: Path
    base: str
    processor: HostProcessor
    found: list[Finding]
    rows: list[Row]
    notes: list[str]

    def to_json(self) -> str:
        """As JSON."""
        rows = [{**asdict(row), "error": row.error} for row in self.rows]
        data = {
            "path": str(self.path),
            "base": self.base,
            "processor": self.processor,
            "findings": [asdict(one) for one in self.found],
            "rows": rows,
            "notes": self.notes,
        }
        return json.dumps(data, indent=1, ensure_ascii=False)


def available() -> int:
    """Bytes of memory that this host can give. Raises `Failure` without ``/proc``."""
    try:
        text = MEMINFO.read_text()
    except OSError as error:
        raise Failure(
            f"{MEMINFO} cannot be read ({error.strerror}); mount /proc, from which the memory "
            "and the huge pages of this host are read"
        ) from None
    for row in text.splitlines():
        if row.startswith("MemAvailable:"):
            return int(row.split()[1]) << 10
    raise Failure(f"{MEMINFO} has no MemAvailable; use Linux 3.14 or later")


def calibrate(*, name: str, base: str | None, quick: bool, jobs: int | None) -> Calibration:
    """Measures this host and writes its machine file."""
    path = machine_file.check_name(name)
    processor = native.host_processor()
    if processor is None:
        raise Failure("this processor has no cpuid; calibration needs an x86-64 processor")
    nearest, other = machine_file.nearest_base(processor)
    notes = [other] if other and base is None else []
    base = base or nearest
    fields = machine_file.load_base(base)
    machine_file.check_folder(path.parent)
    memory = min(QUICK_MEMORY if quick else MEMORY, available() // 3)
    plan = benchmarks.plan(processor, memory)
    listed = plan.all()
    with Bar(reports=False) as bar:
        rounds = QUICK_ROUNDS if quick else ROUNDS
        measured = native.measure_host([b.to_json() for b in listed], rounds, bar)
    if measured is None:
        raise Terminated(bar.stopped_by)
    times = Times(dict(zip(listed, measured, strict=True)), plan.add)
    found = findings.find(plan, times, processor, fields)
    found.append(_remote(found, fields))
    most = QUICK_WARMUP if quick else simulated.MOST_WARMUP
    with tempfile.TemporaryDirectory(prefix="pagewalk-") as folder:
        trial = Trial(Path(folder) / "trial.toml", fields, processor, most)
        if plan.reaches_dram:
            found = _with_memory(plan, times, trial, found)
        trial.write(found)
        # A file that no run could read is not written.
        native.resolve(str(trial.path), DEFAULT_DESIGN)
    found.sort(key=lambda finding: finding.key)
    content = machine_file.text(name, base, machine_file.merged(fields, found), found, processor)
    machine_file.write(path, content)
    notes += _notes(plan, times, processor, name, quick=quick)
    rows = _rows(plan, times, path, processor, most=most, jobs=jobs or os.cpu_count() or 1)
    return Calibration(path, base, processor, found, rows, notes)


@dataclass(frozen=True)
class Trial:
    """A machine file to simulate micro-benchmarks with before all of its keys are known."""

    path: Path
    base: Json
    processor: HostProcessor
    most_warmup: int

    def write(self, found: list[Finding]) -> None:
        """Writes it."""
        fields = machine_file.merged(self.base, found)
        text = machine_file.text("trial", "", fields, [], self.processor)
        files.write(str(self.path), text.encode())

    def cycles(self, benchmark: Benchmark, found: list[Finding]) -> float:
        """Cycles of an operation with what was found."""
        self.write(found)
        design = simulated.design_for(benchmark, hypervisor=self.processor["hypervisor"])
        return simulated.cycles(benchmark, self.path, design, most=self.most_warmup)


LOADS = 5
"""Halvings of the range in which the load of the DRAM lies."""


def _with_memory(plan: Plan, times: Times, trial: Trial, found: list[Finding]) -> list[Finding]:
    """Adds the DRAM's controller, and bounds the others' load by the copy, which takes bandwidth.

    The controller's time is that which the simulated DRAM leaves of the measured latency.
    """
    others = [one for one in found if one.key != findings.LOAD]
    load = next(one for one in found if one.key == findings.LOAD)

    def with_load(load: Finding) -> list[Finding]:
        zero = Finding("memory.dram.ddr.controller_ns", 0.0, "")
        without = trial.cycles(plan.dram, [*others, load, zero])
        return [*others, load, findings.controller(times.cycles(plan.dram), times.ghz, without)]

    all_found = with_load(load)
    if load.value is None:
        return all_found
    measured = times.cycles(plan.copy).spread[1]
    if trial.cycles(plan.copy, all_found) <= measured:
        return all_found
    best = with_load(findings.bounded(load, 0.0))
    if trial.cycles(plan.copy, best) > measured:
        # The simulated copy is slower without any load, so it bounds none.
        return all_found
    low, high = 0.0, float(load.value)
    for _ in range(LOADS):
        middle = findings.bounded(load, (low + high) / 2)
        tried = with_load(middle)
        if trial.cycles(plan.copy, tried) <= measured:
            low, best = float(middle.value or 0.0), tried
        else:
            high = float(middle.value or 0.0)
    return best


def _remote(found: list[Finding], base: Mapping[str, Any]) -> Finding:
    """Another core's private cache: as much slower than the L3 as in the base."""
    key = "memory.remote_latency"
    l3 = next(one for one in found if one.key == "memory.l3.latency")
    if l3.value is None:
        return Finding(key, None, "the latency of the third level is not determined")
    ratio = base["memory"]["remote_latency"] / base["memory"]["l3"]["latency"]
    origin = f"{ratio:.3g} times memory.l3.latency, as in the base"
    return Finding(key, round(ratio * l3.value), origin, None, l3.confidence)


def _notes(
    plan: Plan, times: Times, processor: HostProcessor, name: str, *, quick: bool
) -> list[str]:
    notes = []
    if not findings.has_huge_pages(times.of(plan.dense[1])):
        share = times.of(plan.dense[1])["huge_share"] or 0.0
        notes.append(
            f"huge pages were granted for {100 * share:.0f} % of the memory only, so rows of 2 MB "
            "pages are of smaller ones; see /sys/kernel/mm/transparent_hugepage/enabled"
        )
    if processor["hypervisor"]:
        notes.append(
            "a hypervisor is present (cpuid leaf 1): designs of virtual machines, such as "
            "radix-virtual, are the default with this machine"
        )
    load, cores = os.getloadavg()[0], os.cpu_count() or 1
    if load > 1.5:
        notes.append(
            f"the host was busy (load average {load:.1f} on {cores} cores), so caches were emptied "
            "and values are less sure; repeat it when the host is quiet"
        )
    if quick:
        notes.append("measured quickly: leave out --quick for values that are surer")
    if name == machines.HOST:
        notes.append("'pagewalk run' and 'compare' now simulate this machine by default")
    else:
        notes.append(f"simulate it with --machine {name}")
    return notes


def _labelled(plan: Plan) -> list[tuple[str, Benchmark]]:
    """The rows of the table."""
    size = findings.size_text
    rows = [
        (f"load, {size(one.footprint)}", one) for one in (plan.l1[1], plan.l2[0], *plan.l3[::2])
    ]
    if plan.reaches_dram:
        rows += [
            (f"load, {size(plan.dram.footprint)}", plan.dram),
            ("12 loads at once", plan.chains[-1]),
            ("independent loads", plan.gather),
        ]
    for wanted in (32, 512, 1536, 4096, 16384):
        rows += [
            (f"load, one of each of {one.bytes // 4096} pages", one)
            for one in plan.pages
            if one.bytes == wanted * 4096
        ]
    small, huge = plan.dense
    rows += [
        (f"load, {size(small.bytes)}, 4 KB pages", small),
        (f"load, {size(huge.bytes)}, 2 MB pages", huge),
        ("line read in order", plan.read),
        ("word read in order", plan.words),
        ("line copied in order", plan.copy),
    ]
    return rows


def _rows(
    plan: Plan,
    times: Times,
    machine: Path,
    processor: HostProcessor,
    *,
    most: int,
    jobs: int,
) -> list[Row]:
    labelled = _labelled(plan)
    touches = (
        ("first touch of 4 KB", plan.touch[0]),
        ("first touch, 2 MB page, each 4 KB", plan.touch[1]),
    )
    cycles = simulated.all_cycles(
        [one for _, one in (*labelled, *touches)],
        machine,
        hypervisor=processor["hypervisor"],
        jobs=jobs,
        most=most,
    )
    rows, of = [], {}
    for (name, benchmark), found in zip(labelled, cycles, strict=False):
        there = times.cycles(benchmark)
        of[benchmark] = Row(name, "cycles", there.value, there.spread, found)
        rows.append(of[benchmark])
    small, huge = (of[one] for one in plan.dense)
    walk = small.measured - huge.measured
    if walk > 0 and small.simulated is not None and huge.simulated is not None:
        added = small.simulated - huge.simulated
        rows.append(Row("4 KB less 2 MB pages", "cycles", walk, (walk, walk), added))
    for name, benchmark in touches:
        there = times.ns(benchmark)
        rows.append(Row(name, "ns", there.value, there.spread, next(cycles) / times.ghz))
    unmapped = times.of(plan.touch[0])["unmap_ns"]
    there = rules.of_samples(unmapped)
    # The model prices system calls and shootdowns, and no work for each unmapped page.
    rows.append(Row("4 KB unmapped", "ns", there.value, there.spread, None))
    return rows


def show(calibration: Calibration, stream: TextIO) -> None:
    """The report on the terminal."""
    out = console(stream)
    out.print(line(("measured   ", "dim"), calibration.processor["name"]))
    out.print(line(("written    ", "dim"), str(calibration.path)))
    keys = grid()
    words(keys)
    numbers(keys, "value", "bold")
    words(keys)
    words(keys)
    keys.show_header = True
    for one in calibration.found:
        value = "base's" if one.value is None else f"{one.value:g}"
        keys.add_row(one.key, value, one.confidence, one.origin)
    out.print(keys)
    table = grid()
    words(table)
    words(table)
    for heading in ("measured", "least", "median", "simulated", "error"):
        numbers(table, heading)
    table.show_header = True
    for row in calibration.rows:
        shown = [
            "–" if v is None else significant(v) for v in (row.measured, *row.spread, row.simulated)
        ]
        error = "–" if row.error is None else f"{100 * row.error:+.0f} %"
        table.add_row(row.name, row.unit, *shown, error)
    out.print(table)
    for note in calibration.notes:
        out.print(line(("note: ", "dim"), note))
