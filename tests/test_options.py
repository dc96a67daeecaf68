"""The table of options, and what is said of them elsewhere."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

import fake
import pagewalk
from invoking import Invoke
from pagewalk.config.options import OPTIONS, Arguments

DOCS = Path(__file__).parent.parent / "docs"

REGIONS = Path(__file__).parent / "regions.toml"

GIVEN: dict[str, tuple[str, Any, Any]] = {
    "machine": ("m", "m", "m"),
    "settings": ("mmu.walkers=2", {"mmu.walkers": 2}, ["mmu.walkers=2"]),
    "skip": ("1M", "1M", 1_000_000),
    "warmup": ("2M", 2_000_000, 2_000_000),
    "instructions": ("3M", "3M", 3_000_000),
    "skip_requests": ("4K", "4K", 4000),
    "warmup_requests": ("5", 5, 5),
    "requests": ("100K", 100_000, 100_000),
    "roi": ("", True, True),
    "sample": ("1M/20M", "1M/20M", {"length": 1_000_000, "period": 20_000_000}),
    "precision": (
        "2%:ipc,l2_tlb_mpki",
        "2%:ipc,l2_tlb_mpki",
        {"within": 0.02, "metrics": ["ipc", "l2_tlb_mpki"]},
    ),
    "regions": (
        f"{REGIONS}",
        REGIONS,
        {"regions": [{"at": 0, "instructions": 1000, "weight": 1.0}], "trace_instructions": 5000},
    ),
    "seed": ("7", 7, 7),
    "jobs": ("2", 2, 2),
    "interval": ("10K", 10_000, 10_000),
    "perfetto": ("walks.json", Path("walks.json"), "walks.json"),
    "perfetto_walks": ("5", 5, 5),
    "frames": ("frames.txt", Path("frames.txt"), "frames.txt"),
    "page_mappings": ("", True, True),
    "ignore_memory": ("", True, True),
    "translation_cost": ("", True, True),
}
"""Values of each option that a specification has: flag, keyword, and the engine's value."""


def test_python_has_the_tables_keywords() -> None:
    names = {option.name for option in OPTIONS if option.python}
    assert set(Arguments.__annotations__) == names | {"program", "mappings", "progress"}
    for function in (pagewalk.run, pagewalk.compare):
        signature = inspect.signature(function)
        assert set(list(signature.parameters)[1:]) == set(Arguments.__annotations__)
        for option in OPTIONS:
            if option.python:
                assert signature.parameters[option.name].default == option.default
                assert f"{option.name}: {option.help}" in (function.__doc__ or "")


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'sizee'"):
        pagewalk.run(workload="gups", sizee="1GiB")  # type: ignore[call-arg]


def test_every_flag_is_documented() -> None:
    text = (DOCS / "command-line.md").read_text()
    for option in OPTIONS:
        assert re.search(rf"{option.spelled}\b(?!-)", text), option.spelled


@pytest.mark.parametrize("option", [o for o in OPTIONS if o.place], ids=lambda o: o.name)
def test_flag_and_keyword_say_the_same(option: Any, engine: fake.Engine, invoke: Invoke) -> None:
    flag, keyword, expected = GIVEN[option.name]
    # The command measures the cost of translation, the function only on request.
    words = ("run", "--workload", "gups", "--translation-cost", option.spelled)
    assert invoke(*words, *([flag] if flag else []))[0] == 0
    arguments: dict[str, Any] = {"workload": "gups", "progress": False, option.name: keyword}
    pagewalk.run(**{"translation_cost": True, **arguments})
    pagewalk.run(workload="gups", progress=False)
    by_flag, by_keyword, without = engine.specs
    assert by_flag == by_keyword
    value: Any = by_flag
    other: Any = without
    for key in option.place:
        value = value[key]
        other = other.get(key)
    assert value == expected
    assert other != expected


def test_commands_measure_the_cost_of_translation_where_it_is_defined(
    engine: fake.Engine, invoke: Invoke
) -> None:
    gups = ("--workload", "gups")
    for words in (
        ("compare", *gups),
        ("compare", *gups, "--no-translation-cost"),
        ("compare", "--mix", "gups,bfs"),
        ("run", *gups),
        ("run", *gups, "--no-translation-cost"),
        ("run", "--mix", "gups,bfs"),
    ):
        assert invoke(*words)[0] == 0
    pagewalk.compare(workload="gups", progress=False)
    pagewalk.run(workload="gups", progress=False)
    measured = [spec.get("translation_cost") for spec in engine.specs]
    assert measured == [True, False, None, True, False, None, True, None]
