"""Samples on the command line and in Python."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Invoke, output_of, refused
from live import needs_qemu
from pagewalk import _native, native
from pagewalk.config import options
from pagewalk.errors import UserError


def test_samples_say_between_which_ends_a_number_lies(invoke: Invoke) -> None:
    command = "compare --workload gups --size 64MiB --designs radix,thp --warmup 0"
    limits = "--instructions 30M --precision 5% --no-translation-cost"
    found = output_of(invoke, *command.split(), *limits.split())
    assert "Samples (" in found and "with 95 % confidence)" in found
    assert "times as fast" in found.split("thp: IPC")[1]


def test_an_interval_may_have_no_upper_end(invoke: Invoke, tmp_path: Path) -> None:
    """Two samples that differ much bound the IPC from below alone."""
    command = "run --workload gups --warmup 0 --sample 1K/1M:0 --instructions 2M".split()
    page = tmp_path / "page.html"
    found = output_of(
        invoke, *command, "--json", str(tmp_path / "result.json"), "--html", str(page)
    )
    assert "to any number)" in found and page.exists()
    sampling = (
        pagewalk.Result(json.loads((tmp_path / "result.json").read_text())).designs[0].sampling
    )
    assert sampling is not None and sampling.ipc_high is None
    assert sampling.metrics["ipc"].high is None


@pytest.mark.parametrize(
    ("metric", "said"),
    [
        ("cycles", "samples say nothing of cycles"),
        ("page_faults", "samples say nothing of page_faults"),
        ("ipx", "did you mean ipc"),
    ],
)
def test_a_precision_needs_a_number_that_samples_estimate(
    invoke: Invoke, metric: str, said: str
) -> None:
    command = f"run --workload gups --instructions 1M --precision 2%:{metric}"
    assert said in refused(invoke, *command.split())


def test_a_number_without_a_value_in_the_samples_is_reported(invoke: Invoke) -> None:
    command = "run --workload gups --size 64MiB --warmup 0 --instructions 30M --design perfect-tlb"
    found = output_of(invoke, *command.split(), "--precision", "9%:walk_cycles_mean")
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
    assert misses.high is not None and misses.low < misses.value < misses.high
    assert found.warming is not None and set(found.warming.unknown) > {"l3", "tlb_l2"}
    assert "cycles" not in found.metrics, "a sum is none of the whole run"
    assert found.speedup is None


def recorded(folder: Path) -> str:
    """A recording of 3 million instructions."""
    path = folder / "gups.pwt"
    source = {"workload": {"name": "gups", "size": "16MiB"}}
    native.record({"source": source, "instructions": 3_000_000}, str(path))
    return str(path)


def counted(trace: str, jobs: int, **more: Any) -> Any:
    """The numbers of samples of a recording, without those of the host."""
    options: dict[str, Any] = {"sample": "2K/40K:10K+5K", "warmup": 0, "instructions": "2.4M"}
    result = pagewalk.compare(
        trace=trace,
        designs=["radix", "thp"],
        jobs=jobs,
        progress=False,
        **options | {"skip": "100K"} | more,
    )
    found = json.loads(result.to_json())
    del found["host"]
    return found


def test_samples_of_a_recording_count_the_same_on_one_core_and_on_several(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    one, many = (counted(trace, jobs) for jobs in (1, 8))
    assert one == many
    whole = counted(trace, 2, sample=None)
    for sampled, all_of_it in zip(one["designs"], whole["designs"], strict=True):
        assert sampled["sampling"]["samples"] == 60
        assert sampled["since_boot"] == all_of_it["since_boot"], "each page is mapped once"
        metrics = {m["name"]: m["value"] for m in sampled["summary"]}
        assert 60 * 2000 <= metrics["instructions"] < 60 * 2100
    # Only the first shard simulates the warm-up; the others fast-forward it.
    assert counted(trace, 1, warmup="100K", skip=0) == counted(trace, 8, warmup="100K", skip=0)


@needs_qemu
def test_recordings_of_live_programs_are_sampled_side_by_side(tmp_path: Path) -> None:
    trace = str(tmp_path / "seq.pwt")
    with (tmp_path / "out").open("w") as out:
        words = [sys.executable, "-m", "pagewalk", "record", "-o", trace, "--", "seq", "40000"]
        subprocess.run(words, check=True, stdout=out, stderr=subprocess.PIPE)
    part: Any = {"sample": "2K/100K:60K+15K", "instructions": None, "skip": 0}
    many = counted(trace, 2, **part)
    assert many["source"]["deterministic"]
    assert many["designs"][0]["sampling"]["samples"] > 16
    # In a run with intervals one machine takes all samples, and maps each page when it comes.
    whole = counted(trace, 2, **part, interval=10**12)
    for design, as_one in zip(many["designs"], whole["designs"], strict=True):
        assert design["since_boot"] == as_one["since_boot"]
        assert design["sampling"]["samples"] == as_one["sampling"]["samples"]
        low, high = (design["sampling"][end] for end in ("ipc_low", "ipc_high"))
        # Without an upper end the samples say of almost no cycle that it has to be.
        assert low < as_one["sampling"]["ipc"] < (high or math.inf)


@pytest.mark.parametrize("threads", [1, 2])
def test_samples_of_one_thread_alone_are_several_machines(tmp_path: Path, threads: int) -> None:
    path = tmp_path / "gups.pwt"
    source = {"workload": {"name": "gups", "size": "16MiB", "threads": threads}}
    native.record({"source": source, "instructions": 3_000_000}, str(path))
    # With intervals one takes all, and has in its caches what came before a sample long ago.
    found, as_one = (counted(str(path), 2, **more) for more in ({}, {"interval": 10**12}))
    sampling = [one["designs"][0]["sampling"] for one in (found, as_one)]
    assert (sampling[0] == sampling[1]) == (threads == 2)


def test_stopped_shards_give_a_partial_result(tmp_path: Path) -> None:
    trace = recorded(tmp_path)
    spec = {
        "designs": ["radix"],
        "machine": "revelator-table1",
        "source": {"trace": {"path": trace}},
        "limits": {
            "sample": {
                "length": 2000,
                "period": 40_000,
                "warming": {"filtered": 10_000, "warmed": 5000},
            }
        },
        "host_threads": 2,
    }
    found = json.loads(_native.run(json.dumps(spec), lambda _: False))
    assert found["partial"] and found["designs"][0]["status"] == "partial"
    assert found["designs"][0]["message"] == "stopped before the end"


def test_a_damaged_recording_fails_equally_on_one_core_and_on_several(tmp_path: Path) -> None:
    trace = Path(recorded(tmp_path))
    data = bytearray(trace.read_bytes())
    data[len(data) // 2] ^= 0xFF
    trace.write_bytes(bytes(data))
    one, many = (counted(str(trace), jobs) for jobs in (1, 8))
    assert one == many and one["partial"]
    for design in one["designs"]:
        assert design["status"] == "program_error"
        assert "the checksum of a block does not match" in design["message"]


def looked_at(**more: Any) -> tuple[Any, Any]:
    """The length that `auto` finds, and what is not known of the samples then."""
    options: dict[str, Any] = {"workload": "gups", "size": "256MiB", "progress": False, "warmup": 0}
    result = pagewalk.run(**options | {"instructions": "200M", "sample": "5K/50M:auto+20K"} | more)
    sampling = result.designs[0].sampling
    assert sampling is not None
    sample = result.data["limits"]["sample"]
    assert sample is not None
    return sample["warming"]["filtered"], sampling.warming


SMALL = {"memory.l3.size_kb": 512, "caches.l2.size_kb": 64}


def test_the_warming_of_auto_fills_the_caches_and_leaves_little_stale_state() -> None:
    short, unknown = looked_at(settings=SMALL)
    # A part that uses twice the 8,192 lines of the last-level cache fills it.
    assert short is not None and 65_536 <= short < 10_000_000
    assert unknown is None or sum(unknown.unknown["l3"]) < 0.5
    _, without = looked_at(settings=SMALL, sample="5K/50M:20K")
    assert sum(without.unknown["l3"]) > 2, "which a sample without it is full of"
    longer, _ = looked_at(settings=SMALL | {"memory.l3.size_kb": 1024})
    assert longer >= 1.5 * short, "a cache of twice the size takes twice as much to fill"
    assert looked_at(settings=SMALL)[0] == short


def test_auto_warms_all_if_the_program_is_too_short_to_choose() -> None:
    found, unknown = looked_at(instructions="3M", sample="5K/500K:auto+20K")
    assert found is None and (unknown is None or unknown.unknown["l3"] == [0.0, 0.0])


@pytest.mark.parametrize(
    ("named", "short"),
    [
        ("length=20K,period=5M", "20K/5M"),
        ("period=5M, length=20K, warm=50K", "20K/5M:50K"),
        ("length=20K,period=5M,filtered=all,warm=50K", "20K/5M:all+50K"),
        ("length=20K,period=5M,filtered=auto,warm=50K", "20K/5M:auto+50K"),
        ("length=20K,period=5M,filtered=300K,warm=50K", "20K/5M:300K+50K"),
    ],
)
def test_named_parts_of_a_sample_mean_the_short_form(named: str, short: str) -> None:
    assert options.read("sample", named) == options.read("sample", short)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("length=20K", "gives no period; expected it too, as period=5M"),
        ("length=20K,period=5M,filtered=all", "filtered is given without warm"),
        ("length=20K,period=5M,warmup=50K", "'warmup=50K' is not understood; expected length"),
        ("length=20K,period=5M,length=2K", "length is given twice"),
        ("length=5M,period=5M", "expected a length above 0 and below the period"),
    ],
)
def test_a_sample_that_is_not_understood_is_refused(given: str, expected: str) -> None:
    with pytest.raises(UserError, match=re.escape(expected)):
        options.read("sample", given)


def test_a_report_names_the_warming_before_each_sample(invoke: Invoke) -> None:
    command = "run --workload gups --size 16MiB --warmup 0 --instructions 1M --sample"
    for warming, said in (
        (
            "10K+5K",
            "filtered functional warming (10.0 K instructions), "
            "then functional warming (5.00 K instructions).",
        ),
        ("all+5K", "filtered functional warming (all before), then functional warming (5.00 K"),
        ("5K", "Before each sample: functional warming (5.00 K instructions)."),
    ):
        found = " ".join(output_of(invoke, *command.split(), f"5K/100K:{warming}").split())
        assert said in found, found


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("run --sample 5K/100K:auto+5K -- /bin/true", "record it first"),
        ("run --mix gups,bfs --sample 5K/100K:auto+5K", "looks at one program"),
        ("run --workload gups --roi --sample 5K/100K:auto+5K", "no --roi"),
        ("run --workload gups --sample 5K/100K:automatic+5K", "expected a count"),
    ],
)
def test_auto_is_refused_without_a_program_to_look_at(
    invoke: Invoke, arguments: str, said: str
) -> None:
    assert said in refused(invoke, *arguments.split(), "--instructions", "1M")
