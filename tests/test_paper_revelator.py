"""Revelator's figures: what they run, what they read, and the paper's numbers beside ours."""

from __future__ import annotations

import importlib
import json
from types import ModuleType
from typing import Any

import pytest

from pagewalk.reproduce import Figure, Outcome, Paper, Row, Run
from pagewalk.reproduce import paper as papers

Json = dict[str, Any]
FAILED = Outcome("", None, "no luck")


@pytest.fixture(scope="module")
def paper() -> Paper:
    return papers.load("revelator", "smoke")


def module(paper: Paper, name: str) -> ModuleType:
    """A file of the paper's folder."""
    return importlib.import_module(f"{type(paper).__module__.rpartition('.')[0]}.{name}")


def figure(paper: Paper, name: str) -> Figure:
    return paper.figures([name])[name]


def empty(paper: Paper, name: str) -> list[Row]:
    """A figure's rows without a result."""
    return figure(paper, name).rows(paper, lambda _run: FAILED)


def outcome(
    summary: Json | None = None,
    stats: Json | None = None,
    ever: Json | None = None,
    histograms: list[Json] | None = None,
    **more: Any,
) -> Outcome:
    """A finished run with these numbers."""

    def rows(values: Json | None) -> list[Json]:
        found = []
        for path, value in (values or {}).items():
            place, _, name = path.rpartition(".")
            found.append(
                {"path": place, "name": name, "value": value, "unit": "", "meaning": "",
                 "gauge": False}
            )  # fmt: skip
        return found

    design = {
        "name": "x", "description": "", "status": "complete", "config": {}, "cycle_stack": [],
        "summary": [
            {"name": name, "value": value, "unit": "", "meaning": ""}
            for name, value in (summary or {}).items()
        ],
        "stats": rows(stats), "since_boot": rows(ever), "histograms": histograms or [], **more,
    }  # fmt: skip
    return Outcome("key", {"name": "x", "design": design})


def given(rows: list[Row], panel: str | None = None) -> dict[tuple[str, str], tuple[Any, ...]]:
    """The paper's numbers by place: the number, the end of its range, its bound."""
    return {
        (row.group, row.series): (row.paper, row.up_to, row.bound)
        for row in rows
        if row.paper is not None and panel in (None, row.panel)
    }


def test_every_number_of_the_text_stands_beside_ours(paper: Paper) -> None:
    low = given(empty(paper, "fig11"), "low")
    assert {series: of[0] for (_, series), of in low.items()} == {
        "THP low": 1.21, "SpecTLB-Large low": 1.22, "Revelator low": 1.27,
    }  # fmt: skip
    high = given(empty(paper, "fig11"), "high")
    assert {series: of[0] for (_, series), of in high.items()} == {
        "THP high": 1.10, "Revelator high": 1.16,
    }  # fmt: skip
    text = given(empty(paper, "fig18"), "text")
    for other, value in (("ECH", 1.09), ("L2TLB-128K", 1.01), ("POM-TLB", 1.11)):
        assert text[f"Revelator low over {other}", ""][0] == value
    assert given(empty(paper, "fig19"), "text")["ISP less Revelator, low", ""][0] == 60
    modes = given(empty(paper, "fig14"), "")
    assert [of[0] for of in modes.values()] == [1.05, 1.15, 1.21]
    walks = given(empty(paper, "fig15"), "")
    for tries in ("three hashes", "six hashes", "the first hash"):
        assert [walks[pressure, tries][0] for pressure in ("0", "20", "80")] == [17, 15, 8]
    latency = given(empty(paper, "fig12"))
    assert latency["mean", "Revelator low"][0] in (22, 31, 13)
    energy = given(empty(paper, "fig17"), "text")
    assert energy["saved by Revelator low", ""][0] == 9
    assert energy["saved by Revelator high", ""][0] == 2
    assert given(empty(paper, "fig2")) == {
        ("mean", "data from DRAM"): (50, None, "at least"),
        ("mean", "entries from DRAM, data cached"): (1, None, "at most"),
    }
    assert set(given(empty(paper, "overlap")).values()) == {(0.1, None, "at most")}
    second = given(empty(paper, "version2"))
    for share, value in ((90, 1.11), (50, 1.19), (10, 1.26)):
        assert second["GMean", f"Revelator+THP {share}%"][0] in (value, 1.4, 1.5)
    right = second["right guesses of data, 16 cores, 50 % of blocks", "of the misses"]
    assert right == (87, 88, "")


