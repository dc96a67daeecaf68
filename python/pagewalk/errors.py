"""The two ways in which a simulation does not work out."""


class PagewalkError(Exception):
    """What both errors of this package are."""

    exit_status = 1
    """What the command line ends with."""
    beside_program = 125
    """The same where the status is otherwise that of a program that was run."""


class UserError(PagewalkError):
    """What was asked for makes no sense; the message says what would."""

    exit_status = 2
    beside_program = 2


class Failure(PagewalkError):
    """What was asked for makes sense, and could not be done."""

    exit_status = 1
