"""Every number that the paper's text gives of its evaluation, with its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pagewalk.reproduce import Row
from pagewalk.reproduce.figure import AT_LEAST, AT_MOST


@dataclass(frozen=True)
class Said:
    """A number of the paper, a range of numbers (`up_to`), or the least or the most (`bound`).

    `points` are by how much ours may differ, in the number's own unit; without it the usual
    share of the number. `deviation` is why ours differs, where that is the number's own fault.
    """

    value: float
    place: str
    up_to: float | None = None
    bound: str = ""
    points: float | None = None
    deviation: str = ""

    def row(self, group: str, series: str, value: float | None, unit: str = "", **more: Any) -> Row:
        """A row with our number beside the printed one."""
        if self.points is not None:
            more.setdefault("tolerance", self.points / self.value)
        if self.deviation:
            more.setdefault("deviation", self.deviation)
        return Row(
            group, series, value, self.value, unit, self.place,
            up_to=self.up_to, bound=self.bound, **more,
        )  # fmt: skip


def gain(percent: float, place: str, points: float | None = None, deviation: str = "") -> Said:
    """A speedup that the text gives in per cent.

    Ours agrees within a fifth of the gain, at most 5 points.
    """
    allowed = min(5.0, abs(percent) / 5) if points is None else points
    return Said(1 + percent / 100, place, points=allowed / 100, deviation=deviation)


WRONG_GUESSES = "revelator-wrong-guesses"
WALKERS = "revelator-walkers"
VIRTUAL_MACHINES = "revelator-virtual"
HUGE_WHERE = "revelator-huge-where"

# Section 3.1, figures 2 and 3.
DATA_FROM_DRAM = Said(50, "section 3.1: more than half", bound=AT_LEAST)
TRANSLATION_FROM_DRAM_ALONE = Said(1, "section 3.1: <1%", bound=AT_MOST)
PERFECT_LATENCY = Said(25, "section 3.1", deviation="revelator-latency")

# Section 3.2.
OVERLAP = Said(0.1, "section 3.2: < 0.1% across all scenario pairs", bound=AT_MOST)

# Sections 1 and 3.3, figures 4 and 5.
PERFECT_SPECULATION = gain(
    20, "section 1: perfect physical address prediction", deviation="revelator-perfect"
)
SPECTLB_BEHIND_PERFECT = gain(8, "section 3.3: is 8% slower", deviation=WALKERS)
SPECTLB_LIKE_THP = Said(1, "section 3.3: similar performance")
MISS_64_MEAN = Said(81, "section 1: 81% on average", deviation="revelator-spectlb")
MISS_64_HIGH = Said(98, "section 1: up to 98%", bound=AT_MOST)
MISS_HIGH = Said(95, "section 3.3: >95% for both sizes (and >97%)", bound=AT_LEAST)
MISS_64_LOW = Said(80, "section 3.3: does not drop below 80%", bound=AT_LEAST)
MISS_1024_LOW = Said(37, "section 3.3: does not drop below 37%", bound=AT_LEAST)

# Section 6.2, figure 10.
FIRST_HASH_40 = Said(65, "section 6.2, at 40 %")
SECOND_HASH_40 = Said(32, "section 6.2, at 40 %")
THREE_HASHES = Said(80, "section 6.2: 80% or more even under high memory pressure", bound=AT_LEAST)

# Section 6.3.
PRESSURE_LOW = Said(70, "section 6.3: 70-80%", up_to=80)
PRESSURE_HIGH = Said(10, "section 6.3: 10-20%", up_to=20)
L2_TLB_MPKI = Said(5, "section 6.3: >5", bound=AT_LEAST)
GRAPH_GB = Said(50, "table 2: 50-100 GB", up_to=100)
FOOTPRINT_GB = {
    **dict.fromkeys(("BC", "BFS", "CC", "GC", "PR", "TC", "SP"), GRAPH_GB),
    "XS": Said(9, "table 2"),
    "RND": Said(10, "table 2"),
    "DLRM": Said(10.3, "table 2"),
    "GEN": Said(33, "table 2"),
}

# Section 7.1, figure 11: within 5 points.
SPEEDUP_LOW = {
    "THP low": gain(21, "section 7.1", 5, WALKERS),
    "SpecTLB-Large low": gain(22, "section 7.1", 5, WALKERS),
    "Revelator low": gain(27, "section 7.1", 5, WRONG_GUESSES),
}
SPEEDUP_HIGH = {
    "THP high": gain(10, "section 7.1: Revelator is 6 points higher", 5, HUGE_WHERE),
    "Revelator high": gain(16, "section 7.1", 5, WRONG_GUESSES),
}
BEHIND_PERFECT_TLB = Said(
    1.17, "section 7.1: within 17% of Perfect-TLB", bound=AT_MOST, deviation=WRONG_GUESSES
)
OVER_SPECTLB = gain(
    5, "section 1: outperforms a state-of-the-art mechanism by 5%", deviation=WRONG_GUESSES
)

# Section 7.1, figure 12.
LATENCY_SAVED = {
    "Revelator low": Said(22, "section 7.1", deviation="revelator-latency"),
    "THP low": Said(0.01, "section 7.1", deviation="revelator-latency"),
}
MPKI_SAVED = {
    "Revelator low": Said(31, "section 7.1", deviation="revelator-l2-mpki"),
    "THP low": Said(14, "section 7.1"),
}
TRANSLATION_SAVED = {
    "Revelator low": Said(13, "section 7.1", deviation=WRONG_GUESSES),
    "THP low": Said(41, "section 7.1", deviation="revelator-translation"),
}

# Section 7.1, figure 13.
AT_80 = gain(
    7, "section 7.1: 80% of pages cannot be allocated using a hash", deviation=WRONG_GUESSES
)
BEST_HASHES = {
    0: Said(1, "section 7.1: N=1 or N=2", up_to=2),
    20: Said(1, "section 7.1: N=1 or N=2", up_to=2),
    40: Said(3, "section 7.1: N=3 or N=4", up_to=4, deviation=WRONG_GUESSES),
    60: Said(3, "section 7.1: N=3 or N=4", up_to=4, deviation=WRONG_GUESSES),
    80: Said(3, "section 7.1: N=3 or N=4", up_to=4, deviation=WRONG_GUESSES),
}

# Section 7.1, figures 14 and 15.
MODES = {
    "Revelator-OnlyPT": gain(5, "section 7.1", deviation=WALKERS),
    "Revelator-OnlyData": gain(15, "section 7.1"),
    "Revelator-PT+Data": gain(21, "section 7.1", deviation=WALKERS),
}
WALK_SAVED = {
    0: Said(17, "section 7.1", deviation=WRONG_GUESSES),
    20: Said(15, "section 7.1", deviation=WRONG_GUESSES),
    80: Said(8, "section 7.1", deviation=WRONG_GUESSES),
}

# Section 7.1, figure 16.
SLOW_MEMORY = gain(8, "section 7.1: N=6, 8% over Radix", deviation=WRONG_GUESSES)
FILTER_BEHIND = Said(
    1.09, "section 7.1: within 9% of perfect filtering", bound=AT_MOST, deviation=WRONG_GUESSES
)

# Section 7.1, figure 17.
ENERGY_SAVED = {
    "Revelator low": Said(9, "section 7.1", deviation=WRONG_GUESSES),
    "THP low": Said(9, "section 7.1", deviation=WALKERS),
    "Revelator high": Said(2, "section 7.1", deviation=WRONG_GUESSES),
    "THP high": Said(4, "section 7.1"),
}

# Section 7.2, figure 18: Revelator over each.
OVER_OTHERS = {
    "ECH": gain(9, "section 7.2", deviation=WRONG_GUESSES),
    "L2TLB-128K": gain(1, "section 7.2", 1, WRONG_GUESSES),
    "POM-TLB": gain(11, "section 7.2", deviation=WRONG_GUESSES),
}

# Section 7.3, figure 19: within 5 points.
VIRTUAL = {
    "Revelator-VM low": gain(20, "section 7.3", 5, VIRTUAL_MACHINES),
    "Revelator-VM high": gain(13, "section 7.3", 5, VIRTUAL_MACHINES),
}
BEHIND_ISP = Said(60, "section 7.3: a gap of 60 percentage points", deviation=VIRTUAL_MACHINES)

# The second version of the paper.
V2 = "second version"
V2_THP = {90: gain(11, V2), 50: gain(19, V2), 10: gain(26, V2)}
V2_MIXES = {50: gain(40, f"{V2}: 16 cores, medium"), 10: gain(50, f"{V2}: 16 cores, high")}
V2_ACCURACY = Said(87, f"{V2}: 16 cores", up_to=88)
V2_NESTED = gain(13.6, f"{V2}: over nested THP")
V2_ENERGY = Said(5.5, V2)
V2_THREE_HASHES = Said(70, f"{V2}: three hashes, under pressure", up_to=85)
V2_BEST = {
    0: Said(1, f"{V2}: one hash is best"),
    40: Said(2, f"{V2}: two hashes are best", deviation=WRONG_GUESSES),
}
V2_WALKS = {
    **dict.fromkeys(("BC", "BFS", "CC", "GC", "PR", "TC", "SP"), Said(10, V2, up_to=45)),
    "XS": Said(12, V2),
    "RND": Said(25, V2),
    "DLRM": Said(18, V2),
    "GEN": Said(35, V2),
}
