"""What a simulation found out."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pagewalk import files
from pagewalk.energy import Energy
from pagewalk.histograms import TOLD, Histogram
from pagewalk.intervals import Intervals
from pagewalk.quantities import count, significant, with_unit
from pagewalk.visible import visible

if TYPE_CHECKING:
    import polars

Json = dict[str, Any]


_OF_PARTS = {
    "dynamic": "Energy that accesses to this part of the machine took",
    "static": "Energy that leaked and ticked in this part of the machine",
}
OF_MIXES = {
    "weighted_speedup": "weighted speedup",
    "harmonic_speedup": "harmonic speedup",
    "antt": "ANTT",
}
"""What is told of a mix as a whole, in words."""
_OF_REQUESTS = ("requests", "cycles_per_request", "instructions_per_request")


@dataclass(frozen=True)
class Quantity:
    """One number of the summary, with what it means."""

    name: str
    value: float | None
    unit: str
    meaning: str = field(repr=False)


@dataclass(frozen=True)
class Statistic:
    """One counter of the simulated machine, with where it sits."""

    path: str
    name: str
    value: int
    unit: str
    meaning: str = field(repr=False)
    gauge: bool


@dataclass(frozen=True)
class Share:
    """Cycles that went to one cause."""

    cause: str
    cycles: float
    share: float


@dataclass(frozen=True)
class Sampling:
    """What periodic sampling estimates, and how sure it is."""

    samples: int
    ipc: float
    ipc_low: float
    ipc_high: float | None
    confidence: float


@dataclass(frozen=True)
class ProgramResult:
    """What one program of a mix did, up to the instructions or requests asked for.

    `cycles` are those from the start of the measured part until then; `ipc_alone` are the
    instructions a cycle of the program alone on the first design (of the same machine). `speedup`
    refers to that design in the same mix, `speedup_in_time` to the first one on the first machine,
    in seconds. `own` counts what the program did to the machine until then, `later` what it did
    while others were not done: misses, walks, page faults, cycles of cores. Memory is in bytes, at
    the end. ``pagewalk explain programs.NAME`` defines each number.
    """

    name: str
    instructions: int
    requests: int
    cycles: int | None
    ipc: float | None
    ipc_alone: float | None
    speedup: float | None
    speedup_in_time: float | None = None
    l1d_tlb_mpki: float | None = None
    l1i_tlb_mpki: float | None = None
    l2_tlb_mpki: float | None = None
    walk_cycles_mean: float | None = None
    mapped_4kb: int | None = None
    mapped_2mb: int | None = None
    mapped_1gb: int | None = None
    page_table_bytes: int | None = None
    own: dict[str, int] = field(default_factory=dict, repr=False)
    later: dict[str, int] = field(default_factory=dict, repr=False)

    @property
    def mapped(self) -> int | None:
        """Memory that its processes have mapped at the end, in bytes."""
        sizes = (self.mapped_4kb, self.mapped_2mb, self.mapped_1gb)
        return None if None in sizes else sum(size or 0 for size in sizes)

    def get(self, name: str) -> float | None:
        """A number by name, or a count of `own`; None where there is none."""
        found: float | None = getattr(self, name, None) if name != "name" else None
        return self.own.get(name) if found is None else found


@dataclass(frozen=True)
class MappedPage:
    """A page of a process: its virtual address, the physical one, and its size in bytes.

    Of a guest's process, `at` is where it lies in the guest's physical memory.
    """

    process: int
    address: int
    at: int
    bytes: int


def _mappings(rows: list[Json] | None) -> list[MappedPage] | None:
    return None if rows is None else [MappedPage(**row) for row in rows]


def _statistics(rows: list[Json]) -> list[Statistic]:
    return [
        Statistic(s["path"], s["name"], s["value"], s["unit"], s["meaning"], s["gauge"])
        for s in rows
    ]


@dataclass(frozen=True, repr=False)
class DesignResult:
    """The result of one design.

    `statistics` count the measured part. `since_boot` are those of the operating
    system and of the page tables since the machine booted: tables grow most while
    a program fills its memory, before the measured part. `histograms` tell how long
    walks, waiting for a walker, loads and page faults took.

    `speedup` compares cycles an instruction, or a request where `speedup_by` says so: the designs'
    programs then do not run the same instructions. A mix has `programs` and a `weighted_speedup`,
    the sum of each program's instructions a cycle over those of it alone on the first design; its
    `speedup` compares these sums, since designs do not have the same share of each program behind
    them when the slowest is done.

    `energy` says where the energy of the measured part went; `energy_ratio` is it relative to the
    first design, for an instruction or a request as `speedup_by` says.

    Where several machines were compared, `machine` says which one this is on, `design` is the
    name without it, and what is said above of the first design is said of the first on the same
    machine. `speedup_in_time` compares seconds, with the first design on the first machine.

    A mix has a `harmonic_speedup` and an `antt`, too, and `outside_programs`: what was done for
    none of its programs, which with all that they did adds up to the machine's counters.

    `translation_cost` is the share of the cycles that perfect TLBs would save for the same
    instructions, where that was measured and is defined: `Result.translation_reference`.
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
    intervals: Intervals = field(default_factory=Intervals)
    sampling: Sampling | None = None
    since_boot: list[Statistic] = field(default_factory=list)
    speedup_by: str = "instruction"
    programs: list[ProgramResult] = field(default_factory=list)
    weighted_speedup: float | None = None
    translation_cost: float | None = None
    histograms: list[Histogram] = field(default_factory=list)
    energy: Energy | None = None
    energy_ratio: float | None = None
    mappings: list[MappedPage] | None = None
    machine: str | None = None
    design: str = ""
    speedup_in_time: float | None = None
    harmonic_speedup: float | None = None
    antt: float | None = None
    outside_programs: dict[str, int] = field(default_factory=dict)

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
            intervals=Intervals.from_json(data.get("intervals")),
            sampling=Sampling(**data["sampling"]) if data.get("sampling") else None,
            speedup_by=data.get("speedup_by", "instruction"),
            programs=[ProgramResult(**p) for p in data.get("programs") or []],
            weighted_speedup=data.get("weighted_speedup"),
            translation_cost=data.get("translation_cost"),
            histograms=[Histogram.from_json(h) for h in data.get("histograms") or []],
            energy=Energy.from_json(data.get("energy")),
            energy_ratio=data.get("energy_ratio"),
            mappings=_mappings(data.get("mappings")),
            machine=data.get("machine"),
            design=data.get("design") or data["name"],
            speedup_in_time=data.get("speedup_in_time"),
            harmonic_speedup=data.get("harmonic_speedup"),
            antt=data.get("antt"),
            outside_programs=data.get("outside_programs") or {},
        )

    @property
    def complete(self) -> bool:
        """Whether the design ran to its limits."""
        return self.status == "complete"

    @property
    def failed(self) -> bool:
        """Whether the design came to an end that nobody asked for, such as out of memory."""
        return self.status not in ("complete", "partial")

    @property
    def told(self) -> list[Quantity]:
        """The summary without what there is none of: numbers of requests of a program without."""
        return [q for q in self.quantities if q.value is not None or q.name not in _OF_REQUESTS]

    @property
    def cost(self) -> float | None:
        """Cycles an instruction, or a request where `speedup_by` says so."""
        cycles, work = self.get("cycles"), self.get(f"{self.speedup_by}s")
        return cycles / work if cycles and work else None

    def get(self, name: str) -> float | None:
        """A number of the summary by name, or None."""
        return next((q.value for q in self.quantities if q.name == name), None)

    def __getitem__(self, name: str) -> float:
        value = self.get(name)
        if value is None:
            raise KeyError(_unknown("number", name, "the summary", [q.name for q in self.told]))
        return value

    def __repr__(self) -> str:
        told = [] if self.complete else [self.status.replace("_", " ")]
        told += [
            f"{name} {with_unit(value, unit)}"
            for name, unit in _TOLD.items()
            if (value := self.get(name)) is not None
        ]
        if self.speedup is not None:
            told.append(f"speedup {significant(self.speedup)}")
        if self.translation_cost is not None:
            told.append(f"translation costs {significant(100 * self.translation_cost)} %")
        return visible(f"<pagewalk.DesignResult {self.name}: {', '.join(told)}>")

    def _repr_html_(self) -> str:
        from html import escape

        rows = "".join(
            f'<tr title="{escape(q.meaning)}"><th>{escape(q.name)}</th>'
            f"<td>{escape(with_unit(q.value, q.unit))}</td><td>{escape(q.unit)}</td></tr>"
            for q in self.told
        )
        return f"<table><caption>{escape(visible(self.name))}</caption>{rows}</table>"


