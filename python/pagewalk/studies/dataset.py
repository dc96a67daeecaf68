"""The results of a study in a folder, as Parquet files that can be read while it runs.

A file is complete when it has its name, and it is never removed. It is only replaced atomically by
one of the same name, with as many runs or without some failed ones. So a reader that lists
``runs/*.parquet`` at any moment sees each run at most once, and no run with numbers disappears.
For the same reason parts are never merged. A reader that lists the folder before a merge and opens
files after it would miss runs or see them twice. Instead, each part waits longer than the one
before, so that there are few.

Details of a run are written before its row. A run that is killed in between leaves details without
a row, which are removed when the study continues.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

import polars as pl

from pagewalk import native
from pagewalk.errors import Failure, UserError
from pagewalk.host import files
from pagewalk.host.perf_counters import CPUINFO, Processor
from pagewalk.runs.cache import Outcome
from pagewalk.studies import layout
from pagewalk.studies.layout import COMPLETE, SPEEDUPS, Layout
from pagewalk.studies.point import DESIGN, SEED, Column, Point, Value
from pagewalk.view.output import reason

Json = dict[str, Any]
Place = tuple[Value, ...]

MANIFEST, RUNS = "manifest.json", "runs"
STATISTICS, HISTOGRAMS, INTERVALS = "statistics", "histograms", "intervals"
DETAILS = frozenset([HISTOGRAMS, INTERVALS])
"""Tables that are stored on request only."""

MOST_RUNS, MOST_DETAILS = 2000, 200_000
"""Rows of runs, and of anything else, that are written at the latest."""
SHORTEST, LONGEST, SHARE = 5.0, 300.0, 0.1
"""Seconds between parts: a tenth of the time since the study began, not less nor more than these.
Ten hours make some 170 parts."""

_KINDS: dict[str, Any] = {kind.__name__: kind for kind in (str, int, float, bool)}
_PART = re.compile(r"part-(\d{5,})\.parquet")
_LOCK = ".lock"


def host() -> Json:
    """The host's processor and its number of cores, which determine how long runs take."""
    name = Processor.of_this_host().name if CPUINFO.exists() else "unknown processor"
    return {"cpu": name, "cores": os.cpu_count() or 1}


