"""The flags of the commands, each declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Annotated

import typer

from pagewalk import source as sources

WHAT, HOW_MUCH, OUT = "What runs", "How much of it", "Results"

_what = partial(typer.Option, rich_help_panel=WHAT)
_much = partial(typer.Option, rich_help_panel=HOW_MUCH)
_out = partial(typer.Option, rich_help_panel=OUT)

Text = str | None
Texts = list[str] | None
Number = int | None

Machine = Annotated[str, typer.Option(metavar="NAME|FILE", help="The simulated machine.")]
Set = Annotated[
    Texts, typer.Option("--set", metavar="A.B=C", help="Changes a configuration key; repeatable.")
]
Extra = Annotated[
    Texts,
    typer.Argument(
        metavar="-- PROGRAM ARGS…", help="Any Linux x86-64 program.", show_default=False
    ),
]
Workload = Annotated[Text, _what(metavar="NAME", help="A built-in program.")]
Size = Annotated[Text, _what(metavar="4GiB", help="Its memory.")]
Threads = Annotated[Number, _what(metavar="N", help="Its threads; they share the machine's cores.")]
Param = Annotated[Texts, _what(metavar="K=V", help="A parameter of it; repeatable.")]
Trace = Annotated[Text, _what(metavar="FILE", help="A recorded trace.")]
Skip = Annotated[Text, _much(metavar="N", help="Instructions passed over.")]
Warmup = Annotated[Text, _much(metavar="N", help="Then simulated, not counted.")]
Instructions = Annotated[Text, _much(metavar="100M", help="Then measured (of each thread's sum).")]
Roi = Annotated[bool, _much("--roi", help="Only between the marks of pagewalk.h.")]
Sample = Annotated[
    Text,
    _much(
        metavar="LENGTH/PERIOD", help="Measure LENGTH of every PERIOD instructions, warm the rest."
    ),
]
Seed = Annotated[int, _much(metavar="N", min=0, help="Of all random choices.")]
Jobs = Annotated[
    Number, typer.Option(metavar="N", help="Host threads (as many as there are cores).")
]
JsonFile = Annotated[Text, _out("--json", metavar="FILE", help="Everything, as JSON.")]
ParquetFile = Annotated[Text, _out("--parquet", metavar="FILE", help="One row a statistic.")]
HtmlFile = Annotated[Text, _out("--html", metavar="FILE", help="A page to look at.")]
IntervalLength = Annotated[
    Text, _out("--interval", metavar="N", help="Statistics every N instructions.")
]
Perfetto = Annotated[
    Text, _out(metavar="FILE", help="Single walks and fetches in time, for ui.perfetto.dev.")
]
PerfettoWalks = Annotated[
    Number, _out(metavar="N", min=1, help="How many walks of each core and design (10000).")
]


def _simulation(
    ctx: typer.Context,
    extra: Extra = None,
    machine: Machine = sources.DEFAULT_MACHINE,
    set_: Set = None,
    workload: Workload = None,
    size: Size = None,
    threads: Threads = None,
    param: Param = None,
    trace: Trace = None,
    skip: Skip = None,
    warmup: Warmup = None,
    instructions: Instructions = None,
    roi: Roi = False,
    sample: Sample = None,
    seed: Seed = 1,
    jobs: Jobs = None,
    json_file: JsonFile = None,
    parquet: ParquetFile = None,
    html: HtmlFile = None,
    interval: IntervalLength = None,
    perfetto: Perfetto = None,
    perfetto_walks: PerfettoWalks = None,
) -> int:
    """What every command that simulates takes."""
    raise AssertionError("its signature is read, it is never called")


def simulates(command: Callable[..., int]) -> Callable[..., int]:
    """Gives a command the flags of a simulation, which reach it as keywords.

    Its own flags stand behind ``--machine``.
    """
    common = list(inspect.signature(_simulation, eval_str=True).parameters.values())
    own = [
        p
        for p in inspect.signature(command, eval_str=True).parameters.values()
        if p.kind is not inspect.Parameter.VAR_KEYWORD
    ]
    behind = 1 + next(i for i, p in enumerate(common) if p.name == "machine")
    parameters = [
        p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        for p in (*common[:behind], *own, *common[behind:])
    ]
    # What typer reads of a function.
    command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command
