"""The columns of the terminal's tables, each declared once.

A new column here needs no other code: its drawing and its unit follow from its declaration. In a
narrow terminal it gives way to more important columns. A test checks that ``pagewalk explain``
explains it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from pagewalk.measurements import histograms
from pagewalk.measurements.energy import GROUPS
from pagewalk.view.escape import visible
from pagewalk.view.quantities import COUNTS, JOULES, NANOSECONDS, SIZES, Scale, significant

if TYPE_CHECKING:
    from pagewalk.measurements.design import DesignResult, ProgramResult
    from pagewalk.result import Result

Row = TypeVar("Row")

ALWAYS = 0
"""Importance of columns that stay in the narrowest terminal."""


@dataclass(frozen=True)
class Column(Generic[Row]):
    """A column of a table.

    `name` is its name in ``pagewalk explain``, and `title` has its short lines above the numbers.
    In a narrow terminal, columns of the largest `importance` go first. `unit` is the scale whose
    unit all numbers share, or the formatter of a number. `term` and `meaning` stand in the legend.
    """

    name: str
    title: str
    importance: int
    value: Callable[[Row], float | None]
    unit: Scale | Callable[[float], str] = significant
    term: str = ""
    meaning: str = ""

    def filled(self, rows: Iterable[Row]) -> Filled:
        """The column over these rows."""
        values = [self.value(row) for row in rows]
        there = [value for value in values if value is not None]
        unit, write = self.unit.common(there) if isinstance(self.unit, Scale) else ("", self.unit)
        title = f"{self.title}\n({unit})" if unit else self.title
        cells = ["–" if value is None else write(value) for value in values]
        return Filled(title, cells, self.importance, bool(there))


@dataclass(frozen=True)
class Filled:
    """A column as texts: title and cells; `known` is true if it has a number."""

    title: str
    cells: list[str]
    importance: int = ALWAYS
    known: bool = True


def words(name: str) -> str:
    """A number's name as a title has it: ``l2_tlb_mpki`` is L2 TLB MPKI."""
    capitals = {"l0d", "l1d", "l1i", "l2", "l3", "l4", "tlb", "mpki", "ipc", "dram"}
    return " ".join(word.upper() if word in capitals else word for word in name.split("_"))


def ratio(value: float) -> str:
    """A number that is compared with 1."""
    return f"{value:.3f}"


def _percent(value: float) -> str:
    return f"{value * 100:.1f}"


def _of(name: str) -> Callable[[DesignResult], float | None]:
    return lambda design: design.get(name)


def _translation_cost(design: DesignResult) -> float | None:
    return design.translation_cost


def _kernel_share(design: DesignResult) -> float | None:
    return design.kernel_share if design.cycle_stack else None


_KERNEL: Column[DesignResult] = Column(
    "kernel", "kernel\n(% of cycles)", 2, _kernel_share, _percent
)
_MATTERS_FROM = 0.01
"""Least share of the kernel in a design's cycles from which a table has its column."""
_MPKI = ("MPKI", "misses for 1000 instructions")


