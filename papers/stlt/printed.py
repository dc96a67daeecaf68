"""Every number that the paper gives of its evaluation, with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pagewalk.reproduce import Row
from pagewalk.reproduce.figure import AT_LEAST, AT_MOST


@dataclass(frozen=True)
class Said:
    """A number of the paper, a range (`up_to`), or the least or the most (`bound`).

    `tolerance` is by which share of it ours may differ; `deviation` is why it does.
    """

    value: float
    place: str
    up_to: float | None = None
    bound: str = ""
    tolerance: float | None = None
    deviation: str = ""

    def row(self, group: str, series: str, value: float | None, unit: str = "", **more: Any) -> Row:
        """A row with our number beside the printed one."""
        if self.tolerance is not None:
            more.setdefault("tolerance", self.tolerance)
        if self.deviation:
            more.setdefault("deviation", self.deviation)
        return Row(
            group, series, value, self.value, unit, self.place,
            up_to=self.up_to, bound=self.bound, **more,
        )  # fmt: skip


SPEEDUP, REDIS, TREES, DENSE = (
    "stlt-speedups", "stlt-redis", "stlt-trees", "stlt-dense"
)  # fmt: skip
MISSES, UNIFORM, ASSOCIATIVITY, HASHES = (
    "stlt-misses", "stlt-uniform", "stlt-associativity", "stlt-hashes"
)  # fmt: skip
NEAR = 0.15
"""Share by which a mean speedup may differ."""

# Section I, figure 1.
ADDRESSING = Said(50, "figure 1: over 50 % of the overall time", bound=AT_LEAST)

# Table I.
BITS = {"CRS": 64, "Invalid page buffer": 1158, "STB": 4096, "Insertion buffer": 1376}
TOTAL_BITS, TOTAL_BYTES = Said(6694, "table I"), Said(837, "table I")

# Figure 11: the numbers on its bars, by distribution, table and value size.
FIGURE_11 = {
    ("zipf", "SLB"): (1.15, 1.12, 1.10),
    ("zipf", "STLT"): (1.43, 1.42, 1.41),
    ("latest", "SLB"): (1.05, 1.04, 1.04),
    ("latest", "STLT"): (1.27, 1.26, 1.25),
    ("uniform", "SLB"): (1.23, 1.18, 1.17),
    ("uniform", "STLT"): (1.50, 1.47, 1.44),
}
SIZE_MATTERS = {
    name: Said(
        round(100 * (sizes[0] / sizes[-1] - 1), 1),
        "section IV-B: little effect; figure 11: from 64 to 256 bytes", bound=AT_MOST,
        deviation=REDIS,
    )
    for (name, table), sizes in FIGURE_11.items()
    if table == "STLT"
}  # fmt: skip
"""Per cent between the largest and the smallest speedup of a distribution's value sizes."""
REDIS_MEAN = Said(1.38, "section IV-B", tolerance=NEAR, deviation=REDIS)

# Table V, per cent.
TABLE_5 = {
    ("zipf", "SLB"): 1.42, ("zipf", "STLT"): 1.75,
    ("latest", "SLB"): 0.30, ("latest", "STLT"): 0.85,
    ("uniform", "SLB"): 7.47, ("uniform", "STLT"): 3.61,
}  # fmt: skip

# Section IV-B, figure 12: per cent saved.
TLB_SAVED = {
    "STLT": Said(27, "section IV-B: 27% to 31%", up_to=31, deviation=MISSES),
    "SLB": Said(-2.6, "section IV-B: -2.6% to 10%", up_to=10, deviation=MISSES),
}
CACHE_SAVED = {
    "STLT": Said(5, "section IV-B: 5-12%", up_to=12, deviation=MISSES),
    "SLB": Said(-3, "section IV-B: -3-3.7%", up_to=3.7, deviation=MISSES),
}

# Section IV-C, figure 13.
HASH_TABLES = {
    "SLB": Said(1.70, "section IV-C", tolerance=NEAR, deviation=DENSE),
    "STLT": Said(2.42, "section IV-C", tolerance=NEAR, deviation=DENSE),
}
TREE_TABLES = {
    "SLB": Said(6.46, "section IV-C", tolerance=NEAR, deviation=TREES),
    "STLT": Said(11.2, "section IV-C", tolerance=NEAR, deviation=TREES),
}
HASH_BY_DISTRIBUTION = {
    "zipf": Said(2.6, "section IV-C: 2.6-2.9", up_to=2.9, deviation=DENSE),
    "uniform": Said(2.6, "section IV-C: 2.6-2.9", up_to=2.9, deviation=DENSE),
    "latest": Said(1.7, "section IV-C", tolerance=NEAR, deviation=DENSE),
}
LARGEST = Said(13, "section I: up to 13x", tolerance=NEAR, deviation=TREES)

# Section IV-D1, figures 14 to 16.
PLATEAU = {
    "Redis": Said(1.4, "section IV-D1", tolerance=NEAR, deviation=REDIS),
    "dhash": Said(2.5, "section IV-D1", tolerance=NEAR, deviation=DENSE),
}
NEARLY_NO_MISS = Said(5, "section IV-D1: close to zero at 512 MB", bound=AT_MOST)

MORE_THAN_DENSE = Said(
    0, "section IV-D1: STLT reduces more TLB misses on Redis than on dense_hash_map",
    bound=AT_LEAST, deviation=MISSES,
)  # fmt: skip

# Section IV-D2, figure 17.
ONE_WAY = Said(
    4.5, "section IV-D2: 1-way better by 4.5% to 11.3% up to 64 MB", up_to=11.3,
    deviation=ASSOCIATIVITY,
)  # fmt: skip
EIGHT_WAYS = Said(-5, "section IV-D2: 5% slower at 16 MB", deviation=ASSOCIATIVITY)
EIGHT_MISSES = Said(43, "section IV-D2: 43% to 99% fewer misses", up_to=99, deviation=ASSOCIATIVITY)

# Section IV-D3, figure 18.
VARIATION = Said(19.4, "section IV-D3: up to 19.4%", deviation=HASHES)

# Section IV-F, figure 19 (right), without an STLT: per cent slower; VLDP and the last cache.
PREFETCHERS = "stlt-prefetchers"
SLOWER = {
    "TLB distance": Said(1, "section IV-F: only marginally", bound=AT_MOST, deviation=PREFETCHERS),
    "VLDP": Said(9.4, "section IV-F", deviation=PREFETCHERS),
    "Simple": Said(17.7, "section IV-F", deviation=PREFETCHERS),
}
VLDP_MISSES = {
    "Mean": Said(7.37, "section IV-F", deviation=PREFETCHERS),
    "Redis": Said(7.15, "section IV-F", deviation=PREFETCHERS),
}
VLDP_READS = {
    "Mean": Said(1.54, "section IV-F", deviation=PREFETCHERS),
    "Redis": Said(3.26, "section IV-F", deviation=PREFETCHERS),
}
DISTANCE_ACCURACY = Said(
    0.06, "section IV-F: up to 0.06%", bound=AT_MOST, deviation=PREFETCHERS
)  # fmt: skip

# Section I: STLT over SLB.
OVER_SLB = Said(23, "section I: by 23-73%", up_to=73, deviation=SPEEDUP)
