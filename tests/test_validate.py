"""`pagewalk validate`: the processor's counters beside the simulated ones."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import fake
from invoking import Invoke, refused
from pagewalk import Failure
from pagewalk.host import perf_counters, timing

ROOT = Path(__file__).parent.parent

ZEN3 = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC 7B13
flags\t\t: fpu vme{more}

processor\t: 1
vendor_id\t: AuthenticAMD
"""
ICE_LAKE = """\
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 106
model name\t: Intel(R) Xeon(R) Platinum 8375C
flags\t\t: fpu vme
"""

# Runs the program as perf does and writes the output of perf 6.1 with -x. A line for each event of
# the group: count, unit, event, time, share of the time. The counts are FAKE_COUNTS, in order.
PERF = """\
#!/usr/bin/env python3
import json, os, subprocess, sys
words = sys.argv[1:]
at = words.index("--")
group = words[words.index("-e") + 1].strip("{}")
events, depth, word = [], 0, ""
for letter in group:
    depth += (letter == "/") and (1 if depth == 0 else -1)
    if letter == "," and depth == 0:
        events.append(word)
        word = ""
    else:
        word += letter
events.append(word)
with open(os.environ["FAKE_LOG"], "a") as log:
    log.write(json.dumps(words) + "\\n")
if os.environ.get("FAKE_ERROR"):
    sys.stderr.write(os.environ["FAKE_ERROR"])
    sys.exit(129)
status = subprocess.run(words[at + 1 :]).returncode
counts = json.loads(os.environ["FAKE_COUNTS"])
share = os.environ.get("FAKE_SHARE", "100.00")
with open(words[words.index("-o") + 1], "w") as out:
    out.write("# started on Sun Nov 22 16:34:46 2026\\n\\n")
    for event in events:
        count = counts.pop(0)
        value = count if words[at + 1] != "true" or "<" in str(count) else 42
        out.write(f"{value};;{event};1000000;{share};;\\n")
sys.exit(status)
"""


class Host:
    """A made-up processor with a made-up perf."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.patch = folder, monkeypatch
        self.log = folder / "log"
        perf = folder / "bin" / "perf"
        perf.parent.mkdir()
        perf.write_text(PERF)
        perf.chmod(perf.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{perf.parent}:{os.environ['PATH']}")
        monkeypatch.setenv("FAKE_LOG", str(self.log))
        self.is_a(ZEN3.format(more=""))
        self.pages("always [madvise] never")
        self.counts(2_000_000, 3_000_000, 133_000, 120_000, 121_000)

    def is_a(self, cpuinfo: str) -> None:
        path = self.folder / "cpuinfo"
        path.write_text(cpuinfo)
        self.patch.setattr(perf_counters, "CPUINFO", path)

    def pages(self, mode: str) -> None:
        path = self.folder / "enabled"
        path.write_text(mode)
        self.patch.setattr(perf_counters, "HUGE_PAGES", path)

    def counts(self, *values: object) -> None:
        self.patch.setenv("FAKE_COUNTS", json.dumps(values))

    def calls(self) -> list[list[str]]:
        """The arguments of each call of perf."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


