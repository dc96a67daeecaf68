"""Samples, as the command line and Python tell of them."""

from __future__ import annotations

import pagewalk
from asking import Invoke, told


def test_samples_say_between_which_ends_a_number_lies(invoke: Invoke) -> None:
    asked = "compare --workload gups --size 64MiB --designs radix,thp --warmup 0"
    limits = "--instructions 30M --precision 5% --no-translation-cost"
    found = told(invoke, *asked.split(), *limits.split())
    assert "Samples (" in found and "with 95 % confidence)" in found
    assert "times as fast" in found.split("thp: IPC")[1]


def test_a_result_has_the_interval_of_each_number() -> None:
    result = pagewalk.run(
        workload="gups",
        size="64MiB",
        warmup=0,
        instructions="3M",
        sample="2K/100K:20K+5K",
        progress=False,
    )
    found = result.designs[0].sampling
    assert found is not None and found.samples in (29, 30)
    misses = found.metrics["l2_tlb_mpki"]
    assert misses.low < misses.value < misses.high
    assert found.warming is not None and set(found.warming.unknown) > {"l3", "tlb_l2"}
    assert "cycles" not in found.metrics, "a sum is none of the whole run"
    assert found.speedup is None
