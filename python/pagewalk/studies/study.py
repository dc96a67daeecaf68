"""A study: its axes, the settings that all runs share, and the resulting points."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pagewalk import native
from pagewalk.config import machines, options, source
from pagewalk.config.config import is_path, parse, text_of, variant
from pagewalk.config.toml_position import placed
from pagewalk.errors import RunOption, UserError, in_keywords
from pagewalk.host import files
from pagewalk.runs.executor import Executor, executor_for
from pagewalk.runs.plan import Design, Program, Run
from pagewalk.studies import axes
from pagewalk.studies.axes import LIMITS, PARAM, PROGRAMS, Axis
from pagewalk.studies.options import BY_NAME, DEFINING, EXECUTOR, KNOWN, table
from pagewalk.studies.point import DESIGN, MACHINE, SEED, Column, Point, Value
from pagewalk.view.escape import shown
from pagewalk.view.quantities import exact_bytes, parse_bytes, parse_count

Json = dict[str, Any]

MOST = 1_000_000
"""Points of a study: more are a slip of the pen."""
_ORDER = (MACHINE, DESIGN, *PROGRAMS, "size", "threads")
"""The first columns in order; parameters, keys of the configuration, limits and seed follow."""
KEYS = 2
"""The rank of keys among them."""


@dataclass(frozen=True)
class Study:
    """The runs of a study. All share `fixed`, whose values are read as those of axes are.

    `where` is a condition in SQL over the columns, which selects points. `precision` is a
    share, or None to simulate all. With an `interval` there are statistics of every interval of so
    many instructions. `region` is true if only marked regions of interest count.
    `cluster` is the cluster that a file names, `description` describes the study in the manifest,
    and `at` is the study's file.
    """

    axes: tuple[Axis, ...]
    fixed: Mapping[str, Value] = field(default_factory=dict)
    where: str | None = None
    precision: float | None = None
    interval: int | None = None
    region: bool = False
    cluster: str | None = None
    jobs: int | None = None
    description: Json = field(default_factory=dict)
    at: str = ""

    def executor(self, cluster: str | None, jobs: int | None) -> Executor:
        """The executor that options name, or else the study's file."""
        return executor_for(cluster or self.cluster, jobs or self.jobs)

    @property
    def names(self) -> list[str]:
        """Names of the values of points: those of axes, then those of `fixed`."""
        return [*(name for axis in self.axes for name in axis.names), *self.fixed]

    @property
    def columns(self) -> list[Column]:
        """Columns of the table of runs."""
        program = next((name for name in PROGRAMS if name in self.names), PROGRAMS[0])
        always = [MACHINE, DESIGN, program, SEED]
        if program == "workload":
            always.append("size")
        # The set of limits does not depend on the values.
        ended = _ended(dict.fromkeys(self.names, 1))
        found = dict.fromkeys([*self.names, *(name for name in LIMITS if name in ended), *always])
        return [self._column(name) for name in sorted(found, key=_rank)]

    def _column(self, name: str) -> Column:
        """A column; a parameter's values are of the kind that this study gives it."""
        column = axes.column(name)
        if not name.startswith(PARAM):
            return column
        steps = (axis.steps[0][axis.names.index(name)] for axis in self.axes if name in axis.names)
        value = next(steps, self.fixed.get(name))
        return replace(column, kind=str if value is None else type(value))

    def points(self) -> list[Point]:
        """All points, in the order of the axes. Raises `UserError` for a mistake in one."""
        try:
            return self._points()
        except UserError as error:
            raise _placed(error, self.at) from None

    def _points(self) -> list[Point]:
        names = [name for axis in self.axes for name in axis.names]
        count = 1
        for axis in self.axes:
            count *= len(axis.steps)
        if count > MOST:
            raise UserError(f"the study has {count} points; expected {MOST} at most: vary less")
        columns = [column.name for column in self.columns]
        maker = _Maker(self)
        rows: list[dict[str, Value]] = []
        for steps in itertools.product(*(axis.steps for axis in self.axes)):
            values = {**self.fixed, **dict(zip(names, itertools.chain(*steps), strict=True))}
            rows.append(maker.complete(values))
        selected = self._selected(rows, columns)
        return [
            Point({name: row.get(name) for name in columns}, maker.run(row)) for row in selected
        ]

    def _selected(self, rows: list[dict[str, Value]], columns: list[str]) -> list[dict[str, Value]]:
        """The rows that the condition selects."""
        if self.where is None:
            return rows
        import polars as pl

        types: dict[Any, Any] = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}
        schema = {column.name: types[column.kind] for column in self.columns}
        table = pl.DataFrame(
            {name: [row.get(name) for row in rows] for name in columns}, schema=schema
        )
        try:
            condition = pl.sql_expr(_quoted(self.where, columns))
            named = condition.meta.root_names()
            mask = table.select(condition.alias("kept"))["kept"]
        except (pl.exceptions.PolarsError, ValueError) as error:
            raise UserError(
                f"where: {shown(self.where)} is no condition over {', '.join(columns)} "
                f"({str(error).splitlines()[0]}); expected one as size >= 1073741824"
            ) from None
        if not named:
            raise UserError(
                f"where: {shown(self.where)} names no column; expected a condition over "
                f"{', '.join(columns)}"
            )
        if mask.dtype != pl.Boolean or len(mask) != len(rows):
            raise UserError(
                f"where: {shown(self.where)} is no condition; expected one as workload = 'gups'"
            )
        selected = [row for row, stays in zip(rows, mask, strict=True) if stays]
        if not selected:
            raise UserError(f"where: {shown(self.where)} leaves no point; expected some to stay")
        return selected


