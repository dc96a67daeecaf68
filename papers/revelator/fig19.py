"""Figure 19: virtual machines."""

from __future__ import annotations

from pagewalk.reproduce import Bars, Design, Figure, Panel, Paper, Row, Runs
from pagewalk.reproduce.figure import Results

from .common import APPLICATIONS, FILTER, Compared, over, speedups
from .printed import BEHIND_ISP, VIRTUAL

DENIED = "virtual.placement.tiered_hash.denied"
"""The host's hash places what the guest's pages are backed with."""
LEVELS = {"Revelator-VM low": 0.25, "Revelator-VM high": 0.85}
ONLY_RIGHT = ", right guesses only"


def pressed(paper: Paper, base: str = "Revelator-VM") -> list[Design]:
    """Revelator in a virtual machine under low and high pressure of the host's memory."""
    return [
        paper.designs[base].changed(label.replace("Revelator-VM", base), {DENIED: denied})
        for label, denied in LEVELS.items()
    ]


def only_right(paper: Paper) -> list[Design]:
    """The same without wrong guesses, for their cost."""
    return [d.changed(d.label + ONLY_RIGHT, {FILTER: "perfect"}) for d in pressed(paper)]


RELEASED = "guest without walk caches"
RELEASED_KEYS = {
    "mmu.walk_caches.entries": 0,
    "mmu.nested_tlb.entries": 2048,
    "mmu.nested_tlb.latency": 12,
}


def as_released(paper: Paper) -> list[Design]:
    """The baseline and Revelator under low pressure, with and without wrong guesses, elsewhere.

    The MMU is that of the released configuration for virtual machines (mmu_virt.cfg). The guest
    has no walk caches, and guest-physical pages have a TLB of 2,048 entries and 12 cycles.
    """
    designs = [paper.designs["NP"], pressed(paper)[0], only_right(paper)[0]]
    return [d.changed(f"{d.label}, {RELEASED}", RELEASED_KEYS) for d in designs]


class Figure19(Figure):
    title = "Speedup over nested paging in virtual machines"
    place = "figure 19, section 7.3"
    about = (
        "Small pages and radix tables in guest and host. Ideal shadow paging (ISP) walks one table "
        "from guest-virtual to host-physical addresses and charges nothing for keeping it. Low "
        "(high) pressure: the host's hash may take 75 % (15 %) of the frames. Revelator guesses "
        "the data of a guest's address. 'Right guesses only' takes away what wrong ones cost; "
        "'guest without walk caches' is the MMU of the released configuration for virtual machines."
    )
    timing = True
    sampled = True
    panels = (Panel(Bars("speedup")),)

    def runs(self, paper: Paper) -> Runs:
        return paper.cross(
            APPLICATIONS,
            ["NP", *pressed(paper), *only_right(paper), "ISP", *as_released(paper)],
            timing=True,
        )

    def rows(self, paper: Paper, results: Results) -> list[Row]:
        found = Compared(self.runs(paper), results, APPLICATIONS)
        rows, means = speedups(
            found, (*LEVELS, *(d.label for d in only_right(paper)), "ISP"), VIRTUAL, base="NP"
        )
        ideal, ours = means["ISP"], means["Revelator-VM low"]
        base, *others = (d.label for d in as_released(paper))
        gap = None if ideal is None or ours is None else 100 * (ideal - ours)
        return [
            *rows,
            *(over(found, design, base, None) for design in others),
            BEHIND_ISP.row(
                "ISP less Revelator, low", "", gap, "points", average=True, panel="text"
            ),
        ]
