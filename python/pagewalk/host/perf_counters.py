"""The counters of the processor that this runs on, read by ``perf stat``."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagewalk.errors import Failure

CPUINFO = Path("/proc/cpuinfo")
PARANOID = Path("/proc/sys/kernel/perf_event_paranoid")
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

Events = Mapping[str, Sequence[str]]
"""For each quantity the perf events whose counts are added."""

_COMMON: Events = {"instructions": ["instructions"], "cycles": ["cycles"]}
# Processor Programming References of families 17h and 19h. LsL1DTlbMiss (PMCx045): any reload,
# and those that the L2 TLB missed. LsTablewalker (PMCx046): both walkers of the data side.
# Zen 3 under a hypervisor counts wrongly in the sixth counter of a group: five at most.
_ZEN: Events = {
    **_COMMON,
    "l1d_tlb_misses": ["cpu/event=0x45,umask=0xff,name=l1d_tlb_miss/"],
    "l2_tlb_misses": ["cpu/event=0x45,umask=0xf0,name=l2_tlb_miss/"],
    "walks": ["cpu/event=0x46,umask=0x03,name=dside_walks/"],
}
_ZEN_WITHOUT_WALKS: Events = {name: events for name, events in _ZEN.items() if name != "walks"}
# Intel SDM vol. 3, chapter 20, and perf's own names. Instructions and cycles have counters of
# their own; four others count at a time on cores with hyperthreading. A miss of the second
# level is counted by the walk that it completes.
_HIT = ["dtlb_load_misses.stlb_hit", "dtlb_store_misses.stlb_hit"]
_WALK = ["dtlb_load_misses.walk_completed", "dtlb_store_misses.walk_completed"]
_INTEL: Events = {
    **_COMMON,
    "l1d_tlb_misses": [*_HIT, *_WALK],
    "l2_tlb_misses": _WALK,
    "walks": _WALK,
}


@dataclass(frozen=True)
class Processor:
    """A processor, as ``/proc/cpuinfo`` describes it."""

    vendor: str
    family: int
    model: int
    name: str
    hypervisor: bool
    """True in a virtual machine."""

    @classmethod
    def of_this_host(cls) -> Processor:
        """The processor of the first entry of ``/proc/cpuinfo``."""
        fields: dict[str, str] = {}
        for line in CPUINFO.read_text().split("\n\n")[0].splitlines():
            key, _, value = line.partition(":")
            fields[key.strip()] = value.strip()

        def number(key: str) -> int:
            return int(fields[key]) if fields.get(key, "").isdigit() else -1

        return cls(
            fields.get("vendor_id", "unknown"),
            number("cpu family"),
            number("model"),
            fields.get("model name", "unknown processor"),
            "hypervisor" in fields.get("flags", "").split(),
        )

    @property
    def events(self) -> Events:
        """The events to count on it. Raises `Failure` for an unknown processor."""
        if self.vendor == "AuthenticAMD" and self.family >= 0x17:
            # From Zen 4 on (family 19h, models 10h and up) the walkers' event is not documented.
            old = self.family == 0x17 or (self.family == 0x19 and not 0x10 <= self.model < 0x20)
            return _ZEN if old and self.model < 0x60 else _ZEN_WITHOUT_WALKS
        if self.vendor == "GenuineIntel" and self.family == 6:
            return _INTEL
        raise Failure(
            f"{self.name} ({self.vendor}, family {self.family}): no TLB events are known of it; "
            "expected AMD since Zen, or Intel's Core and Xeon"
        )


@dataclass(frozen=True)
class Counts:
    """One run of a program."""

    values: dict[str, float]
    """Counts by quantity."""
    shared: float
    """The least part of the time that an event counted, of 1; below it perf has scaled."""


def find() -> str:
    """The path of perf. Raises `Failure` where there is none."""
    path = shutil.which("perf")
    if path is None:
        raise Failure(
            "perf is not found; apt-get install linux-perf (Debian) or linux-tools-generic (Ubuntu)"
        )
    return path


def check(events: Events) -> None:
    """Raises `Failure` where perf cannot count these events."""
    # Instructions alone come first: perf says of them if there are counters at all.
    for some in ({"instructions": ["instructions"]}, events):
        count(["true"], some, region=False)


def count(
    program: Sequence[str], events: Events, *, region: bool, pid: int | None = None
) -> Counts:
    """Runs the program under perf and counts it in user mode, with all that it starts.

    With `pid` it counts that process instead, as long as the program runs.

    With `region` only what lies between the marks of pagewalk.h, for which it has to be compiled.
    What it prints on standard output is dropped. Raises `Failure` where counters cannot be read,
    the region does not come, or the program fails.
    """
    perf = find()
    names = list(dict.fromkeys(name for alternatives in events.values() for name in alternatives))
    # A group counts together or not at all, so that ratios are of the same time.
    group = "{" + ",".join(f"{name}u" if name[-1] == "/" else f"{name}:u" for name in names) + "}"
    with (
        tempfile.NamedTemporaryFile("r", prefix="pagewalk-") as report,
        _control(region) as control,
    ):
        arguments, environment, passed = control
        if pid is not None:
            arguments = [*arguments, "-p", str(pid)]
        command = [perf, "stat", "-x;", "-o", report.name, *arguments, "-e", group, "--", *program]
        done = subprocess.run(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, "LC_ALL": "C", **environment},
            pass_fds=passed,
            check=False,
        )
        rows = _rows(report.read())
    if len(rows) != len(names):
        said = " ".join(done.stderr.split())[:200]
        raise Failure(
            f"perf stat gives {len(rows)} of {len(names)} counts of {', '.join(names)}; expected a "
            f"perf that knows this processor; it says: {said or 'nothing'}"
        )
    if done.returncode:
        raise Failure(f"{program[0]}: ended with status {done.returncode} where it was measured")
    found: dict[str, float] = {}
    for name, (value, _) in zip(names, rows, strict=True):
        if value == "<not supported>":
            raise Failure(_absent(name))
        if not value.replace(".", "", 1).isdigit():
            raise Failure(_not_counted(name, region))
        found[name] = float(value)
    values = {name: sum(found[one] for one in parts) for name, parts in events.items()}
    if region and values["instructions"] == 0:
        raise Failure(_not_counted("instructions", region))
    return Counts(values, min(share for _, share in rows))


def _rows(report: str) -> list[tuple[str, float]]:
    """Count and share of the time of each event, in the order of perf's arguments."""
    rows = []
    for line in report.splitlines():
        fields = line.split(";")
        if len(fields) >= 5 and not line.startswith("#"):
            rows.append((fields[0], float(fields[4] or 100) / 100))
    return rows