def test_counts_stand_beside_the_simulated_ones(
    host: Host, engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    out = tmp_path / "out.json"
    status, _, err = invoke("validate", "--runs", "2", "--json", str(out), "--", "sh", "-c", "exit")
    assert status == 0, err
    data = json.loads(out.read_text())
    quantities = {q["name"]: q for q in data["quantities"]}
    measured = {name: q["measured"] for name, q in quantities.items()}
    assert measured == {
        "instructions": 2_000_000,
        "cycles": 3_000_000,
        "l1d_tlb_misses": 133_000,
        "l2_tlb_misses": 120_000,
        "walks": 121_000,
        "ipc": pytest.approx(2 / 3),
        "l1d_tlb_mpki": pytest.approx(66.5),
        "l2_tlb_mpki": pytest.approx(60.0),
    }
    # The stand-in's 20 M instructions with 61.25 misses a thousand.
    l2 = quantities["l2_tlb_misses"]
    assert l2["simulated"] == pytest.approx(61.25 * 20_000)
    assert l2["ratio"] == pytest.approx(61.25 * 20_000 / 120_000)
    assert quantities["walks"]["simulated"] == 1_234_567
    assert data["processor"]["name"] == "AMD EPYC 7B13"
    assert data["simulation"]["designs"][0]["name"]
    assert "simulated/measured" in err and "AMD EPYC 7B13" in err
    # A look for counters and one for these events, then both runs, all events in a group of five.
    calls = host.calls()
    assert [call[-1] for call in calls[:2]] == ["true", "true"]
    groups = [call[call.index("-e") + 1] for call in calls]
    assert groups[0] == "{instructions:u}"
    assert groups[1:] == 3 * [
        "{instructions:u,cycles:u,cpu/event=0x45,umask=0xff,name=l1d_tlb_miss/u,"
        "cpu/event=0x45,umask=0xf0,name=l2_tlb_miss/u,cpu/event=0x46,umask=0x03,name=dside_walks/u}"
    ]


def test_intels_events_are_added_up(
    host: Host, engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    host.is_a(ICE_LAKE)
    # instructions, cycles, hits of the second level by load and store, walks by load and store.
    host.counts(1000, 2000, 30, 4, 500, 60)
    out = tmp_path / "out.json"
    status, _, err = invoke("validate", "--runs", "1", "--json", str(out), "--", "true", "x")
    assert status == 0, err
    data = json.loads(out.read_text())
    assert data["events"]["l1d_tlb_misses"] == [
        "dtlb_load_misses.stlb_hit",
        "dtlb_store_misses.stlb_hit",
        "dtlb_load_misses.walk_completed",
        "dtlb_store_misses.walk_completed",
    ]


def test_intels_counts() -> None:
    events = perf_counters.Processor("GenuineIntel", 6, 106, "Xeon", False).events
    assert set(events["l2_tlb_misses"]) < set(events["l1d_tlb_misses"])


@pytest.mark.parametrize(
    ("cpuinfo", "pages", "design"),
    [
        (ZEN3.format(more=""), "always [madvise] never", "radix"),
        (ZEN3.format(more=""), "[always] madvise never", "thp"),
        (ZEN3.format(more=" hypervisor"), "always madvise [never]", "radix-virtual"),
        (ZEN3.format(more=" hypervisor"), "[always] madvise never", "thp-virtual"),
    ],
)
def test_the_design_is_as_this_host_translates(
    host: Host, engine: fake.Engine, invoke: Invoke, cpuinfo: str, pages: str, design: str
) -> None:
    host.is_a(cpuinfo)
    host.pages(pages)
    assert invoke("validate", "--runs", "1", "--", "sh", "-c", "exit")[0] == 0
    (spec,) = engine.specs
    assert spec["designs"] == [design]
    invoke("validate", "--runs", "1", "--design", "ecpt", "--", "sh", "-c", "exit")
    assert engine.specs[-1]["designs"] == ["ecpt"]


def test_shared_counters_are_reported(host: Host, engine: fake.Engine, invoke: Invoke) -> None:
    host.patch.setenv("FAKE_SHARE", "61.50")
    status, _, err = invoke("validate", "--", "sh", "-c", "exit")
    assert status == 0
    assert "perf shared the counters with others" in err.replace("\n", " ")
    assert "62 %" in err


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            {"FAKE_COUNTS": '["<not supported>", 5, 5, 5, 5]'},
            "the processor's counters cannot be read here",
        ),
        ({"FAKE_COUNTS": '["<not counted>", 5, 5, 5, 5]'}, "perf_event_paranoid"),
        ({"FAKE_ERROR": "event syntax error: 'x'\n"}, "event syntax error: 'x'"),
        ({"PATH": "/nonexistent"}, "perf is not found"),
    ],
)
def test_a_failed_measurement_simulates_nothing(
    host: Host, engine: fake.Engine, invoke: Invoke, change: dict[str, str], says: str
) -> None:
    for name, value in change.items():
        host.patch.setenv(name, value)
    counters = ("validate", "--by", "counters")
    assert says in refused(invoke, *counters, "--", "/bin/sh", "-c", "exit", status=125)
    assert engine.specs == []


