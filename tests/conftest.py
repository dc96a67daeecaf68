from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fake
import live
from invoking import Cli, Completed, Invoke

# These signals may be ignored when the tests start (nohup, a shell's background). Processes that
# tests start would inherit that. With a handler, only the tests themselves ignore them.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

# Readline, which pytest loads, sets these to the size of a terminal, in the environment of C alone.
# Output into pipes has none.
for _name in ("COLUMNS", "LINES"):
    os.environ.pop(_name, None)
    os.unsetenv(_name)

# A machine that the user has calibrated would be the default.
os.environ["XDG_CONFIG_HOME"] = str(Path(__file__).parent / "no-configuration")


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Looks for the programs and headers of a test before its fixtures are made."""
    live.look_for(*(name for mark in item.iter_markers("needs") for name in mark.args))


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> fake.Engine:
    """A stand-in for the engine that answers at once."""
    return fake.install(monkeypatch, fake.Engine())


@pytest.fixture
def invoke(capfd: pytest.CaptureFixture[str]) -> Invoke:
    """Runs the command line in this process: status, output, error output."""
    from pagewalk.__main__ import main

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main(list(arguments))
        out, err = capfd.readouterr()
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, out, err

    return run


@pytest.fixture
def cli() -> Cli:
    """Runs the installed command line in a process of its own."""

    def run(*arguments: str | Path, **options: Any) -> Completed:
        options = {"capture_output": True, "text": True, "timeout": 600, **options}
        return subprocess.run(
            [sys.executable, "-m", "pagewalk", *map(str, arguments)], check=False, **options
        )

    return run
