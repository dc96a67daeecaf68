"""The command line. Each command is its flags, and a few lines that use the rest."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar

import typer

from pagewalk import native
from pagewalk.config import completion, options
from pagewalk.config import machines as users_machines
from pagewalk.config import source as sources
from pagewalk.config.config import listed
from pagewalk.config.flags import (
    App,
    FirstIsDefault,
    JsonFile,
    Seed,
    flag,
    takes,
)
from pagewalk.errors import (
    Failure,
    PagewalkError,
    RunOption,
    Terminated,
    UserError,
    as_flag,
    named,
)
from pagewalk.host import files
from pagewalk.runs.options import CACHE, CLUSTER, FOLDER, FRESH, JOBS, PRECISION, SEEDS
from pagewalk.studies import options as study_options
from pagewalk.view import figures
from pagewalk.view.escape import visible
from pagewalk.view.output import OutputLost
from pagewalk.view.quantities import count, parse_count

if TYPE_CHECKING:
    from pagewalk.host.perf_counters import Events, Processor
    from pagewalk.result import Result

Answer = TypeVar("Answer")

app = App(
    name="pagewalk",
    help="Simulate address translation of a program on many designs.",
    epilog="A first look: pagewalk compare --workload gups --size 1GiB\n\n"
    "Exit status: 0; 1 for a failure or a design without a result, with -- PROGRAM 125; 2 for a "
    "mistake.",
    no_args_is_help=False,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
trace_app = App(no_args_is_help=True, help="Describe, check and convert recorded traces.")
app.add_typer(trace_app, name="trace")
sweep_app = App(
    cls=FirstIsDefault,
    help="Simulate many runs along axes into one table. Without a command it is 'run': "
    "pagewalk sweep --workload gups --vary size=1GiB,4GiB; see pagewalk sweep run --help.",
)
app.add_typer(sweep_app, name="sweep")


@dataclass(frozen=True)
class Invocation:
    """The part of the command line that is not flags: the program after ``--``."""

    program: list[str] | None = None


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"pagewalk {native.version()}")
        raise typer.Exit


@app.command(epilog="Example: pagewalk run --workload gups --size 1GiB --design thp")
@takes(options.OPTIONS)
def run(
    design: Annotated[str, flag(options.DESIGN)] = sources.DEFAULT_DESIGN,
    verbose: Annotated[bool, flag(options.VERBOSE)] = False,
    **flags: Any,
) -> int:
    """Simulate one program on one machine with one design."""
    if len(names := listed(design)) > 1 and not files.there(design):
        raise UserError(
            f"run takes a single design; compare takes several, as --designs {','.join(names)}",
            about=RunOption("design"),
        )
    if len(sources.machines(flags["machine"])) > 1:
        raise UserError(
            "run takes a single machine; compare takes several", about=RunOption("machine")
        )
    [design] = _of_this_host(flags, "design", [design])
    return _simulate("run", [design], {**flags, "verbose": verbose})


@app.command(epilog="Example: pagewalk compare --designs radix,thp -- ./prog args")
@takes(options.OPTIONS, {"machine": "Simulated machine, or several as A,B."})
def compare(
    designs: Annotated[
        str, flag(options.DESIGNS, show_default=", ".join(sources.DEFAULT_DESIGNS))
    ] = ",".join(sources.DEFAULT_DESIGNS),
    **flags: Any,
) -> int:
    """Simulate one program with many designs side by side."""
    names = listed(designs)
    for name in names:
        parts = re.split(r"[\s;:+&]+", name)
        if len(parts) > 1 and {one["name"] for one in native.designs()}.issuperset(parts):
            raise UserError(
                f"'{name}' is no design; expected commas between names, as {','.join(parts)}",
                about=RunOption("designs"),
            )
    if not names:
        raise UserError(
            "no design given; 'pagewalk designs' lists them", about=RunOption("designs")
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UserError(
            f"{', '.join(twice)} is given twice; expected each design once",
            about=RunOption("designs"),
        )
    names = _of_this_host(flags, "designs", names)
    several = sources.machines(flags["machine"])
    if len(several) > 1:
        flags["machine"] = several
    with named("design", "designs"):
        return _simulate("compare", names, flags)


def _of_this_host(flags: dict[str, Any], option: str | None, designs: list[str]) -> list[str]:
    """The designs to simulate. Sets the user's calibrated machine where no machine is given.

    On a calibrated virtual machine, default designs are those of virtual machines. Without an
    `option` for them, the designs stay.
    """
    ctx: typer.Context = flags["ctx"]

    def is_given(name: str) -> bool:
        source = ctx.get_parameter_source(name)
        return source is not None and source.name != "DEFAULT"

    calibrated = None if is_given("machine") else users_machines.Calibrated.of_user()
    if calibrated is None:
        return designs
    flags["machine"] = str(calibrated.path)
    note = f"note: the machine is {calibrated.path}, as calibrated"
    if option is not None and calibrated.hypervisor and not is_given(option):
        designs = sources.VIRTUAL[option]
        note += f", and a virtual one: {as_flag(option)} {','.join(designs)}"
    print(
        visible(f"{note}; --machine {options.DEFAULT_MACHINE} is the default without"),
        file=sys.stderr,
    )
    return designs


def _simulate(kind: str, designs: list[str], flags: dict[str, Any]) -> int:
    from pagewalk.result import Result
    from pagewalk.runs import shards
    from pagewalk.view import report
    from pagewalk.view.progress import Bar
    from pagewalk.view.terminal import console

    program = _program(flags["ctx"], flags["extra"])
    source = _source(flags, program)
    values = sources.limited(flags, source)
    spec = options.specification(options.with_cost(values, source), designs, source)
    machines = len(spec["machine"]) if isinstance(spec["machine"], list) else 1
    drawn = figures.asked(
        flags["figure"] or [],
        figures.Run(len(designs), machines, interval=bool(spec["interval"]), mix="mix" in source),
    )
    outputs = [
        ("--json", flags["json_file"]),
        ("--parquet", flags["parquet"]),
        ("--html", flags["html"]),
        ("--perfetto", flags["perfetto"]),
        *((f"--figure {figure.chart}", figure.path) for figure in drawn),
    ]
    _check_outputs(outputs)
    for name, what in (("interval", "intervals"), ("mix", "programs of a mix")):
        if flags["parquet"] == "-" and flags[name] is not None:
            raise UserError(
                f"{what} go to a second file beside it; name a file",
                about=(RunOption("parquet"), " -"),
            )
    if flags["perfetto"] == "-":
        raise UserError(
            "it is not written to standard output; name a file", about=(RunOption("perfetto"), " -")
        )
    with (
        shards.hosts(flags["cluster"], flags["jobs"], spec) as hosts,
        Bar(alone=not (program and sys.stdout.isatty())) as bar,
    ):
        result = Result(native.run(spec, bar, hosts))
    # Standard output is the program's, or a file's that was asked to go there.
    ours = sys.stderr if program or "-" in [path for _, path in outputs] else sys.stdout
    show = partial(report.run, verbose=flags["verbose"]) if kind == "run" else report.compare
    writers: list[tuple[str | None, Callable[[str], object]]] = [
        (flags["json_file"], result.write_json),
        (flags["parquet"], result.write_parquet),
        (flags["html"], result.write_html),
        *((f.path, partial(result.write_figure, chart=f.chart)) for f in drawn),
    ]
    _write_and_show(
        writers, lambda: show(result, console(ours), wide=flags["wide"]), result.failed_files
    )
    return _exit_status(result, bar.stopped_by, program)


def _exit_status(result: Result, stopped_by: int | None, program: list[str] | None) -> int:
    if stopped_by and result.partial:
        return 128 + stopped_by
    # A comparison that lacks one of its designs is not what was asked for.
    failed = any(d.failed or d.died for d in result.designs)
    if result.exit_status == 0 and failed:
        return Failure.beside_program if program else Failure.exit_status
    return result.exit_status


def _check_outputs(outputs: Sequence[tuple[str, str | None]]) -> None:
    """Refuses places that cannot be written, or not by two."""
    taken: dict[str, str] = {}
    for option, path in outputs:
        if path is None:
            continue
        files.check_writable(path, option)
        if path in taken and not files.special(Path(path)):
            raise UserError(f"{taken[path]} and {option} both write '{path}'; name a file for each")
        taken.setdefault(path, option)


def _write_and_show(
    writers: list[tuple[str | None, Callable[[str], object]]],
    show: Callable[[], None],
    failed: Sequence[str] = (),
) -> None:
    """Writes the files, shows the report, then fails if a file could not be written.

    The report comes last: if standard output is closed, the files are complete all the same.
    """
    problems = []
    lost: OutputLost | None = None
    for path, write in writers:
        if path is None:
            continue
        try:
            write(path)
        except OutputLost as error:
            lost = error
        except PagewalkError as error:
            problems.append(str(error))
    problems += failed
    try:
        show()
    except OutputLost as error:
        lost = error
    if problems:
        raise Failure(
            "; ".join([*problems, *([] if lost is None or lost.reader_left else [str(lost)])])
        )
    if lost is not None:
        raise lost


_SCALES = {"thousand": "K", "million": "M", "billion": "G"}
"""Words for a count's suffix, which a user may have written behind a blank."""