def test_both_readings_of_an_ambiguous_text_have_rows(paper: Paper) -> None:
    rows = empty(paper, "fig12")
    means = {(row.panel, row.series): row.paper for row in rows if row.average}
    for panels, number in ((("latency", "load"), 22), (("tlb", "cache"), 31),
                           (("translation", "walk"), 13)):  # fmt: skip
        assert all(means[panel, "Revelator low"] == number for panel in panels)
    tlb = [row for row in rows if row.average and row.panel == "tlb" and row.paper is not None]
    assert [row.deviation for row in tlb] == ["revelator-figure-12", "revelator-figure-12"]
    names = {run.design.label for run in figure(paper, "fig11").runs(paper)}
    other = {"Revelator, 75 % placed", "Revelator, 15 % placed"}
    assert {"Revelator low", "Revelator high"} | other <= names
    groups = {row.group for row in empty(paper, "fig13") if row.paper == pytest.approx(1.07)}
    assert groups == {"80 % of the frames denied", "80 % of the pages without a hash"}


def changes(run: Run) -> Json:
    flat: Json = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            flat[prefix] = value

    walk("", run.design.changes)
    return flat


def test_low_and_high_pressure_are_shares_of_frames_or_of_pages(paper: Paper) -> None:
    def denied(name: str) -> float:
        share: float = changes(paper.run("BFS", name, timing=True))["placement.tiered_hash.denied"]
        return share

    for level, other, share in (("low", "75 %", 0.75), ("high", "15 %", 0.15)):
        assert denied(f"Revelator {level}") == pytest.approx(1 - share)
        assert denied(f"Revelator {level}, right guesses only") == pytest.approx(1 - share)
        assert 1 - denied(f"Revelator, {other} placed") ** 6 == pytest.approx(share, abs=0.003)
    placed = module(paper, "fig13").denied
    for hashes in range(1, 7):
        assert placed(hashes) ** hashes == pytest.approx(0.8, abs=1e-3)


def test_settings_of_the_figures_reach_their_designs(paper: Paper) -> None:
    for run in figure(paper, "fig13").runs(paper):
        if run.design.label != "Radix":
            keys = changes(run)
            assert keys["engine.revelator.filter"] == "off"
            assert keys["engine.revelator.degree"] == keys["placement.tiered_hash.tiers"]
    pressures = {
        changes(run)["placement.tiered_hash.denied"]
        for run in figure(paper, "fig15").runs(paper)
        if run.design.label != "Radix"
    }
    assert pressures == {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}
    rates = {
        (run.design.base, changes(run)["memory.dram.ddr.data_rate_mts"])
        for run in figure(paper, "fig16").runs(paper)
    }
    assert rates == {(base, rate) for base in ("radix", "revelator") for rate in (400, 3200)}
    modes = [changes(run) for run in figure(paper, "fig14").runs(paper) if run.design.changes]
    engines = {keys.get("engine.revelator.what") for keys in modes}
    assert engines == {None, "entries", "data", "both"}
    assert {keys["placement.tiered_hash.tiers"] for keys in modes} == {3}


def test_a_scale_says_which_programs_are_swept(paper: Paper) -> None:
    def programs(of: Paper, name: str) -> set[str]:
        return {app for (app, _), _ in figure(of, name).runs(of).items()}

    whole = papers.load("revelator", "paper")
    everything = set(module(paper, "common").APPLICATIONS)
    assert programs(paper, "fig11") == programs(whole, "fig11") == everything
    for name in ("fig13", "fig15", "fig16"):
        assert programs(whole, name) == everything
        assert programs(paper, name) < everything


