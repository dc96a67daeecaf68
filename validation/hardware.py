"""Counts of a real processor beside simulated ones, and their tables in docs/validation.md.

    python validation/hardware.py [--only NAME[,NAME...]] [--write]

Runs gups.c and maps.cpp live through QEMU on `epyc-milan`. The runs are native, in a virtual
machine with 4 KB pages in the host, and in one with an eighth of the L3. Each run is
warmed inside of the region of interest first, so that cold caches do not count. Further
possible differences are then changed for GUPS, one at a time.

Results are kept in validation/hardware.json; `--only` replaces those of the named
programs, `--write` puts the tables of all kept results into docs/validation.md.

Needs gcc, g++ and the packages of `pagewalk doctor`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import marked
import pagewalk
import script_arguments
from marked import row

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "validation" / "hardware.json"
MACHINE = "epyc-milan"
Settings = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """User-mode counts of the region of interest; misses a thousand instructions."""

    cycles: str
    ipc: str
    l1_tlb_mpki: float
    l2_tlb_mpki: float


@dataclass(frozen=True)
class Case:
    """A program, its command, and the counts of the processor."""

    title: str
    command: tuple[str, ...]
    """Operations are counted in the last place."""
    huge: bool
    instructions: int
    """An operation's, for the length of the warm-up."""
    warmup: int
    operations: int
    measured: Measured

    @property
    def name(self) -> str:
        """Its key in the results."""
        return f"{'-'.join(self.command)}{'-thp' if self.huge else ''}"


# AMD EPYC of family 25, model 1 (Zen 3), events 0xff45 (all L1 dTLB misses) and 0xf045
# (those that miss the L2 dTLB). Misses repeat within 5 %, within 15 % for the tree;
# cycles moved up to 1.6 times between repeats.
CASES = [
    Case(
        "`gups` 64 MB", ("gups", "64"), False, 15, 1_200_000, 400_000,
        Measured("53–62", ".26", 66.5, 61.2),
    ),
    Case(
        "`gups` 64 MB, THP", ("gups", "64"), True, 15, 1_200_000, 400_000,
        Measured("45–59", ".25", 66.5, 58.7),
    ),
    Case(
        "`gups` 1 GB", ("gups", "1024"), False, 15, 600_000, 400_000,
        Measured("68–112", ".13–.22", 66.8, 66.5),
    ),
    Case(
        "`gups` 1 GB, THP", ("gups", "1024"), True, 15, 600_000, 400_000,
        Measured("58–70", ".21–.26", 66.7, 66.3),
    ),
    Case(
        "`maps hash`, 1 M keys", ("maps", "hash", "1000000"), False, 440, 100_000, 50_000,
        Measured("2044–2952", ".15–.21", 7.15, 6.45),
    ),
    Case(
        "`maps hash`, 1 M keys, THP", ("maps", "hash", "1000000"), True, 440, 100_000, 50_000,
        Measured("1747–1889", ".23–.25", 7.12, 6.47),
    ),
    Case(
        "`maps tree`, 1 M keys", ("maps", "tree", "1000000"), False, 1150, 50_000, 30_000,
        Measured("5466–6881", ".17–.21", 19.4, 10.2),
    ),
    Case(
        "`maps tree`, 1 M keys, THP", ("maps", "tree", "1000000"), True, 1150, 50_000, 30_000,
        Measured("3309–5563", ".20–.34", 19.7, 10.5),
    ),
]  # fmt: skip

# A core complex has eight cores and one L3 for all: the share of one when all are busy.
EIGHTH: Settings = {"memory.l3.size_kb": 4096}
SYSTEMS: dict[str, tuple[str, Settings]] = {
    "native": ("", {}),
    "virtual": ("-virtual", {}),
    "virtual, 4 MB of the L3": ("-virtual", EIGHTH),
}

# One thing each, on top of the last of the systems.
CANDIDATES: dict[str, Settings] = {
    "no nested TLB": {"mmu.nested_tlb.entries": 0},
    "no walk caches": {"mmu.walk_caches.entries": 0},
    "one walker instead of six": {"mmu.walkers": 1},
    "walks read from the L3 on": {"caches.walks_enter": "l3"},
    "one memory channel instead of eight": {"memory.dram.ddr.channels": 1},
    "memory 100 ns further away": {"memory.dram.ddr.controller_ns": 155.0},
}
CANDIDATES_OF = {"gups-64", "gups-64-thp"}


@dataclass
class Run:
    """Compared numbers of one run."""

    cycles: float
    ipc: float
    l1_tlb_mpki: float
    l2_tlb_mpki: float
    reads_per_walk: float
    cycles_per_walk: float


