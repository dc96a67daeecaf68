"""Statistics of intervals: a column each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pagewalk.engine_types import IntervalsFields

_OF_HISTOGRAM = ("count", "sum", "p50", "p90", "p99", "largest")


@dataclass(frozen=True)
class Interval:
    """One interval: `instructions` that begin after `first_instruction` of the measured part.

    Where it is not `complete`, the measured part ended before the interval had its length.
    """

    first_instruction: int
    instructions: int
    cycles: int
    complete: bool
    values: dict[str, float]


class Intervals(IntervalsFields):
    """The intervals of one design's measured part, as columns that have a value for each."""

    @cached_property
    def statistics(self) -> dict[str, list[int]]:
        """The counters by path and name.

        ``core.0.mmu.walks`` is that of a core; ``cores.mmu.walks`` is the sum over several cores.
        """
        return {f"{c.path}.{c.name}": c.values for c in self.statistic_columns}

    @cached_property
    def histograms(self) -> dict[str, list[int | None]]:
        """Numbers of each histogram in an interval, as ``core.0.mmu.walk_latency.p99``."""
        return {
            f"{h.path}.{h.name}.{part}": getattr(h, part)
            for h in self.histogram_columns
            for part in _OF_HISTOGRAM
        }

    def __len__(self) -> int:
        return len(self.first_instruction)

    def __repr__(self) -> str:
        if not self.first_instruction:
            return "<Intervals: none>"
        columns = len(self.values) + len(self.statistics) + len(self.histograms)
        end = self.first_instruction[-1] + self.instructions[-1]
        return f"<Intervals: {len(self)} of {end:,} instructions, {columns} numbers each>"

    def __iter__(self) -> Iterator[Interval]:
        for i, first in enumerate(self.first_instruction):
            values = {name: v for name, c in self.values.items() if (v := c[i]) is not None}
            yield Interval(first, self.instructions[i], self.cycles[i], self.complete[i], values)

    def columns(self) -> dict[str, list[Any]]:
        """Everything, position and length first."""
        places: dict[str, list[Any]] = {
            "first_instruction": self.first_instruction,
            "instructions": self.instructions,
            "cycles": self.cycles,
            "complete": self.complete,
        }
        # The summary counts instructions and cycles, too.
        values = {name: c for name, c in self.values.items() if name not in places}
        return {**places, **values, **self.statistics, **self.histograms}
