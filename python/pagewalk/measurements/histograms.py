"""Histograms of a result, most of them of latencies."""

from __future__ import annotations

from collections.abc import Iterable

from pagewalk.engine_types import HistogramFields
from pagewalk.view.quantities import significant

_LABELS = {"load_to_use": "load-to-use latency"}
"""Names in words that are not the key's own words."""
REPORTED = ("count", "mean", "p50", "p90", "p99", "largest")
"""Fields of `Histogram` that reports and tables show."""


class Histogram(HistogramFields):
    """Values and how often each was seen."""

    def __repr__(self) -> str:
        head = f"<Histogram {self.path}.{self.name}: {self.count:,} values"
        if self.mean is None:
            return f"{head}>"
        return (
            f"{head}, mean {significant(self.mean)}, p99 {self.p99}, largest {self.largest} "
            f"{self.unit}>"
        )


def reported(histograms: Iterable[Histogram]) -> list[Histogram]:
    """Histograms with values, without those of single cores where a sum over cores exists."""
    listed = list(histograms)
    several = {h.name for h in listed if _of_all(h.path)}
    return [
        h for h in listed if h.count and (h.name not in several or not h.path.startswith("core."))
    ]


def label(histogram: Histogram) -> str:
    """The histogram's name in words; with its path if it belongs to a virtual machine's host."""
    words = _LABELS.get(histogram.name) or histogram.name.replace("_", " ")
    return f"{words} ({histogram.path})" if histogram.path == "host" else words


def _of_all(path: str) -> bool:
    return path == "cores" or path.startswith("cores.")