def _ended(row: Mapping[str, Value]) -> Json:
    """The values of a point, with the command line's default end if it has none."""
    if "trace" in row:
        return dict(row)
    programs = str(row["mix"]).count(",") + 1 if "mix" in row else 1
    return options.with_an_end(row, programs)


def _rank(name: str) -> tuple[int, int, str]:
    """The sort key of a column."""
    limits = list(LIMITS)
    if name in _ORDER:
        return 0, _ORDER.index(name), ""
    if name.startswith(PARAM):
        return 1, 0, name
    if name in LIMITS:
        return 3, limits.index(name), ""
    return (4, 0, "") if name == SEED else (KEYS, 0, name)


def _quoted(condition: str, columns: Sequence[str]) -> str:
    """A condition whose dotted names are those of columns, as SQL has them."""
    dotted = sorted((name for name in columns if "." in name), key=len, reverse=True)
    names = "|".join(rf"(?<![\w.]){re.escape(name)}(?![\w.])" for name in dotted)
    # Texts, and names that are quoted, stay as they are.
    parts = re.compile(rf"""'[^']*'|"[^"]*"{f"|({names})" if names else "|(?!)()"}""")
    return parts.sub(lambda found: f'"{found[0]}"' if found[1] else found[0], condition)


class _Maker:
    """Makes runs of points; equal programs and equal designs are one object."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._programs: dict[tuple[object, ...], Program] = {}
        self._designs: dict[tuple[object, ...], Design] = {}
        self._keys = [name for name in study.names if _rank(name)[0] == KEYS]
        self._labels: dict[str, str] = {}
        self._changes: dict[str, Json] = {}
        self._machines: set[str] = set()
        self._sizing: dict[str, str | None] = {}
        self._sized = "size" in study.names
        self._varied = {name for axis in study.axes for name in axis.names}

    def complete(self, row: dict[str, Value]) -> dict[str, Value]:
        """A point with defaults for missing values. Raises `UserError` for a mistake."""
        row.setdefault(MACHINE, options.DEFAULT_MACHINE)
        row.setdefault(DESIGN, source.DEFAULT_DESIGN)
        row.setdefault(SEED, 1)
        self._design_of(row)
        row = _ended(row)
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
        if workload not in self._sizing:
            self._sizing[workload] = self._checked(workload, own)
        if self._sizing[workload] is None:
            row.setdefault("size", axes.default_size(workload))
        return row

    def _checked(self, workload: str, own: list[str]) -> str | None:
        """The parameter that sets the size of a program, if it has one.

        Raises `UserError` for a program that is none, lacks a parameter, or is sized twice.
        """
        there = axes.parameters(workload)
        names = [name.removeprefix(PARAM) for name in own if name.startswith(PARAM)]
        if lacking := [name for name in names if name not in there]:
            raise UserError(
                f"{PARAM}{lacking[0]}: the program '{workload}' has no such parameter; it has "
                f"{', '.join(there) or 'none'}; give programs that have it a study of their own"
            )
        sizing = next((name for name in names if name in axes.SIZING), None)
        if sizing is not None and self._sized:
            raise UserError(
                f"{PARAM}{sizing}: says how large '{workload}' is, and so does size; expected one "
                "of them"
            )
        return sizing

    def _design_of(self, row: dict[str, Value]) -> None:
        """Checks machine and design of a point, and applies the changes in the design's name.

        These override settings of all designs, as on the command line. Raises `UserError` for an
        unknown machine or design, and for a key that both an axis and the design set.
        """
        machine, design = machines.found(str(row[MACHINE])), str(row[DESIGN])
        if machine not in self._machines:
            _there(machine, MACHINE, MACHINE, [one["name"] for one in native.machines()])
            self._machines.add(machine)
        if design not in self._changes:
            _there(variant(design)[0], DESIGN, "designs", [one["name"] for one in native.designs()])
            self._changes[design] = axes.changes(design)
        for key, value in self._changes[design].items():
            if key in self._varied:
                raise UserError(
                    f"designs: {shown(design)} says {key}, which varies; expected it in one place"
                )
            if key in row:
                row[key] = axes.read(key, value, "designs")

    def run(self, row: dict[str, Value]) -> Run:
        """The run of a complete point."""
        limits = {name: row.get(name) for name in LIMITS}
        run = Run(
            program=self._program(row),
            design=self._design(row),
            machine=machines.found(str(row[MACHINE])),
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
            with in_keywords():
                found = source.source(trace=str(row["trace"]))["trace"]["path"]
                files.refuse_pipe(found, RunOption("trace"), "a study")
            path = Path(found).resolve()
            return Program(path.name, trace=path, region=region)
        if row.get("mix") is not None:
            with in_keywords():
                mix = source.source(mix=str(row["mix"]))["mix"]["programs"]
            hosts = [_host(member) for member in mix]
            return Program(
                str(row["mix"]),
                mix=tuple(mix),
                memory=sum(memory for memory, _ in hosts),
                start=sum(start for _, start in hosts),
                region=region,
            )
        workload = str(row["workload"])
        size = _whole(row.get("size"))
        params = {name.removeprefix(PARAM): axes.parameter(row[name]) for name in names}
        memory, start = axes.host(workload, size or axes.sized(workload, params))
        return Program(
            workload,
            # The program's own is not said: it may go by parameters.
            exact_bytes(size) if self._sized and size else None,
            threads=_whole(row.get("threads")) or 1,
            params=params,
            memory=memory,
            start=start,
            region=region,
        )

    def _design(self, row: dict[str, Value]) -> Design:
        own = {name: row[name] for name in self._keys if row[name] is not None}
        named = str(row[DESIGN])
        known = (named, *own.items())
        if known not in self._designs:
            keys = {name: axes.setting(value) for name, value in own.items()}
            # Sorted, so that the same changes in another order are the same run.
            base, changes = (
                variant(named)[0],
                dict(sorted({**self._changes[named], **keys}.items())),
            )
            self._designs[known] = Design(self._label(base, changes), base, changes)
        return self._designs[known]

    def _label(self, base: str, changes: Json) -> str:
        """The engine's label of a design: several of one name may run together.

        It is the design's name, with a hash of what is changed, or of its path where two files
        have the same name.
        """
        label = Path(base).stem if is_path(base) else base
        if self._labels.setdefault(label, base) != base:
            label += f"-{_hash(base)}"
        return f"{label}-{_hash(changes)}" if changes else label


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


def _there(name: str, kind: str, key: str, names: Sequence[str]) -> None:
    """Raises `UserError` for an unknown design or machine, by name or file."""
    if is_path(name):
        if not Path(name).exists():
            raise UserError(f"{key}: there is no file '{name}'; check the name")
    elif name not in names:
        hint = native.suggestion(name, names)
        raise UserError(f"{key}: there is no {kind} '{name}'{hint}; 'pagewalk {kind}s' lists them")


def _host(member: Json) -> tuple[int, float]:
    """About what a program of a mix takes of the host: bytes, and seconds until it begins."""
    if "workload" not in member:
        return Program("").memory, Program("").start
    own = member["workload"]
    size = own["size"]
    axes.parameters(own["name"])
    return axes.host(
        own["name"],
        axes.sized(own["name"], own["params"]) if size is None else parse_bytes(size, "mix"),
    )


def _whole(value: Value) -> int | None:
    return None if value is None else int(value)


def study(definition: Mapping[str, Any], at: str = "") -> Study:
    """Makes a study of values by the keys of a study's file.

    `vary` has texts as on the command line, or a table of names with their values. `zip` is a list
    of tables whose names step together. Messages begin with the file `at`, if there is one, and
    the line of the key. Raises `UserError`.
    """
    try:
        made = _study({name: value for name, value in definition.items() if value is not None})
    except UserError as error:
        raise _placed(error, at) from None
    return replace(made, at=at)


def _placed(error: UserError, at: str) -> UserError:
    """The error with the study's file and line before it, if there is a file.

    An error that begins with a flag is one of the command line, and stays as it is.
    """
    if not at or str(error).startswith("-"):
        return error
    try:
        text = text_of(Path(at))
    except UserError:
        text = ""  # a pipe, which is read once
    return placed(error, Path(at), text)


def _study(given: Mapping[str, Any]) -> Study:
    if unknown := [name for name in given if name not in KNOWN]:
        hint = native.suggestion(unknown[0], KNOWN) or f"; expected some of {', '.join(KNOWN)}"
        raise UserError(f"{unknown[0]}: is nothing that a study says{hint}")
    found: list[Axis] = []
    fixed: dict[str, Value] = {}
    for axis in _axes(given):
        taken = {*fixed, *(name for one in found for name in one.names)}
        if twice := [name for name in axis.names if name in taken]:
            raise UserError(f"{twice[0]}: is said twice; expected it once")
        if len(axis.steps) == 1:
            fixed.update(zip(axis.names, axis.steps[0], strict=True))
        else:
            found.append(axis)
    executor = table("cluster", given.get("cluster", {}))
    if wrong := sorted(executor.keys() - EXECUTOR):
        raise UserError(f"cluster.{wrong[0]}: is unknown; expected {' and '.join(EXECUTOR)}")

    def checked(name: str) -> Any:
        return BY_NAME[name].read(given.get(name), name)

    return Study(
        tuple(found),
        fixed,
        where=checked("where"),
        precision=checked("precision"),
        interval=checked("interval"),
        region=checked("roi"),
        **{
            option.name: option.read(executor.get(key), option.key)
            for key, option in EXECUTOR.items()
        },
        description={name: given[name] for name in KNOWN if name in given},
    )


def _axes(given: Mapping[str, Any]) -> Iterator[Axis]:
    """The axes of a definition, with single values as axes, too; machines vary slowest."""
    found = {
        option.key: list(option.axes(option.key, given[option.key]))
        for option in sorted(DEFINING, key=lambda option: option.name != MACHINE)
        if option.axes is not None and option.key in given
    }
    yield from itertools.chain(*found.values())
    varied = [*found.get("vary", []), *found.get("zip", [])]
    if not any(SEED in axis.names for axis in varied) or "seeds" in given or "seed" in given:
        yield _seeds(given)


def _seeds(given: Mapping[str, Any]) -> Axis:
    first = axes.read(SEED, given.get("seed", 1), "seed")
    assert isinstance(first, int)
    number = parse_count(given.get("seeds", 1), "seeds")
    if not 1 <= number <= MOST:
        raise UserError(f"seeds: {number} is not possible; expected 1 or more")
    return Axis((SEED,), tuple((first + i,) for i in range(number)))


def definition(options: Mapping[str, Any], file: str | None) -> Json:
    """The keys of a file, overridden by options.

    Raises `UserError` with the file's name if it is no TOML.
    """
    return ({} if file is None else _keys(Path(file))) | {
        option.key: options[option.name]
        for option in DEFINING
        if options.get(option.name) is not None
    }


def _keys(path: Path) -> Json:
    try:
        return parse(text_of(path))
    except ValueError as error:
        raise UserError(f"{path}: is not TOML: {error}") from None


def read(path: Path) -> Study:
    """A study of a file. Raises `UserError` with the file's name for a mistake in it."""
    return study(_keys(path), str(path))