def _unexpected(ctx: typer.Context, extra: list[str]) -> str:
    """The message for words that are no option's: a list without commas, a count with a blank."""
    word = extra[0]
    if word.startswith("="):
        return f"'{word}' is not expected here; expected NAME=VALUE without blanks around ="
    head = f"'{word}' is not expected here; "
    suffix = _SCALES.get(word.lower().removesuffix("s"), word.upper())
    if suffix in ("K", "M", "G", "T", "KB", "MB", "GB", "KIB", "MIB", "GIB"):
        written = {"KIB": "KiB", "MIB": "MiB", "GIB": "GiB"}.get(suffix, suffix)
        return f"{head}expected the number and its unit without a blank between, as in 10{written}"
    lists = {"designs": native.designs, "machine": native.machines}
    for option, shipped in lists.items():
        given = ctx.params.get(option)
        source = ctx.get_parameter_source(option)
        if not isinstance(given, str) or source is None or source.name != "COMMANDLINE":
            continue
        named = {one["name"] for one in shipped()}
        if word.split(",")[0].split("[")[0] in named:
            joined = ",".join([given.rstrip(","), *(w.strip(",") for w in extra)])
            return f"{head}expected names with commas between: {as_flag(option)} {joined}"
    return f"{head}a program to run follows --, as in: {ctx.command_path} -- {' '.join(extra)}"


