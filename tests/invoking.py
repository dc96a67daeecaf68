"""Calls of the command line by the fixtures `invoke` and `cli`."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

Completed = subprocess.CompletedProcess[str]
Cli = Callable[..., Completed]
"""Runs the command line in a process of its own."""
Invoke = Callable[..., tuple[int, str, str]]
"""Runs it in this process: status, output, error output."""


def output_of(invoke: Invoke, *arguments: str) -> str:
    """The output of a command that succeeds with nothing on standard error."""
    status, out, err = invoke(*arguments)
    assert (status, err) == (0, "")
    return out


def refused(invoke: Invoke, *arguments: str, status: int = 2) -> str:
    """The one-line error of a command that fails."""
    was, out, err = invoke(*arguments)
    assert (was, out) == (status, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return err


def written(invoke: Invoke, folder: Path, *arguments: str) -> tuple[str, dict[str, Path]]:
    """The output of a command, and the files of results that it writes."""
    paths = {kind: folder / f"r.{kind}" for kind in ("json", "parquet", "html")}
    flags = [f"--{kind}={path}" for kind, path in paths.items()]
    status, out, err = invoke(*arguments, *flags)
    assert status == 0, err
    return out, paths
