"""Files of an installed package beside its modules."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pagewalk
from live import needs
from pagewalk import native
from pagewalk.host import doctor

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]


def packed() -> set[Path]:
    """The files that pyproject.toml includes in the wheel."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    included = [i["path"] for i in project["tool"]["maturin"]["include"]]
    return {path for pattern in included for path in ROOT.glob(pattern)}


def test_the_wheel_has_the_headers_where_get_include_says() -> None:
    headers = {path.name for path in packed() if path.suffix == ".h"}
    assert headers == {path.name for path in (ROOT / "include").glob("*.h")}
    assert "pagewalk.h" in headers
    include = Path(pagewalk.get_include())
    assert {include / name for name in headers} <= packed()


@needs("cc")
def test_a_program_compiles_with_the_packages_header(tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text('#include "pagewalk.h"\nint main(void) { pagewalk_roi_begin(); return 0; }\n')
    out = tmp_path / "program"
    subprocess.run(["cc", "-I", pagewalk.get_include(), "-o", out, source], check=True)
    assert subprocess.run([out], check=False).returncode == 0


def test_the_wheel_has_every_page_and_no_link_between_pages_is_dead() -> None:
    data = ROOT / "python" / "pagewalk" / "_data"
    carried = {path.relative_to(data) for path in packed()}
    for page in (ROOT / "docs").rglob("*.md"):
        assert page.relative_to(ROOT) in carried
        text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
        for target in re.findall(r"\]\((?![a-z]+:)([^)#\s]+\.(?:md|svg))", text):
            linked = (page.parent / target).resolve().relative_to(ROOT)
            # The wheel has no sources and no developers' notes.
            sources = {"crates", "papers", "linux", "rtl", "elastic", "lookaside"}
            if linked.parts[0] not in sources | {"CONTRIBUTING.md", "README.md"}:
                assert linked in carried, f"{page}: {target}"


def test_the_licence_covers_the_plugin_too() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "(MIT OR Apache-2.0) AND GPL-2.0-or-later"
    texts = [(ROOT / name).read_text() for name in project["license-files"]]
    for words in ("Apache License", "Permission is hereby granted", "GNU GENERAL PUBLIC LICENSE"):
        assert sum(words in text for text in texts) == 1, words
    assert project["authors"]


RELEASES = {
    "debian 12": ("ID=debian VERSION_ID=12", "sudo apt-get install qemu-user"),
    "mint": (
        "ID=linuxmint VERSION_ID=22 ID_LIKE='ubuntu debian'",
        "sudo apt-get install qemu-user",
    ),
    "debian 13": ("ID=debian VERSION_ID=13", "is built without plugins"),
    "ubuntu 22": ("ID=ubuntu VERSION_ID=22.04 ID_LIKE=debian", "is version 6.2"),
    "ubuntu 24": ("ID=ubuntu VERSION_ID=24.04 ID_LIKE=debian", "is built without plugins"),
    "fedora": ("ID=fedora VERSION_ID=41", "sudo dnf install qemu-user"),
    "rocky": ("ID=rocky VERSION_ID=9.4 ID_LIKE='rhel centos fedora'", "rocky has no qemu-user"),
    "arch": ("ID=arch", "install a qemu-user of version 7.2 to 10.x"),
}


@pytest.mark.parametrize("name", RELEASES)
def test_doctor_names_the_way_to_an_emulator_on_this_system(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, expected = RELEASES[name]
    release = dict(re.findall(r"(\w+)='?([^'=]+?)'?(?= \w+=|$)", text))
    monkeypatch.setattr(platform, "freedesktop_os_release", lambda: release)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PAGEWALK_QEMU", raising=False)
    remedy = doctor.emulator_remedy()
    assert expected in remedy
    page = str(native.DATA / "docs/how-to/install.md")
    assert (page in remedy) != remedy.startswith("sudo"), remedy
    # An emulator that is there, and is refused, needs no package.
    shutil.copy("/bin/true", tmp_path / "qemu-x86_64")
    assert remedy != doctor.emulator_remedy() or not remedy.startswith("sudo")
    assert page in doctor.emulator_remedy()


def test_an_installation_without_a_checkout_is_not_told_to_build(tmp_path: Path) -> None:
    """The page of the remedy is where doctor says, and nothing advises `make`."""
    package = tmp_path / "pagewalk"
    shutil.copytree(Path(pagewalk.__file__).parent, package, ignore=shutil.ignore_patterns("*.so"))
    done = subprocess.run(
        [sys.executable, "-m", "pagewalk", "doctor"],
        env={"PATH": os.defpath, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "install the wheel again" in " ".join(done.stdout.split())
    assert "make build" not in done.stdout
