"""Tools that are present on this host, and those to install."""

from __future__ import annotations

import importlib.metadata
import os
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
PAGE = native.DATA / "docs" / "how-to" / "install.md"
UNFIT = {
    ("debian", "11"): "version 5.2",
    ("debian", "13"): "built without plugins",
    ("ubuntu", "20.04"): "version 4.2",
    ("ubuntu", "22.04"): "version 6.2",
    ("ubuntu", "24.04"): "built without plugins",
}
"""Systems whose own qemu-user runs no program for Pagewalk, with the reason."""


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
        return [*result, Finding("engine", False, str(error), native.REPAIR)]
    result.append(Finding("engine", True, f"version {native.version()}"))
    result.extend(_live_programs(native.doctor()))
    result.extend([_header(), _pages(), _counters()])
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
            emulator_remedy(),
            needed=False,
        ),
        Finding(
            "plugin",
            bool(plugin["present"]),
            plugin["path"] if plugin["present"] else f"no file {plugin['path']}",
            native.REPAIR,
            needed=False,
        ),
    ]


def _system_names() -> tuple[str, str, set[str]]:
    """The system's name and version, and all names that it has, from os-release."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return "", "", set()
    name = release["ID"]
    return name, release.get("VERSION_ID", ""), {name, *release.get("ID_LIKE", "").split()}


def emulator_remedy() -> str:
    """The command that brings QEMU's user mode on this system, or the page that says how."""
    build = f"build QEMU 10 as {PAGE} says, and set PAGEWALK_QEMU to it"
    name, version, names = _system_names()
    if shutil.which("qemu-x86_64") or "PAGEWALK_QEMU" in os.environ:
        return build
    if reason := UNFIT.get((name, version)):
        return f"{build} (the qemu-user of {name} {version} is {reason})"
    if "debian" in names:
        return "sudo apt-get install qemu-user"
    if name == "fedora":
        return "sudo dnf install qemu-user"
    if "rhel" in names:
        return f"{build} ({name} has no qemu-user)"
    return f"install a qemu-user of version 7.2 to 10.x that loads plugins, or {build}"


def _pages() -> Finding:
    """The documentation, which an installation has, too."""
    found = PAGE.is_file()
    folder = PAGE.parents[1]
    detail = f"{folder}" if found else f"no folder {folder}"
    return Finding("docs", found, detail, native.REPAIR, needed=False)


def _header() -> Finding:
    """The header for programs that mark regions or query the machine."""
    path = Path(get_include()) / "pagewalk.h"
    found = path.is_file()
    detail = f"compile with -I{path.parent}" if found else f"no file {path}"
    return Finding("pagewalk.h", found, detail, native.REPAIR, needed=False)


def _counters() -> Finding:
    """The processor's own counters, to compare results with."""
    perf = shutil.which("perf")
    if perf is None:
        name, _, names = _system_names()
        package = "linux-tools-generic" if name == "ubuntu" else "linux-perf"
        remedy = f"sudo apt-get install {package}" if "debian" in names else "install perf"
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
