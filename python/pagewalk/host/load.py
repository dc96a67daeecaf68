"""The load of this host: the share of its cores that is left for simulations."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

SPIN_SECONDS = 0.2
"""Time of a measurement. Ours: many time slices of Linux."""
WORTH_SECONDS = 10.0
"""Shortest estimate that is corrected: below it, the measurement costs more than it tells."""
LEAST = 0.01
"""Least share. Ours: what comes out below says nothing but that a host is overloaded."""


def cpu_share(
    threads: int,
    wall: Callable[[], float] = time.monotonic,
    used: Callable[[], float] = time.thread_time,
) -> float:
    """The share of a core that each of some busy threads gets now.

    `wall` and `used` are the clocks of time and of a thread's processor time.
    """

    def spin(_: int) -> float:
        # Hashing of a large block releases the interpreter's lock.
        block = bytes(1 << 18)
        start, begun = wall(), used()
        while (gone := wall() - start) < SPIN_SECONDS:
            hashlib.sha256(block)
        return (used() - begun) / gone

    with ThreadPoolExecutor(threads) as pool:
        shares = list(pool.map(spin, range(threads)))
    return min(1.0, max(LEAST, sum(shares) / threads))


def corrected(seconds: float, share: Callable[[], float]) -> float:
    """An estimate for an idle host, corrected by the share of its cores that is left."""
    return seconds / share() if seconds >= WORTH_SECONDS else seconds
