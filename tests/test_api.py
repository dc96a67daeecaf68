"""Simulations from Python, with the real engine."""

from __future__ import annotations

import json
import re
import threading
import time
from html.parser import HTMLParser
from pathlib import Path

import polars
import pytest

import pagewalk
from pagewalk import native
from pagewalk.result import Result
from pagewalk.view.markup import SCRIPT


def small(*designs: str | pagewalk.Config) -> Result:
    return pagewalk.compare(
        designs, workload="gups", size="64MiB", instructions="200K", warmup="50K", progress=False
    )


@pytest.fixture(scope="module")
def result() -> Result:
    return small("radix", "perfect-tlb")


def test_a_result_is_frames_and_numbers(result: Result) -> None:
    assert result.summary["design"].to_list() == ["radix", "perfect-tlb"]
    assert result["perfect-tlb"]["ipc"] >= result["radix"]["ipc"] > 0
    frame = result.frame()
    assert frame.columns == ["design", "path", "name", "value", "unit", "gauge", "meaning"]
    walks = frame.filter(polars.col("path").str.ends_with(".mmu"), name="walks", design="radix")
    assert walks["value"].sum() == result["radix"]["walks"]
    assert frame["unit"].null_count() == frame["meaning"].null_count() == 0
    assert result.intervals().is_empty()
    means = frame.filter(design="radix", path="core.0.mmu", name="walk_latency.mean")["value"]
    assert means.to_list() == [result["radix"]["walk_cycles_mean"]]
    buckets = result.histograms().filter(design="radix", name="walk_latency")
    assert buckets["count"].sum() == result["radix"]["walks"]
    assert not result.partial


def test_an_unknown_name_lists_the_valid_names(result: Result) -> None:
    with pytest.raises(KeyError, match="radix, perfect-tlb"):
        _ = result["thp"]
    with pytest.raises(KeyError, match=r"no number 'ipx'.*ipc"):
        _ = result["radix"]["ipx"]


def test_a_changed_design_runs_as_changed() -> None:
    design = pagewalk.design("radix")
    design.mmu.l2.main.entries = 65536
    result = small("radix", design, design.copy("large"))
    assert [d.name for d in result.designs] == ["radix", "radix (changed)", "large"]
    assert result["large"].config["mmu"]["l2"]["main"]["entries"] == 65536
    assert result["radix"].config["mmu"]["l2"]["main"]["entries"] != 65536
    assert result["large"]["walks"] < result["radix"]["walks"]
    assert result["large"].description == result["radix"].description


def test_a_changed_machine_runs_as_changed() -> None:
    machine = pagewalk.machine("epyc-milan")
    machine.mmu.walkers = 1
    arguments = {"workload": "gups", "size": "64MiB", "instructions": "100K", "progress": False}
    result = pagewalk.run("radix", machine=machine, **arguments)  # type: ignore[arg-type]
    assert result.designs[0].config["mmu"]["walkers"] == 1


def test_settings_hold_for_all_designs() -> None:
    result = pagewalk.compare(
        ["radix", "thp"],
        workload="gups",
        size=1 << 26,
        instructions=100_000,
        settings={"mmu.walkers": 2, "caches.l2.replacement": "srrip"},
        progress=False,
    )
    for design in result.designs:
        assert design.config["mmu"]["walkers"] == 2
        assert design.config["caches"]["l2"]["replacement"] == "srrip"


def test_mistakes_are_user_errors() -> None:
    with pytest.raises(pagewalk.UserError, match="there is no design"):
        small("raddix")
    with pytest.raises(pagewalk.UserError, match="expected exactly one of"):
        pagewalk.run()
    with pytest.raises(pagewalk.UserError, match="expected a list of designs"):
        pagewalk.compare("radix", workload="gups")


def test_other_threads_run_while_the_engine_does() -> None:
    counted = 0
    reports = 0
    stop = threading.Event()

    def count() -> None:
        nonlocal counted
        while counted < 300 and not stop.is_set():
            time.sleep(0.001)
            counted += 1
        stop.set()

    def progress(_text: str) -> bool:
        nonlocal reports
        reports += 1
        if reports == 300:
            stop.set()
        return not stop.is_set()

    spec = {
        "machine": "epyc-milan",
        "designs": ["radix"],
        "source": {"workload": {"name": "gups", "size": "64MiB"}},
        "limits": {"instructions": 10**11},
    }
    thread = threading.Thread(target=count)
    thread.start()
    answer = json.loads(native.engine().run(json.dumps(spec), progress))
    stop.set()
    thread.join()
    assert answer["partial"]
    # Each report, some five a second, lets the other thread run once. Only an engine that
    # releases the lock between reports lets it finish before as many reports.
    assert counted == 300
    assert reports < 300


class Outside(HTMLParser):
    """Finds all that a page would fetch or run."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "link", "img", "iframe", "object", "embed", "video", "audio"):
            self.found.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "data", "srcset") and not str(
                value
            ).startswith("#"):
                self.found.append(f"{tag} {name}={value}")


@pytest.mark.parametrize("designs", [("radix",), ("radix", "thp", "perfect-tlb")])
def test_a_page_needs_no_network(designs: tuple[str, ...], tmp_path: Path) -> None:
    path = tmp_path / "r.html"
    small(*designs).write_html(str(path))
    text = path.read_text()
    outside = Outside()
    outside.feed(text)
    # The page contains the script that saves a chart.
    assert outside.found == ["script"]
    assert text.count(f"<script>{SCRIPT}</script>") == 1
    assert not re.search("fetch|XMLHttp|import|https?://(?!www.w3.org)", SCRIPT)
    assert not re.search(r"@import|url\(\s*['\"]?http", text)
    assert text.count("<svg") >= (1 if len(designs) == 1 else 3)
    for design in designs:
        assert design in text


def test_a_notebook_shows_a_chart_and_a_table(result: Result) -> None:
    shown = result._repr_html_()
    assert "<svg" in shown
    assert "<table" in shown
    assert "perfect-tlb" in repr(result)


def test_catalogues() -> None:
    assert {"radix", "thp"} <= {d["name"] for d in pagewalk.designs()}
    assert "epyc-milan" in {m["name"] for m in pagewalk.machines()}
    assert "gups" in {w["name"] for w in pagewalk.workloads()}
    explained = pagewalk.explain("ipc")
    assert explained["found"][0]["unit"] == "instructions/cycle"
    assert re.fullmatch(r"\d+\.\d+\.\d+", pagewalk.__version__)