def _program(ctx: typer.Context, extra: list[str] | None = None) -> list[str] | None:
    if extra:
        raise UserError(_unexpected(ctx, extra))
    invocation: Invocation = ctx.obj
    if invocation.program == []:
        raise UserError("no program after --; expected -- PROGRAM ARGS…")
    return invocation.program


def _source(flags: dict[str, Any], program: list[str] | None) -> dict[str, Any]:
    return sources.source(
        workload=flags["workload"],
        size=flags["size"],
        threads=flags["threads"],
        params=options.assignments(flags["params"] or [], RunOption("params")),
        trace=flags["trace"],
        mix=flags.get("mix"),
        program=program,
        cpu=flags["cpu"],
        clock=flags.get("clock"),
    )


_RECORDED = ("workload", "size", "threads", "params", "trace", "cpu", "instructions", "seed")


@app.command(epilog="Example: pagewalk record -o prog.pwt -- ./prog args")
@takes(
    [options.BY_NAME[name] for name in _RECORDED],
    {"instructions": "Instructions to record at most."},
)
def record(
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Trace to write.")],
    memory: Annotated[
        bool, typer.Option("--memory", help="Record memory contents, for wrong paths.")
    ] = False,
    **flags: Any,
) -> int:
    """Record a program's instructions and addresses into a trace."""
    from pagewalk.view.progress import Bar
    from pagewalk.view.tables import pairs

    if out == "-":
        raise UserError("--out -: a trace is not written to standard output; name a file")
    program = _program(flags["ctx"], flags["extra"])
    source = _source(flags, program)
    values = sources.limited(flags, source)
    spec = {
        "source": source,
        "instructions": options.read("instructions", values["instructions"]),
        "seed": options.read("seed", flags["seed"]),
        "memory": memory,
    }
    files.check_writable(out, "--out")
    with Bar(alone=not (program and sys.stdout.isatty())) as bar:
        answer = native.record(spec, out, bar)
    each = answer["bytes"] / max(answer["instructions"], 1)
    pairs({**answer, "bytes_per_instruction": each}, sys.stderr if program else sys.stdout)
    # The trace ends early: the program's own status must not hide that.
    if bar.stopped_by and answer["partial"]:
        return 128 + bar.stopped_by
    if not answer["exit_status"] and answer["died"]:
        return Failure.beside_program if program else Failure.exit_status
    return int(answer["exit_status"] or 0)


