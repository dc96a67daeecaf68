"""Redundant memory mappings: the design `rmm`, from the memory of a program to its walks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import pagewalk

PAGE = 4096
PAGES = 16 << 8
"""16 MB of 4 KB pages, more than the second-level TLB holds."""
AT = 1 << 44
SMALL = {"mmu.l2.main.entries": 1024, "mmu.l2.main.ways": 4}


def sweep(design: str, *arrays: int) -> dict[tuple[str, str], float]:
    """The counters of two rounds over arrays that begin at these addresses."""
    pages = [at + PAGE * np.arange(PAGES, dtype=np.uint64) for at in arrays]

    def rounds() -> Iterator[np.ndarray[Any, Any]]:
        yield from pages
        yield from pages

    result = pagewalk.run(
        design,
        workload=rounds(),
        mappings=[pagewalk.Mapping(at, PAGES * PAGE, populate=True) for at in arrays],
        settings=SMALL,
        translation_cost=False,
        progress=False,
    )
    (only,) = result.designs
    return {(s.path, s.name): s.value for s in only.statistics}


def test_an_array_in_one_range_walks_the_range_table_once() -> None:
    tlb, mmu = "core.0.mmu.range_tlb", "core.0.mmu"
    one, two = sweep("rmm", AT), sweep("rmm", AT, AT << 1)
    more = {key: value - one[key] for key, value in two.items()}
    assert more["page_table", "ranges"] == 1
    assert more[tlb, "fills"] == 1
    assert more[tlb, "pages"] == PAGES
    for found, arrays in ((one, 1), (two, 2)):
        # Eager paging puts each array into one range. A table of one range fills a line. With two,
        # the search reads the header and another line.
        assert found["page_table", "ranges"] == found[tlb, "fills"] == arrays
        assert found[tlb, "table_reads"] == {1: 1, 2: 2 + 2}[arrays]
        assert found["os.eager", "pages"] == arrays * PAGES
        # Pages walk while the range table is read, and one page of code faults and walks again.
        assert found[mmu, "walks"] == found[tlb, "fills"] + found[tlb, "on_its_way"] + 2
        assert found[tlb, "on_its_way"] < 0.02 * arrays * 2 * PAGES
        assert found[tlb, "served"] > 0.97 * arrays * 2 * PAGES
    assert sweep("radix", AT)[mmu, "walks"] == 2 * PAGES + 2


@pytest.mark.parametrize("base", ["radix", "radix-virtual"])
def test_a_range_tlb_without_ranges_is_refused(base: str) -> None:
    design = f"{base}[translation.range_tlb.entries=32]"
    with pytest.raises(pagewalk.UserError, match=r"translation\.range_tlb.*page_table\.ranges"):
        pagewalk.run(design, workload="gups", size="16MiB", progress=False)
