"""`pagewalk validate` by the clock: times with and without huge pages beside simulated ones."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import fake
import pagewalk
from invoking import Cli, Invoke, refused
from live import needs_qemu
from pagewalk import Failure
from pagewalk.host import perf_counters, time_ratio, timing
from pagewalk.host.time_ratio import AGREES, SIGN, SIZE, WIDE, Interval

ROOT = Path(__file__).parent.parent
MICRO = ROOT / "validation" / "programs" / "micro.c"
MB = 1 << 20


def compiled(folder: Path, *flags: str) -> str:
    out = str(folder / "micro")
    command = ["gcc", "-O2", f"-I{ROOT / 'include'}", *flags, str(MICRO), "-o", out]
    subprocess.run(command, check=True)
    return out


@pytest.mark.parametrize(
    ("runs", "low", "high", "covers"),
    [
        (1, 1, 1, 0.0),
        (2, 1, 2, 1 / 2),
        (5, 1, 5, 15 / 16),
        (6, 1, 6, 31 / 32),
        (8, 1, 8, 127 / 128),
        (9, 2, 8, 1 - 2 * 10 / 512),
        (12, 3, 10, 1 - 2 * 79 / 4096),
    ],
)
def test_an_interval_of_order_statistics(runs: int, low: int, high: int, covers: float) -> None:
    values = [float(v) for v in range(runs, 0, -1)]
    found = time_ratio.interval(values)
    assert (found.low, found.high) == (low, high)
    assert found.middle == (runs + 1) / 2
    assert found.coverage == pytest.approx(covers)


@pytest.mark.parametrize(("runs", "rank"), [(6, 1), (9, 2), (7, 3)])
def test_its_coverage_is_that_of_all_signs(runs: int, rank: int) -> None:
    """Each value is above or below the median: the closed form counts the cases that enclose it."""
    cases = list(product((False, True), repeat=runs))
    enclosing = [case for case in cases if rank <= sum(case) <= runs - rank]
    assert time_ratio.coverage(runs, rank) == pytest.approx(len(enclosing) / len(cases))


@pytest.mark.parametrize(
    ("low", "high", "simulated", "found"),
    [
        (1.30, 1.36, 1.25, AGREES),
        (1.30, 1.36, 1.05, SIZE),
        (1.30, 1.36, 2.00, SIZE),
        (1.30, 1.36, 0.95, SIGN),
        (0.70, 0.80, 1.02, SIGN),
        # Neither ratio is a gain or a loss to speak of.
        (1.005, 1.015, 0.99, AGREES),
        (0.90, 1.90, 2.15, WIDE),
        (0.90, 1.10, 0.95, AGREES),
    ],
)
def test_a_verdict(low: float, high: float, simulated: float, found: str) -> None:
    measured = Interval((low + high) / 2, low, high, 0.96)
    assert time_ratio.verdict(measured, simulated) == found
    assert time_ratio.verdict(replace(measured, coverage=0.9375), simulated) == WIDE


class Host:
    """A virtual machine without counters, in which every run takes made-up times."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.enabled = folder / "enabled"
        monkeypatch.setattr(perf_counters, "HUGE_PAGES", self.enabled)
        self.mode("madvise")
        monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
        monkeypatch.setattr(os, "cpu_count", lambda: 2)
        here = perf_counters.Processor("AuthenticAMD", 25, 1, "AMD EPYC 7B13", hypervisor=True)
        monkeypatch.setattr(perf_counters.Processor, "of_this_host", classmethod(lambda _: here))
        monkeypatch.setattr(timing, "run", self.run)
        self.restart()
        self.memory: timing.Memory | None = timing.Memory(100 * MB, 90 * MB)
        self.order: list[bool] = []

    def restart(self) -> None:
        """Lets the made-up times begin anew."""
        self.small, self.huge = iter([9.0, *SMALL]), iter([9.0, *HUGE])

    def mode(self, chosen: str) -> None:
        modes = ("always", "madvise", "never")
        self.enabled.write_text(" ".join(f"[{m}]" if m == chosen else m for m in modes))

    def run(
        self, _program: list[str], *, huge: bool, region: bool, observed: bool = False
    ) -> timing.Run:
        self.order.append(huge)
        seconds = next(self.huge if huge else self.small)
        memory = self.memory if huge else timing.Memory(100 * MB, 0)
        return timing.Run(seconds, memory if observed else None)


