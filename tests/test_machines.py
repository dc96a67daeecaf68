"""Designs on several machines: the engine's specification, and the report of the result."""

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
from pagewalk.view import columns, page

GUPS = ("--workload", "gups", "--designs", "radix,thp")
NAMES = [f"{design} on {machine}" for machine in "ab" for design in ("radix", "thp")]


def test_machines_stand_with_commas_between_them(engine: fake.Engine, invoke: Invoke) -> None:
    for given, machines in (("a,b", ["a", "b"]), ("a, x/b.toml", ["a", "x/b.toml"]), ("a", "a")):
        assert invoke("compare", *GUPS, "--machine", given)[0] == 0
        assert engine.specs[-1]["machine"] == machines


def test_a_file_with_a_comma_in_its_name_is_one_machine(
    engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    path = tmp_path / "a,b.toml"
    path.write_text("")
    assert invoke("compare", *GUPS, "--machine", str(path))[0] == 0
    assert engine.specs[-1]["machine"] == str(path)


def test_python_takes_a_list_of_machines(engine: fake.Engine) -> None:
    result = pagewalk.compare(
        ["radix", "thp"], machine=["a", Path("x/b.toml")], workload="gups", progress=False
    )
    assert engine.specs[0]["machine"] == ["a", "x/b.toml"]
    assert result.machines == ["a", "x/b.toml"]
    pagewalk.compare(["radix"], machine=["a"], workload="gups", progress=False)
    assert engine.specs[1]["machine"] == "a"


def test_run_takes_one_machine(engine: fake.Engine, invoke: Invoke) -> None:
    err = refused(invoke, "run", "--workload", "gups", "--machine", "a,b")
    assert err == "error: --machine: run takes a single machine; compare takes several\n"
    with pytest.raises(pagewalk.UserError, match=r"pagewalk\.run takes a single machine"):
        pagewalk.run(machine=["a", "b"], workload="gups", progress=False)
    with pytest.raises(pagewalk.UserError, match="the list is empty"):
        pagewalk.compare(machine=[], workload="gups", progress=False)
    assert engine.specs == []


def test_results_have_machine_and_design_columns(
    engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    flags = (*GUPS, "--machine", "a,b", "--interval", "1M")
    out, paths = written(invoke, tmp_path, "compare", *flags)
    result = Result(json.loads(paths["json"].read_text()))
    assert [d.name for d in result.designs] == NAMES
    assert result["b", "thp"] is result["thp on b"]
    assert result["b", "thp"].speedup_in_time == 1.0
    frames = {
        "summary": result.summary,
        "frame": result.frame(),
        "histograms": result.histograms(),
        "intervals": result.intervals(),
        "parquet": polars.read_parquet(paths["parquet"]),
    }
    for name, frame in frames.items():
        assert frame.columns[:2] == ["machine", "design"], name
        rows = frame.select("machine", "design").unique(maintain_order=True).rows()
        assert rows == [(m, d) for m in "ab" for d in ("radix", "thp")], name
    assert result.summary["speedup"].to_list() == [1.0, 2.0, 1.0, 2.0]
    assert result.summary["speedup_in_time"].to_list() == [1.0, 2.0, 0.5, 1.0]
    for words in (
        "machines a, b",
        "in time: in seconds, over radix on a",
        "speedup: over radix on the same machine",
        "Speedup over radix on the same machine",
        "Speedup in time over radix on a",
        *NAMES,
    ):
        assert words in out
    page = paths["html"].read_text()
    for words in ("In seconds, over radix on a", "Over radix on the same machine", *NAMES):
        assert words in page


def test_one_machine_adds_no_columns(engine: fake.Engine) -> None:
    result = pagewalk.compare(["radix", "thp"], workload="gups", progress=False)
    assert result.machines == []
    assert result.reference == "radix"
    for frame in (result.summary, result.frame(), result.histograms(), result.intervals()):
        assert frame.columns[0] == "design"
        assert "speedup_in_time" not in frame.columns
    assert "in_time" not in result.to_html()


def test_machines_differ_in_the_real_engine(tmp_path: Path) -> None:
    slow = pagewalk.machine("epyc-milan").copy(label="slow")
    slow.frequency_ghz = 1.7
    arguments: dict[str, Any] = {
        **{"workload": "gups", "size": "16MiB", "instructions": "50K", "warmup": "10K"},
        "progress": False,
    }
    result = pagewalk.compare(
        ["radix", "thp"],
        machine=["epyc-milan", slow],
        settings={"slow:mmu.walkers": 1},
        **arguments,
    )
    assert result.machines == ["epyc-milan", "slow"]
    walkers = [d.config["mmu"]["walkers"] for d in result.designs]
    assert walkers[2:] == [1, 1]
    assert walkers[0] > 1
    for machine in result.machines:
        first, thp = result[machine, "radix"], result[machine, "thp"]
        assert first.speedup == 1.0
        assert thp.speedup == pytest.approx(first["cycles"] / thp["cycles"], rel=1e-3)
        for design in (first, thp):
            clock = design.config["frequency_ghz"] * 1e9
            assert design["seconds"] == pytest.approx(design["cycles"] / clock)
            assert design.translation_cost is not None
    slower = result["slow", "radix"].speedup_in_time
    assert slower is not None
    assert slower < 0.9
    made = pagewalk.design("thp", "epyc-milan")
    with pytest.raises(pagewalk.UserError, match="was made for 'epyc-milan' and cannot run on"):
        pagewalk.compare([made], machine=["epyc-milan", slow], **arguments)


def test_a_column_without_values_is_left_out(engine: fake.Engine) -> None:
    spec = {"designs": ["radix"], "machine": ["a", "b"], "seed": 1, "limits": {}}
    whole, mix = fake.result(spec), fake.result(spec)
    for design in mix["designs"]:
        design["speedup_in_time"] = None
    for data, there in ((whole, True), (mix, False)):
        result = Result(data)
        assert any(c.name == "speedup_in_time" for c in columns.comparison(result)) == there
        assert ("speedup_in_time" in page._table(result)) == there
