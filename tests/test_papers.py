"""Features that several papers need: seeds, statuses, machines, traces, mixes, sizes by scale."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from invoking import Invoke
from pagewalk.errors import UserError
from pagewalk.reproduce import Bars, Figure, Lines, Outcome, Panel, Paper, Row, drawing
from pagewalk.reproduce import paper as papers
from pagewalk.reproduce.report import difference, ours, printed
from pagewalk.reproduce.seeds import together
from pagewalk.reproduce.stored_results import StoredResults
from pagewalk.runs.cache import Cache
from pagewalk.runs.plan import keys
from pagewalk.runs.scheduler import simulate
from paper import key, made, reproduce, results_of

ROOT = Path(__file__).parent.parent
FAILED = Outcome("", None, "no luck")

PAPER = """
title = "Another paper"
source = "Nowhere 2026"
machine = "epyc-milan"
deviations = "WHY.md"
figures = ["counts"]
full = "full"

[scales.full]
about = "as in the paper"
instructions = "20K"
warmup = "0"
seeds = 2

[scales.tiny]
about = "less"
instructions = "10K"
warmup = "1K"

[machines.stlt]
machine = "stlt-table3"
set = { "mmu.walkers" = 3, "os.memory_gb" = 8 }

[machines.own]
machine = "own.toml"

[designs.A]
design = "radix"

[designs.B]
design = "radix"
set = { "mmu.walkers" = 2 }

[applications.GUPS]
workload = "gups"
size = "8MiB"

[applications.GUPS.at.tiny]
size = "1MiB"
params = { updates = "1000" }

[applications.recorded]
trace = "gups.pwt"

[applications.pair]
mix = ["gups:size=1MiB", "gups.pwt", { workload = "gups", size = "2MiB" }]
"""

COUNTS = """
from pagewalk.reproduce import Bars, Figure, Panel, Row

class Counts(Figure):
    title = "Counts"
    place = "figure 1"
    timing = True
    deviation = "whole"
    panels = (Panel(Bars("cycles")),)

    def runs(self, paper):
        apps = ["GUPS", "recorded", "pair"]
        one = paper.cross(apps, ["A", "B"], timing=True)
        return one | paper.cross(apps, ["A", "B"], timing=True, machine="stlt")

    def rows(self, paper, results):
        rows = []
        for (app, design), run in self.runs(paper).items():
            outcome = results(run)
            rows.append(Row(app, design, outcome.get("cycles"), unit="cycles", failed=outcome.why))
        return rows