@pytest.mark.parametrize("lacking", ["instructions", "events"])
def test_without_counters_the_clock_measures(
    host: Host, engine: fake.Engine, invoke: Invoke, lacking: str
) -> None:
    there = 2 if lacking == "events" else 0
    host.patch.setenv("FAKE_COUNTS", json.dumps([5] * there + ["<not supported>"] * (5 - there)))
    once = timing.Timing([timing.Pair(3.0, 2.0)], None, None)
    host.patch.setattr(timing, "measure", lambda *_, **__: once)
    host.patch.setattr(timing, "mode", lambda: "always")
    status, _, err = invoke("validate", "--", "sh", "-c", "exit")
    assert status == 0, err
    assert err.startswith("measured by the clock: the processor's counters cannot be read here")
    assert "time with 4 KB : with 2 MB pages" in err
    assert engine.specs[0]["designs"] == ["thp", "radix"]


def test_counters_take_no_part_of_a_program(
    host: Host, engine: fake.Engine, invoke: Invoke
) -> None:
    err = refused(invoke, "validate", "--instructions", "1M", "--", "sh", "-c", "exit")
    assert err.startswith("error: --instructions: counters count the whole program")
    assert "--by clock" in err
    assert engine.specs == []


def test_an_unknown_processor_a_failing_program_and_no_program(
    host: Host, engine: fake.Engine, invoke: Invoke
) -> None:
    status, _, err = invoke("validate", "--", "sh", "-c", "exit 3")
    assert status == 125 and "ended with status 3" in err
    host.is_a("vendor_id\t: CentaurHauls\ncpu family\t: 6\n")
    status, _, err = invoke("validate", "--by", "counters", "--", "sh", "-c", "exit")
    assert status == 125 and "CentaurHauls" in err
    status, _, err = invoke("validate")
    assert status == 2 and "no program" in err
    assert engine.specs == []


def test_each_run_reads_the_same_input(
    host: Host, engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    text, kept = tmp_path / "in", os.dup(0)
    text.write_text("once\n")
    seen = tmp_path / "seen"
    try:
        with text.open() as file:
            os.dup2(file.fileno(), 0)
        status, _, err = invoke("validate", "--runs", "3", "--", "sh", "-c", f"cat >> {seen}")
    finally:
        os.dup2(kept, 0)
        os.close(kept)
    assert status == 0, err
    assert seen.read_text() == "once\n" * 3


# Every host has the software events of perf.
SOFTWARE = {"instructions": ["task-clock"], "cycles": ["page-faults"]}


def _perf_counts_software() -> bool:
    perf = shutil.which("perf")
    return (
        perf is not None
        and subprocess.run(
            [perf, "stat", "-e", "task-clock:u", "true"], capture_output=True, check=False
        ).returncode
        == 0
    )


# perf may be missing, or be of another kernel, and a kernel or container may forbid to count
# (`perf_event_paranoid`, seccomp). The other tests have a made-up perf and run everywhere.
@pytest.mark.skipif(not _perf_counts_software(), reason="perf counts nothing here")
def test_a_programs_marks_switch_the_real_perf(tmp_path: Path) -> None:
    def compiled(name: str, *flags: str) -> str:
        out = str(tmp_path / name)
        gups = str(ROOT / "validation" / "gups.c")
        subprocess.run(["gcc", "-O2", f"-I{ROOT / 'include'}", *flags, gups, "-o", out], check=True)
        return out

    marked = [compiled("marked", "-DPAGEWALK_PERF"), "16", "1000"]
    whole = perf_counters.count(marked, SOFTWARE, region=False).values["cycles"]
    region = perf_counters.count(marked, SOFTWARE, region=True).values["cycles"]
    # All 4,096 pages are touched before the region begins.
    assert whole > 4096 and region < 50
    with pytest.raises(Failure, match="compiled with -DPAGEWALK_PERF"):
        perf_counters.count([compiled("plain"), "16", "1000"], SOFTWARE, region=True)
