"""Machines in the user's configuration folder, which ``pagewalk calibrate`` writes.

A machine is found by name among the shipped ones first. A file of the user's with a shipped name
would be hidden, so calibration refuses such names.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagewalk import native
from pagewalk.config.config import is_path, read
from pagewalk.engine_types import Shipped
from pagewalk.errors import UserError
from pagewalk.host import files

Json = dict[str, Any]

HOST = "host"
"""Name of the machine that is the default of ``run``, ``compare`` and ``validate`` if it exists."""
SHIPPED = "epyc-milan"
"""The default machine of everything else."""


def folder() -> Path:
    """The folder of the user's machines, which need not exist (XDG Base Directory)."""
    given = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification has relative paths ignored.
    base = Path(given) if given.startswith("/") else Path.home() / ".config"
    return base / "pagewalk" / "machines"


def users() -> dict[str, Path]:
    """The user's machines by name, without those that a shipped one hides."""
    try:
        found = sorted(folder().glob("*.toml"))
    except OSError:
        return {}
    return {one.stem: one for one in found if not shipped(one.stem) and one.is_file()}


def shipped(name: str) -> bool:
    """True if a machine of this name is shipped."""
    return files.is_file(native.DATA / "machines" / f"{name}.toml")


def listed() -> list[Shipped]:
    """The user's machines as a catalogue lists them, without files that are no TOML."""
    entries: list[Shipped] = []
    for name, path in users().items():
        try:
            about = read(path)
        except UserError:
            continue
        text = {key: str(about.get(key, "")) for key in ("description", "source")}
        entries.append(
            {
                "name": name,
                "path": str(path),
                "description": text["description"],
                "source": text["source"],
            }
        )
    return entries


def found(name: str) -> str:
    """The path of a user's machine of this name; any other name as it is."""
    if is_path(name) or shipped(name):
        return name
    path = folder() / f"{name}.toml"
    return str(path) if files.is_file(path) else name


@dataclass(frozen=True)
class Calibrated:
    """The user's calibrated machine of this host."""

    path: Path
    hypervisor: bool
    """The host was a virtual machine when it was calibrated."""

    @classmethod
    def of_user(cls) -> Calibrated | None:
        """The machine `HOST` in the user's folder, if there is one.

        Raises `UserError` for a file that is no TOML.
        """
        path = users().get(HOST)
        if path is None:
            return None
        about = read(path).get("calibrated")
        hypervisor = isinstance(about, dict) and about.get("hypervisor") is True
        return cls(path, hypervisor)
