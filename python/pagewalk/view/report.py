"""Results in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len, chop_cells
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from pagewalk.errors import as_flag
from pagewalk.measurements import histograms
from pagewalk.result import OF_MIXES
from pagewalk.view import causes, colours, columns, design_settings, verdict
from pagewalk.view.columns import Column, Filled
from pagewalk.view.escape import visible
from pagewalk.view.quantities import count, duration, joules, significant, size, with_unit
from pagewalk.view.short_names import shortened
from pagewalk.view.table_layout import print_columns, print_flow, print_pairs, print_table
from pagewalk.view.terminal import colours_of, grid, label, line, names, sentence, words

if TYPE_CHECKING:
    from pagewalk.engine_types import Host, Interval, Share
    from pagewalk.measurements.design import DesignResult
    from pagewalk.result import Result

_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL = 22
"""Cells of a bar's label, and of a design's name that is too long."""
_MINIMUM_SHARE = 0.002


def heading(result: Result) -> RenderableType:
    """The heading: program, machine and limits, in a few lines."""
    data = result.data
    lines = [
        line((f"pagewalk {data['version']}", "dim"), "  ", (data["source"]["name"], "bold")),
        line(" · ".join(result.facts), style="dim"),
    ]
    if result.partial:
        lines.append(line(f"partial: {result.why_partial}", style="bold yellow"))
    return Group(*lines)


def notes(result: Result) -> list[RenderableType]:
    """Warnings that a reader must know before using the numbers, without that of the heading."""
    known = f": {result.why_partial}" if result.partial else None
    listed = [w for w in result.warnings if known is None or not w.endswith(known)]
    return [line(("warning: ", "bold yellow"), warning) for warning in listed]


def elsewhere(host: Host) -> str:
    """The number of shards that other hosts have simulated, in words; empty if none."""
    shards = host.get("remote_shards", 0)
    if not shards:
        return ""
    return f" and {shards} shard{'' if shards == 1 else 's'} on other hosts"


def footer(result: Result) -> RenderableType:
    """The host's time, speed and memory."""
    host = result.data["host"]
    return line(
        f"simulated in {duration(host['seconds'])} on {host['threads']} host thread"
        f"{'' if host['threads'] == 1 else 's'}{elsewhere(host)}: "
        f"{count(round(host['simulated_instructions_per_second']))} instructions/s, "
        f"{size(host['peak_rss_bytes'])} of host memory",
        style="dim",
    )


def bar(fraction: float, width: int) -> str:
    """A bar of `fraction` of `width` cells, exact to an eighth of a cell."""
    eighths = round(max(0.0, min(1.0, fraction)) * width * 8)
    full, rest = divmod(eighths, 8)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def run(result: Result, out: Console, *, wide: bool = False, verbose: bool = False) -> None:
    """One design: the cost of translation, the cycle stack, and what the numbers rest on.

    With `verbose` also its settings, all numbers of its summary, latencies and energy. With
    `wide` no column is left out where the terminal is narrow.
    """
    design = result.designs[0]
    _print_heading(result, out)
    out.print(line((design.name, "bold cyan"), "  ", design.description))
    if verbose:
        design_settings.print_design(design, out)
    out.print()
    print_pairs(_first_numbers(design), out)
    _print_sampling(result, out)
    _print_regions(result, out)
    _print_programs(result, out, wide=wide)
    if design.cycle_stack:
        _print_title("Cycle stack", out)
        _print_stack(design, out)
    if verbose:
        _print_histograms(design, out, wide=wide)
        _print_energy(design, out)
        _print_title("All numbers", out)
        known = [q for q in design.reported if q.value is not None]
        print_pairs([(q.name, with_unit(q.value, q.unit)) for q in known], out)
    _print_end(result, out)
    more = [] if verbose else ["--verbose prints all numbers, latencies, energy and settings;"]
    print_flow([*more, "'pagewalk explain NAME' defines a name."], " ", out, indent=0)


