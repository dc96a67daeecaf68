"""Declared options as flags of commands."""

from __future__ import annotations

import inspect
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from pagewalk.config import completion
from pagewalk.config.options import BY_NAME, Option
from pagewalk.errors import Terminated, UserError

Function = TypeVar("Function", bound=Callable[..., Any])


RENAMED = {"--most": "--max-regions"}
"""Flags of the release before, by their new names: an error names the new one."""


class Command(TyperCommand):
    """A command that takes an option which has one value once: the last of two would win unsaid."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Reads the command line.

        Raises `UserError` for an option that stands there twice, or has a new name.
        """
        taken = {flag for parameter in self.params for flag in parameter.opts}
        for flag in (word.partition("=")[0] for word in args):
            if (new := RENAMED.get(flag)) in taken:
                raise UserError(f"{flag} is now {new}")
            # With one dash it would be read as several short options.
            if f"-{flag}" in taken and flag not in taken:
                raise UserError(f"{flag} is no option; did you mean -{flag}?")
        given = self.make_parser(ctx).parse_args(args=list(args))[2]
        seen: set[str | None] = set()
        for option in given:
            single = isinstance(option, TyperOption) and not (option.multiple or option.is_flag)
            if single and option.name in seen:
                flag = max(option.opts, key=len)
                raise UserError(f"{flag} is given twice; expected it once, since it has one value")
            seen.add(option.name)
        rest: list[str] = super().parse_args(ctx, args)
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Runs the command. Ctrl-C ends it as other signals do: typer would make a status of it."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise Terminated(signal.SIGINT) from None


class FirstIsDefault(TyperGroup):
    """Commands with a default, the first: `pagewalk sweep study.toml` names none."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the default command before arguments that name none."""
        if not args or args[0] not in {*self.commands, *ctx.help_option_names}:
            args = [next(iter(self.commands)), *args]
        rest: list[str] = super().parse_args(ctx, args)
        return rest


class App(typer.Typer):
    """A command line whose commands are of that kind."""

    def command(self, name: str | None = None, **more: Any) -> Callable[[Function], Function]:
        """Adds a command."""
        return super().command(name, **{"cls": Command, **more})


_OFFERED: Mapping[str, Callable[..., completion.Words]] = {
    "design": completion.design,
    "designs": completion.designs,
    "machine": completion.machine,
    "settings": completion.setting,
    "workload": completion.workload,
    "params": completion.param,
    "mix": completion.mix,
}
"""Completion of an option's values; for other options the shell completes files."""


def flag(option: Option, about: str | None = None, *, show_default: bool | str = True) -> Any:
    """The option as typer declares it; `about` replaces its help."""
    return typer.Option(
        option.spelled + (f"/--no-{option.spelled[2:]}" if option.both_ways else ""),
        *([option.short] if option.short else []),
        # A flag has no value to give, whatever its type is called.
        metavar="" if option.kind in (bool, bool | None) else option.metavar,
        help=about or option.help,
        show_default=show_default,
        rich_help_panel=option.panel,
        min=option.least,
        autocompletion=_OFFERED.get(option.name),
    )


Extra = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="-- PROGRAM ARGS…", help="Any Linux x86-64 program.", show_default=False
    ),
]
Seed = Annotated[int, flag(BY_NAME["seed"])]
JsonFile = Annotated[str | None, flag(BY_NAME["json_file"])]


def _program(ctx: typer.Context, extra: Extra = None) -> None:
    """The parameters of every command that runs a program."""
    raise AssertionError("its signature is read, it is never called")


Body = Callable[..., int]


def takes(
    options: Sequence[Option], about: Mapping[str, str] | None = None, *, program: bool = True
) -> Callable[[Body], Body]:
    """Gives a command the flags of options, which reach it as keywords.

    The command's own flags follow ``--machine``, or come first. `about` is the help of options
    that mean something of their own to the command. One that runs a `program` gets the keywords
    `ctx` and `extra` too.
    """
    helps = about or {}

    def decorated(command: Body) -> Body:
        own = [
            p
            for p in inspect.signature(command, eval_str=True).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        runs = inspect.signature(_program, eval_str=True).parameters.values() if program else ()
        taken = [
            inspect.Parameter(
                option.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=option.default,
                annotation=Annotated[option.kind, flag(option, helps.get(option.name))],
            )
            for option in options
        ]
        behind = next((i + 1 for i, p in enumerate(taken) if p.name == "machine"), 0)
        parameters = [
            p.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for p in (*runs, *taken[:behind], *own, *taken[behind:])
        ]
        # Typer reads the parameters of a command from these two attributes.
        command.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorated
