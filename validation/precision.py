"""Errors of samples against whole simulations: tables in docs/performance.md.

    python validation/precision.py [--length 2G] [--seeds 4] [--only NAME[,NAME...]] [--write]

Simulates each of twelve programs whole, with the designs `radix` and `thp`, and with
`--precision 2%`, once for each seed. Counts the true values that lie in the intervals.
Two billion instructions of all with four seeds take about two hours on two cores, 200 million
twenty minutes.

Results are kept in validation/precision.json as they come, so that a stopped run can be continued.
`--again` takes samples again, and keeps the whole simulations, which hold as long as the timed
model is the same. `--seeds 0` simulates nothing. `--write` puts tables of all kept results into
the page.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import marked
import pagewalk
import script_arguments
from marked import row
from pagewalk.host.perf_counters import Processor

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "validation" / "precision.json"
PAGE = ROOT / "docs" / "performance.md"
PROGRAMS = (
    *("gups", "bfs", "pr", "kv-hash", "kv-map", "kv-btree", "kv-redis"),
    *("xsbench", "dlrm", "kmer", "mummer", "sysbench"),
)
DESIGNS = ("radix", "thp")
METRICS = ("ipc", "l2_tlb_mpki", "speedup")
WITHIN = "2%"

Json = dict[str, Any]


def simulated(name: str, length: str, seed: int, precision: str | None) -> pagewalk.Result:
    """Both designs on a program, whole or from samples."""
    result = pagewalk.compare(
        DESIGNS,
        workload=name,
        instructions=length,
        seed=seed,
        precision=precision,
        translation_cost=False,
        progress=False,
    )
    if result.partial:
        raise SystemExit(f"{name}, seed {seed}, ended early: {result.why_partial}")
    return result


def whole(result: pagewalk.Result) -> Json:
    """The true values of each design; of those that do the same, of one."""
    first = result.designs[0]
    found: Json = {}
    for one in result.designs:
        if one is first or one["cycles"] != first["cycles"]:
            found[one.name] = {name: one[name] for name in METRICS[:2]}
            if one is not first:
                found[one.name]["speedup"] = one.speedup
    return {"designs": found, "instructions": first["instructions"]}


def sampled(result: pagewalk.Result) -> Json:
    """The intervals of each design (value, low and high), how many samples, and their seconds."""
    found: Json = {}
    samples = 0
    for one in result.data["designs"]:
        if not one["sampling"]:
            continue
        samples = one["sampling"]["samples"]
        intervals = {name: one["sampling"]["metrics"][name] for name in METRICS[:2]}
        if one["sampling"].get("speedup"):
            intervals["speedup"] = one["sampling"]["speedup"]
        found[one["name"]] = {
            name: [interval[key] for key in ("value", "low", "high")]
            for name, interval in intervals.items()
        }
    seconds = round(result.data["host"]["seconds"], 1)
    return {"designs": found, "samples": samples, "seconds": seconds}


def keep(kept: Json) -> None:
    """Writes all results atomically."""
    fresh = KEPT.with_suffix(".new")
    fresh.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    fresh.replace(KEPT)


def estimates(program: Json) -> Iterator[tuple[str, str, int, list[float], float]]:
    """Estimates of a program: statistic, design, seed, interval, and true value."""
    for seed, run in sorted(program.items()):
        intervals = run.get("sampled", {}).get("designs", {})
        for design, true in run["whole"]["designs"].items():
            for metric in METRICS:
                if metric in true and design in intervals:
                    yield metric, design, int(seed), intervals[design][metric], true[metric]


def outside(value: list[float], true: float) -> bool:
    """True if the true value is outside its interval."""
    _, low, high = value
    return not (low or 0) <= true <= (math.inf if high is None else high)


def line(name: str, program: Json) -> tuple[str, list[float]]:
    """A program's row, and its speeds in million instructions a second."""
    worst = dict.fromkeys(METRICS, 0.0)
    right = every = 0
    for metric, _, _, interval, true in estimates(program):
        off = abs(interval[0] - true)
        worst[metric] = max(worst[metric], off if metric == "l2_tlb_mpki" else off / true)
        every += 1
        right += not outside(interval, true)
    runs = [run for _, run in sorted(program.items()) if "sampled" in run]
    speeds = [run["whole"]["instructions"] / 1e6 / run["sampled"]["seconds"] for run in runs]
    cells = (
        f"`{name}`",
        ", ".join(str(run["sampled"]["samples"] or "all") for run in runs),
        f"{100 * worst['ipc']:.2f} %",
        f"{worst['l2_tlb_mpki']:.3f}",
        f"{100 * worst['speedup']:.2f} %",
        f"{right} of {every}",
        f"{statistics.median(run['sampled']['seconds'] for run in runs):.1f}",
        f"{statistics.geometric_mean(speeds):.0f}",
    )
    return row(*cells), speeds