def changed(base: str, machine: str, settings: Settings, label: str) -> pagewalk.Config:
    """A shipped design with other values of some keys."""
    made = pagewalk.design(base, machine=machine)
    made.label = label
    for path, value in settings.items():
        *sections, key = path.split(".")
        section: Any = made
        for name in sections:
            section = section[name]
        section[key] = value
    return made


def design(huge: bool, system: str, more: Settings, label: str) -> pagewalk.Config:
    """One of the systems, with `more` on top."""
    suffix, share = SYSTEMS[system]
    base = f"{'thp' if huge else 'radix'}{suffix}"
    return changed(base, MACHINE, {**share, **more}, label)


def simulate(case: Case, programs: Path) -> dict[str, Run]:
    """All variants of the machine in one pass over the program."""
    variants = [design(case.huge, name, {}, name) for name in SYSTEMS]
    if case.name in CANDIDATES_OF:
        last = list(SYSTEMS)[-1]
        variants += [design(case.huge, last, more, name) for name, more in CANDIDATES.items()]
    program, *arguments = case.command
    words = [str(programs / program), *arguments, str(case.warmup + case.operations)]
    words += ["huge"] if case.huge and program == "gups" else []
    result = pagewalk.compare(
        variants,
        machine=MACHINE,
        program=words,
        roi=True,
        warmup=case.warmup * case.instructions,
        progress=False,
    )
    if result.partial:
        raise SystemExit(f"{' '.join(words)}: ended early")
    return {one.name: compared(one, case) for one in result.designs}


def compared(result: pagewalk.DesignResult, case: Case) -> Run:
    """The numbers of one design's result."""
    # The last operations, after any warm-up: each has as many instructions.
    operations = result["instructions"] / case.instructions
    return Run(
        cycles=result["cycles"] / operations,
        ipc=result["ipc"],
        l1_tlb_mpki=result["l1d_tlb_mpki"],
        l2_tlb_mpki=result["l2_tlb_mpki"],
        # A run without walks has no mean.
        reads_per_walk=result.get("walk_reads_per_walk") or 0.0,
        cycles_per_walk=result.get("walk_cycles_mean") or 0.0,
    )


def build(folder: Path) -> None:
    """Compiles the programs."""
    include, sources = f"-I{ROOT / 'include'}", ROOT / "validation"
    for compiler, name in (("gcc", "gups.c"), ("g++", "maps.cpp")):
        out = folder / name.partition(".")[0]
        command = [compiler, "-O2", include, str(sources / name), "-o", str(out)]
        subprocess.run(command, check=True)


def run(cases: Sequence[Case], kept: dict[str, Any]) -> None:
    """Simulates the cases and puts what came out into `kept`."""
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        for case in cases:
            found = simulate(case, Path(folder))
            kept[case.name] = {name: asdict(one) for name, one in found.items()}
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
            print("\n".join(rows(case, kept[case.name])), flush=True)


def number(value: float) -> str:
    """The number with three digits."""
    if value == 0:
        return "0"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 1 else f"{value:.2f}"


def rows(case: Case, found: Mapping[str, Mapping[str, float]]) -> Iterator[str]:
    """One program: measured, then simulated on each system."""
    m = case.measured
    counts = (number(m.l1_tlb_mpki), number(m.l2_tlb_mpki))
    yield row(case.title, "measured", *counts, "", "", m.ipc, m.cycles)
    for system in SYSTEMS:
        one = found[system]
        names = ("l1_tlb_mpki", "l2_tlb_mpki", "reads_per_walk", "cycles_per_walk")
        cells = [number(one[name]) for name in names]
        yield row("", system, *cells, f"{one['ipc']:.2f}", number(one["cycles"]))


def tables(kept: Mapping[str, Any]) -> str:
    """Both tables."""
    head = ("program", "", "L1 dTLB MPKI", "L2 dTLB MPKI", "reads a walk", "cycles a walk")
    lines = [row(*head, "IPC", "cycles an operation"), row("---", "---", *["--:"] * 6)]
    for case in CASES:
        lines += rows(case, kept[case.name])
    title = "cycles an update of `gups` 64 MB"
    lines += ["", row(title, "4 KB pages", "THP"), row("---", *["--:"] * 2)]
    measured = [c.measured.cycles for c in CASES if c.name in CANDIDATES_OF]
    lines.append(row("measured", *measured))
    last = list(SYSTEMS)[-1]
    for name in (last, *CANDIDATES):
        cells = [number(kept[c.name][name]["cycles"]) for c in CASES if c.name in CANDIDATES_OF]
        lines.append(row(name, *cells))
    return "\n".join(lines)


def main() -> int:
    """Runs, keeps and writes."""
    chosen, write = script_arguments.again(__doc__, (case.name for case in CASES))
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    run([case for case in CASES if case.name in chosen], kept)
    if write:
        marked.write("hardware", tables(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
