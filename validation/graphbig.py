"""GraphBIG's programs for compiled.py: where their kernels are marked, and the graph they read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy


@dataclass
class Kernel:
    """A program of GraphBIG, and its kernel that is compared."""

    # Below `benchmark/`, and the program in it: its source and, by its Makefile, its name.
    folder: str
    program: str
    # The function's calls between which the kernel lies, those of one thread.
    begin: str = "perf.start(perf_group);"
    end: str = "perf.stop(perf_group);"
    # Arguments of the real program, and parameters of the built-in one, beside the graph.
    arguments: tuple[str, ...] = ()
    parameters: tuple[str, ...] = ()
    # Passes over all edges that they make.
    passes: int = 1
    # Files are graphs of 2^scale vertices.
    scale: int = 15


def threaded(call: str) -> str:
    """The call as functions make it that are there for any number of threads only."""
    return f"perf.{call}(tid, perf_group);"


ROOT = ("--root", "1")
ONCE = ("rounds=1",)
KERNELS = {
    "bfs": Kernel("bench_BFS", "bfs", arguments=ROOT, parameters=("roots=1",)),
    "dfs": Kernel("bench_DFS", "dfs", arguments=ROOT, parameters=("roots=1",)),
    "cc": Kernel("bench_connectedComp", "connectedcomponent", parameters=ONCE),
    "dc": Kernel("bench_degreeCentr", "dc", parameters=ONCE),
    "pr": Kernel(
        "bench_pageRank",
        "pagerank",
        threaded("start"),
        threaded("stop"),
        # The iteration beyond the last allowed one ends it.
        ("--maxiter", "1", "--quad", "0"),
        ("iterations=2",),
        2,
    ),
    "sssp": Kernel("bench_shortestPath", "sssp", arguments=ROOT, parameters=("roots=1",)),
    "gc": Kernel(
        "bench_graphColoring",
        "graphcoloring",
        threaded("start"),
        threaded("stop"),
        scale=12,
    ),
    "tc": Kernel("bench_triangleCount", "tc", scale=13),
    "bc": Kernel("bench_betweennessCentr", "bc", scale=8),
}


def graph(scale: int, degree: int, folder: Path) -> int:
    """Graph500's graph, each edge both ways, in GraphBIG's files; gives the edges.

    Each source's targets ascend, as the triangle count has them here.
    """
    numbers = numpy.random.default_rng(1)
    vertices = 1 << scale
    count = vertices * degree
    from_, to = numpy.zeros((2, count), numpy.int64)
    for _ in range(scale):
        x = numbers.random(count)
        from_ = 2 * from_ + (x >= 0.76)
        to = 2 * to + (((x >= 0.57) & (x < 0.76)) | (x >= 0.95))
    names = numbers.permutation(vertices)
    from_, to = names[from_], names[to]
    both = numpy.concatenate([from_ * vertices + to, to * vertices + from_])
    edges = numpy.unique(both)
    from_, to = edges // vertices, edges % vertices
    pairs = list(zip(from_[from_ != to].tolist(), to[from_ != to].tolist(), strict=True))
    folder.mkdir()
    lines = "".join(f"{v}\n" for v in range(vertices))
    (folder / "vertex.csv").write_text(f"vertex\n{lines}")
    lines = "".join(f"{u}|{v}\n" for u, v in pairs)
    (folder / "edge.csv").write_text(f"from|to\n{lines}")
    return len(pairs)