_FIRST = (
    "instructions",
    "cycles",
    "ipc",
    "requests",
    "cycles_per_request",
    "l1d_tlb_mpki",
    "l2_tlb_mpki",
    "walks",
)
"""Numbers of the summary on the first screen of a run, in order."""


def _first_numbers(design: DesignResult) -> list[tuple[str, str]]:
    """The numbers of the first screen, by the names that ``pagewalk explain`` knows."""
    known = {q.name: q for q in design.reported}
    rows = [
        (columns.words(name), with_unit(known[name].value, known[name].unit))
        for name in _FIRST
        if name in known
    ]
    walks = next(
        (h for h in histograms.reported(design.histograms) if h.name == "walk_latency"), None
    )
    if walks is not None and walks.mean is not None and walks.p99 is not None:
        rows.append(("walk latency", f"{significant(walks.mean)} cycles"))
        rows.append(("walk latency, 99 %", f"{significant(walks.p99)} cycles"))
    return rows


def compare(result: Result, out: Console, *, wide: bool = False) -> None:
    """Many designs: a table, speedups and cycles side by side; `wide` is as for `run`."""
    _print_heading(result, out)
    out.print(
        Padding(design_settings.resolved(result, _short(result, out)), (0, 0, 0, 2), expand=False)
    )
    out.print()
    _print_designs(columns.comparison(result), result.designs, result, out, wide=wide)
    _print_programs(result, out, wide=wide)
    _print_speedups(result, out)
    _print_sampling(result, out)
    _print_regions(result, out)
    _print_stacks(result, out)
    _print_costs(result, out)
    _print_times(result, out, wide=wide)
    _print_energies(result, out, wide=wide)
    _print_end(result, out)


def _print_sampling(result: Result, out: Console) -> None:
    """Prints the estimates from samples of each design, with confidence intervals."""
    sampled = [(d, d.sampling) for d in result.designs if d.sampling]
    if not sampled:
        return
    confidence, samples = sampled[0][1].confidence, sampled[0][1].samples
    _print_title(f"Samples ({samples}, with {confidence * 100:.0f} % confidence)", out)
    several = len(result.designs) > 1
    for design, found in sampled:
        high = "any number" if found.ipc_high is None else significant(found.ipc_high)
        sentences = [f"IPC {significant(found.ipc)} ({significant(found.ipc_low)} to {high})"]
        misses = found.metrics.get("l2_tlb_mpki")
        if misses:
            sentences.append(f"L2 TLB misses/1000 instructions {_between(misses)}")
        if found.speedup:
            sentences.append(f"{_between(found.speedup)} times as fast as the first")
        name = f"{design.name}: " if several else ""
        out.print(Padding(line(name + ", ".join(sentences)), (0, 0, 0, 2)))
    sample = result.data["limits"].get("sample")
    before = sample.get("warming") if sample else None
    if before:
        filtered = before["filtered"]
        # In a result it is the length that auto resolved to.
        length = f"{count(filtered)} instructions" if isinstance(filtered, int) else "all before"
        warmed = f"functional warming ({count(before['warmed'])} instructions)"
        if filtered != 0:
            warmed = f"filtered functional warming ({length}), then {warmed}"
        text = line(f"Before each sample: {warmed}.", style="dim")
        out.print(Padding(text, (0, 0, 0, 2)))


def _print_regions(result: Result, out: Console) -> None:
    """Prints the regions behind the numbers, and how much they differ."""
    weighed = [(d, d.regions) for d in result.designs if d.regions]
    if not weighed:
        return
    each = weighed[0][1].regions
    number = f"{len(each)} region{'' if len(each) == 1 else 's'}"
    _print_title(f"Regions ({len(each)}, by their weights)", out)
    inside = count(sum(region.instructions for region in each))
    sentences = [
        f"All numbers are those of {number}, {inside} instructions, each by its weight; no error "
        "bound is known."
    ]
    several = len(result.designs) > 1
    for design, found in weighed:
        ipcs = [r.instructions / r.cycles for r in found.regions if r.cycles] or [0.0]
        name = f"{design.name}: " if several else ""
        between = f"({significant(min(ipcs))} to {significant(max(ipcs))} in a region)"
        text = f"{name}IPC {significant(design.get('ipc') or 0)} {between}"
        if found.warming:
            below, above = (found.warming.cpi_below, found.warming.cpi_above)
            text += (
                f"; cold-start uncertainty of cycles/instruction: "
                f"-{significant(below)} to +{significant(above)}"
            )
        sentences.append(text)
    for text in sentences:
        out.print(Padding(line(text), (0, 0, 0, 2)))