@trace_app.command("info", epilog="Example: pagewalk trace info prog.pwt")
def trace_info(
    paths: Annotated[list[str], typer.Argument(metavar="FILE…", help="Trace files.")],
) -> None:
    """Describe a trace."""
    from pagewalk.view.tables import pairs

    for path in paths:
        found = native.trace_info(_trace(path, "trace info"))
        pairs(found, sys.stdout, title=path)


@trace_app.command("check", epilog="Example: pagewalk trace check prog.pwt")
def trace_check(
    paths: Annotated[list[str], typer.Argument(metavar="FILE…", help="Trace files.")],
) -> int:
    """Read a whole trace and verify it."""
    status = 0
    for path in paths:
        try:
            found = native.trace_check(_trace(path, "trace check"))
            if not found["whole"]:
                good = count(found["good_instructions"])
                raise Failure(f"{path}: {found['fault']}; good are {good} instructions before it")
        except PagewalkError as error:
            print(visible(f"error: {error}"), file=sys.stderr)
            status = max(status, error.exit_status)
        else:
            print(visible(f"{path}: good, {count(found['good_instructions'])} instructions"))
    return status


@trace_app.command(
    "convert", epilog="Example: pagewalk trace convert prog.pwt -o prog.champsimtrace.xz"
)
def trace_convert(
    path: Annotated[str, typer.Argument(metavar="FILE", help="Trace to read.")],
    out: Annotated[
        str,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE",
            help="Trace to write: .pwt, or .champsimtrace, also with .xz, .gz or .zst.",
        ),
    ],
    keep_good: Annotated[
        bool, typer.Option("--keep-good", help="Convert a damaged trace up to the damage.")
    ] = False,
) -> None:
    """Convert a trace to the format that the new name ends in."""
    from pagewalk.view.tables import pairs

    files.check_writable(out, "--out")
    pairs(native.trace_convert(_trace(path), out, keep_good=keep_good), sys.stdout, title=out)


@trace_app.command("regions", epilog="Example: pagewalk trace regions prog.pwt -o regions.toml")
def trace_regions(
    path: Annotated[str, typer.Argument(metavar="FILE", help="Trace to divide into regions.")],
    length: Annotated[str, typer.Option(metavar="N", help="Instructions in a region.")] = "10M",
    max_regions: Annotated[
        int, typer.Option(metavar="N", min=1, help="Maximum number of regions.")
    ] = 30,
    seed: Seed = 1,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write the regions as TOML."),
    ] = None,
    simpoint: Annotated[
        str | None,
        typer.Option(
            metavar="PREFIX",
            help="Write SimPoint's files, PREFIX.simpoints and PREFIX.weights.",
        ),
    ] = None,
) -> None:
    """Find representative regions of a trace from its code."""
    from pagewalk.programs import regions
    from pagewalk.view import tables
    from pagewalk.view.progress import Bar

    pair = [f"{simpoint}.{ending}" for ending in ("simpoints", "weights") if simpoint is not None]
    _check_outputs([("--out", out), *(("--simpoint", name) for name in pair)])
    of_all = options.read("seed", seed)
    parsed = parse_count(length, "--length")
    with Bar(reports=False) as bar:
        found = regions.find(
            _trace(path), length=parsed, max_regions=max_regions, seed=of_all, observer=bar
        )
    if found is None:
        raise Terminated(bar.stopped_by)
    _write_and_show(
        [(out, found.regions.write), (simpoint, found.regions.write_simpoint)],
        lambda: tables.regions(found, path, sys.stderr if out == "-" else sys.stdout, out),
    )


