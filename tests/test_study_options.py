"""The options of a study: the same as flags, as keywords in Python and as keys of a file."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Invoke, refused
from pagewalk.config.config import toml
from pagewalk.errors import UserError
from pagewalk.studies import command
from pagewalk.studies.options import DEFINING, EXECUTOR, KNOWN, OPTIONS, Arguments, StudyOption
from pagewalk.studies.study import Study, read

GIVEN: dict[str, tuple[list[str], Any]] = {
    "designs": (["radix,thp"], ["radix", "thp"]),
    "machine": (["epyc-milan,epyc-rome"], ["epyc-milan", "epyc-rome"]),
    "settings": (["mmu.walkers=2"], {"mmu.walkers": "2"}),
    "workload": (["gups,bfs"], "gups,bfs"),
    "size": (["2GiB"], "2GiB"),
    "threads": (["2"], 2),
    "params": (["populate=yes"], {"populate": "yes"}),
    "trace": (["a.pwt,b.pwt"], ["a.pwt", "b.pwt"]),
    "mix": (["gups,bfs", "gups,gups"], ["gups,bfs", "gups,gups"]),
    "vary": (["size=1GiB,2GiB"], {"size": ["1GiB", "2GiB"]}),
    "where": (["threads = 1"], "threads = 1"),
    "skip": (["1M"], "1M"),
    "warmup": (["2M"], 2_000_000),
    "instructions": (["3M"], "3M"),
    "warmup_requests": (["4K"], "4K"),
    "requests": (["5"], 5),
    "roi": ([], True),
    "precision": (["2%"], "2%"),
    "interval": (["10K"], 10_000),
    "seed": (["7"], 7),
    "seeds": (["3"], 3),
}
"""The value after the flag, repeated values, and the keyword, for each option with a flag."""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Study]:
    """The studies that ``--dry-run`` has planned."""
    monkeypatch.chdir(tmp_path)
    found: list[Study] = []

    def plan(study: Study, *_: object) -> command.Plan:
        found.append(study)
        return command.Plan(0, 0, 0, 0.0, 0, 0, [])

    monkeypatch.setattr(command, "estimate", plan)
    return found


def bare(study: Study) -> Study:
    """A study without how it was written."""
    return replace(study, description={}, at="")


@pytest.mark.parametrize("option", [o for o in DEFINING if o.command], ids=lambda o: o.name)
def test_flag_keyword_and_key_say_the_same(
    option: StudyOption, invoke: Invoke, planned: list[Study], tmp_path: Path
) -> None:
    texts, keyword = GIVEN[option.name]
    words = [word for text in texts for word in (option.spelled, text)] or [option.spelled]
    assert invoke("sweep", "run", *words, "--dry-run")[0] == 0
    assert invoke("sweep", "run", "--dry-run")[0] == 0
    by_flag, without = map(bare, planned)
    arguments: dict[str, Any] = {option.name: keyword}
    by_keyword = bare(pagewalk.sweep(**arguments).study)
    file = tmp_path / "study.toml"
    file.write_text(f"{option.key} = {toml(keyword, option.key)}\n")
    assert by_flag == by_keyword == bare(read(file)) != without
    # An option that is not given leaves the file's value.
    assert bare(pagewalk.sweep(file).study) == by_flag
    assert invoke("sweep", "run", str(file), "--dry-run")[0] == 0
    assert bare(planned[-1]) == by_flag


def test_python_has_the_tables_keywords() -> None:
    parameters = inspect.signature(pagewalk.sweep).parameters
    names = [option.name for option in OPTIONS if option.python]
    assert [*parameters] == ["file", *names, "progress"]
    assert {*Arguments.__annotations__} == {*names, "progress"}
    for option in OPTIONS:
        if option.python:
            assert parameters[option.name].default == option.default
            assert f"{option.name}: {option.help}" in (pagewalk.sweep.__doc__ or "")


def test_an_unknown_keyword_is_refused() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'histogram'; did you mean"):
        pagewalk.sweep(workload="gups", histogram=True)  # type: ignore[call-arg]


def test_an_unknown_key_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    for key in (*KNOWN, *(f"cluster.{key}" for key in EXECUTOR)):
        # Each key is known, with any value.
        file.write_text(f"{key} = 1979-05-27\n")
        with pytest.raises(UserError) as error:
            read(file).points()
        assert "nothing that a study says" not in str(error.value)
    file.write_text("dry_run = true\n")
    with pytest.raises(UserError, match="dry_run: is nothing that a study says"):
        read(file)


@pytest.mark.parametrize("flag", ["jobs", "cluster"])
def test_jobs_and_cluster_are_checked_at_once(flag: str) -> None:
    arguments: dict[str, Any] = {"workload": "gups", flag: 0}
    with pytest.raises(UserError, match=rf"^{flag}: 0 is "):
        pagewalk.sweep(**arguments)


def test_the_program_after_the_dashes_has_a_name(invoke: Invoke) -> None:
    assert "no program after --" in refused(invoke, "sweep", "--designs", "radix", "--")