"""


@pytest.fixture
def folder(tmp_path: Path, invoke: Invoke) -> Path:
    """A paper with two machines, a program, a trace and a mix."""
    own = (ROOT / "machines" / "epyc-milan.toml").read_text()
    place = made(tmp_path, {"paper.toml": PAPER, "counts.py": COUNTS, "own.toml": own})
    trace = str(place / "gups.pwt")
    program = ("--workload", "gups", "--size", "1MiB", "--instructions", "60K")
    assert invoke("record", *program, "-o", trace)[0] == 0
    return place


def _reproduced(invoke: Invoke, folder: Path, *more: str) -> dict[str, Any]:
    status, shown, err = reproduce(invoke, folder, *more)
    assert status == 0, shown + err
    return results_of(folder)


def test_machines_traces_and_mixes_are_simulated_and_drawn(folder: Path, invoke: Invoke) -> None:
    data = _reproduced(invoke, folder, "--scale", "tiny")
    (figure,) = data["figures"]
    rows = {(r["group"], r["series"]): r for r in figure["rows"]}
    apps, designs = ("GUPS", "recorded", "pair"), ("A", "B", "A on stlt", "B on stlt")
    assert set(rows) == {(app, design) for app in apps for design in designs}
    assert all(r["value"] > 0 for r in rows.values())
    for app in apps:
        assert rows[app, "A"]["value"] != rows[app, "A on stlt"]["value"]
    runs = {(r["name"], r["machine"], json.dumps(r["changes"])): r for r in figure["runs"]}
    assert len(runs) == 12
    by_machine = {r["machine"] for r in figure["runs"]}
    assert by_machine == {"epyc-milan", "stlt-table3"}
    (mixed,) = {json.dumps(r["program"]) for r in figure["runs"] if "pair" in r["name"]}
    assert len(json.loads(mixed)["mix"]["programs"]) == 3
    # A design's own key stands over the machine's.
    walkers = {r["name"]: r["changes"] for r in figure["runs"] if r["machine"] == "stlt-table3"}
    assert walkers["gups 1MiB, A"]["mmu"]["walkers"] == 3
    assert walkers["gups 1MiB, B"]["mmu"]["walkers"] == 2
    assert "GUPS: size 1MiB instead of 8MiB, updates 1000 instead of its default" in figure["scale"]


def test_the_key_of_a_trace_is_its_contents(folder: Path, tmp_path: Path, invoke: Invoke) -> None:
    paper = papers.load(str(folder), "tiny")
    apps = ("recorded", "pair")
    before = {app: key(paper.run(app, "A"), tmp_path / "designs") for app in apps}
    trace = folder / "gups.pwt"
    other = ("--workload", "gups", "--size", "2MiB", "--instructions", "60K")
    assert invoke("record", *other, "-o", str(trace))[0] == 0
    assert all(key(paper.run(app, "A"), tmp_path / "designs") != before[app] for app in apps)
    trace.unlink()
    _, wrong = keys([paper.run("recorded", "A")], tmp_path / "designs")
    assert "gups.pwt' cannot be read" in next(iter(wrong.values()))


def test_a_machine_of_its_own_is_beside_the_paper(folder: Path) -> None:
    paper = papers.load(str(folder))
    assert paper.run("GUPS", "A", machine="own").machine == str((folder / "own.toml").resolve())
    with pytest.raises(UserError, match=r"there is no machine 'stl'; did you mean 'stlt'"):
        paper.run("GUPS", "A", machine="stl")


def test_the_paper_s_own_scale_has_the_whole_footprint(folder: Path) -> None:
    small, whole = (papers.load(str(folder), scale) for scale in ("tiny", "full"))
    assert small.run("GUPS", "A").program.size == "1MiB"
    assert small.run("GUPS", "A").program.params == {"updates": "1000"}
    assert whole.run("GUPS", "A").program.size == "8MiB"
    assert small.run("pair", "A", timing=True).limits["warmup"] == 3000
    (figure,) = whole.figures().values()
    assert "GUPS" not in whole.note(figure)


def test_seeds_give_a_mean_and_a_spread(folder: Path, invoke: Invoke) -> None:
    code = COUNTS.replace('"GUPS", "recorded", "pair"', '"GUPS"')
    (folder / "counts.py").write_text(code)
    data = _reproduced(invoke, folder, "--scale", "tiny", "--seeds", "3")
    assert data["seeds"] == [1, 2, 3]
    (figure,) = data["figures"]
    assert len(figure["runs"]) == 12
    single = []
    for seed in (1, 2, 3):
        text = PAPER.replace('machine = "epyc-milan"\n', f'machine = "epyc-milan"\nseed = {seed}\n')
        (folder / "paper.toml").write_text(text)
        one = _reproduced(invoke, folder, "--scale", "tiny")
        assert one["seeds"] == [seed]
        single.append([row["value"] for row in one["figures"][0]["rows"]])
    assert len({tuple(values) for values in single}) == 3
    for row, values in zip(figure["rows"], zip(*single, strict=True), strict=True):
        assert row["value"] == pytest.approx(sum(values) / 3)
        assert (row["low"], row["high"], row["seeds"]) == (min(values), max(values), 3)
    assert "3 seeds: means" in figure["scale"]
    # The scale's own number holds without one; a wrong one is refused.
    assert papers.load(str(folder), "full").seeds() == [3, 4]
    status, _, err = invoke("reproduce", str(folder), "--seeds", "0")
    assert status == 2
    assert "--seeds: 0 is not possible; expected 1 to 1000" in err


def test_rows_of_seeds_go_together_where_one_has_none() -> None:
    rows = together(
        [
            [Row("a", "x", 1.0), Row("a", "x", 5.0), Row("b", "x", None, failed="no luck")],
            [Row("a", "x", 3.0), Row("a", "x", 7.0), Row("b", "x", 2.0, note="n")],
        ]
    )
    assert [(r.value, r.low, r.high, r.seeds) for r in rows] == [
        (2.0, 1.0, 3.0, 2),
        (6.0, 5.0, 7.0, 2),
        (2.0, 2.0, 2.0, 1),
    ]
    assert rows[2].note == "n; of 1 of 2 seeds: no luck"
    assert ours(rows[0]) == "2 (1 to 3)"
    assert ours(rows[2]) == "2"


def test_the_error_of_a_saving_is_relative_to_the_remainder() -> None:
    row = Row("mean", "saved", 94.0, 92.0, "%", saved=True)
    assert row.difference == 2.0
    assert row.ratio == pytest.approx(6 / 8)
    assert difference(row) == "+2 points (-25.0 % of what remains)"
    assert row.status == "differs, no reason given"
    assert Row("mean", "saved", 94.0, 92.0, "%").status == "agrees"
    assert Row("mean", "saved", 99.0, 100.0, "%", saved=True).ratio is None


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (Row("a", "b", 1.0), ""),
        (Row("a", "b", None, 1.0), "missing"),
        (Row("a", "b", 1.04, 1.0), "agrees"),
        (Row("a", "b", 1.04, 1.0, tolerance=0.01), "differs, no reason given"),
        (Row("a", "b", 1.0, 1.0, by_construction="chosen"), "agrees by construction"),
        (Row("a", "b", 2.0, 1.0, by_construction="chosen", deviation="x"), "differs"),
        (Row("a", "b", 0.0, 0.0), "agrees"),
        (Row("a", "b", 1.0, 0.0), "differs, no reason given"),
    ],
)
def test_a_row_has_a_status(row: Row, status: str) -> None:
    assert row.status == status


STATED = """
from pagewalk.reproduce import Figure, Row

