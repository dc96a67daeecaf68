"""A result as one HTML page: no font, no picture and no script from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pagewalk.measurements import histograms
from pagewalk.measurements.energy import GROUPS
from pagewalk.result import OF_MIXES
from pagewalk.view import charts, columns, distributions, svg, verdict
from pagewalk.view.markup import SCRIPT, about, breakable, escape, table, whole
from pagewalk.view.quantities import count, duration, joules, significant, size, with_unit
from pagewalk.view.report import elsewhere

if TYPE_CHECKING:
    from pagewalk.measurements.design import DesignResult
    from pagewalk.result import Result

Json = dict[str, Any]


def page(result: Result) -> str:
    """The whole page."""
    title = escape(f"{result.data['source']['name']} – Pagewalk")
    body = (
        f"{_heading(result)}{_verdict(result)}{_warnings(result)}{_tiles(result)}{_charts(result)}"
        f"{_summary(result)}{_details(result)}{_footer(result)}"
    )
    return whole(title, body, script=SCRIPT)


def fragment(result: Result) -> str:
    """The HTML of a result in a notebook."""
    drawn = charts.cycles(result)
    picture = "" if drawn is None else svg.on_paper(charts.svg(drawn), "Cycle stack")
    return (
        f"<div><b>{escape(result.data['source']['name'])}</b> "
        f"{escape('partial' if result.partial else '')}{_verdict(result)}{_warnings(result)}"
        f"{picture}{_table(result)}{_programs(result)}</div>"
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


def _verdict(result: Result) -> str:
    return "".join(f"<p class=verdict>{_prose(text)}</p>\n" for text in result.verdict)


def _prose(text: str) -> str:
    """Text for a page, in which a number and its percent sign stay on one line."""
    return escape(text).replace(" %", "&nbsp;%")


def _warnings(result: Result) -> str:
    if not result.warnings:
        return ""
    lines = "".join(f"<p>{escape(text)}</p>" for text in result.warnings)
    return f"<section class=warning>{lines}</section>\n"


def _tiles(result: Result) -> str:
    first = result.designs[0]
    # On several machines speedups refer to each machine's own first design.
    designs = verdict.real(result.designs)
    speeds = [(d.speedup_in_time if result.machines else d.speedup, d.name) for d in designs]
    named = [(speed, name) for speed, name in speeds if speed is not None]
    whose = f", {first.name}" if len(result.designs) > 1 else ""
    tiles = [
        (_number(first, "ipc"), f"instructions a cycle{whose}"),
        (_number(first, "l2_tlb_mpki"), f"L2 TLB misses a kilo-instruction{whose}"),
        (_number(first, "walk_cycles_mean"), f"cycles a walk, on average{whose}"),
    ]
    if len(named) > 1:
        best, name = max(named, key=lambda design: design[0])
        fastest = f"fastest: {name}"
        if all(speed == best for speed, _ in named):
            fastest = "all designs are equally fast"
        tiles.append((f"{best:.3f}×", fastest))
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
    several = len(result.designs) > 1
    parts = [
        ("speedup", "Speedup", _of_speedup(result), charts.speedups, ""),
        (
            "speedup-in-time",
            "Speedup in time",
            f"How many times as fast as {result.designs[0].name} in seconds, at each machine's "
            "own clock; longer is better.",
            _in_time,
            "",
        ),
        ("cycles", "Cycle stack", _of_cycles(result), charts.cycles, ""),
        (
            "l2-tlb-misses",
            "Misses of the L2 TLB",
            "Translations that the second-level TLB lacked, in a thousand instructions; "
            "shorter is better.",
            _of_number("l2_tlb_mpki", "misses a kilo-instruction") if several else _nothing,
            "",
        ),
        (
            "energy",
            "Energy",
            f"Energy {result.per}, by the part of the machine that took it"
            + ("; shorter is better." if several else "."),
            charts.energies,
            _energies(result),
        ),
        (
            "times",
            "Latencies",
            distributions.about_times(result),
            distributions.times,
            _times(result),
        ),
        (
            "ipc-over-time",
            "Instructions a cycle over time",
            "Instructions retired a cycle in each interval of the measured part; higher is better.",
            _over_time("ipc", "instructions a cycle"),
            "",
        ),
        (
            "l2-tlb-misses-over-time",
            "L2 TLB misses over time",
            "Misses of the second-level TLB in a thousand instructions, in each interval of the "
            "measured part; lower is better.",
            _over_time("l2_tlb_mpki", "misses a kilo-instruction"),
            "",
        ),
    ]
    return "".join(_chart(result, *part) for part in parts)


Drawing = Callable[["Result", charts.Look], "Json | None"]


def _in_time(result: Result, look: charts.Look) -> Json | None:
    return charts.speedups(result, look, in_time=True)


def _nothing(_result: Result, _look: charts.Look) -> Json | None:
    return None


def _of_number(name: str, title: str) -> Drawing:
    return lambda result, look: charts.bars(result, name, title, look)


def _over_time(name: str, title: str) -> Drawing:
    return lambda result, look: charts.interval_lines(result, name, title, look)


def _chart(
    result: Result, name: str, title: str, sentence: str, drawing: Drawing, numbers: str
) -> str:
    """A section with a chart for wide and for narrow windows, and numbers below it."""
    drawn = [drawing(result, look) for look in (charts.WIDE, charts.NARROW)]
    if drawn[0] is None and not numbers:
        return ""
    shown = "".join(
        svg.embedded(charts.svg(one), f"{title}. {sentence}", kind, f"{name}-{kind}")
        for one, kind in zip(drawn, ("wide", "narrow"), strict=True)
        if one is not None
    )
    figure = f"<figure data-name={name}>{shown}</figure>" if shown else ""
    return (
        f"<section><div class=head><h2>{escape(title)}</h2></div>"
        f"<p class=about>{_prose(sentence)}</p>{figure}{numbers}</section>\n"
    )


def _of_speedup(result: Result) -> str:
    first = result.designs[0]
    named = [(d.speedup, d.name) for d in result.designs[1:] if d.speedup is not None]
    if not named:
        return ""
    what = "requests" if result.speedup_by == "request" else "work"
    text = f"How many times as fast as {result.reference} each design does the same {what}; "
    if first.programs:
        text = f"Sum of the programs' speeds over that with {result.reference}; "
    text += "longer is better."
    built = [(d.speedup or 0, d.name) for d in verdict.real(result.designs)]
    # The first of equally fast ones, as everywhere.
    best, name = max(built or named, key=lambda design: design[0])
    if best > 1:
        # On several machines each is compared with its own.
        does = "gains most" if result.machines else "is the fastest"
        text += f" {name} {does}, {best:.3f} times as fast."
    return text


_TRANSLATION = ("tlb", "walker", "walk")


def _of_cycles(result: Result) -> str:
    text = f"Cycles {result.per}, by cause"
    text += "; shorter is better." if len(result.designs) > 1 else "."
    first = result.designs[0]
    walked = sum(s.share for s in first.cycle_stack if s.cause in _TRANSLATION)
    if walked:
        text += f" {walked * 100:.1f} % of {first.name}'s went to TLB lookups and page walks"
        if first.translation_cost is not None:
            text += f"; perfect TLBs would save {first.translation_cost * 100:.1f} %"
        text += "."
    return text


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share * 100:.1f} %"


_SHORT = 12
"""Most rows of a table that is not folded."""


def _times(result: Result) -> str:
    """One row a histogram and design: mean, percentiles and largest value."""
    rows: dict[str, list[list[str]]] = {}
    for design in result.designs:
        for h in histograms.reported(design.histograms):
            cells = [_shown(getattr(h, part)) for part in histograms.REPORTED[1:]]
            name = escape(f"{histograms.label(h)}, {h.unit}")
            rows.setdefault(name, []).append(
                [name, f"<td>{escape(design.name)}</td>", count(h.count), *cells]
            )
    listed = [row for of in rows.values() for row in of]
    if not listed:
        return ""
    titles = ("", "design", "number", "mean", "50 %", "90 %", "99 %", "largest")
    opened = " open" if len(listed) <= _SHORT else ""
    return (
        f"<details{opened}><summary>Mean, percentiles and largest value</summary>"
        f"{table(titles, listed, 'Latencies')}</details>"
    )


def _energies(result: Result) -> str:
    """One row a part of the machine, one column a design; sums of each kind first."""
    known = [(d, e) for d in result.designs if (e := d.energy) is not None]
    if not known:
        return ""

    def row(name: str, values: list[float | None], what: str) -> list[str]:
        cells = ["–" if v is None else escape(joules(v)) for v in values]
        return [about(name, what), *cells]

    head = ["", *(breakable(d.name) for d, _ in known)]
    body = [
        row("all", [e.total_nj for _, e in known], ""),
        row("dynamic", [e.dynamic_nj for _, e in known], "what accesses took"),
        row("static", [e.static_nj for _, e in known], "what leaked and ticked"),
    ]
    for group, name in GROUPS.items():
        if any(group in e.groups for _, e in known):
            body.append(row(name, [e.groups.get(group) for _, e in known], ""))
    # A walk cache of a level that the page table does not have takes no energy.
    parts = {p.part: p for _, e in known for p in e.parts if p.total_nj}
    rows = [
        row(
            name,
            [next((p.total_nj for p in e.parts if p.part == name), None) for _, e in known],
            part.source,
        )
        for name, part in parts.items()
    ]
    return (
        f"{table(head, body, 'Energy of the measured part')}"
        f"<details><summary>Part by part, with the keys of its numbers</summary>"
        f"{table(head, rows, 'Energy part by part')}</details>"
    )


def _table(result: Result) -> str:
    """One row a number, one column a design."""
    quantities = {q.name: q for d in result.designs for q in d.reported if q.value is not None}
    over = f"Over {result.reference}" if result.machines else "Over the first design"
    if result.speedup_by == "request":
        over += ", by requests: cycles a request are compared"
    elif result.speedup_kind:
        over += ", weighted: sums over the programs of their speed here over that alone"
    several = len(result.designs) > 1
    body = []
    if several:
        body.append([about("speedup", over), *(_ratio(d.speedup) for d in result.designs)])
    if any(d.speedup_in_time is not None for d in result.designs):
        meaning = f"In seconds, over {result.designs[0].name}"
        in_time = [_ratio(d.speedup_in_time) for d in result.designs]
        body.append([about("speedup_in_time", meaning), *in_time])
    if result.translation_reference is not None:
        meaning = (
            "Of the cycles, what perfect TLBs would save for the same instructions, "
            "without the kernel's time"
        )
        costs = [_percent(d.translation_cost) for d in result.designs]
        body.append([about("translation_cost", meaning), *costs])
    if several and any(d.energy_ratio is not None for d in result.designs):
        ratios = [_ratio(d.energy_ratio) for d in result.designs]
        meaning = f"Energy {result.per}, over the first design's"
        body.append([about("energy_ratio", meaning), *ratios])
    for name, quantity in quantities.items():
        cells = [escape(with_unit(d.get(name), quantity.unit)) for d in result.designs]
        body.append([about(name, quantity.meaning), *cells])
    head = ["", *(breakable(d.name) for d in result.designs)]
    return table(head, body, "Summary")


def _summary(result: Result) -> str:
    summary = (
        "<section><div class=head><h2>Summary</h2></div>"
        f"<p class=about>A row a number, a column a design.</p>{_table(result)}</section>\n"
    )
    if programs := _programs(result):
        summary += (
            f"<section><div class=head><h2>Programs of the mix</h2></div>{programs}</section>\n"
        )
    return summary


def _programs(result: Result) -> str:
    """A row for each program of a mix: alone, and in the mix with each design."""
    return "".join(_company(designs) for designs in result.on_each) + _met(result)


def _met(result: Result) -> str:
    """A row for each program and design: its statistics up to its own limit."""
    listed = columns.programs(result.designs)
    rows = [(d, p) for d in result.designs for p in d.programs]
    if not listed or not rows:
        return ""
    filled = [column.filled([p for _, p in rows]) for column in listed]
    head = ["", "design", *(escape(f.title).replace("\n", "<br>") for f in filled)]
    body = [
        [escape(p.name), escape(d.name), *(escape(f.cells[i]) for f in filled)]
        for i, (d, p) in enumerate(rows)
    ]
    return table(head, body, "Statistics of each program")


def _company(designs: list[DesignResult]) -> str:
    """One row a program of a mix, of the designs of one machine."""
    first = designs[0]
    if not first.programs:
        return ""
    head = ["", f"{breakable(first.name)}<br>IPC alone"]
    for design in designs:
        head += [f"{breakable(design.name)}<br>{what}" for what in ("IPC", "speedup")]
    body = []
    for number, program in enumerate(first.programs):
        cells = [escape(program.name), _shown(program.ipc_alone)]
        for design in designs:
            own = design.programs[number]
            cells += [_shown(own.ipc), _ratio(own.speedup)]
        body.append(cells)
    for name, title in OF_MIXES.items():
        if any(getattr(d, name) is not None for d in designs):
            sums = [cell for d in designs for cell in ("", _ratio(getattr(d, name)))]
            body.append([title, "", *sums])
    return table(head, body, "Programs of the mix")


def _shown(value: float | None) -> str:
    return "–" if value is None else significant(value)


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _details(result: Result) -> str:
    parts = [
        f"<details><summary>{escape(design.name)}: resolved configuration</summary>"
        f"<p>{escape(design.description)}</p>"
        f"<pre tabindex=0>{escape(json.dumps(design.config, indent=2))}</pre></details>"
        for design in result.designs
    ]
    return (
        "<section><div class=head><h2>Details</h2></div>"
        f"<details><summary>Every statistic</summary>{_statistics(result)}</details>"
        f"{''.join(parts)}</section>\n"
    )


def _statistics(result: Result) -> str:
    """One row a statistic, one column a design."""
    known = {(s.path, s.name): s for d in result.designs for s in d.statistics}
    values = [{(s.path, s.name): s.value for s in d.statistics} for d in result.designs]
    body = [
        [
            about(f"{s.path}.{s.name}", f"{s.meaning} ({s.unit})" if s.unit else s.meaning),
            *(f"{of[key]:,}" if key in of else "–" for of in values),
        ]
        for key, s in known.items()
    ]
    head = ["", *(breakable(d.name) for d in result.designs)]
    return table(head, body, "Every statistic")


def _footer(result: Result) -> str:
    host = result.data["host"]
    return (
        f"<footer>Pagewalk {escape(result.data['version'])}: simulated in "
        f"{duration(host['seconds'])}, "
        f"{count(round(host['simulated_instructions_per_second']))} instructions a second on "
        f"{host['threads']} host threads{elsewhere(host)}, "
        f"{size(host['peak_rss_bytes'])} of memory</footer>\n"
    )
