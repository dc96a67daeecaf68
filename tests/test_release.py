"""A release is refused, with a reason, unless everything about it is in order."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
import subprocess
import sys
import zipfile
from email.message import Message
from email.parser import BytesParser
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


URL = "https://code.example/lab/pagewalk"
RELATIVE = re.compile(r"\]\((?!https://)|^\[[^\]]*\]:|<img|<a ", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
CARRIED = ("docs/add-a-design.md", "docs/how-to/sweep.md", "CHANGELOG.md")


def wheel_in(folder: Path) -> Path:
    """A wheel with the metadata that maturin writes, and two files of the package."""
    wheel = folder / "pagewalk-0.2.0-cp310-abi3-linux_x86_64.whl"
    files = {f"pagewalk/_data/{name}": f"# {name}\n" for name in CARRIED}
    info = "pagewalk-0.2.0.dist-info"
    readme = (ROOT / "README.md").read_text()
    files[f"{info}/METADATA"] = (
        "Metadata-Version: 2.4\nName: pagewalk\nVersion: 0.2.0\n"
        f"Description-Content-Type: text/markdown; charset=UTF-8; variant=GFM\n\n{readme}"
    )
    files[f"{info}/sboms/pagewalk.json"] = f'{{"place": "path+file://{ROOT}/crates/cpu"}}'
    record = [f"{name},sha256={digest(text.encode())},{len(text)}" for name, text in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*record, f"{info}/RECORD,,"]) + "\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return wheel


def digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def metadata(wheel: Path) -> tuple[Message, str]:
    """A wheel's metadata and its description, after a check of its list of files."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    (record,) = (name for name in contents if name.endswith("RECORD"))
    lines = [line.split(",") for line in contents[record].decode().splitlines()]
    assert {name for name, _, _ in lines} == set(contents)
    for name, hashed, size in lines:
        if name != record:
            assert hashed == f"sha256={digest(contents[name])}", name
            assert int(size) == len(contents[name]), name
    assert str(ROOT).encode() not in b"".join(contents.values())
    (name,) = (name for name in contents if name.endswith("METADATA"))
    message = BytesParser().parsebytes(contents[name])
    return message, contents[name].decode().partition("\n\n")[2]


def test_without_a_url_the_description_has_no_dead_link(script: ModuleType, tmp_path: Path) -> None:
    wheel = wheel_in(tmp_path)
    readme = (ROOT / "README.md").read_text()
    assert RELATIVE.search(readme)
    script.describe(wheel, ROOT, None, "")
    message, text = metadata(wheel)
    assert message.get_all("Project-URL") is None
    assert message["Version"] == "0.2.0"
    assert not RELATIVE.search(text)
    assert FENCE.findall(text) == FENCE.findall(readme)
    # The package has this page, and lacks that one.
    assert "your own (`docs/add-a-design.md`)" in text
    assert "docs/sampling.md" not in text
    assert "[rustup](https://rustup.rs)" in text
    assert "compare.svg" not in text


def test_with_a_url_every_link_leads_to_a_file_of_the_release(
    script: ModuleType, tmp_path: Path
) -> None:
    wheel = wheel_in(tmp_path)
    script.describe(wheel, ROOT, script.checked_url(f"{URL}/"), "v0.2.0")
    message, text = metadata(wheel)
    assert not RELATIVE.search(text)
    assert f"![Designs compared on one program]({URL}/raw/v0.2.0/docs/images/compare.svg)" in text
    urls = dict(value.split(", ") for value in message.get_all("Project-URL", []))
    assert urls["Repository"] == URL
    pages = re.findall(rf"{re.escape(URL)}/(?:blob|raw)/v0\.2\.0/([^)#]+)", text)
    pages += [url.removeprefix(f"{URL}/blob/v0.2.0/") for url in urls.values() if url != URL]
    assert len(pages) > 30
    for page in pages:
        assert (ROOT / page).is_file(), page


@pytest.mark.parametrize(
    "url", ["code.example/lab/pagewalk", "http://code.example/x", "https://", f"{URL}?a=b"]
)
def test_an_address_that_is_none_is_refused(
    script: ModuleType,
    url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["release.py", "--wheel", "--url", url])
    assert script.main() == 1
    assert "expected a web address, as https://host/owner/pagewalk" in capsys.readouterr().err
