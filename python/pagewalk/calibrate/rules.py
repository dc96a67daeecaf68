"""Rules that turn times of micro-benchmarks into parameters. Each is a closed form.

A rule takes numbers and returns numbers. It knows neither this host nor a machine file.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

SURE, NOISY, NOT_DETERMINED = "sure", "noisy", "not determined"

SURE_SPREAD = 0.05
"""Largest relative spread, and residual, of a value that is sure. Ours."""
NOISY_SPREAD = 0.25
"""Likewise of one that is used at all. Ours: beyond it, the base machine is as good a guess."""


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty."""

    value: float
    spread: tuple[float, float]
    """Least value, and the median of all repetitions: other load can only add time."""
    residual: float
    """Largest relative distance from the rule's form: of a plateau, of its points."""

    @property
    def relative_spread(self) -> float:
        """Width of the spread relative to the value."""
        least, median = self.spread
        return (median - least) / self.value if self.value else 0.0

    @property
    def confidence(self) -> str:
        """`SURE`, `NOISY` or `NOT_DETERMINED`."""
        worst = max(self.relative_spread, self.residual)
        if worst <= SURE_SPREAD:
            return SURE
        return NOISY if worst <= NOISY_SPREAD else NOT_DETERMINED


def idle(samples: Sequence[float]) -> float:
    """Time without disturbance: the tenth percentile, as other load can only add time."""
    ordered = sorted(samples)
    return ordered[len(ordered) // 10]


def of_samples(samples: Sequence[float], scale: float = 1.0) -> Estimate:
    """The idle time of one benchmark, multiplied by `scale`."""
    value = idle(samples) * scale
    middle = statistics.median(samples) * scale
    return Estimate(value, (min(samples) * scale, max(middle, value)), 0.0)


def least_of(samples: Sequence[float], scale: float = 1.0) -> Estimate:
    """The least time, which tells whether a working set can stay in a cache.

    Each time another thread runs, it takes lines away, and a large set is never whole again. The
    spread goes to the third least time: a least time that nothing repeats is no plateau.
    """
    ordered = sorted(value * scale for value in samples)
    return Estimate(ordered[0], (ordered[0], ordered[min(2, len(ordered) - 1)]), 0.0)


def plateau(points: Sequence[Estimate]) -> Estimate:
    """The common value of points that lie on one plateau: their median.

    The residual is the largest distance of a point from it.
    """
    value = statistics.median(point.value for point in points)
    residual = max(abs(point.value - value) for point in points) / value
    least = min(point.spread[0] for point in points)
    median = statistics.median(point.spread[1] for point in points)
    return Estimate(value, (least, max(median, value)), residual)


def step(sizes: Sequence[int], values: Sequence[float], low: float, high: float) -> tuple[int, int]:
    """The sizes between which a curve passes from the plateau `low` to `high`.

    Returns the last size before the first point above their middle, and the size of that point.
    Raises `ValueError` if the curve begins above the middle, or never passes it.
    """
    middle = (low + high) / 2
    above = [size for size, value in zip(sizes, values, strict=True) if value > middle]
    if not above or above[0] == sizes[0]:
        raise ValueError("the curve has no step")
    at = sizes.index(above[0])
    return sizes[at - 1], sizes[at]


def capacity(
    sizes: Sequence[float], values: Sequence[float], hit: float, miss: float
) -> tuple[float, float]:
    """Capacity of a cache from the latencies of random cycles of several sizes, in ascending order.

    Beyond the capacity C, a cycle of F bytes hits with probability C/F if the victim is random, so
    the latency is hit + (miss - hit) (1 - C/F), and each point gives one C. Returns their median,
    and their largest distance from it relative to it. Points below a tenth and above nine tenths of
    the way say little. If the victim is the least recently used line, no point may be between: then
    C lies between the last size that hits and the first that misses. Raises `ValueError` if no size
    hits, or none misses.
    """
    missed = [(value - hit) / (miss - hit) for value in values]
    found = [size * (1 - one) for size, one in zip(sizes, missed, strict=True) if 0.1 < one < 0.9]
    if found:
        middle = statistics.median(found)
        return middle, max(abs(one - middle) for one in found) / middle
    beyond = next((i for i, one in enumerate(missed) if one >= 0.9), None)
    if not beyond:
        raise ValueError("all footprints hit" if beyond is None else "all footprints miss")
    last, first = sizes[beyond - 1], sizes[beyond]
    return (last + first) / 2, (first - last) / (first + last)


def first_plateau(points: Sequence[Estimate], most: float) -> Estimate:
    """The first plateau of a rising curve: the first two neighbours within a tenth of each other.

    Raises `ValueError` if there are none below `most`.
    """
    for one, other in pairwise(points):
        if max(one.value, other.value) < most and abs(one.value - other.value) < 0.1 * one.value:
            return plateau([one, other])
    raise ValueError("no two footprints take the same time")


def concurrency(latency: float, interval: float) -> float:
    """Requests that are on their way at once, by Little's law: latency over time for one more."""
    return latency / interval


@dataclass(frozen=True)
class Service:
    """Service times of a DRAM: of a line on a channel's bus, and of a row change in a bank."""

    line_ns: float
    bank_ns: float
    banks: int
    peak_gbs: float


def waiting(load: float, service: Service) -> float:
    """Mean wait of a request, ns, at a load of the bus from 0 to 1 by random lines.

    Two queues with Poisson arrivals and constant service (M/D/1): that of the bank, whose load is
    the bus's by the ratio of service times and the number of banks, and that of the bus.
    """

    def queue(load: float, time: float) -> float:
        return load * time / (2 * (1 - load))

    of_bank = load * service.bank_ns / (service.line_ns * service.banks)
    if load >= 1 or of_bank >= 1:
        return float("inf")
    return queue(load, service.line_ns) + queue(of_bank, service.bank_ns)


def load_of(wait_ns: float, service: Service) -> float:
    """The load of the bus at which requests wait so long: the inverse of `waiting`."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if waiting(middle, service) < wait_ns:
            low = middle
        else:
            high = middle
    return low
