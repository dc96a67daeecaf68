"""Makes a release: version, changelog, a wheel that is tried out, a commit and a tag.

Everything happens in a temporary clone. The repository gets the commit and the tag when all
checks have passed, and nothing before that; no command here pushes. `--dry-run` leaves the
commit and the tag out. `--wheel` builds and checks only the wheel, of the checkout as it is, into
`dist`.

`--url` (or the variable PAGEWALK_URL) is the repository's address on a code host, such as
https://host/owner/pagewalk. It becomes a project URL of the wheel, and the README's links lead to
it. Without it, the wheel's description has no relative link: they become the names of files.

    scripts/setup.sh python run build release
    .venv/bin/python scripts/release.py 0.2.0 [--dry-run] [--url URL]
    .venv/bin/python scripts/release.py --wheel [--url URL]
"""

from __future__ import annotations

import argparse
import base64
import datetime
import hashlib
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tempfile
import venv
import zipfile
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
GLIBC = (2, 28)
TRIPLE = "x86_64-unknown-linux-gnu"
PLUGIN = "libpagewalk_qemu.so"
# Libraries that every system of the manylinux policy has.
ALLOWED = {
    "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libpthread.so.0", "libdl.so.2", "librt.so.1",
    "ld-linux-x86-64.so.2",
}  # fmt: skip
# Files of the checkout that the package has, lie there in this folder.
CARRIED = "pagewalk/_data/"
PICTURE = re.compile(r"!\[[^\[\]]*\]\(([^()\s]+)\)")
LINK = re.compile(r"(?<!!)\[([^\[\]]*)\]\(([^()\s]+)\)")
UNRELEASED = re.compile(r"^## .*\(not yet released\)$", re.MULTILINE)


class ReleaseError(Exception):
    """A reason not to release; its text is for the user."""


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Standard output of a command; its standard error goes to the terminal."""
    try:
        done = subprocess.run(
            command, cwd=cwd, env=env, stdout=subprocess.PIPE, text=True, check=False
        )
    except FileNotFoundError as error:
        raise ReleaseError(f"{command[0]} is not installed") from error
    if done.returncode != 0:
        shown = " ".join(map(str, command))
        raise ReleaseError(f"`{shown}` failed with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def say(text: str) -> None:
    print(f"release: {text}", flush=True)


def parts(version: str) -> tuple[int, ...]:
    """The numbers of a version, to compare it by."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise ReleaseError(f"'{version}' is no version: expected three numbers, as in 0.2.0")
    return tuple(map(int, version.split(".")))


def check_order(version: str, current: str, tags: Iterable[str]) -> None:
    """Refuses a version that does not come after every release."""
    released = [tag[1:] for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)]
    newest = max(released, key=parts, default=None)
    if newest and parts(version) <= parts(newest):
        raise ReleaseError(f"{version} does not come after {newest}, the newest tag")
    if parts(version) < parts(current):
        raise ReleaseError(f"{version} comes before {current}, the version in Cargo.toml")


def dated(changelog: str, version: str, date: str) -> str:
    """The changelog with its unreleased section under the version and the date."""
    first = re.search(r"^## .*$", changelog, re.MULTILINE)
    if not first or not UNRELEASED.fullmatch(first[0]):
        raise ReleaseError(
            "CHANGELOG.md: the first section must be unreleased, as `## 0.2.0 (not yet released)`"
        )
    section = changelog[first.end() :].split("\n## ", 1)[0]
    if not section.strip():
        raise ReleaseError("CHANGELOG.md: the unreleased section has no entry")
    return changelog[: first.start()] + f"## {version} ({date})" + changelog[first.end() :]


def replaced(text: str, pattern: str, line: str, file: str) -> str:
    """The text with the one line that matches the pattern replaced."""
    new, count = re.subn(pattern, lambda _: line, text, flags=re.MULTILINE)
    if count != 1:
        raise ReleaseError(f"{file}: {count} lines match {pattern}, expected one")
    return new


