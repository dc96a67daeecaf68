"""The machine file of a calibration: the base's keys, with those that were determined."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pagewalk import native
from pagewalk.calibrate.findings import Finding
from pagewalk.config import machines
from pagewalk.config.config import read, toml
from pagewalk.engine_types import HostProcessor
from pagewalk.errors import UserError
from pagewalk.host import files

Json = dict[str, Any]

NEEDED = (
    "mmu.l1d.main.entries",
    "mmu.l2.main.entries",
    "memory.l3.size_kb",
    "memory.dram.ddr.channels",
)
"""Keys of a machine that the rules apply to."""
_ABOUT = ("description", "source")


def nearest_base(processor: HostProcessor) -> tuple[str, str | None]:
    """The shipped machine that a host resembles most, and a note where it is another processor."""
    # Families of AMD: Zen 3 is 19h with models below 10h, 20h to 5Fh (AMD's revision guides).
    zen3 = processor["family"] == 0x19 and (
        processor["model"] < 0x10 or 0x20 <= processor["model"] < 0x60
    )
    if processor["vendor"] == "AuthenticAMD" and zen3:
        return machines.SHIPPED, None
    return machines.SHIPPED, (
        f"no shipped machine is like {processor['name']} (family {processor['family']:#x}, model "
        f"{processor['model']:#x}): keys that are not determined are those of {machines.SHIPPED}"
    )


def load_base(name: str) -> Json:
    """The keys of a shipped machine. Raises `UserError` for an unknown or an unsuitable one."""
    known = {one["name"]: one["path"] for one in native.machines()}
    if name not in known:
        hint = native.suggestion(name, known)
        raise UserError(
            f"--base: there is no shipped machine '{name}'; expected one of "
            f"{', '.join(known)}{hint}"
        )
    fields = read(Path(known[name]))
    missing = [key for key in NEEDED if _at(fields, key) is None]
    if missing:
        raise UserError(
            f"--base: {name} has no {missing[0]}, which is calibrated; expected a machine such as "
            f"{machines.SHIPPED}"
        )
    return fields


def check_name(name: str) -> Path:
    """The path of the file to write.

    Raises `UserError` for a name that hides behind a shipped one, or that cannot name a file.
    """
    files.naming(
        name,
        name.isprintable() and not name.startswith(".") and "," not in name,
        f"--name: '{name}' cannot name a machine; expected letters, digits and dashes",
    )
    if machines.shipped(name):
        raise UserError(f"--name: a machine '{name}' is shipped; expected another name")
    return machines.folder() / f"{name}.toml"


def merged(base: Mapping[str, Any], found: Sequence[Finding]) -> Json:
    """The base's keys with the values that were determined."""
    fields = copy.deepcopy(dict(base))
    for finding in found:
        if finding.value is None:
            continue
        *tables, key = finding.key.split(".")
        into = fields
        for table in tables:
            into = into.setdefault(table, {})
        into[key] = finding.value
    return fields


def text(
    name: str,
    base: str,
    fields: Mapping[str, Any],
    found: Sequence[Finding],
    processor: HostProcessor,
) -> str:
    """The file. Equal findings give equal bytes."""
    about = {one.key: one for one in found}
    lines = [
        f"# Written by 'pagewalk calibrate'. Keys without a comment are those of {base}.",
        "# A spread goes from the least time to the median; a residual is the largest distance",
        "# from the rule's form. Other load on the host can only add time.",
    ]
    undetermined = [one for one in found if one.value is None]
    if undetermined:
        lines.append(f"# Not determined, so as in {base}:")
        lines += [f"#   {one.key}: {one.origin}" for one in undetermined]
    described = f"{processor['name']}, calibrated on this host"
    source = f"pagewalk calibrate {native.version()}, over {base}"
    lines += [
        f"description = {json.dumps(described, ensure_ascii=False)}",
        f"source = {json.dumps(source)}",
        "",
    ]
    tables: list[str] = []
    _table("", {k: v for k, v in fields.items() if k not in _ABOUT}, about, lines, tables)
    lines += tables
    lines += ["", "[calibrated]"]
    for key in ("vendor", "family", "model", "hypervisor"):
        lines.append(f"{key} = {toml(processor[key], key)}")
    lines.append(f"base = {json.dumps(base)}")
    return "\n".join(lines) + "\n"


def _table(
    path: str,
    fields: Mapping[str, Any],
    about: Mapping[str, Finding],
    lines: list[str],
    tables: list[str],
) -> None:
    """Appends the values of a table to `lines`, and its tables behind all of them to `tables`."""
    for key, value in fields.items():
        here = f"{path}.{key}" if path else key
        if isinstance(value, Mapping):
            inner: list[str] = []
            behind: list[str] = []
            _table(here, value, about, inner, behind)
            if inner or not behind:
                tables += ["", f"[{here}]", *inner]
            tables += behind
        else:
            finding = about.get(here)
            comment = f"  # {comment_of(finding)}" if finding and finding.value is not None else ""
            lines.append(f"{key} = {toml(value, here)}{comment}")


def comment_of(finding: Finding) -> str:
    """Origin, spread, residual and confidence of a value."""
    parts = [finding.origin]
    if finding.estimate is not None:
        low, high = finding.estimate.spread
        parts.append(f"spread {low:.4g} to {high:.4g}")
        parts.append(f"residual {100 * finding.estimate.residual:.1f} %")
    parts.append(finding.confidence)
    return "; ".join(parts)


def write(path: Path, content: str) -> None:
    """Writes the file, whole or not at all, and its folder.

    Raises `UserError` where no folder can be made.
    """
    check_folder(path.parent)
    files.write(str(path), content.encode())


def check_folder(folder: Path) -> None:
    """Makes the folder. Raises `UserError` where nothing can be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"{folder}: the folder cannot be made ({error.strerror}); make it writable, or set "
            "XDG_CONFIG_HOME to another one"
        ) from None
    files.check_writable(str(folder / "x"), str(folder))


def _at(fields: Mapping[str, Any], key: str) -> Any:
    found: Any = fields
    for part in key.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found
