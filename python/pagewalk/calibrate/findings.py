"""The parameters that the micro-benchmarks determine, each by its own rule."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pagewalk.calibrate import rules
from pagewalk.calibrate.benchmarks import ASSUMED_KB, Benchmark, Plan
from pagewalk.calibrate.rules import Estimate
from pagewalk.engine_types import HostProcessor, Measured

Json = dict[str, Any]

STATED = "cpuid"
"""Confidence of a key that ``cpuid`` states and nothing measures."""
GRANTED = 0.9
"""Least share of huge pages with which a benchmark counts as one with huge pages. Ours."""


@dataclass(frozen=True)
class Finding:
    """A key of the machine file with its origin, or the reason why the base's value stays."""

    key: str
    value: float | int | None
    """None: not determined."""
    origin: str
    """Measurement and rule, in a phrase."""
    estimate: Estimate | None = None
    confidence: str = rules.NOT_DETERMINED


LOAD = "memory.background.bandwidth_gbs"
LOOKAHEAD = "caches.l2.prefetcher.streamer.lookahead"
MOST_LOOKAHEAD = 63
"""Lines behind the first one of a page, in which the streamer stays."""
OF_DRAM = (
    "memory.dram.ddr.controller_ns",
    "caches.l1d.mshrs",
    LOOKAHEAD,
    "memory.background.l3_fill_gbs",
    LOAD,
)
"""Keys that take footprints beyond the third-level cache."""


LEAST_RATES = 5
"""Fewest samples that give a sure rate. Ours."""


class Times:
    """The samples of each benchmark, in cycles of this host."""

    def __init__(self, measured: Mapping[Benchmark, Measured], add: Benchmark) -> None:
        self._measured = measured
        self.period = rules.of_samples(measured[add]["ns"])
        """Nanoseconds of a cycle: of a dependent addition."""
        self.ghz = 1 / self.period.value

    def of(self, benchmark: Benchmark) -> Measured:
        """The measurement itself."""
        return self._measured[benchmark]

    def ns(self, benchmark: Benchmark) -> Estimate:
        """Nanoseconds for an operation."""
        return rules.of_samples(self._measured[benchmark]["ns"])

    def least(self, benchmark: Benchmark) -> Estimate:
        """Least cycles for an operation."""
        return rules.least_of(self._measured[benchmark]["ns"], self.ghz)

    def cycles(self, benchmark: Benchmark) -> Estimate:
        """Cycles for an operation."""
        return rules.of_samples(self._measured[benchmark]["ns"], self.ghz)


def _judged(key: str, value: float | int, origin: str, estimate: Estimate) -> Finding:
    """A finding whose confidence is its estimate's."""
    sure = estimate.confidence
    kept = None if sure == rules.NOT_DETERMINED else value
    return Finding(key, kept, origin, estimate, sure)


def find(
    plan: Plan, times: Times, processor: HostProcessor, base: Mapping[str, Any]
) -> list[Finding]:
    """Everything but the DRAM's controller, which takes a simulation (`controller`)."""
    found = [
        _judged(
            "frequency_ghz",
            round(times.ghz, 3),
            "a chain of additions, one a cycle: ns for one",
            times.period,
        )
    ]
    found += _caches(plan, times, processor)
    found += _tlbs(plan, times, processor, base)
    found.append(_walkers(plan, times))
    found += _faults(plan, times)
    if plan.reaches_dram:
        found += [_mshrs(plan, times), *_lookahead(plan, times, base)]
        found += [_l3_fills(plan, times, processor), _background_load(plan, times, base)]
    else:
        why = "too little memory for twice the third-level cache"
        found += [Finding(key, None, why) for key in OF_DRAM]
    return found


def _caches(plan: Plan, times: Times, processor: HostProcessor) -> list[Finding]:
    found = []
    names = {1: "caches.l1d", 2: "caches.l2", 3: "memory.l3"}
    for cache in processor["caches"]:
        name = names.get(cache["level"])
        if name is None:
            continue
        for part in ("size_kb", "ways"):
            value = cache["size_kb"] if part == "size_kb" else cache["ways"]
            found.append(Finding(f"{name}.{part}", value, f"cpuid {cache['leaf']}", None, STATED))
    for name, points in (("caches.l1d", plan.l1), ("caches.l2", plan.l2)):
        level = rules.plateau([times.cycles(point) for point in points])
        origin = f"a chase of {size_text(points[0].footprint)} to {size_text(points[-1].footprint)}"
        found.append(_judged(f"{name}.latency", round(level.value), origin, level))
    try:
        level = _l3_hit(plan, times)
    except ValueError as why:
        found.append(Finding("memory.l3.latency", None, f"a chase beyond the L2: {why}"))
    else:
        origin = "a chase beyond the L2: the first footprints that take the same time"
        found.append(_judged("memory.l3.latency", round(level.value), origin, level))
    return found


