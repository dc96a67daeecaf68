"""CPU time of a program on this host, without huge pages and with them.

A program without huge pages inherits ``PR_SET_THP_DISABLE``. One with them needs a kernel that
gives huge pages to all memory (``always``), or an allocator that asks for them (``madvise``).
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pagewalk.errors import Failure
from pagewalk.host import perf_counters
from pagewalk.host.standard_input import rewind
from pagewalk.view.output import reason

_PR_SET_THP_DISABLE, _PR_GET_THP_DISABLE = 41, 42
_ALLOCATORS = (
    # glibc from 2.35 on: The GNU C Library Reference Manual, "Memory Allocation Tunables".
    ("GLIBC_TUNABLES", ":", "glibc.malloc.hugetlb", "=1"),
    # jemalloc(3), opt.thp.
    ("MALLOC_CONF", ",", "thp", ":always"),
)
"""Variables that make an allocator ask for huge pages: name, separator, option, value."""
_CREDENTIALS = struct.Struct("3i")
_SHORTEST, _LONGEST = 0.005, 0.25
"""Seconds between two looks at a program's memory: the first, and at most. Ours."""


@dataclass(frozen=True)
class Memory:
    """Anonymous memory of a program and all processes that it has started, in bytes."""

    anonymous: int
    huge: int
    """In transparent huge pages, by ``smaps_rollup``."""

    @property
    def share(self) -> float:
        """Share in huge pages, of 1."""
        return self.huge / self.anonymous if self.anonymous else 0.0


@dataclass(frozen=True)
class Run:
    """One run of a program."""

    seconds: float
    """CPU time, user and system."""
    memory: Memory | None
    """The largest that was seen; none if nobody looked, or the run was too short."""


@dataclass(frozen=True)
class Pair:
    """CPU seconds of two runs, one after the other."""

    small: float
    """Without huge pages."""
    huge: float

    @property
    def ratio(self) -> float:
        """Time without huge pages over time with them."""
        return self.small / self.huge


@dataclass(frozen=True)
class Timing:
    """Several pairs of runs, and the memory of the run with the median share in huge pages."""

    pairs: list[Pair]
    small: Memory | None
    huge: Memory | None


def mode() -> str:
    """The kernel's mode of huge pages of 2 MB: ``always``, ``madvise`` or ``never``."""
    general = _chosen(perf_counters.HUGE_PAGES)
    own = _chosen(perf_counters.HUGE_PAGES.parent / "hugepages-2048kB" / "enabled")
    return general if own in ("", "inherit") else own


def _chosen(path: Path) -> str:
    """The word in brackets."""
    try:
        return path.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        return ""


def check() -> None:
    """Raises `Failure` where no program gets huge pages."""
    path = perf_counters.HUGE_PAGES
    if not path.exists():
        raise Failure(
            "time with huge pages cannot be measured, since this kernel has none; expected a "
            f"kernel with {path}"
        )
    if mode() == "never":
        raise Failure(
            "time with huge pages cannot be measured, since this host's mode is never; as root: "
            f"echo madvise > {path}"
        )


def environment() -> dict[str, str]:
    """Variables by which a program's allocator asks for huge pages, where it has to."""
    if mode() != "madvise":
        return {}
    added = {}
    for name, separator, option, value in _ALLOCATORS:
        given = os.environ.get(name, "").split(separator)
        # A choice of the user stays.
        if not any(one.startswith(f"{option}{value[0]}") for one in given):
            added[name] = separator.join(filter(None, (*given, option + value)))
    return added


@contextmanager
def asking() -> Iterator[None]:
    """A program that is simulated within asks for huge pages as a timed one does."""
    before = {name: os.environ.get(name) for name, *_ in _ALLOCATORS}
    os.environ.update(environment())
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _inheriting(*, huge: bool) -> Iterator[None]:
    """Children that start within get no huge pages, or get them."""
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    before = prctl(_PR_GET_THP_DISABLE, 0, 0, 0, 0)
    if before < 0 or prctl(_PR_SET_THP_DISABLE, int(not huge), 0, 0, 0) < 0:
        raise Failure(
            "huge pages cannot be switched off for a program: prctl(PR_SET_THP_DISABLE) says "
            f"{os.strerror(ctypes.get_errno()).lower()}; expected Linux 3.15 or later"
        )
    try:
        yield
    finally:
        # Linux 6.18 has flags beside the lowest bit, in an argument of their own.
        prctl(_PR_SET_THP_DISABLE, before & 1, before & ~1, 0, 0)


def measure(program: Sequence[str], *, region: bool, runs: int) -> Timing:
    """Times of pairs of runs, in alternating order.

    An observed run of each kind comes first. Its time does not count: it fills the page cache, and
    looking at its memory disturbs it. With `region` only what lies between the first marks of
    pagewalk.h counts, and every run is looked at while it waits at the second. Raises `Failure` if
    the region does not come, or the program fails.
    """
    check()
    every = {huge: [run(program, huge=huge, region=region, observed=True)] for huge in KINDS}
    for number in range(runs):
        # A steady drift of the host's speed cancels out in two pairs.
        for huge in KINDS if number % 2 == 0 else reversed(KINDS):
            every[huge].append(run(program, huge=huge, region=region))
    pairs = [
        Pair(small.seconds, huge.seconds)
        for small, huge in zip(every[False][1:], every[True][1:], strict=True)
    ]
    return Timing(pairs, _usual(every[False]), _usual(every[True]))


