"""Measures the simulator itself, end to end, and prints the tables of docs/performance.md.

    python scripts/bench.py [--only NAME[,NAME...]] [--write]

Each section is a function below; `--write` puts what it prints into
docs/performance.md between the section's marks. Each time is taken
PAGEWALK_REPEATS times (3). The engine's parts have benchmarks of their own: cargo bench.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import math
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pagewalk.runs.batch import Batch
from pagewalk.runs.cache import Cache
from pagewalk.runs.executor import Host
from pagewalk.runs.task import OnProgress
from pagewalk.studies.command import as_ended
from pagewalk.studies.study import study

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "performance.md"
REPEATS = int(os.environ.get("PAGEWALK_REPEATS", "3"))

PROGRAMS = {
    "gups 64 MiB": ["--workload", "gups", "--size", "64MiB"],
    "gups 4 GiB": ["--workload", "gups", "--size", "4GiB"],
    "gups 64 GiB": ["--workload", "gups", "--size", "64GiB"],
    "bfs Kronecker 1 GiB": ["--workload", "bfs", "--size", "1GiB"],
    "bfs uniform 1 GiB": ["--workload", "bfs", "--size", "1GiB", "--param", "graph=uniform"],
}
Json = dict[str, Any]

TABLES = ["radix", "ecpt", "mehpt", "hash-dont-cache", "level-hashing"]
SKIPPED = (
    *("gups", "bfs", "pr", "kv-hash", "kv-map", "kv-btree", "kv-redis"),
    *("xsbench", "dlrm", "kmer", "mummer", "sysbench"),
)
SHIPPED = ["radix", "radix5", "thp", "thp-reservation", "l2tlb-128k", "perfect-tlb"]


def pagewalk(*arguments: str) -> dict[str, Any]:
    """Runs the command line; its JSON result, with the wall-clock seconds of the whole."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "result.json")
        split = arguments.index("--") if "--" in arguments else len(arguments)
        command = [*arguments[:split], "--json", str(report), *arguments[split:]]
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "pagewalk", *command],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        seconds = time.perf_counter() - start
        result: dict[str, Any] = json.loads(report.read_text())
    result["wall"] = seconds
    return result


