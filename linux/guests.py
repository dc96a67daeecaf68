"""Boots kernels in User Mode Linux and in QEMU."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kernels import HERE, Failure, cache


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


PR_SET_THP_DISABLE = 41


def without_huge_pages() -> None:
    """Denies huge pages of the host to a guest: random frames would take up to 2 MB of it each."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)


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
            preexec_fn=without_huge_pages,  # noqa: PLW1509
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
    image: Path,
    initrd: Path,
    memory: int,
    append: str,
    kvm: bool,
    icount: bool,
    cpu: str,
    cpus: int,
) -> list[str | Path]:
    command: list[str | Path] = [
        "qemu-system-x86_64",
        "-nodefaults",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-no-reboot",
        # Not more of the host's memory than the guest uses.
        "-object",
        f"memory-backend-ram,id=ram,size={memory}M,reserve=off",
        "-machine",
        "memory-backend=ram",
        "-m",
        str(memory),
        # The table by which a kernel without ACPI finds processors has one for each socket.
        "-smp",
        f"{cpus},sockets={cpus}",
        "-kernel",
        image,
        "-initrd",
        initrd,
    ]
    if kvm:
        command += ["-enable-kvm", "-cpu", "host"]
    else:
        command += ["-cpu", cpu, *(["-icount", "shift=0,sleep=off"] if icount else [])]
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
    cpu: str = "max",
    cpus: int = 1,
) -> str:
    with tempfile.TemporaryDirectory(prefix="guest.", dir=cache()) as at:
        folder = Path(at)
        initrd = folder / "initrd"
        initramfs(script, more, initrd)
        if um:
            command = um_command(image, initrd, folder, memory, append)
        else:
            command = qemu_command(image, initrd, memory, append, kvm, icount, cpu, cpus)
        return guest(command, folder, seconds, name)


def check_log(text: str, name: str) -> None:
    bad = BAD.search(text)
    if bad:
        raise Failure(
            f"the kernel of {name} reported: {bad.group().strip()} (see {cache() / name}.console)"
        )
