"""The programs in the paper's order, speedups, means and ranks, for all figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from pagewalk.reproduce import Design, Lines, Means, Outcome, Panel, Paper, Row, Runs

from .printed import Said

if TYPE_CHECKING:
    from pagewalk.reproduce.figure import Results

APPLICATIONS = ("BC", "BFS", "CC", "GC", "PR", "TC", "SP", "XS", "RND", "DLRM", "GEN")
"""Table 2."""
HASHES = 6
"""Table 1: N = 6 hash functions unless otherwise specified."""
PRESSURES = (0, 20, 40, 60, 80, 100)
"""Per cent of the frames that the hash may not take (figures 13 and 15)."""

DENIED = "placement.tiered_hash.denied"
TIERS = "placement.tiered_hash.tiers"
TABLES = "placement.tiered_hash.page_tables"
FILTER = "engine.revelator.filter"
DEGREE = "engine.revelator.degree"
OCCUPIED = "os.occupied"
WHAT = "engine.revelator.what"

PRESSURE = (
    "Pressure is the share p of the frames that the hash alone may not take, so that the program "
    "has its memory at any pressure. Of N hash functions one or more is then free with a "
    "probability of 1 - p^N. "
)
SCENARIOS = (
    "Low (high) fragmentation: 75 % (15 %) of the requests for 2 MB blocks are served. Low (high) "
    "pressure of Revelator: its hash may take 75 % (15 %) of the frames. "
)

Value = Callable[[Outcome], float | None]


def pressure_panels(mean_title: str, title: str) -> tuple[Panel, ...]:
    """Lines over the pressure: the mean of the programs, then each of them."""
    axis = "pressure, % of the frames"
    each = (Panel(Lines(axis, title), app, app) for app in APPLICATIONS)
    return Panel(Lines(axis, mean_title), "", "Mean of the programs"), *each


def ipc(outcome: Outcome) -> float | None:
    """Instructions a cycle; none of a run that came to an end."""
    return None if outcome.failed else outcome.get("ipc")


@dataclass(frozen=True)
class Compared:
    """A figure's comparison of designs, each over a base with the same program."""

    runs: Runs
    results: Results
    apps: Sequence[str]

    def value(self, app: str, design: str, read: Value) -> float | None:
        """A number of a run."""
        return read(self.results(self.runs[app, design]))

    def why(self, app: str, *designs: str) -> str:
        """The reason if some of these runs have no numbers; else empty."""
        found = (self.results(self.runs[app, design]).why for design in designs)
        return next((why for why in found if why), "")

    def ratio(self, app: str, design: str, base: str, read: Value = ipc) -> float | None:
        """A design's number over that of the base."""
        own, other = self.value(app, design, read), self.value(app, base, read)
        return own / other if own is not None and other else None

    def saved(self, app: str, design: str, base: str, read: Value) -> float | None:
        """The reduction of a design's number relative to the base, in per cent."""
        ratio = self.ratio(app, design, base, read)
        return None if ratio is None else 100 * (1 - ratio)

    def speedup(self, design: str, base: str) -> Means:
        """Mean speedups over the programs."""
        return Means.of(self.ratio(app, design, base) for app in self.apps)


def mean_row(
    series: str, means: Means, said: Said | None = None, *, group: str = "GMean", panel: str = ""
) -> Row:
    """The geometric mean of speedups beside the paper's average, with the arithmetic one."""
    note = f"arithmetic mean {means.arithmetic:.4f}" if means.arithmetic is not None else ""
    if said is None:
        return Row(group, series, means.geometric, note=note, average=True, panel=panel)
    return said.row(group, series, means.geometric, note=note, average=True, panel=panel)


def speedups(
    found: Compared,
    designs: Iterable[str],
    said: Mapping[str, Said],
    *,
    base: str | Callable[[str], str] = "Radix",
    panel: str = "",
) -> tuple[list[Row], dict[str, float | None]]:
    """A bar for each program and design and their means; and the means by design.

    `base` is what speedups refer to, or gives it for a design.
    """
    over = base if callable(base) else lambda _design: base
    designs = list(designs)
    rows = [
        Row(
            app, design, found.ratio(app, design, over(design)),
            failed=found.why(app, design, over(design)), panel=panel,
        )
        for app in found.apps
        for design in designs
    ]  # fmt: skip
    means = {design: found.speedup(design, over(design)) for design in designs}
    rows += [mean_row(design, of, said.get(design), panel=panel) for design, of in means.items()]
    return rows, {design: of.geometric for design, of in means.items()}


def over(found: Compared, faster: str, slower: str, said: Said | None) -> Row:
    """The mean speedup of one design over another."""
    name = f"{faster} over {slower}"
    return mean_row("", found.speedup(faster, slower), said, group=name, panel="text")


def ordered(
    means: Mapping[str, float | None], names: Sequence[str], place: str, deviation: str = ""
) -> Row:
    """The number of neighbours in a list that stand in the paper's order, the slowest first."""
    values = [means.get(name) for name in names]
    pairs = list(pairwise(values))
    known = all(value is not None for value in values)
    right = sum(a <= b for a, b in pairs if a is not None and b is not None)
    listed = ", ".join(
        f"{name} {value:.4f}"
        for name, value in zip(names, values, strict=True)
        if value is not None
    )
    return Row(
        "pairs of neighbours in the paper's order, slowest first: " + " < ".join(names), "",
        float(right) if known else None, float(len(pairs)), "", place, listed, panel="text",
        average=True, tolerance=0.0, deviation=deviation,
    )  # fmt: skip


def revelator(paper: Paper, label: str, changes: Mapping[str, object]) -> Design:
    """Revelator with some keys changed."""
    return paper.designs["Revelator"].changed(label, dict(changes))


def denied(design: Design) -> float:
    """The share of the frames that a design of the paper's file denies to its hash."""
    share: float = design.changed(design.label, {}).changes["placement"]["tiered_hash"]["denied"]
    return share


def swept(paper: Paper) -> tuple[str, ...]:
    """The programs of figures with many settings: as many as the scale has room for."""
    return tuple(getattr(paper, "sweep", ())) or APPLICATIONS