def used() -> float:
    """Processor seconds of all commands so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def quiet(*arguments: str) -> None:
    """Runs the command line for what it writes or takes."""
    command = [sys.executable, "-m", "pagewalk", *arguments]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def processor(*arguments: str) -> float:
    """Processor seconds of the command line: what else the host does matters less."""
    before = used()
    pagewalk(*arguments)
    return used() - before


def summary(result: dict[str, Any], name: str) -> float:
    (value,) = (q["value"] for q in result["designs"][0]["summary"] if q["name"] == name)
    return float(value)


def median(measure: Callable[[], float]) -> float:
    return statistics.median(measure() for _ in range(REPEATS))


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [list(head), ["---", *["--:"] * (len(head) - 1)]]
    lines += [[str(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def speed() -> str:
    """Host time of another instruction: a long run less a short one, on one host thread."""
    short, long = 20_000_000, 60_000_000
    rows, rates = [], []
    for name, program in PROGRAMS.items():

        def seconds(instructions: int, program: list[str] = program) -> tuple[float, float]:
            result = pagewalk("run", *program, "--warmup", "0", "--instructions", str(instructions))
            return result["host"]["seconds"], summary(result, "memory_operands")

        samples = []
        for _ in range(REPEATS):
            (t1, m1), (t2, m2) = seconds(short), seconds(long)
            samples.append(((long - short) / (t2 - t1), (m2 - m1) / (t2 - t1)))
        instructions = statistics.median(s[0] for s in samples)
        operands = statistics.median(s[1] for s in samples)
        rates.append(instructions)
        rows.append([name, f"{instructions / 1e6:.1f}", f"{operands / 1e6:.1f}"])
    mean = math.exp(statistics.fmean(math.log(rate) for rate in rates))
    rows.append(["**geometric mean**", f"**{mean / 1e6:.1f}**", ""])
    head = ["program", "million instructions/s", "million memory operands/s"]
    return table(head, rows)


def compare() -> str:
    """Eight designs in one pass against the eight one after the other, on all host cores."""
    limits = "--workload gups --size 1GiB --warmup 2M --instructions 20M".split()
    with tempfile.TemporaryDirectory() as folder:
        extra = []
        for levels, ways in ((4, 4), (5, 16)):
            path = Path(folder, f"l2-{ways}-ways-{levels}-levels.toml")
            path.write_text(
                f"[placement.buddy]\n[page_table.radix]\nlevels = {levels}\n"
                f"[mmu.l2.main]\nways = {ways}\n"
            )
            extra.append(str(path))
        designs = [*SHIPPED, *extra]
        together = median(
            lambda: float(pagewalk("compare", *limits, "--designs", ",".join(designs))["wall"])
        )
        apart = median(
            lambda: sum(float(pagewalk("run", *limits, "--design", d)["wall"]) for d in designs)
        )
    head = ["", "seconds"]
    rows: list[list[object]] = [
        ["eight runs, one after the other", f"{apart:.1f}"],
        ["`compare` of the eight", f"{together:.1f}"],
        ["**share**", f"**{together / apart:.2f}**"],
    ]
    return table(head, rows)


def hashed() -> str:
    """Host time of another instruction with a hashed page table, relative to radix."""
    designs = ("radix", "ecpt", "mehpt")
    lengths = (20_000_000, 60_000_000)
    fixed = "run --machine mehpt-table3 --set os.memory_gb=256 --warmup 0".split()
    rows = []
    for name in ("gups 4 GiB", "gups 64 GiB", "bfs Kronecker 1 GiB", "bfs uniform 1 GiB"):
        # The fastest of each: other work on the host makes a run slower, never faster. Round by
        # round, so that all meet the same host.
        seconds = {(d, n): math.inf for d in designs for n in lengths}
        for _ in range(REPEATS):
            for (d, n), fastest in seconds.items():
                run = [*fixed, *PROGRAMS[name], "--design", d, "--instructions", str(n)]
                seconds[d, n] = min(fastest, processor(*run))
        short, long = lengths
        radix, *others = ((seconds[d, long] - seconds[d, short]) / (long - short) for d in designs)
        rows.append([name, f"{radix * 1e9:.0f}", *(f"{o / radix:.2f}" for o in others)])
    return table(["program", "radix, ns an instruction", "`ecpt`", "`mehpt`"], rows)


def guessing() -> str:
    """Host time of a run with an engine, relative to radix."""
    designs = ("radix", "revelator")
    short, long = 1000, 10_000_000
    fixed = "run --machine revelator-table1 --no-translation-cost --warmup 0".split()
    ldbc = "--workload bfs --param graph=ldbc --param vertices=500000 --param layout=graphbig"
    programs = {"gups 8 GiB": "--workload gups --size 8GiB", "bfs LDBC, 500 K vertices": ldbc}
    rows = []
    for name, program in programs.items():
        # The fastest of each, as in `hashed`.
        seconds = {(d, n): math.inf for d in designs for n in (short, long)}
        for _ in range(REPEATS):
            for (d, n), fastest in seconds.items():
                run = [*fixed, *program.split(), "--design", d, "--instructions", str(n)]
                seconds[d, n] = min(fastest, processor(*run))
        radix, revelator = (seconds[d, long] for d in designs)
        more = [seconds[d, long] - seconds[d, short] for d in designs]
        row = [f"{radix:.2f}", f"{revelator:.2f}", f"**{revelator / radix:.2f}**"]
        rows.append([name, *row, f"{more[1] / more[0]:.2f}"])
    head = ["program", "radix, s", "`revelator`, s", "times", "times, without set-up"]
    return table(head, rows)


def populate() -> str:
    """A run that does nothing but map 64 GiB, from the shell's call to the answer."""
    run = (
        "run --workload gups --size 64GiB --machine mehpt-table3 --set os.memory_gb=256"
        " --warmup 0 --instructions 1000 --design"
    ).split()
    rows = []
    for design in TABLES:
        wall, cpu = [], []
        for _ in range(REPEATS):
            start = time.perf_counter()
            cpu.append(processor(*run, design))
            wall.append(time.perf_counter() - start)
        rows.append([f"`{design}`", f"{statistics.median(wall):.1f}"])
        rows[-1].append(f"{statistics.median(cpu):.1f}")
    return table(["64 GiB, 16.8 million pages, into", "seconds", "processor seconds"], rows)


