"""Samples, as the command line and Python tell of them."""

from __future__ import annotations

import pytest

import pagewalk
from asking import Invoke, refused, told


def test_samples_say_between_which_ends_a_number_lies(invoke: Invoke) -> None:
    asked = "compare --workload gups --size 64MiB --designs radix,thp --warmup 0"
    limits = "--instructions 30M --precision 5% --no-translation-cost"
    found = told(invoke, *asked.split(), *limits.split())
    assert "Samples (" in found and "with 95 % confidence)" in found
    assert "times as fast" in found.split("thp: IPC")[1]


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("cycles", "samples say nothing of cycles"),
        ("page_faults", "samples say nothing of page_faults"),
        ("ipx", "did you mean ipc"),
    ],
)
def test_only_what_samples_estimate_can_be_asked_for(
    invoke: Invoke, metric: str, said: str
) -> None:
    asked = f"run --workload gups --instructions 1M --precision 2%:{metric}"
    assert said in refused(invoke, *asked.split())


def test_a_number_that_no_sample_has_is_told(invoke: Invoke) -> None:
    asked = "run --workload gups --size 64MiB --warmup 0 --instructions 30M --design perfect-tlb"
    found = told(invoke, *asked.split(), "--precision", "9%:walk_cycles_mean")
    assert "walk_cycles_mean of perfect-tlb has no value in the samples" in " ".join(found.split())


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
