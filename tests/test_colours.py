"""Colours that differ: for everybody, in terminals of sixteen colours, and without any."""

from __future__ import annotations

import io
import itertools

import pytest
from rich.color import Color, ColorSystem
from rich.console import Console

import fake
from pagewalk.result import Result
from pagewalk.view import causes, colours
from pagewalk.view.report import compare
from sight import SIGHT, seen
from terminals import shown

CAUSES = list(causes.CAUSES)


def lab(colour: str, sight: str) -> tuple[float, float, float]:
    """CIE L*a*b* (D65) of a colour as it is seen."""
    r, g, b = (min(1.0, part) for part in seen(colour, sight))
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


@pytest.mark.parametrize("sight", SIGHT)
def test_causes_differ_for_everybody(sight: str) -> None:
    found = {
        cause: lab(colour, sight)
        for cause, colour in [(cause, ink[1]) for cause, ink in colours.inks(CAUSES, 256).items()]
    }
    for one, other in itertools.combinations(CAUSES, 2):
        pairs = zip(found[one], found[other], strict=True)
        distance = sum((a - b) ** 2 for a, b in pairs) ** 0.5
        # At 2 a difference is just visible; at 10 it is visible at a glance.
        assert distance > 10, (one, other, distance)


def test_causes_differ_in_a_terminal_of_256_colours() -> None:
    shades = [
        Color.parse(style).downgrade(ColorSystem.EIGHT_BIT).number
        for _, style in colours.inks(CAUSES, 256).values()
    ]
    assert len(set(shades)) == len(CAUSES)


@pytest.mark.parametrize("number", [0, 16])
def test_causes_differ_by_their_fill_where_colours_are_few(number: int) -> None:
    inks = colours.inks(CAUSES, number)
    assert len({fill for fill, _ in inks.values()}) == len(CAUSES)
    assert all(bool(style) == bool(number) for _, style in inks.values())
    if number:
        assert all(Color.parse(style).number in range(16) for _, style in inks.values())
        # Causes that are usually neighbours differ by their colour alone.
        usual = ("base", "compute", "l2", "l3", "dram", "tlb", "walk", "kernel", "branch")
        assert len({inks[cause][1] for cause in usual}) == len(usual)


def test_a_stack_of_the_report_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"designs": ["radix"], "seed": 1, "machine": "epyc-milan", "limits": {}}
    answer = fake.result(spec)
    stack = answer["designs"][0]["cycle_stack"]
    for share, cause in zip(stack, ("base", "walk", "dram", "branch", "kernel"), strict=True):
        share["cause"] = cause
    result = Result(answer)

    def fills(**terminal: str) -> set[str]:
        for name in ("COLORTERM", "NO_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in terminal.items():
            monkeypatch.setenv(name, value)
        out = io.StringIO()
        compare(result, Console(file=out, force_terminal=True, width=80))
        stacked = out.getvalue().split("Cycle stack")[1].split("base")[0]
        return set("█▓▒░▚▞▄▀▖▐▌▗▛▙▟▜▘") & set(stacked)

    assert fills(TERM="xterm-256color", COLORTERM="truecolor") == {"█"}
    assert fills(TERM="xterm-256color") == {"█"}
    for few in ({"TERM": "xterm"}, {"TERM": "xterm-256color", "NO_COLOR": "1"}):
        assert len(fills(**few)) >= 4, few


def test_no_color_has_none() -> None:
    command = ("-m", "pagewalk", "explain", "ipc")
    assert "36m" in shown(200, *command, raw=True)[1]
    assert "36m" not in shown(200, *command, raw=True, NO_COLOR="1")[1]
    assert "\x1b[1;31m" in shown(200, "-m", "pagewalk", "explain", "nothing", raw=True)[1]
    said = shown(200, "-m", "pagewalk", "explain", "nothing", raw=True, NO_COLOR="1")[1]
    assert "\x1b[" not in said
