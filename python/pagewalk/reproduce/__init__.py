"""Reproducing a paper's evaluation: its runs, its figures, its numbers beside ours.

A paper is a folder with `paper.toml` (machine, designs, applications, scales)
and a Python file a figure, each with one subclass of `Figure`.
"""

from __future__ import annotations

from pagewalk.reproduce.application import Application
from pagewalk.reproduce.figure import Bars, Figure, Lines, Panel, Row
from pagewalk.reproduce.means import Means, geometric, mean
from pagewalk.reproduce.paper import Paper
from pagewalk.runs.cache import Outcome
from pagewalk.runs.plan import Design, Program, Run, Runs

__all__ = [
    "Application",
    "Bars",
    "Design",
    "Figure",
    "Lines",
    "Means",
    "Outcome",
    "Panel",
    "Paper",
    "Program",
    "Row",
    "Run",
    "Runs",
    "geometric",
    "mean",
]