class Counts(Figure):
    title = "Counts"
    place = "figure 1"
    deviation = "whole"

    def rows(self, paper, results):
        return [
            Row("mean", "agrees", 1.0, 1.0, average=True, by_construction="sizes were chosen"),
            Row("mean", "differs", 2.0, 1.0, "GB", average=True),
            Row("mean", "otherwise", 2.0, 1.0, "KB", average=True, deviation="own"),
            Row("mean", "gone", None, 1.0, average=True),
        ]
"""


@pytest.fixture
def stated(folder: Path) -> Path:
    (folder / "counts.py").write_text(STATED)
    return folder


def test_reasons_and_disclosures_stand_beside_the_numbers(stated: Path, invoke: Invoke) -> None:
    data = _reproduced(invoke, stated)
    rows = {r["series"]: r for r in data["figures"][0]["rows"]}
    assert {name: (r["status"], r["deviation"]) for name, r in rows.items()} == {
        "agrees": ("agrees by construction", "whole"),
        "differs": ("differs", "whole"),
        "otherwise": ("differs", "own"),
        "gone": ("missing", "whole"),
    }
    page = (stated.parent / "out" / "index.html").read_text()
    assert 'href="WHY.md#own"' in page
    assert 'href="WHY.md#whole"' in page
    assert "sizes were chosen" in page
    table = (stated.parent / "out" / "results.csv").read_text()
    assert "agrees by construction" in table


def test_a_column_of_several_units_names_each(stated: Path, invoke: Invoke) -> None:
    code = STATED.replace('"otherwise"', '"differs"').replace(
        'Row("mean", "differs", 2.0, 1.0, "KB"', 'Row("other", "differs", 3.0, 4.0, "KB"'
    )
    (stated / "counts.py").write_text(code.replace(", average=True", ""))
    _reproduced(invoke, stated)
    grid = (stated.parent / "out" / "index.html").read_text().split("class=grid>")[1]
    assert ">2 GB<small>1 GB</small>" in grid
    assert ">3 KB<small>4 KB</small>" in grid
    assert "differs (" not in grid


def test_a_page_is_generated_from_the_stored_results(stated: Path, invoke: Invoke) -> None:
    _reproduced(invoke, stated, "--scale", "tiny")
    results = stated.parent / "out" / "results.json"
    kept = stated / "results.json"
    StoredResults.read(results).write(kept)
    assert len(kept.read_text()) < len(results.read_text())
    again = StoredResults.read(kept)
    assert again.text() == kept.read_text()
    page = again.page(
        "{{counts; ; mean; differs}}, {{paper counts; ; mean; differs : .2f}}\n"
        "{{run}}\n{{stated}}\n"
    )
    assert "2 GB, 1.00\n" in page
    assert "scale `tiny`, seed 1" in page
    assert (
        "| counts | mean, otherwise | 2 KB | 1 KB | +1 (+100.0 %) | [differs](WHY.md#own) |" in page
    )
    assert "| agrees by construction | sizes were chosen |" in page
    assert "| missing |" in page
    for wrong, message in (
        ("{{counts; ; mean; none}}", "there is no such row"),
        ("{{counts; ; mean; gone}}", "there is no such number"),
        ("{{counts}}", "expected figure; panel; group; series"),
    ):
        with pytest.raises(UserError, match=message):
            again.page(wrong)
    with pytest.raises(UserError, match="no results of a reproduction"):
        StoredResults.read(stated / "paper.toml")


class Drawn(Figure):
    title = "Drawn"
    place = "figure 9"
    panels = (
        Panel(Bars("speedup"), "speed"),
        Panel(Bars("size", log=True, sizes=1024), "size"),
        Panel(Lines("size", "size", log_x=True, log_y=True, sizes_x=1 << 20, sizes_y=1024), "line"),
    )

    def rows(self, paper: Paper, results: Any) -> list[Row]:
        return []


DRAWN = [
    Row("BFS", "A", 1.1, low=1.0, high=1.2, seeds=2, panel="speed"),
    Row("mean", "A", 1.1, 1.23, panel="speed", average=True),
    Row("mean", "B", 1.2, 1.25, panel="speed", average=True),
    Row("mean", "C", 1.2, 2.5, panel="speed", average=True),
    Row("BFS", "A", 4.0, unit="KB", panel="size"),
    Row("BFS", "B", 65536.0, 131072.0, unit="KB", panel="size"),
    *(
        Row(str(mb), "A", mb * 1.0, low=mb * 0.9, high=mb * 1.1, seeds=2, panel="line")
        for mb in (64, 256, 1024, 4096)
    ),
]


def test_a_picture_has_the_paper_s_averages_spreads_and_sizes_in_powers_of_two() -> None:
    specification = drawing.chart(Drawn(), DRAWN, "")
    assert specification is not None
    picture = drawing.svg(specification)
    for text in ("paper 1.23, 1.25", "paper 2.5", "2 KB", "64 MB", "4 GB", "1 GB"):
        assert f">{text}</text>" in picture, text
    for decimal in ("10,000", "100,000", "20,000"):
        assert decimal not in picture
    speed, size, line = specification["vconcat"]
    marks = [[layer["mark"]["type"] for layer in panel["layer"]] for panel in (speed, size, line)]
    assert marks[0].count("rule") == 2  # the averages, and the seeds' spread
    assert marks[1].count("rule") == 0
    assert {"area", "rule", "line"} <= set(marks[2])


def test_nothing_of_one_paper_is_in_the_core() -> None:
    core = ROOT / "python" / "pagewalk" / "reproduce"
    for file in core.glob("*.py"):
        text = file.read_text().lower()
        assert not any(word in text for word in ("growth", "growing", "me-hpt", "mehpt")), file


@pytest.mark.parametrize("name", list(papers.papers()))
def test_every_reason_is_in_the_list_of_deviations(name: str) -> None:
    paper = papers.load(name)
    listed = (paper.folder.resolve() / paper.deviations).read_text()
    for figure in paper.figures().values():
        rows = figure.rows(paper, lambda _run: FAILED)
        for anchor in {figure.deviation, *(row.deviation for row in rows)} - {""}:
            assert f'<a id="{anchor}"></a>' in listed, anchor


def test_figure_9_has_the_paper_s_averages_beside_its_bars() -> None:
    paper = papers.load("mehpt", "smoke")
    (figure,) = paper.figures(["fig9"]).values()
    rows = figure.rows(paper, lambda _run: FAILED)
    panels = {panel.name for panel in figure.panels}
    given = {(r.panel, r.series): r.paper for r in rows if r.paper and r.panel in panels}
    assert given == {
        (panel, design): mean
        for panel in panels
        for design, mean in (("ME-HPT", 1.23), ("ME-HPT+THP", 1.28))
    }


def test_rows_that_agree_by_construction_give_the_reason() -> None:
    paper = papers.load("mehpt", "smoke")
    names = ["fig9", "fig10", "crash", "text", "fig8", "overflow", "table1"]
    figures = paper.figures(names)
    marked = {
        (name, row.group, row.series): row.by_construction
        for name, figure in figures.items()
        for row in figure.rows(paper, lambda _run: FAILED)
        if row.by_construction
    }
    assert "middle" in marked["fig10", "share of in-place resizing", "without THP"]
    assert "a key" in marked["crash", "GUPS above 0.7", "ECPT: share of runs that cannot finish"]
    fitting = "without THP, with data that fit the printed ways"
    assert "chosen" in marked["fig8", "reduction", fitting]
    assert "chosen" in marked["overflow", "SysBench 46 GB", "ME-HPT"]
    # The rate of migration is chosen by table I and by nothing else.
    assert "chosen" in marked["table1", "BFS", "total, ECPT"]
    assert ("table1", "BFS", "total, tree") not in marked
    assert ("text", "mean", "two tables side by side") not in marked
    assert ("fig8", "reduction", "without THP") not in marked


@pytest.mark.parametrize(
    ("row", "status", "shown", "off"),
    [
        (Row("a", "b", 60.0, 50.0, up_to=100.0), "agrees", "50 to 100", "0"),
        (Row("a", "b", 104.0, 50.0, up_to=100.0), "agrees", "50 to 100", "+4 (+4.0 %)"),
        (Row("a", "b", 40.0, 50.0, up_to=100.0, deviation="x"), "differs", "50 to 100", None),
        (Row("a", "b", 96.0, 80.0, bound="at least"), "agrees", "≥ 80", "0"),
        (Row("a", "b", 40.0, 80.0, bound="at least"), "differs, no reason given", "≥ 80", None),
        (Row("a", "b", 0.0, 0.1, bound="at most"), "agrees", "≤ 0.100", "0"),
        (Row("a", "b", 0.2, 0.1, bound="at most", deviation="x"), "differs", "≤ 0.100", None),
        (Row("a", "b", None, 0.1, bound="at most"), "missing", "≤ 0.100", ""),
    ],
)
def test_a_paper_may_give_a_range_or_a_bound(
    row: Row, status: str, shown: str, off: str | None
) -> None:
    assert row.status == status
    assert printed(row) == shown
    if off is not None:
        assert difference(row) == off


def test_a_figure_may_have_more_seeds_than_its_scale(folder: Path, invoke: Invoke) -> None:
    text = COUNTS.replace("timing = True", "timing = True\n    seeds = 3")
    (folder / "counts.py").write_text(text)
    data = _reproduced(invoke, folder, "--scale", "tiny")
    assert data["seeds"] == [1]
    (counts,) = data["figures"]
    assert {row["seeds"] for row in counts["rows"]} == {3}
    assert {run["seed"] for run in counts["runs"]} == {1, 2, 3}
    # A read of a number returns it.
    data = _reproduced(invoke, folder, "--scale", "tiny", "--seeds", "1")
    assert {row["seeds"] for row in data["figures"][0]["rows"]} == {1}


def test_a_run_may_report_the_frames_of_pages(folder: Path, tmp_path: Path) -> None:
    paper = papers.load(str(folder), "tiny")
    run = paper.run("GUPS", "A")
    with_mappings = replace(run, mappings=True)
    found, _ = keys([run, with_mappings], tmp_path)
    assert found[run.identity] != found[with_mappings.identity]
    outcomes = simulate([run, with_mappings], Cache(tmp_path / "cache"))
    assert outcomes(run).result.mappings is None
    pages = outcomes(with_mappings).result.mappings
    assert pages
    assert sum(page.bytes for page in pages) == outcomes(with_mappings).get("mapped_4kb")


def test_a_stored_mix_does_not_depend_on_other_designs(folder: Path, tmp_path: Path) -> None:
    paper = papers.load(str(folder), "tiny")
    runs = [paper.run("pair", name, timing=True) for name in ("A", "B")]
    for number, order in enumerate((runs, runs[::-1], runs[1:])):
        kept = simulate(order, Cache(tmp_path / str(number)))(runs[1]).result
        assert kept.weighted_speedup is None
        assert all(p.ipc and p.ipc_alone is None for p in kept.programs)


def test_a_histogram_s_mean_is_read_by_its_path(folder: Path, tmp_path: Path) -> None:
    run = papers.load(str(folder), "tiny").run("GUPS", "A", timing=True)
    outcome = simulate([run], Cache(tmp_path / "cache"))(run)
    loads = outcome.get("core.0.load_to_use.count")
    assert loads == outcome.get("core.0.loads")
    assert (outcome.get("core.0.load_to_use.mean") or 0) > 4