def comparison(result: Result) -> list[Column[DesignResult]]:
    """Columns of `compare`'s table of designs, in order."""
    by_requests = result.speedup_by == "request"
    kind = f",\n{result.speedup_kind}" if result.speedup_kind else ""
    columns: list[Column[DesignResult]] = [
        Column(
            *("speedup", f"speedup{kind}", ALWAYS, lambda design: design.speedup, ratio),
            *("speedup", f"over {result.reference}"),
        ),
        *_across(result),
        Column(
            *("translation_cost", "translation\n(% of cycles)", 1, _translation_cost, _percent),
            *("translation", "cycles that perfect TLBs would save"),
        ),
        *([_KERNEL] if any(d.kernel_share >= _MATTERS_FROM for d in result.designs) else []),
        Column("ipc", "IPC", 2, _of("ipc"), significant, "IPC", "instructions a cycle"),
        Column("requests", "requests", 10, _of("requests"), COUNTS),
        Column(
            *("cycles_per_request", "cycles\na request", 1 if by_requests else 9),
            _of("cycles_per_request"),
        ),
        Column("l1d_tlb_mpki", "L1 TLB\nMPKI", 5, _of("l1d_tlb_mpki"), significant, *_MPKI),
        Column("l2_tlb_mpki", "L2 TLB\nMPKI", 3, _of("l2_tlb_mpki"), significant, *_MPKI),
        Column("walks", "walks", 8, _of("walks"), COUNTS),
        Column("walk_cycles_mean", "cycles\na walk", 4, _of("walk_cycles_mean")),
        Column("walk_reads_per_walk", "reads\na walk", 6, _of("walk_reads_per_walk")),
        Column("page_faults", "page\nfaults", 11, _of("page_faults"), COUNTS),
        Column("page_table_bytes", "page\ntables", 7, _of("page_table_bytes"), SIZES),
        Column(
            "largest_contiguous_bytes", "largest\nblock", 12, _of("largest_contiguous_bytes"), SIZES
        ),
    ]
    return columns


def _across(result: Result) -> list[Column[DesignResult]]:
    """Columns that compare several machines; none for a single one."""
    if not result.machines:
        return []

    def nanoseconds(design: DesignResult) -> float | None:
        seconds = design.get("seconds")
        return None if seconds is None else seconds * 1e9

    def in_time(design: DesignResult) -> float | None:
        return design.speedup_in_time

    first = f"in seconds, over {result.designs[0].name}"
    speedup = Column(
        "speedup_in_time", "speedup\nin time", ALWAYS, in_time, ratio, "in time", first
    )
    # A mix has no speedup in time.
    known = any(design.speedup_in_time is not None for design in result.designs)
    return [
        *([speedup] if known else []),
        Column("seconds", "time", 1, nanoseconds, NANOSECONDS),
        Column("cycles", "cycles", 6, _of("cycles"), COUNTS),
        Column(
            *("walk_cycles_per_instruction", "walk cycles\nan instr.", 3),
            _of("walk_cycles_per_instruction"),
        ),
    ]


def programs(designs: Iterable[DesignResult]) -> list[Column[ProgramResult]]:
    """Columns of the programs of a mix, each up to its own limit."""
    of_all = [p for d in designs for p in d.programs]

    def of(name: str) -> Callable[[ProgramResult], float | None]:
        return lambda program: program.get(name)

    def huge(program: ProgramResult) -> float | None:
        if not program.mapped:
            return None
        return 100 * ((program.mapped_2mb or 0) + (program.mapped_1gb or 0)) / program.mapped

    listed = [
        Column("programs.l1d_tlb_mpki", "L1 TLB\nMPKI", 4, of("l1d_tlb_mpki"), significant, *_MPKI),
        Column("programs.l2_tlb_mpki", "L2 TLB\nMPKI", 1, of("l2_tlb_mpki"), significant, *_MPKI),
        Column("programs.walks", "walks", 6, of("walks"), COUNTS),
        Column("programs.walk_cycles_mean", "cycles\na walk", 2, of("walk_cycles_mean")),
        Column("programs.page_faults", "page\nfaults", 7, of("page_faults"), COUNTS),
        Column("programs.core_cycles", "cycles\nof cores", 5, of("core_cycles"), COUNTS),
        Column("programs.mapped_4kb", "mapped", 3, of("mapped"), SIZES),
        Column("programs.mapped_2mb", "in huge\npages (%)", 8, huge),
        Column("programs.page_table_bytes", "page\ntables", 3, of("page_table_bytes"), SIZES),
    ]
    # Results of before these were counted have none.
    return [c for c in listed if any(c.value(p) is not None for p in of_all)]


PARTS = {
    "count": "number",
    "mean": "mean",
    "p50": "50 %",
    "p90": "90 %",
    "p99": "99 %",
    "largest": "largest",
}
"""Titles of the reported numbers of a histogram."""
_MATTERS = ("walk_latency", "load_to_use", "fault_cost", "walker_wait")
"""Histograms, the most important first."""