HUGE = (1.0, 1.0, 1.0, 1.0, 1.0, 2.0)
SMALL = (1.4, 1.5, 1.6, 1.7, 1.8, 3.0)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    return Host(tmp_path, monkeypatch)


VALIDATE = ("validate", "--by", "clock", "--runs", "6")
PROGRAM = ("--", "sh", "-c", "exit")
PAIR = ["thp-virtual[placement.thp.mode=madvise]", "radix-virtual"]


def simulating(engine: fake.Engine, ratio: float, huge: float = 90 * MB) -> None:
    """Makes the stand-in's first design as much faster, with so much memory in huge pages."""

    def script(spec: dict[str, Any], _progress: object) -> dict[str, Any]:
        made = fake.result(spec)
        for at, design in enumerate(made["designs"]):
            numbers = {q["name"]: q for q in design["summary"]}
            numbers["cycles"]["value"] = 68e6 * ratio if at else 68e6
            design["config"]["frequency_ghz"] = 3.4
            large = 0.0 if at else huge
            mapped = {"4kb": 100 * MB - large, "2mb": large, "1gb": 0.0}
            design["summary"] += [
                {"name": f"mapped_{size}", "value": value, "unit": "bytes", "meaning": "Mapped"}
                for size, value in mapped.items()
            ]
        return made

    engine.script = script


def test_times_stand_beside_simulated_ones(
    host: Host, engine: fake.Engine, invoke: Invoke, tmp_path: Path
) -> None:
    simulating(engine, 1.55)
    out = tmp_path / "out.json"
    status, _, err = invoke(*VALIDATE, "--json", str(out), *PROGRAM)
    assert status == 0, err
    data = json.loads(out.read_text())
    assert data["ratio"] == {
        "middle": pytest.approx(1.55),
        "low": pytest.approx(1.4),
        "high": pytest.approx(1.8),
        "coverage": 31 / 32,
        "simulated": pytest.approx(1.55),
    }
    assert data["verdict"] == AGREES
    assert data["pairs"][-1] == {"small": 3.0, "huge": 2.0, "ratio": 1.5}
    # 68 million cycles at 3.4 GHz.
    assert data["simulated"]["huge"]["seconds"] == pytest.approx(0.02)
    # The program's allocator asks for huge pages as the first design's kernel says it must.
    assert [one["name"] for one in data["simulation"]["designs"]] == PAIR
    (spec,) = engine.specs
    assert spec["designs"] == PAIR
    # A run of each kind to look at, then pairs that alternate in both orders.
    assert host.order == [False, True, *[False, True, True, False] * 3]
    shown = " ".join(err.split())
    assert "Yes, for what huge pages change" in shown
    assert "96.9 %" in shown and "90 % of the program's anonymous memory" in shown


@pytest.mark.parametrize(
    ("ratio", "verdict", "says"),
    [
        (0.8, SIGN, "No: on this host huge pages gain time"),
        (1.02, SIZE, "Only the sign"),
        (1.9, WIDE, "which does not decide"),
    ],
)
def test_other_answers(
    host: Host, engine: fake.Engine, invoke: Invoke, ratio: float, verdict: str, says: str
) -> None:
    simulating(engine, ratio)
    status, out, err = invoke(*VALIDATE, "--json", "-", *PROGRAM)
    assert status == 0, err
    assert json.loads(out)["verdict"] == verdict
    assert says in " ".join(err.split())


