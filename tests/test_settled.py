"""Settled huge pages beside a run in which khugepaged had no time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pagewalk

SETTLED = "thp[placement.thp.khugepaged.settled=true]"
STORE: dict[str, Any] = {
    "workload": "kv-map",
    "size": "64MiB",
    "instructions": "300K",
    "warmup": "50K",
}


def test_the_verdict_says_what_settled_huge_pages_gain() -> None:
    result = pagewalk.compare(["radix", "thp"], translation_cost=True, **STORE)
    assert result["thp"].speedup == 1.0
    beside = pagewalk.compare(["radix", "thp", SETTLED], **STORE)[SETTLED].speedup
    assert beside is not None
    assert beside > 1.05
    (settled,) = result.data["settled"]
    assert settled == {"name": SETTLED, "speedup": beside}
    words = f"Settled huge pages would be {beside:.3f} times as fast as radix ({SETTLED})."
    assert words in result.verdict
    assert len(result.designs) == 2


def test_each_machine_has_its_own() -> None:
    result = pagewalk.compare(
        ["radix", "thp"], machine=["epyc-milan", "emt-reference"], translation_cost=True, **STORE
    )
    found = {one["machine"]: one["speedup"] for one in result.data["settled"]}
    assert list(found) == result.machines
    spoken = [text for text in result.verdict if text.startswith("Settled huge pages")]
    assert len(set(found.values())) == len(spoken) == 2


def test_it_is_left_out_if_refused_or_there_or_not_needed() -> None:
    refused = pagewalk.compare(["radix", "thp"], translation_cost=False, **STORE)
    there = pagewalk.compare(["radix", "thp", SETTLED], translation_cost=True, **STORE)
    arrays = pagewalk.compare(
        ["radix", "thp"],
        workload="gups",
        size="64MiB",
        instructions="50K",
        translation_cost=True,
    )
    for result in (refused, there, arrays):
        assert "settled" not in result.data
        assert not any("ettled huge pages" in text for text in result.verdict)


def test_a_program_that_runs_once_is_not_run_again() -> None:
    def grows() -> Iterator[int]:
        for n in range(3000):
            yield 0x1000_0000 + (n % 12 << 22) + 4096 * (n // 12)

    # No mapping covers 2 MB.
    mappings = [(0x1000_0000 + (n << 22), 1 << 20) for n in range(12)]
    result = pagewalk.compare(
        ["radix", "thp"], workload=grows(), mappings=mappings, translation_cost=True
    )
    assert result.data["settled"] == [{"name": SETTLED, "speedup": None}]
    text = f"The gain of settled huge pages is that of the design '{SETTLED}' of --designs."
    assert text in result.verdict