def _trace(path: str, reader: str | None = None) -> str:
    """A trace that is there. A pipe is refused if `reader` reads it more than once."""
    if reader is not None:
        files.refuse_pipe(path, (), f"'{reader}'")
    return str(sources.source(trace=path)["trace"]["path"])


@app.command(epilog="Example: pagewalk workloads --json programs.json")
def workloads(json_file: JsonFile = None) -> None:
    """List the built-in programs."""
    from pagewalk.view.tables import programs

    _answer(native.workloads(), json_file, programs)


@app.command(epilog="Example: pagewalk explain thp")
def designs(json_file: JsonFile = None) -> None:
    """List the shipped designs."""
    from pagewalk.view.tables import catalogue

    _answer(native.designs(), json_file, catalogue)


@app.command(epilog="Example: pagewalk explain epyc-milan")
def machines(json_file: JsonFile = None) -> None:
    """List the shipped machines, and the user's own."""
    from pagewalk.view.tables import catalogue

    _answer([*native.machines(), *users_machines.listed()], json_file, catalogue)


@app.command(epilog="Example: pagewalk explain L2 TLB MPKI")
def explain(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="Term of a report, statistic, key, design, machine, program or paper.",
            show_default=False,
            autocompletion=completion.explained,
        ),
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Explain a term or name; without one, list all topics."""
    from pagewalk.view import tables

    if not words:
        _answer(native.topics(), json_file, tables.topics)
        return
    name = " ".join(words)
    _answer(tables.meanings(name, native.explain(name)), json_file, tables.explanation)


def _answer(
    answer: Answer,
    json_file: str | None,
    show: Callable[[Answer, TextIO], None],
) -> None:
    """Shows an answer on the terminal, or writes it to the file that was asked for."""
    if json_file is None:
        show(answer, sys.stdout)
    else:
        files.check_writable(json_file, "--json")
        files.write(json_file, (json.dumps(answer, indent=2, ensure_ascii=False) + "\n").encode())


_REPRODUCED = [
    replace(FOLDER, help="Output folder (default: reproduce-PAPER-SCALE)."),
    FRESH,
    CACHE,
    replace(SEEDS, help="Number of random seeds (default: the scale's)."),
    replace(
        PRECISION, help="Sample timing figures to this precision where it saves time.",
        metavar="2%", panel=None,
    ),
    CLUSTER,
    JOBS,
    options.BY_NAME["json_file"],
    options.BY_NAME["parquet"],
]  # fmt: skip


def _claims(paper: str | None, more: list[str], json_file: str | None, flags: Any) -> None:
    """Prints the claims of a paper from its kept results."""
    from pagewalk.reproduce import claims
    from pagewalk.reproduce import paper as papers

    if paper is None:
        raise UserError("--claims: name a paper, such as 'pagewalk reproduce stlt --claims'")
    given = [option.name for option in _REPRODUCED if flags.get(option.name) not in (None, False)]
    if more or [name for name in given if name != "json_file"]:
        raise UserError("--claims simulates nothing: leave out all but the paper and --json")
    chosen = papers.load(paper)
    found = claims.read(chosen.folder)
    data = [claim.as_json() for claim in found]
    _answer(data, json_file, lambda _data, stream: claims.show(found, chosen.title, stream))


@app.command(epilog="Example: pagewalk reproduce mehpt fig8 --scale smoke")
@takes(_REPRODUCED, program=False)
def reproduce(
    paper: Annotated[
        str | None,
        typer.Argument(
            metavar="PAPER",
            help="Shipped paper, or the folder of one.",
            show_default=False,
            autocompletion=completion.paper,
        ),
    ] = None,
    figures: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FIGURE…", help="Figures to reproduce (default: all).", show_default=False
        ),
    ] = None,
    scale: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Scale of the simulation (default: the paper's)."),
    ] = None,
    claims: Annotated[
        bool, typer.Option("--claims", help="Print the paper's claims beside kept results.")
    ] = False,
    kernel: Annotated[
        bool, typer.Option("--kernel", help="Add measurements of a booted Linux kernel.")
    ] = False,
    **flags: Any,
) -> int:
    """Reproduce a paper's tables and figures beside its numbers."""
    from pagewalk.reproduce import paper as papers
    from pagewalk.view.tables import studies

    json_file, parquet = flags["json_file"], flags["parquet"]
    if claims:
        more = [*(figures or []), *([scale] if scale else []), *(["--kernel"] if kernel else [])]
        _claims(paper, more, json_file, flags)
        return 0
    if paper is None:
        _answer(papers.catalogue(), json_file, studies)
        return 0
    from pagewalk.reproduce import command, sampled
    from pagewalk.runs.cache import Cache
    from pagewalk.runs.executor import executor_for

    how = {one.name: one.read(flags[one.name], RunOption(one.name)) for one in _REPRODUCED}
    chosen = papers.load(paper, scale)
    sampled.check(how["precision"], chosen.figures(figures or []))
    chosen.seeds(how["seeds"])
    if kernel:
        chosen.with_kernel(figures or [])
    folder = Path(how["out"] or f"reproduce-{chosen.name}-{chosen.scale.name}")
    files.check_folder(folder, "--out")
    _check_outputs([("--json", json_file), ("--parquet", parquet)])
    cache = Cache.named(how["cache"])
    finished = command.reproduce(
        chosen,
        figures or [],
        cache,
        executor=executor_for(how["cluster"], how["jobs"]),
        fresh=how["fresh"],
        seeds=how["seeds"],
        precision=how["precision"],
    )
    ours = sys.stderr if "-" in (json_file, parquet) else sys.stdout
    problems: list[str] = []
    try:
        finished.write(folder)
    except PagewalkError as error:
        problems.append(f"{error}; make room, or name another --out")
    problems += cache.problems()

    def show() -> None:
        command.show(finished, ours)
        if not problems:
            print(visible(f"{folder}/index.html"), file=ours)

    _write_and_show(
        [
            (json_file, lambda path: files.write(path, finished.to_json().encode())),
            (parquet, finished.write_parquet),
        ],
        show,
        problems,
    )
    return Failure.exit_status if finished.broken else 0


