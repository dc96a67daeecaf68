"""Papers that tests make, and their reproduction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from invoking import Invoke
from pagewalk.reproduce import Run
from pagewalk.runs.plan import keys

PAPER = """\
title = "A paper"
source = "Nowhere 2026"
machine = "epyc-milan"
figures = ["sizes", "times"]
full = "full"

[scales.full]
about = "as in the paper"
instructions = "40K"
warmup = "0"

[scales.tiny]
about = "2 thousand instructions, the paper has 40 thousand"
instructions = "2K"
warmup = "0"

[designs.A]
design = "radix"

[designs.B]
design = "thp"
set = { "os.fragmentation" = "none" }

[applications.small]
workload = "gups"
size = "64KiB"

[applications.large]
workload = "gups"
size = "4MiB"

[applications.long]
workload = "gups"
size = "4GiB"
"""
"""A `paper.toml` of two figures."""


SIZES = """
from pagewalk.reproduce import Figure, Row

class Sizes(Figure):
    title = "Sizes"
    place = "figure 1"

    def runs(self, paper):
        return paper.cross(["small"], ["A", "B"]) | paper.cross(["large"], ["A"], timing=True)

    def rows(self, paper, results):
        return [
            Row(app, design, results(run).get("page_table_bytes"), failed=results(run).why)
            for (app, design), run in self.runs(paper).items()
        ]
"""


def made(place: Path, files: dict[str, str]) -> Path:
    """The folder of a paper, of these files."""
    folder = place / "paper"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def small_paper(place: Path, instructions: str = "2K") -> Path:
    """The folder of a paper of three runs, one of which takes so many instructions."""
    paper = PAPER.replace(', "times"', "").replace('"40K"', f'"{instructions}"')
    return made(place, {"paper.toml": paper, "sizes.py": SIZES})


def arguments(folder: Path, *more: str) -> list[str]:
    """Reproduces the paper into folders that lie beside its own."""
    out, cache = folder.parent / "out", folder.parent / "cache"
    return ["reproduce", str(folder), "--out", str(out), "--cache", str(cache), *more]


def reproduce(invoke: Invoke, folder: Path, *more: str) -> tuple[int, str, str]:
    """Status, output and error output of a reproduction."""
    return invoke(*arguments(folder, *more))


def results_of(folder: Path) -> dict[str, Any]:
    """The results of the last reproduction."""
    data: dict[str, Any] = json.loads((folder.parent / "out" / "results.json").read_text())
    return data


def key(run: Run, place: Path) -> str:
    """The key of a run in the cache; files for the engine are written into `place`."""
    found, wrong = keys([run], place)
    assert not wrong
    return found[run.identity]


def finished(folder: Path) -> list[Path]:
    """The finished runs that are kept."""
    return sorted((folder.parent / "cache").rglob("[!.]*.gz"))
