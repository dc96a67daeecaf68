"""A real pseudo-terminal of some width, and what a program shows in it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

from rich.cells import cell_len

WIDTHS = [60, 80, 100, 140, 200]

_STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Sequences that set colours; no others that move or change a terminal."""


#: Runs a module without a progress bar, which else appears when the host is slow.
_PATIENT = """
import runpy
from pagewalk.view import progress
progress.PATIENCE = 3600
runpy.run_module("pagewalk", run_name="__main__", alter_sys=True)
"""


def shown(
    width: int,
    *arguments: str | Path,
    terminal: str = "xterm-256color",
    raw: bool = False,
    **variables: str,
) -> tuple[int, str]:
    """Runs Python with `arguments` in a terminal of `width` columns: status, text without colours.

    Anything but text, ends of lines and colours is refused, and so is a line that is too long.
    What is `raw` has its colours. `variables` are of the environment.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    drop = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    environment = {k: v for k, v in os.environ.items() if k not in drop}
    environment |= {"TERM": terminal, **variables}
    if arguments[:2] == ("-m", "pagewalk"):
        arguments = ("-c", _PATIENT, *arguments[2:])
    process = subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=environment,
        start_new_session=True,
    )
    os.close(slave)
    said = b""
    while True:
        try:
            part = os.read(master, 1 << 16)
        except OSError:  # Linux says so when the last writer has gone.
            break
        if not part:
            break
        said += part
    os.close(master)
    text = _STYLE.sub("", said.decode()).replace("\r\n", "\n")
    assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text) == []
    for line in text.split("\n"):
        assert cell_len(line) <= width, line
    return process.wait(timeout=60), said.decode() if raw else text


def holds(text: str, number: str) -> bool:
    """True if a text has the whole number."""
    return re.search(rf"(?<![\w.,…]){re.escape(number)}(?![\w.…])", text) is not None
