"""Addresses of five-level paging, 57 bits wide, under each kind of page table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pagewalk
from invoking import Invoke, refused

PAGES = 4096
PAGE = 4096
LOW, HIGH = 1 << 44, 1 << 55
"""Starts of a mapping within 48-bit addresses, and beyond them."""

# Without walk caches a walk reads one entry a level, or one line a way of the 4 KB pages' table.
UNCACHED = {
    "mmu.walk_caches.entries": 0,
    "mmu.cuckoo.pmd_cwc_entries": 0,
    "mmu.cuckoo.pud_cwc_entries": 0,
}
WIDE = {
    "radix5": ({}, 5),
    "revelator": ({"page_table.radix.levels": 5}, 5),
    "ecpt": ({"page_table.elastic_cuckoo.address_bits": 57}, 3),
    "mehpt": ({"page_table.memory_efficient.address_bits": 57}, 3),
    "level-hashing": ({"page_table.level_hashing.address_bits": 57}, 4),
}


def run(design: str, at: int, settings: dict[str, Any]) -> pagewalk.DesignResult:
    """Two rounds over pages that no TLB holds all of; each access walks."""
    pages = at + PAGE * np.arange(PAGES, dtype=np.uint64)

    def rounds() -> Iterator[np.ndarray[Any, Any]]:
        yield pages
        yield pages

    result = pagewalk.run(
        design,
        workload=rounds(),
        mappings=[pagewalk.Mapping(at, PAGES * PAGE, populate=True)],
        settings={**UNCACHED, **settings, "mmu.l2.main.entries": 64, "mmu.l2.main.ways": 4},
        translation_cost=False,
        progress=False,
    )
    (only,) = result.designs
    return only


@pytest.mark.parametrize("design", WIDE)
def test_wide_addresses_take_as_many_reads_as_narrow_ones(design: str) -> None:
    settings, reads = WIDE[design]
    low, high = (run(design, at, settings) for at in (LOW, HIGH))
    for one in (low, high):
        # One page of code faults and walks again.
        assert one.get("walks") == 2 * PAGES + 2
        assert one.get("walk_reads_per_walk") == pytest.approx(reads, abs=0.001)
    if design == "revelator":
        # Its hashes take the whole page number, so hardware guesses what the kernel has chosen.
        for one in (low, high):
            found = {s.name: s.value for s in one.statistics if s.path == "core.0.mmu.engine.data"}
            assert found["right"] > 0.95 * 2 * PAGES


@pytest.mark.parametrize(
    ("design", "setting"),
    [
        ("radix", "page_table.radix.levels=5"),
        ("ecpt", "page_table.elastic_cuckoo.address_bits=57"),
        ("mehpt", "page_table.memory_efficient.address_bits=57"),
        ("revelator", "page_table.radix.levels=5"),
    ],
)
def test_a_narrow_table_says_which_is_wide_enough(design: str, setting: str) -> None:
    narrow = run(design, HIGH, {})
    said = narrow.message or ""
    assert narrow.failed
    assert "needs 57 bits, and the page table translates 48" in said
    assert f"expected design radix5, or this design with --set {setting}" in said


def test_other_widths_are_refused(invoke: Invoke) -> None:
    key = "page_table.elastic_cuckoo.address_bits"
    said = refused(invoke, "run", "--workload", "gups", "--design", "ecpt", "--set", f"{key}=52")
    assert said == f"error: --set {key}=52: {key} is 52; expected 48 or 57\n"
