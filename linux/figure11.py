"""Compares figure 11's speedups on placements of the simulated kernel with those of Linux.

    python3 linux/figure11.py                        all; the results go to linux/results
    python3 linux/figure11.py --pressure high BFS    some; they are only printed

Each program runs on Revelator at the scale `smoke` of `pagewalk reproduce revelator`, with three
placements:

1. that of the figure, where the pressure is denied frames;
2. that of the simulated kernel, where the same share of random frames is occupied;
3. that of Linux in QEMU, with the same share of random frames occupied, the same memory and the
   same seed. Its pages are touched in the order in which the simulated program touches them.

Speedups are over radix page tables in the simulated kernel: of the figure, or with occupied frames.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import driver
import pagewalk
import touches
from kernels import (
    FIGURES_NEED,
    HERE,
    NEEDS,
    Failure,
    cache,
    key,
    key_of,
    needed,
    program,
    room,
    say,
    variant,
)
from pagewalk.reproduce import Design, Outcome, Paper, Run
from pagewalk.reproduce import paper as papers
from pagewalk.runs.cache import Cache
from pagewalk.runs.plan import keys
from pagewalk.runs.progress import Bar
from pagewalk.runs.scheduler import simulate
from recording import KERNELS, Command, Guest, record

PROGRAMS: dict[str, dict[str, Any]] = {
    "BFS": {"vertices": 120_000},
    "XS": {"size": "1GiB"},
    "RND": {"size": "1GiB"},
    "DLRM": {"size": "1GiB"},
    "GEN": {"size": "1GiB"},
}
"""The programs that stand for table 2 in the paper's page: BFS is one of seven graph programs. They
have their sizes of the paper's mixes at this scale, because an emulated kernel is slow."""
PRESSURES = ("low", "high")
PLACEMENTS = ("figure", "model", "linux", "locked")
"""Placements: the figure's design, the simulated kernel at the same pressure, Linux, and Linux with
pages that compaction does not move."""
SEEDS = range(1, 7)
"""Seeds of the hash in the simulated kernel: speedups on its placement are means over them."""
TIERS = "os.tiered_hash"
HOLE_MB = 1024
"""QEMU has no memory in the fourth GB of addresses."""
AT_ONCE = 10 << 18
"""Pages that the programs of one guest touch: the host's memory has to hold them."""


@dataclass(frozen=True)
class Case:
    """A program at a pressure of the figure."""

    app: str
    pressure: str

    def __str__(self) -> str:
        return f"{self.app}-{self.pressure}"


@dataclass(frozen=True)
class Touched:
    """The pages of a simulated program in the order of their first touch, and its hash."""

    ranges: str
    """The list for `touch_pages`."""
    pages: int
    seed: int
    frames: int
    """Frames of the simulated machine."""


@dataclass(frozen=True)
class Recipe:
    """A recording: its file, and what the guest needs to make it."""

    file: Path
    guest: Guest
    touches: str
    asid: int
    """Number of the address space. Programs of one guest have different ones, as processes have: a
    program would else want frames at its addresses that the program before has just freed."""
    pages: int

    def command(self, folder: Path) -> Command:
        """The guest's program."""
        name = self.file.stem
        ranges = folder / f"{name}.touches"
        ranges.write_text(self.touches)
        tool = program(HERE / "guest/touch_pages.c", "-static-pie")
        files = {"bin/touch_pages": tool, f"root/{name}": ranges}
        lock = [] if self.guest.moves_locked else ["-l"]
        return Command(["touch_pages", *lock, "-a", str(self.asid), name], files)


def boots(recipes: Sequence[Recipe]) -> list[list[Recipe]]:
    """The recordings that one guest makes together."""
    groups: list[list[Recipe]] = []
    for recipe in sorted(recipes, key=lambda one: -one.pages):
        for group in groups:
            used = sum(one.pages for one in group) + recipe.pages
            if group[0].guest == recipe.guest and used <= AT_ONCE:
                group.append(recipe)
                break
        else:
            groups.append([recipe])
    return groups


