"""Results in the terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, chop_cells
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pagewalk import colours, histograms, native
from pagewalk.energy import GROUPS
from pagewalk.quantities import count, duration, joules, significant, size, with_unit
from pagewalk.terminal import Settings, grid, label, line, names, numbers, words
from pagewalk.visible import visible

if TYPE_CHECKING:
    from pagewalk.result import DesignResult, Result, Share

Json = dict[str, Any]

_FILLS = "█▓▒░▚▞▄▀▌▐▙▟▛▜"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL = 22
_MINIMUM_SHARE = 0.002
_PROSE = 30
"""Columns below which what a number means stands under it, not beside it."""


def heading(result: Result) -> RenderableType:
    """What was simulated, in a few lines."""
    data = result.data
    lines = [
        line((f"pagewalk {data['version']}", "dim"), "  ", (data["source"]["name"], "bold")),
        line(" · ".join(result.facts), style="dim"),
    ]
    if result.partial:
        lines.append(line(f"partial: {result.why_partial}", style="bold yellow"))
    return Group(*lines)


def notes(result: Result) -> list[RenderableType]:
    """What a reader has to know before using the numbers."""
    return [line(("warning: ", "bold yellow"), warning) for warning in result.warnings]


def flattened(config: Json, path: str = "") -> dict[str, Any]:
    """A configuration as dotted keys; a table without keys stands for itself."""
    flat: dict[str, Any] = {}
    for key, value in config.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, dict) and value:
            flat.update(flattened(value, here))
        else:
            flat[here] = {} if isinstance(value, dict) else value
    return flat


def settings(flat: dict[str, Any]) -> str:
    """Dotted keys with values on one line; a key that only is there needs no value."""
    return ", ".join(
        key if value == {} else f"{key}={_value(value)}" for key, value in flat.items()
    )


def _value(value: object) -> str:
    if isinstance(value, list):
        return "+".join(_value(v) for v in value)
    return value if isinstance(value, str) else json.dumps(value)


_COMPOSED = ("placement", "page_table", "engine", "in_memory_tlb", "shortcut")
_OWN = (*_COMPOSED, "virtual")


def _kind(key: str) -> str:
    """The kind of a part that a key is of: `page_table.radix`, `mmu.prefetcher.next_page`."""
    names = key.split(".")
    if names[0] == "mmu":
        chosen = (
            2 if names[1] == "prefetcher" else 4 if names[3:4] == ["replacement"] else len(names)
        )
        return ".".join(names[: chosen + 1]) if len(names) > chosen else ""
    first = names.index("virtual") + 1 if names[0] == "virtual" else 0
    found = names[first : first + 1]
    return ".".join(names[: first + 2]) if found and found[0] in _COMPOSED else ""


def _made_of(flat: dict[str, Any], usual: dict[str, Any], beside: dict[str, Any]) -> str:
    """What a design is made of, as far as it is not as usual, or not as `beside`."""
    shown = {k: v for k, v in flat.items() if v != (beside if k in beside else usual).get(k)}
    known = {_kind(key) for key in beside}
    kinds: dict[str, Any] = {
        kind: {}
        for kind in dict.fromkeys(map(_kind, flat))
        if kind and kind not in known and not any(f"{k}.".startswith(f"{kind}.") for k in shown)
    }
    return settings({**kinds, **shown})


def resolved(result: Result) -> Table:
    """What each design is: the first by what it is made of, the others by what is different.

    What is as it is when a file says nothing is left out.
    """
    first, *others = result.designs
    base = flattened(first.config)
    usual = {key["path"]: key.get("default") for key in native.config_keys()}
    own = {k: v for k, v in base.items() if k.split(".")[0] in _OWN}
    rows = [(first.name, _made_of(own, usual, {}))]
    for design in others:
        different = _made_of(flattened(design.config), usual, base)
        rows.append((design.name, different or f"as {first.name}"))
    table = grid()
    names(table, "cyan")
    words(table, "dim")
    for name, text in rows:
        table.add_row(name, Settings(text))
    return table


def footer(result: Result) -> RenderableType:
    """How fast the host was."""
    host = result.data["host"]
    return line(
        f"simulated in {duration(host['seconds'])} on {host['threads']} host thread"
        f"{'' if host['threads'] == 1 else 's'}: "
        f"{count(round(host['simulated_instructions_per_second']))} instructions/s, "
        f"{size(host['peak_rss_bytes'])} of host memory",
        style="dim",
    )


def bar(fraction: float, width: int) -> str:
    """A bar of `fraction` of `width` cells, exact to an eighth of a cell."""
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def run(result: Result, out: Console) -> None:
    """One design: everything of its summary and where its cycles went."""
    design = result.designs[0]
    out.print(heading(result))
    out.print(line((design.name, "bold cyan"), "  ", design.description))
    _print_design(design, out)
    out.print()
    _print_quantities(design, out)
    if design.sampling:
        s = design.sampling
        high = "any number" if s.ipc_high is None else significant(s.ipc_high)
        sampled = (
            f"sampled IPC {significant(s.ipc)}, with {s.confidence * 100:.0f} % confidence "
            f"between {significant(s.ipc_low)} and {high} ({s.samples} samples)"
        )
        out.print()
        out.print(Padding(line(sampled), (0, 0, 0, 2)))
    _print_histograms(design, out)
    _print_programs(result, out)
    _print_costs(result, out)
    _print_title("Where the cycles went", out)
    _print_stack(design, out)
    _print_energy(design, out)
    _print_end(result, out)


def compare(result: Result, out: Console) -> None:
    """Many designs: a table, speedups and cycles side by side."""
    out.print(heading(result))
    out.print(Padding(resolved(result), (0, 0, 0, 2), expand=False))
    out.print()
    columns = [
        ("ipc", "IPC", significant),
        ("requests", "requests", count),
        ("cycles_per_request", "cycles\na request", significant),
        ("l1d_tlb_mpki", "L1 TLB\nMPKI", significant),
        ("l2_tlb_mpki", "L2 TLB\nMPKI", significant),
        ("walks", "walks", count),
        ("walk_cycles_mean", "cycles\na walk", significant),
        ("walk_reads_per_walk", "reads\na walk", significant),
        ("page_faults", "page\nfaults", count),
        ("page_table_bytes", "page\ntables", size),
        ("largest_contiguous_bytes", "largest\nblock", size),
    ]
    shown = [c for c in columns if any(d.get(c[0]) is not None for d in result.designs)]
    cells: list[list[Any]] = [[_title(d) for d in result.designs]]
    cells.append([_ratio(d.speedup) for d in result.designs])
    kind = result.speedup_kind
    speedup = f"speedup,\n{kind}" if kind else "speedup"
    titles = ["design", speedup, *(title for _, title, _ in shown)]
    cells += [[_cell(d.get(name), write) for d in result.designs] for name, _, write in shown]
    _print_blocks(titles, cells, out)
    _print_times(result, out)
    _print_programs(result, out)
    _print_costs(result, out)
    _print_speedups(result, out)
    _print_stacks(result, out)
    _print_energies(result, out)
    _print_end(result, out)


def _title(design: DesignResult) -> Text:
    name = line(design.name, style="cyan")
    if not design.complete:
        name += line(f" ({design.status.replace('_', ' ')})", style="yellow")
    return name


def _cell(value: float | None, write: Callable[[float], str]) -> str:
    return "–" if value is None else write(value)


def _print_title(title: str, out: Console) -> None:
    out.print()
    out.print(line(title, style="bold"))


def _print_quantities(design: DesignResult, out: Console) -> None:
    """A line a number; what it means beside it, or below it where that is too narrow."""
    rows = [(q.name, with_unit(q.value, q.unit), q.meaning) for q in design.told]
    name_width, number_width = (max((cell_len(r[i]) for r in rows), default=0) for i in (0, 1))
    if out.width - 2 - name_width - 2 - number_width - 2 >= _PROSE:
        table = grid()
        names(table)
        numbers(table, style="bold")
        words(table, "dim")
        for row in rows:
            table.add_row(*row)
        out.print(Padding(table, (0, 0, 0, 2), expand=False))
        return
    name_width = max(1, min(name_width, out.width - 2 - 2 - number_width))
    for name, number, meaning in rows:
        head = label(name, name_width) + line("  ", (number.rjust(number_width), "bold"))
        out.print(Padding(head, (0, 0, 0, 2)))
        out.print(Padding(line(meaning, style="dim"), (0, 0, 0, 6)))


def _print_blocks(titles: list[str], columns: list[list[Any]], out: Console) -> None:
    """A table of names and numbers; in several blocks, each with the names, if it is wide."""
    names_title, *titles = titles
    rows, *columns = columns
    room = out.width - 2
    widths = [
        max(cell_len(text) for text in [*title.split("\n"), *cells])
        for title, cells in zip(titles, columns, strict=True)
    ]
    widest = max(cell_len(names_title), *(name.cell_len for name in rows))
    # A name may be long as a file's name; it is folded to leave the numbers room.
    for_names = min(widest, max(room // 3, room - sum(2 + width for width in widths)))
    blocks = _blocks(widths, room - for_names)
    # No block is left with a single column where the ones before it are full.
    narrower = room - for_names
    while narrower > max(widths) and len(tighter := _blocks(widths, narrower)) == len(blocks):
        blocks, narrower = tighter, narrower - 1
    for number, block in enumerate(blocks):
        if number:
            out.print()
        table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
        table.add_column(names_title, vertical="bottom", overflow="fold", width=for_names)
        for i in block:
            numbers(table, titles[i])
        for row, name in enumerate(rows):
            table.add_row(name, *(columns[i][row] for i in block))
        out.print(Padding(table, (0, 0, 0, 2), expand=False))


def _blocks(widths: list[int], room: int) -> list[list[int]]:
    """The columns that stand together in each block of at most `room` cells."""
    blocks: list[list[int]] = [[]]
    used = 0
    for i, width in enumerate(widths):
        if blocks[-1] and used + 2 + width > room:
            blocks.append([])
            used = 0
        blocks[-1].append(i)
        used += 2 + width
    return blocks


def _print_histograms(design: DesignResult, out: Console) -> None:
    """A line a histogram: mean, percentiles and largest value."""
    shown = histograms.told(design.histograms)
    if not shown:
        return
    units = dict.fromkeys(h.unit for h in shown)
    _print_title(f"How long it took ({', '.join(units)})", out)
    cells: list[list[Any]] = [[line(histograms.label(h), style="cyan") for h in shown]]
    cells.append([count(h.count) for h in shown])
    for part in histograms.TOLD[1:]:
        cells.append([_cell(getattr(h, part), significant) for h in shown])
    _print_blocks(["", *_PARTS.values()], cells, out)


def _print_times(result: Result, out: Console) -> None:
    """A row a design: median, 99th percentile and largest value of each histogram."""
    shown = {d.name: histograms.told(d.histograms) for d in result.designs}
    labels = dict.fromkeys(histograms.label(h) for listed in shown.values() for h in listed)
    if not labels:
        return
    _print_title("How long it took (cycles)", out)
    titles = ["design"]
    cells: list[list[Any]] = [[line(name, style="cyan") for name in shown]]
    for name in labels:
        own = [next((h for h in hs if histograms.label(h) == name), None) for hs in shown.values()]
        for part in ("p50", "p99", "largest"):
            titles.append(f"{visible(name)}\n{_PARTS[part]}")
            cells.append([_cell(None if h is None else getattr(h, part), significant) for h in own])
    _print_blocks(titles, cells, out)


_PARTS = {
    "count": "number",
    "mean": "mean",
    "p50": "50 %",
    "p90": "90 %",
    "p99": "99 %",
    "largest": "largest",
}
"""Titles of what a histogram is told by."""
_HEAD = 16
"""Columns of a design's name above its numbers; a longer one takes several lines."""
_WEIGHTED = "weighted speedup"