def set_version(tree: Path, version: str, date: str) -> None:
    """Writes the version where it is kept, and the date into changelog and citation."""
    changelog = tree / "CHANGELOG.md"
    changelog.write_text(dated(changelog.read_text(), version, date))
    manifest = tree / "Cargo.toml"
    line = f'version = "{version}"'
    manifest.write_text(replaced(manifest.read_text(), r'^version = ".*"$', line, "Cargo.toml"))
    citation = tree / "CITATION.cff"
    text = re.sub(r"^date-released: .*\n", "", citation.read_text(), flags=re.MULTILINE)
    line = f"version: {version}\ndate-released: {date}"
    citation.write_text(replaced(text, r"^version: .*$", line, "CITATION.cff"))
    # Only the workspace's own entries of Cargo.lock change.
    run("cargo", "update", "--quiet", "--workspace", "--offline", cwd=tree)


def checked_url(url: str) -> str:
    """The address of a repository, without a slash at its end."""
    split = urlsplit(url)
    if split.scheme != "https" or not split.netloc or split.query or split.fragment:
        raise ReleaseError(f"--url '{url}': expected a web address, as https://host/owner/pagewalk")
    return url.rstrip("/")


def is_relative(target: str) -> bool:
    """True if a link's target is a file beside the README or a heading in it."""
    return not urlsplit(target).scheme


def described(readme: str, url: str | None, ref: str, carried: Collection[str]) -> str:
    """The README as a description that is read outside the repository.

    Its relative links lead to the files at `ref`, under the URL that GitHub and GitLab give them.
    Without a URL, a link becomes its text and the file's name if the package has the file, else
    its text alone; a picture is left out.
    """

    def picture(found: re.Match[str]) -> str:
        if not is_relative(found[1]):
            return found[0]
        return found[0].replace(f"({found[1]})", f"({url}/raw/{ref}/{found[1]})") if url else ""

    def link(found: re.Match[str]) -> str:
        text, target = found.groups()
        if not is_relative(target):
            return found[0]
        if url:
            place = f"#{target[1:]}" if target.startswith("#") else f"/blob/{ref}/{target}"
            return f"[{text}]({url}{place})"
        file = posixpath.normpath(target.partition("#")[0])
        if file not in carried or text.strip("`") == file:
            return text
        return f"{text} (`{file}`)"

    text = LINK.sub(link, PICTURE.sub(picture, readme))
    return re.sub(r"\n{3,}", "\n\n", text)


def describe(wheel: Path, tree: Path, url: str | None, ref: str) -> None:
    """Writes the URLs and the description for readers elsewhere into a wheel's metadata.

    Its list of components (SBOM) gets the crates' places in the tree, not on this machine.
    """
    with zipfile.ZipFile(wheel) as archive:
        files = {info: archive.read(info) for info in archive.infolist()}
    carried = {i.filename.removeprefix(CARRIED) for i in files if i.filename.startswith(CARRIED)}
    new: dict[str, bytes] = {}
    for info, content in files.items():
        if info.filename.endswith(".dist-info/METADATA"):
            head = content.decode().partition("\n\n")[0]
            if url:
                pages = {"Repository": url, "Documentation": f"{url}/blob/{ref}/docs/index.md"}
                pages["Changelog"] = f"{url}/blob/{ref}/CHANGELOG.md"
                head += "".join(f"\nProject-URL: {name}, {page}" for name, page in pages.items())
            text = described((tree / "README.md").read_text(), url, ref, carried)
            new[info.filename] = f"{head}\n\n{text}".encode()
        elif ".dist-info/sboms/" in info.filename:
            new[info.filename] = content.replace(str(tree).encode(), b"/pagewalk")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for info, content in files.items():
            if info.filename.endswith(".dist-info/RECORD"):
                content = recorded(content.decode(), new).encode()  # noqa: PLW2901
            archive.writestr(info, new.get(info.filename, content))


def recorded(record: str, new: Mapping[str, bytes]) -> str:
    """A wheel's list of files, with the digests of files that have a new content."""
    for name, content in new.items():
        hashed = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        line = f"{name},sha256={hashed},{len(content)}"
        record = replaced(record, rf"^{re.escape(name)},.*$", line, "RECORD")
    return record


