"""A figure or table of a paper: its runs, its rows, and its drawing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pagewalk.runs.plan import Run, Runs

if TYPE_CHECKING:
    from pagewalk.reproduce.paper import Paper
    from pagewalk.runs.cache import Outcome

AGREES, BY_CONSTRUCTION = "agrees", "agrees by construction"
DIFFERS, UNEXPLAINED, MISSING = "differs", "differs, no reason given", "missing"
"""Values of a row's `status`."""

AT_LEAST, AT_MOST = "at least", "at most"
"""Values of a row's `bound`; empty without a bound."""

Results = Callable[[Run], "Outcome"]
"""Looks up the outcome of a run."""


@dataclass(frozen=True)
class Row:
    """One number of a figure, ours and the paper's.

    `group` is the label below the axis (an application), `series` the entry of the legend (a
    design), `part` the part of a stacked bar. `paper` is the paper's number or None, and `place`
    its place in the paper. `failed` is the reason why there is no value; `note` is the arithmetic
    behind an unusual one. `low` and `high` are the smallest and largest value of several seeds,
    or, with one seed and samples, the ends of the confidence interval.

    `by_construction` is the reason why ours must agree, if sizes or constants were chosen for
    that. `deviation` is the anchor in the paper's list of deviations, for a number that differs by
    more than `tolerance`, a share of the paper's number. A `saved` value is a saving in per cent;
    its error is relative to the remainder. A range of the paper is from `paper` to `up_to`. With a
    `bound`, "at least" or "at most" `paper`, any value beyond agrees.
    """

    group: str
    series: str
    value: float | None
    paper: float | None = None
    unit: str = ""
    place: str = ""
    note: str = ""
    failed: str = ""
    part: str = ""
    panel: str = ""
    average: bool = False
    by_construction: str = ""
    deviation: str = ""
    tolerance: float = 0.05
    saved: bool = False
    up_to: float | None = None
    bound: str = ""
    low: float | None = None
    high: float | None = None
    seeds: int = 1
    """Seeds that gave a value, whose mean it is."""

    @property
    def stated(self) -> float | None:
        """The number within the paper's range or bound that is nearest to ours."""
        if self.value is None or self.paper is None:
            return self.paper
        if self.bound:
            return (max if self.bound == AT_LEAST else min)(self.value, self.paper)
        return min(max(self.value, self.paper), self.paper if self.up_to is None else self.up_to)

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        paper = self.stated
        return None if self.value is None or paper is None else self.value - paper

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's; of savings, our remainder over the paper's."""
        ours, paper = self.value, self.stated
        if ours is None or paper is None:
            return None
        if self.saved:
            ours, paper = 100 - ours, 100 - paper
        return ours / paper if paper else None

    @property
    def status(self) -> str:
        """Agreement of ours with the paper's number; empty where the paper gives none."""
        if self.paper is None:
            return ""
        if self.value is None:
            return MISSING
        near = self.ratio is not None and abs(self.ratio - 1) <= self.tolerance
        if near or self.value == self.stated:
            return BY_CONSTRUCTION if self.by_construction else AGREES
        return DIFFERS if self.deviation else UNEXPLAINED


@dataclass(frozen=True)
class Bars:
    """Bars grouped by `group`, with a colour for each series; stacked if rows have parts.

    The paper's averages are lines across them. If values are sizes in a unit of `sizes` bytes, a
    logarithmic axis has powers of two.
    """

    y: str
    log: bool = False
    stacked: bool = False
    averages: bool = True
    sizes: int = 0


@dataclass(frozen=True)
class Lines:
    """A line for each series over the groups, which are numbers, with the spread of seeds.

    If a coordinate is a size in a unit of `sizes_x` or `sizes_y` bytes, its logarithmic axis has
    powers of two.
    """

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False
    sizes_x: int = 0
    sizes_y: int = 0


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure: the rows whose `panel` is its name."""

    drawing: Bars | Lines
    name: str = ""
    title: str = ""


class Figure(ABC):
    """A figure or table; a file of the paper's folder defines one subclass.

    `place` is its place in the paper, and `about` an explanation for readers. `timing` is true if
    its values depend on the number of measured instructions. `sampled` is true if samples can give
    its values: with ``--precision`` its long runs are sampled. It may read only rates, means and
    shares of the measured part, and the state before it. Memory, faults, energy and all other
    totals grow with the run. `deviation` is the anchor for all rows that differ and name none.
    `seeds` is the least number of seeds at every scale, for figures with large random variation.
    `kernel_file` is the file in ``linux/results`` with measurements of a booted kernel, if there
    is one; with ``--kernel`` the figure has their rows, too.
    """

    title: ClassVar[str]
    place: ClassVar[str]
    about: ClassVar[str] = ""
    timing: ClassVar[bool] = False
    sampled: ClassVar[bool] = False
    deviation: ClassVar[str] = ""
    kernel_file: ClassVar[str] = ""
    panels: ClassVar[Sequence[Panel]] = ()
    seeds: ClassVar[int] = 1

    def runs(self, _paper: Paper) -> Runs:
        """The runs that the figure needs; none if it is computed."""
        return Runs()

    @abstractmethod
    def rows(self, paper: Paper, results: Results) -> list[Row]:
        """The numbers of the figure, in the paper's order."""
