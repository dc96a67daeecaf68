"""The study of guesses over every page table and placement: what it runs and how it reads it."""

from __future__ import annotations

import importlib
import tempfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pagewalk import native
from pagewalk.reproduce import Outcome, Paper, Row, Run
from pagewalk.reproduce import paper as papers
from pagewalk.runs.plan import keys, written

Json = dict[str, Any]
FIGURES = ("room", "guesses", "entries", "full", "huge", "virtual")


@pytest.fixture(scope="module")
def paper() -> Paper:
    return papers.load("combined", "smoke")


def module(paper: Paper, name: str) -> ModuleType:
    """A file of the study's folder."""
    (figure, *_) = paper.figures().values()
    return importlib.import_module(f"{type(figure).__module__.rpartition('.')[0]}.{name}")


def runs(paper: Paper, figure: str) -> list[Run]:
    return list(paper.figures([figure])[figure].runs(paper))


def outcome(factor: float, stats: Json | None = None) -> Outcome:
    """A finished run at so many times the speed of another."""
    summary = {
        "ipc": factor, "instructions": 1000.0, "l2_tlb_mpki": 10 * factor,
        "walk_cycles_mean": 50.0, "walk_reads_per_walk": 3.0,
        "energy_per_instruction": 2.0 / factor,
        "largest_contiguous_bytes": 4096.0, "page_table_bytes": 1 << 20,
    }  # fmt: skip
    rows = []
    for path, value in (stats or {}).items():
        place, _, name = path.rpartition(".")
        rows.append(
            {"path": place, "name": name, "value": value, "unit": "", "meaning": "", "gauge": False}
        )
    design = {
        "name": "x", "description": "", "status": "complete", "config": {}, "cycle_stack": [],
        "histograms": [],
        "since_boot": [], "stats": rows,
        "summary": [
            {"name": name, "value": value, "unit": "", "meaning": ""}
            for name, value in summary.items()
        ],
    }  # fmt: skip
    return Outcome("key", {"name": "x", "design": design})


def test_every_run_is_of_a_design_that_the_engine_takes(paper: Paper) -> None:
    every = [run for name in FIGURES for run in runs(paper, name)]
    with tempfile.TemporaryDirectory() as folder:
        found, wrong = keys(every, Path(folder))
        assert wrong == {}
        # Two names of one run would be two columns that say the same.
        assert len(set(found.values())) >= 4 * 110
        run = next(run for run in every if run.design.label == "VM Guess ME-HPT, 85 %")
        config = native.resolve(run.machine, str(written(run.design, Path(folder))))["config"]
    assert config["virtual"]["placement"]["tiered_hash"]["denied"] == 0.85
    assert config["virtual"]["placement"]["tiered_hash"]["contiguous_mb"] == 1024
    assert config["page_table"]["memory_efficient"]["chunks"] == []
    assert config["virtual"]["page_table"]["memory_efficient"]["chunks"] != []
    assert config["engine"]["revelator"]["what"] == "data"


def test_tables_meet_all_placements_pressures_and_shares(paper: Paper) -> None:
    guessed = {run.design.label for run in runs(paper, "guesses")}
    for table in ("Radix", "ECPT", "ME-HPT"):
        for pressure in (0, 25, 50, 85):
            assert f"Guess {table}, {pressure} %" in guessed
    fragmented = {run.design.label for run in runs(paper, "huge")}
    for kind in ("THP", "khugepaged", "Reserve"):
        for table in ("Radix", "ECPT", "ME-HPT"):
            for served in (90, 50, 10):
                assert f"{kind} {table}, {served} % served" in fragmented
    assert "Reserve ECPT, 10 % served, full" in fragmented
    pressed = {run.design.label: run for run in runs(paper, "full")}
    changes = pressed["Guess ECPT, 85 %, one tier"].design.changes
    assert changes["placement"]["tiered_hash"]["denied"] == 0.85
    assert changes["engine"]["revelator"]["degree"] == 1


def test_speedups_are_over_radix_and_means_are_of_all_programs(paper: Paper) -> None:
    (figure,) = paper.figures(["guesses"]).values()
    slow = {"Radix": 0.5}

    def rows(broken: str = "") -> dict[tuple[str, str, str], Row]:
        def result(run: Run) -> Outcome:
            if broken and run.program.workload == broken:
                return Outcome("", None, "no luck")
            return outcome(slow.get(run.design.label, 1.0))

        return {(r.panel, r.group, r.series): r for r in figure.rows(paper, result)}

    found = rows()
    assert found["", "BFS", "Radix"].value == 1
    assert found["", "BFS", "ECPT"].value == 2
    assert found["", "GMean", "ECPT"].value == pytest.approx(2)
    assert found["pressure", "85", "ME-HPT, data"].value == pytest.approx(2)
    assert found["numbers", "ECPT", "energy"].value == pytest.approx(0.5)
    # A mean without one of the programs would be of something else.
    one_less = rows("gups")
    assert one_less["", "BFS", "ECPT"].value == 2
    assert one_less["", "GMean", "ECPT"].value is None
    assert one_less["", "GUPS", "ECPT"].failed == "no luck"


def test_guesses_are_counted_by_miss_and_traffic_over_all_channels(paper: Paper) -> None:
    common = module(paper, "common")
    engine = "core.0.mmu.engine"
    stats = {
        "core.0.mmu.walks": 30, "core.0.mmu.walks_merged": 10,
        f"{engine}.data.right": 30, f"{engine}.data.wrong": 20, f"{engine}.entries.wrong": 40,
        "dram.0.reads": 5, "dram.0.writes": 2, "dram.1.reads": 4, "dram.1.writes": 1,
    }  # fmt: skip
    found = outcome(1.0, stats)
    assert common.right(found) == pytest.approx(75)
    assert common.wrong(found) == pytest.approx(1.5)
    assert common.dram(found) == pytest.approx(12)
    without = outcome(1.0, {"core.0.mmu.walks": 30, "core.0.mmu.walks_merged": 0})
    assert common.right(without) is None
    assert common.wrong(without) is None
    assert common.dram(without) is None


def test_a_run_without_a_contiguous_block_is_a_result(paper: Paper) -> None:
    (figure,) = paper.figures(["room"]).values()
    failed = Outcome("", None, "no block")
    rows = figure.rows(
        paper, lambda run: failed if run.design.label == "ECPT, 0 MB spared" else outcome(1.0)
    )
    found = {(r.panel, r.group, r.series): r for r in rows}
    assert found["finished", "ECPT, 0 MB spared", ""].value == 0
    assert found["finished", "ECPT, 1024 MB spared", ""].value == 4
    assert found["block", "ECPT, 0 MB spared", "GUPS"].value is None
    assert found["memory", "ECPT", "GUPS"].value == 1
