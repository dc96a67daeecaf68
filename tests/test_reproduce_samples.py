"""`pagewalk reproduce --precision`: which runs take samples, and where that is said."""

from __future__ import annotations

import html
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from invoking import Invoke
from pagewalk.errors import UserError
from pagewalk.reproduce import Design, Figure, Paper, Program, Row, Run, Runs
from pagewalk.reproduce import paper as papers
from pagewalk.reproduce.sampled import bounded, note
from pagewalk.reproduce.stored_results import StoredResults
from pagewalk.runs.batch import batches
from pagewalk.runs.cache import Outcome
from pagewalk.runs.plan import SAMPLED
from paper import finished, key, made, reproduce, results_of

PAPER = """\
title = "A paper"
source = "Nowhere 2026"
machine = "epyc-milan"
figures = ["speeds", "pages"]
full = "full"

[scales.full]
about = "as in the paper"
instructions = "100M"
warmup = "0"

[scales.tiny]
about = "2 thousand instructions, the paper has 100 million"
instructions = "2K"
warmup = "0"

[designs.A]
design = "radix"

[designs.B]
design = "thp"
set = { "os.fragmentation" = "none" }

[applications.long]
workload = "sysbench"
size = "1GiB"
start_seconds = 0
"""

SPEEDS = """
from pagewalk.reproduce import Bars, Figure, Panel, Row

class Speeds(Figure):
    title = "Speeds"
    place = "figure 1"
    timing = True
    sampled = True
    panels = (Panel(Bars("speedup")),)

    def runs(self, paper):
        return paper.cross(["long"], ["A", "B"], timing=True)

    def rows(self, paper, results):
        a, b = (results(self.runs(paper)["long", name]) for name in "AB")
        return [
            Row("long", "B", b["ipc"] / a["ipc"], failed=b.why),
            Row("long", "cycles an instruction", a["cycles"] / a["instructions"]),
            Row("long", "4 KB pages", a["mapped_4kb"]),
        ]
"""

PAGES = """
from pagewalk.reproduce import Figure, Row

class Pages(Figure):
    title = "Pages"
    place = "figure 2"
    timing = True

    def runs(self, paper):
        return paper.cross(["long"], ["A"], timing=True)

    def rows(self, paper, results):
        return [Row("long", "A", results(self.runs(paper)["long", "A"])["mapped_4kb"])]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A paper with a figure of speedups and one of memory, of the same runs."""
    return made(tmp_path, {"paper.toml": PAPER, "speeds.py": SPEEDS, "pages.py": PAGES})


def _figures(folder: Path) -> dict[str, dict[str, Any]]:
    return {figure["name"]: figure for figure in results_of(folder)["figures"]}


def test_timing_figures_take_samples_and_say_so(folder: Path, invoke: Invoke) -> None:
    status, out, err = reproduce(invoke, folder, "--precision", "2%")
    assert status == 0
    # Run A is there twice: from samples, and whole for what grows with it.
    assert "3 runs to simulate" in err
    assert results_of(folder)["precision"] == 0.02
    speeds, pages = _figures(folder).values()
    said = "2 of 2 runs are from samples: of each IPC and L2 TLB misses are within ±"
    assert said in speeds["scale"]
    assert said in out
    assert "samples" not in pages["scale"]
    assert said in html.unescape((folder.parent / "out" / "index.html").read_text())
    picture = (folder.parent / "out" / "figures" / "speeds.svg").read_text()
    assert "2 of 2 runs are from samples" in picture
    for run in speeds["runs"]:
        assert run["precision"] == 0.02
        assert run["samples"] >= 2
        assert 0 <= run["within"]["ipc"] <= 0.02
    assert all("precision" not in run for run in pages["runs"])
    speedup, cycles, mapped = speeds["rows"]
    for row in (speedup, cycles):
        assert 0 < row["high"] - row["value"] == pytest.approx(row["value"] - row["low"])
    assert mapped["low"] is None

    # Without samples nothing is taken for whole that is not, nor the reverse.
    status, _, err = reproduce(invoke, folder)
    assert status == 0
    assert "1 run to simulate, 1 is there from before" in err
    assert len(finished(folder)) == 4
    assert "precision" not in results_of(folder)
    whole = _figures(folder)["speeds"]
    assert all("precision" not in run and "samples" not in run for run in whole["runs"])
    assert "samples" not in whole["scale"]
    assert whole["rows"][0]["low"] is None
    assert whole["rows"][0]["value"] == pytest.approx(speedup["value"], rel=0.03)
    assert not {r["result"] for r in whole["runs"]} & {r["result"] for r in speeds["runs"]}

    reproduce(invoke, folder, "--precision", "2%")
    assert _figures(folder)["speeds"] == speeds


def test_a_run_whose_samples_cost_more_is_simulated_whole(folder: Path, invoke: Invoke) -> None:
    status, _, _ = reproduce(invoke, folder, "speeds", "--scale", "tiny", "--precision", "2%")
    assert status == 0
    figure = _figures(folder)["speeds"]
    assert "no run is from samples: each is simulated whole" in figure["scale"]
    _, _, err = reproduce(invoke, folder, "speeds", "--scale", "tiny")
    assert "nothing to simulate: 2 runs are there from before" in err
    assert _figures(folder)["speeds"]["rows"] == figure["rows"]