@sweep_app.command(
    "run",
    epilog="Example: pagewalk sweep --designs radix,thp --workload gups --vary size=1GiB..16GiB*4 "
    "-o study",
)
@takes([option for option in study_options.OPTIONS if option.command], program=False)
def sweep_run(
    ctx: typer.Context,
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="STUDY.toml", help="Study file; options add to it.", show_default=False
        ),
    ] = None,
    **flags: Any,
) -> int:
    """Simulate many runs along axes into one table."""
    from pagewalk.studies import command

    return command.from_options(flags, study, _program(ctx))


_Folder = Annotated[str, typer.Argument(metavar="DIR", help="Folder of the study.")]


@sweep_app.command("show", epilog="Example: pagewalk sweep show study --by workload")
def sweep_show(
    folder: _Folder,
    metrics: Annotated[
        str | None, typer.Option(metavar="A,B", help="Metrics to show beside the speedup.")
    ] = None,
    by: Annotated[
        str | None, typer.Option(metavar="A,B", help="Axes that form rows; the rest is averaged.")
    ] = None,
) -> None:
    """Show a study's means, their confidence intervals, and failed runs."""
    from pagewalk.studies.show import show

    show(
        Path(folder),
        sys.stdout,
        None if metrics is None else listed(metrics),
        None if by is None else listed(by),
    )