def build(tree: Path, out: Path) -> Path:
    """Builds the wheel with the plugin in it, both against the old glibc, and stripped."""
    tools = Path(sys.executable).parent
    for tool in ("maturin", "cargo-zigbuild"):
        if not (tools / tool).exists():
            raise ReleaseError(
                f"{tool} is missing: run `scripts/setup.sh python run build release`,"
                " and start this script with .venv/bin/python"
            )
    environment = {
        **os.environ,
        "CARGO_TARGET_DIR": os.environ.get("CARGO_TARGET_DIR", str(ROOT / "target")),
        "CARGO_PROFILE_RELEASE_STRIP": "symbols",
        # Both tools look for the package ziglang there.
        "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}",
        "VIRTUAL_ENV": str(tools.parent),
    }
    say("building the plugin")
    old = f"{GLIBC[0]}.{GLIBC[1]}"
    run(
        "cargo", "zigbuild", "--quiet", "--release", "--locked", "-p", "pagewalk-qemu-plugin",
        "--target", f"{TRIPLE}.{old}", cwd=tree, env=environment,
    )  # fmt: skip
    built = Path(environment["CARGO_TARGET_DIR"]) / TRIPLE / "release/libpagewalk_qemu_plugin.so"
    # Replaced, not overwritten: a running simulation may have it mapped.
    new = tree / "python/pagewalk/_data" / f"{PLUGIN}.new"
    shutil.copy(built, new)
    new.replace(new.with_suffix(""))
    say("building the wheel")
    run(
        tools / "maturin", "build", "--quiet", "--release", "--locked", "--zig",
        "--target", TRIPLE, "--compatibility", f"manylinux_{GLIBC[0]}_{GLIBC[1]}", "--out", out,
        cwd=tree, env=environment,
    )  # fmt: skip
    (wheel,) = out.glob("*.whl")
    return wheel