def front_door() -> str:
    """A live program against its recording, and the trace's size."""
    program = [
        "python3",
        "-S",
        "-c",
        "d = {i * 2654435761 % 2**32: i for i in range(300000)}; print(sum(d.values()))",
    ]
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "program.pwt")
        start = time.perf_counter()
        quiet("record", "-o", str(trace), "--", *program)
        recorded = time.perf_counter() - start
        live = median(lambda: float(pagewalk("run", "--", *program)["wall"]))
        results = [pagewalk("run", "--trace", str(trace)) for _ in range(REPEATS)]
        replay = statistics.median(float(r["wall"]) for r in results)
        instructions = summary(results[0], "instructions")
        size = trace.stat().st_size
    rows = [
        ["simulated while it runs", f"{live:.1f}", f"{instructions / live / 1e6:.1f}"],
        ["simulated from its recording", f"{replay:.1f}", f"{instructions / replay / 1e6:.1f}"],
        ["**live, of the recording's time**", f"**{live / replay:.2f}**", ""],
        ["recorded", f"{recorded:.1f}", f"{instructions / recorded / 1e6:.1f}"],
        ["bytes an instruction in the trace", f"{size / instructions:.2f}", ""],
    ]
    return table(["a dictionary in Python", "seconds", "million instructions/s"], rows)


def champsim() -> str:
    """A ChampSim trace as such are downloaded, under each compression and as our own format.

    A stretch of one over and over: of `bfs`, or the beginning of PAGEWALK_CHAMPSIM.
    """
    program = PROGRAMS["bfs uniform 1 GiB"]
    piece, times = 1_000_000, 50
    with tempfile.TemporaryDirectory() as folder:
        raw, own = Path(folder, "t.champsim"), Path(folder, "t.pwt")
        if given := os.environ.get("PAGEWALK_CHAMPSIM"):
            with lzma.open(given) as trace:
                content = trace.read(64 * piece)
        else:
            recording = Path(folder, "recording.pwt")
            quiet("record", "--instructions", "8M", "-o", str(recording), *program)
            quiet("trace", "convert", str(recording), "-o", str(raw))
            content = raw.read_bytes()[-64 * piece :]
        compressed = lzma.compress(content)
        raw.write_bytes(content * times)
        Path(folder, "t.champsim.xz").write_bytes(compressed * times)
        quiet("trace", "convert", str(raw), "-o", f"{raw}.zst")
        Path(f"{raw}.gz").write_bytes(gzip.compress(content, 6) * times)
        convert = ["trace", "convert", "-o", str(own)]
        run = "run --no-translation-cost --warmup 0 --instructions 1G --trace".split()
        commands = {
            "read and simulated, `.champsim.xz`": [*run, f"{raw}.xz"],
            "`.champsim.zst`": [*run, f"{raw}.zst"],
            "`.champsim.gz`": [*run, f"{raw}.gz"],
            "`.champsim`": [*run, str(raw)],
            "converted, `.champsim.xz` to `.pwt`": [*convert, f"{raw}.xz"],
            "`.champsim` to `.pwt`": [*convert, str(raw)],
            "read and simulated, `.pwt`": [*run, str(own)],
            "`trace info` of `.champsim.xz`": ["trace", "info", f"{raw}.xz"],
        }
        rows = []
        for name, command in commands.items():
            # The fastest of each, as in `hashed`.
            wall, cpu = math.inf, math.inf
            for _ in range(REPEATS):
                before, start = used(), time.perf_counter()
                quiet(*command)
                wall = min(wall, time.perf_counter() - start)
                cpu = min(cpu, used() - before)
            instructions = piece * times
            rows.append([name, f"{wall:.2f}", f"{instructions / wall / 1e6:.1f}", f"{cpu:.2f}"])
        size = f"{len(compressed) / piece:.2f}"
    rows.append(["bytes an instruction in the `.xz`", size, "", ""])
    head = ["50 million instructions", "seconds", "million instructions/s", "processor seconds"]
    return table(head, rows)


def memory() -> str:
    """Host memory for a simulated footprint, one design."""
    rows = []
    for name in ("4GiB", "64GiB", "1TiB"):
        result = pagewalk(
            *f"run --workload gups --size {name} --warmup 0 --instructions 20M".split(),
            *"--set os.memory_gb=2048".split(),
        )
        peak = result["host"]["peak_rss_bytes"]
        touched = summary(result, "mapped_4kb") / 4096
        own = summary(result, "page_table_bytes")
        extra = max(0.0, peak - 200 * 2**20 - own) / touched
        rows.append(
            [
                f"gups {name}",
                f"{touched / 1e6:.1f}",
                f"{own / 2**20:.0f}",
                f"{peak / 2**20:.0f}",
                f"{extra:.1f}",
                f"{result['wall']:.0f}",
            ]
        )
    head = [
        "program",
        "million touched 4 KB pages",
        "simulated page table, MiB",
        "host memory, MiB",
        "bytes a page beyond 200 MB and the table",
        "seconds",
    ]
    return table(head, rows)


