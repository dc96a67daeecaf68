"""What a simulation found out."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pagewalk import files
from pagewalk.visible import visible

if TYPE_CHECKING:
    import polars

Json = dict[str, Any]


@dataclass(frozen=True)
class Quantity:
    """One number of the summary, with what it means."""

    name: str
    value: float | None
    unit: str
    meaning: str


@dataclass(frozen=True)
class Statistic:
    """One counter of the simulated machine, with where it sits."""

    path: str
    name: str
    value: int
    unit: str
    meaning: str
    gauge: bool


@dataclass(frozen=True)
class Share:
    """Cycles that went to one cause."""

    cause: str
    cycles: float
    share: float


@dataclass(frozen=True)
class Interval:
    """What was counted up to `instructions`, since the interval before."""

    instructions: int
    cycles: int
    values: dict[str, float]


@dataclass(frozen=True)
class Sampling:
    """What periodic sampling estimates, and how sure it is."""

    samples: int
    ipc: float
    ipc_low: float
    ipc_high: float | None
    confidence: float


def _statistics(rows: list[Json]) -> list[Statistic]:
    return [
        Statistic(s["path"], s["name"], s["value"], s["unit"], s["meaning"], s["gauge"])
        for s in rows
    ]


@dataclass(frozen=True)
class DesignResult:
    """The result of one design.

    `statistics` count the measured part. `since_boot` are those of the operating
    system and of the page tables since the machine booted: tables grow most while
    a program fills its memory, before the measured part.
    """

    name: str
    description: str
    status: str
    message: str | None
    config: Json
    quantities: list[Quantity]
    speedup: float | None
    cycle_stack: list[Share]
    statistics: list[Statistic]
    intervals: list[Interval] = field(default_factory=list)
    sampling: Sampling | None = None
    since_boot: list[Statistic] = field(default_factory=list)

    @classmethod
    def from_json(cls, data: Json) -> DesignResult:
        """Reads one element of ``designs`` of the engine's answer."""
        return cls(
            name=data["name"],
            description=data.get("description") or "",
            status=data["status"],
            message=data.get("message"),
            config=data["config"],
            quantities=[
                Quantity(q["name"], q["value"], q["unit"], q["meaning"]) for q in data["summary"]
            ],
            speedup=data.get("speedup"),
            cycle_stack=[Share(s["cause"], s["cycles"], s["share"]) for s in data["cycle_stack"]],
            statistics=_statistics(data["stats"]),
            since_boot=_statistics(data.get("since_boot") or []),
            intervals=[
                Interval(i["instructions"], i["cycles"], i["values"])
                for i in data.get("intervals") or []
            ],
            sampling=Sampling(**data["sampling"]) if data.get("sampling") else None,
        )

    @property
    def complete(self) -> bool:
        """Whether the design ran to its limits."""
        return self.status == "complete"

    @property
    def failed(self) -> bool:
        """Whether the design came to an end that nobody asked for, such as out of memory."""
        return self.status not in ("complete", "partial")

    def get(self, name: str) -> float | None:
        """A number of the summary by name, or None."""
        return next((q.value for q in self.quantities if q.name == name), None)

    def __getitem__(self, name: str) -> float:
        value = self.get(name)
        if value is None:
            known = ", ".join(q.name for q in self.quantities)
            raise KeyError(f"no number '{name}' in the summary; there are {known}")
        return value


