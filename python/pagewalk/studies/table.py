"""A study's runs as a table, and its names, values and units as texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from pagewalk.errors import UserError
from pagewalk.measurements.design import unknown
from pagewalk.studies import summary
from pagewalk.studies.dataset import Dataset, Study
from pagewalk.studies.layout import COMPLETE
from pagewalk.studies.point import SEED, Value
from pagewalk.view.quantities import (
    COUNTS,
    JOULES,
    NANOSECONDS,
    SIZES,
    Scale,
    exact_bytes,
    significant,
)


@dataclass(frozen=True)
class Table:
    """A study and its table of runs at this moment."""

    study: Study
    frame: pl.DataFrame

    @classmethod
    def of(cls, source: Path | Dataset) -> Table:
        """The table of a folder, or of a dataset that is being written."""
        if isinstance(source, Dataset):
            source.flush()
        study = Study(source.folder if isinstance(source, Dataset) else source)
        return cls(study, study.frame())

    @property
    def varying(self) -> list[str]:
        """The axes that have several values among the runs, without the seed."""
        axes = [name for name in self.study.layout.axes if name != SEED]
        return [name for name in axes if self.frame[name].n_unique() > 1]

    def axis(self, name: str, flag: str) -> str:
        """The name of an axis that groups may be by. Raises `UserError` for another."""
        axes = [one for one in self.study.layout.axes if one != SEED]
        if name == SEED:
            raise UserError(
                f"{flag}: means are over seeds, so a seed has no row; expected one of "
                f"{', '.join(axes)}"
            )
        if name not in axes:
            raise UserError(f"{flag}: {unknown('axis', name, 'this study', axes)}")
        return name

    def number(self, name: str, flag: str) -> str:
        """The name of a number of the table. Raises `UserError` for another."""
        numbers = self.study.layout.numbers()
        if name not in numbers:
            raise UserError(f"{flag}: {unknown('number', name, 'this study', numbers)}")
        return name

    def grouped(self, by: Sequence[str], numbers: Sequence[str]) -> pl.DataFrame:
        """`summary.grouped` of these runs."""
        return summary.grouped(self.frame, by, numbers, self.study.layout.axes)

    def unit(self, name: str) -> str:
        """The unit of a column."""
        return self.study.layout.units.get(name, "")

    def value(self, name: str, value: Value) -> str:
        """A value of an axis in the notation of the command line."""
        return written(value, self.unit(name))

    def averaged(self, by: Iterable[str]) -> list[str]:
        """The axes, beside seeds, that means of groups by `by` are over."""
        given = list(by)
        return [name for name in self.varying if name not in given]

    def counted(self) -> tuple[int, int, int]:
        """Numbers of runs that are complete, that failed, and that are missing."""
        complete = int((self.frame["status"] == COMPLETE).sum())
        return complete, len(self.frame) - complete, self.study.missing(self.frame)


def written(value: Value, unit: str) -> str:
    """A value of an axis: a size as ``4GiB``, a number as it was given."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return exact_bytes(value) if unit == "bytes" and value else str(value)
    return f"{value:.12g}" if isinstance(value, float) else value


def short(names: Sequence[str]) -> dict[str, str]:
    """The last key of each dotted name, where no other ends so: ``mmu.l2.main.entries``."""
    last = [name.rpartition(".")[2] for name in names]
    return {
        name: end if last.count(end) == 1 else name for name, end in zip(names, last, strict=True)
    }


def writer(unit: str, values: Iterable[float]) -> tuple[str, Callable[[float], str]]:
    """The common unit for numbers of a unit, and a formatter in it."""
    scale: Scale | None = {"bytes": SIZES, "nJ": JOULES, "s": NANOSECONDS}.get(unit)
    if unit == "s":
        label, write = NANOSECONDS.common(value * 1e9 for value in values)
        return label, lambda value: write(value * 1e9)
    if scale is None and ("/" in unit or not unit or unit == "cycles"):
        return unit, significant
    label, write = (scale or COUNTS).common(values)
    if scale is None:
        label = f"{label} {unit}".strip()
    return label, write


def scaled(unit: str, values: Iterable[float]) -> tuple[str, float]:
    """The unit in which the largest of the values is best written, and its factor."""
    largest = max(map(abs, values), default=0.0)
    # Scales begin at nanoseconds, results count seconds.
    factor = {"bytes": 1.0, "nJ": 1.0, "s": 1e-9}.get(unit)
    if factor is None:
        return unit, 1.0
    scale = {"bytes": SIZES, "nJ": JOULES, "s": NANOSECONDS}[unit]
    label = scale.units[0]
    for larger in scale.units[1:]:
        if largest < factor * scale.step:
            break
        factor, label = factor * scale.step, larger
    return label, factor