@sweep_app.command("plot", epilog="Example: pagewalk sweep plot study --x size --y l2_tlb_mpki")
def sweep_plot(
    folder: _Folder,
    x: Annotated[
        str, typer.Option("--x", metavar="AXIS", help="Axis of the study along the horizontal.")
    ],
    y: Annotated[str, typer.Option("--y", metavar="NUMBER", help="Metric along the vertical.")],
    by: Annotated[
        str | None, typer.Option(metavar="AXIS", help="Axis with a colour for each value.")
    ] = None,
    facet: Annotated[
        str | None, typer.Option(metavar="AXIS", help="Axis with a plot for each value.")
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write .html, .svg, .pdf or .png."),
    ] = None,
) -> None:
    """Plot a metric of a study over an axis."""
    from pagewalk.studies.plot import plot

    written = out or str(Path(folder) / f"{y}-{x}.html")
    files.check_writable(written, "--out")
    plot(Path(folder), x, y, by=by, facet=facet, out=written)
    print(visible(written))


_WINDOW = ("skip", "warmup", "instructions", "sample")
_VALIDATED = ("machine", "settings", "cpu", *_WINDOW, "roi", "seed", "jobs")


@app.command(epilog="Example: pagewalk validate -- ./prog args")
@takes([options.BY_NAME[name] for name in _VALIDATED])
def validate(
    design: Annotated[
        str | None,
        flag(
            options.DESIGN,
            "Translation design (default: as this host translates); by the clock A,B: without "
            "huge pages, and with them.",
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Measure by counters or clock (default: counters, if readable)."
        ),
    ] = None,
    runs: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Runs to measure (default: 3), by the clock pairs (9)."
        ),
    ] = None,
    json_file: JsonFile = None,
    **flags: Any,
) -> int:
    """Measure a program on this processor, simulate it, and show both."""
    from pagewalk.host import perf_counters

    program = _program(flags["ctx"], flags["extra"])
    if program is None:
        raise UserError("no program to validate with; expected -- PROGRAM ARGS…")
    if by not in (None, "counters", "clock"):
        raise UserError(f"--by {by}: expected counters or clock")
    if len(sources.machines(flags["machine"])) > 1:
        raise UserError("validate takes a single machine", about=RunOption("machine"))
    _of_this_host(flags, None, [])
    source = sources.source(program=program, cpu=flags["cpu"])
    _check_outputs([("--json", json_file)])
    processor = perf_counters.Processor.of_this_host()
    if by != "clock":
        try:
            events = processor.events
            perf_counters.check(events)
        except Failure as error:
            if by == "counters":
                raise
            why = str(error).partition(";")[0]
            print(visible(f"measured by the clock: {why}"), file=sys.stderr)
        else:
            return _by_counters(
                processor, events, source, design, runs or 3, json_file, program, flags
            )
    return _by_clock(processor, source, design, runs or 9, json_file, program, flags)


def _by_counters(
    processor: Processor, events: Events, source: dict[str, Any], design: str | None, runs: int,
    json_file: str | None, program: list[str], flags: dict[str, Any],
) -> int:  # fmt: skip
    from pagewalk.host import standard_input
    from pagewalk.host import validate as validation
    from pagewalk.result import Result
    from pagewalk.view.progress import Bar

    for name in _WINDOW:
        if flags[name] is not None:
            raise UserError(
                "counters count the whole program or region; add --by clock, which compares "
                "a ratio",
                about=RunOption(name),
            )
    chosen = design or validation.design_of_this_host(processor)
    spec = options.specification(flags, [chosen], source)
    standard_input.share()
    counted = validation.measure(program, events, region=flags["roi"], runs=runs)
    standard_input.rewind()
    with Bar(alone=not sys.stdout.isatty()) as bar:
        result = Result(native.run(spec, bar))
    found = validation.compare(processor, events, counted, result, region=flags["roi"])
    _write_and_show(
        [(json_file, found.write_json)],
        lambda: validation.show(found, chosen, flags["machine"], sys.stderr),
    )
    return _exit_status(result, bar.stopped_by, program)


