"""A case of the figures, its run, and the numbers of its outcome."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from math import exp
from math import pow as power

from pagewalk.reproduce import Design, Means, Outcome, Paper, Row, Run, Runs
from pagewalk.reproduce.figure import Results

from .printed import Said

PROGRAMS = ("Redis", "umap", "dhash", "map", "btree")
KERNELS = PROGRAMS[1:]
HASHED, TREES = ("umap", "dhash"), ("map", "btree")
DISTRIBUTIONS = {"zipf": "scrambled", "latest": "latest", "uniform": "uniform"}
"""The program's names: YCSB's `requestdistribution=zipfian` is the scrambled one."""
VALUES = (64, 128, 256)
SIZES = (16, 32, 64, 128, 256, 512)
"""MB of an STLT, with the paper's keys."""
TABLES = {
    "Original": ("Original", "none"),
    "SLB": ("Original", "slb"),
    "STLT-SW": ("Original", "stlt-sw"),
    "STLT-VA": ("STLT-VA", "stlt"),
    "STLT": ("STLT", "stlt"),
}
"""The design and the program's shortcut."""
MB = 1 << 20
ROW_BYTES = 16
KEYS, EARLIER = 10_000_000, 80_000_000
"""Section IV-A: keys, and requests before those that are measured."""
SLB_OF_STLT = 20
"""Section IV-B: an SLB of 10 GB beside an STLT of 512 MB."""
SLB_SAME_ENTRIES = 2.5
"""Figure 14: for the same number of entries."""

SCALED = (
    "Sizes are those with 10 million keys; with fewer keys tables are smaller in proportion, so "
    "that there are as many bytes a key. "
)


@dataclass(frozen=True)
class Case:
    """A bar or point: a program, the table in front of it, and its requests."""

    program: str
    table: str
    distribution: str = "zipf"
    value: int = 64
    megabytes: int = 512
    ways: int = 4
    fast_hash: str = "xxh3"
    slb: float = SLB_OF_STLT
    """Size of an SLB, of an STLT's."""
    design: str = ""
    """Another than the table's."""
    params: tuple[tuple[str, str], ...] = ()
    keys: tuple[tuple[str, object], ...] = field(default=())
    """Configuration keys that are changed."""
    fewer: int = 0
    """Factor by which the keys are fewer than in the paper; 0 takes the scale's."""

    def of(self, **changes: object) -> Case:
        """The same case with some fields changed."""
        return replace(self, **changes)  # type: ignore[arg-type]

    @property
    def base(self) -> Case:
        """The base of its speedup: the same case without a table."""
        keys = tuple(key for key in self.keys if not key[0].startswith("shortcut."))
        # Requests before leave nothing without a table, but for Redis's buckets.
        params = tuple(param for param in self.params if param[0] != "earlier")
        return self.of(
            table="Original", megabytes=512, ways=4, fast_hash="xxh3", slb=SLB_OF_STLT, design="",
            params=params, keys=keys,
        )  # fmt: skip


def run(paper: Paper, case: Case) -> Run:
    """The simulation of a case."""
    shortcut = TABLES[case.table][1]
    fewer = case.fewer or int(getattr(paper, "fewer"))  # noqa: B009 (own class)
    keys = KEYS // fewer
    size = case.megabytes * MB // fewer
    params: dict[str, object] = {
        "keys": keys, "earlier": EARLIER // fewer,
        "distribution": DISTRIBUTIONS.get(case.distribution, case.distribution),
        "value": case.value, "shortcut": shortcut,
    }  # fmt: skip
    held = 200 * keys + (300 << 20)
    if case.program == "Redis":
        # Data validation and conversions are excluded (section IV-A).
        params["request"] = "lookup"
    if shortcut != "none":
        params["fast_hash"] = case.fast_hash
    if shortcut == "slb":
        params["shortcut_size"] = int(size * case.slb)
        held += int(size * case.slb)
    elif shortcut == "stlt-sw":
        params["shortcut_size"] = size
        held += size // 2
    params |= dict(case.params)
    application = paper.applications[case.program]
    start = keys * 2e-6 + float(params["earlier"]) * 0.2e-6  # type: ignore[arg-type]
    texts = {name: str(value) for name, value in params.items()}
    program = replace(application.program, params=texts, memory=held, start=start)
    return paper.run(replace(application, program=program), _design(paper, case, size), timing=True)