KINDS = (False, True)
"""Runs without huge pages, and with them."""


def _usual(runs: Sequence[Run]) -> Memory | None:
    """The memory with the median share in huge pages."""
    seen = sorted((one.memory for one in runs if one.memory), key=lambda memory: memory.share)
    return seen[len(seen) // 2] if seen else None


def run(program: Sequence[str], *, huge: bool, region: bool, observed: bool = False) -> Run:
    """One run, whose output is dropped. Raises `Failure` as `measure`."""
    rewind()
    ours, theirs = _sockets() if region else (None, None)
    variables = {**os.environ, **environment()}
    if theirs is not None:
        variables["PAGEWALK_PERF"] = f"{theirs.fileno()},{theirs.fileno()}"
    try:
        with _inheriting(huge=huge):
            process = subprocess.Popen(
                program,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=variables,
                pass_fds=() if theirs is None else (theirs.fileno(),),
                start_new_session=True,
            )
    except OSError as error:
        _close(ours, theirs)
        raise Failure(f"{program[0]}: cannot be started: {reason(error)}") from None
    try:
        watch = _Watch(process.pid, ours, observed=observed)
        watch.until_the_end()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        _close(ours, theirs)
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if process.returncode:
        raise Failure(f"{program[0]}: {_ending(process.returncode)} where it was measured")
    seconds = watch.seconds if region else used.ru_utime + used.ru_stime
    if seconds is None:
        raise Failure(perf_counters.no_region())
    if seconds <= 0:
        raise Failure(
            f"{program[0]}: ends within a microsecond of CPU time, so nothing can be timed; "
            "expected more work, tenths of a second at best"
        )
    return Run(seconds, watch.memory)


def _ending(status: int) -> str:
    if status < 0:
        return f"died of {signal.Signals(-status).name}"
    return f"ended with status {status}"


def _sockets() -> tuple[socket.socket, socket.socket]:
    """A connection for marks. Each comes as a message of its own, with its sender's PID."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    return ours, theirs


def _close(*ends: socket.socket | None) -> None:
    for end in ends:
        if end is not None:
            end.close()


class _Watch:
    """A running program: its marks, and its memory."""

    def __init__(self, pid: int, marks: socket.socket | None, *, observed: bool) -> None:
        self.pid, self.marks, self.observed = pid, marks, observed
        self.memory: Memory | None = None
        self.seconds: float | None = None
        """CPU time of the region; none before its end."""
        self._in_region: tuple[int, float] | None = None
        """The process that is in the region, and its CPU time at the first mark."""

    def until_the_end(self) -> None:
        """Waits until the program has ended; it is not reaped."""
        ended = os.pidfd_open(self.pid)
        try:
            polled = select.poll()
            polled.register(ended, select.POLLIN)
            if self.marks is not None:
                polled.register(self.marks, select.POLLIN)
            wait = _SHORTEST
            while True:
                ready = {one for one, _ in polled.poll(1000 * wait if self.observed else None)}
                if self.marks is not None and self.marks.fileno() in ready:
                    self._mark(self.marks)
                elif ended in ready:
                    self._leave_region(self.pid)
                    return
                elif not ready:
                    self._look()
                    wait = min(1.25 * wait, _LONGEST)
        finally:
            os.close(ended)

    def _mark(self, marks: socket.socket) -> None:
        """Answers a mark: the program waits meanwhile, so its CPU time stands still."""
        word, more, _, _ = marks.recvmsg(32, socket.CMSG_SPACE(_CREDENTIALS.size))
        sender = next((_CREDENTIALS.unpack(data)[0] for _, _, data in more), self.pid)
        if word.startswith(b"enable") and self.seconds is None and self._in_region is None:
            self._in_region = sender, _cpu_seconds(sender)
        elif word.startswith(b"disable"):
            self._leave_region(sender)
            self._look()
        marks.send(b"ack\n")

    def _leave_region(self, pid: int) -> None:
        """Ends the region that this process is in, if it is in one."""
        if self._in_region is not None and self._in_region[0] == pid:
            self.seconds = _cpu_seconds(pid) - self._in_region[1]
            self._in_region = None

    def _look(self) -> None:
        """Keeps the memory if it is the largest so far."""
        now = memory(self.pid)
        if now.anonymous and (self.memory is None or now.anonymous > self.memory.anonymous):
            self.memory = now


def _cpu_seconds(pid: int) -> float:
    """CPU time of a process and its threads."""
    # Linux's clock of another process, as clock_getcpuclockid(3) gives it.
    return time.clock_gettime((~pid << 3) | 2)


def memory(pid: int) -> Memory:
    """Memory of a process and its descendants now."""
    anonymous = huge = 0
    for one in _family(pid):
        with suppress(OSError):
            for line in Path(f"/proc/{one}/smaps_rollup").read_text().splitlines():
                name, _, value = line.partition(":")
                if name == "Anonymous":
                    anonymous += int(value.split()[0]) << 10
                elif name == "AnonHugePages":
                    huge += int(value.split()[0]) << 10
    return Memory(anonymous, huge)


def _family(pid: int) -> Iterator[int]:
    yield pid
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _family(int(child))
