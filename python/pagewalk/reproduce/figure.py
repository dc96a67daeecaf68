"""A figure or table of a paper: what to run, the rows it makes of it, how it is drawn."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pagewalk.reproduce.plan import Run, Runs

if TYPE_CHECKING:
    from pagewalk.reproduce.cache import Outcome
    from pagewalk.reproduce.paper import Paper

Results = Callable[[Run], "Outcome"]
"""Looks up what became of a run."""


@dataclass(frozen=True)
class Row:
    """One number of a figure, ours and the paper's.

    `group` is what stands below the axis (an application), `series` what the
    legend names (a design), `part` the part of a stacked bar. `paper` is None
    where the paper gives no number, and `place` says where it gives one.
    `failed` says why there is no value; `note` is the arithmetic behind an odd one.
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

    @property
    def difference(self) -> float | None:
        """Ours less the paper's."""
        return None if self.value is None or self.paper is None else self.value - self.paper

    @property
    def ratio(self) -> float | None:
        """Ours over the paper's."""
        if self.value is None or not self.paper:
            return None
        return self.value / self.paper


@dataclass(frozen=True)
class Bars:
    """Bars grouped by `group`, a colour a series; stacked from parts if they have any."""

    y: str
    log: bool = False
    stacked: bool = False
    averages: bool = True


@dataclass(frozen=True)
class Lines:
    """A line a series over the groups, which are numbers."""

    x: str
    y: str
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True)
class Panel:
    """One drawing of a figure: the rows whose `panel` is its name."""

    drawing: Bars | Lines
    name: str = ""
    title: str = ""


class Figure(ABC):
    """A figure or table; a file of the paper's folder defines one subclass.

    `place` is where the paper has it, `about` what a reader has to know, and
    `timing` whether its values depend on how many instructions are measured.
    """

    title: ClassVar[str]
    place: ClassVar[str]
    about: ClassVar[str] = ""
    timing: ClassVar[bool] = False
    panels: ClassVar[Sequence[Panel]] = ()

    def runs(self, _paper: Paper) -> Runs:
        """What has to be simulated; nothing for what is computed."""
        return Runs()

    @abstractmethod
    def rows(self, paper: Paper, results: Results) -> list[Row]:
        """The numbers of the figure, in the paper's order."""
