"""Built-in key-value programs against real ones, and the table of docs/validation.md.

    python validation/kv.py [--only NAME[,NAME...]] [--cases KEYS:DISTRIBUTION[,...]]
        [--operations N] [--write]

Builds the programs of validation/programs over the libraries' containers and
the client for redis-server. Runs each live through QEMU, and its built-in
counterpart, on the same simulated machine, and compares the counts of an
operation. Both are measured from the first operation after the load to the last,
with caches and TLBs empty at the start.

Needs g++, cargo, libsparsehash-dev, libabsl-dev, redis-server and the packages of
`pagewalk doctor`. `--write` puts the rows into the tables of docs/validation.md, where
those of other programs and cases stay.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import marked
import script_arguments
from marked import number, row

ROOT = Path(__file__).parent.parent
SOURCES = ROOT / "validation" / "programs"
LOADER = "/lib64/ld-linux-x86-64.so.2"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))

REAL = {
    "hash": "std::unordered_map",
    "dense": "google::dense_hash_map",
    "map": "std::map",
    "btree": "absl::btree_map",
    "flat": "absl::flat_hash_map",
    "redis": "redis-server",
}
CASES = "100000:zipfian,1000000:zipfian,1000000:latest,100000:erasing"
# A server's request takes twenty times the instructions: fewer keys and requests.
# The dictionary doubles at 262,144 keys: 250,000 are the most before, and with
# 300,000 it is growing.
SERVER_CASES = "100000:zipfian,250000:zipfian,300000:zipfian"
SERVER_SHARE = 5
# YCSB's `latest` with inserts, as STLT measures it (section V); GETs otherwise.
SETS = {"latest": 5}
# A mix of zipfian requests that erases, brings keys back and writes values of other lengths.
ERASING = "erasing"
ERASING_SHARES = {"sets": 20, "deletes": 20}
VALUE = 64
OPERATIONS = 200_000
# Differences of less are those of two runs with other random numbers.
SMALL_MPKI, SMALL_COUNT = 0.1, 0.05
# Beyond it a difference needs a reason on the page.
LARGE = 0.15


@dataclass
class Run:
    """Compared numbers of one run."""

    instructions_per_operation: float
    references_per_instruction: float
    l1_tlb_mpki: float
    l2_tlb_mpki: float
    l1d_mpki: float
    merged_mpki: float
    l2_mpki: float
    l3_mpki: float
    ipc: float
    loads: float
    stores: float
    branches: float
    mispredicted: float


COLUMNS = {
    "instructions_per_operation": "instructions an operation",
    "references_per_instruction": "data references an instruction",
    "l1_tlb_mpki": "L1 dTLB MPKI",
    "l2_tlb_mpki": "L2 TLB MPKI",
    "l1d_mpki": "L1D MPKI",
    "l2_mpki": "L2 MPKI",
    "l3_mpki": "L3 MPKI",
    "ipc": "IPC",
}

# An operation.
EXECUTED = {
    "instructions_per_operation": "instructions",
    "loads": "loads",
    "stores": "stores",
    "branches": "branches",
    "mispredicted": "mispredicted",
}

# Misses an operation of a server, whose other work dilutes MPKI.
MISSES = {
    "l1_tlb_mpki": "L1 dTLB",
    "l2_tlb_mpki": "L2 TLB",
    "l1d_mpki": "L1D",
    "merged_mpki": "L1D, line on its way",
    "l2_mpki": "L2",
    "l3_mpki": "L3",
}


class Simulation:
    """A run of the region of interest, under way."""

    def __init__(self, machine: str, *source: str, stdin: Any = None) -> None:
        """Starts the run."""
        self.folder = tempfile.TemporaryDirectory()
        self.report = Path(self.folder.name, "result.json")
        limits = ["--roi", "--warmup", "0", "--instructions", "1T"]
        common = ["--machine", machine, "--design", "radix", *limits, "--json", str(self.report)]
        self.command = [sys.executable, "-m", "pagewalk", "run", *common, *source]
        self.running = subprocess.Popen(
            self.command, stdin=stdin, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Simulation:
        return self

    def __exit__(self, *_: object) -> None:
        if self.running.poll() is None:
            self.running.terminate()
            self.running.wait()
        self.folder.cleanup()

    def result(self, operations: int) -> Run:
        """The numbers of an ended run with that number of operations."""
        _, said = self.running.communicate()
        command = " ".join(self.command)
        if self.running.returncode:
            raise SystemExit(f"{command}: status {self.running.returncode}\n{said}")
        data = json.loads(self.report.read_text())
        if data["partial"] or data["designs"][0]["status"] != "complete":
            raise SystemExit(f"{command}: ended early\n{said}")
        return compared(data["designs"][0], operations)


def compared(design: dict[str, Any], operations: int) -> Run:
    """The numbers of one design's result."""
    summary = {q["name"]: q["value"] for q in design["summary"]}
    stats = {(s["path"], s["name"]): s["value"] for s in design["stats"]}
    instructions = summary["instructions"]

    def misses(cache: str) -> float:
        # Misses of the program's own accesses, without those of prefetches and walks.
        own = stats[cache, "load_misses"] + stats[cache, "store_misses"]
        return float(1000 * own / instructions)

    return Run(
        instructions_per_operation=instructions / operations,
        references_per_instruction=summary["memory_operands"] / instructions,
        l1_tlb_mpki=summary["l1d_tlb_mpki"],
        l2_tlb_mpki=summary["l2_tlb_mpki"],
        l1d_mpki=misses("core.0.l1d"),
        merged_mpki=1000 * stats["core.0.l1d", "merged"] / instructions,
        l2_mpki=misses("core.0.l2"),
        l3_mpki=misses("l3"),
        ipc=summary["ipc"],
        loads=stats["core.0", "loads"] / operations,
        stores=stats["core.0", "stores"] / operations,
        branches=stats["core.0", "branches"] / operations,
        mispredicted=stats["core.0", "mispredictions"] / operations,
    )


