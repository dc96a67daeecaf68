"""Statistics that the figures read from a result beside its summary."""

from __future__ import annotations

from dataclasses import dataclass

from pagewalk.reproduce import Outcome

# Prefix of the counters of the hashed placement.
TIERS = "os.tiered_hash"


def total(outcome: Outcome, last: str) -> float | None:
    """Sum over all cores of a counter below `core.N`, such as ``mmu.walks``."""
    if outcome.data is None:
        return None
    values: list[float] = []
    while (value := outcome.get(f"core.{len(values)}.{last}")) is not None:
        values.append(value)
    return sum(values) if values else None


def per_kilo(outcome: Outcome, value: float | None) -> float | None:
    """A count for a thousand instructions."""
    instructions = outcome.get("instructions")
    return 1000 * value / instructions if value is not None and instructions else None


@dataclass(frozen=True)
class Latency:
    """Mean cycles of a load: until its address is translated, and from then to its data."""

    translation: float
    data: float

    @property
    def whole(self) -> float:
        """The latency from the address to the data."""
        return self.translation + self.data


def latency(outcome: Outcome) -> Latency | None:
    """The mean latency of the program's loads."""
    whole = outcome.get("core.0.load_to_use.mean")
    loads = outcome.get("core.0.loads")
    translation = outcome.get("core.0.load_translation_cycles")
    if outcome.failed or whole is None or translation is None or not loads:
        return None
    return Latency(translation / loads, whole - translation / loads)


def l2_mpki(outcome: Outcome) -> float | None:
    """Demand misses of the L2 cache that found no line on its way either."""
    misses, merged = total(outcome, "l2.misses"), total(outcome, "l2.merged")
    if misses is None or merged is None:
        return None
    return per_kilo(outcome, misses - merged)


@dataclass(frozen=True)
class Placed:
    """Pages since boot: by the hash that placed them, and by the buddy allocator."""

    hits: tuple[float, ...]
    fallback: float

    @property
    def pages(self) -> float:
        """All pages, by a hash or by the buddy allocator."""
        return sum(self.hits) + self.fallback

    def shares(self) -> list[float]:
        """Per cent placed by each hash."""
        return [100 * hits / self.pages for hits in self.hits] if self.pages else []

    @property
    def hashed(self) -> float | None:
        """Per cent placed by any hash."""
        return 100 * sum(self.hits) / self.pages if self.pages else None


def placed(outcome: Outcome) -> Placed | None:
    """Pages of data since boot."""
    return _placed(outcome, "data_hits")


def expected(outcome: Outcome) -> Placed | None:
    """Pages that the model places, with the occupancy at each of the run's own allocations."""
    found = _placed(outcome, "data_expected")
    really = placed(outcome)
    if found is None or really is None:
        return None
    return Placed(found.hits, really.pages - sum(found.hits))


def _placed(outcome: Outcome, name: str) -> Placed | None:
    fallback = outcome.since_boot(f"{TIERS}.data_fallbacks")
    hits: list[float] = []
    while (value := outcome.since_boot(f"{TIERS}.{len(hits) + 1}.{name}")) is not None:
        hits.append(value)
    return None if fallback is None or not hits else Placed(tuple(hits), fallback)


def accuracy(outcome: Outcome) -> float | None:
    """Per cent of the guesses of data that walks proved right."""
    right = total(outcome, "mmu.engine.data.right")
    wrong = total(outcome, "mmu.engine.data.wrong")
    if right is None or wrong is None or not right + wrong:
        return None
    return 100 * right / (right + wrong)


def covered(outcome: Outcome) -> float | None:
    """Per cent of the misses of all TLBs for which one of the guesses of data was right."""
    right = total(outcome, "mmu.engine.data.right")
    walks, merged = total(outcome, "mmu.walks"), total(outcome, "mmu.walks_merged")
    if right is None or walks is None or merged is None or not walks + merged:
        return None
    return 100 * right / (walks + merged)


def spectlb_miss_rate(outcome: Outcome) -> float | None:
    """Per cent of the L2 TLB's misses for which SpecTLB had nothing."""
    lookups = total(outcome, "mmu.engine.spectlb.lookups")
    hits = total(outcome, "mmu.engine.spectlb.hits")
    if not lookups or hits is None:
        return None
    return 100 * (1 - hits / lookups)


def energy(outcome: Outcome) -> dict[str, float]:
    """Millijoules by kind of part; empty where a result has none."""
    found = None if outcome.failed else outcome.result.energy
    return {kind: nanojoules / 1e6 for kind, nanojoules in found.groups.items()} if found else {}


L1_TLB_CYCLES, L2_TLB_CYCLES = 1, 12
"""Table 1."""


def _translating(outcome: Outcome) -> tuple[float, float] | None:
    """Misses of the first-level TLBs, and cycles of their lookups in the second and their walks."""
    read = [
        total(outcome, f"mmu.{name}")
        for name in ("l1d_misses", "l1i_misses", "walk_cycles", "walker_wait_cycles")
    ]
    if outcome.failed or any(value is None for value in read):
        return None
    data, fetches, walks, waits = (value or 0.0 for value in read)
    return data + fetches, L2_TLB_CYCLES * (data + fetches) + walks + waits


def of_a_translation(outcome: Outcome) -> float | None:
    """Mean cycles of a translation, hits of the first level among them.

    As the released simulator sums them: of data and of instructions, TLBs and walks.
    """
    found, translations = _translating(outcome), total(outcome, "mmu.translations")
    return L1_TLB_CYCLES + found[1] / translations if found and translations else None


def of_a_miss(outcome: Outcome) -> float | None:
    """Mean cycles of a translation that the first-level TLBs do not have, from its second on."""
    found = _translating(outcome)
    return found[1] / found[0] if found and found[0] else None


def l2_mpki_of_sniper(outcome: Outcome) -> float | None:
    """`l2_mpki` with the misses of the L1's prefetchers: Sniper counts both as one."""
    own, prefetches = l2_mpki(outcome), per_kilo(outcome, total(outcome, "l2.prefetch_misses"))
    return None if own is None or prefetches is None else own + prefetches


def l2_mpki_with_late(outcome: Outcome) -> float | None:
    """`l2_mpki` with demand misses that merge with a line on its way."""
    return per_kilo(outcome, total(outcome, "l2.misses"))
