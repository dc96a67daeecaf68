"""Compares Revelator's speedups on simulated placements with those on recorded ones (figure 11).

    python3 linux/figure11.py --pressure low BFS=bfs.frames XS=xs.frames
    python3 linux/figure11.py --pressure high BFS

Each program runs on radix page tables and on Revelator, at the `smoke` scale of `pagewalk reproduce
revelator`. Revelator runs on the placement of the simulated kernel, at the pressure of the figure,
and on the placement of the program's file. Without a file, the simulated placement is exported and
read back: the cycles must then be equal, or the exit status is 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pagewalk
from pagewalk.reproduce import Design, Outcome, Paper, Run
from pagewalk.reproduce import paper as papers
from pagewalk.runs.cache import Cache
from pagewalk.runs.progress import Bar
from pagewalk.runs.scheduler import simulate

TIERS = "os.tiered_hash"


def recorded(paper: Paper, design: str, file: Path) -> Design:
    """The design on the placements of a file."""
    changes = {"placement": {"recorded": {"file": str(file.resolve())}}}
    return paper.designs[design].changed(f"{design}, recorded", changes)


def hashed(outcome: Outcome) -> float:
    """Per cent of the pages that the hash placed."""
    hits = sum(outcome.since_boot_of(f"{TIERS}.", ".data_hits").values())
    return 100 * hits / (hits + (outcome.since_boot(f"{TIERS}.data_fallbacks") or 0.0))


def as_recorded(outcome: Outcome) -> float:
    """Per cent of the pages that lie in their recorded frames."""
    counts = [
        outcome.since_boot(f"os.recorded.pages_{name}") or 0.0
        for name in ("as_recorded", "missing", "taken")
    ]
    return 100 * counts[0] / sum(counts)


def compare(
    paper: Paper, files: Mapping[str, Path | None], design: str, cache: Cache, folder: Path
) -> bool:
    """Prints a line for each program. Returns false if a placement that was read back differs."""
    runs: dict[str, list[Run]] = {}
    for app, file in files.items():
        radix = paper.run(app, "Radix", timing=True)
        # Mappings are needed only to export them.
        hashing = replace(paper.run(app, design, timing=True), mappings=file is None)
        runs[app] = [radix, hashing]
    with Bar(sys.stderr) as bar:
        results = simulate([run for of in runs.values() for run in of], cache, watcher=bar)
    for app, file in files.items():
        used = file or folder / f"{app}.frames"
        outcome = results(runs[app][1])
        if file is None and not outcome.failed:
            pagewalk.export_frames(outcome.result, used)
        runs[app].append(paper.run(app, recorded(paper, design, used), timing=True))
    with Bar(sys.stderr) as bar:
        results = simulate([run for of in runs.values() for run in of], cache, watcher=bar)
    columns = "{:6} {:>15} {:>15} {:>14} {:>14} {:>12}"
    print(f"{design}, scale {paper.scale.name}")
    print(
        columns.format("", "speedup, model", "recorded", "hashed, model", "recorded", "as recorded")
    )
    equal = True
    for app, of in runs.items():
        base, model, record = (results(run) for run in of)
        for outcome in (base, model, record):
            if outcome.failed:
                raise pagewalk.Failure(f"{app}: {outcome.why}")
        speedups = [one["ipc"] / base["ipc"] for one in (model, record)]
        shares = [hashed(one) for one in (model, record)]
        print(
            columns.format(
                app,
                *(f"{speedup:.4f}" for speedup in speedups),
                *(f"{share:.2f} %" for share in shares),
                f"{as_recorded(record):.2f} %",
            )
        )
        if files[app] is None and model["cycles"] != record["cycles"]:
            print(f"{app}: {model['cycles']:.0f} cycles, and {record['cycles']:.0f} read back")
            equal = False
    return equal


def main() -> int:
    """Runs the comparison of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("programs", nargs="+", metavar="PROGRAM[=FILE]")
    parser.add_argument("--pressure", choices=("low", "high"), default="low")
    parser.add_argument("--scale", default="smoke", help="scale (default: smoke)")
    parser.add_argument("--cache", help="folder of finished runs (default: the user's)")
    given = parser.parse_args()
    files: dict[str, Path | None] = {}
    for one in given.programs:
        app, equals, file = one.partition("=")
        files[app] = Path(file) if equals else None
    try:
        paper = papers.load("revelator", given.scale)
        with tempfile.TemporaryDirectory() as folder:
            design = f"Revelator {given.pressure}"
            cache = Cache.named(given.cache)
            return 0 if compare(paper, files, design, cache, Path(folder)) else 1
    except pagewalk.PagewalkError as error:
        print(f"figure11.py: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
