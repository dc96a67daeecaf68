"""Builds, boots and measures the Linux kernel with tiered hash placement.

    python3 linux/driver.py test                KUnit and selftests in User Mode Linux
    python3 linux/driver.py figures             measurements in QEMU, kept in linux/results
    python3 linux/driver.py export -o FILE -- PROGRAM [ARGUMENT...]
                                                dump the placement of a program
    python3 linux/driver.py apply               check that the patches apply to the pinned source

Everything is built in $PAGEWALK_LINUX (default ~/.cache/pagewalk/linux) and kept there under a
name that has the hash of the source, the patches and the configuration. A build has a temporary
name until it is complete.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import analysis

HERE = Path(__file__).resolve().parent
PATCHES = HERE / "patches"
RESULTS = HERE / "results"
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
        told = [line for line in tail if re.search(r"error|Error|No space|FAILED", line)]
        why = (told or tail or [f"exit status {done.returncode}"])[0].strip()
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
        "x86": Variant("x86", "x86_64", "patched", all_of_them, x86, "x86"),
        "x86-measure": Variant(
            "x86-measure", "x86_64", "patched", all_of_them + measurement(), x86, "x86"
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


# --- guests ---


def program(path: Path, *flags: str) -> Path:
    """The static program that is compiled from one file of C."""
    key = key_of(path.read_bytes(), *(f.encode() for f in flags))

    def build(partial: Path) -> None:
        log = cache() / f"{path.stem}-{key}.log"
        log.unlink(missing_ok=True)
        run(
            [
                "gcc",
                "-O2",
                "-Wall",
                "-Wno-misleading-indentation",
                "-static",
                *flags,
                "-o",
                partial / path.stem,
                path,
            ],
            log,
            f"compiling {path.name}",
        )

    return complete(f"{path.stem}-{key}", build, lock=False) / path.stem


def cpio(files: dict[str, bytes | Path | None]) -> bytes:
    """An initramfs in the format newc; None makes a folder. All files are executable."""
    out = bytearray()

    def entry(name: str, mode: int, data: bytes = b"", device: tuple[int, int] = (0, 0)) -> None:
        fields = [0, mode, 0, 0, 1, 0, len(data), 0, 0, *device, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0")
        out.extend(b"\0" * (-len(out) % 4) + data)
        out.extend(b"\0" * (-len(out) % 4))

    folders: set[str] = set()
    for name, data in files.items():
        parts = name.split("/")
        for depth in range(1, len(parts)):
            if (folder := "/".join(parts[:depth])) not in folders:
                folders.add(folder)
                entry(folder, 0o40755)
        if data is None:
            folders.add(name)
            entry(name, 0o40755)
        else:
            entry(name, 0o100755, data.read_bytes() if isinstance(data, Path) else data)
    entry("dev/console", 0o20600, device=(5, 1))
    entry("TRAILER!!!", 0)
    return bytes(out)


def initramfs(script: str, more: dict[str, Path], at: Path) -> None:
    busybox = shutil.which("busybox")
    assert busybox
    if b"/ld-linux" in Path(busybox).read_bytes():
        raise Failure("busybox is not static: apt-get install busybox-static")
    files: dict[str, bytes | Path | None] = dict.fromkeys(("dev", "proc", "sys", "root"))
    files |= {"bin/busybox": Path(busybox), "init": HERE / "guest/init", "run.sh": script.encode()}
    files |= more
    at.write_bytes(cpio(files))


UP = "PAGEWALK-GUEST up"
EXIT = re.compile(r"PAGEWALK-GUEST exit (\d+)")
BAD = re.compile(
    r"^.*(BUG:|WARNING:|Kernel panic|Bad page|bad page|Oops|Out of memory|page dumped|INFO: task|"
    r"possible circular locking|memory leak).*$",
    re.MULTILINE,
)


def tail_of(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else "nothing was printed"


def guest(command: Sequence[str | Path], folder: Path, seconds: float, name: str) -> str:
    """Runs a guest and returns its console. Fails if it does not come up or does not end."""
    log = folder / f"{name}.console"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(c) for c in command],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            start_new_session=True,
        )
        try:
            process.wait(timeout=seconds)
            late = False
        except subprocess.TimeoutExpired:
            late = True
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    text = log.read_text(errors="replace").replace("\r", "")
    kept = cache() / f"{name}.console"
    kept.write_text(text)
    if UP not in text:
        raise Failure(f"the guest {name} did not boot: {tail_of(text)} (see {kept})")
    if late:
        raise Failure(
            f"the guest {name} did not end within {seconds:.0f} s: {tail_of(text)} (see {kept})"
        )
    if not EXIT.search(text):
        raise Failure(f"the guest {name} stopped early: {tail_of(text)} (see {kept})")
    return text


def um_command(
    image: Path, initrd: Path, folder: Path, memory: int, append: str
) -> list[str | Path]:
    # With a randomised heap, the guest's memory would have a hole of random size.
    return [
        "setarch",
        "-R",
        image,
        f"mem={memory}M",
        "con=null",
        "con0=null,fd:1",
        f"initrd={initrd}",
        f"uml_dir={folder}/",
        "panic=-1",
        *append.split(),
    ]


def qemu_command(
    image: Path, initrd: Path, memory: int, append: str, kvm: bool, icount: bool
) -> list[str | Path]:
    command: list[str | Path] = [
        "qemu-system-x86_64",
        "-nodefaults",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-no-reboot",
        "-m",
        str(memory),
        "-kernel",
        image,
        "-initrd",
        initrd,
    ]
    if kvm:
        command += ["-enable-kvm", "-cpu", "host"]
    else:
        command += ["-cpu", "max", *(["-icount", "shift=0,sleep=off"] if icount else [])]
    return [*command, "-append", f"console=ttyS0 quiet panic=-1 end=reboot {append}"]


def boot(
    image: Path,
    um: bool,
    script: str,
    more: dict[str, Path],
    name: str,
    memory: int = 256,
    append: str = "",
    seconds: float = 600,
    kvm: bool = False,
    icount: bool = False,
) -> str:
    with tempfile.TemporaryDirectory(prefix="guest.", dir=cache()) as at:
        folder = Path(at)
        initrd = folder / "initrd"
        initramfs(script, more, initrd)
        if um:
            command = um_command(image, initrd, folder, memory, append)
        else:
            command = qemu_command(image, initrd, memory, append, kvm, icount)
        return guest(command, folder, seconds, name)


# --- commands ---


def closure(path: Path) -> dict[str, Path]:
    """A program and the shared libraries that it needs, by their names in the guest."""
    shown = subprocess.run(["ldd", path], capture_output=True, text=True, check=False).stdout
    libraries = re.findall(r"(/\S+) \(0x", shown)
    return {name.lstrip("/"): Path(name).resolve() for name in libraries}


def unpack_changed(folder: Path, series: Sequence[Path], log: Path, *more: str) -> None:
    """Unpacks the files that patches change, and `more`, and applies the patches."""
    files = {str(f.relative_to(folder)) for f in touched(folder, series)}
    new = re.compile(r"^--- /dev/null\n\+\+\+ b/(\S+)", re.MULTILINE)
    made = {name for patch in series for name in new.findall(patch.read_text())}
    top = Path(pinned()["archive"]).name.removesuffix(".tar.xz")
    names = [f"{top}/{name}" for name in sorted((files - made) | set(more))]
    run(["tar", "-xf", archive(), "--strip-components=1", "-C", folder, *names], log, "unpacking")
    for patch in series:
        patch_tree(folder, patch, log)


def selftest() -> Path:
    """The selftest of the series, compiled from the patched source."""
    series = patches()
    folder = Path("tools/testing/selftests")

    def build(partial: Path) -> None:
        with tempfile.TemporaryDirectory(prefix="selftest.") as at:
            log = cache() / "selftest.log"
            log.unlink(missing_ok=True)
            unpack_changed(Path(at), series, log, str(folder / "kselftest.h"))
            test = Path(at) / folder / "mm/hash_placement.c"
            made = partial / "hash_placement"
            command: list[str | Path] = ["gcc", "-O2", "-static", "-o", made, test]
            run(command, log, f"compiling {test.name}")

    name = f"selftest-{key_of(digest(archive()).encode(), *(p.read_bytes() for p in series))}"
    return complete(name, build, lock=False) / "hash_placement"


def provenance(kind: Variant) -> dict[str, str]:
    want = pinned()
    return {"source": f"{want['package']} {want['version']}", "kernel": f"{kind.name}-{key(kind)}"}


def keep(name: str, contents: dict[str, object]) -> None:
    """Writes a results file under a temporary name first."""
    RESULTS.mkdir(exist_ok=True)
    partial = RESULTS / f"{name}.json.new"
    text = json.dumps(contents, indent=1)
    # Lists of numbers on one line.
    text = re.sub(r"\[\s+([-\d.,\s]+?)\s+\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)
    partial.write_text(text + "\n")
    partial.rename(RESULTS / f"{name}.json")
    say(f"wrote {RESULTS / name}.json")


def taps(text: str) -> list[tuple[bool, str]]:
    """Results of TAP and KTAP lines; skipped tests are left out."""
    found = re.findall(r"^ *(not ok|ok) \d+ (?!# SKIP)(.+)$", text, re.MULTILINE)
    return [(word == "ok", name) for word, name in found]


def check_log(text: str, name: str) -> None:
    bad = BAD.search(text)
    if bad:
        raise Failure(
            f"the kernel of {name} reported: {bad.group().strip()} (see {cache() / name}.console)"
        )


# The RAM disk takes all of its pages at once, so that swapping changes no count of free pages.
PREPARE = (
    "dd if=/dev/zero of=/dev/ram0 bs=1M count=32 2>/dev/null\n"
    "mkswap /dev/ram0 >/dev/null && swapon /dev/ram0\n"
)
STRESS = (
    "stress-ng --timeout {seconds} --temp-path /tmp --oomable --vm 2 --vm-bytes 60M --fork 1 "
    "--mmap 1 --mmap-bytes 20M --brk 1 --madvise 1 --mremap 1 --stack 1 --pageswap 1 || exit 1\n"
)
FREE = (
    "echo 3 > /proc/sys/vm/drop_caches; sleep 1\n"
    "echo FREE $(grep -E '^nr_free_pages' /proc/vmstat)\n"
)


def stress(image: Path, um: bool, name: str, seconds: int) -> dict[str, object]:
    """Runs memory stressors with placement for all processes; fails on a warning or a leak."""
    at = shutil.which("stress-ng")
    assert at
    more = {"bin/stress-ng": Path(at)} | closure(Path(at))
    script = (
        "echo 2 > /proc/sys/vm/hash_placement; cd /tmp\n"
        + PREPARE
        + STRESS.format(seconds=5)
        + FREE
    )
    script += STRESS.format(seconds=seconds) + FREE + "grep hash_placement_ /proc/vmstat; dmesg\n"
    text = boot(
        image, um, script, more, name, memory=640, append="page_poison=1", seconds=60 + 10 * seconds
    )
    check_log(text, name)
    free = [int(n) for n in re.findall(r"^FREE nr_free_pages (\d+)", text, re.MULTILINE)]
    if not re.search(r"PAGEWALK-GUEST exit 0", text) or len(free) != 2:
        raise Failure(f"stress-ng failed in {name} (see {cache() / name}.console)")
    counters = {
        n: int(v) for n, v in re.findall(r"^hash_placement_(\w+) (\d+)", text, re.MULTILINE)
    }
    if free[0] - free[1] > 2048:
        raise Failure(
            f"{free[0] - free[1]} pages were not free again after the stressors in {name}"
        )
    return {
        "seconds": seconds,
        "free_pages_before": free[0],
        "free_pages_after": free[1],
        "counters": counters,
    }


def test() -> None:
    needed(NEEDS, {"stress-ng": "stress-ng"})
    room(4000, "10 minutes of both processors")
    kind = variant("um")
    image = kernel(kind)
    tests = selftest()
    script = PREPARE + "hash_placement\n"
    text = boot(
        image, True, script, {"bin/hash_placement": tests}, "um-test", append="page_poison=1"
    )
    check_log(text, "um-test")
    results = taps(text)
    for good, name in results:
        say(f"{'ok' if good else 'NOT OK'}  {name}")
    failed = [name for good, name in results if not good]
    if failed or len(results) < 17:
        raise Failure(
            f"{len(failed)} of {len(results)} tests failed (see {cache()}/um-test.console)"
        )
    pressed = stress(image, True, "um-stress", 15)
    say("ok  memory stressors: no warning in the log, no lost page")
    keep("tests", {**provenance(kind), "tests": [name for _, name in results], "stress": pressed})
    say(f"{len(results)} passed, 0 failed")


def kvm_works(image: Path) -> bool:
    """True if a guest shows its banner under KVM within ten seconds."""
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    try:
        boot(image, False, "true\n", {}, "kvm-probe", kvm=True, seconds=10)
    except Failure:
        return False
    return True


def measured(what: str, kind: Variant, image: Path, seconds: float) -> list[analysis.Record]:
    """Results of one measurement, in User Mode Linux or with counted instructions in QEMU."""
    um = kind.arch == "um"
    name = f"{kind.name}-{what.replace(' ', '-')}"
    say(f"measuring {what} in {kind.name}")
    data = "dd if=/dev/urandom of=/tmp/data bs=64k count=16 2>/dev/null\n"
    text = boot(
        image,
        um,
        (PREPARE if um else data) + f"measure {what}\n",
        {"bin/measure": program(HERE / "guest/measure.c")},
        name,
        memory=512,
        append="hash_placement_seed=1",
        seconds=seconds,
        icount=not um,
    )
    check_log(text, name)
    if "PAGEWALK-GUEST exit 0" not in text:
        raise Failure(f"measure {what} failed: {tail_of(text.partition('PAGEWALK-GUEST exit')[0])}")
    return analysis.results(text)


def placements() -> None:
    """Where pages lie does not depend on time: User Mode Linux shows it fastest."""
    kind = variant("um")
    image = kernel(kind)
    how = {**provenance(kind), "memory_mb": 512}
    rows = measured("figure10 1500", kind, image, 3600)
    keep("figure10", {**how, "rows": analysis.figure10(rows)})
    rows = measured("overlap", kind, image, 600)
    keep("overlap", {**how, "rows": analysis.of_kind(rows, "overlap")})
    rows = measured("churn 4000", kind, image, 600)
    keep("churn", {**how, "rows": analysis.of_kind(rows, "churn")})


def instruction_counts() -> None:
    """Costs in instructions, which QEMU counts. KVM does not count them for the guest."""
    patched, measuring, unpatched = (variant(n) for n in ("x86", "x86-measure", "x86-unpatched"))
    how = {"accelerator": "tcg -icount shift=0", "memory_mb": 512}
    image = kernel(measuring)
    rows = measured("lists 1500", measuring, image, 3600)
    keep("lists", {**provenance(measuring), **how, **analysis.lists(rows)})
    rows = measured("costs causes", measuring, image, 3600)
    keep("causes", {**provenance(measuring), **how, "rows": analysis.causes(rows)})
    rows = measured("costs patched", patched, kernel(patched), 3600)
    rows += measured("costs unpatched", unpatched, kernel(unpatched), 3600)
    keep("costs", {**provenance(patched), **how, **analysis.costs(rows)})


def selftests_in_qemu() -> None:
    """The selftests on x86-64, with huge pages. KVM runs them if a guest comes up under it."""
    kind = variant("x86")
    image = kernel(kind)
    kvm = kvm_works(image)
    say(f"selftests run under {'KVM' if kvm else 'TCG: KVM does not open, or its guest fails'}")
    more = {"bin/hash_placement": selftest()}
    text = boot(image, False, "hash_placement\n", more, "x86-test", memory=1024, kvm=kvm)
    check_log(text, "x86-test")
    results = taps(text)
    failed = [name for good, name in results if not good]
    if failed or len(results) < 11:
        raise Failure(
            f"in QEMU failed: {', '.join(failed) or 'all'} (see {cache()}/x86-test.console)"
        )
    how = {"accelerator": "kvm" if kvm else "tcg"}
    keep("tests-x86", {**provenance(kind), **how, "tests": [name for _, name in results]})


def figures() -> None:
    needed(NEEDS, FIGURES_NEED)
    room(6000, "45 minutes of both processors")
    placements()
    selftests_in_qemu()
    instruction_counts()


def export(output: Path, command: Sequence[str]) -> None:
    needed(NEEDS)
    room(4000, "10 minutes of both processors")
    at = shutil.which(command[0])
    if not at:
        raise Failure(f"there is no program {command[0]}")
    image = kernel(variant("um"))
    more = {"bin/dump_frames": program(HERE / "guest/dump_frames.c")}
    name = Path(at).name
    more |= {f"root/{name}": Path(at).resolve()} | closure(Path(at))
    # Files that the command names go along.
    for word in command[1:]:
        if Path(word).is_file():
            more[word.lstrip("/") if word.startswith("/") else f"root/{word}"] = Path(word)
    quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in command[1:])
    script = f"echo 1 > /proc/sys/vm/hash_placement; cd /root\ndump_frames /root/{name} {quoted}\n"
    text = boot(image, True, script, more, "export", memory=512)
    check_log(text, "export")
    lines = [line[7:] for line in text.splitlines() if line.startswith("FRAMES ")]
    ended = EXIT.search(text)
    if not lines or not ended:
        raise Failure(f"nothing was placed for {command[0]} (see {cache()}/export.console)")
    partial = output.with_name(output.name + ".new")
    partial.write_text("\n".join(lines) + "\n")
    partial.rename(output)
    say(f"wrote {len(lines) - 1} records to {output}; the program's status is {ended.group(1)}")


def check_patches() -> None:
    """The patches apply to the installed source."""
    every = (*patches(), *measurement())
    with tempfile.TemporaryDirectory(prefix="apply.") as at:
        folder = Path(at)
        unpack_changed(folder, every, folder / "log")
    say(f"{len(every)} patches apply to {pinned()['package']} {pinned()['version']}")


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="linux/driver.py", description="Linux with tiered hash placement"
    )
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("test", help="KUnit tests, selftests and stressors in User Mode Linux")
    commands.add_parser("figures", help="measurements in QEMU")
    commands.add_parser("apply", help="check that the patches apply")
    exporting = commands.add_parser("export", help="dump the placement of a program")
    exporting.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    exporting.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM [ARGUMENT...]")
    chosen = parser.parse_args(arguments)
    try:
        if chosen.command == "export":
            words = chosen.program[1:] if chosen.program[:1] == ["--"] else chosen.program
            if not words:
                parser.error("name a program after --")
            export(chosen.output, words)
        else:
            {"test": test, "figures": figures, "apply": check_patches}[chosen.command]()
    except Failure as failure:
        print(f"linux: {failure}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"linux: {error.strerror or error}: {error.filename or cache()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("linux: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
