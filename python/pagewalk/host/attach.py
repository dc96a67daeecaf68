"""An estimate of a running process's address translation, from ``/proc``, without a simulation."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np

from pagewalk.errors import Failure, UserError
from pagewalk.host import perf_counters
from pagewalk.view.output import reason
from pagewalk.view.quantities import count, size
from pagewalk.view.table_layout import print_pairs
from pagewalk.view.terminal import console, line, sentence

PAGE, HUGE = 4096, 2 << 20
_PER_HUGE = HUGE // PAGE
_PRESENT = np.uint64(1 << 63)


@dataclass(frozen=True)
class Area:
    """One mapping of ``smaps``; sizes in bytes."""

    start: int
    end: int
    anonymous: bool
    """True for private memory without a file, which huge pages of the kernel can back."""
    resident: int
    huge: int
    """Bytes in pages of 2 MB and more."""
    touched: int
    """Bytes of pages that were accessed since the referenced bits were cleared; 0 for files."""


@dataclass(frozen=True)
class Estimate:
    """The memory of a process, and the pages that it accessed in an interval; sizes in bytes."""

    pid: int
    command: str
    seconds: float
    """Length of the interval in which accesses were observed; 0 if they could not be."""
    resident: int
    anonymous: int
    """Resident bytes of private memory without a file."""
    huge: int
    """Resident bytes in pages of 2 MB and more."""
    possible: int
    """Resident bytes that pages of 2 MB could hold: aligned 2 MB of one anonymous mapping."""
    filled: float | None
    """Share of the pages present in these 2 MB ranges; None if ``pagemap`` is not readable."""
    touched: int | None
    """Bytes of pages accessed in the interval, without those of files; None if not observed."""
    entries_4kb: int | None
    """TLB entries for the touched memory as it is mapped."""
    entries_2mb: int | None
    """TLB entries for it if every possible huge page were one."""
    tlb_entries: int
    """Entries of the machine's second-level TLB."""
    counters: Mapping[str, float] | None
    """Counts of the processor in the interval (`perf_counters.Processor.events`), if readable."""
    limits: Sequence[str] = field(default_factory=tuple)
    """Parts that could not be observed, with the reasons."""

    def to_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return asdict(self)


def estimate(pid: int, seconds: float, tlb_entries: int) -> Estimate:
    """Observes the process `pid` for `seconds`; `tlb_entries` are those of a second-level TLB.

    The referenced bits of the process's pages are cleared at the start. That changes which pages
    the host's kernel reclaims first, and nothing else. Accesses to pages that stay in the
    processor's TLBs all the time are not seen.

    Raises `UserError` for no such process or a kernel thread; `Failure` without permission.
    """
    command = _command(pid)
    limits: list[str] = []
    observed, counters = 0.0, None
    if seconds > 0:
        if (refused := _clear(pid)) is None:
            observed = seconds
        else:
            limits.append(f"accessed pages were not observed: {refused}")
        counters = _count(pid, seconds, limits)
    areas = list(_areas(pid))
    filled = _filled(pid, areas, limits)
    possible = [_possible(area) for area in areas]
    touched = sum(area.touched for area in areas) if observed else None
    entries, fewer = (None, None) if touched is None else _entries(areas)
    return Estimate(
        pid=pid,
        command=command,
        seconds=observed,
        resident=sum(area.resident for area in areas),
        anonymous=sum(area.resident for area in areas if area.anonymous),
        huge=sum(area.huge for area in areas),
        possible=sum(possible),
        filled=filled,
        touched=touched,
        entries_4kb=entries,
        entries_2mb=fewer,
        tlb_entries=tlb_entries,
        counters=counters,
        limits=limits,
    )


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if words[0]:
            return words[0].decode(errors="replace")
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError as error:
        raise UserError(
            f"there is no process {pid} ({reason(error)}); expected the number of a running "
            "process, such as one that 'ps' lists"
        ) from None
    raise UserError(
        f"process {pid} ({name}) has no memory: it is the kernel's, or has ended; expected a "
        "program"
    )


