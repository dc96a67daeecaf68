"""The entry of the command line: the way out for every error."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import NoReturn

from pagewalk.errors import Failure, Terminated
from pagewalk.view.escape import visible
from pagewalk.view.output import OutputLost, guarded, reason

_LONGEST = 200
"""Letters of a file's name that a message shows whole."""
_EXPECTED = (
    (r"Input should be a valid integer.*", "expected a whole number"),
    (r"Input should be a valid number.*", "expected a number"),
    (r"Input should be greater than or equal to (\S+)", r"expected \1 or more"),
    (r"Input should be less than or equal to (\S+)", r"expected at most \1"),
)
"""Messages of the library that reads numbers, and our own words for them."""
_READER_LEFT = 128 + 13
"""Exit status of a program that SIGPIPE has ended, as a shell reports it."""


def main(argv: list[str] | None = None) -> NoReturn:
    """Runs the command line and exits with its status."""
    arguments = sys.argv[1:] if argv is None else argv
    with _ended_by_signals(), guarded():
        try:
            status = _run(arguments)
            sys.stdout.flush()
        except OutputLost as lost:
            status = _READER_LEFT
            if not lost.reader_left:
                status = lost.beside_program if "--" in arguments else lost.exit_status
                _complain(str(lost))
        except MemoryError:
            status = Failure.exit_status
            _complain(
                "the host gives no more memory; take a smaller program or fewer designs at a "
                "time, or raise the limit (ulimit -v, the container's)"
            )
        except OSError as error:
            # A name that the file system refuses, such as one of thousands of letters.
            status = Failure.exit_status
            _complain(f"{shortened(error.filename)}: {reason(error)}; check the name")
        except ImportError as error:
            # A limit of memory may leave no room for a library.
            status = Failure.exit_status
            _complain(f"a library cannot be loaded: {error}; see 'pagewalk doctor'")
        except KeyboardInterrupt:
            _complain("interrupted")
            _leave(128 + signal.SIGINT)
        except Terminated as ended:
            name = signal.Signals(ended.number).name
            _complain("interrupted" if ended.number == signal.SIGINT else f"ended by {name}")
            _leave(ended.exit_status)
    sys.exit(status)


def shortened(name: object) -> str:
    """A file's name for a message, with its middle left out if it is very long."""
    text = visible(str(name))
    return text if len(text) <= _LONGEST else f"{text[:40]}…{text[-40:]}"


def _leave(status: int) -> NoReturn:
    """Ends the process without waiting for a simulation that may still run in its thread."""
    with suppress(OutputLost):
        sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turns SIGTERM and SIGHUP into `Terminated`, so that temporary folders are removed.

    A signal that is ignored, as under nohup, stays ignored.
    """
    ending = (signal.SIGTERM, signal.SIGHUP)

    def end(number: int, _frame: FrameType | None) -> None:
        # A second signal would interrupt the cleanup of the first.
        for each in ending:
            signal.signal(each, signal.SIG_IGN)
        raise Terminated(number)

    heard = [number for number in ending if signal.getsignal(number) is signal.SIG_DFL]
    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        from pagewalk import native

        print(f"pagewalk {native.version()}")
        return 0

    from typer import Abort, Exit, TyperException

    from pagewalk.cli import Invocation, app
    from pagewalk.errors import PagewalkError
    from pagewalk.native import nearest

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
        # Typer's suggestions of a name get the form of our own errors.
        message = re.sub(r"\. Did you mean (.*)\?$", r"; did you mean \1?", message)
        for pattern, words in _EXPECTED:
            message = re.sub(pattern, words, message)
        given = getattr(error, "option_name", "")
        if path == "pagewalk" and message.startswith("No such option"):
            message = re.sub(r"; did you mean .*| \(Possible .*", "", message)
            message += "; options follow the command, as in: pagewalk run --design thp"
        message = re.sub(
            r" \(Possible options: (.*)\)$",
            # The nearest of them: they come in the order of the alphabet.
            lambda all_: f"; did you mean {nearest(given, all_[1].split(', ')) or all_[1]}?",
            message,
        )
        _complain(f"{message[:1].lower()}{message[1:]}; see '{path} --help'")
        return 2
    except Exit as exit_:
        return exit_.exit_code
    except Abort:
        raise KeyboardInterrupt from None
    return status if isinstance(status, int) else 0


def _split(arguments: list[str]) -> tuple[list[str], list[str] | None]:
    """Pagewalk's own arguments, and the program with its arguments after ``--`` (None without)."""
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
