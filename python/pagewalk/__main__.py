"""The entry of the command line: the way out for every error."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import NoReturn

from pagewalk.output import OutputLost, guarded
from pagewalk.visible import visible

_READER_LEFT = 128 + 13
"""What a shell calls the status of a program whose reader has seen enough (SIGPIPE)."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits with its status."""
    arguments = sys.argv[1:] if argv is None else argv
    with guarded():
        try:
            status = _run(arguments)
            sys.stdout.flush()
        except OutputLost as lost:
            status = _READER_LEFT
            if not lost.reader_left:
                status = lost.beside_program if "--" in arguments else lost.exit_status
                _complain(str(lost))
        except KeyboardInterrupt:
            _complain("interrupted")
            # A simulation may still run in its thread; nobody waits for it.
            with suppress(OutputLost):
                sys.stdout.flush()
            sys.stderr.flush()
            os._exit(130)
    sys.exit(status)


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        from pagewalk import native

        print(f"pagewalk {native.version()}")
        return 0

    from typer import Abort, Exit, TyperException

    from pagewalk.cli import Invocation, app
    from pagewalk.errors import PagewalkError

    arguments, program = _split(arguments)
    try:
        status = app(
            args=arguments or ["--help"],
            prog_name="pagewalk",
            standalone_mode=False,
            obj=Invocation(program),
        )
    except OutputLost:
        raise
    except PagewalkError as error:
        _complain(str(error))
        return error.exit_status if program is None else error.beside_program
    except TyperException as error:
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else "pagewalk"
        message = error.format_message().rstrip(".")
        _complain(f"{message[:1].lower()}{message[1:]}; see '{path} --help'")
        return 2
    except Exit as exit_:
        return exit_.exit_code
    except Abort:
        raise KeyboardInterrupt from None
    return status if isinstance(status, int) else 0


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """What follows ``--`` is a program with its arguments, whatever it looks like."""
    if "--" not in arguments:
        return arguments, None
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def _complain(message: str) -> None:
    message = visible(message)
    if sys.stderr.isatty() and "NO_COLOR" not in os.environ:
        print(f"\033[1;31merror:\033[0m {message}", file=sys.stderr)
    else:
        print(f"error: {message}", file=sys.stderr)


if __name__ == "__main__":
    main()
