"""Parts of HTML pages: style, script, tables, and the content security policy."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence

from pagewalk.view import svg
from pagewalk.view.escape import visible_lines

STYLE = """
:root { --bg: #f4f5f7; --panel: #ffffff; --ink: #212529; --faint: #5c636a; --line: #dee2e6;
  --soft: #f1f3f5; --warn: #fff9db; --warn-line: #ffe066; --link: #2f54d0; --good: #2b7a36;
  --bad: #c92a2a; }
@media screen and (prefers-color-scheme: dark) {
  :root { color-scheme: dark; --bg: #121417; --panel: #1b1e24; --ink: #e9ecef; --faint: #a9b1b9;
    --line: #343941; --soft: #262a31; --warn: #322b08; --warn-line: #66581a; --link: #91a7ff;
    --good: #69db7c; --bad: #ff8787; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink);
  font: 15px/1.55 system-ui, "Helvetica Neue", Arial, sans-serif; overflow-wrap: break-word; }
main { max-width: 960px; margin: 0 auto; padding: 28px 24px 60px; }
h1, h2, p, summary { overflow-wrap: anywhere; }
h1 { font-size: 26px; line-height: 1.25; margin: 0 0 6px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 0; }
h3 { font-size: 15px; margin: 18px 0 4px; }
a { color: var(--link); text-decoration: none; }
a:hover { text-decoration: underline; }
.facts { color: var(--faint); margin: 0 0 22px; }
.verdict { font-size: 1.08em; max-width: 60em; margin: 0 0 6px; }
.verdict + :not(.verdict) { margin-top: 18px; }
.tiles { display: flex; flex-wrap: wrap; gap: 12px; margin: 0 0 16px; padding: 0; }
.tile { background: var(--panel); border: 1px solid var(--line); border-radius: 10px;
  padding: 10px 16px; min-width: 160px; flex: 1 1 0; overflow-wrap: anywhere; }
.tile b { display: block; font-size: 22px; letter-spacing: -0.01em; }
.tile span, small { color: var(--faint); font-size: 13px; }
section { background: var(--panel); border: 1px solid var(--line); border-radius: 10px;
  padding: 18px 22px; margin: 0 0 16px; }
section.warning { background: var(--warn); border-color: var(--warn-line); }
section.warning p { margin: 0; }
.head { display: flex; flex-wrap: wrap; gap: 4px 12px; align-items: baseline; }
.save { margin-left: auto; font-size: 13px; }
.save button { font: inherit; color: var(--link); background: none; border: 1px solid var(--line);
  border-radius: 6px; padding: 1px 8px; margin-left: 6px; cursor: pointer; }
p.about { color: var(--faint); max-width: 84ch; margin: 4px 0 14px; }
figure { margin: 0; }
svg { display: block; width: 100%; height: auto; }
svg.narrow { display: none; }
.scroll { overflow-x: auto; margin: 4px 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px;
  min-width: 100%; }
caption { text-align: left; color: var(--faint); font-size: 13px; padding: 0 0 4px; }
th, td { padding: 5px 10px; text-align: right; border-bottom: 1px solid var(--line);
  vertical-align: top; }
td { white-space: nowrap; }
thead th { color: var(--faint); font-weight: 500; font-size: 13px; vertical-align: bottom;
  min-width: 6em; max-width: 16em; }
tbody th { font-weight: 400; text-align: left; min-width: 9em; max-width: min(44ch, 42vw); }
tr > :first-child { text-align: left; padding-left: 0; position: sticky; left: 0;
  background: var(--panel); }
th small, td small { display: block; line-height: 1.3; }
tbody th:has(small) { min-width: min(26em, 42vw); }
td.text { text-align: left; white-space: normal; color: var(--faint); min-width: 12em; }
th.text { text-align: left; }
details { margin: 6px 0; }
summary { cursor: pointer; font-weight: 500; }
pre { font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; background: var(--soft);
  padding: 12px; border-radius: 8px; overflow-x: auto; overflow-wrap: normal; }
footer { color: var(--faint); font-size: 13px; }
@media (max-width: 700px) {
  main { padding: 16px 10px 40px; }
  section { padding: 14px 12px; }
  h1 { font-size: 22px; }
  .tiles { gap: 8px; }
  .tile { flex-basis: 40%; min-width: 120px; padding: 8px 12px; }
  svg.narrow { display: block; }
  svg.wide:has(+ svg.narrow) { display: none; }
  th, td { padding: 5px 7px; }
  th small { display: -webkit-box; -webkit-box-orient: vertical; -webkit-line-clamp: 4;
    overflow: hidden; }
}
@media print {
  body { background: none; font-size: 10pt; }
  main { max-width: none; padding: 0; }
  section, .tile { border-color: var(--line); break-inside: avoid; }
  .save { display: none; }
  .scroll { overflow: visible; }
  section:has(table) { break-inside: auto; }
  tr { break-inside: avoid; }
  svg.wide, svg.wide:has(+ svg.narrow) { display: block; }
  svg.narrow { display: none; }
}
"""
"""Looks the same for one design and for thirty, on paper and on a telephone."""

SCRIPT = r"""
for (const figure of document.querySelectorAll("figure[data-name]")) {
  const place = document.createElement("span");
  place.className = "save";
  for (const kind of ["SVG", "PNG"]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = kind;
    button.setAttribute("aria-label", "Save the chart as " + kind);
    button.onclick = () => save(figure, kind);
    place.append(button);
  }
  figure.parentElement.querySelector(".head").append(place);
}
function light(figure) {
  const svg = figure.querySelector("svg").cloneNode(true);
  const paper = document.createElementNS(svg.namespaceURI, "rect");
  for (const [key, value] of [["width", "100%"], ["height", "100%"], ["fill", "#ffffff"]])
    paper.setAttribute(key, value);
  svg.prepend(paper);
  const text = new XMLSerializer().serializeToString(svg);
  return text.replace(/var\(--[^,()]+,([^()]+)\)/g, "$1");
}
function save(figure, kind) {
  const svg = new Blob([light(figure)], {type: "image/svg+xml"});
  const name = "pagewalk-" + figure.dataset.name + "." + kind.toLowerCase();
  if (kind === "SVG") return keep(svg, name);
  const picture = new Image(), box = figure.querySelector("svg").viewBox.baseVal;
  picture.onload = () => {
    const canvas = document.createElement("canvas");
    canvas.width = 3 * box.width;
    canvas.height = 3 * box.height;
    canvas.getContext("2d").drawImage(picture, 0, 0, canvas.width, canvas.height);
    canvas.toBlob(blob => keep(blob, name));
  };
  picture.src = URL.createObjectURL(svg);
}
function keep(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
}
"""
"""The buttons that save a chart; all else works without."""


def escape(text: str) -> str:
    """Text from outside, escaped for a page, without control characters."""
    return html.escape(visible_lines(text))


def whole(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """A complete page. Its policy forbids all requests, and all scripts but this one."""
    # The policy holds in the browser even if a text was not escaped.
    run = f" script-src 'sha256-{_digest(script)}';" if script else ""
    policy = f"default-src 'none'; style-src 'unsafe-inline'; img-src blob:;{run}"
    behind = f"<script>{script}</script>" if script else ""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}{style}{svg.dark(body)}</style></head>"
        f"<body><main>\n{body}</main>{behind}</body></html>\n"
    )


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


_BREAKS = re.compile(r"(?<=[\[\],.=_/])(?=\w)")


def breakable(text: str) -> str:
    """The name of a column, which may be broken after punctuation."""
    return "<wbr>".join(escape(part) for part in _BREAKS.split(text))


def table(
    head: Sequence[str], rows: Sequence[str | Sequence[str]], caption: str, kind: str = ""
) -> str:
    """A table in a box of its own, which scrolls if the table is too wide.

    Cells are markup. A cell that begins with ``<td`` is used as it is, and so is a row that is a
    text (`line`). The first cell of each row is its heading.
    """
    heads = "".join(h if h.startswith("<th") else f"<th scope=col>{h}</th>" for h in head[1:])
    body = "".join(row if isinstance(row, str) else line(row) for row in rows)
    # An empty corner is a plain cell: it heads nothing.
    corner = f"<th scope=col>{head[0]}</th>" if head[0] else "<td></td>"
    return (
        f'<div class=scroll tabindex=0 role=region aria-label="{caption}">'
        f"<table{kind}><thead><tr>{corner}{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def line(cells: Sequence[str], kind: str = "") -> str:
    """A row of a table; its first cell is its heading."""
    rest = "".join(c if c.startswith("<td") else f"<td>{c}</td>" for c in cells[1:])
    return f"<tr{kind}><th scope=row>{cells[0]}</th>{rest}</tr>"


def about(name: str, meaning: str) -> str:
    """A name with its meaning below."""
    return f"{escape(name)}<small>{escape(meaning)}</small>" if meaning else escape(name)