def times(result: Result) -> list[Column[DesignResult]]:
    """Median, 99th percentile and largest value of each histogram that a design has."""
    listed = [h for d in result.designs for h in histograms.reported(d.histograms)]
    labels = {histograms.label(h): h.name for h in listed}

    def of(label: str, part: str) -> Callable[[DesignResult], float | None]:
        def value(design: DesignResult) -> float | None:
            own = (
                h for h in histograms.reported(design.histograms) if histograms.label(h) == label
            )
            found = next(own, None)
            return None if found is None else getattr(found, part)

        return value

    return [
        Column(
            name,
            f"{_broken(visible(label))}\n{PARTS[part]}",
            1 + rank * len(labels) + (_MATTERS.index(name) if name in _MATTERS else len(_MATTERS)),
            of(label, part),
        )
        for label, name in labels.items()
        for rank, part in ((1, "p50"), (0, "p99"), (2, "largest"))
    ]


def _broken(label: str) -> str:
    """A label in two lines if its first word is long."""
    return label.replace("load-to-use ", "load-to-use\n")


def histogram() -> list[Column[histograms.Histogram]]:
    """Columns of `run`'s table of histograms."""

    def of(part: str) -> Callable[[histograms.Histogram], float | None]:
        return lambda histogram: getattr(histogram, part)

    importance = {"count": 4, "mean": 2, "p50": ALWAYS, "p90": 3, "p99": ALWAYS, "largest": 1}
    # Counts differ by too much for a common unit.
    return [
        Column(
            part, title, importance[part], of(part), COUNTS.own if part == "count" else significant
        )
        for part, title in PARTS.items()
    ]


def energies(result: Result) -> list[Column[DesignResult]]:
    """Energy, relative to the first design, and the energy of each kind of part."""

    def of(name: str) -> Callable[[DesignResult], float | None]:
        return lambda design: getattr(design.energy, name) if design.energy else None

    def group(name: str) -> Callable[[DesignResult], float | None]:
        return lambda design: design.energy.groups.get(name) if design.energy else None

    there: Sequence[str] = [
        g for g in GROUPS if any(d.energy and g in d.energy.groups for d in result.designs)
    ]
    importance = {"tlbs": 2, "walk_caches": 3, "dram": 4, "core": 5, "caches": 5}
    return [
        Column("energy", "energy", ALWAYS, of("total_nj"), JOULES),
        Column("energy_ratio", "over the\nfirst", ALWAYS, lambda d: d.energy_ratio, ratio),
        Column("dynamic_energy", "dynamic", 7, of("dynamic_nj"), JOULES),
        Column("static_energy", "static", 8, of("static_nj"), JOULES),
        *(
            Column(g, GROUPS[g].replace(" ", "\n"), importance.get(g, 6), group(g), JOULES)
            for g in there
        ),
    ]


def legend(columns: Iterable[Column[Row]], shown: Sequence[str]) -> list[tuple[str, str]]:
    """The terms of these columns with their meanings, and the prefixes (K, M, G) in use."""
    listed = list(columns)
    terms = {column.term: column.meaning for column in listed if column.term}
    titles = "\n".join(shown)
    for unit, meaning in (("K", "thousands"), ("M", "millions"), ("G", "billions")):
        if f"({unit})" in titles:
            terms[unit] = meaning
    return list(terms.items())


def together(columns: Iterable[Column[Row]]) -> list[str]:
    """The columns in words; those of one quantity as one: walk latency (50 %, largest)."""
    titles: dict[str, list[list[str]]] = {}
    for column in columns:
        titles.setdefault(column.name, []).append(column.title.split("\n"))
    return [
        " ".join(lines[0])
        if len(lines) == 1
        else f"{' '.join(lines[0][:-1])} ({', '.join(of[-1] for of in lines)})"
        for lines in titles.values()
    ]
