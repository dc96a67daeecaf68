"""The flags of the commands, each declared once."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

from pagewalk import source as sources

WHAT, HOW_MUCH, OUT = "What runs", "How much of it", "Results"

Machine = Annotated[str, typer.Option(metavar="NAME|FILE", help="The simulated machine.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Changes a configuration key; repeatable."),
]
Workload = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A built-in program.", rich_help_panel=WHAT),
]
Size = Annotated[
    str | None,
    typer.Option(metavar="4GiB", help="Its memory.", rich_help_panel=WHAT),
]
Threads = Annotated[
    int | None,
    typer.Option(
        metavar="N", help="Its threads; they share the machine's cores.", rich_help_panel=WHAT
    ),
]
Param = Annotated[
    list[str] | None,
    typer.Option(metavar="K=V", help="A parameter of it; repeatable.", rich_help_panel=WHAT),
]
Trace = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A recorded trace.", rich_help_panel=WHAT),
]
Extra = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- PROGRAM ARGS…", help="Any Linux x86-64 program.", show_default=False
    ),
]
Skip = Annotated[
    str | None,
    typer.Option(metavar="N", help="Instructions passed over.", rich_help_panel=HOW_MUCH),
]
Warmup = Annotated[
    str | None,
    typer.Option(metavar="N", help="Then simulated, not counted.", rich_help_panel=HOW_MUCH),
]
Instructions = Annotated[
    str | None,
    typer.Option(
        metavar="100M", help="Then measured (of each thread's sum).", rich_help_panel=HOW_MUCH
    ),
]
Roi = Annotated[
    bool,
    typer.Option("--roi", help="Only between the marks of pagewalk.h.", rich_help_panel=HOW_MUCH),
]
Sample = Annotated[
    str | None,
    typer.Option(
        metavar="LENGTH/PERIOD",
        help="Measure LENGTH of every PERIOD instructions, warm the rest.",
        rich_help_panel=HOW_MUCH,
    ),
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Of all random choices.", rich_help_panel=HOW_MUCH),
]
Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", help="Host threads (as many as there are cores)."),
]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Everything, as JSON.", rich_help_panel=OUT),
]
ParquetFile = Annotated[
    str | None,
    typer.Option("--parquet", metavar="FILE", help="One row a statistic.", rich_help_panel=OUT),
]
HtmlFile = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="A page to look at.", rich_help_panel=OUT),
]
IntervalLength = Annotated[
    str | None,
    typer.Option(
        "--interval", metavar="N", help="Statistics every N instructions.", rich_help_panel=OUT
    ),
]
Perfetto = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Single walks and fetches in time, for ui.perfetto.dev.",
        rich_help_panel=OUT,
    ),
]
PerfettoWalks = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="How many walks of each design.", rich_help_panel=OUT),
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
    perfetto_walks: PerfettoWalks = 1000,
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