def glibc(symbol_version: str) -> tuple[int, int]:
    """The version of glibc that has a symbol version; zeros if it is another library's."""
    match = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(\.\d+)?", symbol_version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def check_libraries(wheel: Path, scratch: Path) -> None:
    """Refuses native libraries that need a newer system, or that are not stripped."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    from elftools.elf.gnuversions import GNUVerNeedSection

    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if name.endswith(".so")]
        archive.extractall(scratch, names)
    if sum(name.endswith(PLUGIN) for name in names) != 1 or len(names) != 2:
        raise ReleaseError(f"{wheel.name} has {names}: expected _native and {PLUGIN}")
    for name in names:
        found = (0, 0)
        with (scratch / name).open("rb") as file:
            for section in ELFFile(file).iter_sections():
                if section.name == ".symtab" or section.name.startswith(".debug"):
                    raise ReleaseError(f"{name} is not stripped: it has {section.name}")
                if isinstance(section, GNUVerNeedSection):
                    versions = [v.name for _, needed in section.iter_versions() for v in needed]
                    found = max([found, *map(glibc, versions)])
                elif isinstance(section, DynamicSection):
                    libraries = {tag.needed for tag in section.iter_tags("DT_NEEDED")}
                    if libraries - ALLOWED:
                        raise ReleaseError(f"{name} needs {sorted(libraries - ALLOWED)}")
        if not (0, 0) < found <= GLIBC:
            raise ReleaseError(f"{name} needs glibc {found}, newer than {GLIBC}")
        say(f"{name} needs glibc {found[0]}.{found[1]}")


def try_out(wheel: Path, scratch: Path, version: str) -> None:
    """Installs the wheel as a user would, and runs it without anything of this environment."""
    say("installing the wheel into an environment of its own")
    venv.create(scratch / "venv", with_pip=True)
    bin_ = scratch / "venv/bin"
    run(
        bin_ / "pip", "install", "--quiet", "--disable-pip-version-check",
        "-c", ROOT / "constraints.txt", wheel, cwd=scratch,
    )  # fmt: skip
    work = scratch / "work"
    work.mkdir()
    environment = {"PATH": os.defpath}
    shown = run(bin_ / "pagewalk", "--version", cwd=work, env=environment)
    if version not in shown.split():
        raise ReleaseError(f"`pagewalk --version` prints {shown.strip()!r}, expected {version}")
    print(shown + run(bin_ / "pagewalk", "doctor", cwd=work, env=environment), end="")
    small = ("--workload", "gups", "--size", "64MiB", "--instructions", "200K")
    print(run(bin_ / "pagewalk", "compare", *small, cwd=work, env=environment), end="")
    if shutil.which("qemu-x86_64", path=os.defpath):
        run(bin_ / "pagewalk", "run", "--", "/bin/true", cwd=work, env=environment)
        say("the plugin runs in QEMU")
    else:
        say("SKIPPED: a live program (qemu-x86_64 is not installed)")


def make_wheel(url: str | None) -> Path:
    """Builds and checks the wheel of the checkout as it is."""
    ref = run("git", "rev-parse", "HEAD", cwd=ROOT).strip() if url else ""
    with tempfile.TemporaryDirectory(prefix="pagewalk-wheel-") as name:
        scratch = Path(name)
        built = build(ROOT, scratch / "dist")
        describe(built, ROOT, url, ref)
        check_libraries(built, scratch / "unpacked")
        (ROOT / "dist").mkdir(exist_ok=True)
        wheel = Path(shutil.copy(built, ROOT / "dist"))
    say(f"dist/{wheel.name} ({wheel.stat().st_size / 1e6:.1f} MB)")
    return wheel


def release(version: str, *, dry: bool, url: str | None = None) -> None:
    """Makes the release in a temporary clone, and takes it over."""
    date = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    status = run("git", "status", "--porcelain", cwd=ROOT)
    if status:
        raise ReleaseError(f"the tree has changes that are not committed:\n{status}")
    branch = run("git", "rev-parse", "--abbrev-ref", "HEAD", cwd=ROOT).strip()
    if branch == "HEAD":
        raise ReleaseError("no branch is checked out: `git switch main` first")
    current = re.search(r'^version = "(.*)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    if not current:
        raise ReleaseError("Cargo.toml has no version")
    check_order(version, current[1], run("git", "tag", "--list", cwd=ROOT).split())
    with tempfile.TemporaryDirectory(prefix="pagewalk-release-") as name:
        scratch = Path(name)
        tree = scratch / "tree"
        run("git", "clone", "--quiet", "--branch", branch, ROOT, tree, cwd=scratch)
        set_version(tree, version, date)
        wheel = build(tree, scratch / "dist")
        describe(wheel, tree, url, f"v{version}")
        check_libraries(wheel, scratch / "unpacked")
        try_out(wheel, scratch, version)
        size = wheel.stat().st_size / 1e6
        if dry:
            say(f"{wheel.name} ({size:.1f} MB) passed every check; dry run: no commit, no tag")
            return
        for key in ("user.name", "user.email"):
            run("git", "config", key, run("git", "config", key, cwd=ROOT).strip(), cwd=tree)
        body = (
            "Dates the changelog's entries, and sets the version of crates, package and citation."
        )
        tag = f"v{version}"
        run("git", "commit", "-qam", f"release: version {version}", "-m", body, cwd=tree)
        run("git", "tag", "-a", tag, "-m", f"Pagewalk {version}", cwd=tree)
        (ROOT / "dist").mkdir(exist_ok=True)
        shutil.copy(wheel, ROOT / "dist")
        run("git", "fetch", "--quiet", tree, f"refs/tags/{tag}:refs/tags/{tag}", cwd=ROOT)
        try:
            run("git", "merge", "--quiet", "--ff-only", f"{tag}^{{commit}}", cwd=ROOT)
        except ReleaseError:
            run("git", "tag", "--delete", tag, cwd=ROOT)
            (ROOT / "dist" / wheel.name).unlink()
            raise
        say(f"committed and tagged {tag}. These commands publish it:")
        print(f"  git push origin {branch} {tag}\n  .venv/bin/uv publish dist/{wheel.name}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes a release, and tries it out first.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("version", nargs="?", help="three numbers, as in 0.2.0")
    what.add_argument("--wheel", action="store_true", help="build only the wheel, into dist")
    parser.add_argument("--dry-run", action="store_true", help="do all but the commit and the tag")
    parser.add_argument(
        "--url",
        default=os.environ.get("PAGEWALK_URL"),
        help="the repository's web address (default: the variable PAGEWALK_URL)",
    )
    arguments = parser.parse_args()
    try:
        url = checked_url(arguments.url) if arguments.url else None
        if arguments.wheel:
            make_wheel(url)
        else:
            release(arguments.version, dry=arguments.dry_run, url=url)
    except (ReleaseError, OSError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
