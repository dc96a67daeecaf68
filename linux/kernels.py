"""Builds kernels with tiered hash placement, and programs for their guests."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATCHES = HERE / "patches"
# Programs and files that a build needs, and Debian's package of each.
NEEDS = {
    "gcc": "gcc",
    "make": "make",
    "flex": "flex",
    "bison": "bison",
    "bc": "bc",
    "xz": "xz-utils",
    "patch": "patch",
    "setarch": "util-linux",
    "busybox": "busybox-static",
}
FIGURES_NEED = {"qemu-system-x86_64": "qemu-system-x86"}


class Failure(Exception):
    """One sentence for the user."""


def say(text: str) -> None:
    print(text, flush=True)


def pinned() -> dict[str, str]:
    """The supported source: package, version, archive and its digest."""
    lines = (HERE / "source.txt").read_text().splitlines()
    pairs = (line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: value.strip() for name, value in pairs}


def cache() -> Path:
    at = os.environ.get("PAGEWALK_LINUX")
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pagewalk/linux"
    folder = Path(at) if at else default
    folder.mkdir(parents=True, exist_ok=True)
    return folder.resolve()


def run(command: Sequence[str | Path], log: Path, doing: str, cwd: Path | None = None) -> None:
    """Runs a command whose output goes to `log`. The failure says what was being done."""
    with log.open("ab") as out:
        done = subprocess.run(
            [str(c) for c in command],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            check=False,
            cwd=cwd,
        )
    if done.returncode:
        tail = log.read_text(errors="replace").splitlines()[-400:]
        errors = [line for line in tail if re.search(r"error|Error|No space|FAILED", line)]
        why = (errors or tail or [f"exit status {done.returncode}"])[0].strip()
        raise Failure(f"{doing} failed: {why} (see {log})")


def needed(*tables: dict[str, str]) -> None:
    missing = [
        package for table in tables for name, package in table.items() if not shutil.which(name)
    ]
    for header, package in (
        ("/usr/include/libelf.h", "libelf-dev"),
        ("/usr/include/openssl/ssl.h", "libssl-dev"),
    ):
        if len(tables) > 1 and not Path(header).exists():
            missing.append(package)
    if missing:
        names = " ".join(dict.fromkeys(missing))
        raise Failure(
            f"missing: {names} (on Debian: apt-get install --no-install-recommends {names})"
        )


def room(megabytes: int, minutes: str) -> None:
    """Says what the command needs, and refuses to start what cannot end."""
    at = cache()
    free = shutil.disk_usage(at).free >> 20
    say(f"needs {megabytes} MB in {at} ({free} are free) and {minutes}, unless it is built already")
    if free < megabytes:
        raise Failure(
            f"{at} has {free} MB free, and {megabytes} are needed: "
            "set PAGEWALK_LINUX to another folder"
        )


# --- source and patches ---


def archive() -> Path:
    """The installed source archive, if it is the supported one."""
    want = pinned()
    path = Path(want["archive"])
    if not path.exists():
        raise Failure(
            f"{want['package']} is not installed: apt-get install --no-install-recommends "
            f"{want['package']}={want['version']}"
        )
    return path


def digest(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def is_pinned(path: Path) -> bool:
    return digest(path) == pinned()["sha256"]


def patches() -> tuple[Path, ...]:
    return tuple(sorted(PATCHES.glob("[0-9]*.patch")))


def measurement() -> tuple[Path, ...]:
    """Instrumentation that is no part of the series."""
    return tuple(sorted((PATCHES / "measurement").glob("*.patch")))


def occupation() -> tuple[Path, ...]:
    """Occupation of frames at boot, which is no part of the series either."""
    return tuple(sorted((PATCHES / "occupation").glob("*.patch")))


def key_of(*parts: bytes) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()[:12]


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Waits for other builds in the cache: they share trees of source and objects."""
    with (cache() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def complete(name: str, build: Callable[[Path], None], lock: bool = True) -> Path:
    """The folder `name` of the cache. It is built under a temporary name and then renamed.

    `lock` is true for builds that use the shared trees.
    """
    final = cache() / name
    if final.exists():
        return final
    with alone() if lock else contextlib.nullcontext():
        partial = Path(tempfile.mkdtemp(prefix=f"{name}.partial.", dir=cache()))
        try:
            build(partial)
            if final.exists():
                shutil.rmtree(partial)
            else:
                partial.rename(final)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
    return final


def patch_tree(tree: Path, patch: Path, log: Path, *flags: str) -> None:
    """Applies one patch, exactly: without fuzz, in the order of the series."""
    with patch.open("rb") as text, log.open("ab") as out:
        command = ["patch", "-p1", "-s", "-F0", "--no-backup-if-mismatch", *flags, "-d", str(tree)]
        done = subprocess.run(command, stdin=text, stdout=out, stderr=out, check=False)
    if done.returncode:
        want = pinned()
        why = (
            ""
            if is_pinned(archive())
            else f", which is not the supported version {want['version']}"
        )
        raise Failure(
            f"{patch.name} does not apply to the installed {want['package']}{why} (see {log})"
        )


def touched(tree: Path, series: Iterable[Path]) -> set[Path]:
    """The files that patches change."""
    names = (re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(), re.MULTILINE) for patch in series)
    return {tree / name for found in names for name in found}