def linear() -> str:
    """Host seconds by the number of instructions."""
    rows = []
    for instructions in ("10M", "20M", "40M", "80M"):
        arguments = f"run --workload gups --size 1GiB --warmup 0 --instructions {instructions}"
        seconds = median(lambda a=arguments: float(pagewalk(*a.split())["host"]["seconds"]))  # type: ignore[misc]
        rows.append([instructions, f"{seconds:.2f}"])
    return table(["instructions of gups 1 GiB", "seconds"], rows)


def skipping() -> str:
    """Fast-forward speed in programs, and host time of a start within a recording."""
    rates = {name: skipped_in_program(name) for name in SKIPPED}
    rows = [[f"`{name}`", f"{rate:.0f}"] for name, rate in rates.items()]
    rows.append(["geometric mean", f"**{statistics.geometric_mean(rates.values()):.0f}**"])
    programs = table(["skipped", "million instructions/s"], rows)
    return f"{programs}\n\n{table(['recorded', 'ms'], starts_in_recordings())}"


def starts_in_recordings() -> list[list[str]]:
    """Extra host time of a start far into a recording, relative to a start near its beginning.

    The recordings are of a built-in program, and of a live one if QEMU is installed.
    """
    live = "print(sum({i: i for i in range(4_000_000)}.values()))"
    sources = {"`gups`, recorded": ["--workload", "gups"]}
    if shutil.which("qemu-x86_64"):
        sources["Python, recorded"] = ["--", sys.executable, "-c", live]
    rows = []
    for name, source in sources.items():
        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "t.pwt"))
            quiet("record", "--out", path, "--instructions", "300M", *source)
            near, far = seconds_of_skips([1_000_000, 271_000_000], "--trace", path)
            rows.append([name, f"{1000 * (far - near):.0f}"])
    return rows


def skipped_in_program(name: str) -> float:
    """Million instructions a second in a built-in program, over a second or more."""
    many = 1_000_000_000
    rate = skipped_per_second(1_000_000 + many, "--workload", name)
    # The host time of a start varies by tenths of a second.
    if many / 1e6 / rate < 1:
        rate = skipped_per_second(1_000_000 + 8 * many, "--workload", name)
    return rate


def skipped_per_second(many: int, *source: str) -> float:
    """Million instructions that are skipped in a second: a long skip less a short one."""
    few = 1_000_000
    short, long = seconds_of_skips([few, many], *source)
    return (many - few) / 1e6 / (long - short)


def seconds_of_skips(lengths: Sequence[int], *source: str) -> list[float]:
    """The seconds of runs that skip so many instructions and measure few."""
    fastest = [math.inf] * len(lengths)
    for _ in range(REPEATS):
        for at, skipped in enumerate(lengths):
            arguments = ["--warmup", "0", "--instructions", "1000", "--skip", str(skipped)]
            start = time.perf_counter()
            quiet("run", *source, *arguments)
            fastest[at] = min(fastest[at], time.perf_counter() - start)
    return fastest


def warming() -> str:
    """Host time of an instruction: timed, functionally warmed, or filtered functional warming."""
    skip = "run --no-translation-cost --warmup 0 --skip 100M --workload".split()
    few, many = 2_000_000, 42_000_000
    # Filtered warming is fast, so its samples are few to have little weight.
    ways: list[tuple[list[str], int, int]] = [
        ([], few, many),
        (["--sample", "1K/1M"], few, many),
        (["--sample", "1K/20M:all+1K"], 10 * few, 10 * many),
    ]
    rows, ratios = [], []
    for name in SKIPPED:
        # The fastest of each, as in `hashed`.
        seconds = {(way, n): math.inf for way, (_, *lengths) in enumerate(ways) for n in lengths}
        for _ in range(REPEATS):
            for (way, n), fastest in seconds.items():
                run = [*skip, name, "--instructions", str(n), *ways[way][0]]
                seconds[way, n] = min(fastest, processor(*run))
        taken = [
            (seconds[way, most] - seconds[way, least]) / (most - least) * 1e6
            for way, (_, least, most) in enumerate(ways)
        ]
        timed, warmed, filtered = taken
        ratios.append((timed / warmed, timed / filtered))
        rates = [f"{1 / one:.1f}" for one in taken]
        times = [f"{ratio:.2f}" for ratio in ratios[-1]]
        rows.append([f"`{name}`", *rates[:2], times[0], rates[2], times[1]])
    means = [f"**{statistics.geometric_mean(each):.2f}**" for each in zip(*ratios, strict=True)]
    rows.append(["geometric mean", "", "", means[0], "", means[1]])
    head = ["million instructions/s", "timed", "warmed", "times", "filtered", "times"]
    return table(head, rows)


