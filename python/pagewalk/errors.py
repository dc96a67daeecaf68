"""The two ways in which a simulation does not work out."""


class PagewalkError(Exception):
    """What both errors of this package are."""

    exit_status = 1


class Terminated(BaseException):
    """A signal asks the process to end (SIGTERM, SIGHUP); `number` is the signal's.

    Not an `Exception`, as Ctrl-C's is none: what is under way is put away, nothing goes on.
    """

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.number = number

    @property
    def exit_status(self) -> int:
        """What a shell calls the status of a process that the signal ends."""
        return 128 + self.number


class UserError(PagewalkError):
    """What was asked for makes no sense; the message says what would."""

    exit_status = 2


class Failure(PagewalkError):
    """What was asked for makes sense, and could not be done."""

    exit_status = 1