def _design(paper: Paper, case: Case, size: int) -> Design:
    """The case's design, whose table is as large as the scale has it."""
    name = case.design or TABLES[case.table][0]
    scaled: dict[str, object] = {} if case.fewer else getattr(paper, "smaller_machine")  # noqa: B009
    changes: dict[str, object] = {**scaled, **dict(case.keys)}
    label = name
    if TABLES[case.table][1] == "stlt":
        changes["shortcut.stlt.rows"] = size // ROW_BYTES
        if case.ways != 4:
            changes["shortcut.stlt.ways"] = case.ways
        label = f"{name} {case.megabytes} MB {case.ways}-way"
    label += "".join(f" {key.split('.')[-1]}={value}" for key, value in case.keys[:3])
    return paper.designs[name].changed(label.replace("/", " "), changes)


def runs(paper: Paper, cases: Iterable[Case]) -> Runs:
    """The runs of cases and of what they are compared with."""
    every = dict.fromkeys(c for case in cases for c in (case.base, case))
    return Runs({(case.program, repr(case)): run(paper, case) for case in every})


@dataclass(frozen=True)
class Found:
    """The outcomes of cases."""

    paper: Paper
    results: Results

    def outcome(self, case: Case) -> Outcome:
        """The outcome of a case."""
        return self.results(run(self.paper, case))

    def get(self, case: Case, name: str) -> float | None:
        """A statistic of a case; None if its run failed."""
        outcome = self.outcome(case)
        return None if outcome.failed else outcome.get(name)

    def cycles(self, case: Case) -> float | None:
        """Cycles a request."""
        return self.get(case, "cycles_per_request")

    def over(self, case: Case, base: Case) -> float | None:
        """The speedup of one case over another."""
        own, other = self.cycles(case), self.cycles(base)
        return other / own if own and other else None

    def speedup(self, case: Case) -> float | None:
        """The speedup over the same case without a table."""
        return self.over(case, case.base)

    def why(self, case: Case) -> str:
        """The reason if a case or its base has no numbers."""
        return self.outcome(case).why or self.outcome(case.base).why

    def a_request(self, case: Case, *names: str) -> float | None:
        """The sum of some statistics a request."""
        values = [self.get(case, name) for name in (*names, "requests")]
        if any(value is None for value in values[-1:]) or not values[-1]:
            return None
        return sum(value or 0.0 for value in values[:-1]) / values[-1]

    def saved(self, case: Case, *names: str) -> float | None:
        """The reduction of that sum relative to the case without a table, in per cent."""
        own, other = self.a_request(case, *names), self.a_request(case.base, *names)
        return 100 * (1 - own / other) if own is not None and other else None

    def missed(self, case: Case) -> float | None:
        """Per cent of the lookups of an STLT that found no row."""
        loads, hits = self.get(case, "stlt.loads"), self.get(case, "stlt.hits")
        return 100 * (1 - hits / loads) if loads and hits is not None else None

    def missed_in_software(self, case: Case) -> float | None:
        """Misses of a table in software, in per cent of the lookups of `map`'s requests.

        No counter has them, so they come from instructions. Two programs with the same requests
        and the same table miss equally often. They differ by the search for the record: by l
        instructions a GET. Without a table their difference is l + s, where s is that of SETs.
        With a table that misses m of the lookups it is m l + s. The machine's table, whose m is
        counted, gives l and s.
        """
        counted = self.missed(case.of(table="STLT", slb=SLB_OF_STLT))
        differ = []
        for table in ("Original", "STLT", case.table):
            two = [self.get(self._of(case, program, table), "instructions_per_request")
                   for program in ("map", "umap")]  # fmt: skip
            if two[0] is None or two[1] is None:
                return None
            differ.append(two[0] - two[1])
        if counted is None:
            return None
        without, machine, software = differ
        way = (without - machine) / (1 - counted / 100)
        return 100 * (software - (without - way)) / way

    @staticmethod
    def _of(case: Case, program: str, table: str) -> Case:
        one = case.of(program=program, table=table)
        if table == "Original":
            return one.base
        return one.of(slb=SLB_OF_STLT) if table == "STLT" else one


def conflicts(keys: float, sets: float, ways: int) -> float:
    """Share of uniform requests that miss because their set has more keys than rows.

    The rows of a set with x equally frequent keys hold `ways` of them under any replacement
    policy. So 1 - ways / x of the set's requests miss. x is Poisson distributed around
    L = keys / sets, and has x / L of the requests. The share is thus E[max(x - ways, 0)] / L.
    """
    mean = keys / sets
    probability, beyond, x = exp(-mean), 0.0, 0
    while x <= ways or probability * x > 1e-15:
        beyond += max(x - ways, 0) * probability
        x += 1
        probability *= mean / x
    return beyond / mean