def startup() -> str:
    """Host time from the shell's call to the answer."""

    def seconds(*arguments: str) -> float:
        def once() -> float:
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "pagewalk", *arguments],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            return time.perf_counter() - start

        return median(once)

    commands = (["--version"], ["explain", "walks"], ["designs"])
    return table(
        ["command", "seconds"],
        [[f"`pagewalk {' '.join(c)}`", f"{seconds(*c):.2f}"] for c in commands],
    )


class Counted(Host):
    """Processes of this host, and how long the engine was at work in them."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = 0.0

    def submit(self, order: Json, batch: Batch, on_progress: OnProgress) -> Future[Json]:
        """Counts what comes back."""
        future = super().submit(order, batch, on_progress)
        future.add_done_callback(lambda done: self._count(done.result()["engine"]))
        return future

    def _count(self, seconds: float) -> None:
        self.engine += seconds


def studies() -> str:
    """Host time of a study outside the engine, and of a plan of very many runs."""
    keys = {
        "workload": "gups,kmer,xsbench,sysbench,churn",
        "designs": ["radix", "thp"],
        "size": "64MiB",
        "instructions": "20M",
        "warmup": "0",
        "seeds": 20,
    }
    executor = Counted()
    with tempfile.TemporaryDirectory() as folder:
        large = Path(folder, "large.toml")
        large.write_text(
            'designs = ["radix", "thp"]\n'
            'workload = ["gups", "bfs", "kv-hash", "kmer", "xsbench"]\n'
            "[vary]\n"
            'mmu.l2.main.entries = "512..16384*2"\n'
            'mmu.l2.main.latency = "1..168+1"\n'
        )
        command = [sys.executable, "-m", "pagewalk", "sweep", str(large), "--dry-run"]
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=folder)
        planned = time.perf_counter() - start
        most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        start = time.perf_counter()
        ended = list(
            as_ended(study(keys), Path(folder, "s"), Cache(Path(folder, "c")), executor=executor)
        )
        seconds = time.perf_counter() - start
        outside = 1 - executor.engine / (seconds * executor.slots)
    return table(
        ["", "", ""],
        [
            [f"{len(ended)} runs of 20 million instructions, s", f"{seconds:.0f}", ""],
            ["of it, of both cores, not the engine's", f"{100 * outside:.1f} %", ""],
            ["10,080 points planned, s", f"{planned:.1f}", f"{most / 1024:.0f} MB at most"],
        ],
    )


SECTIONS: dict[str, Callable[[], str]] = {
    f.__name__: f
    for f in (
        speed,
        compare,
        hashed,
        guessing,
        populate,
        front_door,
        champsim,
        skipping,
        warming,
        memory,
        linear,
        studies,
        startup,
    )
}


def host() -> str:
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{model[1] if model else platform.processor()}, {os.cpu_count()} cores"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--only", default=",".join(SECTIONS))
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    names = arguments.only.split(",")
    if unknown := [name for name in names if name not in SECTIONS]:
        parser.error(f"--only {','.join(unknown)}: expected some of {', '.join(SECTIONS)}")
    for name in names:
        text = f"On {host()}; `python scripts/bench.py --only {name}`.\n\n{SECTIONS[name]()}"
        print(f"\n## {name}\n\n{text}", flush=True)
        if arguments.write:
            page = PAGE.read_text()
            marked = re.compile(rf"(<!-- {name} -->\n)(?:.*?\n)??(<!-- end -->)", re.DOTALL)
            if not marked.search(page):
                raise SystemExit(f"{PAGE} has no marks for {name}")
            PAGE.write_text(marked.sub(lambda m, t=text: m[1] + t + "\n" + m[2], page))  # type: ignore[misc]
    return 0


if __name__ == "__main__":
    sys.exit(main())