def make(recipes: Sequence[Recipe]) -> None:
    """Makes the recordings that are missing."""
    for group in boots([one for one in recipes if not one.file.exists()]):
        guest = group[0].guest
        names = ", ".join(one.file.stem.rpartition("-")[0] for one in group)
        say(f"recording {names} with {guest.memory_mb >> 10} GB in QEMU")
        with tempfile.TemporaryDirectory() as at:
            commands = [one.command(Path(at)) for one in group]
            found = record(guest, commands, group[0].file.stem, seconds=5400)
        for recipe, one in zip(group, found, strict=True):
            if one.status:
                raise Failure(f"touch_pages ended with status {one.status}")
            header, *records = one.lines
            partial = recipe.file.with_suffix(".new")
            partial.write_text("\n".join([header, f"# occupied {one.occupied}", *records, ""]))
            partial.rename(recipe.file)


class Comparison:
    """The runs of the figure on three placements each."""

    def __init__(self, paper: Paper, cases: Sequence[Case], cache: Cache, folder: Path) -> None:
        self.paper, self.cases, self.cache, self.folder = paper, cases, cache, folder

    def share(self, pressure: str) -> float:
        """The share of the frames that the figure's design denies to the hash."""
        design = self.paper.designs[f"Revelator {pressure}"]
        changes = design.changed(design.label, {}).changes
        share: float = changes["placement"]["tiered_hash"]["denied"]
        return share

    def occupied(self, name: str, pressure: str, seed: int | None = None) -> Design:
        """A design on a machine that has this share of its frames in use."""
        changes: dict[str, object] = {"os.occupied": self.share(pressure)}
        if seed is not None:
            changes["placement.tiered_hash.seed"] = seed
        label = f"{name}, {pressure}, occupied" + ("" if seed is None else f", seed {seed}")
        return self.paper.designs[name].changed(label, changes)

    def recorded(self, name: str, pressure: str, file: Path) -> Design:
        """A design on the placements of a file."""
        changes = {"placement": {"recorded": {"file": str(file.resolve())}}}
        return self.paper.designs[name].changed(f"{name}, {pressure}, recorded", changes)

    def run(self, app: str, design: str | Design) -> Run:
        """A timed run of a program."""
        sized = self.paper.applications[app].resized(**PROGRAMS[app])
        return self.paper.run(sized, design, timing=True)

    def simulate(self, runs: Sequence[Run]) -> list[Outcome]:
        """The outcomes of runs that must not fail."""
        with Bar(sys.stderr) as bar:
            results = simulate(runs, self.cache, watcher=bar)
        outcomes = [results(run) for run in runs]
        for outcome in outcomes:
            if outcome.failed:
                raise pagewalk.Failure(outcome.why)
        return outcomes

    def touched(self, app: str) -> Touched:
        """The pages of a program. Its order of touches does not depend on the placement."""
        run = replace(self.run(app, "Revelator"), mappings=True)
        found, wrong = keys([run], self.folder)
        for why in wrong.values():
            raise pagewalk.Failure(why)
        file = self.folder / f"{app}-{found[run.identity][:12]}.touched"
        if not file.exists():
            [outcome] = self.simulate([run])
            hashed = outcome.result.hashed_frames
            assert hashed is not None
            assert hashed.seed is not None
            placed = [(one.vpn, 1, False) for one in hashed.placed if one.content == "page"]
            ranges = touches.ranges(placed)
            text = "".join(f"{first} {count}\n" for first, count, _ in ranges)
            frames = hashed.first_frame + hashed.frames
            kept = Touched(text, len(placed), hashed.seed, frames)
            file.write_text(json.dumps(asdict(kept)))
        return Touched(**json.loads(file.read_text()))

    def recipe(self, case: Case, locked: bool) -> Recipe:
        """The recording that a case needs."""
        of = self.touched(case.app)
        memory = of.frames // 256 - HOLE_MB
        guest = Guest("x86", memory, self.share(case.pressure), of.seed, not locked)
        asid = 1 + list(PROGRAMS).index(case.app)
        parts = (key(variant(KERNELS["x86"])), repr(guest), of.ranges, str(asid))
        name = key_of(*(part.encode() for part in parts))
        file = self.folder / f"{case}-{name}.frames"
        return Recipe(file, guest, of.ranges, asid, of.pages)

    def rows(self) -> list[dict[str, object]]:
        """One for each case."""
        recipes = {
            case: [self.recipe(case, locked) for locked in (False, True)] for case in self.cases
        }
        make([one for of in recipes.values() for one in of])
        runs: list[Run] = []
        for case in self.cases:
            designs: list[str | Design] = [
                "Radix",
                self.occupied("Radix", case.pressure),
                f"Revelator {case.pressure}",
                *(self.occupied("Revelator", case.pressure, seed) for seed in SEEDS),
                *(self.recorded("Revelator", case.pressure, one.file) for one in recipes[case]),
            ]
            runs += [self.run(case.app, design) for design in designs]
        outcomes = iter(self.simulate(runs))
        rows = []
        for case in self.cases:
            free, occupied, figure = (next(outcomes) for _ in range(3))
            models = [next(outcomes) for _ in SEEDS]
            linux, locked = next(outcomes), next(outcomes)
            base = occupied["ipc"]
            seeds = [one["ipc"] / base for one in models]
            mean = statistics.fmean(seeds)
            speedups = (
                figure["ipc"] / free["ipc"],
                mean,
                linux["ipc"] / base,
                locked["ipc"] / base,
            )
            hashed = (figure, models[0], linux, locked)
            rows.append(
                {
                    "program": case.app,
                    "pressure": case.pressure,
                    "occupied": self.share(case.pressure),
                    "occupied_in_linux": [occupied_before(one.file) for one in recipes[case]],
                    "pages": recipes[case][0].pages,
                    "speedup": by_placement(speedups, 5),
                    "model_deviation_percent": round(100 * statistics.stdev(seeds) / mean, 2),
                    "hashed_percent": by_placement([hashed_of(one) for one in hashed], 3),
                    "as_recorded_percent": [round(as_recorded(one), 3) for one in (linux, locked)],
                    "over_model_percent": {
                        name: round(100 * (speedups[of] / mean - 1), 2)
                        for of, name in enumerate(PLACEMENTS)
                        if of > 1
                    },
                }
            )
        return rows


