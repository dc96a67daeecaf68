"""What the documentation shows works as it is printed."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pagewalk.reference import pages

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


def test_the_code_of_the_page_on_tlb_policies_is_what_the_tests_build() -> None:
    page = "how-to/tlb-policy.md"
    shown = [(DOCS / "how-to" / name).read_text() for name in ("clock.rs", "stride.rs")]
    assert blocks(page, "rust") == shown
    # Registered for the tests of the crate as the page says it is to be registered.
    lines = "\n".join(blocks(page, "text"))
    for part in ("replacement", "prefetcher"):
        registry = (ROOT / f"crates/mmu/src/{part}/registry.rs").read_text()
        (line,) = re.findall(r"^ *\[test\] (.*)$", registry, re.MULTILINE)
        assert line in lines


def test_the_first_question_of_the_page_on_tlb_policies_is_answered(
    cli: Cli, tmp_path: Path
) -> None:
    page = "how-to/tlb-policy.md"
    (command,) = blocks(page, "sh")
    program, *arguments = shlex.split(command)
    assert program == "pagewalk"
    answer = cli(*arguments, "--json", tmp_path / "result.json")
    assert answer.returncode == 0, answer.stderr
    assert "mmu.l2.main.replacement=srrip" in answer.stdout
    # It has the values that are its defaults, and is not as the first design for that.
    assert "mmu.prefetcher.next_page" in answer.stdout
    (table, *_) = (DOCS / page).read_text().split("| --- | --: | --: |\n")[1:]
    shown = dict(re.findall(r"^\| `([\w-]+)`.*? \| ([\d.]+) \|", table, re.MULTILINE))
    for design in json.loads((tmp_path / "result.json").read_text())["designs"]:
        (mpki,) = (m["value"] for m in design["summary"] if m["name"] == "l2_tlb_mpki")
        assert mpki == pytest.approx(float(shown[design["name"]]), abs=0.0005)


@pytest.mark.parametrize("page", ["add-a-design.md", "python.md"])
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


def test_the_table_of_tlb_policies_is_made_from_the_kept_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    script = importlib.import_module("tlb_policies")
    assert script.table(json.loads(script.KEPT.read_text())) in script.PAGE.read_text()


def test_results_of_a_real_processor_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "validation"))
    hardware = importlib.import_module("hardware")
    kept = json.loads(hardware.KEPT.read_text())
    # Each program on each system, and the candidates of those that have them.
    for case in hardware.CASES:
        candidates = hardware.CANDIDATES if case.name in hardware.CANDIDATES_OF else {}
        assert kept[case.name].keys() == {*hardware.SYSTEMS, *candidates}