def test_the_model_of_figure_10_is_a_geometric_series(paper: Paper) -> None:
    model = module(paper, "fig10").model
    assert model(0.4, 2) == pytest.approx([60, 24])
    assert sum(model(0.8, 3)) == pytest.approx(100 * (1 - 0.8**3))
    rows = empty(paper, "fig10")
    bars = [r for r in rows if (r.panel, r.group, r.series) == ("40%", "N=6", "model")]
    assert sum(row.value or 0 for row in bars) == pytest.approx(100)
    assert [row.part for row in bars] == ["H1", "H2", "H3", "H4", "H5", "H6", "buddy allocator"]
    quoted = {(r.group, r.series): r for r in rows if r.average}
    assert quoted["40 % occupied, H1", "model"].status.startswith("differs")
    assert quoted["80 % occupied, three hashes", "model"].status.startswith("differs")
    assert quoted["20 % occupied, three hashes", "model"].status == "agrees"


def test_pages_are_counted_by_the_hash_or_allocator_that_placed_them(paper: Paper) -> None:
    counts = module(paper, "counts")
    run = outcome(
        ever={
            "os.tiered_hash.1.data_hits": 60, "os.tiered_hash.2.data_hits": 25,
            "os.tiered_hash.1.data_expected": 61, "os.tiered_hash.2.data_expected": 24,
            "os.tiered_hash.data_fallbacks": 15,
        }
    )  # fmt: skip
    ours = counts.placed(run)
    assert ours.shares() == [60, 25]
    assert ours.hashed == 85
    assert counts.expected(run).shares() == [61, 24]
    assert module(paper, "fig10").farthest(run) == pytest.approx(1)
    assert counts.placed(outcome()) is None
    assert counts.placed(FAILED) is None


def test_a_load_is_translated_and_then_fetched(paper: Paper) -> None:
    counts = module(paper, "counts")
    histogram = {
        "path": "core.0", "name": "load_to_use", "unit": "cycles", "meaning": "", "count": 10,
        "sum": 1000, "mean": 100.0, "p50": 90, "p90": 100, "p99": 110, "largest": 120,
        "buckets": [],
    }  # fmt: skip
    stats = {"core.0.loads": 10, "core.0.load_translation_cycles": 300}
    found = counts.latency(outcome(stats=stats, histograms=[histogram]))
    assert (found.translation, found.data, found.whole) == (30, 70, 100)
    assert counts.latency(FAILED) is None


def test_a_note_names_programs_of_one_size_together(paper: Paper) -> None:
    note = paper.note(figure(paper, "fig2"))
    assert "; BC, BFS, CC, GC, PR, TC, SP: vertices 500000 instead of 8000000; DLRM: " in note


def test_statistics_of_engines_and_energy_are_read(paper: Paper) -> None:
    counts = module(paper, "counts")
    run = outcome(
        summary={"instructions": 2000},
        stats={
            "core.0.mmu.engine.data.right": 60, "core.0.mmu.engine.data.wrong": 10,
            "core.1.mmu.engine.data.right": 27, "core.1.mmu.engine.data.wrong": 3,
            "core.0.mmu.engine.spectlb.lookups": 50, "core.0.mmu.engine.spectlb.hits": 10,
            "core.0.mmu.walks": 80, "core.1.mmu.walks": 30, "core.0.mmu.walks_merged": 10,
            "core.1.mmu.walks_merged": 0, "core.0.l2.misses": 30, "core.0.l2.merged": 10,
        },
        energy={
            "total_nj": 4e6, "dynamic_nj": 4e6, "static_nj": 0.0, "seconds": 1.0,
            "parts": [
                {
                    "part": part, "group": group, "total_nj": total, "dynamic_nj": total,
                    "static_nj": 0.0, "static_mw": 0.0, "number": 1, "source": "", "events": [],
                }
                for part, group, total in (
                    ("core.l1d", "caches", 1e6), ("l3", "caches", 2e6), ("dram", "dram", 1e6),
                )
            ],
        },
    )  # fmt: skip
    assert counts.accuracy(run) == pytest.approx(87)
    assert counts.covered(run) == pytest.approx(100 * 87 / 120)
    assert counts.spectlb_miss_rate(run) == pytest.approx(80)
    assert counts.l2_mpki(run) == pytest.approx(10)
    assert counts.energy(run) == {"caches": 3.0, "dram": 1.0}
    assert counts.energy(FAILED) == {}


