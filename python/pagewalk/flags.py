"""Options of a run as flags of commands."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import typer

from pagewalk.options import BY_NAME, Option


def flag(name: str, about: str | None = None) -> Any:
    """What typer reads of an option; `about` is its help where that is not its own."""
    option = BY_NAME[name]
    return typer.Option(
        option.spelled + (f"/--no-{option.spelled[2:]}" if option.both_ways else ""),
        metavar=option.metavar,
        help=about or option.help,
        rich_help_panel=option.panel,
        min=option.least,
    )


Extra = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- PROGRAM ARGS…", help="Any Linux x86-64 program.", show_default=False
    ),
]
Jobs = Annotated[int | None, flag("jobs")]
JsonFile = Annotated[str | None, flag("json_file")]
ParquetFile = Annotated[str | None, flag("parquet")]


def _program(ctx: typer.Context, extra: Extra = None) -> None:
    """What every command that runs a program takes."""
    raise AssertionError("its signature is read, it is never called")


Command = Callable[..., int]


def takes(
    options: Sequence[Option], about: Mapping[str, str] | None = None
) -> Callable[[Command], Command]:
    """Gives a command the flags of options, and the program's, which reach it as keywords.

    Its own flags stand behind ``--machine``, or first. `about` is the help of options that
    mean something of their own to it.
    """
    helps = about or {}

    def decorated(command: Command) -> Command:
        own = [
            p
            for p in inspect.signature(command, eval_str=True).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        program = inspect.signature(_program, eval_str=True).parameters.values()
        taken = [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=Annotated[option.kind, flag(option.name, helps.get(option.name))],
            )
            for option in options
        ]
        behind = next((i + 1 for i, p in enumerate(taken) if p.name == "machine"), 0)
        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in (*program, *taken[:behind], *own, *taken[behind:])
        ]
        # What typer reads of a function.
        command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorated
