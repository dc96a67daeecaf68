"""Means as papers take them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


def mean(values: Iterable[float | None]) -> float | None:
    """The arithmetic mean of the values that are not None."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def geometric(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the values that are not None; None when one is not above 0."""
    known = [value for value in values if value is not None]
    if not known or min(known) <= 0:
        return None
    return math.exp(sum(math.log(value) for value in known) / len(known))


@dataclass(frozen=True)
class Means:
    """Both means of the same values, where a paper does not say which it took."""

    arithmetic: float | None
    geometric: float | None

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Means:
        """Both means of the values that are not None."""
        known = list(values)
        return cls(mean(known), geometric(known))