@pytest.mark.parametrize(
    ("given", "figures", "said"),
    [
        ("0%", [], "expected a share between 0 and 100 %"),
        ("many", [], "expected a share between 0 and 100 %"),
        ("2%:walk_cycles_mean", [], "expected a share alone"),
        ("2%", ["pages"], "nothing of pages can be drawn from samples; leave it out"),
    ],
)
def test_a_precision_that_is_none_is_refused(
    folder: Path, invoke: Invoke, given: str, figures: list[str], said: str
) -> None:
    status, _, err = reproduce(invoke, folder, *figures, "--precision", given)
    assert status == 2
    assert "--precision: " in err
    assert said in " ".join(err.split())
    assert not finished(folder)


def test_the_key_is_of_the_precision(tmp_path: Path) -> None:
    run = Run(Program("gups", "4MiB"), Design("A", "radix"), "mehpt-table3", 1000)
    keys = {key(replace(run, precision=p), tmp_path) for p in (None, 0.01, 0.02)}
    assert len(keys) == 3


def test_a_run_that_cannot_gain_from_samples_is_simulated_whole(tmp_path: Path) -> None:
    run = Run(Program("gups", "4MiB", start=1.0), Design("A", "radix"), "m", SAMPLED)
    assert run.sampled(0.02).precision == 0.02
    for other in (
        replace(run, instructions=SAMPLED - 1),
        replace(run, instructions=None),
        replace(run, requests=1000),
        replace(run, mappings=True),
        replace(run, program=replace(run.program, threads=2)),
        replace(run, program=replace(run.program, start=30.0)),
        replace(run, program=replace(run.program, mix=({"workload": {"name": "gups"}},))),
    ):
        assert other.sampled(0.02) is other


def test_sampled_runs_are_alone(tmp_path: Path) -> None:
    program = Program("gups", "4MiB")
    designs = [Design(name, "radix", {"os.memory_gb": i}) for i, name in enumerate("abc", 1)]
    runs = [Run(program, design, "m", 1000, precision=0.02) for design in designs]
    assert [len(batch.runs) for batch in batches(runs)] == [1, 1, 1]


def test_intervals_of_runs_add_up_by_squares() -> None:
    def outcome(name: str, ipc: float, half: float) -> Outcome:
        interval = {"value": ipc, "low": ipc - half, "high": ipc + half}
        sampling = {
            "samples": 200, "ipc": ipc, "ipc_low": ipc - half, "ipc_high": ipc + half,
            "confidence": 0.95, "metrics": {"ipc": interval},
        }  # fmt: skip
        design = {
            "name": name, "description": "", "status": "complete", "config": {},
            "cycle_stack": [], "stats": [],
            "sampling": sampling,
            "summary": [
                {"name": "ipc", "value": ipc, "unit": "", "meaning": ""},
                {"name": "cycles", "value": 1000 / ipc, "unit": "", "meaning": ""},
                {"name": "instructions", "value": 1000, "unit": "", "meaning": ""},
            ],
        }  # fmt: skip
        return Outcome(name, {"name": name, "design": design})

    runs = {
        ("x", name): Run(Program("gups"), Design(name, name), "m", SAMPLED) for name in ("A", "B")
    }
    outcomes = {"A": outcome("A", 1.0, 0.03), "B": outcome("B", 2.0, 0.08)}

    def rows(results: Any) -> list[Row]:
        a, b = (results(run) for run in runs.values())
        return [
            Row("x", "speedup", b["ipc"] / a["ipc"]),
            Row("x", "cycles", a["cycles"]),
            Row("x", "given", 3.0),
        ]

    speedup, cycles, given = bounded(rows, Runs(runs), lambda run: outcomes[run.design.label])
    assert speedup.high is not None
    assert speedup.high - 2.0 == pytest.approx(2.0 * (0.03**2 + 0.04**2) ** 0.5, rel=0.01)
    assert cycles.high == pytest.approx(1030, rel=0.001)
    assert given.low is None


def test_a_figure_says_of_how_many_runs_it_does_not_know_how_sure_they_are() -> None:
    sampling = {
        "samples": 1, "ipc": 1.0, "ipc_low": 1.0, "ipc_high": None, "confidence": 0.95,
    }  # fmt: skip
    design = {
        "name": "A", "description": "", "status": "complete", "config": {},
        "cycle_stack": [], "stats": [],
        "sampling": sampling, "summary": [],
    }  # fmt: skip
    run = Run(Program("gups"), Design("A", "radix"), "m", SAMPLED, precision=0.02)
    failed = replace(run, seed=2)
    outcomes = [(run, Outcome("k", {"design": design})), (failed, Outcome("", None, "broken"))]
    assert note(outcomes) == "1 of 2 runs are from samples; 1 without a confidence interval"


def test_pages_are_not_made_of_samples(folder: Path, invoke: Invoke) -> None:
    reproduce(invoke, folder, "speeds", "--scale", "tiny", "--precision", "2%")
    with pytest.raises(UserError, match="pages are made of runs without it"):
        StoredResults.read(folder.parent / "out" / "results.json")


@pytest.mark.parametrize("name", list(papers.papers()))
def test_sampled_figures_of_shipped_papers_are_timing_figures(name: str) -> None:
    paper: Paper = papers.load(name)
    figures: dict[str, Figure] = paper.figures([*paper.order, *paper.on_request])
    assert all(figure.timing for figure in figures.values() if figure.sampled)