def _print_programs(result: Result, out: Console) -> None:
    """The programs of a mix, a row each: alone, and in each design's company of the others."""
    if not result.designs[0].programs:
        return
    first = result.designs[0]
    several = len(result.designs) > 1
    heads = [chop_cells(visible(d.name), _HEAD) if several else [] for d in result.designs]
    height = max(1, *(len(head) for head in heads))
    titles = ["program", "\n" * (height - 1) + "IPC\nalone"]
    cells: list[list[Any]] = [
        [line(name, style="cyan") for name in (*(p.name for p in first.programs), _WEIGHTED)],
        [*(_cell(p.ipc_alone, significant) for p in first.programs), ""],
    ]
    for design, head in zip(result.designs, heads, strict=True):
        over = "\n" * (height - len(head)) + "".join(f"{part}\n" for part in head)
        # The speed of one design is told by what its programs lose to each other.
        speeds = [p.speedup if several else _share(p.ipc, p.ipc_alone) for p in design.programs]
        titles += [f"{over}IPC", f"{over}{'speedup' if several else 'of alone'}"]
        cells.append([*(_cell(p.ipc, significant) for p in design.programs), ""])
        cells.append([_ratio(speed) for speed in (*speeds, design.weighted_speedup)])
    _print_title(f"Programs of the mix (alone: on {first.name})", out)
    _print_blocks(titles, cells, out)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _print_design(design: DesignResult, out: Console) -> None:
    table = grid()
    names(table)
    words(table, "dim")
    for key in (*_OWN, "mmu"):
        if table_of := design.config.get(key):
            for path, values in _tables(key, table_of):
                table.add_row(path, Settings(settings(values)))
    out.print(Padding(table, (0, 0, 0, 2), expand=False))


