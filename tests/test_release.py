"""A release is refused, with a reason, unless everything about it is in order."""

from __future__ import annotations

import importlib.util
import re
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "scripts" / "release.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_unreleased_section_gets_version_and_date(script: ModuleType) -> None:
    before = (
        "# Changelog\n\n## 0.2.0 (not yet released)\n\n- New.\n\n## 0.1.0 (2026-01-02)\n\n- Old.\n"
    )
    after = before.replace("0.2.0 (not yet released)", "0.2.0 (2026-03-04)")
    assert script.dated(before, "0.2.0", "2026-03-04") == after


@pytest.mark.parametrize(
    ("changelog", "reason"),
    [
        ("# Changelog\n\n## 0.1.0 (2026-01-02)\n\n- Old.\n", "must be unreleased"),
        ("# Changelog\n", "must be unreleased"),
        ("## 0.2.0 (not yet released)\n\n## 0.1.0 (2026-01-02)\n\n- Old.\n", "no entry"),
    ],
)
def test_a_changelog_without_new_entries_is_refused(
    script: ModuleType, changelog: str, reason: str
) -> None:
    with pytest.raises(script.ReleaseError, match=reason):
        script.dated(changelog, "0.2.0", "2026-03-04")


@pytest.mark.parametrize(
    ("version", "reason"),
    [
        ("0.9.0", "does not come after 0.10.0"),
        ("0.10.0", "does not come after 0.10.0"),
        ("0.10.1", "comes before 0.11.0"),
        ("v1", "no version"),
        ("0.12", "no version"),
    ],
)
def test_a_version_that_does_not_come_next_is_refused(
    script: ModuleType, version: str, reason: str
) -> None:
    with pytest.raises(script.ReleaseError, match=reason):
        script.check_order(version, "0.11.0", ["v0.10.0", "v0.2.0", "other"])


def test_a_version_that_comes_next_is_accepted(script: ModuleType) -> None:
    script.check_order("0.11.0", "0.11.0", ["v0.10.0"])
    script.check_order("0.2.0", "0.1.0", [])


def test_the_versions_of_other_libraries_are_not_of_glibc(script: ModuleType) -> None:
    assert script.glibc("GLIBC_2.2.5") == (2, 2)
    assert script.glibc("GLIBC_2.34") == (2, 34)
    assert script.glibc("GCC_3.0") == (0, 0)
    assert script.glibc("GLIBC_PRIVATE") == (0, 0)


def test_an_uncommitted_change_is_refused_and_nothing_is_changed(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "Cargo.toml").write_text('version = "0.1.0"\n')
    monkeypatch.setattr(script, "ROOT", tmp_path)
    with pytest.raises(script.ReleaseError, match="not committed"):
        script.release("0.2.0", dry=False)
    assert [path.name for path in tmp_path.iterdir() if path.name != ".git"] == ["Cargo.toml"]


def test_citation_and_package_have_one_version() -> None:
    package = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    citation = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert package and citation
    assert package[1] == citation[1]
