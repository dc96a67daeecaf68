"""Tools that are present on this host, and those to install."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from pagewalk import get_include, native
from pagewalk.errors import Failure
from pagewalk.view.terminal import console, grid, line, names, words

if TYPE_CHECKING:
    from pagewalk.engine_types import Installed

LIBRARIES = ("polars", "numpy", "altair", "vl-convert-python")


@dataclass(frozen=True)
class Finding:
    """One thing looked for."""

    name: str
    found: bool
    detail: str
    remedy: str = ""
    needed: bool = True


def findings() -> list[Finding]:
    """Looks for everything that some part of Pagewalk uses."""
    result = [_system(), _python()]
    try:
        native.engine()
    except Failure as error:
        return [*result, Finding("engine", False, str(error), "make build")]
    result.append(Finding("engine", True, f"version {native.version()}"))
    result.extend(_live_programs(native.doctor()))
    result.extend([_header(), _counters()])
    for library in LIBRARIES:
        try:
            detail = f"version {importlib.metadata.version(library)}"
            result.append(Finding(library, True, detail, needed=False))
        except importlib.metadata.PackageNotFoundError:
            result.append(Finding(library, False, "not found", f"pip install {library}", False))
    return result


def _system() -> Finding:
    machine, system = platform.machine(), platform.system()
    good = machine == "x86_64" and system == "Linux"
    return Finding("host", good, f"{system} on {machine}", "use Linux on x86-64")


def _python() -> Finding:
    return Finding("python", True, f"version {platform.python_version()} ({sys.executable})")


def _live_programs(answer: Installed) -> list[Finding]:
    """Requirements of ``-- PROGRAM``."""
    qemu, plugin = answer["qemu"], answer["plugin"]
    found = "Ok" in qemu
    return [
        Finding("cores", True, f"{answer['cores']} of the host's for simulations"),
        Finding(
            "qemu-user",
            found,
            f"{qemu['Ok']}, CPU model {answer['cpu']}"
            if found
            else f"'-- PROGRAM' cannot run: {qemu['Err']}",
            "install a qemu-user of version 7.2 to 10.x that loads plugins",
            needed=False,
        ),
        Finding(
            "plugin",
            bool(plugin["present"]),
            plugin["path"] if plugin["present"] else f"no file {plugin['path']}",
            "make build",
            needed=False,
        ),
    ]


def _header() -> Finding:
    """The header for programs that mark regions or query the machine."""
    path = Path(get_include()) / "pagewalk.h"
    found = path.is_file()
    detail = f"compile with -I{path.parent}" if found else f"no file {path}"
    return Finding("pagewalk.h", found, detail, "install Pagewalk again", needed=False)


def _counters() -> Finding:
    """The processor's own counters, to compare results with."""
    perf = shutil.which("perf")
    if perf is None:
        remedy = "apt-get install linux-perf"
        return Finding("perf", False, "not found (for validation only)", remedy, needed=False)
    counted = subprocess.run(
        [perf, "stat", "-x,", "-e", "instructions:u", "true"],
        capture_output=True,
        text=True,
        check=False,
    )
    good = counted.returncode == 0 and "not supported" not in counted.stderr
    detail = "counts instructions" if good else "finds no counters here (for validation only)"
    return Finding("perf", good, detail, "a host with hardware counters", needed=False)


def report(stream: TextIO) -> int:
    """Prints the findings; the exit status is 1 when something needed is missing."""
    table = grid()
    names(table)
    names(table, "bold")
    words(table)
    found = findings()
    for finding in found:
        mark, style = (
            ("✓", "green")
            if finding.found
            else ("✗", "bold red")
            if finding.needed
            else ("–", "yellow")
        )
        detail = line(finding.detail)
        if not finding.found and finding.remedy:
            detail += line(f"; to have it: {finding.remedy}", style="bold")
        table.add_row(line(mark, style=style), finding.name, detail)
    console(stream).print(table)
    return 1 if any(f.needed and not f.found for f in found) else 0