def occupied_before(file: Path) -> float:
    """Share of the frames that were in use when the program started, as Linux has counted them."""
    with file.open() as lines:
        next(lines)
        return round(float(next(lines).removeprefix("# occupied ")), 5)


def by_placement(values: Sequence[float], digits: int) -> dict[str, float]:
    return {name: round(value, digits) for name, value in zip(PLACEMENTS, values, strict=True)}


def hashed_of(outcome: Outcome) -> float:
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


def show(rows: Sequence[Mapping[str, Any]]) -> None:
    """Prints a line for each case: speedups, and per cent of the pages placed by hash."""
    columns = "{:6} {:8}" + 2 * len(PLACEMENTS) * " {:>10}" + " {:>10}"
    print(columns.format("", "", *PLACEMENTS, *PLACEMENTS, "deviation"))
    for row in rows:
        speedups = [f"{row['speedup'][name]:.4f}" for name in PLACEMENTS]
        shares = [f"{row['hashed_percent'][name]:.2f} %" for name in PLACEMENTS]
        print(
            columns.format(
                row["program"],
                row["pressure"],
                *speedups,
                *shares,
                f"{row['model_deviation_percent']} %",
            )
        )


def main() -> int:
    """Runs the comparison of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help=f"default: {', '.join(PROGRAMS)}"
    )
    parser.add_argument("--pressure", choices=PRESSURES, help="default: both")
    parser.add_argument("--cache", help="folder of finished runs (default: the user's)")
    given = parser.parse_args()
    for app in given.programs:
        if app not in PROGRAMS:
            parser.error(f"there is no program {app}; expected some of {', '.join(PROGRAMS)}")
    pressures = (given.pressure,) if given.pressure else PRESSURES
    cases = [Case(app, pressure) for pressure in pressures for app in given.programs or PROGRAMS]
    try:
        needed(NEEDS, FIGURES_NEED)
        room(6000, "30 minutes of one processor, and 14 GB of memory")
        folder = cache() / "figure11"
        folder.mkdir(exist_ok=True)
        paper = papers.load("revelator", "smoke")
        rows = Comparison(paper, cases, Cache.named(given.cache), folder).rows()
        show(rows)
        if not given.programs and not given.pressure:
            how = {
                **driver.provenance(variant(KERNELS["x86"])),
                "scale": paper.scale.name,
                "sizes": PROGRAMS,
            }
            driver.keep("figure11", {**how, "rows": rows})
    except (pagewalk.PagewalkError, Failure) as error:
        print(f"figure11.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
