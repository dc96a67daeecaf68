"""Loops that one limit of a core determines each: cycles measured and simulated.

    python validation/core_loops.py [--only NAME[,NAME...]] [--write]

Runs core_loops.c natively on one processor of this host, each loop between two runs of a chain of
additions that gives the frequency. Then it runs the same program live on `epyc-milan`, with any
number of ports and with the machine's. Results go to validation/core_loops.json; `--only` replaces
those of the named loops, `--write` puts the table of all kept results into docs/validation.md.

Needs gcc and the packages of `pagewalk doctor`.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import marked
import pagewalk
import script_arguments
from marked import row

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "validation" / "core_loops.json"
MACHINE = "epyc-milan"

LOOPS = {
    "add": "independent additions",
    "multiply": "independent multiplications",
    "mixture": "one multiplication, two additions",
    "move": "moves between registers",
    "load": "loads",
    "load_add": "additions from memory",
    "store": "stores to one line",
    "store_lines": "stores to three lines",
    "load_store": "three loads, two stores",
    "vector_add": "vector additions of integers",
    "float_multiply": "floating-point multiplications",
    "float_add": "floating-point additions",
    "not_taken": "comparisons with a branch, not taken",
    "taken": "taken branches",
    "forward_byte": "store and load of a byte, round trip",
    "forward_add": "store of 8 bytes, addition from memory, round trip",
    "forward_same": "the round trip of 8 bytes, named by the same register",
    "branch_same": "loop with a loaded condition, always the same",
    "branch": "the same, random",
    "generator": "loop of six dependent operations and a predictable branch",
    "generator_branch": "the same, random branch",
}
REPEATS = 15
NATIVE, LIVE = 1_000_000, 20_000
CHAIN = 200_000
"""Iterations."""


def nanoseconds(program: Path, loop: str, iterations: int) -> float:
    """CPU time of an operation on this host."""
    command = [str(program), loop, str(iterations)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    operations, total = out.split()
    return float(total) / iterations / int(operations)


def measured(program: Path, loop: str) -> dict[str, float]:
    """Cycles of an operation: the lowest of the repeats and their median."""
    ratios = []
    for _ in range(REPEATS):
        before = nanoseconds(program, "chain", CHAIN)
        taken = nanoseconds(program, loop, NATIVE)
        after = nanoseconds(program, "chain", CHAIN)
        ratios.append(taken / ((before + after) / 2))
    return {"lowest": min(ratios), "median": statistics.median(ratios)}


def without_ports(folder: Path) -> Path:
    """The machine with any number of ports, and the guide's penalty."""
    text = (ROOT / "machines" / f"{MACHINE}.toml").read_text()
    text = re.sub(r"\[core\.ports\][^\[]*", "", text)
    text = re.sub(r"forwarding_latency = .*\n", "", text)
    text = re.sub(r"(mispredict_penalty) = .*", r"\1 = 13", text)
    path = folder / "without-ports.toml"
    path.write_text(text)
    return path


def simulated(program: Path, loop: str, machine: str) -> float:
    """Cycles of an operation on a machine."""
    operations = int(
        subprocess.run(
            [str(program), loop, "10"], check=True, capture_output=True, text=True
        ).stdout.split()[0]
    )
    result = pagewalk.run(
        machine=machine,
        design="perfect-tlb",
        program=[str(program), loop, str(LIVE)],
        roi=True,
        progress=False,
    )
    if result.partial:
        raise SystemExit(f"{loop}: ended early")
    cycles: float = result.designs[0]["cycles"]
    return cycles / LIVE / operations


def number(value: float) -> str:
    """The number with two digits behind the point, one from 10 on."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(kept: Mapping[str, Any]) -> str:
    """The table of all kept results."""
    head = ("loop", "measured", "any number of ports", f"`{MACHINE}`")
    lines = [row(*head), row("---", *["--:"] * 3)]
    for loop, title in LOOPS.items():
        one = kept[loop]
        interval = f"{number(one['measured']['lowest'])}–{number(one['measured']['median'])}"
        lines.append(row(title, interval, number(one["any"]), number(one["ports"])))
    return "\n".join(lines)


def main() -> int:
    """Runs, keeps and writes."""
    chosen, write = script_arguments.again(__doc__, LOOPS)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    every = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program, source = folder / "core_loops", ROOT / "validation" / "core_loops.c"
        compiler = ["gcc", "-O2", "-no-pie", f"-I{ROOT / 'include'}"]
        subprocess.run([*compiler, str(source), "-o", str(program)], check=True)
        plain = str(without_ports(folder))
        for loop in chosen:
            os.sched_setaffinity(0, {max(every)})
            found: dict[str, Any] = {"measured": measured(program, loop)}
            os.sched_setaffinity(0, every)
            found["any"] = simulated(program, loop, plain)
            found["ports"] = simulated(program, loop, MACHINE)
            kept[loop] = found
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
            print(loop, found, flush=True)
    if write:
        marked.write("core-loops", table(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
