"""Charts of intervals, whose axes the whole intervals set, and of distributions."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import pytest

import fake
from pagewalk.measurements import histograms
from pagewalk.result import Result
from pagewalk.view import charts, distributions, palette


@pytest.fixture
def answer() -> dict[str, Any]:
    spec = {"designs": ["radix", "thp"], "seed": 1, "machine": "m", "limits": {}}
    return fake.result(spec)


def labels(svg: str) -> list[str]:
    return [(e.text or "").strip() for e in ET.fromstring(svg).iter() if e.tag.endswith("text")]


def picture(specification: dict[str, Any] | None) -> str:
    assert specification is not None
    return charts.svg(specification)


def numbers(svg: str) -> list[float]:
    return [float(t) for t in labels(svg) if re.fullmatch(r"[0-9.]+", t)]


def test_an_interval_that_was_cut_has_no_say_in_the_axis(answer: dict[str, Any]) -> None:
    drawn = picture(charts.interval_lines(Result(answer), "ipc", "instructions a cycle"))
    # 20 million instructions across, IPC 0.2 up; the three instructions of the end have 3.0.
    assert max(numbers(drawn)) == 20
    assert max(float(t) for t in labels(drawn) if re.fullmatch(r"\d\.\d+", t)) == 0.2


def test_intervals_are_drawn_even_if_all_were_cut(answer: dict[str, Any]) -> None:
    for design in answer["designs"]:
        design["intervals"]["complete"] = [False] * 3
    drawn = picture(charts.interval_lines(Result(answer), "ipc", "instructions a cycle"))
    assert 3.0 in numbers(drawn)


def test_a_distribution_is_drawn_over_magnitudes(answer: dict[str, Any]) -> None:
    for design in answer["designs"]:
        waits = dict(design["histograms"][0], name="walker_wait", p50=0)
        waits["buckets"] = [[0, 0, 900], [64, 65, 100]]
        design["histograms"].append(waits)
    drawn = picture(distributions.times(Result(answer)))
    assert {"walk latency", "walker wait", "radix", "thp", "0", "512"} <= set(labels(drawn))
    for design in answer["designs"]:
        design["histograms"] = []
    assert distributions.times(Result(answer)) is None


def test_the_sum_over_cores_is_reported(answer: dict[str, Any]) -> None:
    (one,) = answer["designs"][0]["histograms"]
    paths = ("core.0.mmu", "core.1.mmu", "cores.mmu")
    answer["designs"][0]["histograms"] = [
        *(dict(one, path=path) for path in paths),
        dict(one, path="os", name="fault_cost"),
        dict(one, path="host", name="fault_cost"),
        dict(one, path="cores", name="load_to_use", count=0),
    ]
    reported = histograms.reported(Result(answer).designs[0].histograms)
    assert [h.path for h in reported] == ["cores.mmu", "os", "host"]
    assert [histograms.label(h) for h in reported] == [
        "walk latency",
        "fault cost",
        "fault cost (host)",
    ]


def test_the_same_result_is_the_same_picture(answer: dict[str, Any]) -> None:
    # This one has parts with numbers, which Vega goes on counting.
    pictures = [
        picture(charts.interval_lines(Result(answer), "ipc", "instructions a cycle"))
        for _ in range(2)
    ]
    assert "clip" in pictures[0]
    assert pictures[0] == pictures[1]


def test_percentiles_of_many_designs_are_drawn(answer: dict[str, Any]) -> None:
    (one, _) = answer["designs"]
    answer["designs"] = [dict(one, name=f"d{number}") for number in range(10)]
    drawn = picture(distributions.times(Result(answer)))
    # A dot and a mark a design, and no line that would hide another's.
    assert drawn.count('class="mark-line') == 0
    assert {f"d{number}" for number in range(10)} <= set(labels(drawn))
    assert "median" in distributions.about_times(Result(answer))
    # A distribution of zeros alone is not drawn.
    for design in answer["designs"]:
        design["histograms"] = [dict(one["histograms"][0], largest=0, p50=0, p90=0, p99=0)]
    assert distributions.times(Result(answer)) is None


def test_a_line_s_name_stands_at_its_end(answer: dict[str, Any]) -> None:
    specification = charts.interval_lines(Result(answer), "ipc", "instructions a cycle")
    drawn = picture(specification)
    assert {"radix", "thp"} <= set(labels(drawn))
    assert "role-legend" not in drawn
    # One that is too long for that has a legend.
    answer["designs"][1]["name"] = "thp" * 40
    drawn = picture(charts.interval_lines(Result(answer), "ipc", "instructions a cycle"))
    assert "role-legend" in drawn


def test_thirty_designs_have_colours_of_their_own() -> None:
    assert len(set(palette.designs(30))) == 30
    assert palette.designs(31)[30] == palette.designs(1)[0]
