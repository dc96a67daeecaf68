"""The applications in the paper's order, table I, and its arithmetic, for all figures."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pagewalk.reproduce import Outcome

APPLICATIONS = (
    "BC", "BFS", "CC", "DC", "DFS", "GUPS", "MUMmer", "PR", "SSSP", "SysBench", "TC",
)  # fmt: skip
GRAPHS = ("BC", "BFS", "CC", "DC", "DFS", "PR", "SSSP", "TC")

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30
LINE = 64
"""Bytes of a slot: a cluster of eight entries of 8 bytes (section II-B)."""
CLUSTER = 8
WAYS = 3
PAGE_SIZES = 3
UPSIZE_AT = 0.6
"""Table III."""

TABLE_1_DATA_GB = {
    "BC": 17.3, "BFS": 9.3, "CC": 9.3, "DC": 9.3, "DFS": 9.0, "GUPS": 64.0, "MUMmer": 6.9,
    "PR": 9.3, "SSSP": 9.3, "SysBench": 64.0, "TC": 11.9,
}  # fmt: skip
TABLE_1_WAY_KB = {
    "BC": 8192, "BFS": 16384, "CC": 16384, "DC": 16384, "DFS": 16384, "GUPS": 65536,
    "MUMmer": 1024, "PR": 16384, "SSSP": 16384, "SysBench": 65536, "TC": 2048,
}  # fmt: skip
TABLE_1_TREE_MB = {
    "BC": 17.12, "BFS": 28.2, "CC": 32.0, "DC": 31.5, "DFS": 28.1, "GUPS": 140.0, "MUMmer": 1.4,
    "PR": 28.0, "SSSP": 28.4, "SysBench": 140.0, "TC": 4.1,
}  # fmt: skip
TABLE_1_ECPT_MB = {
    "BC": 36.0, "BFS": 72.0, "CC": 72.0, "DC": 72.0, "DFS": 72.0, "GUPS": 288.0, "MUMmer": 4.5,
    "PR": 72.0, "SSSP": 72.0, "SysBench": 288.0, "TC": 9.0,
}  # fmt: skip
TABLE_1_TREE_THP_MB = {
    "BC": 16.9, "BFS": 28.2, "CC": 28.1, "DC": 29.3, "DFS": 28.1, "GUPS": 0.4, "MUMmer": 1.2,
    "PR": 27.4, "SSSP": 28.3, "SysBench": 0.4, "TC": 3.8,
}  # fmt: skip
TABLE_1_ECPT_THP_MB = {
    "BC": 36.0, "BFS": 72.0, "CC": 72.0, "DC": 72.0, "DFS": 72.0, "GUPS": 0.8, "MUMmer": 2.2,
    "PR": 72.0, "SSSP": 72.0, "SysBench": 0.8, "TC": 9.0,
}  # fmt: skip


def mapped(outcome: Outcome) -> float | None:
    """Bytes of the program that are mapped, with pages of any size."""
    parts = [outcome.get(f"mapped_{size}") for size in ("4kb", "2mb", "1gb")]
    return None if outcome.data is None else sum(part or 0 for part in parts)


def scaled(value: float | None, unit: float) -> float | None:
    """A value in a unit."""
    return None if value is None else value / unit


def clusters(data_bytes: float) -> int:
    """Clusters that so many bytes of 4 KB pages take when they lie side by side."""
    return math.ceil(data_bytes / (CLUSTER * 4 * KB))


def way_bytes(lines: float) -> int:
    """The way of an ECPT that holds so many clusters: it doubles from 128 slots above 0.6."""
    slots = 128
    while lines > UPSIZE_AT * WAYS * slots:
        slots *= 2
    return slots * LINE


def fits(data_gb: float, way_kb: float) -> str:
    """A sentence that compares the load of three printed ways with the upsize threshold."""
    lines = clusters(data_gb * GB)
    slots = WAYS * way_kb * KB / LINE
    load = lines / slots
    verdict = "above" if load > UPSIZE_AT else "below"
    return (
        f"{data_gb:g} GB in 4 KB pages are {lines / 1e3:,.0f} K clusters; {WAYS} ways of "
        f"{way_kb:,.0f} KB have {slots / 1e3:,.0f} K slots: a load of {load:.3f}, {verdict} the "
        f"threshold of {UPSIZE_AT}"
    )


# Applications whose printed data do not fit the printed ways, with as much data as the ways hold
# (see printed.py). GUPS's tables are powers of two, and SysBench has the same page table.
FITTING = {
    "GUPS": "SysBench 46 GB",
    "SysBench": "SysBench 46 GB",
    "MUMmer": "MUMmer 0.7 GB",
    "TC": "TC 1.5 GB",
    "BC": "BC 6 GB",
}
ALL_SIZES = (*APPLICATIONS, *dict.fromkeys(FITTING.values()))
VARIANTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("", {}),
    (", with data that fit the printed ways", FITTING),
)
"""Averages are over the applications as they are, and over those with fitting data."""
TIMED_FITTING = {**FITTING, "GUPS": "GUPS 32 GB"}
TIMED_VARIANTS: tuple[tuple[str, dict[str, str]], ...] = (
    ("", {}),
    (", with data that fit the printed ways", TIMED_FITTING),
)
"""The same for timed runs, in which GUPS stays itself."""

RATE = "how many slots an insertion migrates was chosen by the ways of this table"
CHOSEN = "its size was chosen to yield the printed ways"
CHOSEN_SIZES = "the sizes of five applications were chosen to yield the printed ways"
"""Reason for the agreement of rows whose sizes are not those of table I (`Row.by_construction`)."""
TABLE_1, FIGURE_9 = "mehpt-table-1", "mehpt-figure-9"
"""Entries of `DEVIATIONS.md` on the differences of ways and speedups."""

BIG_MACHINE = (
    "GUPS and SysBench run on a machine of 256 GB, all others on the paper's 64 GB: at its index "
    "of 0.7 only 19.2 GB of 64 can be huge pages, so that 40 GB of SysBench with THP get 19.2 GB "
    "of them and 20.8 GB of small pages, where the paper has huge pages only."
)
"""Note for the `about` of figures that have these programs with THP."""

FOUR_KB = "page_table.4kb"
TWO_MB = "page_table.2mb"
DESIGNS = ("ECPT", "ECPT+THP", "ME-HPT", "ME-HPT+THP")


def way_statistic(outcome: Outcome, table: str, name: str) -> list[float]:
    """A statistic of each way of a table, in order; nothing without a result."""
    found = outcome.since_boot_of(f"{table}.way.", f".{name}")
    return [found[way] for way in sorted(found, key=int)]


def way_chunks(outcome: Outcome, table: str) -> list[float]:
    """The chunk size of each way, in order: it goes through the design's sizes, up only."""
    changes = way_statistic(outcome, table, "chunk_changes")
    if not changes or any(way_statistic(outcome, table, "downsizes")):
        return []
    sizes = outcome.result.config["page_table"]["memory_efficient"]["chunks"]
    return [float(sizes[int(changed)]) for changed in changes]


@dataclass(frozen=True)
class L2p:
    """The L2P table of a resolved design of ME-HPT, in entries of a way."""

    ways: int
    entries: int
    """Entries of a sub-table; each page size has a sub-table."""
    chunks: tuple[int, ...]
    """Bytes, smallest first."""

    @property
    def way(self) -> int:
        """Entries of all sub-tables of a way."""
        return PAGE_SIZES * self.entries

    @property
    def one_size(self) -> int:
        """Most entries of a page size in a way: its own and those of the 1 GB pages (figure 6)."""
        return 2 * self.entries

    @classmethod
    def of(cls, outcome: Outcome) -> L2p | None:
        """The L2P table of a run; None without a result."""
        if outcome.data is None:
            return None
        table = outcome.result.config["page_table"]["memory_efficient"]
        return cls(table["ways"], table["l2p_entries"], tuple(table["chunks"]))


def size_words(size: float) -> str:
    """A size as the paper writes it: 8KB, 1MB."""
    for unit, name in ((MB, "MB"), (KB, "KB")):
        if size >= unit:
            return f"{size / unit:g}{name}"
    return f"{size:g}B"
