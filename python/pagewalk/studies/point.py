"""A run of a study, and where it stands on each axis."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagewalk.runs.plan import Run

Value = str | int | float | bool | None

MACHINE, DESIGN, SEED = "machine", "design", "seed"


@dataclass(frozen=True)
class Column:
    """A column of a study's table: an axis, or a value that all runs share.

    `unit` may be empty; `kind` is the type of its values, any of which may be None.
    """

    name: str
    unit: str
    kind: type[str] | type[int] | type[float] | type[bool]
    meaning: str


@dataclass(frozen=True)
class Point:
    """One run, and its value on each axis, in the order of the study's columns.

    Every point has `MACHINE`, `DESIGN` and `SEED`, and one of ``workload``, ``trace``, ``mix``.
    """

    values: Mapping[str, Value]
    run: Run

    def case(self) -> tuple[tuple[str, Any], ...]:
        """All but the design: points of one case have run the same on the same machine."""
        return tuple((name, value) for name, value in self.values.items() if name != DESIGN)

    def group(self) -> tuple[tuple[str, Any], ...]:
        """All but the seed: points of one group are repetitions of one another."""
        return tuple((name, value) for name, value in self.values.items() if name != SEED)