def _between(interval: Interval) -> str:
    high = "any" if interval.high is None else significant(interval.high)
    return f"{significant(interval.value)} ({significant(interval.low)} to {high})"


def _short(result: Result, out: Console) -> dict[str, str]:
    """The designs' names as bars and tables have them: whole where nothing is narrow."""
    whole = [d.name for d in result.designs]
    width = max(_LABEL, out.width // 4) if out.is_terminal else out.width // 2
    short = shortened((visible(name) for name in whole), width)
    return {name: short[visible(name)] for name in whole}


def _label_width(short: dict[str, str]) -> int:
    return max(_LABEL, *(1 + cell_len(name) for name in short.values()))


def _title(design: DesignResult, name_of_it: str) -> Text:
    name = line(name_of_it, style="cyan")
    if not design.complete:
        name += line(f" ({design.status.replace('_', ' ')})", style="yellow")
    return name


def _cell(value: float | None, write: Callable[[float], str]) -> str:
    return "–" if value is None else write(value)


def _print_title(title: str, out: Console) -> None:
    out.print()
    out.print(line(title, style="bold"))


def _print_designs(
    listed: Sequence[Column[DesignResult]],
    designs: Sequence[DesignResult],
    result: Result,
    out: Console,
    *,
    wide: bool,
) -> None:
    """Prints a row for each design, and a legend of the titles below."""
    short = _short(result, out)
    heads = [_title(d, short[d.name]) for d in designs]
    print_columns("design", heads, designs, listed, out, wide=wide)


def _print_histograms(design: DesignResult, out: Console, *, wide: bool) -> None:
    """Prints a line for each histogram: mean, percentiles and largest value."""
    shown = histograms.reported(design.histograms)
    if not shown:
        return
    units = dict.fromkeys(h.unit for h in shown)
    _print_title(f"Latencies ({', '.join(units)})", out)
    heads = [line(histograms.label(h), style="cyan") for h in shown]
    print_columns("", heads, shown, columns.histogram(), out, wide=wide)


def _print_times(result: Result, out: Console, *, wide: bool) -> None:
    """Prints a row for each design: median, 99th percentile and largest value of histograms."""
    listed = columns.times(result)
    if not listed:
        return
    _print_title("Latencies (cycles)", out)
    _print_designs(listed, result.designs, result, out, wide=wide)


_PROGRAM = 28
"""Cells of a program's name beside its numbers."""
_HEAD = 16
"""Cells of a design's name above its numbers; a longer one takes several lines."""


def _print_programs(result: Result, out: Console, *, wide: bool) -> None:
    """Prints the programs of a mix: their speeds, and their statistics."""
    if not result.designs[0].programs:
        return
    for designs in result.on_each:
        _print_company(result, designs, out)
    listed = columns.programs(result.designs)
    if not listed:
        return
    rows = [(d, p) for d in result.designs for p in d.programs]
    several = len(result.designs) > 1
    short = _short(result, out)
    programs = _programs(list(dict.fromkeys(visible(p.name) for _, p in rows)))
    width = max(cell_len(text) for text in programs.values())
    heads = [
        label(programs[visible(p.name)], width, "cyan")
        + line(f"  {short[d.name]}" if several else "", style="dim")
        for d, p in rows
    ]
    _print_title("Statistics of each program", out)
    print_columns("program", heads, [p for _, p in rows], listed, out, wide=wide)


def _programs(listed: Sequence[str]) -> dict[str, str]:
    """Short names of programs, without arguments where names differ without them."""
    bare = [name.split(" ")[0] for name in listed]
    first = bare if len(set(bare)) == len(bare) else listed
    short = shortened(first, _PROGRAM)
    return {name: short[word] for name, word in zip(listed, first, strict=True)}


def _print_company(result: Result, designs: Sequence[DesignResult], out: Console) -> None:
    """Prints a row for each program of a mix: alone, and in the mix with each design."""
    first = designs[0]
    several = len(result.designs) > 1
    short = _short(result, out)
    heads = [chop_cells(short[d.name], _HEAD) if several else [] for d in designs]
    whole = [name for name in OF_MIXES if any(getattr(d, name) is not None for d in designs)]
    rows = (*(p.name for p in first.programs), *(OF_MIXES[name] for name in whole))
    names_of = [line(name, style="cyan") for name in rows]
    blank = [""] * len(whole)
    filled = [
        Filled("IPC\nalone", [*(_cell(p.ipc_alone, significant) for p in first.programs), *blank])
    ]
    for design, head in zip(designs, heads, strict=True):
        over = "".join(f"{part}\n" for part in head)
        # With one design, a program's speed is its IPC in the mix over its IPC alone.
        speeds = [p.speedup if several else _share(p.ipc, p.ipc_alone) for p in design.programs]
        ipcs = [*(_cell(p.ipc, significant) for p in design.programs), *blank]
        filled.append(Filled(f"{over}IPC", ipcs))
        of_mix = [getattr(design, name) for name in whole]
        ratios = [_cell(speed, columns.ratio) for speed in (*speeds, *of_mix)]
        filled.append(Filled(f"{over}{'speedup' if several else 'of alone'}", ratios))
    _print_title(f"Programs of the mix (alone: on {first.name})", out)
    print_table("program", names_of, filled, out)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _print_heading(result: Result, out: Console) -> None:
    out.print(heading(result))
    for text in verdict.sentences(result, as_flag("translation_cost")):
        out.print(sentence(text, out.width))
    for note in notes(result):
        out.print(note)


def _print_end(result: Result, out: Console) -> None:
    out.print()
    out.print(footer(result))


def costs(result: Result) -> list[tuple[str, str]]:
    """The cost of translation in each design, in words; empty if not requested."""
    if result.translation_reference is None:
        return []
    return [(d.name, _cost(d)) for d in result.designs]


def _cost(design: DesignResult) -> str:
    cost = design.translation_cost
    if cost is None:
        return "cannot be compared: its program does other work"
    sampled = ", from samples" if design.sampling else ""
    if cost < 0:
        return f"translation costs nothing: {verdict.slower(design)}{sampled}"
    return f"translation costs {cost * 100:.1f} % of the cycles{sampled}"


def _print_costs(result: Result, out: Console) -> None:
    """Prints the cost of translation where the table's number needs an explanation."""
    explained = {d.name for d in result.designs if _needs_words(result, d)}
    rows = [row for row in costs(result) if row[0] in explained]
    if not rows:
        return
    _print_title("Translation cost (against perfect TLBs on the same instructions)", out)
    short = _short(result, out)
    table = grid()
    names(table, "cyan", width=_label_width(short) - 2)
    words(table)
    for name, words_of_it in rows:
        table.add_row(short[name], words_of_it)
    out.print(Padding(table, (0, 0, 0, 2), expand=False))


def _needs_words(result: Result, design: DesignResult) -> bool:
    cost = design.translation_cost
    return cost is None or cost < 0 or design.sampling is not None


def _print_speedups(result: Result, out: Console) -> None:
    kind = f", {result.speedup_kind}" if result.speedup_kind else ""
    known = [(d, d.speedup) for d in result.designs if d.speedup is not None]
    _print_bars(f"Speedup over {result.reference}{kind}", known, result, out)
    by = ", by requests" if result.speedup_by == "request" else ""
    known = [(d, d.speedup_in_time) for d in result.designs if d.speedup_in_time is not None]
    _print_bars(f"Speedup in time over {result.designs[0].name}{by}", known, result, out)


def _print_bars(
    title: str, known: Sequence[tuple[DesignResult, float]], result: Result, out: Console
) -> None:
    if not known:
        return
    most = max(speedup for _, speedup in known)
    short = _short(result, out)
    room = _label_width(short)
    width = max(10, min(60, out.width - room - 12))
    _print_title(title, out)
    for design, speedup in known:
        faster = colours.FASTER if speedup > 1.0005 else colours.SAME
        style = colours.SLOWER if speedup < 0.9995 else faster
        out.print(
            line("  ")
            + label(short[design.name], room, "cyan")
            + line((bar(speedup / most, width), style), f" {speedup:.3f}")
        )


def _print_stack(design: DesignResult, out: Console) -> None:
    width = max(10, min(50, out.width - _LABEL - 22))
    most = max((s.share for s in design.cycle_stack), default=1.0) or 1.0
    ink = colours.inks([s.cause for s in design.cycle_stack], colours_of(out))
    for share in design.cycle_stack:
        if share.share < _MINIMUM_SHARE:
            continue
        fill, style = ink[share.cause]
        out.print(
            line("  ")
            + label(causes.words(share.cause), _LABEL)
            + line((_filled(share.share / most, width, fill), style), _percent(share))
        )


def _filled(fraction: float, width: int, fill: str) -> str:
    """A bar of the glyph `fill`: exact to an eighth of a cell if it is a full block."""
    return bar(fraction, width) if fill == "█" else fill * max(1, round(fraction * width))


def _percent(share: Share) -> str:
    return f" {share.share * 100:.1f} %"


def _print_stacks(result: Result, out: Console) -> None:
    """A stacked bar a design, its length the cycles an instruction, or a request."""
    known = [(d, c) for d in result.designs if d.cycle_stack and (c := d.cost)]
    if not known:
        return
    most = max(cycles for _, cycles in known)
    short = _short(result, out)
    room = _label_width(short)
    width = max(10, min(60, out.width - room - 12))
    shown = dict.fromkeys(
        s.cause for d, _ in known for s in d.cycle_stack if s.share >= _MINIMUM_SHARE
    )
    ink = colours.inks(list(shown), colours_of(out))
    _print_title(f"Cycle stack (cycles {result.per})", out)
    for design, cycles in known:
        row = line("  ") + label(short[design.name], room, "cyan")
        _stacked(row, design.cycle_stack, ink, width * cycles / most)
        out.print(row + line(f" {significant(cycles)}"))
    legend = line("  ")
    for cause, (fill, style) in ink.items():
        entry = line((f"{fill} ", style), causes.words(cause), "   ")
        if legend.cell_len + entry.cell_len - 3 > out.width:
            out.print(legend)
            legend = line("  ")
        legend += entry
    legend.rstrip()
    out.print(legend)


_WIDE = 80
"""Cells of a terminal from which on dynamic and static energy stand beside a part's bar."""
_MINIMUM_ENERGY = 0.001
"""Least share of the total for a part of the machine to have a line of its own."""


def _print_energy(design: DesignResult, out: Console) -> None:
    """A bar a part of the machine, the largest first, with its dynamic and static energy."""
    energy = design.energy
    if energy is None or not energy.total_nj:
        return
    _print_title(f"Energy ({joules(energy.total_nj)})", out)
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


def _print_energies(result: Result, out: Console, *, wide: bool) -> None:
    """Prints a row for each design: energy, relative to the first, and by kinds of parts."""
    known = [(d, e) for d in result.designs if (e := d.energy) is not None]
    if not known:
        return
    _print_title(f"Energy (ratio: {result.per})", out)
    designs = [d for d, _ in known]
    _print_designs(columns.energies(result), designs, result, out, wide=wide)


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