class Result:
    """The result of `pagewalk.run` or `pagewalk.compare`.

    `designs` holds the results in the order that was asked for; the first is
    the one that speedups refer to. `data` is the engine's whole answer, as
    ``--json`` writes it.
    """

    def __init__(self, data: Json) -> None:
        self.data = data
        self.designs = [DesignResult.from_json(d) for d in data["designs"]]

    @property
    def partial(self) -> bool:
        """Whether not every design reached the end of what was asked for."""
        return bool(self.data["partial"])

    @property
    def why_partial(self) -> str:
        """Why it is partial, empty if it is not."""
        if not self.partial:
            return ""
        if any(d.status == "partial" for d in self.designs):
            return "the run was stopped before its end"
        return "not every design reached its end"

    @property
    def warnings(self) -> list[str]:
        """What a reader of the numbers has to know."""
        return list(self.data["warnings"])

    @property
    def failed_files(self) -> list[str]:
        """Files asked for that the engine could not write, and why."""
        return list(self.data["failed_files"])

    @property
    def exit_status(self) -> int:
        """The simulated program's own exit status, 0 without a program."""
        return int(self.data["source"].get("exit_status") or 0)

    def __getitem__(self, design: str) -> DesignResult:
        for result in self.designs:
            if result.name == design:
                return result
        known = ", ".join(d.name for d in self.designs)
        raise KeyError(f"no design '{design}' in this result; there are {known}")

    @cached_property
    def summary(self) -> polars.DataFrame:
        """One row a design, one column a number of the summary."""
        import polars

        rows = [
            {
                "design": d.name,
                "status": d.status,
                "speedup": d.speedup,
                **{q.name: None if q.value is None else float(q.value) for q in d.quantities},
            }
            for d in self.designs
        ]
        return polars.DataFrame(rows, infer_schema_length=None)

    def frame(self) -> polars.DataFrame:
        """One row a statistic and design: every counter, and the summary.

        Columns: design, path, name, value, unit, gauge, meaning. The numbers
        of the summary have the path ``summary``.
        """
        import polars

        rows = [
            (d.name, "summary", q.name, q.value, q.unit, True, q.meaning)
            for d in self.designs
            for q in d.quantities
        ] + [
            (d.name, s.path, s.name, s.value, s.unit, s.gauge, s.meaning)
            for d in self.designs
            for s in d.statistics
        ]
        schema = {
            "design": polars.String(),
            "path": polars.String(),
            "name": polars.String(),
            "value": polars.Float64(),
            "unit": polars.String(),
            "gauge": polars.Boolean(),
            "meaning": polars.String(),
        }
        columns = zip(*rows, strict=True) if rows else [[] for _ in schema]
        return polars.DataFrame(
            {
                name: polars.Series(name, list(column), dtype=dtype, strict=False)
                for (name, dtype), column in zip(schema.items(), columns, strict=True)
            }
        )

    def intervals(self) -> polars.DataFrame:
        """One row an interval and design; empty without ``interval=``."""
        import polars

        rows = [
            {"design": d.name, "instructions": i.instructions, "cycles": i.cycles, **i.values}
            for d in self.designs
            for i in d.intervals
        ]
        return polars.DataFrame(rows, infer_schema_length=None)

    def to_json(self) -> str:
        """Everything, as one JSON text."""
        return json.dumps(self.data, indent=1) + "\n"

    def write_json(self, path: str) -> None:
        """Writes everything as JSON."""
        files.write(path, self.to_json().encode())

    def write_parquet(self, path: str) -> list[str]:
        """Writes `frame` as Parquet, and `intervals` beside it where there are any.

        Configuration, seed, version and host speed are in the file's metadata
        under ``pagewalk``. Returns the paths written.
        """
        about = {key: value for key, value in self.data.items() if key != "designs"}
        about["configs"] = {d.name: d.config for d in self.designs}
        tables = [(path, self.frame())]
        if any(d.intervals for d in self.designs):
            stem = path.removesuffix(".parquet")
            tables.append((f"{stem}.intervals.parquet", self.intervals()))
        for target, table in tables:
            # By way of memory: what polars says of a full disk names neither file nor cause.
            out = io.BytesIO()
            table.write_parquet(out, metadata={"pagewalk": json.dumps(about)})
            files.write(target, out.getvalue())
        return [target for target, _ in tables]

    def to_html(self) -> str:
        """A page that needs nothing but a browser."""
        from pagewalk.page import page

        return page(self)

    def write_html(self, path: str) -> None:
        """Writes `to_html`."""
        files.write(path, self.to_html().encode())

    def __repr__(self) -> str:
        state = ", partial" if self.partial else ""
        names = ", ".join(d.name for d in self.designs)
        return visible(f"<pagewalk.Result {self.data['source']['name']}: {names}{state}>")

    def _repr_html_(self) -> str:
        from pagewalk.page import fragment

        return fragment(self)
