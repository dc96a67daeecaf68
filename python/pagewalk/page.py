"""A result as one HTML page: no script, no font and no picture from elsewhere."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

from pagewalk import charts, columns, histograms
from pagewalk.energy import GROUPS
from pagewalk.quantities import count, duration, joules, significant, size, with_unit
from pagewalk.visible import visible_lines

if TYPE_CHECKING:
    from pagewalk.result import DesignResult, Result

STYLE = """
:root { color-scheme: light; }
body { margin: 0; background: #f8f9fa; color: #212529;
  font: 15px/1.55 Inter, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 28px 24px 60px; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 12px; }
.facts { color: #868e96; margin: 0 0 22px; }
.tiles { display: flex; flex-wrap: wrap; gap: 14px; margin: 0 0 16px; }
.tile { background: #fff; border: 1px solid #e9ecef; border-radius: 10px;
  padding: 12px 18px; min-width: 130px; }
.tile b { display: block; font-size: 22px; letter-spacing: -0.01em; }
.tile span { color: #868e96; font-size: 13px; }
section { background: #fff; border: 1px solid #e9ecef; border-radius: 10px;
  padding: 18px 22px; margin: 0 0 16px; overflow-x: auto; }
section.warning { background: #fff9db; border-color: #ffe066; }
section.warning p { margin: 0; }
svg { max-width: 100%; height: auto; display: block; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; width: 100%; }
th { text-align: right; color: #868e96; font-weight: 500; font-size: 13px;
  border-bottom: 1px solid #dee2e6; padding: 4px 10px; vertical-align: bottom; }
td { text-align: right; padding: 5px 10px; border-bottom: 1px solid #f1f3f5; white-space: nowrap; }
th { white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td.text { text-align: left; white-space: normal; color: #868e96; }
th.text { text-align: left; }
details { margin: 6px 0; }
summary { cursor: pointer; font-weight: 500; }
pre { font: 12.5px/1.5 ui-monospace, "DejaVu Sans Mono", monospace; background: #f8f9fa;
  padding: 12px; border-radius: 8px; overflow-x: auto; }
footer { color: #868e96; font-size: 13px; }
"""


def escape(text: str) -> str:
    """Outside text as a page shows it: no markup, and no control characters."""
    return html.escape(visible_lines(text))


def page(result: Result) -> str:
    """The whole page."""
    title = escape(f"{result.data['source']['name']} – Pagewalk")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title><style>{STYLE}</style></head><body><main>\n"
        f"{_heading(result)}{_warnings(result)}{_tiles(result)}{_charts(result)}"
        f"{_summary(result)}{_details(result)}{_footer(result)}</main></body></html>\n"
    )


def fragment(result: Result) -> str:
    """What a notebook shows."""
    return (
        f"<div><b>{escape(result.data['source']['name'])}</b> "
        f"{escape('partial' if result.partial else '')}{_warnings(result)}"
        f"{charts.cycles(result) or ''}{_table(result)}{_programs(result)}</div>"
    )


def _heading(result: Result) -> str:
    data = result.data
    facts = result.facts
    if instructions := result.designs[0].get("instructions"):
        facts.append(f"measured {count(instructions)} instructions")
    if requests := result.designs[0].get("requests"):
        facts.append(f"{count(requests)} requests")
    if result.partial:
        facts.append(f"partial: {result.why_partial}")
    return (
        f"<h1>{escape(data['source']['name'])}</h1><p class=facts>{escape(' · '.join(facts))}</p>\n"
    )


def _warnings(result: Result) -> str:
    if not result.warnings:
        return ""
    lines = "".join(f"<p>{escape(text)}</p>" for text in result.warnings)
    return f"<section class=warning>{lines}</section>\n"


def _tiles(result: Result) -> str:
    first = result.designs[0]
    named = [(d.speedup, d.name) for d in result.designs if d.speedup is not None]
    tiles = [
        (significant(first["ipc"]) if first.get("ipc") is not None else None, "IPC"),
        (_number(first, "l2_tlb_mpki"), "L2 TLB misses a kilo-instruction"),
        (_number(first, "walk_cycles_mean"), "cycles a walk"),
    ]
    if len(named) > 1:
        best, name = max(named)
        tiles.append((f"{best:.2f}×", f"fastest: {name}"))
    shown = "".join(
        f"<div class=tile><b>{escape(value)}</b><span>{escape(label)}</span></div>"
        for value, label in tiles
        if value is not None
    )
    return f"<div class=tiles>{shown}</div>\n"


def _number(design: DesignResult, name: str) -> str | None:
    value = design.get(name)
    return None if value is None else significant(value)


def _charts(result: Result) -> str:
    drawn = [
        ("Speedup", charts.speedups(result)),
        ("Speedup in time", charts.speedups(result, in_time=True)),
        ("Where the cycles went", charts.cycles(result)),
        ("Where the energy went", f"{charts.energies(result) or ''}{_energies(result)}"),
        (
            "Misses of the L2 TLB",
            charts.bars(result, "l2_tlb_mpki", "misses a kilo-instruction"),
        ),
        ("How long it took", f"{_times(result)}{charts.times(result) or ''}"),
        (
            "Instructions a cycle over time",
            charts.interval_lines(result, "ipc", "instructions a cycle"),
        ),
        (
            "L2 TLB misses over time",
            charts.interval_lines(result, "l2_tlb_mpki", "misses a kilo-instruction"),
        ),
    ]
    return "".join(
        f"<section><h2>{escape(title)}</h2>{picture}</section>\n"
        for title, picture in drawn
        if picture
    )


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f} %"


def _times(result: Result) -> str:
    """One row a histogram and design: mean, percentiles and largest value."""
    rows: dict[str, str] = {}
    for design in result.designs:
        for h in histograms.told(design.histograms):
            cells = "".join(f"<td>{_shown(getattr(h, part))}</td>" for part in histograms.TOLD[1:])
            name = escape(histograms.label(h))
            rows[name] = rows.get(name, "") + (
                f"<tr><td>{name}</td><td>{escape(design.name)}</td>"
                f"<td>{count(h.count)}</td>{cells}<td class=text>{escape(h.unit)}</td></tr>"
            )
    body = "".join(rows.values())
    if not body:
        return ""
    titles = ("design", "number", "mean", "50 %", "90 %", "99 %", "largest")
    head = "".join(f"<th>{title}</th>" for title in titles)
    return (
        f"<table><thead><tr><th></th>{head}<th class=text></th></tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _energies(result: Result) -> str:
    """One row a part of the machine, one column a design; sums of each kind first."""
    known = [(d, e) for d in result.designs if (e := d.energy) is not None]
    if not known:
        return ""

    def row(name: str, values: list[float | None], what: str) -> str:
        cells = "".join(f"<td>{'–' if v is None else escape(joules(v))}</td>" for v in values)
        return f"<tr><td>{escape(name)}</td>{cells}<td class=text>{escape(what)}</td></tr>"

    head = "".join(f"<th>{escape(d.name)}</th>" for d, _ in known)
    body = row("all", [e.total_nj for _, e in known], "")
    body += row("dynamic", [e.dynamic_nj for _, e in known], "what accesses took")
    body += row("static", [e.static_nj for _, e in known], "what leaked and ticked")
    for group, name in GROUPS.items():
        if any(group in e.groups for _, e in known):
            body += row(name, [e.groups.get(group) for _, e in known], "")
    parts = {p.part: p for _, e in known for p in e.parts}
    rows = "".join(
        row(
            name,
            [next((p.total_nj for p in e.parts if p.part == name), None) for _, e in known],
            part.source,
        )
        for name, part in parts.items()
    )
    table = f"<table><thead><tr><th></th>{head}<th class=text></th></tr></thead><tbody>"
    return (
        f"{table}{body}</tbody></table>"
        f"<details><summary>Part by part, with the keys of its numbers</summary>"
        f"{table}{rows}</tbody></table></details>"
    )


def _table(result: Result) -> str:
    """One row a number, one column a design."""
    rows = {q.name: q for d in result.designs for q in d.told}
    head = "".join(f"<th>{escape(d.name)}</th>" for d in result.designs)
    speedups = "".join(f"<td>{_ratio(d.speedup)}</td>" for d in result.designs)
    over = f"Over {result.reference}" if result.machines else "Over the first design"
    if result.speedup_by == "request":
        over += ", by requests: cycles a request are compared"
    elif result.speedup_kind:
        over += ", weighted: sums over the programs of their speed here over that alone"
    body = f"<tr><td>speedup</td>{speedups}<td class=text>{over}</td></tr>"
    if result.machines:
        in_time = "".join(f"<td>{_ratio(d.speedup_in_time)}</td>" for d in result.designs)
        body += (
            f"<tr><td>speedup_in_time</td>{in_time}<td class=text>"
            f"In seconds, over {escape(result.designs[0].name)}</td></tr>"
        )
    if result.translation_reference is not None:
        costs = "".join(f"<td>{_percent(d.translation_cost)}</td>" for d in result.designs)
        body += (
            f"<tr><td>translation_cost</td>{costs}<td class=text>"
            "Of the cycles, what perfect TLBs would save for the same instructions</td></tr>"
        )
    if any(d.energy_ratio is not None for d in result.designs):
        ratios = "".join(f"<td>{_ratio(d.energy_ratio)}</td>" for d in result.designs)
        body += (
            f"<tr><td>energy_ratio</td>{ratios}<td class=text>Energy {result.per}, "
            "over the first design's</td></tr>"
        )
    for name, quantity in rows.items():
        cells = "".join(
            f"<td>{escape(with_unit(d.get(name), quantity.unit))}</td>" for d in result.designs
        )
        body += (
            f"<tr><td>{escape(name)}</td>{cells}<td class=text>{escape(quantity.meaning)}</td></tr>"
        )
    return (
        f"<table><thead><tr><th></th>{head}<th class=text></th></tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _summary(result: Result) -> str:
    summary = f"<section><h2>Summary</h2>{_table(result)}</section>\n"
    if programs := _programs(result):
        summary += f"<section><h2>Programs of the mix</h2>{programs}</section>\n"
    return summary


_OF_MIXES = {
    "weighted_speedup": "weighted speedup",
    "harmonic_speedup": "harmonic speedup",
    "antt": "ANTT",
}


def _programs(result: Result) -> str:
    """One row a program of a mix: alone, and in each design's company of the others."""
    machines: list[str | None] = [*result.machines] or [None]
    on_each = [[d for d in result.designs if d.machine == machine] for machine in machines]
    return "".join(_company(designs) for designs in on_each) + _met(result)


def _met(result: Result) -> str:
    """One row a program and design: what it met, up to what was asked of it."""
    listed = columns.programs(result.designs)
    rows = [(d, p) for d in result.designs for p in d.programs]
    if not listed or not rows:
        return ""
    filled = [column.filled([p for _, p in rows]) for column in listed]
    head = "".join(f"<th>{escape(f.title).replace(chr(10), '<br>')}</th>" for f in filled)
    body = "".join(
        f"<tr><td>{escape(p.name)}</td><td>{escape(d.name)}</td>"
        f"{''.join(f'<td>{escape(f.cells[i])}</td>' for f in filled)}</tr>"
        for i, (d, p) in enumerate(rows)
    )
    return (
        f"<table><thead><tr><th></th><th>design</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _company(designs: list[DesignResult]) -> str:
    """One row a program of a mix, of the designs of one machine."""
    first = designs[0]
    if not first.programs:
        return ""

    def row(*cells: str) -> str:
        return f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"

    head = "".join(
        f"<th>{escape(d.name)}<br>IPC</th><th>{escape(d.name)}<br>speedup</th>" for d in designs
    )
    body = ""
    for number, program in enumerate(first.programs):
        cells = [escape(program.name), _shown(program.ipc_alone)]
        for design in designs:
            own = design.programs[number]
            cells += [_shown(own.ipc), _ratio(own.speedup)]
        body += row(*cells)
    for name, title in _OF_MIXES.items():
        if any(getattr(d, name) is not None for d in designs):
            cells = [cell for d in designs for cell in ("", _ratio(getattr(d, name)))]
            body += row(title, "", *cells)
    return (
        f"<table><thead><tr><th></th><th>{escape(first.name)}<br>IPC alone</th>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def _shown(value: float | None) -> str:
    return "–" if value is None else significant(value)


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _details(result: Result) -> str:
    parts = []
    for design in result.designs:
        statistics = "".join(
            f"<tr><td>{escape(s.path)}.{escape(s.name)}</td><td>{s.value:,}</td>"
            f"<td class=text>{escape(s.unit)}</td><td class=text>{escape(s.meaning)}</td></tr>"
            for s in design.statistics
        )
        parts.append(
            f"<details><summary>{escape(design.name)}: resolved configuration</summary>"
            f"<p>{escape(design.description)}</p>"
            f"<pre>{escape(json.dumps(design.config, indent=2))}</pre></details>"
            f"<details><summary>{escape(design.name)}: every statistic</summary>"
            f"<table>{statistics}</table></details>"
        )
    return f"<section><h2>Details</h2>{''.join(parts)}</section>\n"


def _footer(result: Result) -> str:
    host = result.data["host"]
    return (
        f"<footer>Pagewalk {escape(result.data['version'])}: simulated in "
        f"{duration(host['seconds'])}, "
        f"{count(round(host['simulated_instructions_per_second']))} instructions a second on "
        f"{host['threads']} host threads, {size(host['peak_rss_bytes'])} of memory</footer>\n"
    )
