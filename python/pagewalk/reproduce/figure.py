"""A figure or table of a paper: what to run, the rows it makes of it, how it is drawn."""

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

    `group` is what stands below the axis (an application), `series` what the
    legend names (a design), `part` the part of a stacked bar. `paper` is None
    where the paper gives no number, and `place` says where it gives one.
    `failed` says why there is no value; `note` is the arithmetic behind an odd one. `low` and
    `high` are the smallest and largest value of several seeds; of one seed and samples, the ends
    of the interval.

    `by_construction` says why ours has to agree, where sizes or constants were chosen so
    that it does. `deviation` is the anchor in the paper's list of deviations that says why
    ours differs by more than `tolerance`, a share of the paper's number. A value that is
    `saved` is in per cent of something; its error is that of what remains. Where the paper
    gives a range, it is from `paper` to `up_to`; where it says no more than that a quantity
    is `bound`, "at least" or "at most" `paper`, anything beyond agrees.
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
        """Ours over the paper's; of what is saved, what remains over what remains in the paper."""
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
    """Bars grouped by `group`, a colour a series; stacked from parts if they have any.

    What the paper gives for an average is a line across them. Where values are sizes in a
    unit of `sizes` bytes a logarithmic axis goes in powers of two.
    """

    y: str
    log: bool = False
    stacked: bool = False
    averages: bool = True
    sizes: int = 0


@dataclass(frozen=True)
class Lines:
    """A line a series over the groups, which are numbers; the spread of seeds around it.

    Where a coordinate is a size in a unit of `sizes_x` or `sizes_y` bytes, its logarithmic
    axis goes in powers of two.
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

    `place` is where the paper has it, `about` what a reader has to know, and
    `timing` whether its values depend on how many instructions are measured. `sampled` says that
    samples give them: with ``--precision`` its long runs are not simulated whole. That is so where
    nothing is read of a result but rates, means and shares of its measured part, and what was
    before that; memory, faults, energy and all other totals grow with the run. `deviation` is
    the anchor of what holds for all of its rows that differ and name none. `seeds` are the
    fewest that it is simulated with at every scale, where chance decides and a few cost little.
    """

    title: ClassVar[str]
    place: ClassVar[str]
    about: ClassVar[str] = ""
    timing: ClassVar[bool] = False
    sampled: ClassVar[bool] = False
    deviation: ClassVar[str] = ""
    panels: ClassVar[Sequence[Panel]] = ()
    seeds: ClassVar[int] = 1

    def runs(self, _paper: Paper) -> Runs:
        """The runs that the figure needs; none if it is computed."""
        return Runs()

    @abstractmethod
    def rows(self, paper: Paper, results: Results) -> list[Row]:
        """The numbers of the figure, in the paper's order."""
