"""Every command and every script of the pages that are read with hands on the keyboard."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from live import needs, needs_qemu

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [DOCS / "first-hour.md", *sorted((DOCS / "how-to").glob("*.md"))]
# Its commands install packages: scripts/clean_root.py runs them in new systems.
INSTALL = DOCS / "how-to" / "install.md"
# Whose commands run in test_documentation.py, which also holds what the page shows.
ELSEWHERE = ["compare-machines", "tlb-policy"]
FENCE = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)


def steps(page: Path, *languages: str) -> list[tuple[str, str]]:
    """The blocks of a page in these languages, in order."""
    return [(a, b) for a, b in FENCE.findall(page.read_text()) if a in languages]


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which `pagewalk` and `python` are those under test."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name, words in {"pagewalk": "-m pagewalk", "python": ""}.items():
        (tools / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {words} "$@"\n')
        (tools / name).chmod(0o755)
    return {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}


@needs_qemu
@needs("cc")
@pytest.mark.parametrize("page", [p for p in PAGES if p != INSTALL], ids=lambda page: page.stem)
def test_the_steps_of_a_how_to_page_work(page: Path, shell: dict[str, str], tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    shown, scripts = [], []
    languages = ["python"] if page.stem in ELSEWHERE else ["sh", "python"]
    for language, text in steps(page, *languages):
        if language == "python":
            scripts.append(text)
            continue
        answer = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=work, env=shell, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, f"{text}\n{answer.stderr}"
        # The report of a program of one's own is on standard error.
        shown.append(answer.stdout + answer.stderr)
    if scripts:
        answer = subprocess.run(
            [sys.executable, "-W", "error", "-c", "\n".join(scripts)],
            cwd=work, env=shell, capture_output=True, text=True, timeout=600, check=False,
        )  # fmt: skip
        assert answer.returncode == 0, answer.stderr
        shown.append(answer.stdout)
    assert all(shown), "a step that shows nothing"
    if page.stem == "phases":
        (ipc, *_) = (
            design["intervals"]["values"]["ipc"]
            for design in json.loads((work / "phases.json").read_text())["designs"]
        )
        # At 2.6 M instructions it falls to about half, and it rises again.
        assert max(ipc[28:32]) < 0.6 * min(ipc[1:26])
        assert min(ipc[-4:]) > 2 * max(ipc[28:32])
    if page.stem == "first-hour":
        held(page.read_text(), [speedups(text) for text in shown if SPEEDUPS in text])
    assert not list(work.glob("*.partial"))


SPEEDUPS = "\nSpeedup over radix\n"


def speedups(report: str) -> dict[str, float]:
    """Each design's, by the bars of a comparison."""
    bars = report.split(SPEEDUPS)[1].split("\n\n", maxsplit=1)[0]
    return {
        name: float(n) for name, n in re.findall(r"^ +(\S+) +\S+ ([\d.]+)$", bars, re.MULTILINE)
    }


def held(text: str, comparisons: list[dict[str, float]]) -> None:
    """Checks a page's table against the results of its first two comparisons.

    One seed gives one answer. Compiler and emulator decide the layout of the recorded program. They
    change a number by a hundredth, beside rounding.
    """
    table = re.findall(r"^\| `(\w+)`[^|]* \| ([\d.]+) \| ([\d.]+) \|$", text, re.MULTILINE)
    assert [name for name, *_ in table] == ["thp", "ecpt"]
    for name, *printed in table:
        for number, found in zip(printed, comparisons[:2], strict=True):
            assert found[name] == pytest.approx(float(number), abs=0.015), name
    # The page's conclusions: thp keeps a sixth of its gain, and ecpt all of it.
    gains = [{name: speed - 1 for name, speed in found.items()} for found in comparisons[:2]]
    assert gains[1]["thp"] == pytest.approx(gains[0]["thp"] / 6, rel=0.2)
    assert gains[1]["ecpt"] == pytest.approx(gains[0]["ecpt"], rel=0.01)
    assert gains[0]["thp"] > 0.9 * gains[0]["perfect-tlb"]


def test_the_build_commands_of_the_first_hour_are_make_targets() -> None:
    """Cloning and building are not done again here."""
    ((_, text),) = steps(DOCS / "first-hour.md", "console")
    made = re.findall(r"^make (\w+)$", text, re.MULTILINE)
    assert made == ["demo"]
    for target in made:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


def test_the_build_commands_of_an_installation_are_make_targets() -> None:
    assert steps(INSTALL, "sh") == []
    text = "".join(block for _, block in steps(INSTALL, "console"))
    made = re.findall(r"^(make [\w-]+(?: URL=\S+)?)", text, re.MULTILINE)
    assert {command.split()[1] for command in made} == {"wheel", "clean-roots"}
    for command in made:
        shown = subprocess.run(
            [*command.split(), "-n"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        assert "release.py --wheel" in shown
        assert ("--url 'https://" in shown) == ("URL=" in command)


def test_every_how_to_page_is_on_the_site() -> None:
    site = (ROOT / "mkdocs.yml").read_text()
    for page in PAGES:
        assert f": {page.relative_to(DOCS)}" in site
