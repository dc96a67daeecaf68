"""The command line. Each command is its flags, and a few lines that use the rest."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from pagewalk import files, native
from pagewalk import source as sources
from pagewalk.errors import Failure, PagewalkError, UserError
from pagewalk.quantities import count

app = typer.Typer(
    name="pagewalk",
    help="What address translation costs a program, and what other designs would make of it.",
    epilog="A first look: pagewalk compare --workload gups --size 1GiB",
    no_args_is_help=False,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
trace_app = typer.Typer(no_args_is_help=True, help="Look at, check and convert recorded traces.")
app.add_typer(trace_app, name="trace")


@dataclass(frozen=True)
class Invocation:
    """What the command line holds beside flags: the program after ``--``."""

    program: list[str] | None = None


_WHAT, _HOW_MUCH, _OUT = "What runs", "How much of it", "Results"

Machine = Annotated[str, typer.Option(metavar="NAME|FILE", help="The simulated machine.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="A.B=C", help="Changes a configuration key; repeatable."),
]
Workload = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="A built-in program.", rich_help_panel=_WHAT),
]
Size = Annotated[
    str | None,
    typer.Option(metavar="4GiB", help="Its memory.", rich_help_panel=_WHAT),
]
Threads = Annotated[
    int | None,
    typer.Option(metavar="N", help="Its threads, a core each.", rich_help_panel=_WHAT),
]
Param = Annotated[
    list[str] | None,
    typer.Option(metavar="K=V", help="A parameter of it; repeatable.", rich_help_panel=_WHAT),
]
Trace = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="A recorded trace.", rich_help_panel=_WHAT),
]
Extra = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- PROGRAM ARGS…", help="Any Linux x86-64 program.", show_default=False
    ),
]
Skip = Annotated[
    str | None,
    typer.Option(metavar="N", help="Instructions passed over.", rich_help_panel=_HOW_MUCH),
]
Warmup = Annotated[
    str | None,
    typer.Option(metavar="N", help="Then simulated, not counted.", rich_help_panel=_HOW_MUCH),
]
Instructions = Annotated[
    str | None,
    typer.Option(
        metavar="100M", help="Then measured (of each thread's sum).", rich_help_panel=_HOW_MUCH
    ),
]
Roi = Annotated[
    bool,
    typer.Option("--roi", help="Only between the marks of pagewalk.h.", rich_help_panel=_HOW_MUCH),
]
Sample = Annotated[
    str | None,
    typer.Option(
        metavar="LENGTH/PERIOD",
        help="Measure LENGTH of every PERIOD instructions, warm the rest.",
        rich_help_panel=_HOW_MUCH,
    ),
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", min=0, help="Of all random choices.", rich_help_panel=_HOW_MUCH),
]
Jobs = Annotated[
    int | None,
    typer.Option(metavar="N", help="Host threads (as many as there are cores)."),
]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", metavar="FILE", help="Everything, as JSON.", rich_help_panel=_OUT),
]
ParquetFile = Annotated[
    str | None,
    typer.Option("--parquet", metavar="FILE", help="One row a statistic.", rich_help_panel=_OUT),
]
HtmlFile = Annotated[
    str | None,
    typer.Option("--html", metavar="FILE", help="A page to look at.", rich_help_panel=_OUT),
]
IntervalLength = Annotated[
    str | None,
    typer.Option(
        "--interval", metavar="N", help="Statistics every N instructions.", rich_help_panel=_OUT
    ),
]
Perfetto = Annotated[
    str | None,
    typer.Option(
        metavar="FILE",
        help="Single walks and fetches in time, for ui.perfetto.dev.",
        rich_help_panel=_OUT,
    ),
]
PerfettoWalks = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="How many walks of each design.", rich_help_panel=_OUT),
]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"pagewalk {native.version()}")
        raise typer.Exit


@app.command()
def run(
    ctx: typer.Context,
    extra: Extra = None,
    machine: Machine = sources.DEFAULT_MACHINE,
    design: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="The translation design.")
    ] = sources.DEFAULT_DESIGN,
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
    """Simulate one program on one machine with one design."""
    return _simulate("run", ctx, [design], locals())


@app.command()
def compare(
    ctx: typer.Context,
    extra: Extra = None,
    machine: Machine = sources.DEFAULT_MACHINE,
    designs: Annotated[
        str, typer.Option(metavar="A,B,C", help="The designs; speedups refer to the first.")
    ] = ",".join(sources.DEFAULT_DESIGNS),
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
    """Simulate one program with many designs side by side."""
    names = [name.strip() for name in designs.split(",") if name.strip()]
    if not names:
        raise UserError("--designs: no design given; 'pagewalk designs' lists them")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(f"--designs: {', '.join(twice)} is given twice; expected each design once")
    return _simulate("compare", ctx, names, locals())


def _simulate(kind: str, ctx: typer.Context, designs: list[str], flags: dict[str, Any]) -> int:
    from pagewalk import report
    from pagewalk.progress import Bar
    from pagewalk.result import Result

    program = _program(ctx, flags["extra"])
    spec = sources.specification(
        machine=flags["machine"],
        designs=list(designs),
        source=_source(flags, program),
        limits=_limits(flags),
        settings=flags["set_"] or [],
        seed=flags["seed"],
        jobs=flags["jobs"],
        interval=flags["interval"],
        perfetto=flags["perfetto"],
        perfetto_walks=flags["perfetto_walks"],
    )
    outputs = {
        "--json": flags["json_file"],
        "--parquet": flags["parquet"],
        "--html": flags["html"],
        "--perfetto": flags["perfetto"],
    }
    for flag, path in outputs.items():
        if path is not None:
            files.check_writable(path, flag)
    with Bar(alone=not (program and sys.stdout.isatty())) as bar:
        result = Result(native.run(spec, bar))
    # Standard output is the program's, or a file's that was asked to go there.
    ours = sys.stderr if program or "-" in outputs.values() else sys.stdout
    show = report.run if kind == "run" else report.compare
    show(result, report.console(ours))
    ours.flush()
    writers: list[tuple[str | None, Callable[[str], object]]] = [
        (flags["json_file"], result.write_json),
        (flags["parquet"], result.write_parquet),
        (flags["html"], result.write_html),
    ]
    _write_all(writers)
    if result.failed_files:
        raise Failure("; ".join(result.failed_files))
    if result.exit_status == 0 and all(d.failed for d in result.designs):
        return Failure.exit_status
    return result.exit_status


def _write_all(writers: list[tuple[str | None, Callable[[str], object]]]) -> None:
    """Writes what can be written, then fails for what could not."""
    problems = []
    for path, write in writers:
        if path is None:
            continue
        try:
            write(path)
        except PagewalkError as error:
            problems.append(str(error))
    if problems:
        raise Failure("; ".join(problems))


def _program(ctx: typer.Context, extra: list[str] | None) -> list[str] | None:
    if extra:
        raise UserError(
            f"'{extra[0]}' is not expected here; a program to run follows --, "
            f"as in: {ctx.command_path} -- {' '.join(extra)}"
        )
    invocation: Invocation = ctx.obj
    if invocation.program == []:
        raise UserError("no program after --; expected -- PROGRAM ARGS…")
    return invocation.program


def _source(flags: dict[str, Any], program: list[str] | None) -> dict[str, Any]:
    return sources.source(
        workload=flags["workload"],
        size=flags["size"],
        threads=flags["threads"],
        params=sources.assignments(flags["param"] or [], "--param"),
        trace=flags["trace"],
        program=program,
    )


def _limits(flags: dict[str, Any]) -> dict[str, Any]:
    return sources.limits(
        skip=flags["skip"],
        warmup=flags["warmup"],
        instructions=flags["instructions"],
        roi=flags["roi"],
        sample_text=flags["sample"],
        endless=flags["workload"] is not None,
    )


@app.command()
def record(
    ctx: typer.Context,
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="The trace to write.")],
    extra: Extra = None,
    workload: Workload = None,
    size: Size = None,
    threads: Threads = None,
    param: Param = None,
    trace: Trace = None,
    instructions: Annotated[
        str | None,
        typer.Option(metavar="100M", help="Record no more.", rich_help_panel=_HOW_MUCH),
    ] = None,
    seed: Seed = 1,
) -> int:
    """Record a program's instructions and addresses into a trace."""
    from pagewalk.progress import Bar
    from pagewalk.tables import pairs

    flags = locals()
    program = _program(ctx, extra)
    limits = sources.limits(instructions=instructions, endless=workload is not None)
    spec = {
        "source": _source(flags, program),
        "instructions": limits["instructions"],
        "seed": seed,
    }
    files.check_writable(out, "--out")
    with Bar(alone=not (program and sys.stdout.isatty())) as bar:
        answer = native.record(spec, out, bar)
    answer["bytes_per_instruction"] = answer["bytes"] / max(answer["instructions"], 1)
    pairs(answer, sys.stderr if program else sys.stdout)
    return int(answer["exit_status"] or 0)


