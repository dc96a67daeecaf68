"""Clusters of similar intervals of a program: k-means, and the number of clusters.

As in SimPoint 3.0 (Hamerly, Perelman, Lau and Calder, JILP 2005). All sums run in the same order on
every host, so that a seed has one answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]
    Labels = NDArray[np.intp]

STARTS = 5
"""First centroids that are tried for each number of clusters."""
ROUNDS = 100
"""Largest number of k-means iterations."""
GAIN = 1e-4
"""A round that lessens the sum of squares by no larger share is the last."""
TOGETHER = 2048
"""Points whose distances fit a cache of the host."""
ENOUGH = 0.9
"""Share of the range of scores that the chosen number of clusters must reach."""
NOISE = 1e-7
"""Vectors that differ by so little in each dimension are one: by rounding, or one instruction."""


@dataclass(frozen=True)
class Clusters:
    """The cluster of each interval, and the interval's distance to its centroid."""

    labels: Labels
    distances: Numbers
    spreads: list[float]
    """Distance of intervals from their centroids with one cluster, two and so on.

    Root mean square, as the share of an interval's instructions that are in another block.
    """
    spread: float
    """The distance with the chosen number of clusters."""

    @property
    def number(self) -> int:
        """The number of clusters."""
        return int(self.labels.max()) + 1


def find(
    vectors: Numbers,
    most: int,
    seed: int,
    report: Callable[[int, int], None] = lambda _done, _total: None,
) -> Clusters:
    """The fewest clusters, at most `most`, whose score is nearly the best.

    `vectors` has a row for each interval. `report` gets the largest number of clusters tried so
    far, and the one to try last.
    """
    points = np.ascontiguousarray(vectors.T)
    # With a cluster for each interval there is no variance to judge by.
    most = max(1, min(most, (len(vectors) + 1) // 2))
    rng = np.random.default_rng(seed)
    tried, within, scores = [], [], []
    for k in range(1, most + 1):
        starts = [_k_means(points, k, rng) for _ in range(STARTS)]
        inner = [float(squares.sum()) for _, squares in starts]
        best = inner.index(min(inner))
        tried.append(starts[best])
        within.append(inner[best])
        held = np.bincount(starts[best][0], minlength=k).tolist()
        scores.append(_score(held, inner[best], len(points)))
        report(k, most)
    # The best score satisfies the bound in spite of rounding.
    bound = min(min(scores) + ENOUGH * (max(scores) - min(scores)), max(scores))
    enough = next(n for n, score in enumerate(scores) if score >= bound)
    labels, squares = tried[enough]
    # With equal vectors, some clusters stay empty.
    labels = np.unique(labels, return_inverse=True)[1]
    # A move of a share x changes two shares by x. Each dimension changes by x times the difference
    # of two numbers from -1 to 1, whose variance is 2/3.
    moved = len(points) * 2 / 3 * len(vectors)
    spreads = [math.sqrt(inner / moved) for inner in within]
    return Clusters(labels, np.sqrt(squares), spreads, spreads[enough])


def _k_means(points: Numbers, k: int, rng: np.random.Generator) -> tuple[Labels, Numbers]:
    """The cluster of each point, and the square of its distance to the centroid."""
    centroids = _first(points, k, rng)
    labels, squares = _nearest(points, centroids)
    for _ in range(ROUNDS):
        held = np.bincount(labels, minlength=k)
        for row, own in zip(points, centroids, strict=True):
            np.divide(np.bincount(labels, row, k), held, out=own, where=held > 0)
        before = float(squares.sum())
        labels, squares = _nearest(points, centroids)
        if before - float(squares.sum()) <= GAIN * before:
            break
    return labels, squares


def _first(points: Numbers, k: int, rng: np.random.Generator) -> Numbers:
    """First centroids, each drawn by its squared distance to those before it (k-means++)."""
    chosen = [_drawn(np.ones(points.shape[1]), rng)]
    squares = _nearest(points, points[:, chosen])[1]
    while len(chosen) < k:
        chosen.append(_drawn(squares, rng))
        squares = np.minimum(squares, _nearest(points, points[:, chosen[-1:]])[1])
    centroids: Numbers = points[:, chosen].copy()
    return centroids


def _drawn(weights: Numbers, rng: np.random.Generator) -> int:
    sums = weights.cumsum()
    at = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
    return min(at, len(weights) - 1)


def _nearest(points: Numbers, centroids: Numbers) -> tuple[Labels, Numbers]:
    """The nearest centroid of each point (a column), and the square of the distance to it."""
    number = points.shape[1]
    labels, squares = np.empty(number, np.intp), np.empty(number)
    lengths = (centroids**2).sum(0)[:, None]
    for at in range(0, number, TOGETHER):
        part = points[:, at : at + TOGETHER]
        # Not by a library of linear algebra: hosts' libraries differ in the order of sums.
        found = lengths - 2 * np.einsum("dk,dn->kn", centroids, part)
        nearest = found.argmin(0)
        labels[at : at + TOGETHER] = nearest
        inner = found[nearest, np.arange(len(nearest))] + (part**2).sum(0)
        squares[at : at + TOGETHER] = np.maximum(inner, 0)
    return labels, squares


def _score(held: list[int], within: float, dimensions: int) -> float:
    """The Bayesian information criterion of spherical clusters (Pelleg and Moore, ICML 2000)."""
    everything, k = sum(held), len(held)
    variance = within / (dimensions * max(everything - k, 1))
    variance = max(variance, NOISE**2)
    own = math.fsum(n * math.log(n) for n in held if n > 0)
    likelihood = (
        own
        - everything * math.log(everything)
        - everything * dimensions / 2 * math.log(2 * math.pi * variance)
        - dimensions * (everything - k) / 2
    )
    # Shares, coordinates, and the variance.
    parameters = k - 1 + dimensions * k + 1
    return likelihood - parameters / 2 * math.log(everything)
