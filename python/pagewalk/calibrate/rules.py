"""Rules that turn times of micro-benchmarks into parameters. Each is a closed form.

A rule takes numbers and returns numbers. It knows neither this host nor a machine file.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
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


def missed_under_fills(mean: float, ways: int) -> float:
    """Share of reuses that miss an LRU set of `ways` if `mean` other lines are filled between.

    Numbers of lines in a random set are Poisson: a line is evicted by `ways` of them or more.
    """
    term = total = math.exp(-mean)
    for n in range(1, ways):
        term *= mean / n
        total += term
    return 1 - total


def fills_that_miss(missed: float, ways: int) -> float:
    """Mean lines between two uses at which a share `missed` misses: the inverse of that."""
    return _inverse(lambda mean: missed_under_fills(mean, ways), missed, 8.0 * ways + 64)


@dataclass(frozen=True)
class Chase:
    """A random cycle through `footprint` bytes, each of whose loads takes `ns`."""

    footprint: int
    ns: float


@dataclass(frozen=True)
class Cache:
    """A cache of `size` bytes, with the times of a hit and of a miss in ns."""

    size: int
    ways: int
    hit: float
    miss: float


LEAST_MISSED, MOST_MISSED = 0.1, 0.9
"""Shares of misses beyond which a chase only bounds the fills. Ours."""


def fill_rate(chase: Chase, cache: Cache, missed: float) -> float:
    """Bytes a ns that others fill into `cache` if a share `missed` of a chase's loads misses.

    Between two uses of a line the chase visits all its other lines once, and the others fill the
    set for as long as that takes. Below 0 if the chase alone misses more.
    """
    filled = fills_that_miss(missed, cache.ways) - cache.ways * chase.footprint / cache.size
    return filled * cache.size / cache.ways / (chase.footprint / 64 * chase.ns)


def fill_rates(chases: Sequence[Chase], cache: Cache) -> tuple[list[float], float, float]:
    """Rates of other tenants' fills, in bytes a ns, and the bounds between which they lie.

    Each chase of which a part misses gives a rate. A chase that hits gives an upper bound, and one
    that misses a lower bound. Without such chases the bounds are infinity and 0.
    """
    rates, least, most = [], 0.0, math.inf
    for chase in chases:
        missed = (chase.ns - cache.hit) / (cache.miss - cache.hit)
        if missed < LEAST_MISSED:
            most = min(most, fill_rate(chase, cache, LEAST_MISSED))
        elif missed > MOST_MISSED:
            least = max(least, fill_rate(chase, cache, MOST_MISSED))
        else:
            rates.append(max(0.0, fill_rate(chase, cache, missed)))
    return rates, least, most


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
    return _inverse(lambda load: waiting(load, service), wait_ns, 1.0)


def _inverse(law: Callable[[float], float], value: float, most: float) -> float:
    """Where a law that rises from 0 to `most` has `value`, by bisection."""
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        if law(middle) < value:
            low = middle
        else:
            high = middle
    return low
