"""A study: its axes, what is the same for all its runs, and the points that come of them."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pagewalk import native, options, source
from pagewalk.config import parse, text_of, variant
from pagewalk.errors import UserError
from pagewalk.runs.plan import Design, Program, Run
from pagewalk.studies import axes
from pagewalk.studies.axes import LIMITS, PARAM, PROGRAMS, Axis
from pagewalk.studies.point import DESIGN, MACHINE, SEED, Column, Point, Value
from pagewalk.visible import shown

Json = dict[str, Any]

MOST = 1_000_000
"""Points of a study: more are a slip of the pen."""
_ORDER = (MACHINE, DESIGN, *PROGRAMS, "size", "threads")
"""Of columns; then a program's parameters, keys of the configuration, limits and the seed."""


@dataclass(frozen=True)
class Study:
    """What is run. `fixed` is the same for all; its values are read as those of axes are.

    `where` is a condition in SQL over the columns, of the points that stay. `precision` is a
    share, or None to simulate all; with an `interval` there are statistics of every so many
    instructions. `region` is whether only what lies between marks counts.
    `cluster` is what a file says of where to run; `told` is what the manifest says of the study.
    """

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Value] = field(default_factory=dict)
    where: str | None = None
    precision: float | None = None
    interval: int | None = None
    region: bool = False
    cluster: str | None = None
    jobs: int | None = None
    told: Json = field(default_factory=dict)

    @property
    def columns(self) -> list[Column]:
        """Of the table of its runs."""
        names = [name for axis in self.axes for name in axis.names]
        program = next((name for name in PROGRAMS if name in (*names, *self.fixed)), PROGRAMS[0])
        always = [MACHINE, DESIGN, program, SEED]
        if program == "workload":
            always.append("size")
        if self._limits().get("instructions") is not None or "instructions" in names:
            always.append("instructions")
        found = dict.fromkeys([*names, *self.fixed, *self._limits(), *always])
        return [axes.column(name) for name in sorted(found, key=_rank)]

    def _limits(self) -> Json:
        """The limits of all, with an end for what has none, as the command line has it."""
        said = {name: self.fixed[name] for name in LIMITS if name in self.fixed}
        names = {name for axis in self.axes for name in axis.names}
        if names & {"instructions", "requests"} or "trace" in (*names, *self.fixed):
            return said
        mixed = self.fixed.get("mix")
        programs = len(str(mixed).split(",")) if mixed else 1
        return options.with_an_end(said, programs)

    def points(self) -> list[Point]:
        """All of them, in the order of the axes. Raises `UserError` for a mistake in one."""
        names = [name for axis in self.axes for name in axis.names]
        count = 1
        for axis in self.axes:
            count *= len(axis.steps)
        if count > MOST:
            raise UserError(f"the study has {count} points; expected {MOST} at most: vary less")
        columns = [column.name for column in self.columns]
        common = {**self._limits(), **self.fixed}
        maker = _Maker(self)
        rows: list[dict[str, Value]] = []
        for steps in itertools.product(*(axis.steps for axis in self.axes)):
            said = {**common, **dict(zip(names, itertools.chain(*steps), strict=True))}
            rows.append(maker.complete(said))
        kept = self._kept(rows, columns)
        return [Point({name: row.get(name) for name in columns}, maker.run(row)) for row in kept]

    def _kept(self, rows: list[dict[str, Value]], columns: list[str]) -> list[dict[str, Value]]:
        """Those that the condition leaves."""
        if self.where is None:
            return rows
        import polars as pl

        types: dict[Any, Any] = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}
        schema = {column.name: types[column.kind] for column in self.columns}
        table = pl.DataFrame(
            {name: [row.get(name) for row in rows] for name in columns}, schema=schema
        )
        try:
            mask = table.select(pl.sql_expr(_quoted(self.where, columns)).alias("kept"))["kept"]
        except (pl.exceptions.PolarsError, ValueError) as error:
            raise UserError(
                f"where: {shown(self.where)} is no condition over {', '.join(columns)} "
                f"({str(error).splitlines()[0]}); expected one as size >= 1073741824"
            ) from None
        if mask.dtype != pl.Boolean or len(mask) != len(rows):
            raise UserError(
                f"where: {shown(self.where)} is no condition; expected one as workload = 'gups'"
            )
        kept = [row for row, stays in zip(rows, mask, strict=True) if stays]
        if not kept:
            raise UserError(f"where: {shown(self.where)} leaves no point; expected some to stay")
        return kept


def _rank(name: str) -> tuple[int, int, str]:
    """Where a column stands."""
    limits = list(LIMITS)
    if name in _ORDER:
        return 0, _ORDER.index(name), ""
    if name.startswith(PARAM):
        return 1, 0, name
    if name in LIMITS:
        return 3, limits.index(name), ""
    return (4, 0, "") if name == SEED else (2, 0, name)


