"""Differences of ChampSim's machine, one at a time: a table in docs/validation.md.

    python validation/champsim.py [--only NAME[,NAME...]] [--write]

Runs maps.cpp and gups.c live on `validation/champsim.toml`, ChampSim's default configuration
with DRAM of one latency. Adds the features of its source that this simulator lacks, if a key
can stand for them. Results are kept in validation/champsim.json; `--write` puts
the table of them into docs/validation.md. ChampSim itself is not run.

Needs gcc, g++ and the packages of `pagewalk doctor`.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import hardware
import marked
import pagewalk
import script_arguments
from marked import row

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "validation" / "champsim.json"
MACHINE = ROOT / "validation" / "champsim.toml"
INSTRUCTIONS = 4_000_000

PROGRAMS = {
    "maps-hash": ("maps", "hash", "1000000", "60000"),
    "gups-1024": ("gups", "1024", "300000"),
}
# The window is 128 physical registers less those that hold the program's state, over the registers
# that an instruction writes. Flags and instruction pointer count. The hash map has 20 and 1.17
# (callgrind's counts of each instruction), GUPS 5 and 1.53 (its ChampSim trace).
REGISTERS = 128
WINDOW = {
    "maps-hash": round((REGISTERS - 20) / 1.17),
    "gups-1024": round((REGISTERS - 5) / 1.53),
}


def flat(nanoseconds: float) -> dict[str, Any]:
    """DRAM of one latency."""
    return {"memory.dram": {"fixed": {"latency_ns": nanoseconds}}}


# Precharge, activation and column access, of 15 ns each.
BASE = flat(45.0)
# Cycles of 0.25 ns. The latencies are counted along the calls of each cycle. A request leaves its
# queue in the cycle after, and half of a level's latency is paid when a line is filled.
STEPS: dict[str, dict[str, Any]] = {
    "DRAM's bus and scheduler, 13 cycles": flat(48.25),
    "with it, a cycle in each queue between levels, and fills": {
        "caches.l1d.latency": 6,
        "caches.l2.latency": 16,
        "memory.l3.latency": 33,
        **flat(51.25),
    },
    "an access without translation is looked up again": {
        "mmu.l2.main.latency": 16,
        "mmu.walk_caches.latency": 3,
    },
    "128 physical registers": {},
    "four executed a cycle": {"core.width": 4},
}
OTHERS: dict[str, dict[str, Any]] = {
    "five levels of page table": {"page_table.radix.levels": 5},
    "five walks at a time instead of eight": {"mmu.walkers": 5},
    "eight L1D miss registers instead of 16": {"caches.l1d.mshrs": 8},
    "64 loads in the queue instead of 128": {"core.load_queue": 64},
    "misprediction of 15 cycles instead of 5": {"core.mispredict_penalty": 15},
    "branches all foreseen": {"core.predictor": {"perfect": {}}},
}


def variants(program: str) -> list[pagewalk.Config]:
    """The base, each step alone, all up to each step, and the others alone."""
    steps = {**STEPS, "128 physical registers": {"core.rob": WINDOW[program]}}
    made = [hardware.changed("radix", str(MACHINE), BASE, "base")]
    so_far = dict(BASE)
    for name, change in steps.items():
        so_far |= change
        made.append(hardware.changed("radix", str(MACHINE), so_far, f"up to {name}"))
    for name, change in {**steps, **OTHERS}.items():
        made.append(hardware.changed("radix", str(MACHINE), {**BASE, **change}, name))
    return made


def simulate(program: str, programs: Path) -> dict[str, dict[str, float]]:
    """All variants in one pass."""
    name, *arguments = PROGRAMS[program]
    result = pagewalk.compare(
        variants(program),
        machine=str(MACHINE),
        program=[str(programs / name), *arguments],
        roi=True,
        instructions=INSTRUCTIONS,
        progress=False,
    )
    if result.partial:
        raise SystemExit(f"{program}: ended early")
    keys = ("ipc", "l2_tlb_mpki", "walk_reads_per_walk")
    return {d.name: {key: d[key] for key in keys} for d in result.designs}


def tables(kept: Mapping[str, Any]) -> str:
    """IPC of both programs, and what each change makes of it."""
    titles = ("`maps hash`, alone", "up to here", "`gups` 1 GB, alone", "up to here")
    lines = [row("IPC of the first 4 M instructions", *titles), row("---", *["--:"] * 4)]

    def cell(program: str, name: str) -> str:
        base, value = kept[program]["base"]["ipc"], kept[program][name]["ipc"]
        return f"{value:.3f} ({100 * (value / base - 1):+.0f} %)"

    both = [f"{kept[program]['base']['ipc']:.3f}" for program in PROGRAMS]
    lines.append(row("ChampSim's configuration, flat DRAM", "", both[0], "", both[1]))
    for name in STEPS:
        cells = [cell(p, key) for p in PROGRAMS for key in (name, f"up to {name}")]
        lines.append(row(name, *cells))
    for name in OTHERS:
        lines.append(row(name, *(part for p in PROGRAMS for part in (cell(p, name), ""))))
    return "\n".join(lines)


def main() -> int:
    """Runs, keeps and writes."""
    chosen, write = script_arguments.again(__doc__, PROGRAMS)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        if chosen:
            hardware.build(Path(folder))
        for program in chosen:
            kept[program] = simulate(program, Path(folder))
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    print(tables(kept))
    if write:
        marked.write("champsim", tables(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