def build(programs: Sequence[str]) -> None:
    """Compiles what the runs need."""
    needs = {"redis": ["redis_roi.so", "slow_clock.so"]}
    both = [(p, needs.get(p, [f"kv_{p}", f"kv_{p}_deletes"])) for p in programs]
    targets = [target for _, wanted in both for target in wanted]
    subprocess.run(["make", "-s", "-C", str(SOURCES), "kv_requests", *targets], check=True)
    subprocess.run([SOURCES / "kv_requests", "check"], check=True, stdout=subprocess.DEVNULL)
    if "redis" in programs:
        example = ["-p", "pagewalk-programs", "--example", "ycsb_redis"]
        subprocess.run(["cargo", "build", "-q", "--release", *example], cwd=ROOT, check=True)


def container(machine: str, name: str, keys: int, operations: int, distribution: str) -> Run:
    """A program over a library's container, its requests from a file."""
    sets, program = str(SETS.get(distribution, 0)), str(SOURCES / f"kv_{name}")
    words = [str(keys), str(operations), distribution, sets, str(VALUE)]
    if distribution == ERASING:
        shares = [str(ERASING_SHARES[of]) for of in ("sets", "deletes")]
        words[2:] = ["zipfian", shares[0], str(VALUE), shares[1], "resize"]
        program += "_deletes"
    with tempfile.TemporaryFile() as requests:
        subprocess.run([SOURCES / "kv_requests", *words], check=True, stdout=requests)
        requests.seek(0)
        with Simulation(machine, "--", program, str(keys), stdin=requests) as simulation:
            return simulation.result(operations)


def redis(machine: str, keys: int, operations: int, distribution: str) -> Run:
    """redis-server, its client native at the other end of a Unix socket."""
    with tempfile.TemporaryDirectory() as folder:
        socket = str(Path(folder, "redis"))
        # Under simulation an operation takes a hundred times longer: work that the
        # clock starts would meet it as much more often.
        clock = [LOADER, "--preload", str(SOURCES / "slow_clock.so")]
        quiet = ["--save", "", "--appendonly", "no", "--hz", "1", "--activerehashing", "no"]
        program = shutil.which("redis-server") or "redis-server"
        server = [*clock, program, "--port", "0", "--unixsocket", socket, *quiet]
        module = ["--loadmodule", str(SOURCES / "redis_roi.so"), "--dir", folder]
        client = [
            str(TARGET / "release" / "examples" / "ycsb_redis"),
            socket,
            *(f"keys={keys}", f"operations={operations}", f"distribution={distribution}"),
            *(f"sets={SETS.get(distribution, 0)}", f"value={VALUE}", "mark=true", "stop=true"),
        ]
        with Simulation(machine, "--", *server, *module) as simulation:
            subprocess.run(client, check=True, stdout=subprocess.DEVNULL)
            return simulation.result(operations)


def builtin(machine: str, name: str, keys: int, operations: int, distribution: str) -> Run:
    """The built-in program of the same work."""
    parameters = {
        "keys": keys,
        "operations": operations,
        "distribution": distribution,
        "sets": SETS.get(distribution, 0),
        "value": VALUE,
    }
    if distribution == ERASING:
        parameters |= {**ERASING_SHARES, "distribution": "zipfian", "resize": "yes"}
    words = [word for n, v in parameters.items() for word in ("--param", f"{n}={v}")]
    words += ["--param", "request=lookup"]
    with Simulation(machine, "--workload", f"kv-{name}", *words) as simulation:
        return simulation.result(operations)


