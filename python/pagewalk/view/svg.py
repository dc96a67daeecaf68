"""SVG charts as parts of a page, light and dark, and of notebooks."""

from __future__ import annotations

import html
import re

from pagewalk.view import palette
from pagewalk.view.escape import visible_lines

_COLOUR = re.compile(r'(fill|stroke)="(#[0-9a-f]{6}|white|black)"')
_NAMED = {"white": "#ffffff", "black": "#000000"}
_FONT = re.compile(r' font-family="[^"]*"')
# Removed from Vega's SVG: its labels for screen readers, which get a sentence and tables
# instead; invisible shapes; and attributes with default values.
_UNSAID = re.compile(
    r' (?:role|aria-[a-z]+|pointer-events)="[^"]*"| opacity="1"'
    r'|<path (?:class="(?:background|foreground)" )?(?:aria-hidden="true" )?d="[^"]*"'
    r'(?: pointer-events="none")?(?: display="none")?/>(?<=display="none"/>)'
)
_IDENTIFIER = re.compile(r'(id="|url\(#)([A-Za-z]+\d+)')
_WIDTH = re.compile(r'width="([0-9.]+)"')
_ENLARGED = {"wide": 1.1, "narrow": 1.4}
_VARIABLE = re.compile(r"var\(--c([0-9a-f]{6}),")


def embedded(svg: str, label: str, kind: str, name: str, *, least: float = 0) -> str:
    """An SVG chart as a part of a page with several charts.

    `label` describes the chart in words, `kind` is its CSS class, and `name` is unique on the
    page. The page may shrink it to the share `least` of its size, and enlarges it a little if
    there is room. Colours that `dark` replaces are variables of the style.
    """
    lean = _IDENTIFIER.sub(rf"\g<1>{name}-\g<2>", _lean(svg))
    drawn = _COLOUR.sub(_variable, lean)
    named = f'<svg role="img" aria-label="{html.escape(visible_lines(label))}"'
    if size := _WIDTH.search(svg):
        full = float(size[1])
        least_pixels = f"min-width:{least * full:.0f}px;" if least else ""
        named += f' style="{least_pixels}max-width:{_ENLARGED[kind] * full:.0f}px"'
    font = _FONT.search(svg)
    return drawn.replace('class="marks"', f'class="{kind}"{font[0] if font else ""}', 1).replace(
        "<svg", named, 1
    )


def on_paper(svg: str, label: str) -> str:
    """The chart for a notebook, with a background of its own: the notebook's may be any."""
    style = "background:#fff;max-width:100%;height:auto"
    named = f'<svg role="img" aria-label="{html.escape(visible_lines(label))}" style="{style}"'
    return _lean(svg, fonts=True).replace("<svg", named, 1)


def _lean(svg: str, *, fonts: bool = False) -> str:
    lean = _UNSAID.sub("", svg)
    return lean if fonts else _FONT.sub("", lean)


def _variable(found: re.Match[str]) -> str:
    colour = _NAMED.get(found[2], found[2])
    if colour not in palette.DARK:
        return found[0]
    return f'{found[1]}="var(--c{colour[1:]},{colour})"'


def dark(body: str) -> str:
    """The style that replaces the colours of the charts in `body` on a dark background."""
    used = sorted(set(_VARIABLE.findall(body)))
    if not used:
        return ""
    values = " ".join(f"--c{name}: {palette.DARK['#' + name]};" for name in used)
    return f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {values} }} }}\n"