class Study:
    """A study's folder for reading, also while another process writes there.

    `study` is its description, `values` are those of each axis in the order of the study, and
    `points` is the number of its runs. Raises `UserError` for a folder without a study.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            found = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            columns = [Column(**{**one, "kind": _KINDS[one["kind"]]}) for one in found["columns"]]
            self.values: dict[str, list[Value]] = found["values"]
            self.points: int = found["points"]
            self.study: Json = found["study"]
            self.model: int = found["model"]
            self.version: str = found["version"]
        except (FileNotFoundError, NotADirectoryError):
            raise UserError(
                f"'{folder}' is no study: there is no {MANIFEST} in it; 'pagewalk sweep' makes one"
            ) from None
        except OSError as error:
            raise UserError(
                f"'{folder / MANIFEST}' cannot be read: {reason(error)}; make it readable, or name "
                "another folder"
            ) from None
        except (ValueError, LookupError, TypeError, AttributeError):
            raise UserError(
                f"'{folder / MANIFEST}' is not what a study writes there; put it back, or name "
                "another folder"
            ) from None
        self.layout = Layout(columns)

    @property
    def designs(self) -> list[str]:
        """In the order of the study."""
        return [str(name) for name in self.values[DESIGN]]

    @property
    def columns(self) -> list[Column]:
        """The axes."""
        return self.layout.columns

    @property
    def reference(self) -> str | None:
        """The design that speedups are over."""
        return next(iter(self.designs), None)

    def missing(self, table: pl.DataFrame) -> int:
        """Number of runs of the study that its table lacks."""
        known = [
            pl.col(name).is_in(self._known(name).to_list())
            | (pl.col(name).is_null() & (None in values))
            for name, values in self.values.items()
        ]
        return max(0, self.points - table.filter(*known).height)

    def frame(self) -> pl.DataFrame:
        """A row for each run, in the order of the axes, with speedups over runs finished so far.

        Raises `UserError` for a file that cannot be read.
        """
        parts = [_read(path, self.layout.schema) for _, path in _parts(self.folder / RUNS)]
        rows = pl.concat(parts) if parts else layout.frame([], self.layout.schema)
        # Runs end in any order; their table has one.
        order = [self._order(name) for name in self.layout.axes]
        rows = rows.sort([*order, *self.layout.axes, "key"])
        return layout.with_speedups(rows, self.layout, self.reference)

    def details(self, kind: str = STATISTICS) -> pl.DataFrame:
        """The statistics, histograms or intervals of all runs, by the column ``key``."""
        schema = _schemas(self.layout)[kind]
        parts = [_read(path, schema) for _, path in _parts(self.folder / kind)]
        return pl.concat(parts) if parts else layout.frame([], schema)

    def _order(self, name: str) -> pl.Expr:
        known = self._known(name)
        places = list(range(len(known)))
        return pl.col(name).replace_strict(
            known, places, default=len(known), return_dtype=pl.Int64()
        )

    def _known(self, name: str) -> pl.Series:
        values = [value for value in self.values[name] if value is not None]
        return pl.Series(values, dtype=self.layout.schema[name], strict=False)


class Dataset:
    """A study's results, which are written into a folder.

    Files: `manifest.json`; and ``runs/part-00001.parquet`` and on, with a row for each run
    (`Layout`). Numbers that do not fit a row are in ``statistics/``, and on request in
    ``histograms/`` and ``intervals/``, by `key`.

    `points` are all points of the study, in order; speedups are over the design of the first.
    `study` is its description in `manifest.json`; `model` is the version of the engine's model.
    `details` are the tables of `DETAILS` to store. `clock` gives seconds.

    A folder with the same columns and model is continued. Raises `UserError` for another folder,
    for one that another process writes in, and for an unreadable file in it; `Failure` where it
    cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        columns: Sequence[Column],
        points: Sequence[Point],
        *,
        model: int,
        study: Mapping[str, Any] | None = None,
        details: AbstractSet[str] = frozenset(),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if unknown := sorted(details - DETAILS):
            raise UserError(
                f"'{unknown[0]}' is nothing that is kept of runs; expected some of "
                f"{', '.join(sorted(DETAILS))}"
            )
        for column in columns:
            if column.name in Layout.reserved():
                raise UserError(
                    f"an axis cannot be called '{column.name}': the table of runs has such a "
                    "column; name it otherwise"
                )
        self.folder = folder
        self.layout = Layout(columns)
        self._kinds = [STATISTICS, *sorted(details)]
        self._clock = clock
        self._began = self._last = clock()
        self._rows: dict[Place, layout.Row] = {}
        self._buffered: dict[str, list[layout.Row]] = {kind: [] for kind in self._kinds}
        self._there: dict[Place, tuple[str, str, int]] = {}
        self._detailed: set[str] = set()
        self._make()
        self._lock = _locked(folder)
        try:
            values = {
                c.name: list(dict.fromkeys(p.values[c.name] for p in points)) for c in columns
            }
            self._go_on(model, next(iter(values[DESIGN]), None))
            self._write_manifest(
                {
                    "version": native.version(),
                    "model": model,
                    "study": dict(study or {}),
                    "columns": [
                        {**vars(column), "kind": column.kind.__name__} for column in columns
                    ],
                    "values": values,
                    "seeds": values[SEED],
                    "points": len(points),
                    "details": sorted(details),
                    "host": host(),
                }
            )
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Dataset:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def has(self, key: str, point: Point | None = None) -> bool:
        """True if there is a result of this key: a run that came to its end.

        Two points share a key if an axis does not matter to a design. With a `point`, true if that
        point has its row.
        """
        if point is not None:
            found = self._there.get(self._place(point))
            return found is not None and found[:2] == (key, COMPLETE)
        return key in self.there()

    def there(self) -> set[str]:
        """The keys of all results."""
        return {key for key, status, _ in self._there.values() if status == COMPLETE}

    def add(self, point: Point, outcome: Outcome) -> None:
        """Takes a run that has finished or failed; writes now and then, as `flush` does.

        One that is there already is left as it is. One that failed, or whose key is another, is
        replaced, but not by a failure.
        """
        place = self._place(point)
        row = self.layout.row(point.values, outcome)
        status = row[list(self.layout.schema).index("status")]
        known = self._there.get(place)
        if known is not None and (
            known[:2] == (outcome.key, COMPLETE) or COMPLETE == known[1] != status
        ):
            return
        if status == COMPLETE and outcome.key not in self._detailed:
            self._detailed.add(outcome.key)
            self._keep_details(outcome)
        self._rows[place] = row
        # No part yet.
        old = known[2] if known is not None else 0
        self._there[place] = (outcome.key, status, old)
        if self._full() or self._clock() - self._last >= self._wait():
            self.flush()

    def flush(self) -> None:
        """Writes the buffered runs."""
        self._last = self._clock()
        if not self._rows:
            return
        self._drop({place for place in self._rows if self._there[place][2]})
        number = 1 + max((number for number, _ in _parts(self.folder / RUNS)), default=0)
        for kind, schema in _schemas(self.layout).items():
            if self._buffered.get(kind):
                self._write(kind, number, layout.frame(self._buffered[kind], schema))
        self._write(RUNS, number, layout.frame(list(self._rows.values()), self.layout.schema))
        for place in self._rows:
            self._there[place] = (*self._there[place][:2], number)
        self._rows.clear()
        for rows in self._buffered.values():
            rows.clear()

    def frame(self) -> pl.DataFrame:
        """A row a run, also of those not written before; see `Study.frame`."""
        self.flush()
        return Study(self.folder).frame()

    def close(self) -> None:
        """Writes all runs, with speedups, and releases the folder."""
        if self._lock.closed:
            return
        try:
            self.flush()
            study = Study(self.folder)
            known = study.frame().select(*self.layout.axes, *SPEEDUPS)
            by_place = {row[: -len(SPEEDUPS)]: row[-len(SPEEDUPS) :] for row in known.iter_rows()}
            for number, path in _parts(self.folder / RUNS):
                part = _read(path, self.layout.schema)
                speedups = [by_place[place] for place in part.select(self.layout.axes).iter_rows()]
                self._replace(number, part, speedups)
        finally:
            self._lock.close()

    def _place(self, point: Point) -> Place:
        return tuple(point.values.get(name) for name in self.layout.axes)

    def _make(self) -> None:
        try:
            for kind in (RUNS, *self._kinds):
                (self.folder / kind).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failure(
                f"could not make the folder '{self.folder}': {reason(error)}; name another"
            ) from None

    def _go_on(self, model: int, reference: Value) -> None:
        """Continues from the files of an earlier command."""
        if not (self.folder / MANIFEST).exists():
            if stray := _parts(self.folder / RUNS):
                raise UserError(
                    f"there are results in '{stray[0][1].parent}', but no {MANIFEST} beside them; "
                    "put it back, or name another folder"
                )
            return
        before = Study(self.folder)
        self._same_columns(before)
        if before.model != model:
            raise UserError(
                f"'{self.folder}' has results of another version of the model ({before.model}, "
                f"this is {model}), which do not compare; name another folder"
            )
        runs = _parts(self.folder / RUNS)
        for number, path in runs:
            part = _read(path, self.layout.schema)
            for key, status, *place in part.select("key", "status", *self.layout.axes).iter_rows():
                self._there[tuple(place)] = (key, status, number)
        numbers = {number for number, _ in runs}
        for kind in _schemas(self.layout):
            for number, path in _parts(self.folder / kind):
                if number not in numbers:
                    path.unlink()
        for _, path in _parts(self.folder / STATISTICS):
            self._detailed.update(_read(path, layout.STATISTICS)["key"].unique())
        if before.reference != reference:
            self._forget_speedups()

    def _same_columns(self, before: Study) -> None:
        ours, theirs = self.layout.columns, before.columns
        if [(c.name, c.kind) for c in ours] == [(c.name, c.kind) for c in theirs]:
            return
        more = [c.name for c in ours if c.name not in before.layout.axes]
        less = [c.name for c in theirs if c.name not in self.layout.axes]
        others = [
            f"{what} {', '.join(names)}"
            for what, names in (("it lacks", more), ("it has besides", less))
            if names
        ]
        raise UserError(
            f"'{self.folder}' is of a study with other columns "
            f"({'; '.join(others) or 'in another order or of other types'}); name another folder"
        )

    def _write_manifest(self, manifest: Json) -> None:
        text = json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"
        path = self.folder / MANIFEST
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            files.write(str(path), text.encode())

    def _keep_details(self, outcome: Outcome) -> None:
        make = {
            STATISTICS: layout.statistics,
            HISTOGRAMS: layout.histograms,
            INTERVALS: self.layout.intervals,
        }
        for kind in self._kinds:
            self._buffered[kind].extend(make[kind](outcome))

    def _full(self) -> bool:
        most = max(map(len, self._buffered.values()))
        return len(self._rows) >= MOST_RUNS or most >= MOST_DETAILS

    def _wait(self) -> float:
        return min(LONGEST, max(SHORTEST, SHARE * (self._last - self._began)))

    def _drop(self, places: set[Place]) -> None:
        """Takes rows out of their parts, whose places are about to have others."""
        if not places:
            return
        numbers = {self._there[place][2] for place in places}
        for number, path in _parts(self.folder / RUNS):
            if number in numbers:
                part = _read(path, self.layout.schema)
                go = [row in places for row in part.select(self.layout.axes).iter_rows()]
                gone = pl.Series(go, dtype=pl.Boolean())
                if (part.filter(gone)["status"] == COMPLETE).any():
                    self._forget_speedups()
                    part = _read(path, self.layout.schema)
                self._write(RUNS, number, part.filter(~gone))

    def _forget_speedups(self) -> None:
        """Clears all speedups: the design that they refer to has changed, or its runs go."""
        for number, path in _parts(self.folder / RUNS):
            part = _read(path, self.layout.schema)
            self._replace(number, part, [(None,) * len(SPEEDUPS)] * len(part))

    def _replace(
        self, number: int, part: pl.DataFrame, speedups: Sequence[tuple[float | None, ...]]
    ) -> None:
        """Gives the rows of a part these speedups, if they have others."""
        new = layout.frame(speedups, dict.fromkeys(SPEEDUPS, pl.Float64()))
        if not new.equals(part.select(SPEEDUPS)):
            self._write(RUNS, number, part.with_columns(new.get_columns()))

    def _write(self, kind: str, number: int, table: pl.DataFrame) -> None:
        # Written to memory first: polars' error for a full disk names neither file nor cause.
        out = io.BytesIO()
        about = {"pagewalk": self.layout.metadata()} if kind == RUNS else None
        table.write_parquet(out, metadata=about)
        files.write(str(self.folder / kind / f"part-{number:05}.parquet"), out.getvalue())


