"""Studies from Python: the same as `pagewalk sweep`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagewalk.config.options import described, with_defaults
from pagewalk.errors import UserError
from pagewalk.host import run_folder
from pagewalk.runs.cache import Cache, Outcome
from pagewalk.runs.progress import Bar
from pagewalk.runs.scheduler import Silent
from pagewalk.studies import command
from pagewalk.studies import study as studies
from pagewalk.studies.dataset import Study as StudyFolder
from pagewalk.studies.options import HOW, OPTIONS, Arguments
from pagewalk.studies.point import Point, Value
from pagewalk.view.escape import shown

if TYPE_CHECKING:
    import polars
    from typing_extensions import Unpack

    from pagewalk.measurements.design import DesignResult

Json = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """A run of a study that has ended: its value on each axis, and its outcome.

    `result` is None if the run has no result, and `why` then is the reason. A design that failed
    has both.
    """

    values: Mapping[str, Value]
    result: DesignResult | None
    why: str

    @classmethod
    def of(cls, point: Point, outcome: Outcome) -> Ended:
        """The ended run of a point."""
        return cls(point.values, None if outcome.data is None else outcome.result, outcome.why)


class Sweep:
    """A study that is simulated on demand.

    `frame` simulates missing runs and is the table. Iteration gives each run as it ends,
    ``await`` the table, and ``async for`` each run. A finished run is never simulated again.
    """

    def __init__(self, definition: Json, file: str | None, how: Json) -> None:
        self.study = studies.study(definition, file or "")
        self._how = how
        self._frame: polars.DataFrame | None = None

    def __repr__(self) -> str:
        return f"<pagewalk.Sweep: {', '.join(column.name for column in self.study.columns)}>"

    def __iter__(self) -> Iterator[Ended]:
        how = self._how
        with ExitStack() as stack:
            folder = how["out"]
            if folder is None:
                folder = stack.enter_context(run_folder.folder())
            watcher = stack.enter_context(Bar(sys.stderr)) if how["progress"] else Silent()
            for point, outcome in command.as_ended(
                self.study,
                Path(folder),
                Cache.named(how["cache"]),
                executor=self.study.executor(how["cluster"], how["jobs"]),
                fresh=how["fresh"],
                histograms=how["histograms"],
                watcher=watcher,
            ):
                yield Ended.of(point, outcome)
            self._frame = StudyFolder(Path(folder)).frame()

    @property
    def frame(self) -> polars.DataFrame:
        """A row for each run: a column for each axis, numbers of the summary and speedups.

        Speedups are over the first design at the same point. `status` and `why` show runs without
        a result. Raises `UserError` for a mistake, `Failure` for a failure.
        """
        if self._frame is None:
            for _ in self:
                pass
        assert self._frame is not None
        return self._frame

    def __await__(self) -> Generator[Any, None, polars.DataFrame]:
        return asyncio.to_thread(lambda: self.frame).__await__()

    async def __aiter__(self) -> AsyncIterator[Ended]:
        runs = iter(self)
        while (ended := await asyncio.to_thread(next, runs, None)) is not None:
            yield ended


_DEFAULTS: Json = {
    **{option.name: option.default for option in OPTIONS if option.python},
    "progress": True,
}
"""The default of each keyword argument."""


def sweep(file: str | os.PathLike[str] | None = None, **arguments: Unpack[Arguments]) -> Sweep:
    """A study of many runs that differ along axes.

    `file` is a study's TOML file; arguments override it. `designs`, `machine`,
    `workload`, `trace` and `mix` are names or lists of them. `settings`, `params` and options of
    one value are the same for all runs. `vary` has names with lists of values, or texts such as
    ``"512..16384*2"``. Without `out` the folder is temporary. `progress` shows a bar.

    Raises `UserError` for invalid arguments.
    """
    given = {
        name: _plain(name, one)
        for name, one in with_defaults(arguments, _DEFAULTS, "sweep").items()
    }
    how = {o.name: o.read(given[o.name], o.name) for o in HOW if o.python}
    at = None if file is None else str(file)
    return Sweep(studies.definition(given, at), at, {**how, "progress": given["progress"]})


described(sweep, _DEFAULTS, Arguments, OPTIONS)


def _plain(name: str, value: Any) -> Any:
    """The value as a study's file has it: paths as texts, iterables as lists."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(name, one) for key, one in value.items()}
    if isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, bytes):
        raise UserError(f"{name}: {shown(value)} is not understood; expected a text")
    try:
        return [_plain(name, one) for one in value]
    except TypeError:
        return value
