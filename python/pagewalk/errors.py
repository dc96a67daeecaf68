"""Errors: invalid requests, failures, and signals.

The text of an error names options of a run as structure. The command line renders them as flags
(``--skip-requests``), the Python API as keywords (``skip_requests``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

FLAGS = {"settings": "--set", "params": "--param", "json_file": "--json", "program": "--"}
"""Flags that differ from the option's name."""


def as_flag(name: str) -> str:
    """An option of a run as on the command line: ``--skip-requests``."""
    return FLAGS.get(name) or "--" + name.replace("_", "-")


@dataclass(frozen=True)
class RunOption:
    """An option of a run in a text. Only the command line shows the `form` of its value."""

    name: str
    form: str = ""

    def __str__(self) -> str:
        """The flag."""
        return f"{as_flag(self.name)} {self.form}".rstrip()

    @property
    def keyword(self) -> str:
        """The keyword in Python."""
        return self.name


@dataclass(frozen=True)
class Param:
    """A parameter of a program, with its value, in a text."""

    name: str
    value: str

    def __str__(self) -> str:
        """The flag with the parameter."""
        return f"{as_flag('params')} {self.name}={self.value}"

    @property
    def keyword(self) -> str:
        """The keyword argument in Python."""
        return f"params={ {self.name: self.value}!r}"


@dataclass(frozen=True)
class Either:
    """A text that the command line and Python have different words for."""

    command_line: str
    keyword: str

    def __str__(self) -> str:
        """The words of the command line."""
        return self.command_line


Part = str | RunOption | Param | Either
"""A piece of a text. `str` makes that of the command line of any."""
Words = Part | Sequence[Part]
Raised = TypeVar("Raised", bound="PagewalkError")


def _parts(text: Words) -> tuple[Part, ...]:
    return (text,) if isinstance(text, (str, RunOption, Param, Either)) else tuple(text)


def _from_engine(part: Any) -> Part:
    """A part as the engine writes it in JSON."""
    if isinstance(part, str):
        return part
    ((kind, value),) = part.items()
    if kind == "option":
        return RunOption(value)
    if kind == "option_form":
        return RunOption(*value)
    return Param(*value) if kind == "param" else str(value)


class PagewalkError(Exception):
    """Base class of both errors of this package.

    `option` is the name in Python of the wrong option, such as ``skip_requests``, or the
    configuration key, such as ``mmu.walkers``, or None. `place` is the place of the cause: a file
    with its line, a design, a machine or a program; None if it is unknown. `text` is the rest of
    the sentence. `str` has all three.
    """

    exit_status = 1
    """Exit status of the command line."""
    beside_program = 125
    """Exit status of a command whose status is otherwise that of the simulated program."""

    def __init__(
        self,
        *text: Part,
        about: Words = (),
        lead: Words | None = None,
        option: str | None = None,
    ) -> None:
        """An error with this text.

        `about` comes before it with a colon, and `lead` without one. The error is about `option`,
        or else about the first `RunOption` in them.
        """
        super().__init__(*text)
        before = _parts(about) if lead is None else _parts(lead)
        named = (part.name for part in before if isinstance(part, RunOption))
        self.option = option or next(named, None)
        self._lead = (*before, ": ") if lead is None and before else before
        self._place: tuple[Part, ...] = ()
        self._in_keywords = False

    @classmethod
    def of_engine(cls: type[Raised], fields: str) -> Raised:
        """An error of the engine from its fields in JSON."""
        given = json.loads(fields)
        text, lead, place = (
            [_from_engine(part) for part in given[name] or []] for name in ("text", "lead", "place")
        )
        error = cls(*text, lead=lead, option=given["option"])
        error._place = tuple(place)
        return error

    def at(self: Raised, place: str) -> Raised:
        """Puts a place before the sentence, and returns the error."""
        self._place = (place, ": ", *self._place) if self._place else (place,)
        return self

    def replace_places(self, places: Mapping[str, str]) -> None:
        """Writes words in place of the paths of files, with or without a line."""

        def replaced(part: Part) -> Part:
            if not isinstance(part, str):
                return part
            for path, words in places.items():
                # A function, because the words are no template of `re`.
                part = re.sub(re.escape(path) + r"(:\d+)?", partial(_same, words), part)
            return part

        self._place = tuple(map(replaced, self._place))

    def rename(self, option: str, new: str) -> None:
        """Names another option in place of one, such as ``designs`` for ``design``."""

        def renamed(part: Part) -> Part:
            if isinstance(part, RunOption) and part.name == option:
                return RunOption(new, part.form)
            return part

        self.option = new if self.option == option else self.option
        self._lead = tuple(map(renamed, self._lead))
        self._place = tuple(map(renamed, self._place))
        self.args = tuple(map(renamed, self.args))

    def forget_place(self, folder: str) -> None:
        """Drops a place that is a file in a temporary folder: the user has not written it."""
        if folder in self._written(self._place):
            self._place = ()

    def in_keywords(self: Raised) -> Raised:
        """Makes the error name options by their keywords, and returns it."""
        self._in_keywords = True
        return self

    @property
    def place(self) -> str | None:
        """The place of the cause, such as a file and a line in it; None if unknown."""
        return self._written(self._place) if self._place else None

    @property
    def text(self) -> str:
        """The sentence without place and option."""
        return self._written(self.args)

    def _written(self, parts: Sequence[Part]) -> str:
        return "".join(
            part.keyword if self._in_keywords and not isinstance(part, str) else str(part)
            for part in parts
        )

    def __str__(self) -> str:
        """The whole sentence."""
        place = (*self._place, ": ") if self._place else ()
        return self._written((*place, *self._lead, *self.args))


@contextmanager
def in_keywords() -> Iterator[None]:
    """Errors raised within name options by their keywords in Python."""
    try:
        yield
    except PagewalkError as error:
        error.in_keywords()
        raise


@contextmanager
def named(option: str, new: str) -> Iterator[None]:
    """Errors raised within name the option that the user has given in place of the engine's."""
    try:
        yield
    except PagewalkError as error:
        error.rename(option, new)
        raise


def _same(text: str, _found: object) -> str:
    return text


@contextmanager
def placed_at(places: Mapping[str, str]) -> Iterator[None]:
    """Errors raised within name these words in place of a file's path and line."""
    try:
        yield
    except PagewalkError as error:
        error.replace_places(places)
        raise


class Terminated(BaseException):
    """A signal that ends the process (SIGTERM, SIGHUP) has arrived; `number` is the signal's.

    No `Exception`, as KeyboardInterrupt is none, so that only cleanup code handles it.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number

    @property
    def exit_status(self) -> int:
        """Exit status of a process that the signal ends, as a shell reports it."""
        return 128 + self.number


class UserError(PagewalkError):
    """An invalid request; the message says what is valid."""

    exit_status = 2
    beside_program = 2


class Failure(PagewalkError):
    """A valid request that could not be fulfilled."""

    exit_status = 1