def source(name: str, series: Sequence[Path]) -> Path:
    """The source tree `name` with exactly `series` applied.

    The tree is kept and changed by the difference, so that objects that do not depend on it stay
    valid. Its state is removed before a change and written after it: a tree whose change was
    interrupted is unpacked anew.
    """
    tarball = archive()
    tree, state, kept = cache() / name, cache() / f"{name}.state", cache() / f"{name}.applied"
    log = cache() / f"{name}.log"
    log.unlink(missing_ok=True)
    origin = digest(tarball)
    want = {"archive": origin, "series": [digest(p) for p in series]}
    have = json.loads(state.read_text()) if state.exists() else None
    if have == want and tree.exists():
        return tree
    if not have or have.get("archive") != origin or not tree.exists():
        say(f"unpacking {tarball.name} into {name}")
        state.unlink(missing_ok=True)
        for old in (tree, kept):
            shutil.rmtree(old, ignore_errors=True)
        partial = Path(tempfile.mkdtemp(prefix=f"{name}.partial.", dir=cache()))
        try:
            run(["tar", "-xf", tarball, "--strip-components=1", "-C", partial], log, "unpacking")
            partial.rename(tree)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise
        have = {"archive": origin, "series": []}
    state.unlink(missing_ok=True)
    kept.mkdir(exist_ok=True)
    old_files = [kept / old for old in have["series"]]
    before = {f: (digest(f), f.stat()) for f in touched(tree, [*old_files, *series]) if f.exists()}
    same = 0
    while (
        same < min(len(have["series"]), len(series))
        and have["series"][same] == want["series"][same]
    ):
        same += 1
    say(f"{name}: taking back {len(have['series']) - same} patches, applying {len(series) - same}")
    for old in reversed(have["series"][same:]):
        patch_tree(tree, kept / old, log, "-R")
    for patch, new in zip(series[same:], want["series"][same:], strict=True):
        patch_tree(tree, patch, log)
        shutil.copyfile(patch, kept / new)
    # Files with the same contents as before keep their times, and their objects stay valid.
    for file, (contents, times) in before.items():
        if file.exists() and digest(file) == contents:
            os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    partial_state = state.with_suffix(".new")
    partial_state.write_text(json.dumps(want))
    partial_state.rename(state)
    return tree


# --- kernels ---


@dataclass(frozen=True)
class Variant:
    """A kernel: an architecture, a source tree with patches, and configuration fragments."""

    name: str
    arch: str
    tree: str
    series: tuple[Path, ...]
    fragments: tuple[str, ...]
    objects: str

    @property
    def image(self) -> str:
        return "vmlinux" if self.arch == "um" else "arch/x86/boot/bzImage"


