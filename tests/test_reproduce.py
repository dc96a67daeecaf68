"""`pagewalk reproduce` on a paper made for the purpose, and what is shipped."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars
import pytest

from invoking import Invoke
from pagewalk.config.config import parse
from pagewalk.errors import UserError
from pagewalk.reproduce import (
    Bars,
    Design,
    Figure,
    Lines,
    Panel,
    Paper,
    Program,
    Row,
    Run,
    drawing,
    geometric,
    mean,
)
from pagewalk.reproduce import paper as papers
from pagewalk.runs.batch import batches
from pagewalk.runs.cache import Cache, Outcome
from pagewalk.runs.plan import keys
from pagewalk.runs.scheduler import Silent, simulate
from paper import PAPER, arguments, finished, key, made, reproduce, results_of

SIZES = """
from pagewalk.reproduce import Bars, Figure, Panel, Row, mean
from .shared import UNIT

class Sizes(Figure):
    title = "Sizes"
    place = "figure 1"
    panels = (Panel(Bars("KB")),)

    def runs(self, paper):
        return paper.cross(["small", "large"], ["A", "B"])

    def rows(self, paper, results):
        rows = []
        for (app, design), run in self.runs(paper).items():
            outcome = results(run)
            value = outcome.get("page_table_bytes")
            rows.append(
                Row(app, design, value and value / 1024, {"A": 20.0}.get(design), UNIT,
                    failed=outcome.why)
            )
        return rows + [Row("mean", "A", mean(r.value for r in rows), 21.0, UNIT, average=True)]
"""

TIMES = """
from pagewalk.reproduce import Figure, Row

