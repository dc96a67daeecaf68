"""Records in which frames a booted kernel places the pages of programs."""

from __future__ import annotations

import base64
import gzip
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from guests import boot, check_log
from kernels import HERE, Failure, cache, kernel, program, variant

# In User Mode Linux there are addresses below 512 GB only.
KERNELS = {"um": "um", "x86": "x86-occupied"}
# Free are also the pages in the lists of processors, which the kernel counts apart. Records are
# packed, because an emulated serial line is slow.
RECORD = (
    "echo FREE {number} $(grep -E '^nr_free_pages' /proc/vmstat) "
    "$(awk '$1 == \"count:\" {{ n += $2 }} END {{ print n + 0 }}' /proc/zoneinfo)\n"
    '{{ dump_frames {command} 3>&1 >&2; echo "# status $?"; }} | gzip -c > /tmp/records\n'
    "base64 /tmp/records | sed 's/^/PACKED {number} /'; rm /tmp/records\n"
)


@dataclass(frozen=True)
class Guest:
    """A kernel that places pages by hash, and its memory."""

    kernel: str = "um"
    """`um` has addresses below 512 GB; `x86` has all, and runs in QEMU."""
    memory_mb: int = 512
    occupied: float = 0.0
    """Share of the frames, chosen at random, that are in use before the programs start."""
    seed: int | None = None
    """Seed of the hash; random by default."""
    moves_locked: bool = True
    """False if compaction leaves the pages where they are that programs have locked in memory."""


@dataclass(frozen=True)
class Recording:
    """The placement of a program."""

    lines: list[str]
    """The file of recorded placements: header and records."""
    status: int
    """Exit status of the program."""
    occupied: float
    """Share of the frames in use when the program started."""


@dataclass(frozen=True)
class Command:
    """A program of the guest and its arguments."""

    words: Sequence[str]
    files: dict[str, Path] = field(default_factory=dict)
    """Files that it needs, by their names in the guest."""


def script(commands: Sequence[Command], moves_locked: bool) -> str:
    """The commands of the guest's shell."""
    # A proactive compaction that has begun at boot would move pages that are placed ahead of it.
    lines = ["echo 0 > /proc/sys/vm/compaction_proactiveness\n"]
    if not moves_locked:
        lines.append("echo 0 > /proc/sys/vm/compact_unevictable_allowed\n")
    lines.append("echo 1 > /proc/sys/vm/hash_placement; cd /root\n")
    for number, command in enumerate(commands):
        quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in command.words)
        lines.append(RECORD.format(number=number, command=quoted))
    return "".join(lines)


def unpacked(text: str, number: int) -> Recording | None:
    """The recording with this number on a console; none if nothing was placed."""
    packed = "".join(re.findall(rf"^PACKED {number} (\S+)$", text, re.MULTILINE))
    free = re.search(rf"^FREE {number} nr_free_pages (\d+) (\d+)$", text, re.MULTILINE)
    *lines, last = gzip.decompress(base64.b64decode(packed)).decode().splitlines() or [""]
    status = re.fullmatch(r"# status (\d+)", last)
    frames = re.search(r" frames=(\d+) ", lines[0]) if lines else None
    if not frames or not status or not free:
        return None
    share = (int(free[1]) + int(free[2])) / int(frames[1])
    return Recording(lines, int(status[1]), 1 - share)


def record(guest: Guest, commands: Sequence[Command], name: str, seconds: float) -> list[Recording]:
    """Boots the guest, runs the commands one after the other, and records their placements."""
    image = kernel(variant(KERNELS[guest.kernel]))
    files = {"bin/dump_frames": program(HERE / "guest/dump_frames.c")}
    for command in commands:
        files |= command.files
    options = [] if guest.seed is None else [f"hash_placement_seed={guest.seed}"]
    if guest.occupied:
        options.append(f"occupied_frames={round(1e6 * guest.occupied)}")
    text = boot(
        image,
        guest.kernel == "um",
        script(commands, guest.moves_locked),
        files,
        name,
        memory=guest.memory_mb,
        append=" ".join(options),
        # Pages are cleared by 8 bytes at a time and not byte by byte.
        cpu="max,-erms",
        seconds=seconds,
    )
    # Packed records may contain any word.
    check_log(re.sub(r"^PACKED .*$", "", text, flags=re.MULTILINE), name)
    found = []
    for number, command in enumerate(commands):
        one = unpacked(text, number)
        if one is None:
            raise Failure(
                f"nothing was placed for {command.words[0]} (see {cache() / name}.console)"
            )
        found.append(one)
    return found
