"""Built-in programs against the compiled ones, and the table of docs/validation.md.

    python validation/compiled.py SOURCES [--only NAME[,NAME...]] [--write]

Builds each program in a copy of the folder SOURCES with its own build files, or takes
Debian's binary. Runs it live through QEMU, and its built-in counterpart, on the same
simulated machine, and compares the counts of an operation. Both are measured over the
same part of the program, with caches and TLBs empty at the start.

SOURCES has the folders of the chosen programs:

    XSBench/    github.com/ANL-CESAR/XSBench, tag v20
    gapbs/      github.com/sbeamer/gapbs
    gups/       github.com/alexandermerritt/gups
    kmer-cnt/   github.com/arun-sub/genomicsbench, benchmarks/kmer-cnt, with libcuckoo/
    torch/      lib/ and include/ of PyPI's torch 2.15.0 for CPython 3.11, unpacked, and in
                lib/ libcudart.so.13 and libcupti.so.13 of nvidia-cuda-runtime and
                nvidia-cuda-cupti, which the library asks for and does not use here
    graphBIG/   github.com/graphbig/graphBIG
    root/       Debian's sysbench, libluajit-5.1-2, libmariadb3, libpq5, libaio1 and
                mummer, unpacked: `apt-get download NAME`, `dpkg -x FILE root`

The copies get a mark at each end of the region. In gups the counter of the table's words
gets 64 bits, as in the program of the public logs. In gapbs, some rows have a search without
its change of direction. In the kernel that PyTorch assembles, prefetches become loads, since
an emulator does not show them.

Needs gcc, numpy, and the packages of `pagewalk doctor`. `--write` puts the table into
docs/validation.md, where those of other programs stay. The key-value programs have a script of
their own, kv.py.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy

import graphbig
import marked
import script_arguments
from marked import number, row

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "validation" / "programs"
LOADER = "/lib64/ld-linux-x86-64.so.2"

# glibc copies and fills large blocks with `rep movsb` and `rep stosb`, which an emulator
# executes byte by byte. With 32-byte registers it has in effect the accesses of processors.
BLOCKS = "glibc.cpu.x86_rep_movsb_threshold=0x10000000:glibc.cpu.x86_rep_stosb_threshold=0x10000000"

# Relative difference beyond which the page has to give a reason.
LARGE = 0.10
# Differences an operation below which the ends of a region are the cause.
SMALL_COUNT, SMALL_MISSES = 0.05, 0.02

COLUMNS = ["instructions", "loads", "stores", "branches", "mispredicted"]
MISSES = ["L1D", "L2", "L3", "L1 dTLB", "L2 TLB"]


@dataclass
class Case:
    """A program with its input, its command and its amount of work."""

    name: str
    real: str
    # Text of the input in the table.
    input: str
    operation: str
    operations: float
    # The command, and the variables of its environment.
    command: list[str]
    environment: dict[str, str]
    parameters: list[str]
    # Options of both runs.
    options: list[str] = field(default_factory=list)


def simulated(machine: str, source: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Counts of the region of interest."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "result.json")
        limits = ["--roi", "--warmup", "0", "--instructions", "1T"]
        common = ["--machine", machine, "--design", "radix", *limits, "--json", str(report)]
        command = [sys.executable, "-m", "pagewalk", "run", *common, *source]
        variables = {**os.environ, **environment}
        run = subprocess.run(command, check=False, capture_output=True, text=True, env=variables)
        data = json.loads(report.read_text()) if report.exists() else {"source": {}}
    # The command passes on the program's status: XSBench's says that it knows no sum of the input.
    if run.returncode != (data["source"].get("exit_status") or 0):
        raise SystemExit(f"{' '.join(command)}: status {run.returncode}\n{run.stderr}")
    design = data["designs"][0]
    if data["partial"] or design["status"] != "complete":
        raise SystemExit(f"{' '.join(command)}: ended early\n{run.stderr}")
    return counts(design)


def counts(design: dict[str, list[dict[str, str | float]]]) -> dict[str, float]:
    """Counts of one design, over all cores: a program may work in a thread of its own."""
    values = {str(q["name"]): q["value"] for q in design["summary"]}
    summary = {name: float(value) for name, value in values.items() if value is not None}
    sums: dict[tuple[str, str], float] = {}
    for stat in design["stats"]:
        path = re.sub(r"^core\.\d+", "core", str(stat["path"]))
        key = path, str(stat["name"])
        value = stat["value"]
        if isinstance(value, int | float):
            sums[key] = sums.get(key, 0.0) + value
    thousands = summary["instructions"] / 1000

    def misses(cache: str) -> float:
        return sums[cache, "load_misses"] + sums[cache, "store_misses"]

    return {
        "instructions": summary["instructions"],
        "loads": sums["core", "loads"],
        "stores": sums["core", "stores"],
        "branches": sums["core", "branches"],
        "mispredicted": sums["core", "mispredictions"],
        "L1D": misses("core.l1d"),
        "L2": misses("core.l2"),
        "L3": misses("l3"),
        "L1 dTLB": summary["l1d_tlb_mpki"] * thousands,
        "L2 TLB": summary["l2_tlb_mpki"] * thousands,
    }


def replace(path: Path, *changes: tuple[str, str]) -> None:
    """Changes a file of a copied source; each place must be there once."""
    text = path.read_text()
    for old, new in changes:
        if text.count(old) != 1:
            raise SystemExit(f"{path}: `{old}` is there {text.count(old)} times; expected once")
        text = text.replace(old, new)
    path.write_text(f'#include "{ROOT / "include" / "pagewalk.h"}"\n{text}')


def make(folder: Path, *words: str, **environment: str) -> None:
    """The source's own build."""
    subprocess.run(
        ["make", "-s", *words],
        cwd=folder,
        check=True,
        env={**os.environ, **environment},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def xsbench(work: Path) -> Iterator[Case]:
    """The history and the event method of the small problem."""
    folder = work / "XSBench" / "openmp-threading"
    begin, end = "omp_start = get_time();", "omp_end = get_time();"
    replace(
        folder / "Main.c",
        (begin, f"{begin} pagewalk_roi_begin();"),
        (end, f"pagewalk_roi_end(); {end}"),
    )
    make(folder)
    points, particles, lookups = 2000, 1000, 34
    size = ["--size", str(68 * points * (48 + 8 + 4 * 68))]
    program = [str(folder / "XSBench"), "-s", "small", "-g", str(points), "-t", "1"]
    common = ["--workload", "xsbench", "--param", "problem=small", *size]
    yield Case(
        "xsbench",
        "XSBench v20",
        f"small problem, {points} points, by history",
        "lookup",
        particles * lookups,
        [*program, "-p", str(particles), "-l", str(lookups)],
        {},
        [*common, "--param", f"particles={particles}", "--param", f"lookups={lookups}"],
    )
    yield Case(
        "xsbench",
        "XSBench v20",
        f"small problem, {points} points, by event",
        "lookup",
        particles * lookups,
        [*program, "-m", "event", "-l", str(particles * lookups)],
        {},
        [*common, "--param", "method=event", "--param", f"lookups={particles * lookups}"],
    )


def kronecker(scale: int, degree: int, path: Path, both: bool = False) -> int:
    """Graph500's graph without loops and repetitions; gives the number of edges.

    Both as an edge list for GAP and as a matrix with the same numbers of vertices. With
    `both` an edge stands for both directions, once.
    """
    random_numbers = numpy.random.default_rng(1)
    vertices = 1 << scale
    count = vertices * degree
    from_, to = numpy.zeros((2, count), numpy.int64)
    for _ in range(scale):
        x = random_numbers.random(count)
        from_ = 2 * from_ + (x >= 0.76)
        to = 2 * to + (((x >= 0.57) & (x < 0.76)) | (x >= 0.95))
    names = random_numbers.permutation(vertices)
    from_, to = names[from_], names[to]
    if both:
        from_, to = numpy.minimum(from_, to), numpy.maximum(from_, to)
    # The last vertex has an edge, so that GAP counts as many vertices.
    last = [vertices - 1 if both else (vertices - 1) * vertices]
    edges = numpy.unique(numpy.concatenate([from_ * vertices + to, last]))
    from_, to = edges // vertices, edges % vertices
    pairs = list(zip(from_[from_ != to].tolist(), to[from_ != to].tolist(), strict=True))
    path.with_suffix(".el").write_text("".join(f"{u} {v}\n" for u, v in pairs))
    head = f"%%MatrixMarket matrix coordinate pattern general\n{vertices} {vertices} {len(pairs)}\n"
    path.with_suffix(".mtx").write_text(head + "".join(f"{u + 1} {v + 1}\n" for u, v in pairs))
    return len(pairs)


def gap(work: Path, name: str, top_down: bool, *words: str) -> str:
    """GAP's search, built in a copy of its own, with the region marked; its path."""
    folder = work / name
    shutil.copytree(work / "gapbs", folder)
    trials = "for (int iter=0; iter < cli.num_trials(); iter++) {"
    average = 'PrintTime("Average Time"'
    # The first trial finds its memory untouched.
    replace(
        folder / "src" / "benchmark.h",
        (trials, f"{trials} if (iter == 1) pagewalk_roi_begin();"),
        (average, f"pagewalk_roi_end(); {average}"),
    )
    if top_down:
        replace(folder / "src" / "bfs.cc", ("scout_count > edges_to_check / alpha", "false"))
    make(folder, *words, "bfs")
    return str(folder / "bfs")


def bfs(work: Path) -> Iterator[Case]:
    """Searches from the top down with one thread and more, and with GAP's change of direction."""
    scale, searches = 17, 2
    graph = work / "kronecker"
    edges = kronecker(scale, 16, graph)
    graph_text = f"Kronecker graph, 2^{scale} vertices, {edges} edges"
    trials = ["-f", f"{graph}.el", "-n", str(searches + 1)]
    built = ["--workload", "bfs", "--param", f"graph={graph}.mtx", "--param", f"roots={searches}"]
    program = gap(work, "serial", True, "SERIAL=1")
    yield Case(
        "bfs",
        "GAP `bfs`, `SERIAL=1`",
        graph_text,
        "edge",
        searches * edges,
        [program, *trials],
        {},
        built,
    )
    program = gap(work, "threads", True)
    for threads in [2, 4]:
        yield Case(
            "bfs",
            "GAP `bfs`, OpenMP",
            f"the same graph, {threads} threads",
            "edge",
            searches * edges,
            [program, *trials],
            # Who waits for the others sleeps: spinning is counted in turns of a loop.
            {"OMP_NUM_THREADS": str(threads), "OMP_WAIT_POLICY": "passive"},
            [*built, "--threads", str(threads)],
            ["--set", f"cores={threads}"],
        )
    edges = kronecker(scale, 16, graph, both=True)
    # Half of the roots take two levels from the bottom up and half three, and the two
    # programs draw different ones.
    searches = 32
    yield Case(
        "bfs",
        "GAP `bfs` as it is, `SERIAL=1`",
        f"such a graph, {edges} edges both ways, change of direction",
        "vertex",
        searches << scale,
        [gap(work, "turns", False, "SERIAL=1"), "-s", *trials[:-1], str(searches + 1)],
        {},
        [
            *built[:-1],
            f"roots={searches}",
            *("--param", "symmetric=yes", "--param", "direction=optimizing"),
        ],
    )


def gups(work: Path) -> Iterator[Case]:
    """One process, so that no MPI is needed."""
    folder = work / "gups"
    # As the copy has them of which there are public logs (xlab-uiuc/gups).
    replace(
        folder / "gups_vanilla.c",
        ("int i,j,iterate,niterate;", "unsigned long long i; int j,iterate,niterate;"),
        (
            "int nlocal,nlocalm1,logtable,index,logtablelocal;",
            "u64Int nlocal,nlocalm1,index; int logtable,logtablelocal;",
        ),
    )
    alone = PROGRAMS / "one_process"
    headers = f"{ROOT / 'include'}:{alone}"
    # In a file of its own, so that the compiler knows as little of it as of MPI.
    make(folder, "-f", "Makefile.linux", f"LIB={alone / 'mpi.c'}", C_INCLUDE_PATH=headers)
    size, rounds, chunk = 24, 4, 100_000
    parameters = {"variant": "check", "chunk": chunk, "updates": rounds * chunk}
    yield Case(
        "gups",
        "`gups_vanilla`, `-O -DCHECK`",
        f"table of {8 << size >> 20} MB",
        "update",
        rounds * chunk,
        [str(folder / "gups_vanilla"), str(size), str(rounds), str(chunk)],
        {},
        [
            *("--workload", "gups", "--size", f"{8 << size}"),
            *(word for n, v in parameters.items() for word in ("--param", f"{n}={v}")),
        ],
    )


def installed(work: Path, program: str, begin: str, end: str) -> tuple[list[str], dict[str, str]]:
    """Debian's program, whose output marks its region of interest."""
    subprocess.run(["make", "-s", "-C", str(PROGRAMS), "told_region.so"], check=True)
    root = work / "root" / "usr"
    environment = {
        "LD_LIBRARY_PATH": str(root / "lib" / "x86_64-linux-gnu"),
        "REGION_BEGIN": begin,
        "REGION_END": end,
    }
    library = str(PROGRAMS / "told_region.so")
    return [LOADER, "--preload", library, str(root / "bin" / program)], environment


def sysbench(work: Path) -> Iterator[Case]:
    """The memory test, each way through the block."""
    program, environment = installed(work, "sysbench", "Threads started", "Total operations")
    events = 2
    # Beside the words there is a million instructions to start and end with.
    for operation, access, megabytes in [
        ("write", "seq", 64),
        ("read", "seq", 64),
        ("write", "rnd", 16),
    ]:
        given = [
            f"--memory-block-size={megabytes}M",
            f"--memory-total-size={megabytes * events}M",
            f"--memory-oper={operation}",
            f"--memory-access-mode={access}",
        ]
        order = {"seq": "sequential", "rnd": "random"}[access]
        yield Case(
            "sysbench",
            "Debian's sysbench 1.0.20",
            f"{operation}, {order}, {megabytes} MB",
            "word",
            (megabytes << 20) / 8 * events,
            [*program, "memory", *given, "--time=0", "run"],
            environment,
            [
                *("--workload", "sysbench", "--size", f"{megabytes}MiB"),
                *("--param", f"events={events}", "--param", f"operation={operation}"),
                *("--param", f"access={order}"),
            ],
        )


def mummer(work: Path) -> Iterator[Case]:
    """A sequence against itself with two letters in a hundred changed.

    The tree of the first fits into the second-level TLB, that of the second does not.
    """
    program, environment = installed(work, "mummer", "matching query-file", "COMPLETETIME")
    for letters in [300_000, 1_200_000]:
        numbers = random.Random(1)
        reference = numbers.choices("acgt", k=letters)
        query = [numbers.choice("acgt") if numbers.random() < 0.02 else c for c in reference]
        for name, sequence in [("reference", reference), ("query", query)]:
            lines = "\n".join("".join(sequence[i : i + 60]) for i in range(0, letters, 60))
            (work / f"{name}.fa").write_text(f">{name}\n{lines}\n")
        files = [str(work / "reference.fa"), str(work / "query.fa")]
        # So long that none is reported: printing is not the built-in program's.
        least = 1000
        yield Case(
            "mummer",
            "Debian's mummer 3.23",
            f"{letters} letters",
            "letter",
            letters,
            [*program, "-mumreference", "-l", str(least), *files],
            environment,
            [
                *("--workload", "mummer", "--param", f"reference={files[0]}"),
                *("--param", f"query={files[1]}", "--param", f"least={least}"),
            ],
        )


def kmer(work: Path) -> Iterator[Case]:
    """Reads of one random genome, with and without wrong bases."""
    folder = work / "kmer-cnt"
    reads, counted = "for (const auto& readId : allReads) {", "if (!_useFlatCounter) {"
    replace(
        folder / "vertex_index.cpp",
        (reads, f"pagewalk_roi_begin(); {reads}"),
        (counted, f"pagewalk_roi_end(); {counted}"),
    )
    make(folder)
    # The keys of Flye's asm_raw_reads.cfg that it reads.
    config = work / "reads.cfg"
    config.write_text("assemble_kmer_sample = 1\nuse_minimizers = 0\n")
    k, count, length = 13, 60, 8192
    for wrong, bases in [(100, 10_000), (0, 20_000)]:
        numbers = random.Random(1)
        genome = numbers.choices("ACGT", k=bases)
        file = work / f"reads{wrong}.fasta"
        with file.open("w") as out:
            for name in range(count):
                start = numbers.randrange(bases - length + 1)
                read = [
                    numbers.choice("ACGT".replace(c, "")) if numbers.random() * 1000 < wrong else c
                    for c in genome[start : start + length]
                ]
                out.write(f">{name}\n{''.join(read)}\n")
        yield Case(
            "kmer",
            "GenomicsBench's `kmer-cnt`, `-O3 -fopenmp`",
            f"k = {k}, each base {count * length // bases} times, {wrong / 10:g} % wrong",
            "k-mer",
            count * (length - k),
            [
                *(str(folder / "kmer-cnt"), "--reads", str(file), "--config", str(config)),
                *("--kmer", str(k), "--threads", "1"),
            ],
            {},
            ["--workload", "kmer", "--param", f"reads={file}", "--param", f"k={k}"],
        )


def dlrm(work: Path) -> Iterator[Case]:
    """One batch by PyTorch's embedding bags; the kernel is FBGEMM's for AVX2."""
    torch = work / "torch"
    make(PROGRAMS, "embedding_bag", f"TORCH={torch}")
    program = str(PROGRAMS / "embedding_bag")
    tables, rows, pooling, samples = 8, 65536, 100, 2048
    # The library sums 160 floats as 128 and then 32.
    for floats in 64, 160:
        yield Case(
            "dlrm",
            "PyTorch 2.15.0, `embedding_bag`",
            f"{tables} tables of {rows} rows of {floats} floats",
            "lookup",
            # A bag has a uniform number of them, 1 to `pooling`.
            tables * samples * pooling / 2,
            [program, *map(str, (tables, rows, floats, pooling, samples))],
            {"LD_LIBRARY_PATH": str(torch / "lib")},
            [
                *("--workload", "dlrm", "--size", str(tables * rows * floats * 4)),
                *("--param", f"dim={floats}", "--param", f"batch={samples}"),
                *("--param", "batches=1"),
            ],
        )


def of_graphbig(name: str, work: Path) -> Iterator[Case]:
    """A kernel of GraphBIG, one thread, over its own lists of vertices and edges."""
    kernel = graphbig.KERNELS[name]
    folder = work / "graphBIG" / "benchmark" / kernel.folder
    replace(
        folder / f"{kernel.program}.cpp",
        (kernel.begin, f"{kernel.begin} pagewalk_roi_begin();"),
        (kernel.end, f"pagewalk_roi_end(); {kernel.end}"),
    )
    # Without the library that names a processor's own counters.
    make(folder, "PFM=0", "all")
    graph = work / "graph"
    edges = graphbig.graph(kernel.scale, 8, graph)
    options = (word for given in kernel.parameters for word in ("--param", given))
    yield Case(
        name,
        f"GraphBIG's `{kernel.program}`",
        f"Kronecker graph, 2^{kernel.scale} vertices, {edges} edges",
        "edge",
        kernel.passes * edges,
        [str(folder / kernel.program), "--dataset", str(graph), *kernel.arguments],
        {},
        [
            *("--workload", name, "--param", f"graph={graph}", "--param", "layout=graphbig"),
            *options,
        ],
    )


CASES: dict[str, Callable[[Path], Iterator[Case]]] = {
    "xsbench": xsbench,
    "bfs": bfs,
    "gups": gups,
    "sysbench": sysbench,
    "mummer": mummer,
    "kmer": kmer,
    "dlrm": dlrm,
    **{f"graphbig-{name}": partial(of_graphbig, name) for name in graphbig.KERNELS},
}
FOLDERS = {
    "xsbench": "XSBench",
    "bfs": "gapbs",
    "gups": "gups",
    "sysbench": "root",
    "mummer": "root",
    "kmer": "kmer-cnt",
    "dlrm": "torch",
    **{f"graphbig-{name}": "graphBIG" for name in graphbig.KERNELS},
}


def differences(real: dict[str, float], built: dict[str, float], over: float) -> Iterator[str]:
    """Differences of the built-in program from the real one, by column; large ones in bold."""
    for name in COLUMNS + MISSES:
        a, b = real[name] / over, built[name] / over
        small = SMALL_COUNT if name in COLUMNS[:4] else SMALL_MISSES
        if abs(b - a) < small:
            yield f"{100 * (b / a - 1):+.0f} %" if a > small else "0"
            continue
        text = f"{100 * (b / a - 1):+.0f} %" if a else "all"
        yield f"**{text}**" if not a or abs(b / a - 1) > LARGE else text


def main() -> int:
    """Runs, compares and prints."""
    parser = script_arguments.parser(__doc__)
    parser.add_argument("sources", type=Path, help="the folder with the sources")
    parser.add_argument("--only", default=",".join(CASES), help="programs, with commas")
    parser.add_argument("--machine", default="epyc-milan")
    given = parser.parse_args()
    names = script_arguments.names(parser, "--only", given.only, CASES)
    os.environ["GLIBC_TUNABLES"] = BLOCKS
    heads = [*COLUMNS, *(f"{m} misses" for m in MISSES)]
    lines = [row("program", "an operation", *heads), row("---", "---", *["--:"] * len(heads))]
    print("\n".join(lines), flush=True)
    for name in names:
        source = given.sources / FOLDERS[name]
        if not source.is_dir():
            raise SystemExit(f"{source}: no such folder; see `{sys.argv[0]} --help` and its head")
        with tempfile.TemporaryDirectory() as folder:
            work = Path(folder)
            shutil.copytree(source, work / FOLDERS[name])
            for case in CASES[name](work):
                live = [*case.options, "--", *case.command]
                real = simulated(given.machine, live, case.environment)
                built = simulated(given.machine, [*case.options, *case.parameters], {})
                each = [
                    [number(run[c] / case.operations) for c in COLUMNS + MISSES]
                    for run in (real, built)
                ]
                rows = [
                    row(case.real, f"{case.operation}: {case.input}", *each[0]),
                    row(f"`{case.name}`", "", *each[1]),
                    row("", "difference", *differences(real, built, case.operations)),
                ]
                print("\n".join(rows), flush=True)
                lines += rows
    if given.write:
        table = "\n".join(marked.kept("compiled", lines))
        text = f"On `{given.machine}` with `radix`, an operation:\n\n{table}"
        marked.write("compiled", text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
