"""Names of options in errors, on the command line and in Python."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Invoke, refused
from pagewalk import native
from pagewalk.config.options import OPTIONS
from pagewalk.errors import Either, Param, RunOption, in_keywords

SHORT: dict[str, Any] = {"instructions": "10K", "warmup": 0, "progress": False}


def test_options_of_the_engines_errors_are_those_of_a_run() -> None:
    flags = {option.name: option.spelled for option in OPTIONS}
    named = native.run_options()
    # A design is an argument of its own, and a program follows the options.
    assert {name: named.pop(name) for name in ("design", "program")} == {
        "design": "--design",
        "program": "--",
    }
    assert named == {name: flags[name] for name in named}


MISTAKES: list[tuple[dict[str, Any], list[str], str, str, str]] = [
    (
        {"workload": "sysbench", "skip_requests": 1},
        ["--workload", "sysbench", "--skip-requests", "1"],
        "skip_requests",
        "--skip-requests: ",
        "skip_requests: ",
    ),
    (
        {"workload": "gups", "skip": 1, "skip_requests": 1},
        ["--workload", "gups", "--skip", "1", "--skip-requests", "1"],
        "skip",
        "--skip and --skip-requests: expected one",
        "skip and skip_requests: expected one",
    ),
    (
        {"workload": "bfs", "params": {"direction": "optimizing"}},
        ["--workload", "bfs", "--param", "direction=optimizing"],
        "params",
        "add --param symmetric=yes;",
        "add params={'symmetric': 'yes'};",
    ),
    (
        {"workload": "gups", "settings": {"mmu.walkers": 0}},
        ["--workload", "gups", "--set", "mmu.walkers=0"],
        "mmu.walkers",
        "--set mmu.walkers=0: mmu.walkers is 0; expected",
        "settings mmu.walkers=0: mmu.walkers is 0; expected",
    ),
    (
        {"workload": "gups", "jobs": 0},
        ["--workload", "gups", "--jobs", "0"],
        "jobs",
        "--jobs: 0 is not possible",
        "jobs: 0 is not possible",
    ),
    (
        {"trace": "no.pwt"},
        ["--trace", "no.pwt"],
        "trace",
        "--trace: there is no file 'no.pwt'",
        "trace: there is no file 'no.pwt'",
    ),
    (
        {"mix": "gups,bfs", "size": "1MiB"},
        ["--mix", "gups,bfs", "--size", "1MiB"],
        "size",
        "--size belongs to a single program",
        "size belongs to a single program",
    ),
]


@pytest.mark.parametrize(("arguments", "flags", "option", "by_flag", "by_keyword"), MISTAKES)
def test_a_mistake_names_options_as_its_reader_writes_them(
    invoke: Invoke,
    arguments: dict[str, Any],
    flags: list[str],
    option: str,
    by_flag: str,
    by_keyword: str,
) -> None:
    assert by_flag in refused(invoke, "run", "--instructions", "10K", *flags)
    with pytest.raises(pagewalk.UserError) as raised:
        pagewalk.run("radix", **SHORT, **arguments)
    assert by_keyword in str(raised.value)
    assert raised.value.option == option


def test_an_error_says_where_its_cause_was_read(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "radix"\n\n[mmu]\nwalkers = 0\n')
    with pytest.raises(pagewalk.UserError) as raised:
        pagewalk.design(file)
    error = raised.value
    assert (error.option, error.place) == ("mmu.walkers", f"{file}:4")
    assert error.text.startswith("is 0; expected 1 to ")
    assert str(error) == f"{file}:4: mmu.walkers {error.text}"
    with pytest.raises(pagewalk.UserError) as raised:
        pagewalk.run("radix", workload="bfs", params={"scale": 99}, **SHORT)
    assert (raised.value.option, raised.value.place) == ("params", "bfs")


def test_an_error_keeps_its_parts_from_process_to_process() -> None:
    error = pagewalk.UserError(
        "needs ",
        RunOption("trace", "FILE"),
        " or ",
        Param("symmetric", "yes"),
        "; ",
        Either("a command", "a function"),
        about=RunOption("skip_requests"),
    ).at("bfs")
    again = pickle.loads(pickle.dumps(error))
    for one in (error, again):
        assert str(one) == (
            "bfs: --skip-requests: needs --trace FILE or --param symmetric=yes; a command"
        )
        with pytest.raises(pagewalk.UserError) as raised, in_keywords():
            raise one
        assert str(raised.value) == (
            "bfs: skip_requests: needs trace or params={'symmetric': 'yes'}; a function"
        )
        assert (one.option, one.place) == ("skip_requests", "bfs")
        assert one.text == "needs trace or params={'symmetric': 'yes'}; a function"