def differences(real: Run, built: Run, columns: Iterable[str]) -> Iterator[str]:
    """Differences of the built-in program from the real one, by column; large ones in bold."""
    for name in columns:
        a, b = getattr(real, name), getattr(built, name)
        apart = b / a - 1 if a else 0.0
        text = f"{100 * apart:+.0f} %"
        small = SMALL_MPKI if name.endswith("mpki") else SMALL_COUNT
        counts = name in ("ipc", "references_per_instruction") or abs(b - a) > small
        yield f"**{text}**" if abs(apart) > LARGE and counts else text


def median(runs: Sequence[Run]) -> Run:
    """The median of each number by itself."""
    names = [f.name for f in fields(Run)]
    return Run(**{n: statistics.median(getattr(run, n) for run in runs) for n in names})


def an_operation(runs: Sequence[Run]) -> Iterator[str]:
    """Misses of each kind an operation: the median, and the range over several runs."""
    for name in MISSES:
        each = [getattr(r, name) * r.instructions_per_operation / 1000 for r in runs]
        low, middle, high = map(number, (min(each), statistics.median(each), max(each)))
        yield f"{middle} ({low} to {high})" if low != high else middle


def spaced(count: int) -> str:
    """The number in groups of three digits."""
    return f"{count:,}".replace(",", " ")


def head(*cells: str) -> list[str]:
    """The rows that a table of numbers begins with."""
    return [row(*cells), row("---", "---", *["--:"] * (len(cells) - 2))]


def pair(names: tuple[str, str], work: str, runs: tuple[Run, Run], of: Iterable[str]) -> list[str]:
    """Rows of a real program and of its built-in counterpart, and their differences."""
    columns = list(of)
    return [
        *(
            row(f"`{name}`", text, *(number(getattr(run, c)) for c in columns))
            for name, text, run in zip(names, (work, ""), runs, strict=True)
        ),
        row("", "difference", *differences(*runs, columns)),
    ]


def command_line() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = script_arguments.parser(__doc__)
    parser.add_argument("--only", default=",".join(REAL), help="programs, with commas")
    parser.add_argument("--cases", default=CASES, help="KEYS:DISTRIBUTION, with commas")
    parser.add_argument("--server-cases", default=SERVER_CASES, help="the same for redis")
    parser.add_argument("--server-runs", type=int, default=5, help="of which the median is taken")
    parser.add_argument("--operations", type=int, default=OPERATIONS)
    parser.add_argument("--machine", default="epyc-milan")
    arguments = parser.parse_args()
    script_arguments.names(parser, "--only", arguments.only, REAL)
    if arguments.server_runs < 1:
        parser.error(f"--server-runs {arguments.server_runs}: expected at least 1")
    return arguments


def main() -> int:
    """Runs, compares and prints."""
    arguments = command_line()
    programs = arguments.only.split(",")
    build(programs)
    lines = head("program", "", *COLUMNS.values())
    executed = head("executed, an operation", "", *EXECUTED.values())
    server = head("misses an operation", "", *MISSES.values())
    print("\n".join(lines), flush=True)
    runs = [
        (case, name, arguments.operations)
        for case in arguments.cases.split(",")
        for name in programs
        if name != "redis"
    ]
    if "redis" in programs:
        fewer = arguments.operations // SERVER_SHARE
        runs += [(case, "redis", fewer) for case in arguments.server_cases.split(",")]
    for case, name, operations in runs:
        keys, distribution = case.split(":")
        work = (int(keys), operations, distribution)
        if name == "redis":
            reals = [redis(arguments.machine, *work) for _ in range(arguments.server_runs)]
        else:
            reals = [container(arguments.machine, name, *work)]
        both = median(reals), builtin(arguments.machine, name, *work)
        work_text = f"{spaced(int(keys))} keys, {distribution}"
        if arguments.operations != OPERATIONS:
            work_text += f", {spaced(operations)} operations"
        names = REAL[name], f"kv-{name}"
        rows = pair(names, work_text, both, COLUMNS)
        print("\n".join(rows), flush=True)
        lines += rows
        if name == "redis":
            server += [
                row(f"`{names[0]}`", work_text, *an_operation(reals)),
                row(f"`{names[1]}`", "", *an_operation(both[1:])),
            ]
        else:
            executed += pair(names, work_text, both, EXECUTED)
    tables = [lines, executed, server]
    print("", *executed, "", *server, sep="\n", flush=True)
    if arguments.write:
        source = f"`python validation/kv.py`, {OPERATIONS} operations where no others are given"
        source += f", {OPERATIONS // SERVER_SHARE} of `redis-server`"
        source += f", of which these are medians of {arguments.server_runs} runs"
        kept = [marked.kept("kv", table, last=REAL["redis"]) for table in tables]
        text = "\n\n".join("\n".join(table) for table in kept)
        marked.write("kv", f"On `{arguments.machine}` with `radix`; {source}.\n\n{text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
