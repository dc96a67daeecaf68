"""Results in the terminal."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from pagewalk import colours
from pagewalk.quantities import count, duration, significant, size, with_unit

if TYPE_CHECKING:
    from pagewalk.result import DesignResult, Result, Share

Json = dict[str, Any]

_FILLS = "█▓▒░▚▞▄▀▌▐▙▟▛▜"
_EIGHTHS = " ▏▎▍▌▋▊▉"
_LABEL = 22
_MINIMUM_SHARE = 0.002


def console(stream: TextIO) -> Console:
    """A console that prints numbers and names as they are.

    Without a terminal lines are as long as they need to be and no longer, so
    that what reads them sees whole values.
    """
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=cast("TextIO", _Trimmed(stream)), highlight=False, width=200)


class _Trimmed:
    """A stream that leaves out the blanks with which tables are padded."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(re.sub(r" +(?=\n|$)", "", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def heading(result: Result) -> RenderableType:
    """What was simulated, in a few lines."""
    data = result.data
    limits = data["limits"]
    parts = [f"machine {data['machine']}", f"seed {data['seed']}"]
    for key, words in (("skip", "skipped"), ("warmup", "warm-up")):
        if limits.get(key):
            parts.append(f"{words} {count(limits[key])} instructions")
    if limits.get("roi"):
        parts.append("region of interest")
    lines = [
        Text.assemble(
            (f"pagewalk {data['version']}", "dim"), "  ", (data["source"]["name"], "bold")
        ),
        Text(" · ".join(parts), style="dim"),
    ]
    if result.partial:
        lines.append(Text(f"partial: {result.why_partial}", style="bold yellow"))
    return Group(*lines)


def notes(result: Result) -> list[RenderableType]:
    """What a reader has to know before using the numbers."""
    return [Text.assemble(("warning: ", "bold yellow"), warning) for warning in result.warnings]


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


def resolved(result: Result) -> Table:
    """What each design is: the first in full, the others by what is different."""
    first, *others = result.designs
    base = flattened(first.config)
    own = {
        k: v for k, v in base.items() if k.split(".")[0] in ("placement", "page_table", "virtual")
    }
    rows = [(first.name, settings(own))]
    for design in others:
        flat = flattened(design.config)
        different = {k: v for k, v in flat.items() if k not in base or base[k] != v}
        rows.append((design.name, settings(different) or f"as {first.name}"))
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table


def footer(result: Result) -> RenderableType:
    """How fast the host was."""
    host = result.data["host"]
    return Text(
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
    out.print(Text.assemble((design.name, "bold cyan"), "  ", design.description))
    _print_design(design, out)
    out.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True, style="bold")
    table.add_column(style="dim", no_wrap=True, overflow="ellipsis")
    for quantity in design.quantities:
        table.add_row(
            quantity.name,
            with_unit(quantity.value, quantity.unit),
            quantity.meaning,
        )
    out.print(Padding(table, (0, 0, 0, 2), expand=False))
    if design.sampling:
        s = design.sampling
        high = "any number" if s.ipc_high is None else significant(s.ipc_high)
        out.print(
            f"\n  sampled IPC {significant(s.ipc)}, with {s.confidence * 100:.0f} % confidence "
            f"between {significant(s.ipc_low)} and {high} ({s.samples} samples)"
        )
    out.print(Text("\nWhere the cycles went", style="bold"))
    _print_stack(design, out)
    _print_end(result, out)