def test_ratios_of_other_pages_are_not_compared(
    host: Host, engine: fake.Engine, invoke: Invoke
) -> None:
    simulating(engine, 1.55)
    host.memory = timing.Memory(100 * MB, 3 * MB)
    status, out, err = invoke(*VALIDATE, "--json", "-", *PROGRAM)
    assert status == 0
    assert json.loads(out)["verdict"] == "not comparable"
    shown = " ".join(err.split())
    assert "3 % of its memory in huge pages on this host, and 90 %" in shown
    assert f"echo always > {host.enabled}" in shown


def test_a_part_of_the_program_has_a_ratio_and_no_time(
    host: Host, engine: fake.Engine, invoke: Invoke
) -> None:
    simulating(engine, 1.55)
    status, out, _ = invoke(*VALIDATE, "--instructions", "1M", "--json", "-", *PROGRAM)
    data = json.loads(out)
    assert status == 0 and data["window"] is True
    assert any("a part of the program was simulated" in note for note in data["notes"])
    assert engine.specs[0]["limits"]["instructions"] == 1_000_000


def test_a_design_without_a_result_is_named(
    host: Host, engine: fake.Engine, invoke: Invoke
) -> None:
    def script(spec: dict[str, Any], _progress: object) -> dict[str, Any]:
        made = fake.result(spec)
        failed = made["designs"][0]
        failed |= {"status": "out_of_memory", "message": "no memory is left"}
        failed["summary"] = [{**q, "value": None} for q in failed["summary"]]
        return made

    engine.script = script
    err = refused(invoke, *VALIDATE, *PROGRAM, status=125)
    assert err == f"error: {PAIR[0]}: no memory is left\n"


def test_mistakes(host: Host, engine: fake.Engine, invoke: Invoke) -> None:
    err = refused(invoke, *VALIDATE, "--design", "thp", *PROGRAM)
    assert "--design: 'thp' is 1 of the two designs" in err and "radix,thp" in err
    assert "expected counters or clock" in refused(invoke, "validate", "--by", "eye", *PROGRAM)
    err = refused(invoke, *VALIDATE, "--machine", "epyc-milan,mehpt-table3", *PROGRAM)
    assert err == "error: --machine: validate takes a single machine\n"
    host.mode("never")
    err = refused(invoke, *VALIDATE, *PROGRAM, status=125)
    assert f"as root: echo madvise > {host.enabled}" in err
    host.enabled.unlink()
    assert "this kernel has none" in refused(invoke, *VALIDATE, *PROGRAM, status=125)
    assert host.order == [] and engine.specs == []


def test_a_design_that_is_not_there_is_named_before_the_first_run(
    host: Host, invoke: Invoke
) -> None:
    assert "did you mean `thp`" in refused(invoke, *VALIDATE, "--design", "radix,thpx", *PROGRAM)
    assert host.order == []