@contextmanager
def _opened(pid: int, name: str, mode: str = "r") -> Iterator[IO[Any]]:
    """A file of the process in ``/proc``. Raises `Failure` where it may not be opened."""
    path = Path(f"/proc/{pid}/{name}")
    try:
        with path.open(mode, buffering=0 if mode == "rb" else -1) as file:
            yield file
    except PermissionError:
        raise Failure(
            f"{path} may not be read; run as the process's user or as root, or allow it with "
            "kernel.yama.ptrace_scope=0"
        ) from None
    except (FileNotFoundError, ProcessLookupError):
        raise Failure(f"process {pid} has ended") from None


def _clear(pid: int) -> str | None:
    """Clears the referenced bits; returns the reason where that is refused."""
    try:
        Path(f"/proc/{pid}/clear_refs").write_text("1\n")
    except OSError as error:
        return f"/proc/{pid}/clear_refs: {reason(error)}"
    return None


def _count(pid: int, seconds: float, limits: list[str]) -> Mapping[str, float] | None:
    """Waits, and counts the process's events meanwhile where the host permits it."""
    begin = time.monotonic()
    try:
        events = perf_counters.Processor.of_this_host().events
        return perf_counters.count(["sleep", f"{seconds}"], events, region=False, pid=pid).values
    except Failure as error:
        first = str(error).split(", so nothing")[0].split(";")[0]
        limits.append(f"TLB misses were not counted: {first}")
    time.sleep(max(0.0, begin + seconds - time.monotonic()))
    return None


def _areas(pid: int) -> Iterator[Area]:
    with _opened(pid, "smaps") as file:
        head, fields = "", {}
        for text in [*file.read().splitlines(), "0-0 ---p 0 00:00 0"]:
            words = text.split()
            if words and words[0].endswith(":"):
                if len(words) > 2 and words[2] == "kB":
                    fields[words[0][:-1]] = int(words[1]) << 10
                continue
            if head:
                yield _area(head, fields)
            head, fields = text, {}


def _area(head: str, fields: Mapping[str, int]) -> Area:
    words = head.split(maxsplit=5)
    start, end = (int(word, 16) for word in words[0].split("-"))
    name = words[5] if len(words) > 5 else ""
    own = name in ("", "[heap]", "[stack]") or name.startswith("[anon")
    huge = sum(fields.get(key, 0) for key in ("AnonHugePages", "ShmemPmdMapped", "FilePmdMapped"))
    huge += sum(fields.get(key, 0) for key in ("Private_Hugetlb", "Shared_Hugetlb"))
    return Area(
        start=start,
        end=end,
        anonymous=own and words[1].endswith("p") and name != "[stack]",
        resident=fields.get("Rss", 0) + fields.get("Private_Hugetlb", 0),
        huge=huge,
        # Pages of files also count as referenced if another process accessed them.
        touched=fields.get("Referenced", 0) if own else 0,
    )


