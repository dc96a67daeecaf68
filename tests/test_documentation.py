"""What the documentation shows works as it is printed."""

from __future__ import annotations

import importlib
import io
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

from pagewalk import report
from pagewalk.reference import pages
from pagewalk.result import Result

DOCS = Path(__file__).parent.parent / "docs"
ROOT = DOCS.parent
Cli = Callable[..., "subprocess.CompletedProcess[str]"]


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), re.DOTALL)


def test_the_design_file_of_the_worked_example_runs(cli: Cli, tmp_path: Path) -> None:
    (design,) = blocks("add-a-design.md", "toml")
    (command,) = blocks("add-a-design.md", "sh")
    (tmp_path / "thp-one-walker.toml").write_text(design)
    program, *arguments = shlex.split(command)
    assert program == "pagewalk"
    arguments += ["--instructions", "200K", "--warmup", "100K"]
    answer = cli(*arguments, cwd=tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert "mmu.walkers=1" in answer.stdout
    assert "mmu.l2.main.entries=1024" in answer.stdout


# That of a figure runs in test_reproduce.py.
SCRIPTS = sorted(
    str(path.relative_to(DOCS))
    for path in DOCS.rglob("*.md")
    if "```python\n" in path.read_text() and path.name != "reproduce.md"
)


@pytest.mark.parametrize("page", SCRIPTS)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    script = tmp_path / "example.py"
    script.write_text("\n".join(blocks(page, "python")))
    answer = subprocess.run(
        [sys.executable, script], capture_output=True, text=True, timeout=600, check=False
    )
    assert answer.returncode == 0, answer.stderr


@pytest.mark.parametrize("name", ["statistics.md", "configuration.md"])
def test_a_reference_page_is_what_the_code_defines(name: str) -> None:
    assert (DOCS / name).read_text() == pages()[name], "run 'make docs'"


@pytest.mark.parametrize("name", ["hardware", "champsim"])
def test_tables_of_validation_are_made_from_the_kept_results(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    script = importlib.import_module(name)
    kept = json.loads(script.KEPT.read_text())
    assert script.tables(kept) in script.marked.PAGE.read_text()


def test_results_of_a_real_processor_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    hardware = importlib.import_module("hardware")
    kept = json.loads(hardware.KEPT.read_text())
    # Each program on each system, and the candidates of those that have them.
    for case in hardware.CASES:
        candidates = hardware.CANDIDATES if case.name in hardware.CANDIDATES_OF else {}
        assert kept[case.name].keys() == {*hardware.SYSTEMS, *candidates}


def test_the_page_on_machines_shows_what_its_command_prints(cli: Cli, tmp_path: Path) -> None:
    page = "how-to/compare-machines.md"
    first, second = blocks(page, "sh")
    path = tmp_path / "r.json"
    for command, less in ((second, ["10M", "100K"]), (first, [])):
        program, *arguments = shlex.split(command.replace("\\\n", ""))
        assert program == "pagewalk"
        if less:
            arguments = [less[1] if word == less[0] else word for word in arguments]
        answer = cli(*arguments, "--json", path, cwd=tmp_path)
        assert answer.returncode == 0, answer.stderr
    shown = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    report.compare(Result(json.loads(path.read_text())), shown)
    assert isinstance(shown.file, io.StringIO)
    printed = [line.rstrip() for line in shown.file.getvalue().splitlines()]
    (table,) = blocks(page, "text")
    for line in table.splitlines():
        assert line.rstrip() in printed