def test_the_calibrated_machine_is_the_default(
    host: Host, engine: fake.Engine, invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "pagewalk" / "machines" / "host.toml"
    path.parent.mkdir(parents=True)
    path.write_text("[calibrated]\nhypervisor = false\n")
    for more in ((), ("--machine", "host"), ("--machine", "epyc-milan")):
        status, _, err = invoke(*VALIDATE, *more, *PROGRAM)
        assert status == 0, err
        host.restart()
        assert (f"note: the machine is {path}, as calibrated" in err) == (not more)
    assert [spec["machine"] for spec in engine.specs] == [str(path), str(path), "epyc-milan"]
    # The designs are as this host translates, whatever the file says.
    assert all(spec["designs"] == PAIR for spec in engine.specs)
    assert time_ratio.designs_of(perf_counters.Processor.of_this_host()) == PAIR[::-1]
    host.mode("always")
    assert time_ratio.designs_of(perf_counters.Processor.of_this_host())[1] == "thp-virtual"


def test_a_size_of_huge_pages_has_a_mode_of_its_own(host: Host) -> None:
    own = host.enabled.parent / "hugepages-2048kB" / "enabled"
    own.parent.mkdir()
    for text, mode in (
        ("always [inherit] madvise never", "madvise"),
        ("[always] inherit madvise never", "always"),
        ("always inherit madvise [never]", "never"),
    ):
        own.write_text(text)
        assert timing.mode() == mode


def test_allocators_ask_for_huge_pages_where_they_have_to(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GLIBC_TUNABLES", "MALLOC_CONF"):
        monkeypatch.delenv(name, raising=False)
    assert timing.environment() == {
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        "MALLOC_CONF": "thp:always",
    }
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=1")
    monkeypatch.setenv("MALLOC_CONF", "narenas:1,metadata_thp:auto")
    assert timing.environment() == {
        "GLIBC_TUNABLES": "glibc.malloc.arena_max=1:glibc.malloc.hugetlb=1",
        "MALLOC_CONF": "narenas:1,metadata_thp:auto,thp:always",
    }
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2")
    monkeypatch.setenv("MALLOC_CONF", "thp:never")
    assert timing.environment() == {}
    monkeypatch.delenv("MALLOC_CONF")
    host.mode("always")
    assert timing.environment() == {}


ALLOCATES = "import time; held = b'x' * (64 << 20); time.sleep(0.1)"


@pytest.mark.skipif(timing.mode() in ("", "never"), reason="this host gives no huge pages")
@pytest.mark.skipif(
    tuple(map(int, (os.confstr("CS_GNU_LIBC_VERSION") or "glibc 0.0").split()[1].split(".")))
    < (2, 35),
    reason="this C library does not ask for huge pages",
)
def test_a_program_that_knows_nothing_of_huge_pages_gets_some() -> None:
    found = {
        huge: timing.run(
            [sys.executable, "-c", ALLOCATES], huge=huge, region=False, observed=True
        ).memory
        for huge in (False, True)
    }
    without, with_them = found[False], found[True]
    assert without is not None and without.huge == 0 and without.anonymous >= 64 * MB
    # A fragmented host has fewer than the 32 that fit.
    assert with_them is not None and with_them.huge > 0


# Reports its own mode of huge pages, and leaves a child behind.
ASKS = """\
import ctypes, os, pathlib, sys, time
pathlib.Path(sys.argv[1]).write_text(str(ctypes.CDLL(None).prctl(42, 0, 0, 0, 0)))
"""


def test_a_program_inherits_the_switch_and_this_process_keeps_its_own(tmp_path: Path) -> None:
    out = tmp_path / "out"
    for huge, switched in ((False, "1"), (True, "0")):
        ran = timing.run([sys.executable, "-c", ASKS, str(out)], huge=huge, region=False)
        assert out.read_text() == switched
        assert ran.seconds > 0
    subprocess.run([sys.executable, "-c", ASKS, str(out)], check=True)
    assert out.read_text() == "0"


def test_a_failing_program_is_named(tmp_path: Path) -> None:
    for script, says in (("exit 3", "ended with status 3"), ("kill -9 $$", "died of SIGKILL")):
        with pytest.raises(Failure, match=f"sh: {says} where it was measured"):
            timing.run(["sh", "-c", script], huge=True, region=False)
    empty = tmp_path / "empty"
    empty.touch(0o700)
    with pytest.raises(Failure, match="empty: cannot be started: exec format error"):
        timing.run([str(empty)], huge=True, region=False)


def test_nothing_of_an_interrupted_run_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = tmp_path / "pid"

    def interrupted(watch: Any) -> None:
        while not (child.exists() and child.read_text().endswith("\n")):
            pass
        raise KeyboardInterrupt

    monkeypatch.setattr(timing._Watch, "until_the_end", interrupted)
    # The shell's child is of its session, too.
    script = f"sh -c 'echo $$ > {child}; sleep 100' ; true"
    with pytest.raises(KeyboardInterrupt):
        timing.run(["sh", "-c", script], huge=True, region=False)
    stat = Path("/proc") / child.read_text().strip() / "stat"
    # A killed process ends soon, and then waits for its new parent to reap it.
    deadline = time.monotonic() + 60
    while stat.exists() and stat.read_text().split()[2] not in "ZX":
        assert time.monotonic() < deadline


@pytest.mark.needs("gcc")
def test_the_clock_of_a_region_leaves_out_the_rest(tmp_path: Path) -> None:
    marked = compiled(tmp_path, "-DPAGEWALK_PERF")
    touch = [marked, "touch", "32", "4"]
    whole = timing.run([marked, "gups", "32", "4"], huge=False, region=False)
    region = timing.run([marked, "gups", "32", "4"], huge=False, region=True)
    # The region has four updates, and the rest touches 8,192 pages.
    assert region.seconds < whole.seconds / 4
    assert region.memory is not None and region.memory.anonymous >= 32 * MB
    # The memory of a forked process counts, and so does its time: the shell waits for it.
    inner = timing.run(["sh", "-c", f"{marked} gups 32 4; true"], huge=False, region=True)
    assert inner.memory is not None and inner.memory.anonymous >= 32 * MB
    assert inner.seconds < whole.seconds / 4
    plain = compiled(tmp_path)
    with pytest.raises(Failure, match="compiled with -DPAGEWALK_PERF"):
        timing.run([plain, *touch[1:]], huge=False, region=True)


@pytest.mark.needs("gcc")
@needs_qemu
def test_the_command_by_the_clock(tmp_path: Path, cli: Cli) -> None:
    if timing.mode() in ("", "never"):
        pytest.skip("this host gives no huge pages")
    marked = compiled(tmp_path, "-DPAGEWALK_PERF")
    out = tmp_path / "out.json"
    done = cli(
        "validate", "--by", "clock", "--runs", "2", "--roi", "--instructions", "20K",
        "--json", out, "--", marked, "loads", "8", "20000",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    data = json.loads(out.read_text())
    assert [pair["small"] > 0 and pair["huge"] > 0 for pair in data["pairs"]] == [True, True]
    assert data["memory"]["small"]["huge"] == 0
    assert data["memory"]["small"]["anonymous"] >= 8 * MB
    small, huge = data["simulated"]["small"], data["simulated"]["huge"]
    assert small["instructions"] == huge["instructions"] >= 20_000
    # Two thousand pages against four of them.
    assert data["ratio"]["simulated"] > 1.1
    assert data["verdict"] in (WIDE, "not comparable")
    assert "Can this simulation be trusted" in done.stderr


HEAP = """
#include <stdlib.h>
int main(void) {
    for (int i = 0; i < 300000; i++)
        *(volatile char *)malloc(48) = 1;
}
"""


@pytest.mark.needs("gcc")
@needs_qemu
def test_a_simulated_heap_asks_for_huge_pages(tmp_path: Path) -> None:
    if timing.mode() != "madvise":
        pytest.skip("allocators ask only in the mode madvise")
    (tmp_path / "heap.c").write_text(HEAP)
    subprocess.run(["gcc", "-O1", "heap.c", "-o", "heap"], cwd=tmp_path, check=True)
    pair = time_ratio.in_order(time_ratio.designs_of(perf_counters.Processor.of_this_host()))
    with timing.asking():
        result = pagewalk.compare(
            pair, machine="epyc-milan", program=[str(tmp_path / "heap")],
            translation_cost=False, progress=False,
        )  # fmt: skip
    huge, small = (time_ratio.Simulated.of(design).huge for design in result.designs)
    assert huge > 0.7 and small == 0
    assert "GLIBC_TUNABLES" not in os.environ or "hugetlb" not in os.environ["GLIBC_TUNABLES"]