_TOLD = {"ipc": "", "l2_tlb_mpki": "", "walks": "", "walk_cycles_mean": "", "cycles": ""}
"""What is shown of a design on one line."""


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


def _unknown(kind: str, name: object, where: str, names: list[str]) -> str:
    from pagewalk import native

    near = native.nearest(str(name), names)
    hint = f"did you mean '{near}'? " if near else ""
    return f"no {kind} '{name}' in {where}; {hint}there are {', '.join(names)}"


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
    def translation_reference(self) -> Json | None:
        """The design that `DesignResult.translation_cost` compares with.

        Its ``name``, its ``cycles`` and its ``cycles_per_instruction``; None where that was not
        asked for, or is not defined. It need not be among `designs`. Of several machines it is
        that of the first; ``data["translation_references"]`` has each one's.
        """
        several: list[Json] = self.data.get("translation_references") or [None]
        reference: Json | None = self.data.get("translation_reference", several[0])
        return reference

    @property
    def machines(self) -> list[str]:
        """The machines that were compared, in order; empty where there was one."""
        return list(dict.fromkeys(d.machine for d in self.designs if d.machine is not None))

    @property
    def on_each(self) -> list[list[DesignResult]]:
        """The designs of each machine."""
        machines: list[str | None] = [*self.machines] or [None]
        return [[d for d in self.designs if d.machine == machine] for machine in machines]

    @property
    def reference(self) -> str:
        """In words, what speedups and energies refer to."""
        first = self.designs[0]
        return f"{first.design} on the same machine" if self.machines else first.name

    @property
    def speedup_by(self) -> str:
        """What speedups compare the cycles of: an ``instruction`` or a ``request``."""
        return self.designs[0].speedup_by

    @property
    def speedup_kind(self) -> str:
        """In words, where it is not cycles an instruction that speedups compare."""
        if self.designs[0].programs:
            return "weighted"
        return "by requests" if self.speedup_by == "request" else ""

    @property
    def per(self) -> str:
        """What `cost` is for, with its article, for titles."""
        return "a request" if self.speedup_by == "request" else "an instruction"

    @property
    def facts(self) -> list[str]:
        """On what machine, and which part of the program, in words."""
        limits = self.data["limits"]
        several = self.machines
        machine = f"machines {', '.join(several)}" if several else self.data["machine"]
        facts = [machine if several else f"machine {machine}", f"seed {self.data['seed']}"]
        for key, what in (("skip", "skipped"), ("warmup", "warm-up")):
            for name, unit in ((key, "instructions"), (f"{key}_requests", "requests")):
                if limits.get(name):
                    facts.append(f"{what} {count(limits[name])} {unit}")
        if limits.get("roi"):
            facts.append("region of interest")
        return facts

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

    def __getitem__(self, design: str | tuple[str, str]) -> DesignResult:
        """A design's result by its name; of several machines by machine and design."""
        for result in self.designs:
            if design in (result.name, (result.machine, result.design)):
                return result
        raise KeyError(_unknown("design", design, "this result", [d.name for d in self.designs]))

    def _key(self, design: DesignResult) -> dict[str, str | None]:
        """The first columns of frames: which design it is, and on which of several machines."""
        machine = {"machine": design.machine} if self.machines else {}
        return {**machine, "design": design.design or design.name}

    def _keys(self, designs: list[DesignResult]) -> dict[str, polars.Series]:
        """These columns, a row a design."""
        import polars

        keys = [self._key(d) for d in designs]
        return {
            name: polars.Series([key[name] for key in keys], dtype=polars.String)
            for name in self._key(self.designs[0])
        }

    @cached_property
    def summary(self) -> polars.DataFrame:
        """One row a design, a column a number of the summary.

        Numbers are Float64, null where a design has none; the columns are the same for every
        run: `weighted_speedup`, `harmonic_speedup` and `antt` are those of a mix,
        `translation_cost` is there where measured. Of several machines there is a row a machine
        and design, with the column machine first.
        """
        import polars

        from pagewalk import native

        across = ("speedup_in_time",) if self.machines else ()
        own = ("speedup", *across, "energy_ratio", *OF_MIXES, "translation_cost")
        # Also where no design has reached the measured part.
        names = dict.fromkeys(native.metrics(len(self.machines)))
        names |= dict.fromkeys(q.name for d in self.designs for q in d.quantities)
        return polars.DataFrame(
            {
                **self._keys(self.designs),
                "status": polars.Series([d.status for d in self.designs], dtype=polars.String),
                **{
                    name: polars.Series(
                        [_float(getattr(d, name)) for d in self.designs], dtype=polars.Float64
                    )
                    for name in own
                },
                **{
                    name: polars.Series(
                        [_float(d.get(name)) for d in self.designs], dtype=polars.Float64
                    )
                    for name in names
                },
            }
        )

    @cached_property
    def programs(self) -> polars.DataFrame:
        """One row a program of a mix and design; empty where there is one program."""
        import polars

        text, whole, real = polars.String(), polars.Int64(), polars.Float64()
        key = dict.fromkeys(self._key(self.designs[0]), text)
        numbers = {
            **dict.fromkeys(("instructions", "requests", "cycles"), whole),
            **dict.fromkeys(("ipc", "ipc_alone", "speedup"), real),
            **({"speedup_in_time": real} if self.machines else {}),
            "core_cycles": whole,
            **dict.fromkeys(("l1d_tlb_mpki", "l1i_tlb_mpki", "l2_tlb_mpki"), real),
            **dict.fromkeys(("walks", "walk_cycles"), whole),
            "walk_cycles_mean": real,
            **dict.fromkeys(("page_faults", "fault_cycles"), whole),
            **dict.fromkeys(("mapped_4kb", "mapped_2mb", "mapped_1gb", "page_table_bytes"), whole),
        }
        rows = [
            (*self._key(d).values(), p.name, *(p.get(name) for name in numbers))
            for d in self.designs
            for p in d.programs
        ]
        return polars.DataFrame(rows, schema={**key, "program": text, **numbers}, orient="row")

    def frame(self) -> polars.DataFrame:
        """One row a statistic and design: every counter, the summary, energy and the histograms.

        Columns: design, path, name, value, unit, gauge, meaning. The numbers
        of the summary have the path ``summary``; those of a histogram are named
        ``walk_latency.p99`` and so on, with count, mean and largest. The energy of a part of the
        machine has a path such as ``energy.mmu.l2.main``, named ``dynamic`` and ``static``. Of
        several machines, a column machine comes first.
        """
        import polars

        rows: list[tuple[Any, ...]] = [
            (d.name, "summary", q.name, q.value, q.unit, True, q.meaning)
            for d in self.designs
            for q in d.quantities
        ] + [
            (d.name, s.path, s.name, s.value, s.unit, s.gauge, s.meaning)
            for d in self.designs
            for s in d.statistics
        ]
        rows += [
            (
                *(d.name, h.path, f"{h.name}.{part}", getattr(h, part)),
                *("values" if part == "count" else h.unit, False, h.meaning),
            )
            for d in self.designs
            for h in d.histograms
            for part in TOLD
        ]
        rows += [
            (d.name, f"energy.{p.part}", name, value, "nJ", False, _OF_PARTS[name])
            for d in self.designs
            for p in (d.energy.parts if d.energy else [])
            for name, value in (("dynamic", p.dynamic_nj), ("static", p.static_nj))
        ]
        keys = {d.name: tuple(self._key(d).values()) for d in self.designs}
        rows = [(*keys[name], *rest) for name, *rest in rows]
        schema = {
            **dict.fromkeys(self._key(self.designs[0]), polars.String()),
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

    def histograms(self) -> polars.DataFrame:
        """One row a bucket of a histogram and design; buckets without values have none.

        Columns: design, path, name, low, high, count, unit: `count` values were seen from `low` to
        `high`. Paths that begin with ``cores`` stand for all cores together.
        """
        import polars

        schema = {
            **dict.fromkeys(self._key(self.designs[0]), polars.String()),
            "path": polars.String(),
            "name": polars.String(),
            "low": polars.UInt64(),
            "high": polars.UInt64(),
            "count": polars.UInt64(),
            "unit": polars.String(),
        }
        rows = [
            (*self._key(d).values(), h.path, h.name, *bucket, h.unit)
            for d in self.designs
            for h in d.histograms
            for bucket in h.buckets
        ]
        return polars.DataFrame(rows, schema=schema, orient="row")

    def intervals(self) -> polars.DataFrame:
        """One row an interval and design; empty without ``interval=``.

        `first_instruction` says where in the measured part an interval begins, `instructions` and
        `cycles` how long it is; one that is not `complete` was cut by the end. The other
        columns are the numbers of the summary, all counters by path and name, and what is told of
        histograms: ``ipc``, ``core.0.mmu.walks``, ``core.0.mmu.walk_latency.p99``. On several
        cores ``cores.mmu.walks`` is the sum over them. Counts are Int64 and numbers of the
        summary Float64, null where a design has none; ``polars.concat(…, how="diagonal")`` puts
        those of several runs together.
        """
        import polars

        # Also of designs without any, so that the first columns are always there.
        frames = []
        for d in self.designs:
            columns = self._keys([d] * len(d.intervals))
            for name, values in d.intervals.columns().items():
                if name == "complete":
                    columns[name] = polars.Series(values, dtype=polars.Boolean)
                elif name in d.intervals.values and name not in ("instructions", "cycles"):
                    numbers = [_float(value) for value in values]
                    columns[name] = polars.Series(numbers, dtype=polars.Float64)
                else:
                    columns[name] = polars.Series(values, dtype=polars.Int64)
            frames.append(polars.DataFrame(columns))
        return polars.concat(frames, how="diagonal")

    def to_json(self) -> str:
        """Everything, as one JSON text."""
        return json.dumps(self.data, indent=1) + "\n"

    def write_json(self, path: str) -> None:
        """Writes everything as JSON."""
        files.write(path, self.to_json().encode())

    def write_parquet(self, path: str) -> list[str]:
        """Writes `frame` as Parquet; `intervals` and `programs` beside it where there are any.

        Configuration, seed, version and host speed are in the file's metadata
        under ``pagewalk``. Returns the paths written.
        """
        about = {key: value for key, value in self.data.items() if key != "designs"}
        about["configs"] = {d.name: d.config for d in self.designs}
        tables = [(path, self.frame())]
        stem = path.removesuffix(".parquet")
        if any(len(d.intervals) for d in self.designs):
            tables.append((f"{stem}.intervals.parquet", self.intervals()))
        if any(d.programs for d in self.designs):
            tables.append((f"{stem}.programs.parquet", self.programs))
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

    def write_figure(self, path: str, chart: str | None = None) -> None:
        """Writes a chart for a column of a paper as SVG, PDF or PNG, by the ending of `path`.

        `chart` is ``speedup``, ``speedup-in-time`` of several machines, ``cycles``, ``energy``,
        ``times``, a number of the summary, or one with ``-over-time`` where there are intervals;
        without it the speedup, or of one design the cycles.
        """
        from pagewalk import figures

        figures.write(self, path, chart)

    def __repr__(self) -> str:
        state = ", partial" if self.partial else ""
        names = ", ".join(d.name for d in self.designs)
        return visible(f"<pagewalk.Result {self.data['source']['name']}: {names}{state}>")

    def _repr_html_(self) -> str:
        from pagewalk.page import fragment

        return fragment(self)