def _l3_hit(plan: Plan, times: Times) -> Estimate:
    """The latency of the third level. Raises `ValueError` where no footprint stays in it."""
    points = [times.least(point) for point in plan.l3]
    # A plateau near the slowest loads is that of the DRAM.
    return rules.first_plateau(points, 0.5 * times.least(plan.dram).value)


def _penalties(plan: Plan, times: Times) -> tuple[list[int], list[float], list[Estimate]]:
    """Pages, and the cycles that their TLB misses add to a load."""
    sizes, values, estimates = [], [], []
    for pages, lines in zip(plan.pages, plan.lines, strict=True):
        one, same = times.cycles(pages), times.cycles(lines)
        sizes.append(pages.bytes // 4096)
        values.append(one.value - same.value)
        estimates.append(one)
    return sizes, values, estimates


def _tlbs(
    plan: Plan, times: Times, processor: HostProcessor, base: Mapping[str, Any]
) -> list[Finding]:
    sizes, values, estimates = _penalties(plan, times)
    stated = {tlb["level"]: tlb for tlb in processor["tlbs"]}
    first = stated[1]["entries"] if 1 in stated else 64
    second = stated[2]["entries"] if 2 in stated else 2048
    named = {1: "mmu.l1d.main", 2: "mmu.l2.main"}

    def between(low: float, high: float) -> list[int]:
        return [i for i, size in enumerate(sizes) if low <= size <= high]

    # Lines of the second level's points all lie in the L1D, as do those of the first.
    hits, seconds = between(0, first * 0.75), between(first * 1.25, min(512, second * 0.75))
    beyond = between(second * 1.125, second * 2)
    if not (hits and seconds and beyond):
        return [
            Finding(f"{name}.entries", None, "too little memory for so many pages")
            for name in named.values()
        ]

    def level(points: Sequence[int]) -> Estimate:
        least = min(values[i] for i in points)
        middle = statistics.median(values[i] for i in points)
        widths = [estimates[i].relative_spread for i in points]
        # The residual is relative to the whole load, whose time is what was measured.
        whole = statistics.median(estimates[i].value for i in points)
        residual = max(abs(values[i] - middle) for i in points) / whole
        width = statistics.median(widths) * middle
        return Estimate(middle, (min(least, middle), middle + abs(width)), residual)

    l1, l2, walk = level(hits), level(seconds), level(beyond)
    found = []
    for number, low, high, entries, last in (
        (1, l1, l2, first, second * 0.75),
        (2, l2, walk, second, second * 2),
    ):
        key, among = f"{named[number]}.entries", between(0, last)
        if number == 2:
            among = [i for i in among if sizes[i] >= first * 1.5]
        try:
            a, b = rules.step(
                [sizes[i] for i in among], [values[i] for i in among], low.value, high.value
            )
        except ValueError:
            found.append(Finding(key, None, "the time for a page has no step"))
            continue
        origin = f"one line a page: slower between {a} and {b} pages"
        if number in stated and a <= entries * 1.25 and entries <= b:
            ways = stated[number]["ways"]
            leaf = f"cpuid {stated[number]['leaf']}; {origin}"
            found.append(Finding(key, entries, leaf, None, rules.SURE))
            found.append(Finding(f"{named[number]}.ways", ways, leaf, None, STATED))
        else:
            array = base["mmu"]["l1d" if number == 1 else "l2"]["main"]
            ways = a if array["ways"] == array["entries"] else array["ways"]
            whole = max(1, round(a / ways)) * ways
            found.append(Finding(key, whole, origin, None, rules.NOISY))
            found.append(Finding(f"{named[number]}.ways", ways, origin, None, rules.NOISY))
    # A hit of the first level hides behind the L1D, so the step is all of the second's latency.
    added = l2.value - l1.value
    least = base["mmu"]["l1d"]["main"]["latency"]
    origin = f"one line a page, beyond the first TLB: {added:.1f} cycles more"
    spread = Estimate(added, l2.spread, l2.residual)
    found.append(_judged("mmu.l2.main.latency", max(least, round(added)), origin, spread))
    return found


def _mshrs(plan: Plan, times: Times) -> Finding:
    alone, together = times.cycles(plan.dram), times.cycles(plan.gather)
    most = rules.concurrency(alone.value, together.value)
    origin = (
        f"Little's law: {alone.value:.0f} cycles alone, one each {together.value:.1f} "
        "if independent"
    )
    worst = max(alone.relative_spread, together.relative_spread)
    estimate = Estimate(most, (most, most * (1 + worst)), 0.0)
    return _judged("caches.l1d.mshrs", max(1, round(most)), origin, estimate)


def _lookahead(plan: Plan, times: Times, base: Mapping[str, Any]) -> list[Finding]:
    """Lines that the L2's streamer fetches ahead: those on their way while words are read."""
    if "streamer" not in (base["caches"]["l2"].get("prefetcher") or {}):
        return []
    alone, word = times.cycles(plan.dram), times.cycles(plan.words)
    lines = rules.concurrency(alone.value, 8 * word.value)
    origin = (
        f"Little's law: {alone.value:.0f} cycles alone, a line each {8 * word.value:.1f} "
        "if its words are read in order"
    )
    worst = max(alone.relative_spread, word.relative_spread)
    estimate = Estimate(lines, (lines, lines * (1 + worst)), 0.0)
    return [_judged(LOOKAHEAD, min(MOST_LOOKAHEAD, max(1, round(lines))), origin, estimate)]


def _walkers(plan: Plan, times: Times) -> Finding:
    key = "mmu.walkers"
    same = [i for i, one in enumerate(plan.pages) if one.bytes == plan.walkers.bytes]
    if not same:
        return Finding(key, None, "too little memory for so many pages")
    alone, hit = times.cycles(plan.pages[same[0]]), times.cycles(plan.lines[same[0]])
    together = times.cycles(plan.walkers)
    chains = plan.walkers.chains
    walk = alone.value - hit.value
    origin = (
        f"Little's law: {walk:.0f} cycles of a walk alone, one each {together.value:.1f} "
        f"of {chains} chains"
    )
    if together.value < 1.2 * alone.value / chains:
        return Finding(key, None, f"{origin}, which the chains limit")
    most = rules.concurrency(walk, together.value)
    worst = max(alone.relative_spread, together.relative_spread)
    estimate = Estimate(most, (most, most * (1 + worst)), abs(most - round(most)) / most)
    return _judged(key, max(1, round(most)), origin, estimate)


def _faults(plan: Plan, times: Times) -> list[Finding]:
    keys = ("os.prices.zero_ns_per_byte", "os.prices.trap_ns")
    small, huge = plan.touch
    if not has_huge_pages(times.of(huge)):
        why = "the kernel grants no huge pages (madvise)"
        return [Finding(key, None, why) for key in keys]
    one, each = times.ns(small), times.ns(huge)
    zero = max(0.0, (each.value * 512 - one.value) / ((2 << 20) - 4096))
    trap = max(0.0, one.value - 4096 * zero)
    origin = f"first touches: {one.value:.0f} ns for 4 KB, {each.value * 512:.0f} ns for 2 MB"
    found = []
    for key, value, estimate in ((keys[0], zero, each), (keys[1], trap, one)):
        scale = value / estimate.value
        scaled = Estimate(value, (estimate.spread[0] * scale, estimate.spread[1] * scale), 0.0)
        found.append(_judged(key, float(f"{value:.3g}"), origin, scaled))
    if any(one.value is None for one in found):
        # Two equations have one solution: half of it would price neither fault rightly.
        return [replace(one, value=None, confidence=rules.NOT_DETERMINED) for one in found]
    return found


def has_huge_pages(measured: Measured) -> bool:
    """True if the kernel has granted huge pages, or does not say."""
    share = measured["huge_share"]
    return share is None or share >= GRANTED


def service(dram: Mapping[str, Any]) -> rules.Service | None:
    """Service times of a machine's DRAM; None if it has no banks."""
    ddr = dram.get("ddr")
    if ddr is None:
        return None
    line = 64_000 / (ddr["data_rate_mts"] * ddr.get("bus_bytes", 8))
    return rules.Service(
        line,
        ddr["trp_ns"] + ddr["trcd_ns"] + line,
        ddr["ranks"] * ddr["bank_groups"] * ddr["banks"],
        ddr["data_rate_mts"] * ddr.get("bus_bytes", 8) * ddr["channels"] / 1000,
    )


def _l3_fills(plan: Plan, times: Times, processor: HostProcessor) -> Finding:
    """The rate at which other tenants fill the L3, from chases through more and more of it."""
    key = "memory.background.l3_fill_gbs"
    l3 = next((c for c in processor["caches"] if c["level"] == 3), None)
    if l3 is None:
        return Finding(key, None, "cpuid states no third level")
    size = l3["size_kb"] << 10
    try:
        hit = _l3_hit(plan, times).value
    except ValueError:
        hit = rules.plateau([times.cycles(point) for point in plan.l2]).value
    period = times.period.value
    cache = rules.Cache(size, l3["ways"], hit * period, times.least(plan.dram).value * period)
    # The L2 holds more than a third of a smaller footprint.
    l2_kb = next((c["size_kb"] for c in processor["caches"] if c["level"] == 2), ASSUMED_KB[2])
    l2 = l2_kb << 10
    fitting = [point for point in plan.l3 if 3 * l2 <= point.footprint < size]
    if not fitting:
        return Finding(key, None, "too little memory for chases through the third level")
    chases = [rules.Chase(one.footprint, ns) for one in fitting for ns in times.of(one)["ns"]]
    rates, least, most = rules.fill_rates(chases, cache)
    if rates:
        rate = statistics.median(rates)
        spread = (min(rates), rate)
        origin = f"{len(rates)} of {len(chases)} chases miss in part, of {size_text(size)} by cpuid"
        estimate = Estimate(rate, spread, 0.0)
        sure = len(rates) >= LEAST_RATES and estimate.confidence == rules.SURE
        return Finding(key, _gbs(rate), origin, estimate, rules.SURE if sure else rules.NOISY)
    if least <= 0:
        origin = f"all chases through the L3 hit: less than {_gbs(most)} GB/s"
        return Finding(key, 0.0, origin, None, rules.NOISY)
    if math.isinf(most):
        origin = f"all chases beyond the L2 miss: {_gbs(least)} GB/s or more"
        return Finding(key, _gbs(least), origin, None, rules.NOISY)
    origin = f"chases miss or hit as a whole: between {_gbs(least)} and {_gbs(most)} GB/s"
    return Finding(key, _gbs(math.sqrt(least * most)), origin, None, rules.NOISY)


def _gbs(rate: float) -> float:
    """A rate with three digits."""
    return float(f"{rate:.3g}")


def _background_load(plan: Plan, times: Times, base: Mapping[str, Any]) -> Finding:
    """Other tenants' bandwidth, from the wait between the least and the median DRAM latency."""
    key = LOAD
    quiet = times.cycles(plan.l2[0] if plan.l2 else plan.l1[0]).relative_spread
    dram = times.ns(plan.dram)
    least, median = dram.spread
    wait, noise = median - least, 3 * max(quiet, 0.01) * dram.value
    origin = f"DRAM in {least:.1f} ns at least, in {median:.1f} ns as a median"
    of_base = service(base["memory"]["dram"])
    if of_base is None:
        return Finding(key, None, "the base's DRAM has no banks")
    if wait <= noise:
        return Finding(key, None, f"{origin}: within the noise of {noise:.1f} ns")
    load = rules.load_of(wait, of_base) * of_base.peak_gbs
    return Finding(key, float(f"{load:.3g}"), origin, dram, rules.NOISY)


def bounded(load: Finding, most: float) -> Finding:
    """The load of the DRAM, bounded by the copy in order."""
    origin = f"{load.origin}; with more, the simulated copy is slower than the measured one"
    return replace(load, value=_gbs(most), origin=origin)


def controller(measured: Estimate, ghz: float, without: float) -> Finding:
    """The DRAM's controller: the time that remains of the measured latency.

    `without` are the cycles of the same loads on the simulated machine with a controller of 0 ns.
    """
    left = (measured.value - without) / ghz
    origin = (
        f"DRAM in {measured.value / ghz:.1f} ns, of which the simulated one takes "
        f"{without / ghz:.1f} without its controller"
    )
    return _judged("memory.dram.ddr.controller_ns", round(max(0.0, left), 1), origin, measured)


def size_text(size: int) -> str:
    """A size as MB or KB."""
    return f"{size / (1 << 20):.3g} MB" if size >= 1 << 20 else f"{size >> 10} KB"
