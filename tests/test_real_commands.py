"""A dozen of the commands that `scripts/real_programs.py` runs, those that every Debian has."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from live import needs_qemu

pytestmark = [pytest.mark.qemu, needs_qemu]


def _script() -> ModuleType:
    path = Path(__file__).parents[1] / "scripts" / "real_programs.py"
    spec = importlib.util.spec_from_file_location("real_programs", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


real = _script()
# Commands that differ in their use of pipes, threads, children, signals, statuses and files.
CHOSEN = [
    "sort --parallel=4",
    "shuf --random-source",
    "timeout 5",
    "cp -r tree",
    "xargs -P 3",
    "sed -i",
    "trap 'echo caught'",
    "mkfifo p",
    "kill -9 $$",
    "dash -c",
    "waitpid",
    "tar czf",
]


@pytest.mark.parametrize("word", CHOSEN)
def test_a_command_does_the_same_recorded(word: str, tmp_path: Path) -> None:
    (command,) = [c for c in real.commands() if word in c.text]
    if not real.is_there(command.package):
        # Debian installs all of them in any case; another system may have programs of its own
        # in their place, of which nothing is known here.
        pytest.skip(f"{command.package} is not installed")
    said: list[str] = []
    assert real.compared(command, tmp_path / "t.pwt", said.append), said


def test_a_difference_is_printed(tmp_path: Path) -> None:
    # The link of another process shows the emulator.
    command = real.Command("bash", "readlink /proc/$$/exe; true")
    said: list[str] = []
    assert not real.compared(command, tmp_path / "t.pwt", said.append)
    assert "output: " in said[0]