class Times(Figure):
    title = "Times"
    place = "figure 2"
    timing = True

    def runs(self, paper):
        return paper.cross(["long"], ["A"], timing=True)

    def rows(self, paper, results):
        outcome = results(self.runs(paper)["long", "A"])
        return [Row("long", "A", outcome.get("cycles"), unit="cycles", failed=outcome.why)]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A paper with two figures."""
    files = {"paper.toml": PAPER, "shared.py": 'UNIT = "KB"\n'}
    return made(tmp_path, {**files, "sizes.py": SIZES, "times.py": TIMES})


def _numbers(folder: Path) -> dict[str, Any]:
    figures = results_of(folder)["figures"]
    return {f["name"]: {(r["group"], r["series"]): r for r in f["rows"]} for f in figures}


def test_everything_of_a_paper_is_simulated_drawn_and_written(folder: Path, invoke: Invoke) -> None:
    status, out, err = reproduce(invoke, folder, "--scale", "tiny")
    assert status == 0
    assert "5 runs to simulate: about" in err
    assert "A paper" in out
    results = folder.parent / "out"
    names = {str(p.relative_to(results)) for p in results.rglob("*") if p.is_file()}
    assert names == {
        "index.html",
        "results.json",
        "results.csv",
        "results.parquet",
        "figures/sizes.svg",
        "figures/sizes.png",
        "figures/sizes.csv",
        "figures/times.csv",
    }
    numbers = _numbers(folder)
    small = numbers["sizes"]["small", "A"]
    # Four nodes of a path, and one for each of the program's other regions.
    assert small["value"] >= 16
    assert small["difference"] == small["value"] - 20
    assert small["ratio"] == small["value"] / 20
    assert numbers["sizes"]["small", "B"]["paper"] is None
    assert numbers["times"]["long", "A"]["value"] > 1000
    frame = polars.read_parquet(results / "results.parquet")
    assert frame.equals(polars.read_csv(results / "results.csv", schema=frame.schema))
    assert frame.height == 6


def test_every_figure_says_the_scale(folder: Path, invoke: Invoke) -> None:
    reproduce(invoke, folder, "--scale", "tiny")
    results = folder.parent / "out"
    page = (results / "index.html").read_text()
    assert page.count("scale tiny: 2 thousand instructions") >= 2  # the page's, the figure's
    assert "scale tiny: counted with all of the program's memory" in html.unescape(page)
    assert "all of the program's memory" in (results / "figures" / "sizes.svg").read_text()
    assert all(figure["scale"].startswith("scale tiny") for figure in results_of(folder)["figures"])
    # Nothing is fetched from elsewhere.
    assert "<script" not in page
    assert "://" not in page.replace("http://www.w3.org", "")


def test_a_scale_changes_timed_runs_only(folder: Path, invoke: Invoke) -> None:
    reproduce(invoke, folder, "--scale", "tiny")
    tiny = _numbers(folder)
    _, _, err = reproduce(invoke, folder)
    full = _numbers(folder)
    assert "1 run to simulate, 4 are there from before" in err
    assert tiny["sizes"] == full["sizes"]
    assert full["times"]["long", "A"]["value"] > 1.5 * tiny["times"]["long", "A"]["value"]


def test_small_scales_fast_forward_an_unrepresentative_start(folder: Path) -> None:
    text = (folder / "paper.toml").read_text()
    (folder / "paper.toml").write_text(text + 'threads = 3\nskip = "5K"\n')
    small, whole = (papers.load(str(folder), scale) for scale in ("tiny", "full"))
    assert small.run("long", "A", timing=True).limits["skip"] == 15_000
    assert small.run("long", "A").limits["skip"] == 0
    assert whole.run("long", "A", timing=True).limits["skip"] == 0


def test_a_scale_of_requests_is_measured_in_requests(folder: Path) -> None:
    text = (folder / "paper.toml").read_text()
    by_instructions = papers.load(str(folder), "tiny").run("long", "A", timing=True)
    of_requests = text.replace(
        'instructions = "2K"\nwarmup = "0"', 'requests = "3K"\nwarmup_requests = "1K"'
    )
    (folder / "paper.toml").write_text(of_requests)
    run = papers.load(str(folder), "tiny").run("long", "A", timing=True)
    assert run.limits["requests"] == 3000
    assert run.limits["warmup_requests"] == 1000
    assert run.limits["instructions"] is None
    assert run.limits["warmup"] == 0
    # Runs of instructions are found under the key that they had.
    assert "requests" not in by_instructions.limits
    assert run.stream != by_instructions.stream
    (folder / "paper.toml").write_text(of_requests.replace('"3K"', '"3K"\ninstructions = "1K"'))
    with pytest.raises(UserError, match=r"scales\.tiny: expected instructions and warmup, or req"):
        papers.load(str(folder), "tiny")


def test_growth_is_timed_at_its_full_size_at_every_scale(folder: Path, invoke: Invoke) -> None:
    # Only the paper that needs it knows it.
    (folder / "paper.toml").write_text(PAPER + 'growth = { from = "3968MiB" }\n')
    status, _, err = reproduce(invoke, folder, "times")
    assert status == 2
    assert "applications.long.growth is unknown; there are workload, trace, mix, size" in err
    shutil.copy(papers.papers()["mehpt"] / "paper.py", folder)
    text = PAPER
    (folder / "paper.toml").write_text(text + 'growth = { from = "3968MiB" }\n')
    code = TIMES.replace('["A"], timing=True', '["A"], growing=True')
    (folder / "times.py").write_text(code.replace('"cycles"', '"page_faults"'))
    for scale in ("tiny", "full"):
        status, _, err = reproduce(invoke, folder, "times", "--scale", scale)
        assert status == 0
        assert ("1 run to simulate" if scale == "tiny" else "1 run is there") in err
        # The last 128 MB page by page, and the page of the code.
        assert _numbers(folder)["times"]["long", "A"]["value"] == 32768 + 1
    for growth, message in (
        ("", "application 'long' says nothing of its growth"),
        ('growth = "6GiB"\n', "applications.long.growth: expected { from = \"6GiB\" }, not '6GiB'"),
        ("growth = { seconds = 1 }\n", "'from' is missing"),
    ):
        (folder / "paper.toml").write_text(text + growth)
        status, _, err = reproduce(invoke, folder, "times")
        assert status == 2
        assert message in err


def test_finished_runs_are_repeated_only_with_fresh(folder: Path, invoke: Invoke) -> None:
    reproduce(invoke, folder, "sizes")
    first = _numbers(folder)
    kept = {p: p.stat().st_mtime_ns for p in finished(folder)}
    assert len(kept) == 4
    _, _, err = reproduce(invoke, folder, "sizes")
    assert "nothing to simulate: 4 runs are there from before" in err
    assert {p: p.stat().st_mtime_ns for p in finished(folder)} == kept
    _, _, err = reproduce(invoke, folder, "sizes", "--fresh")
    assert "4 runs to simulate: about" in err
    assert all(p.stat().st_mtime_ns > before for p, before in kept.items())
    assert _numbers(folder) == first  # to the last digit


def test_broken_results_in_the_cache_are_simulated_again(folder: Path, invoke: Invoke) -> None:
    reproduce(invoke, folder, "sizes")
    first = _numbers(folder)
    paths = finished(folder)
    paths[0].write_bytes(b"")
    paths[1].write_bytes(paths[1].read_bytes()[:100])
    _, _, err = reproduce(invoke, folder, "sizes")
    assert "2 runs to simulate, 2 are there from before" in err
    assert _numbers(folder) == first


def test_one_figure_simulates_its_own_runs_only(folder: Path, invoke: Invoke) -> None:
    _, _, err = reproduce(invoke, folder, "times", "--scale", "tiny")
    assert "1 run to simulate" in err
    assert list(_numbers(folder)) == ["times"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no-such-paper"], "there is no paper 'no-such-paper'; papers: combined, mehpt"),
        (["mehp"], "did you mean 'mehpt'?"),
        (["/tmp"], "there is no paper in '/tmp': it has no paper.toml"),
        (["PAPER", "size"], "there is no figure 'size'; did you mean 'sizes'? figures of paper"),
        (["PAPER", "--scale", "huge"], "there is no scale 'huge'; scales: full, tiny"),
        (["PAPER", "--jobs", "0"], "--jobs: 0 is not possible"),
        (["PAPER", "--json", "/no/such/x"], "--json: there is no folder '/no/such'"),
        (["PAPER", "--out", "/etc/passwd"], "'/etc/passwd' is a file; name a folder"),
    ],
)
def test_mistakes_are_refused_before_anything_runs(
    folder: Path, invoke: Invoke, arguments: list[str], message: str
) -> None:
    status, out, err = invoke("reproduce", *[str(folder) if a == "PAPER" else a for a in arguments])
    assert status == 2
    assert out == ""
    assert err.startswith("error: ")
    assert message in err
    assert not (folder.parent / "cache").exists()


def test_a_design_that_cannot_finish_is_a_result(folder: Path, invoke: Invoke) -> None:
    text = PAPER.replace('design = "thp"\n', 'design = "radix"\n').replace(
        '"os.fragmentation" = "none"', '"os.memory_gb" = 1'
    )
    text = text.replace('size = "4MiB"', 'size = "1GiB"')
    (folder / "paper.toml").write_text(text)
    status, out, _ = reproduce(invoke, folder, "sizes")
    assert status == 0
    assert "cannot finish: gups 1GiB, B: " in out
    row = _numbers(folder)["sizes"]["large", "B"]
    assert row["value"] is None or row["failed"]
    assert "memory" in row["failed"]
    picture = (folder.parent / "out" / "figures" / "sizes.svg").read_text()
    assert "✗" in picture
    # It is kept like any other.
    assert "4 runs are there from before" in reproduce(invoke, folder, "sizes")[2]


def test_a_run_that_is_impossible_does_not_take_the_others_along(
    folder: Path, invoke: Invoke
) -> None:
    text = PAPER.replace('size = "4MiB"', 'size = "5MiB"')  # no power of two
    (folder / "paper.toml").write_text(text)
    status, out, _ = reproduce(invoke, folder, "sizes")
    assert status == 1
    assert out.count("no result: gups 5MiB") == 2
    numbers = _numbers(folder)["sizes"]
    assert numbers["small", "A"]["value"] > 0
    assert numbers["large", "A"]["value"] is None
    assert "power" in numbers["large", "A"]["failed"]

    (folder / "paper.toml").write_text(PAPER.replace('"thp"', '"no-such-design"'))
    status, out, _ = reproduce(invoke, folder, "sizes")
    assert status == 1
    assert "there is no design 'no-such-design'" in out
    assert _numbers(folder)["sizes"]["large", "A"]["value"] > 0


def test_a_killed_reproduction_goes_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    # The timed run would take minutes; beside it the others finish.
    text = PAPER.replace('instructions = "40K"', 'instructions = "20G"')
    (folder / "paper.toml").write_text(text)
    command = [sys.executable, "-m", "pagewalk", *arguments(folder, "--jobs", "2")]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        deadline = time.monotonic() + 60
        while len(finished(folder)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        run.send_signal(signal.SIGKILL)
    done = len(finished(folder))
    assert 2 <= done <= 4
    assert not (tmp_path / "out").exists()
    # Its workers end with it.
    time.sleep(1.0)
    assert len(finished(folder)) == done
    (folder / "paper.toml").write_text(PAPER)
    again = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert again.returncode == 0
    assert f"{5 - done} runs to simulate, {done} are there from before" in again.stderr


def test_the_key_of_a_run_covers_its_inputs_only(tmp_path: Path) -> None:
    run = Run(Program("gups", "4MiB"), Design("A", "radix"), "mehpt-table3", 1000)
    same = [
        run,
        replace(run, design=Design("other label", "radix")),
        replace(run, program=Program("gups", "4MiB", memory=1, start=9.0)),
        # The default, spelled out.
        replace(run, design=Design("A", "radix", {"page_table.radix.levels": 4})),
    ]
    assert len({key(r, tmp_path) for r in same}) == 1
    others = [
        run,
        replace(run, design=Design("A", "radix5")),
        replace(run, design=Design("A", "radix", {"os": {"memory_gb": 65}})),
        replace(run, machine="epyc-milan"),
        replace(run, instructions=1001),
        replace(run, warmup=1),
        replace(run, skip=1),
        replace(run, seed=2),
        replace(run, program=Program("gups", "8MiB")),
        replace(run, program=Program("gups", "4MiB", 2)),
        replace(run, program=Program("gups", "4MiB", params={"chunk": "7"})),
    ]
    assert len({key(r, tmp_path) for r in others}) == len(others)


def test_changes_add_up_and_alternatives_replace_each_other() -> None:
    design = Design("A", "thp", {"os.memory_gb": 256})
    design = design.changed(
        "B", {"os.fragmentation": {"unusable_free_index": 0.8}, "mmu.walkers": 1}
    )
    design = design.changed("C", {"os.fragmentation.served_2mb": 0.5, "placement": {"buddy": {}}})
    design = design.changed("D", {"page_table": {"radix": {"levels": 5}}})
    fields = parse(design.text())
    assert fields["os"] == {"memory_gb": 256, "fragmentation": {"served_2mb": 0.5}}
    assert fields["mmu"] == {"walkers": 1}
    assert fields["placement"] == {"buddy": {}}
    assert fields["page_table"] == {"radix": {"levels": 5}}


def test_runs_of_one_stream_go_together() -> None:
    program = Program("gups", "4MiB")
    designs = [Design(name, "radix", {"os.memory_gb": i}) for i, name in enumerate("abc", 1)]
    runs = [Run(program, design, "m", 1000) for design in designs]
    other = Run(Program("gups", "8MiB"), designs[0], "m", 1000)
    found = batches([*runs, other])
    assert sorted(len(batch.runs) for batch in found) == [1, 3]
    # Long runs do not share a batch, unless their start is long.
    slow = [Run(program, design, "m", 1_000_000_000) for design in designs]
    assert [len(batch.runs) for batch in batches(slow)] == [1, 1, 1]
    heavy = Program("gups", "4MiB", start=300.0)
    together = [Run(heavy, design, "m", 1_000_000_000) for design in designs]
    assert [len(batch.runs) for batch in batches(together)] == [3]


def test_a_plan_without_runs_needs_no_engine(tmp_path: Path) -> None:
    class Watcher(Silent):
        plan: tuple[int, int] | None = None

        def planned(self, there: int, missing: int, seconds: float) -> None:
            self.plan = (there, missing)

    watcher = Watcher()
    simulate([], Cache(tmp_path), watcher=watcher)
    assert watcher.plan == (0, 0)


def test_means() -> None:
    assert mean([1, None, 3]) == 2
    assert mean([None]) is None
    assert geometric([2, None, 8]) == pytest.approx(4)
    assert geometric([0, 1]) is None


def test_differences_of_a_row() -> None:
    row = Row("a", "b", 3.0, 2.0)
    assert row.difference == 1.0
    assert row.ratio == 1.5
    assert Row("a", "b", None, 2.0).difference is None
    assert Row("a", "b", 1.0, 0.0).ratio is None


def test_a_bar_of_each_kind_is_drawn(tmp_path: Path) -> None:
    class Everything(Figure):
        title = "Everything"
        place = "figure 9"
        panels = (
            Panel(Bars("log", log=True), "log"),
            Panel(Bars("stacked", stacked=True), "stacked"),
            Panel(Lines("x", "y"), "line"),
            Panel(Bars("nothing"), "empty"),
        )

        def rows(self, paper: Paper, results: Any) -> list[Row]:
            return []

    rows = [
        Row("a", "s", 3e-5, 4e-5, panel="log"),
        Row("b", "s", 2e9, panel="log"),
        Row("b", "t", None, failed="cannot", panel="log"),
        Row("a", "s", 1, part="p", panel="stacked"),
        Row("a", "s", 2, part="q", panel="stacked"),
        Row("a", "t", 2, part="q", panel="stacked"),
        Row("0.5", "s", 1, panel="line"),
        Row("1", "s", 2, 3, panel="line"),
        Row("not drawn", "s", 2, 3, panel="line"),
    ]
    specification = drawing.chart(Everything(), rows, "at a scale")
    assert specification is not None
    picture = drawing.svg(specification)
    for text in ("Everything", "figure 9", "at a scale", "stacked", "✗"):
        assert text in picture
    assert "nothing" not in picture
    assert drawing.png(specification).startswith(b"\x89PNG")


class Panels(Figure):
    title = "Panels"
    place = "figure 10"
    panels = (
        Panel(Bars("%", stacked=True), "stacked"),
        Panel(Lines("x", "y"), "hidden"),
        Panel(Lines("x", "y"), "crossing"),
    )

    def rows(self, paper: Paper, results: Any) -> list[Row]:
        return []


def scales(panel: dict[str, Any], channel: str) -> tuple[list[str], list[Any]]:
    """Names and looks of the first layer that has this channel."""
    layers = (layer["encoding"] for layer in panel["layer"])
    scale = next(e[channel]["scale"] for e in layers if channel in e)
    return scale["domain"], scale["range"]


def test_parts_stand_in_the_legend_as_bars_stack_them() -> None:
    bars = {"N=1": ["H1", "rest"], "N=2": ["H1", "H2", "rest"], "N=3": ["H1", "H2", "H3", "rest"]}
    rows = [
        Row(group, "s", 1.0, part=part, panel="stacked")
        for group, parts in bars.items()
        for part in parts
    ]
    specification = drawing.chart(Panels(), rows, "")
    assert specification is not None
    names, looks = scales(specification["vconcat"][0], "color")
    assert names == bars["N=3"]
    assert len(set(looks)) == len(names)
    # Bars that contradict one another are drawn all the same, each part once.
    rows += [Row("other", "s", 1.0, part=part, panel="stacked") for part in ("rest", "H1")]
    contradicting = drawing.chart(Panels(), rows, "")
    assert contradicting is not None
    assert sorted(scales(contradicting["vconcat"][0], "color")[0]) == sorted(names)


def test_a_line_on_another_is_dashed_and_the_paper_s_numbers_have_their_series_colour() -> None:
    values = {"early": [1.0, 2.0], "late": [1.004, 2.0], "crossing": [1.0, 3.0]}
    given = {"early": 5.0, "late": 5.0, "crossing": 4.0}
    rows = [
        Row(str(x), series, value, given[series] if x else None, panel=panel)
        for panel, shown in (("hidden", ("early", "late")), ("crossing", tuple(values)))
        for series in shown
        for x, value in enumerate(values[series])
    ]
    specification = drawing.chart(Panels(), rows, "")
    assert specification is not None
    hidden, crossing = specification["vconcat"]
    solid, dashed = scales(hidden, "strokeDash")[1]
    assert solid != dashed
    assert scales(crossing, "strokeDash") == ([*values], [solid, dashed, solid])
    (frame,) = (
        rows
        for rows in specification["datasets"].values()
        if "owners" in rows[0] and any(row["series"] == "crossing" for row in rows)
    )
    owners = {row["series"]: row["owners"] for row in frame if row["paper"] is not None}
    assert owners == {"early": 2, "late": 2, "crossing": 1}
    # A number of one series is drawn in its colour, one of several in black.
    picture = drawing.svg(specification)
    colours = scales(crossing, "color")[1]
    assert len(re.findall(rf'fill="{colours[2]}" stroke="black"', picture)) == 1
    assert not re.findall(rf'fill="{colours[0]}" stroke="black"', picture)


def test_a_wide_legend_has_several_lines() -> None:
    narrow = [Row("a", "s", 1.0, part=part, panel="stacked") for part in ("p", "q", "r")]
    wide = [Row("a", "s", 1.0, part=part * 40, panel="stacked") for part in ("p", "q", "r")]
    columns = []
    for rows in (narrow, wide):
        specification = drawing.chart(Panels(), rows, "")
        assert specification is not None
        layers = specification["vconcat"][0]["layer"]
        columns.append(layers[0]["encoding"]["color"]["legend"]["columns"])
    assert columns == [3, 1]


def test_shipped_papers_are_listed(invoke: Invoke) -> None:
    status, out, _ = invoke("reproduce")
    assert status == 0
    for paper in papers.catalogue():
        assert paper["name"] in out
        assert all(figure in out for figure in paper["figures"])


@pytest.mark.parametrize("name", list(papers.papers()))
def test_every_shipped_figure_can_be_planned(name: str, tmp_path: Path) -> None:
    scales = papers.load(name).scales
    for scale in scales:
        paper = papers.load(name, scale)
        assert list(paper.figures()) == paper.order
        figures = paper.figures([*paper.order, *paper.on_request])
        assert list(figures) == [*paper.order, *paper.on_request]
        assert set(figures) <= {p.stem for p in paper.folder.glob("*.py")}
        for figure in figures.values():
            assert figure.title
            assert figure.place
            _, wrong = keys(figure.runs(paper), tmp_path)
            assert not wrong


@pytest.mark.parametrize("name", list(papers.papers()))
def test_every_shipped_figure_bears_runs_that_failed(name: str) -> None:
    paper = papers.load(name)
    for figure in paper.figures().values():
        rows = figure.rows(paper, lambda _run: Outcome("", None, "no luck"))
        assert rows
        assert all(row.value is None or not row.failed for row in rows)


def test_a_paper_file_that_lacks_something_is_refused(folder: Path) -> None:
    (folder / "paper.toml").write_text('title = "x"\n')
    with pytest.raises(UserError, match="'source' is missing"):
        papers.load(str(folder))
    (folder / "paper.toml").write_text("title =\n")
    with pytest.raises(UserError, match=r"paper\.toml"):
        papers.load(str(folder))
    (folder / "paper.toml").write_text(PAPER)
    (folder / "sizes.py").write_text("")
    with pytest.raises(UserError, match="expected one Figure in it, found 0"):
        papers.load(str(folder)).figures()


def test_the_paper_of_the_documentation_can_be_reproduced(tmp_path: Path, invoke: Invoke) -> None:
    text = (Path(__file__).parent.parent / "docs" / "reproduce.md").read_text()
    place = tmp_path / "mine"
    place.mkdir()
    for language, name in (("toml", "paper.toml"), ("python", "misses.py")):
        (block,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
        (place / name).write_text(block)
    status, _, _ = reproduce(invoke, place, "--scale", "smoke")
    assert status == 0
    numbers = _numbers(place)["misses"]
    assert numbers["GUPS", "Radix"]["value"] > numbers["GUPS", "Huge pages"]["value"]


def test_numbers_can_go_to_standard_output(folder: Path, invoke: Invoke) -> None:
    os.environ.pop("XDG_CACHE_HOME", None)
    status, out, err = reproduce(invoke, folder, "times", "--scale", "tiny", "--json", "-")
    assert status == 0
    assert json.loads(out)["scale"]["name"] == "tiny"
    assert "A paper" in err