def table(length: str, kept: Json) -> str:
    """The runs of a length, of all programs that have some."""
    programs = {
        name: runs
        for name, runs in sorted(kept.items(), key=lambda item: PROGRAMS.index(item[0]))
        if any("sampled" in run for run in runs.values())
    }
    head = ("program", "samples", "IPC", "L2 TLB MPKI", "speedup", "inside")
    speed = ("samples, s", "million instructions/s")
    lines = [row(*head, *speed), row("---", *["--:"] * 7)]
    means, found = [], []
    for name, program in programs.items():
        text, speeds = line(name, program)
        lines.append(text)
        means.append(statistics.geometric_mean(speeds))
        found += [(name, *one) for one in estimates(program)]
    wrong = [one for one in found if outside(one[4], one[5])]
    right = len(found) - len(wrong)
    share = f"**{right} of {len(found)}, {100 * right / max(len(found), 1):.1f} %**"
    lines.append(row("all", *[""] * 4, share, "", f"{statistics.geometric_mean(means):.0f}"))
    missed = [
        f"`{name}`: {metric} of {design}, seed {seed}" for name, metric, design, seed, *_ in wrong
    ]
    outside_them = f"Outside: {'; '.join(missed) or 'none'}."
    return "\n".join([f"{length} instructions:", "", *lines, "", outside_them])


def tables(kept: Json) -> str:
    """Tables of all kept results, the shortest runs first."""
    lengths = sorted(kept["runs"], key=lambda length: (length[-1] == "G", len(length), length))
    made = [table(length, kept["runs"][length]) for length in lengths]
    return "\n\n".join([f"On {kept['host']}; `python validation/precision.py`.", *made])


def main() -> int:
    """Simulates missing results, keeps them, and writes the page."""
    parser = script_arguments.parser(__doc__)
    parser.add_argument("--length", default="2G")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--only", default=",".join(PROGRAMS))
    parser.add_argument("--again", action="store_true", help="take samples again")
    parser.add_argument("--part", choices=("whole", "sampled"), help="that alone")
    arguments = parser.parse_args()
    chosen = script_arguments.names(parser, "--only", arguments.only, PROGRAMS)
    kept: Json = json.loads(KEPT.read_text()) if KEPT.exists() else {"runs": {}}
    if arguments.seeds:
        name = Processor.of_this_host().name
        kept["host"] = f"{name}, {os.cpu_count()} cores"
    run(kept, chosen, arguments)
    if arguments.write:
        marked.write("precision", tables(kept), PAGE)
    return 0


def run(kept: Json, chosen: list[str], arguments: argparse.Namespace) -> None:
    """Runs the chosen programs, all with one seed before the next seed."""
    for seed in range(1, arguments.seeds + 1):
        for name in chosen:
            programs = kept["runs"].setdefault(arguments.length, {})
            found = programs.setdefault(name, {}).setdefault(str(seed), {})
            for part, precision, read in (("whole", None, whole), ("sampled", WITHIN, sampled)):
                is_wanted = arguments.part in {None, part}
                if not is_wanted or (part in found and (part == "whole" or not arguments.again)):
                    continue
                result = simulated(name, arguments.length, seed, precision)
                found[part] = read(result)
                keep(kept)
                print(f"{name}, seed {seed}: {part}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