def _absent(event: str) -> str:
    why = (
        "this virtual machine has no counters, or" if _virtual() else "the kernel has no driver, or"
    )
    return (
        f"the processor's counters cannot be read here: perf says <not supported> of {event} "
        f"({why} the processor lacks the event); expected a host whose "
        f"'perf stat -e instructions:u true' prints a count"
    )


def _virtual() -> bool:
    return CPUINFO.exists() and Processor.of_this_host().hypervisor


def no_region() -> str:
    """The message for a program without marks."""
    return (
        "the region of interest did not come; expected a program "
        "compiled with -DPAGEWALK_PERF, whose pagewalk_roi_begin() begins the measured part"
    )


def _not_counted(event: str, region: bool) -> str:
    if region:
        return no_region()
    level = PARANOID.read_text().strip() if PARANOID.exists() else "unknown"
    return (
        f"perf could not count {event}: other uses of the counters may "
        f"take them, or they are not permitted (kernel.perf_event_paranoid is {level}; 2 or less "
        "is needed)"
    )


@contextmanager
def _control(region: bool) -> Iterator[tuple[list[str], dict[str, str], tuple[int, ...]]]:
    """Connects the program's region marks to perf.

    Gives perf's arguments, the program's environment, and the descriptors that both inherit.
    """
    if not region:
        yield [], {}, ()
        return
    control, to_control = os.pipe()
    from_ack, ack = os.pipe()
    ends = (control, to_control, from_ack, ack)
    try:
        yield (
            ["-D", "-1", "--control", f"fd:{control},{ack}"],
            {"PAGEWALK_PERF": f"{to_control},{from_ack}"},
            ends,
        )
    finally:
        for end in ends:
            os.close(end)
