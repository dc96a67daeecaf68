"""Effects of loads on wrong paths, beside a real processor: a table in docs/validation.md.

    python validation/wrong_paths.py [--only NAME[,NAME...]] [--write]

Runs the programs of hardware.py live, each for two fifths of its operations, and the built-in
`kv-map`. The machine is `epyc-milan` as a virtual machine with 4 KB pages in the host. One pass
simulates each with `core.wrong_path.enabled` and without. A tree map of 10 M keys runs only if
`--only maps-tree-10000000` names it, because the emulator needs more than half an hour to build it.

Results are kept in validation/wrong_paths.json; `--only` replaces those of the named
programs, `--write` puts the table of all kept results into docs/validation.md.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import hardware
import marked
import pagewalk
import script_arguments
from hardware import CASES, MACHINE, Case, Measured, changed, number
from marked import row

KEPT = hardware.ROOT / "validation" / "wrong_paths.json"
PROGRAMS = ("gups-64", "gups-1024", "maps-hash-1000000", "maps-tree-1000000")
# Counted on the processor of hardware.py: L2 dTLB misses a lookup. The other counts were not kept.
MISSES_A_LOOKUP = 20.0
LARGE = Case(
    "`maps tree`, 10 M keys", ("maps", "tree", "10000000"), False, 1400, 50_000, 50_000,
    Measured("", "", math.nan, math.nan),
)  # fmt: skip
BUILT_IN = "kv-map"
SHARE = 0.4
# Instructions of `kv-map` that are simulated, behind as many that warm up.
INSTRUCTIONS = 20_000_000
KEYS = {"off": False, "on": True}
REPORTED = ("l1d_tlb_mpki", "l2_tlb_mpki", "ipc", "instructions")
COUNTED = (
    "episodes",
    "instructions",
    "loads",
    "converged_loads",
    "constant_loads",
    "remembered_loads",
    "unknown_loads",
    "late_loads",
    "walks",
)


def variants() -> list[pagewalk.Config]:
    """The machine with and without wrong paths."""
    return [
        changed("radix-virtual", MACHINE, {"core.wrong_path.enabled": enabled}, label)
        for label, enabled in KEYS.items()
    ]


def live(case: Case, programs: Path) -> pagewalk.Result:
    """A program of hardware.py."""
    program, *arguments = case.command
    warmup, operations = (int(n * SHARE) for n in (case.warmup, case.operations))
    return pagewalk.compare(
        variants(),
        machine=MACHINE,
        program=[str(programs / program), *arguments, str(warmup + operations)],
        roi=True,
        warmup=warmup * case.instructions,
        progress=False,
    )


def built_in() -> pagewalk.Result:
    """The built-in map, 1 GiB of it."""
    return pagewalk.compare(
        variants(),
        machine=MACHINE,
        workload=BUILT_IN,
        size="1GiB",
        warmup=INSTRUCTIONS,
        instructions=INSTRUCTIONS,
        progress=False,
    )


def an_operation(case: Case, result: pagewalk.Result) -> float:
    """Instructions of the whole region over its operations."""
    warmup, operations = (int(n * SHARE) for n in (case.warmup, case.operations))
    instructions = warmup * case.instructions + result.designs[0]["instructions"]
    return instructions / (warmup + operations)


def measured(case: Case, found: Mapping[str, Any]) -> tuple[str, str]:
    """Misses a thousand instructions on the processor."""
    if case is LARGE:
        return "–", number(1000 * MISSES_A_LOOKUP / found["instructions_an_operation"])
    return number(case.measured.l1_tlb_mpki), number(case.measured.l2_tlb_mpki)


def compared(result: pagewalk.Result) -> dict[str, dict[str, float]]:
    """The numbers of both."""
    if result.partial:
        raise SystemExit(f"ended early: {result.why_partial}")
    found: dict[str, dict[str, float]] = {}
    for one in result.designs:
        found[one.name] = {name: one[name] for name in REPORTED}
        for s in one.statistics:
            if s.path == "core.0.wrong_path" and s.name in COUNTED:
                found[one.name][f"wrong_{s.name}"] = s.value
    return found


def rows(title: str, case: Case | None, found: Mapping[str, Any]) -> Iterator[str]:
    """Rows of a program: measured if it was, without wrong paths, and with them."""
    off, on = found["off"], found["on"]
    mpki = ("l1d_tlb_mpki", "l2_tlb_mpki")
    if case:
        counts = measured(case, found)
        yield row(title, "measured", *counts, *[""] * 5)
        title = ""
    yield row(title, "off", *(number(off[n]) for n in mpki), f"{off['ipc']:.3f}", *[""] * 4)
    episodes = on["wrong_episodes"] or 1
    per = [number(on[f"wrong_{n}"] / episodes) for n in ("instructions", "loads", "unknown_loads")]
    missed = number(1000 * on["wrong_episodes"] / on["instructions"])
    cells = (*(number(on[n]) for n in mpki), f"{on['ipc']:.3f}")
    yield row("", "on", *cells, missed, *per)


def table(kept: Mapping[str, Any]) -> str:
    """The table of all kept results."""
    head = ("program", "wrong paths", "L1 dTLB MPKI", "L2 dTLB MPKI", "IPC")
    of_paths = ("paths a thousand instructions", "instructions a path", "loads", "not known")
    lines = [row(*head, *of_paths), row("---", "---", *["--:"] * 7)]
    for case in (*CASES, LARGE):
        if case.name in kept:
            lines += rows(case.title, case, kept[case.name])
    if BUILT_IN in kept:
        lines += rows("built-in `kv-map`, 1 GiB", None, kept[BUILT_IN])
    return "\n".join(lines)


def main() -> int:
    """Runs, keeps and writes."""
    chosen, write = script_arguments.again(__doc__, [*PROGRAMS, BUILT_IN], long=[LARGE.name])
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        hardware.build(Path(folder))
        for name in chosen:
            if name == BUILT_IN:
                result = built_in()
            else:
                case = next(c for c in (*CASES, LARGE) if c.name == name)
                result = live(case, Path(folder))
            kept[name] = compared(result)
            if name == LARGE.name:
                kept[name]["instructions_an_operation"] = an_operation(LARGE, result)
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
            print(table({name: kept[name]}), flush=True)
    if write:
        marked.write("wrong-paths", table(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