def _schemas(of_runs: Layout) -> dict[str, Json]:
    """The schemas of the tables of details."""
    return {
        STATISTICS: layout.STATISTICS,
        HISTOGRAMS: layout.HISTOGRAMS,
        INTERVALS: of_runs.intervals_schema,
    }


def _parts(folder: Path) -> list[tuple[int, Path]]:
    """The parts in a folder, by their numbers."""
    named = ((_PART.fullmatch(path.name), path) for path in _listed(folder))
    return sorted((int(match[1]), path) for match, path in named if match)


def _listed(folder: Path) -> Iterator[Path]:
    try:
        yield from folder.iterdir()
    except FileNotFoundError:
        return
    except OSError as error:
        raise UserError(
            f"'{folder}' cannot be read: {reason(error)}; make it readable, or name another folder"
        ) from None


def _read(path: Path, schema: Mapping[str, Any]) -> pl.DataFrame:
    """A part with these columns. Raises `UserError` for one that cannot be read or has others."""
    try:
        # At once: it may be replaced while it is read.
        table = pl.read_parquet(io.BytesIO(path.read_bytes()))
    except (OSError, pl.exceptions.PolarsError) as error:
        why = reason(error) if isinstance(error, OSError) else "it is no whole Parquet file"
        raise UserError(
            f"'{path}' cannot be read: {why}; remove it, and 'pagewalk sweep' fills in what is "
            "missing, from finished runs where it kept them"
        ) from None
    if list(table.schema.items()) != list(schema.items()):
        raise UserError(
            f"'{path}' has other columns than this version of Pagewalk writes; name another folder"
        )
    return table


def _locked(folder: Path) -> TextIO:
    """Locks the folder against other writers until the file is closed."""
    try:
        lock = (folder / _LOCK).open("w")
    except OSError as error:
        raise Failure(
            f"could not write in '{folder}': {reason(error)}; name a folder that is writable"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise UserError(
            f"another 'pagewalk sweep' writes in '{folder}'; wait for it, or name another folder"
        ) from None
    return lock