def variant(name: str) -> Variant:
    all_of_them = patches()
    x86 = ("common", "patched", "x86")
    return {
        "um": Variant(
            "um", "um", "patched", all_of_them, ("common", "full", "patched", "um"), "um"
        ),
        "um-kasan": Variant(
            "um-kasan",
            "um",
            "patched",
            all_of_them,
            ("common", "full", "patched", "um", "kasan"),
            "um-kasan",
        ),
        "x86": Variant("x86", "x86_64", "patched", all_of_them, x86, "x86"),
        "x86-measure": Variant(
            "x86-measure", "x86_64", "patched", all_of_them + measurement(), x86, "x86"
        ),
        "x86-occupied": Variant(
            "x86-occupied", "x86_64", "patched", all_of_them + occupation(), x86, "x86"
        ),
        "x86-smp": Variant(
            "x86-smp", "x86_64", "patched", all_of_them, (*x86, "full", "debug"), "x86-smp"
        ),
        "x86-unpatched": Variant(
            "x86-unpatched", "x86_64", "unpatched", (), ("common", "x86"), "x86-unpatched"
        ),
    }[name]


def fragments_of(kind: Variant) -> list[Path]:
    return [HERE / "configs" / f"{name}.config" for name in kind.fragments]


def key(kind: Variant) -> str:
    """Names the image of a variant: version, patches and configuration."""
    parts = [
        digest(archive()).encode(),
        *(p.read_bytes() for p in (*kind.series, *fragments_of(kind))),
    ]
    return key_of(*parts)


def kernel(kind: Variant) -> Path:
    """The built image of a variant."""

    def build(partial: Path) -> None:
        tree = source(kind.tree, kind.series)
        objects = cache() / f"objects-{kind.objects}"
        say(f"building the kernel {kind.name} with {os.cpu_count()} processors")
        began = time.monotonic()
        log = cache() / f"{kind.name}.log"
        log.unlink(missing_ok=True)
        objects.mkdir(exist_ok=True)
        # An unchanged configuration keeps its time, and its users their objects.
        before = objects / ".config"
        old = before.read_text() if before.exists() else ""
        make: list[str | Path] = [
            "nice",
            "-n",
            "3",
            "make",
            "-s",
            "-C",
            tree,
            f"O={objects}",
            f"ARCH={kind.arch}",
        ]
        times = before.stat() if old else None
        run([*make, "tinyconfig"], log, "configuring")
        merge: list[str | Path] = [
            tree / "scripts/kconfig/merge_config.sh",
            "-m",
            "-O",
            objects,
            before,
            *fragments_of(kind),
        ]
        run(merge, log, "configuring", cwd=tree)
        run([*make, "olddefconfig"], log, "configuring")
        config = before.read_text()
        if config == old and times:
            os.utime(before, ns=(times.st_atime_ns, times.st_mtime_ns))
        wanted = [
            w for f in fragments_of(kind) for w in f.read_text().splitlines() if w.endswith("=y")
        ]
        lost = [w for w in wanted if w not in config.splitlines()]
        if lost:
            raise Failure(f"the configuration of {kind.name} did not accept {', '.join(lost)}")
        target = "vmlinux" if kind.arch == "um" else "bzImage"
        run([*make, f"-j{os.cpu_count()}", target], log, f"building {kind.name}")
        shutil.copy2(objects / kind.image, partial / "image")
        (partial / "config").write_text(config)
        say(f"built {kind.name} in {time.monotonic() - began:.0f} s")

    return complete(f"{kind.name}-{key(kind)}", build) / "image"


def program(path: Path, link: str = "-static") -> Path:
    """The program that is compiled from one file of C, and linked by this option."""
    key = key_of(path.read_bytes(), link.encode())

    def build(partial: Path) -> None:
        log = cache() / f"{path.stem}-{key}.log"
        log.unlink(missing_ok=True)
        run(
            [
                "gcc",
                "-O2",
                "-Wall",
                "-Wno-misleading-indentation",
                link,
                "-o",
                partial / path.stem,
                path,
            ],
            log,
            f"compiling {path.name}",
        )

    return complete(f"{path.stem}-{key}", build, lock=False) / path.stem