def _by_clock(
    processor: Processor, source: dict[str, Any], design: str | None, runs: int,
    json_file: str | None, program: list[str], flags: dict[str, Any],
) -> int:  # fmt: skip
    from pagewalk.host import standard_input, time_ratio, timing
    from pagewalk.result import Result
    from pagewalk.view.progress import Bar

    designs = time_ratio.designs_of(processor) if design is None else listed(design)
    if len(designs) != 2:
        raise UserError(
            f"'{design}' is {len(designs)} of the two designs that the clock compares; expected "
            "one without huge pages and one with them, as radix,thp",
            about=RunOption("design"),
        )
    spec = options.specification(flags, time_ratio.in_order(designs), source)
    # A mistake in a name shows before the first of many runs.
    native.resolved(spec)
    timing.check()
    host = time_ratio.Host.here()
    standard_input.share()
    timed = timing.measure(program, region=flags["roi"], runs=runs)
    standard_input.rewind()
    with Bar(alone=not sys.stdout.isatty()) as bar, timing.asking():
        result = Result(native.run(spec, bar))
    found = time_ratio.compare(host, timed, result, region=flags["roi"])
    _write_and_show(
        [(json_file, found.write_json)],
        lambda: time_ratio.show(found, flags["machine"], sys.stderr),
    )
    return _exit_status(result, bar.stopped_by, program)


@app.command(epilog="Example: pagewalk calibrate")
def calibrate(
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Name of the machine to write.")
    ] = users_machines.HOST,
    base: Annotated[
        str | None,
        typer.Option(
            metavar="MACHINE",
            help="Shipped machine for all other keys (default: the nearest).",
            show_default=False,
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Measure for a few seconds, less surely.")
    ] = False,
    jobs: Annotated[int | None, flag(options.BY_NAME["jobs"])] = None,
    json_file: JsonFile = None,
) -> None:
    """Measure this host by micro-benchmarks, and write it as a machine."""
    from pagewalk.calibrate import command

    _check_outputs([("--json", json_file)])
    found = command.calibrate(name=name, base=base, quick=quick, jobs=jobs)
    content = found.to_json() + "\n"
    ours = sys.stderr if json_file == "-" else sys.stdout
    _write_and_show(
        [(json_file, lambda path: files.write(path, content.encode()))],
        lambda: command.show(found, ours),
    )


@app.command(epilog="Example: pagewalk attach 1234 --seconds 5")
def attach(
    pid: Annotated[int, typer.Argument(metavar="PID", help="Number of a running process.", min=1)],
    seconds: Annotated[
        float,
        typer.Option(
            metavar="SECONDS", min=0, max=3600, help="Observe accesses so long (0: do not observe)."
        ),
    ] = 1.0,
    machine: Annotated[str, flag(options.BY_NAME["machine"])] = options.DEFAULT_MACHINE,
    json_file: JsonFile = None,
) -> int:
    """Estimate a running process's translation reach, without a simulation."""
    import pagewalk
    from pagewalk.host import attach as host_attach

    _check_outputs([("--json", json_file)])
    level = pagewalk.machine(machine).mmu.l2
    entries = max(array.entries for array in level.values())
    found = host_attach.estimate(pid, seconds, entries)
    content = json.dumps(found.to_dict(), indent=1) + "\n"
    _write_and_show(
        [(json_file, lambda path: files.write(path, content.encode()))],
        lambda: host_attach.show(found, machine, sys.stdout),
    )
    return 0


@app.command(epilog="Example: pagewalk doctor")
def doctor() -> int:
    """Check what this host has, and what to install."""
    from pagewalk.host.doctor import report

    return report(sys.stdout)