def compare(result: Result, out: Console) -> None:
    """Many designs: a table, speedups and cycles side by side."""
    out.print(heading(result))
    out.print(Padding(resolved(result), (0, 0, 0, 2), expand=False))
    out.print()
    columns = [
        ("ipc", "IPC", significant),
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
    table = Table(box=None, padding=(0, 1), header_style="bold", pad_edge=False)
    table.add_column("design", no_wrap=True, vertical="bottom")
    table.add_column("speedup", justify="right", no_wrap=True)
    for _, title, _ in shown:
        table.add_column(title, justify="right", no_wrap=True)
    for design in result.designs:
        cells = [
            "–" if (value := design.get(name)) is None else write(value) for name, _, write in shown
        ]
        name = Text(design.name, style="cyan")
        if not design.complete:
            name.append(f" ({design.status.replace('_', ' ')})", style="yellow")
        table.add_row(name, _speedup(design), *cells)
    out.print(Padding(table, (0, 0, 0, 2), expand=False))
    _print_speedups(result, out)
    _print_stacks(result, out)
    _print_end(result, out)


def _print_design(design: DesignResult, out: Console) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for key in ("placement", "page_table", "virtual", "mmu"):
        for path, values in _tables(key, design.config.get(key) or {}):
            table.add_row(path, settings(values))
    out.print(Padding(table, (0, 0, 0, 2), expand=False))


def _tables(path: str, config: Json) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each table of a configuration with its own values."""
    own = {k: v for k, v in config.items() if not isinstance(v, dict)}
    inner = {k: v for k, v in config.items() if isinstance(v, dict)}
    if own or not inner:
        yield path, own
    for key, value in inner.items():
        yield from _tables(f"{path}.{key}", value)


def _speedup(design: DesignResult) -> str:
    return "–" if design.speedup is None else f"{design.speedup:.3f}"


def _print_end(result: Result, out: Console) -> None:
    out.print()
    for note in notes(result):
        out.print(note)
    out.print(footer(result))


def _print_speedups(result: Result, out: Console) -> None:
    known = [(d, d.speedup) for d in result.designs if d.speedup is not None]
    if not known:
        return
    most = max(speedup for _, speedup in known)
    width = max(10, min(60, out.width - _LABEL - 12))
    out.print(Text(f"\nSpeedup over {result.designs[0].name}", style="bold"))
    for design, speedup in known:
        style = "green" if speedup > 1.0005 else "red" if speedup < 0.9995 else "bright_black"
        out.print(
            Text.assemble(
                (f"  {design.name:<{_LABEL}.{_LABEL}}", "cyan"),
                (bar(speedup / most, width), style),
                f" {speedup:.3f}",
            )
        )


def _print_stack(design: DesignResult, out: Console) -> None:
    width = max(10, min(50, out.width - _LABEL - 22))
    most = max((s.share for s in design.cycle_stack), default=1.0) or 1.0
    style = colours.causes([s.cause for s in design.cycle_stack])
    for share in design.cycle_stack:
        if share.share < _MINIMUM_SHARE:
            continue
        out.print(
            Text.assemble(
                f"  {colours.words(share.cause):<{_LABEL}}",
                (bar(share.share / most, width), style[share.cause]),
                f" {share.share * 100:.1f} %",
            )
        )


def _cycles_per_kilo(design: DesignResult) -> float | None:
    cycles, instructions = design.get("cycles"), design.get("instructions")
    return 1000 * cycles / instructions if cycles and instructions else None


def _print_stacks(result: Result, out: Console) -> None:
    """A stacked bar a design, its length the cycles an instruction."""
    known = [(d, c) for d in result.designs if d.cycle_stack and (c := _cycles_per_kilo(d))]
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
    out.print(Text("\nWhere the cycles went (cycles an instruction)", style="bold"))
    for design, cycles in known:
        line = Text.assemble((f"  {design.name:<{_LABEL}.{_LABEL}}", "cyan"))
        _stacked(line, design.cycle_stack, ink, width * cycles / most)
        line.append(f" {significant(cycles / 1000)}")
        out.print(line)
    legend = Text("  ")
    for cause, (fill, style) in ink.items():
        legend.append(f"{fill} ", style=style)
        legend.append(f"{colours.words(cause)}   ")
    out.print(legend)


def _stacked(line: Text, stack: list[Share], ink: dict[str, tuple[str, str]], width: float) -> None:
    """Appends cells; rounding is carried along, so that the whole has its length."""
    upto, drawn = 0.0, 0
    for share in stack:
        upto += share.share * width
        cells = round(upto) - drawn
        if cells > 0 and share.cause in ink:
            fill, style = ink[share.cause]
            line.append(fill * cells, style=style)
            drawn += cells