@trace_app.command("info")
def trace_info(
    paths: Annotated[list[str], typer.Argument(metavar="FILE…", help="Traces.")],
) -> None:
    """Say what is in a trace."""
    from pagewalk.tables import pairs

    for path in paths:
        pairs(native.call("trace_info", _trace(path)), sys.stdout, title=path)


@trace_app.command("check")
def trace_check(
    paths: Annotated[list[str], typer.Argument(metavar="FILE…", help="Traces.")],
) -> int:
    """Read a trace to its end and verify everything in it."""
    status = 0
    for path in paths:
        try:
            found = native.call("trace_check", _trace(path))
            if not found["whole"]:
                good = count(found["good_instructions"])
                raise Failure(f"{path}: {found['fault']}; good are {good} instructions before it")
        except PagewalkError as error:
            print(f"error: {error}", file=sys.stderr)
            status = max(status, error.exit_status)
        else:
            print(f"{path}: good, {count(found['good_instructions'])} instructions")
    return status


@trace_app.command("convert")
def trace_convert(
    path: Annotated[str, typer.Argument(metavar="FILE", help="The trace to read.")],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="The trace to write: .pwt, or .champsimtrace, also with .xz, .gz or .zst.",
        ),
    ],
    keep_good: Annotated[
        bool, typer.Option("--keep-good", help="Convert a damaged trace up to the damage.")
    ] = False,
) -> None:
    """Write a trace in another format, which the name of the new file tells."""
    from pagewalk.tables import pairs

    files.check_writable(out, "--out")
    pairs(native.call("trace_convert", _trace(path), out, keep_good), sys.stdout, title=out)


def _trace(path: str) -> str:
    return str(sources.source(trace=path)["trace"]["path"])


@app.command()
def workloads() -> None:
    """List the built-in programs."""
    from pagewalk.tables import programs

    programs(native.call("workloads"), sys.stdout)


@app.command()
def designs() -> None:
    """List the shipped designs."""
    from pagewalk.tables import catalogue

    catalogue(native.call("designs"), sys.stdout)


@app.command()
def machines() -> None:
    """List the shipped machines."""
    from pagewalk.tables import catalogue

    catalogue(native.call("machines"), sys.stdout)


@app.command()
def explain(
    name: Annotated[str, typer.Argument(help="A statistic, design, machine or key.")],
) -> None:
    """Explain a statistic, design, machine, built-in program or configuration key."""
    from pagewalk.tables import explanation

    explanation(name, native.call("explain", name), sys.stdout)


@app.command()
def doctor() -> int:
    """Say what is present on this host, and what to install."""
    from pagewalk.doctor import report

    return report(sys.stdout)