def never_requested(requests: float, keys: float) -> float:
    """Share of uniform requests for a key that none of the earlier requests had."""
    return exp(-requests / keys)


THETA = 0.99
"""Exponent of YCSB's zipfian law."""
SCRAMBLED = 10_000_000_001
"""Items of YCSB's scrambled generator, which it hashes to the keys."""


def zeta(items: float) -> float:
    """Sum of i^-0.99 for i from 1 to `items`: ten terms, and the formula of Euler and Maclaurin."""
    first = 10
    whole = int(min(items, first))
    total = sum(power(i, -THETA) for i in range(1, whole + 1))
    if items <= first:
        return total + (items - whole) * power(whole + 1, -THETA)
    integral = (power(items, 1 - THETA) - power(first, 1 - THETA)) / (1 - THETA)
    ends = (power(items, -THETA) - power(first, -THETA)) / 2
    slope = THETA * (power(first, -THETA - 1) - power(items, -THETA - 1))
    return total + integral + ends + slope / 12


def _grid(low: float, high: float, steps: int = 4000) -> Iterator[tuple[float, float]]:
    """Middles and widths of intervals from `low` to `high`, of equal ratios."""
    ratio = (high / low) ** (1 / steps)
    at = low
    for _ in range(steps):
        yield at * ratio**0.5, at * (ratio - 1)
        at *= ratio


def never_requested_zipf(requests: float, keys: float) -> float:
    """Share of scrambled zipfian requests for a key that none of the earlier requests had.

    Item i has the share w = i^-0.99 / zeta and one of `keys` keys at random. Of n requests none is
    for the key of a request with probability exp(-n w), times that of all other items of the key:
    the product of 1 - (1 - exp(-n w)) / keys over all items.
    """
    all_items, exact = zeta(SCRAMBLED), 1000
    points = [(float(i), 1.0) for i in range(1, exact)]
    points += _grid(exact - 0.5, SCRAMBLED)
    own = others = 0.0
    for item, width in points:
        share = item**-THETA / all_items
        absent = exp(-requests * share)
        own += share * absent * width
        others += (1 - absent) * width
    return own * exp(-others / keys)


def crowded_out_zipf(keys: float, sets: float, ways: int) -> float:
    """Share of scrambled zipfian requests that miss because their set has `ways` hotter keys.

    The counters of a set keep its hottest keys. A key's share is that of its hottest item, i, and
    the mean of all items beyond. i / keys = t is exponentially distributed. The hotter keys of its
    set are Poisson distributed around (1 - exp(-t)) keys / sets.
    """
    all_items, missed = zeta(SCRAMBLED), 0.0
    for t, width in _grid(1e-9, 60.0):
        item = max(t * keys, 1.0)
        own = item**-THETA if t * keys >= 0.5 else 0.0
        share = own * keys + all_items - zeta(item)
        hotter = (1 - exp(-t)) * keys / sets
        probability, fewer = exp(-hotter), 0.0
        for x in range(ways):
            fewer += probability
            probability *= hotter / (x + 1)
        missed += share / all_items * exp(-t) * (1 - fewer) * width
    return missed


def never_requested_latest(requests: float, keys: float, sets: float = 0.05) -> float:
    """Share of the GETs of `latest` for a key without an earlier GET.

    `sets` of the requests insert a key, which moves all ranks by one, so that g = (1 - sets) / sets
    GETs fall between two inserts. With the law's sum C(r) up to rank r, a key has had g C(r) GETs
    on average when it reaches rank r. If it was loaded before the n inserts, it began at rank
    r - n, and has had g (C(r) - C(r - n)).
    """
    inserts = requests * sets
    gets, ranks = (1 - sets) / sets, zeta(keys + inserts)
    missed = (1 - exp(-gets * zeta(inserts) / ranks)) / gets
    for rank, width in _grid(inserts, keys + inserts):
        had = gets * (zeta(rank) - zeta(rank - inserts)) / ranks
        missed += rank**-THETA / ranks * exp(-had) * width
    return missed


def mean_row(
    rows: Iterable[Row], series: str, said: Said | None, group: str = "Mean", panel: str = ""
) -> Row:
    """The arithmetic mean of a series' speedups, as the paper's averages are, beside it.

    The nine bars of figure 11 have a mean of 1.383 and a geometric one of 1.378.
    """
    means = Means.of(row.value for row in rows if row.series == series)
    note = f"geometric mean {means.geometric:.3f}" if means.geometric else ""
    value = means.arithmetic
    if said is None:
        return Row(group, series, value, note=note, average=True, panel=panel)
    return said.row(group, series, value, note=note, average=True, panel=panel)
