"""Simulates bench.cc live beside its measured times, and keeps both in lookaside/results.json.

    lookaside/bench/simulate.py simulate --machine FILE [--case CASE]...
    lookaside/bench/simulate.py measure [--gate COMMAND] [--case CASE]...

A CASE is INDEX:DISTRIBUTION:MODE. Each side, the index alone and with the table always on, is a
process of its own. Host and simulator run the same program with the same requests. Slices of
lookups are regions of interest. Earlier slices fill the caches, in the simulator too.

FILE is a machine that `pagewalk calibrate` wrote on this host. Cases that have a result are left
out, so a stopped run resumes. Needs the Python environment of `make build`.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from run import RESULTS, build

import pagewalk
from pagewalk.host import timing

RECORDS, VALUE_BYTES, ROWS = 1_000_000, 64, 1 << 20
SIDES = {"index": 10_000, "table": 25_000}
"""Lookups of a slice. With the table, more of them fill the caches as much."""
WARM_SLICES, SLICES = 5, 1
"""Simulated regions of interest: those that fill the caches, and the measured ones."""
PROCESSES = 4
"""Measured processes of each side."""
HOST = "thp-virtual[placement.thp.mode=madvise{}]"
"""The host's design: a virtual machine in which the table alone has huge pages."""
IDLE = ",memory.background.l3_fill_gbs=0,memory.background.bandwidth_gbs=0"
ZEN_4 = "core.rob=320,core.load_queue=88"
"""AMD, Software Optimization Guide for Zen 4. The base of the calibrated machine is a Zen 3."""
VARIANTS = {
    "host": HOST.format(""),
    "no other tenants": HOST.format(IDLE),
    "no nested walks": "thp[placement.thp.mode=madvise]",
    "mispredictions cost a cycle": HOST.format(",core.mispredict_penalty=1"),
    "window of Zen 4": HOST.format(f",{ZEN_4}"),
    "that, table in 4 KB pages": f"radix-virtual[{ZEN_4}]",
    "that, L3 filled ten times as fast": HOST.format(f",{ZEN_4},memory.background.l3_fill_gbs=30"),
}
"""The host, and experiments that each change one choice."""
TENANTS = ("host", "no other tenants", "no nested walks")
CASES = {
    "map:zipf:single": TENANTS,
    "umap:zipf:single": TENANTS,
    "btree:zipf:single": ("host",),
    "flat:zipf:single": ("host",),
    "dense:zipf:single": ("host",),
    "umap:uniform:single": ("host", *(name for name in VARIANTS if name not in TENANTS)),
    "umap:zipf:batch": ("host",),
}
Json = dict[str, Any]


def command(program: Path, case: str, side: str) -> list[str]:
    """The bench of one side, which does not wait after its load."""
    index, distribution, mode = case.split(":")
    numbers = map(str, (RECORDS, ROWS, SIDES[side]))
    words = [str(program), index, *numbers, f"C:{distribution}:{mode}:{side}"]
    return ["sh", "-c", f"echo | exec {' '.join(words)}"]


def simulate(program: Path, case: str, side: str, machine: str, variants: tuple[str, ...]) -> Json:
    """Times of a lookup by variant, all in one pass over the program."""
    with timing.asking():
        result = pagewalk.compare(
            [VARIANTS[name] for name in variants],
            machine=machine,
            program=command(program, case, side),
            roi=True,
            warmup_requests=WARM_SLICES,
            requests=SLICES,
            translation_cost=False,
            progress=False,
        )
    if result.partial:
        raise SystemExit(f"{case}, {side}: ended early")
    lookups = SLICES * SIDES[side]
    return {
        name: {
            "ns": design["cycles"] / design.config["frequency_ghz"] / lookups,
            "instructions": design["instructions"] / lookups,
        }
        for name, design in zip(variants, result.designs, strict=True)
    }


def measure(program: Path, case: str, gate: list[str]) -> Json:
    """CPU time of a lookup in each slice, of processes of both sides in turn."""
    times: dict[str, list[float]] = {side: [] for side in SIDES}
    hits = 0.0
    for _ in range(PROCESSES):
        for side in SIDES:
            words = [*gate, *command(program, case, side)]
            run = subprocess.run(words, capture_output=True, text=True, check=True)
            found = json.loads(run.stdout.splitlines()[-1])
            times[side] += found["cpu_ns"]
            hits = max(hits, found["hits"])
    return {**times, "hits": hits}


def main() -> None:
    """Simulates or measures the cases that have no result yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("simulate", "measure"))
    parser.add_argument("--machine", help="Machine file of this host")
    parser.add_argument("--gate", default="", help="Command that keeps the machine quiet")
    parser.add_argument("--case", action="append", choices=CASES, help="Cases to take")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="Folder of the program")
    options = parser.parse_args()
    if options.what == "simulate" and not options.machine:
        parser.error("simulate needs --machine")
    program = build(VALUE_BYTES, Path(options.folder))
    for case in options.case or CASES:
        results = json.loads(RESULTS.read_text())
        kept = results.setdefault("simulator", {}).setdefault(case, {})
        if options.what == "measure":
            if "measured" in kept:
                continue
            found = measure(program, case, options.gate.split())
            kept["measured"] = found
            index, table = (statistics.median(found[side]) for side in SIDES)
            print(f"{case}: measured {index:.0f} and {table:.0f} ns", flush=True)
        else:
            if "simulated" in kept:
                continue
            found = {
                side: simulate(program, case, side, options.machine, CASES[case]) for side in SIDES
            }
            kept["simulated"] = found
            print(f"{case}: simulated {found}", flush=True)
        # Others may have written meanwhile.
        results = json.loads(RESULTS.read_text())
        results.setdefault("simulator", {}).setdefault(case, {}).update(kept)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