def _tables(path: str, config: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each table of a configuration with its own values."""
    own = {k: v for k, v in config.items() if not isinstance(v, dict)}
    inner = {k: v for k, v in config.items() if isinstance(v, dict)}
    if own or not inner:
        yield path, own
    for key, value in inner.items():
        yield from _tables(f"{path}.{key}", value)


def _ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _print_end(result: Result, out: Console) -> None:
    out.print()
    for note in notes(result):
        out.print(note)
    out.print(footer(result))


def costs(result: Result) -> list[tuple[str, str]]:
    """What translation costs each design, in words; empty where it was not asked for."""
    if result.translation_reference is None:
        return []
    return [(d.name, _cost(d)) for d in result.designs]


def _cost(design: DesignResult) -> str:
    cost = design.translation_cost
    if cost is None:
        return "cannot be compared: its program does other work"
    sampled = ", from samples" if design.sampling else ""
    if cost < 0:
        return f"translation costs nothing: perfect TLBs need {-cost * 100:.1f} % more{sampled}"
    return f"translation costs {cost * 100:.1f} % of the cycles{sampled}"


def _print_costs(result: Result, out: Console) -> None:
    rows = costs(result)
    if not rows:
        return
    _print_title("Against perfect TLBs on the same instructions", out)
    for name, words_of_it in rows:
        out.print(line("  ") + label(name, _LABEL, "cyan") + line(words_of_it))


def _print_speedups(result: Result, out: Console) -> None:
    known = [(d, d.speedup) for d in result.designs if d.speedup is not None]
    if not known:
        return
    most = max(speedup for _, speedup in known)
    width = max(10, min(60, out.width - _LABEL - 12))
    kind = f", {result.speedup_kind}" if result.speedup_kind else ""
    _print_title(f"Speedup over {result.designs[0].name}{kind}", out)
    for design, speedup in known:
        style = "green" if speedup > 1.0005 else "red" if speedup < 0.9995 else "bright_black"
        out.print(
            line("  ")
            + label(design.name, _LABEL, "cyan")
            + line((bar(speedup / most, width), style), f" {speedup:.3f}")
        )


def _print_stack(design: DesignResult, out: Console) -> None:
    width = max(10, min(50, out.width - _LABEL - 22))
    most = max((s.share for s in design.cycle_stack), default=1.0) or 1.0
    style = colours.causes([s.cause for s in design.cycle_stack])
    for share in design.cycle_stack:
        if share.share < _MINIMUM_SHARE:
            continue
        out.print(
            line("  ")
            + label(colours.words(share.cause), _LABEL)
            + line((bar(share.share / most, width), style[share.cause]), _percent(share))
        )


def _percent(share: Share) -> str:
    return f" {share.share * 100:.1f} %"


def _print_stacks(result: Result, out: Console) -> None:
    """A stacked bar a design, its length the cycles an instruction, or a request."""
    known = [(d, c) for d in result.designs if d.cycle_stack and (c := d.cost)]
    if not known:
        return
    most = max(cycles for _, cycles in known)
    width = max(10, min(60, out.width - _LABEL - 12))
    causes = dict.fromkeys(
        s.cause for d, _ in known for s in d.cycle_stack if s.share >= _MINIMUM_SHARE
    )
    # Without colours, fills tell the causes apart: one for each that there is.
    fills = _FILLS if out.color_system is None else "█"
    ink = {
        cause: (fills[i % len(fills)], style)
        for i, (cause, style) in enumerate(colours.causes(list(causes)).items())
    }
    _print_title(f"Where the cycles went (cycles {result.per})", out)
    for design, cycles in known:
        row = line("  ") + label(design.name, _LABEL, "cyan")
        _stacked(row, design.cycle_stack, ink, width * cycles / most)
        out.print(row + line(f" {significant(cycles)}"))
    legend = line("  ")
    for cause, (fill, style) in ink.items():
        entry = line((f"{fill} ", style), colours.words(cause), "   ")
        if legend.cell_len + entry.cell_len - 3 > out.width:
            out.print(legend)
            legend = line("  ")
        legend += entry
    legend.rstrip()
    out.print(legend)


_WIDE = 80
"""Columns from which on a part's dynamic and static energy stand beside its bar."""
_MINIMUM_ENERGY = 0.001
"""Share of the whole below which a part of the machine has no line of its own."""


def _print_energy(design: DesignResult, out: Console) -> None:
    """A bar a part of the machine, the largest first, with its dynamic and static energy."""
    energy = design.energy
    if energy is None or not energy.total_nj:
        return
    _print_title(f"Where the energy went ({joules(energy.total_nj)})", out)
    parts = sorted(energy.parts, key=lambda p: -p.total_nj)
    shown = [p for p in parts if p.total_nj >= _MINIMUM_ENERGY * energy.total_nj]
    wide = out.width >= _WIDE
    width = max(10, min(30, out.width - _LABEL - (44 if wide else 12)))
    for p in shown:
        share, most = p.total_nj / energy.total_nj, shown[0].total_nj
        text = f" {share * 100:.1f} %"
        if wide:
            text = f"{text:8} dynamic {joules(p.dynamic_nj)}, static {joules(p.static_nj)}"
        filled = bar(p.total_nj / most, width)
        out.print(
            line("  ")
            + label(p.part, _LABEL)
            + line((filled, colours.ENERGY.get(p.group, "")), text)
        )
    if rest := [p for p in parts if p.total_nj and p not in shown]:
        total = joules(sum(p.total_nj for p in rest))
        out.print(line(f"  {len(rest)} smaller parts together: {total}", style="dim"))


def _print_energies(result: Result, out: Console) -> None:
    """A row a design: energy, relative to the first, and what kinds of parts took."""
    known = [(d, e) for d in result.designs if (e := d.energy) is not None]
    if not known:
        return
    groups = [g for g in GROUPS if any(g in e.groups for _, e in known)]
    _print_title(f"Where the energy went (ratio: {result.per})", out)
    cells: list[list[Any]] = [[line(d.name, style="cyan") for d, _ in known]]
    cells.append([joules(e.total_nj) for _, e in known])
    cells.append([_ratio(d.energy_ratio) for d, _ in known])
    cells.append([joules(e.dynamic_nj) for _, e in known])
    cells.append([joules(e.static_nj) for _, e in known])
    for group in groups:
        cells.append([joules(e.groups[group]) if group in e.groups else "–" for _, e in known])
    titles = ["design", "energy", "over the\nfirst", "dynamic", "static"]
    _print_blocks([*titles, *(GROUPS[g].replace(" ", "\n") for g in groups)], cells, out)


def _stacked(row: Text, stack: list[Share], ink: dict[str, tuple[str, str]], width: float) -> None:
    """Appends cells; rounding is carried along, so that the whole has its length."""
    upto, drawn = 0.0, 0
    for share in stack:
        upto += share.share * width
        cells = round(upto) - drawn
        if cells > 0 and share.cause in ink:
            fill, style = ink[share.cause]
            row.append(fill * cells, style=style)
            drawn += cells
