"""Small programs by the clock on this host beside simulated ones, for docs/validation.md.

    python validation/clock.py [--only NAME[,NAME...]] [--machine NAME] [--host NAME]
                               [--pairs N] [--again] [--write]

Times nine loops of programs/micro.c, and lookups in the maps of maps.cpp, without huge pages and
with them, as `pagewalk validate --by clock --roi` does. Simulates them live on `radix` and `thp`,
natively and in a virtual machine. The simulation fast-forwards to the region, warms up in it, and
measures a window. Run it while nothing else runs.

Results are kept in validation/clock.json, by host (`--host`, default: the processor) and
machine. `--only` replaces those of the named loops. `--again` simulates again beside the kept
times. `--write` puts the tables of all hosts into docs/validation.md.

Needs gcc, g++ and the packages of `pagewalk doctor`.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import marked
import pagewalk
import script_arguments
from marked import row
from pagewalk.config.options import DEFAULT_MACHINE
from pagewalk.host import standard_input, time_ratio, timing
from pagewalk.host.perf_counters import Processor

ROOT = Path(__file__).parent.parent
KEPT = ROOT / "validation" / "clock.json"
SYSTEMS = ("native", "virtual")


@dataclass(frozen=True)
class Case:
    """A loop or a map, with its sizes and the simulated window."""

    title: str
    kind: str
    size: int
    """Megabytes of a loop, keys of a map."""
    operations: int
    warmup: int = 20_000_000
    """Instructions in the region before the window."""
    window: int | None = 10_000_000
    """Instructions that are measured; none: to the end of the region."""
    simulated: int = 0
    """Operations of the simulated region, if it has fewer than the timed one."""
    binary: str = "micro"
    long: bool = False
    """Takes many minutes, so it runs only if `--only` names it."""

    @property
    def name(self) -> str:
        """Its key in the results."""
        return f"{self.kind}-{self.size}"

    def words(self, folder: Path, size: int = 0, operations: int = 0) -> list[str]:
        """Its command, with other sizes if they are given."""
        sizes = (size or self.size, operations or self.operations)
        return [str(folder / self.binary), self.kind, *map(str, sizes)]


CASES = [
    Case("`gups` 64 MB", "gups", 64, 20_000_000),
    Case("`gups` 1 GB", "gups", 1024, 10_000_000),
    Case("independent random loads, 1 GB", "loads", 1024, 10_000_000),
    Case("random stores, 1 GB", "stores", 1024, 10_000_000),
    Case("dependent chase, 1 GB", "chase", 1024, 2_000_000, warmup=1_000_000, window=1_000_000),
    Case("copy of 64 MB to the next 64 MB", "copy", 64, 1 << 28),
    Case("4096 × 4096 matrix by columns", "columns", 128, 1 << 26),
    Case("words in order, 1 GB", "stream", 1024, 1 << 28),
    Case("first touch of pages, 512 MB", "touch", 512, 1 << 17, warmup=0, window=None),
    Case("`gups` 8 GB", "gups", 8192, 10_000_000, long=True),
    Case(
        "hash map of 10 M keys",
        "hash",
        10_000_000,
        2_000_000,
        warmup=20_000_000,
        window=None,
        simulated=200_000,
        binary="maps",
        long=True,
    ),
    Case(
        "tree map of 10 M keys",
        "tree",
        10_000_000,
        1_000_000,
        warmup=20_000_000,
        window=None,
        simulated=40_000,
        binary="maps",
        long=True,
    ),
]


def build(folder: Path) -> None:
    """Compiles the programs."""
    here = ROOT / "validation"
    options = ["-O2", "-DPAGEWALK_PERF", f"-I{ROOT / 'include'}"]
    for compiler, source in (("gcc", here / "programs" / "micro.c"), ("g++", here / "maps.cpp")):
        target = str(folder / source.stem)
        subprocess.run([compiler, *options, str(source), "-o", target], check=True)


def simulate(case: Case, machine: str, folder: Path) -> pagewalk.Result:
    """All designs in one pass over the loop."""
    here = Processor.of_this_host()
    pairs = [time_ratio.designs_of(replace(here, hypervisor=h)) for h in (False, True)]
    with timing.asking():
        result = pagewalk.compare(
            [design for pair in pairs for design in time_ratio.in_order(pair)],
            machine=machine,
            program=case.words(folder, operations=case.simulated),
            roi=True,
            warmup=case.warmup,
            instructions=case.window,
            translation_cost=False,
            progress=False,
        )
    if result.partial:
        raise SystemExit(f"{case.name}: ended early")
    return result


def instructions_an_operation(case: Case, result: pagewalk.Result, folder: Path) -> float:
    """Instructions of a whole region over its operations."""
    if case.window is None:
        # The region of `result` was simulated to its end.
        instructions = case.warmup + result.designs[0]["instructions"]
        return instructions / (case.simulated or case.operations)
    operations = 4096
    result = pagewalk.run(
        "radix", program=case.words(folder, 32, operations), roi=True, progress=False
    )
    return result.designs[0]["instructions"] / operations


def measured(case: Case, pairs: int, folder: Path) -> dict[str, Any]:
    """Times on this host."""
    host = time_ratio.Host.here()
    timed = timing.measure(case.words(folder), region=True, runs=pairs)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "load": host.load,
        "pairs": [asdict(pair) for pair in timed.pairs],
        "memory": {"small": asdict(timed.small), "huge": asdict(timed.huge)}
        if timed.small and timed.huge
        else None,
    }


def timing_of(kept: dict[str, Any]) -> timing.Timing:
    """Kept times as they were measured."""
    memory = kept["memory"] or {}
    seen = {kind: timing.Memory(**one) for kind, one in memory.items()}
    pairs = [timing.Pair(**pair) for pair in kept["pairs"]]
    return timing.Timing(pairs, seen.get("small"), seen.get("huge"))


def simulated(case: Case, machine: str, host: Processor, kept: dict[str, Any], folder: Path) -> Any:
    """Ratios and verdicts of both systems, and cycles an operation."""
    result = simulate(case, machine, folder)
    instructions = instructions_an_operation(case, result, folder)
    there = time_ratio.Host(host, kept["kernel"], kept["huge_pages"], kept["load"])
    found: dict[str, Any] = {"instructions_an_operation": instructions}
    for at, system in enumerate(SYSTEMS):
        timed = timing_of(kept["loops"][case.name])
        one = time_ratio.compare(there, timed, result, region=True, at=2 * at)
        found[system] = {
            "ratio": one.simulated,
            "verdict": one.verdict,
            "ns": {kind: _ns(getattr(one, kind), instructions) for kind in ("small", "huge")},
            "huge_pages": {"small": one.small.huge, "huge": one.huge.huge},
        }
    return found


def _ns(one: time_ratio.Simulated, instructions: float) -> float | None:
    """Nanoseconds of an operation."""
    seconds = one.seconds
    return None if seconds is None else 1e9 * seconds / one.instructions * instructions


def run(
    cases: list[Case], machine: str, name: str, pairs: int, kept: dict[str, Any], *, again: bool
) -> None:
    """Measures, simulates and keeps."""
    if again and name not in kept:
        raise SystemExit(f"--again: no times of '{name}' are kept; there are {', '.join(kept)}")
    here = time_ratio.Host.here()
    host = kept.setdefault(name, {"processor": asdict(here.processor), "loops": {}, "machines": {}})
    if not again:
        host |= {"kernel": here.kernel, "huge_pages": here.huge_pages, "load": here.load}
    processor = Processor(**host["processor"])
    standard_input.share()
    with tempfile.TemporaryDirectory() as folder:
        build(Path(folder))
        for case in cases:
            if not again:
                host["loops"][case.name] = measured(case, pairs, Path(folder))
            of = host["machines"].setdefault(machine, {})
            of[case.name] = simulated(case, machine, processor, host, Path(folder))
            KEPT.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
            print("\n".join(rows(host, machine, [case])), flush=True)


def rows(host: dict[str, Any], machine: str, cases: list[Case]) -> Iterator[str]:
    """A row for each loop."""
    system = "virtual" if host["processor"]["hypervisor"] else "native"
    for case in cases:
        if case.name not in host["loops"] or case.name not in host["machines"][machine]:
            continue
        seen, found = host["loops"][case.name], host["machines"][machine][case.name]
        pairs = timing_of(seen).pairs
        ratio = time_ratio.interval([pair.ratio for pair in pairs])
        here = [
            1e9 / case.operations * time_ratio.interval([getattr(p, kind) for p in pairs]).middle
            for kind in ("small", "huge")
        ]
        there = [marked.number(found[system]["ns"][kind]) for kind in ("small", "huge")]
        yield row(
            case.title, f"{ratio.middle:.2f}", f"{ratio.low:.2f}–{ratio.high:.2f}",
            *(f"{found[one]['ratio']:.2f}" for one in SYSTEMS), found[system]["verdict"],
            " / ".join(map(marked.number, here)), " / ".join(there),
        )  # fmt: skip


def score(host: dict[str, Any], machine: str) -> str:
    """Counts of ratios near the measured ones, and on their side of 1."""
    system = "virtual" if host["processor"]["hypervisor"] else "native"
    near = right = signed = 0
    for name, found in host["machines"][machine].items():
        pairs = timing_of(host["loops"][name]).pairs
        ratio = time_ratio.interval([pair.ratio for pair in pairs])
        there = found[system]["ratio"]
        near += 1 / time_ratio.TOLERANCE <= there / ratio.middle <= time_ratio.TOLERANCE
        signed += ratio.low > 1 or ratio.high < 1
        right += (ratio.low > 1 and there > 1) or (ratio.high < 1 and there < 1)
    return (
        f"With the designs that fit this host, {near} of {len(host['machines'][machine])} ratios "
        f"are within 20 % of the measured median. {right} have the right sign, of {signed} whose "
        "interval excludes 1."
    )


def tables(kept: dict[str, Any]) -> str:
    """The tables of all hosts and machines."""
    parts = []
    for name in sorted(kept):
        host = kept[name]
        loads = [one["load"] for one in host["loops"].values()]
        pairs = sorted({len(one["pairs"]) for one in host["loops"].values()})
        where = "a virtual machine" if host["processor"]["hypervisor"] else "no virtual machine"
        for machine in sorted(host["machines"]):
            head = (
                f"Measured on {name} ({where}, Linux {host['kernel']}, huge pages "
                f"`{host['huge_pages']}`), with {' to '.join(map(str, pairs))} pairs of runs. "
                f"Before the runs {min(loads):.1f} to {max(loads):.1f} processes a core were "
                f"runnable. Simulated on `{machine}`."
            )
            titles = ("4 KB : 2 MB, time", "measured", "interval", "`radix` : `thp`",
                      "in a virtual machine", "verdict", "ns an operation, measured",
                      "simulated")  # fmt: skip
            lines = [row(*titles), row("---", *["--:"] * 4, "---", *["--:"] * 2)]
            lines += rows(host, machine, CASES)
            parts.append("\n".join([head, "", *lines, "", score(host, machine)]))
    return "\n\n".join(parts)


def main() -> int:
    """Runs, keeps and writes."""
    every = [case.name for case in CASES]
    parser = script_arguments.parser(__doc__)
    usual = ",".join(case.name for case in CASES if not case.long)
    parser.add_argument("--only", default=usual)
    parser.add_argument("--machine", default=DEFAULT_MACHINE)
    here = Processor.of_this_host()
    parser.add_argument("--host", default=f"{here.name}, family {here.family}, model {here.model}")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    chosen = []
    if given.only != script_arguments.NONE:
        chosen = script_arguments.names(parser, "--only", given.only, every)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    cases = [case for case in CASES if case.name in chosen]
    if cases:
        run(cases, given.machine, given.host, given.pairs, kept, again=given.again)
    if given.write:
        marked.write("clock", tables(kept))
    return 0


if __name__ == "__main__":
    sys.exit(main())