def _quoted(condition: str, columns: Sequence[str]) -> str:
    """A condition whose dotted names are those of columns, as SQL has them."""
    dotted = sorted((name for name in columns if "." in name), key=len, reverse=True)
    for name in dotted:
        condition = re.sub(rf'(?<![\w."]){re.escape(name)}(?![\w."])', f'"{name}"', condition)
    return condition


class _Maker:
    """Makes runs of what points say; programs and designs that are equal are one object."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._programs: dict[tuple[object, ...], Program] = {}
        self._designs: dict[tuple[object, ...], Design] = {}
        self._parameters: dict[str, list[str]] = {}
        self._sizes: dict[str, int] = {}

    def complete(self, row: dict[str, Value]) -> dict[str, Value]:
        """A point with what holds where nothing is said. Raises `UserError` for a mistake."""
        row.setdefault(MACHINE, options.DEFAULT_MACHINE)
        row.setdefault(DESIGN, source.DEFAULT_DESIGN)
        row.setdefault(SEED, 1)
        given = [name for name in PROGRAMS if row.get(name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none"
            raise UserError(
                f"what to run: expected exactly one of {', '.join(PROGRAMS)}, found {found}; "
                "'pagewalk workloads' lists the built-in programs"
            )
        own = [name for name in row if name in ("size", "threads") or name.startswith(PARAM)]
        if given[0] != "workload":
            if own:
                raise UserError(
                    f"{own[0]} belongs to a built-in program; add a workload or drop it"
                )
            return row
        workload = str(row["workload"])
        if workload not in self._parameters:
            self._parameters[workload] = axes.parameters(workload)
            self._sizes[workload] = axes.default_size(workload)
        for name in own:
            if (
                name.startswith(PARAM)
                and name.removeprefix(PARAM) not in self._parameters[workload]
            ):
                raise UserError(
                    f"{name}: the program '{workload}' has no such parameter; it has "
                    f"{', '.join(self._parameters[workload]) or 'none'}; leave it out by where"
                )
        row.setdefault("size", self._sizes[workload])
        return row

    def run(self, row: dict[str, Value]) -> Run:
        """The run of a complete point."""
        limits = {name: row.get(name) for name in LIMITS}
        run = Run(
            program=self._program(row),
            design=self._design(row),
            machine=str(row[MACHINE]),
            instructions=_whole(limits["instructions"]),
            warmup=_whole(limits["warmup"]) or 0,
            seed=_whole(row[SEED]) or 0,
            skip=_whole(limits["skip"]) or 0,
            requests=_whole(limits["requests"]),
            warmup_requests=_whole(limits["warmup_requests"]) or 0,
            precision=self._study.precision,
            interval=self._study.interval,
        )
        if run.precision is not None and (run.requests is not None or run.program.mix):
            raise UserError(
                "precision: samples are of instructions of one program; expected no requests and "
                "no mix beside it"
            )
        return run

    def _program(self, row: dict[str, Value]) -> Program:
        names = sorted(name for name in row if name.startswith(PARAM) and row[name] is not None)
        key = (
            *(row.get(name) for name in (*PROGRAMS, "size", "threads")),
            *((name, row[name]) for name in names),
        )
        if key not in self._programs:
            self._programs[key] = self._made(row, names)
        return self._programs[key]

    def _made(self, row: dict[str, Value], names: list[str]) -> Program:
        region = self._study.region
        if row.get("trace") is not None:
            found = source.source(trace=str(row["trace"]))["trace"]["path"]
            path = Path(found).resolve()
            return Program(path.name, trace=path, region=region)
        if row.get("mix") is not None:
            mix = source.source(mix=str(row["mix"]))["mix"]["programs"]
            return Program(str(row["mix"]), mix=tuple(mix), region=region)
        size = _whole(row["size"]) or 0
        memory, start = axes.host(str(row["workload"]), size)
        return Program(
            str(row["workload"]),
            str(size),
            threads=_whole(row.get("threads")) or 1,
            params={name.removeprefix(PARAM): str(row[name]) for name in names},
            memory=memory,
            start=start,
            region=region,
        )

    def _design(self, row: dict[str, Value]) -> Design:
        keys = {
            name: axes.setting(name, value)
            for name, value in row.items()
            if value is not None and _rank(name)[0] == 2
        }
        written = json.dumps([row[DESIGN], keys], sort_keys=True)
        if (written,) not in self._designs:
            base, inner = variant(str(row[DESIGN]))
            changes = {**axes.changes(inner), **keys}
            label = Path(base).stem
            if changes:
                # Several of one name may run together, and the engine names them by their files.
                label += f"-{hashlib.sha256(written.encode()).hexdigest()[:8]}"
            self._designs[(written,)] = Design(label, base, changes)
        return self._designs[(written,)]


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)


LISTS = (MACHINE, "designs", *PROGRAMS)
"""What may be several without `vary`."""
SINGLE = ("size", "threads", *LIMITS)
TABLES = ("params", "set", "vary", "zip", "cluster")
KNOWN = (*LISTS, *SINGLE, *TABLES, "seed", "seeds", "where", "precision", "interval", "roi")
"""What a study says: keys of its file, and options of the command."""


def study(asked: Mapping[str, Any], at: str = "") -> Study:
    """The study of what somebody says, by the names of `KNOWN`.

    `vary` has texts as on the command line, or a table of names with their values; `zip` is a list
    of tables whose names step together. Messages begin with `at`. Raises `UserError`.
    """
    try:
        return _study({name: value for name, value in asked.items() if value is not None})
    except UserError as error:
        if not at:
            raise
        raise UserError(f"{at}: {error}") from None


def _study(given: Mapping[str, Any]) -> Study:
    if unknown := [name for name in given if name not in KNOWN]:
        near = native.nearest(unknown[0], KNOWN)
        hint = f"; did you mean '{near}'?" if near else f"; expected some of {', '.join(KNOWN)}"
        raise UserError(f"'{unknown[0]}' is nothing that a study says{hint}")
    found: list[Axis] = []
    fixed: dict[str, Value] = {}
    for axis in _axes(given):
        taken = {*fixed, *(name for one in found for name in one.names)}
        if twice := [name for name in axis.names if name in taken]:
            raise UserError(f"'{twice[0]}' is said twice; expected it once")
        if len(axis.steps) == 1:
            fixed.update(zip(axis.names, axis.steps[0], strict=True))
        else:
            found.append(axis)
    region, cluster = given.get("roi", False), _table(given, "cluster")
    if not isinstance(region, bool):
        raise UserError(f"roi: {shown(region)} is not understood; expected true or false")
    if wrong := sorted(cluster.keys() - {"where", "jobs"}):
        raise UserError(f"cluster.{wrong[0]}: is unknown; expected where and jobs")
    return Study(
        tuple(found),
        fixed,
        where=given.get("where"),
        precision=_precision(given),
        interval=options.read("interval", given.get("interval")),
        region=region,
        cluster=cluster.get("where"),
        jobs=cluster.get("jobs"),
        told={name: given[name] for name in KNOWN if name in given},
    )


def _axes(given: Mapping[str, Any]) -> Iterator[Axis]:
    """All that somebody says of the points, what has one value too."""
    for name in LISTS:
        if name in given:
            yield axes.axis([(DESIGN if name == "designs" else name, given[name])], name)
    for name in SINGLE:
        if name in given:
            yield Axis((name,), ((axes.read(name, given[name], name),),))
    for name, value in _table(given, "params").items():
        yield axes.axis([(PARAM + name, [value])], "params")
    for name, value in _flat(_table(given, "set")):
        yield axes.axis([(name, [value])], "set")
    varied = [*_varied(given.get("vary", {}))]
    varied += [axes.axis(list(_flat(table)), "zip") for table in given.get("zip", [])]
    yield from varied
    if not any(SEED in axis.names for axis in varied) or "seeds" in given or "seed" in given:
        yield _seeds(given)


def _precision(given: Mapping[str, Any]) -> float | None:
    precision = options.read("precision", given.get("precision"))
    if precision is None:
        return None
    if precision["metrics"]:
        raise UserError(
            "precision: a study is as sure of IPC and L2 TLB misses; expected a share alone, as 2%"
        )
    within: float = precision["within"]
    return within


def _table(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    table = given.get(name, {})
    if not isinstance(table, Mapping):
        raise UserError(f"{name}: {shown(table)} is no table; expected names with values")
    return table


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Names with dots, of tables in one another."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", value


def _varied(vary: Mapping[str, Any] | Sequence[str]) -> Iterator[Axis]:
    if isinstance(vary, Mapping):
        for name, values in _flat(vary):
            yield axes.axis([(name, values)], "vary")
    else:
        for text in vary:
            yield axes.written(text)


def _seeds(given: Mapping[str, Any]) -> Axis:
    first = axes.read(SEED, given.get("seed", 1), "seed")
    number = axes.read("threads", given.get("seeds", 1), "seeds")
    assert isinstance(first, int)
    assert isinstance(number, int)
    if not 1 <= number <= MOST:
        raise UserError(f"seeds: {number} is not possible; expected 1 or more")
    return Axis((SEED,), tuple((first + i,) for i in range(number)))


def given(path: Path) -> Json:
    """What a study's file says. Raises `UserError` with its name for what is no TOML."""
    try:
        return parse(text_of(path))
    except ValueError as error:
        raise UserError(f"{path}: is not TOML: {error}") from None


def read(path: Path) -> Study:
    """A study of a file. Raises `UserError` with the file's name for a mistake in it."""
    return study(given(path), str(path))