def test_speedups_are_ratios_and_their_mean_is_geometric(paper: Paper) -> None:
    speeds = {"Radix": 1.0, "Revelator-OnlyPT": 1.1, "Revelator-OnlyData": 1.2}

    def results(run: Run) -> Outcome:
        slow = 0.5 if run.program.workload == "gups" else 1.0
        gain = speeds.get(run.design.label, 4.0 if slow < 1 else 1.0)
        return outcome(summary={"ipc": slow * gain})

    rows = {(r.group, r.series): r for r in figure(paper, "fig14").rows(paper, results)}
    assert rows["RND", "Revelator-OnlyData"].value == pytest.approx(1.2)
    mean = rows["GMean", "Revelator-PT+Data"]
    assert mean.value == pytest.approx(4 ** (1 / 11))
    assert mean.note == f"arithmetic mean {14 / 11:.4f}"
    (order,) = [row for row in rows.values() if row.group.startswith("pairs of neighbours")]
    # 1.1 < 1.2, and then 1.134: one of two.
    assert (order.value, order.paper) == (1, 2)


def test_pages_in_the_same_frame_are_those_that_both_have(paper: Paper) -> None:
    of = module(paper, "overlap")
    assert of.overlap({1: 10, 2: 20, 3: 30}, {2: 20, 3: 31, 4: 40}) == 50
    assert of.overlap({}, {1: 10}) is None
    pages = [
        {"process": 0, "address": 4096, "at": 8192, "bytes": 4096},
        {"process": 1, "address": 4096, "at": 12288, "bytes": 4096},
    ]
    assert of.frames(outcome(mappings=pages), 1) == {4096: 12288}
    runs = list(figure(paper, "overlap").runs(paper))
    assert all(run.mappings for run in runs)
    # Each scenario has booted by itself, also when seeds follow each other.
    twin = [run.seed for run in figure(paper, "overlap").runs(paper.at_seed(2))]
    assert not {run.seed for run in runs} & set(twin)


def test_weighted_speedup_is_over_each_program_alone(paper: Paper) -> None:
    weighted = module(paper, "version2").weighted
    programs = [
        {"name": "a", "instructions": 1, "requests": 0, "cycles": 1, "ipc": ipc,
         "ipc_alone": None, "speedup": None, "mapped_4kb": 0, "mapped_2mb": 0, "mapped_1gb": 0,
         "page_table_bytes": 0}
        for ipc in (0.5, 0.9)
    ]  # fmt: skip
    alone = [outcome(summary={"ipc": 1.0}), outcome(summary={"ipc": 1.2})]
    assert weighted(outcome(programs=programs), alone) == pytest.approx(0.5 + 0.75)
    assert weighted(FAILED, alone) is None
    assert weighted(outcome(programs=programs), [FAILED, alone[1]]) is None


def test_programs_of_mixes_run_alone_as_they_do_in_them(paper: Paper) -> None:
    runs = dict(figure(paper, "version2").runs(paper).items())
    mix = runs["mix 1", "THP 50%"]
    assert len(mix.program.mix) == 16
    for number, member in enumerate(mix.program.mix):
        alone = runs[f"mix 1 {number}", "THP 50%"]
        assert alone.program.source() == member
        assert alone.instructions == mix.instructions
        assert alone.warmup * 16 == mix.warmup
        assert changes(alone) == changes(mix)
        assert changes(alone)["cores"] == 16


def test_chosen_shares_agree_by_construction(paper: Paper) -> None:
    marked = [row for row in empty(paper, "fig11") if row.by_construction]
    assert {row.group for row in marked} == {
        "frames that the hash may take, Revelator low",
        "frames that the hash may take, Revelator high",
    }  # fmt: skip
    assert not any(row.by_construction for row in empty(paper, "fig10"))


def test_the_paper_s_footprints_are_those_of_its_own_scale() -> None:
    whole = papers.load("revelator")
    assert whole.scale.instructions == 300_000_000
    graph = whole.applications["BFS"].program
    assert json.loads(graph.params["vertices"]) == 8_000_000
    sizes = {name: whole.applications[name].program.size for name in ("XS", "DLRM", "GEN")}
    assert sizes == {"XS": "9GiB", "DLRM": "10547MiB", "GEN": "33GiB"}
