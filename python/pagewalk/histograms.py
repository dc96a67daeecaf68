"""How long things took: histograms of a result."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pagewalk.quantities import significant

Json = dict[str, Any]

TOLD = ("count", "mean", "p50", "p90", "p99", "largest")
"""What a histogram is told by, each a field of `Histogram`."""


@dataclass(frozen=True, repr=False)
class Histogram:
    """Values and how often each was seen.

    `mean` and `largest` are exact; `p50`, `p90` and `p99` lie at most 1/32 above the value that
    half, 90 % and 99 % of the values do not exceed. `buckets` are (least value, largest value,
    count), in ascending order, without the empty ones. The path ``cores`` and those below it
    stand for all cores together, where there are several.
    """

    path: str
    name: str
    unit: str
    meaning: str
    count: int
    sum: int
    mean: float | None
    p50: int | None
    p90: int | None
    p99: int | None
    largest: int | None
    buckets: list[tuple[int, int, int]] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Json) -> Histogram:
        """Reads one element of ``histograms`` of a design's result."""
        return cls(**{**data, "buckets": [(b[0], b[1], b[2]) for b in data["buckets"]]})

    def __repr__(self) -> str:
        told = f"<Histogram {self.path}.{self.name}: {self.count:,} values"
        if self.mean is None:
            return f"{told}>"
        return (
            f"{told}, mean {significant(self.mean)}, p99 {self.p99}, largest {self.largest} "
            f"{self.unit}>"
        )


def told(histograms: Iterable[Histogram]) -> list[Histogram]:
    """Those that stand for the whole machine and have values."""
    listed = list(histograms)
    several = {h.name for h in listed if _of_all(h.path)}
    return [
        h for h in listed if h.count and (h.name not in several or not h.path.startswith("core."))
    ]


def label(histogram: Histogram) -> str:
    """Its name in words, with what it belongs to if that is not the core or its system."""
    words = histogram.name.replace("_", " ")
    return f"{words} ({histogram.path})" if histogram.path == "host" else words


def _of_all(path: str) -> bool:
    return path == "cores" or path.startswith("cores.")