def _aligned(area: Area) -> tuple[int, int]:
    """The part of a mapping that whole aligned pages of 2 MB cover."""
    start, end = -(-area.start // HUGE) * HUGE, area.end // HUGE * HUGE
    return start, max(start, end)


def _possible(area: Area) -> int:
    """Resident bytes that huge pages hold or could hold."""
    if not area.anonymous:
        return area.huge
    start, end = _aligned(area)
    return max(area.huge, min(area.resident, end - start))


def _filled(pid: int, areas: Sequence[Area], limits: list[str]) -> float | None:
    """Share of pages that are present in the 2 MB ranges with at least one page present."""
    present = all_pages = 0
    try:
        with _opened(pid, "pagemap", "rb") as file:
            for area in areas:
                start, end = _aligned(area)
                if not area.anonymous or start == end or not area.resident:
                    continue
                for begin in range(start, end, 512 * HUGE):
                    upto = min(end, begin + 512 * HUGE)
                    file.seek(begin // PAGE * 8)
                    words = np.frombuffer(file.read((upto - begin) // PAGE * 8), np.uint64)
                    pages = (words[: len(words) // _PER_HUGE * _PER_HUGE] & _PRESENT) != 0
                    in_each = pages.reshape(-1, _PER_HUGE).sum(axis=1)
                    present += int(in_each.sum())
                    all_pages += int((in_each > 0).sum()) * _PER_HUGE
    except (Failure, OSError) as error:
        limits.append(f"how full 2 MB ranges are is not known: {error}")
        return None
    return present / all_pages if all_pages else None


def _entries(areas: Sequence[Area]) -> tuple[int, int]:
    """TLB entries for the touched memory: as mapped, and with every possible huge page."""
    now = possible = 0.0
    for area in areas:
        if not area.touched or not area.resident:
            continue
        for bytes_huge, sums in ((area.huge, "now"), (_possible(area), "possible")):
            share = min(1.0, bytes_huge / area.resident)
            entries = area.touched * share / HUGE + area.touched * (1 - share) / PAGE
            if sums == "now":
                now += entries
            else:
                possible += entries
    return round(now), round(possible)


def sentences(found: Estimate) -> list[str]:
    """The answer in words: reach of the TLB, and what huge pages could change."""
    said = []
    reach = f"the second-level TLB of {found.tlb_entries:,} entries"
    if found.touched is None or found.entries_4kb is None or found.entries_2mb is None:
        said.append(f"{size(found.possible)} of {size(found.resident)} could lie in huge pages.")
    else:
        within = f"In {found.seconds:g} s it accessed {size(found.touched)}"
        if not found.touched:
            said.append(
                f"In {found.seconds:g} s it accessed none of its own memory: observe it while it "
                "works, or for longer (--seconds)."
            )
        elif found.entries_4kb <= found.tlb_entries:
            said.append(
                f"{within}, which {reach} holds with pages as they are: translation can cost "
                "little."
            )
        else:
            times = found.entries_4kb / found.tlb_entries
            said.append(
                f"{within} on {count(found.entries_4kb)} pages, {times:.1f} times the entries of "
                f"{reach}."
            )
            fits = found.entries_2mb <= found.tlb_entries
            said.append(
                f"With every possible huge page it would be {count(found.entries_2mb)} pages, "
                f"which {'fit' if fits else 'still do not fit'}."
            )
    if found.filled and found.possible > found.huge:
        more = round((1 / found.filled - 1) * (found.possible - found.huge))
        said.append(
            f"In the 2 MB ranges in use {100 * found.filled:.0f} % of the pages are present: "
            f"huge pages would take {size(more) if more >= HUGE else 'no'} more memory."
        )
    said.append(
        "This is an estimate without a simulation: 'pagewalk compare --designs radix,thp -- "
        "PROGRAM' measures what translation costs and what huge pages gain."
    )
    return said


def show(found: Estimate, machine: str, stream: TextIO) -> None:
    """Prints the estimate: the answer first, then the sizes, then what was not observed."""
    out = console(stream)
    out.print(
        line("estimate  ", (found.command, "bold"), f"  process {found.pid}, TLBs of {machine}")
    )
    for text in sentences(found):
        out.print(sentence(text, out.width))
    for text in found.limits:
        out.print(line(("warning: ", "bold yellow"), text))
    out.print()
    rows = [
        ("resident memory", size(found.resident)),
        ("private, without a file", size(found.anonymous)),
        ("in huge pages", size(found.huge)),
        ("possible in huge pages", size(found.possible)),
    ]
    if found.touched is not None:
        rows.append((f"accessed in {found.seconds:g} s", size(found.touched)))
    for name, value in (found.counters or {}).items():
        rows.append((f"{name.replace('_', ' ')} (user mode)", count(value)))
    print_pairs(rows, out)
