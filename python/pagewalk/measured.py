"""What a simulation measured of one design."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pagewalk.energy import Energy
from pagewalk.histograms import Histogram
from pagewalk.intervals import Intervals
from pagewalk.quantities import significant, with_unit
from pagewalk.visible import visible

Json = dict[str, Any]

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
class Interval:
    """A number, and between which ends it lies with the confidence of its `Sampling`."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class WarmingError:
    """How wrong samples may be because the program was passed over before them.

    In cycles an instruction: what would go if all misses that might have been hits were, and come
    if all hits that might have been misses were. `unknown` has both for 1000 instructions, hits
    first, by what looked them up.
    """

    cpi_below: float
    cpi_above: float
    unknown: dict[str, list[float]] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class Sampling:
    """What sampling estimates, and how sure it is.

    `metrics` has the interval of every number of the summary that does not grow with the length of
    the run; `speedup` that of the design's speedup, None for the first design.
    """

    samples: int
    ipc: float
    ipc_low: float
    ipc_high: float | None
    confidence: float
    warming: WarmingError | None = None
    metrics: dict[str, Interval] = field(default_factory=dict, repr=False)
    speedup: Interval | None = None

    @classmethod
    def read(cls, found: Json) -> Sampling:
        """That of a result."""
        speedup, warming = found.get("speedup"), found.get("warming")
        metrics = {name: Interval(**one) for name, one in found.get("metrics", {}).items()}
        return cls(
            **{
                **found,
                "metrics": metrics,
                "speedup": speedup and Interval(**speedup),
                "warming": warming and WarmingError(**warming),
            },
        )


@dataclass(frozen=True)
class MeasuredRegion:
    """What one region of a trace measured; `at` and `weight` are those asked for."""

    at: int
    weight: float
    instructions: int
    requests: int
    cycles: int


@dataclass(frozen=True)
class Regions:
    """What a design's numbers are made of where regions stand for a whole trace.

    `error_bound` is always None: nothing says how far the whole is from its regions. `warming` is
    what is not known of caches and TLBs when a region begins, None where that is nothing.
    """

    regions: list[MeasuredRegion]
    error_bound: None = None
    warming: WarmingError | None = None

    @classmethod
    def read(cls, found: Json) -> Regions:
        """Those of a result."""
        warming = found.get("warming")
        regions = [MeasuredRegion(**one) for one in found["regions"]]
        return cls(regions, found["error_bound"], warming and WarmingError(**warming))


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

    Where `regions` of a trace stand for the whole, all counts are those of as many instructions as
    the regions have, to which each contributes by its weight; no error bound is known.

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
    regions: Regions | None = None

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
            sampling=Sampling.read(data["sampling"]) if data.get("sampling") else None,
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
            regions=Regions.read(data["regions"]) if data.get("regions") else None,
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
            raise KeyError(unknown("number", name, "the summary", [q.name for q in self.told]))
        return value

    def __repr__(self) -> str:
        told = [] if self.complete else [self.status.replace("_", " ")]
        told += [
            f"{name} {with_unit(value, '')}"
            for name in _TOLD
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


_TOLD = ("ipc", "l2_tlb_mpki", "walks", "walk_cycles_mean", "cycles")
"""What is shown of a design on one line."""


def unknown(kind: str, name: object, where: str, names: list[str]) -> str:
    """What is said of a name that there is not."""
    from pagewalk import native

    near = native.nearest(str(name), names)
    hint = f"did you mean '{near}'? " if near else ""
    return f"no {kind} '{name}' in {where}; {hint}there are {', '.join(names)}"
