"""Mixes and requests in the real engine, through the package's own interface."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Invoke, refused

SMALL = {"workload": "gups", "size": "16MiB"}


def small(designs: list[str], **arguments: Any) -> pagewalk.Result:
    return pagewalk.compare(designs, progress=False, **arguments)


def test_programs_of_a_mix_share_a_machine_and_have_own_statistics() -> None:
    result = small(
        ["radix", "perfect-tlb"],
        mix=[SMALL, {"workload": "bfs", "scale": 12}],
        settings={"cores": 2},
        instructions="100K",
        warmup="20K",
    )
    assert not result.partial
    rows = result.programs.rows(named=True)
    assert [row["design"] for row in rows] == ["radix"] * 2 + ["perfect-tlb"] * 2
    assert ["gups" in row["program"] for row in rows] == [True, False] * 2
    for row in rows:
        assert row["instructions"] >= 100_000
        assert row["ipc"] == row["instructions"] / row["cycles"]
        assert row["ipc_alone"] > 0
    for i, design in enumerate(result.designs):
        own = rows[2 * i : 2 * i + 2]
        weighted = sum(row["ipc"] / row["ipc_alone"] for row in own)
        assert design.weighted_speedup == pytest.approx(weighted)
        assert [r["speedup"] for r in own] == pytest.approx(
            [r["ipc"] / first["ipc"] for r, first in zip(own, rows[:2], strict=True)]
        )
    assert result.summary["weighted_speedup"].to_list() == [
        d.weighted_speedup for d in result.designs
    ]


def test_two_programs_on_one_core_take_turns() -> None:
    # Slices far shorter than what is measured: each has half of the core.
    result = small(
        ["radix"],
        mix=[SMALL, SMALL],
        instructions="300K",
        warmup="20K",
        settings={"cores": 1, "schedule.time_slice_cycles": 20_000},
    )
    for program in result["radix"].programs:
        assert program.ipc is not None
        assert program.ipc_alone is not None
        assert 0.35 < program.ipc / program.ipc_alone < 0.65


def test_so_many_requests_are_measured() -> None:
    result = small(
        ["radix", "thp"], **SMALL, requests=2000, skip_requests=100, warmup_requests="1K"
    )
    for design in result.designs:
        assert design["requests"] == 2000
        assert design["cycles_per_request"] == design["cycles"] / 2000
        assert design.speedup_by == "instruction"
        assert design["instructions_per_request"] < 100
    assert "warm-up 1000 requests" in " ".join(result.facts).replace("1.00 K", "1000")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--mix gups", "--mix: expected two programs or more, such as gups,bfs"),
        ("--mix gups,bsf", "no built-in program `bsf`; did you mean `bfs`?"),
        ("--mix gups,bfs:scael=16", "bfs has no parameter `scael`; did you mean `scale`?"),
        ("--mix gups,gups:threads=9999", "gups: 9999 threads; expected 1 to"),
        ("--mix gups,bfs --sample 1K/20K", "expected no --sample with --mix"),
        ("--mix gups:size=1MiB,sysbench:size=1MiB --requests 5", "does not say where a request"),
        ("--workload sysbench --size 1MiB --requests 5", "does not say where a request ends"),
        ("--workload sysbench --size 1MiB --skip-requests 5", "--skip-requests: sysbench"),
        (
            "--workload gups --skip 1M --skip-requests 5",
            "--skip and --skip-requests: expected one of the two",
        ),
        (
            "--workload gups --warmup 1M --warmup-requests 5 --requests 5",
            "--warmup and --warmup-requests: expected one of the two",
        ),
    ],
)
def test_the_engine_refuses_in_one_sentence(invoke: Invoke, flags: str, message: str) -> None:
    assert message in refused(invoke, "run", *flags.split())


def test_a_mix_takes_traces(invoke: Invoke, tmp_path: Path) -> None:
    trace = tmp_path / "gups.pwt"
    flags = ["--workload", "gups", "--size", "16MiB", "--instructions", "50K"]
    assert invoke("record", *flags, "-o", str(trace))[0] == 0
    status, out, err = invoke(
        *("run", "--mix", f"{trace},gups:size=16MiB", "--instructions", "100K", "--warmup", "0")
    )
    assert (status, err) == (0, "")
    assert "weighted speedup" in out


def test_the_statistics_of_programs_add_up_to_those_of_the_machine() -> None:
    result = small(
        ["radix"],
        mix=[SMALL, {"workload": "bfs", "scale": 12}],
        instructions="100K",
        settings={"cores": 1, "schedule.time_slice_cycles": 20_000},
    )
    design = result["radix"]
    accounts = [a for p in design.programs for a in (p.own, p.later)]
    accounts.append(design.outside_programs)
    assert sum(a["walks"] for a in accounts) == design["walks"]
    assert sum(a["page_faults"] for a in accounts) == design["page_faults"]
    (retired,) = (
        s.value for s in design.statistics if (s.path, s.name) == ("core.0", "instructions")
    )
    assert sum(a["instructions"] for a in accounts) == retired
    assert design.outside_programs["core_cycles"] > 0
    assert [p.own["instructions"] for p in design.programs] == result.programs[
        "instructions"
    ].to_list()
    gups, bfs = result.programs.rows(named=True)
    assert gups["l2_tlb_mpki"] > 10 * bfs["l2_tlb_mpki"]
    assert gups["mapped_4kb"] >= 16 << 20 > bfs["mapped_4kb"] > 0
