"""Mixes and requests: the engine's specification, and the report of the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pytest

import fake
import pagewalk
from invoking import Invoke, refused, written
from pagewalk.result import Result


def built_in(name: str, size: str | None = None, threads: int = 1, **params: str) -> dict[str, Any]:
    return {"workload": {"name": name, "size": size, "threads": threads, "params": params}}


MIX = [built_in("gups", "4GiB"), built_in("bfs", threads=2, scale="16"), built_in("gups", "4GiB")]


@pytest.mark.parametrize(
    "flags",
    [
        ["--mix", "gups:size=4GiB,bfs:scale=16:threads=2,gups:size=4096MiB"],
        ["--mix", "gups:size=4G, bfs:threads=2:scale=16", "--mix", "gups:size=4GB"],
    ],
)
def test_a_mix_is_written_as_names_with_keys(
    engine: fake.Engine, invoke: Invoke, flags: list[str]
) -> None:
    for command in ("run", "compare"):
        assert invoke(command, *flags)[0] == 0
        assert engine.specs[-1]["source"] == {"mix": {"programs": MIX}}


@pytest.mark.parametrize(
    "mix",
    [
        "gups:size=4GiB,bfs:scale=16:threads=2,gups:size=4GiB",
        ["gups:size=4GiB", "bfs:scale=16:threads=2", "gups:size=4GiB"],
        [
            {"workload": "gups", "size": "4GiB"},
            {"workload": "bfs", "threads": 2, "scale": 16},
            {"workload": "gups", "size": 4 << 30},
        ],
    ],
)
def test_python_takes_texts_and_dictionaries(engine: fake.Engine, mix: Any) -> None:
    pagewalk.compare(["radix"], mix=mix, progress=False)
    assert engine.specs[0]["source"] == {"mix": {"programs": MIX}}


def test_a_path_is_a_trace(engine: fake.Engine, invoke: Invoke, tmp_path: Path) -> None:
    engine.script = lambda spec, _progress: fake.result({**spec, "source": None})
    trace = tmp_path / "a:b"
    trace.write_bytes(b"")
    here = tmp_path / "c.champsimtrace.xz"
    here.write_bytes(b"")
    assert invoke("run", "--mix", f"{trace},{here},bfs:graph=/no/where")[0] == 0
    programs = [
        {"trace": {"path": str(trace)}},
        {"trace": {"path": str(here)}},
        built_in("bfs", graph="/no/where"),
    ]
    pagewalk.run(mix=[{"trace": trace}, str(here), "bfs:graph=/no/where"], progress=False)
    assert [s["source"]["mix"]["programs"] for s in engine.specs] == [programs, programs]


def test_each_program_of_a_mix_has_the_limits_of_one(engine: fake.Engine, invoke: Invoke) -> None:
    invoke("run", "--mix", "gups,bfs,gups")
    invoke("run", "--mix", "gups,bfs", "--instructions", "1M")
    limits = [spec["limits"] for spec in engine.specs]
    # Instructions are each program's, the warm-up is all programs' together.
    assert (limits[0]["instructions"], limits[0]["warmup"]) == (100_000_000, 30_000_000)
    assert (limits[1]["instructions"], limits[1]["warmup"]) == (1_000_000, 0)


def test_requests_take_the_place_of_instructions(engine: fake.Engine, invoke: Invoke) -> None:
    invoke("run", "--workload", "gups", "--requests", "5K")
    invoke("run", "--workload", "gups", "--requests", "5K", "--warmup-requests", "1K")
    invoke("run", "--workload", "gups", "--requests", "5K", "--instructions", "1M")
    invoke("run", "--workload", "gups", "--warmup-requests", "1K")
    names = ("instructions", "requests", "warmup", "warmup_requests")
    assert [[spec["limits"].get(name) for name in names] for spec in engine.specs] == [
        [None, 5000, 10_000_000, None],
        [None, 5000, 0, 1000],
        [1_000_000, 5000, 0, None],
        [100_000_000, None, 0, 1000],
    ]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mix", "a,b", "--workload", "gups"], "found --workload NAME and --mix A,B,…"),
        (["--mix", "a,b", "--", "true"], "found --mix A,B,… and -- PROGRAM"),
        (["--mix", "a,b", "--size", "1GiB"], "--size belongs to a single program; in a mix"),
        (["--mix", "a,b", "--param", "x=1"], "--param belongs to a single program; in a mix"),
        (["--mix", "a:hot=1,cold=2"], "'cold=2' names no program; expected NAME[:KEY=VALUE]…"),
        (["--mix", "a:file=x,y.txt"], "and no comma or colon in a value"),
        (["--mix", "a:hot,b"], "--mix a: 'hot' is not understood; expected NAME[:KEY=VALUE]…"),
        (["--mix", "a,,b"], "'' names no program"),
        (["--mix", "a:size=big,b"], "--mix a: size: 'big' is not understood; expected a size"),
        (["--mix", "a:threads=0,b"], "--mix a: threads: 0 is not possible; expected 1 or more"),
        (["--mix", "a:threads=two,b"], "--mix a: threads: 'two' is not understood"),
        (["--mix", "no/such,b"], "--mix: there is no file 'no/such'"),
        (["--mix", "no-such.pwt:size=1GiB,b"], "there is no file 'no-such.pwt:size=1GiB'"),
        (["--mix", "a,b", "--parquet", "-"], "programs of a mix go to a second file"),
    ],
)
def test_a_mistake_in_a_mix_is_one_sentence(
    engine: fake.Engine, invoke: Invoke, flags: list[str], message: str
) -> None:
    assert message in refused(invoke, "run", *flags)
    assert engine.specs == []


@pytest.mark.parametrize(
    ("one", "message"),
    [
        ({"program": ["ls"]}, "a live program cannot start again; record it"),
        ({"size": "4GiB"}, "a dictionary without a name"),
        ({"trace": "t.pwt", "size": "4GiB"}, "a trace has no 'size'"),
        (5, "5 is no program of a mix; expected a text or a dictionary"),
    ],
)
def test_a_mistake_in_python_is_one_sentence(engine: fake.Engine, one: Any, message: str) -> None:
    with pytest.raises(pagewalk.UserError, match=message):
        pagewalk.run(mix=["gups", one], progress=False)
    assert engine.specs == []


def test_statistics_of_programs_are_in_frames_and_files(
    engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    flags = ("--mix", "gups,bfs", "--designs", "radix,thp")
    _, paths = written(invoke, tmp_path, "compare", *flags)
    result = Result(json.loads(paths["json"].read_text()))
    own = (9, 0.5, None, 0.25, 3, 60, 20.0, 2, 500, 4096, 2 << 20, 0, 8192)
    rows = [
        (design, program, 10_000_000, 0, cycles, ipc, alone, speedup, *own)
        for design, speedup in (("radix", 1.0), ("thp", 2.0))
        for program, cycles, ipc, alone in (
            ("gups", 20_000_000, 0.5, 0.625),
            ("bfs", 40_000_000, 0.25, 0.3125),
        )
    ]
    assert result.programs.rows() == rows
    assert result.programs.columns == [
        *("design", "program", "instructions", "requests"),
        *("cycles", "ipc", "ipc_alone", "speedup", "core_cycles"),
        *("l1d_tlb_mpki", "l1i_tlb_mpki", "l2_tlb_mpki", "walks", "walk_cycles"),
        *("walk_cycles_mean", "page_faults", "fault_cycles"),
        *("mapped_4kb", "mapped_2mb", "mapped_1gb", "page_table_bytes"),
    ]
    assert result.summary["weighted_speedup"].to_list() == [1.6, 1.6]
    assert result.summary["harmonic_speedup"].to_list() == [0.8, 0.8]
    assert result.summary["antt"].to_list() == [1.25, 1.25]
    assert result["thp"].programs[0].mapped == 4096 + (2 << 20)
    assert result["thp"].programs[0].later["walks"] == 7
    assert polars.read_parquet(tmp_path / "r.programs.parquet").rows() == rows
    for text in (paths["html"].read_text(), result._repr_html_()):
        assert "<th scope=row>bfs</th><td>0.312</td><td>0.250</td><td>1.000</td>" in text
        assert "<th scope=row>weighted speedup</th><td></td><td></td><td>1.600</td>" in text
        assert "<th scope=row>ANTT</th><td></td><td></td><td>1.250</td>" in text
        assert "<th scope=row>bfs</th><td>thp</td><td>0.500</td><td>0.250</td><td>3</td>" in text


def test_one_program_has_no_table_of_programs(engine: fake.Engine) -> None:
    result = pagewalk.compare(["radix", "thp"], workload="gups", progress=False)
    assert result.programs.is_empty()
    # The column is that of every run, so that their frames go together.
    assert result.summary["weighted_speedup"].to_list() == [None, None]
    assert "weighted" not in result.to_html()


def test_speedup_by_requests_says_so(engine: fake.Engine, invoke: Invoke, tmp_path: Path) -> None:
    def script(spec: dict[str, Any], _progress: object) -> dict[str, Any]:
        answer = fake.result(spec)
        for design in answer["designs"]:
            fake.by_requests(design, 50_000)
        return answer

    engine.script = script
    page = tmp_path / "r.html"
    flags = ["--workload", "gups", "--designs", "radix,thp", "--requests", "50K"]
    status, out, _ = invoke("compare", *flags, "--skip-requests", "7", "--html", str(page))
    assert status == 0
    for words in (
        "speedup,",
        "by requests",
        "Speedup over radix, by requests",
        "Cycle stack (cycles a request)",
        "skipped 7 requests",
    ):
        assert words in out
    head = next(line for line in out.splitlines() if "by requests" in line)
    assert head.split()[:4] == ["design", "by", "requests", "IPC"]
    row = next(line for line in out.splitlines() if line.split()[:2] == ["thp", "2.000"])
    assert row.split()[3:5] == ["50.0", "900"]
    assert "by requests: cycles a request are compared" in page.read_text()
    assert ">cycles a request<" in page.read_text()


def test_reports_without_requests_do_not_mention_them(engine: fake.Engine, invoke: Invoke) -> None:
    def script(spec: dict[str, Any], _progress: object) -> dict[str, Any]:
        answer = fake.result(spec)
        for design in answer["designs"]:
            fake.by_requests(design, 50_000)
            design["speedup_by"] = "instruction"
            for quantity in design["summary"][-3:]:
                quantity["value"] = None
        return answer

    engine.script = script
    for command in ("run", "compare"):
        status, out, _ = invoke(command, "--workload", "gups")
        assert status == 0
        assert "request" not in out
    result = pagewalk.run(workload="gups", progress=False)
    assert "request" not in result.to_html().split("Details")[0]
    assert "requests" in result.summary.columns
