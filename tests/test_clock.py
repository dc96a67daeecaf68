"""Programs that ask for the time, which may be the simulated machine's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import live
import pagewalk
from invoking import Cli
from pagewalk import native

pytestmark = [live.needs_qemu, live.needs("cc")]

START = 1_700_000_000
"""Simulated date at which the programs start."""
GHZ = 3.4
"""Clock of the default machine."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clocks") / "clocks"
    source = Path(__file__).parent / "clocks.c"
    command = ["cc", "-O2", "-pthread", "-I", pagewalk.get_include(), str(source), "-o", str(path)]
    subprocess.run(command, check=True)
    return path


@pytest.fixture(autouse=True)
def date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", str(START))


def ran(
    program: Path, what: str, capfd: pytest.CaptureFixture[str], *designs: str, **options: object
) -> tuple[list[list[float]], pagewalk.Result]:
    """The numbers that a program prints, line by line, and the result."""
    capfd.readouterr()
    argv = [str(program), what]
    given = {"clock": "simulated", "translation_cost": False, "program": argv, **options}
    result = pagewalk.compare(designs or ["radix"], **given)  # type: ignore[arg-type]
    assert all(d.status == "complete" for d in result.designs)
    lines = capfd.readouterr().out.splitlines()
    return [[float(number) for number in line.split()] for line in lines], result


def cycles_of(result: pagewalk.Result, design: str) -> float:
    [of] = [d for d in result.data["designs"] if d["name"] == design]
    [cycles] = [m["value"] for m in of["summary"] if m["name"] == "cycles"]
    return float(cycles)


def test_a_program_that_times_itself_prints_what_the_report_says(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    [[seconds, _]], result = ran(program, "stream", capfd, roi=True)
    assert seconds * GHZ * 1e9 == pytest.approx(cycles_of(result, "radix"), rel=0.05)
    # The first design's time is printed. The other one is faster.
    [[cycles, _]], result = ran(program, "chase", capfd, "radix", "perfect-tlb", roi=True)
    assert cycles == pytest.approx(cycles_of(result, "radix"), rel=0.05)
    assert cycles_of(result, "perfect-tlb") < 0.95 * cycles


def test_all_clocks_show_the_same_time_in_each_run(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    [numbers], result = ran(program, "all", capfd)
    cycles, ticks, date, *seconds = numbers
    took = cycles / GHZ / 1e9
    assert seconds == pytest.approx([took] * 8, rel=0.02, abs=2e-6)
    assert ticks == pytest.approx(took * 100, abs=1)
    assert START <= date <= START + 1
    assert not [w for w in result.warnings if "asked for the time" in w]
    assert ran(program, "all", capfd)[0] == [numbers]


def test_waits_take_simulated_time(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    [numbers], result = ran(program, "waits", capfd)
    slept, reached, polled, waited, timed_out, spun, process, kept = numbers
    assert slept == pytest.approx(250.25, abs=1e-4)
    assert reached == pytest.approx(0, abs=1e-4)
    assert [polled, waited] == pytest.approx([0.02, 0.02], abs=1e-3)
    assert (timed_out, kept) == (1, 250)
    assert spun == pytest.approx(5e-6, abs=1e-6)
    # A thread that sleeps is on no core.
    assert process < 0.1
    assert result.data["host"]["seconds"] < 100


def test_threads_and_processes_share_the_time(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    lines, _ = ran(program, "threads", capfd, settings={"cores": 2})
    child, [took, rounds, later] = sorted(lines, key=len)
    assert child == [1] and later == 1
    assert 0.002 <= took < 0.01
    # The other thread has the whole time.
    assert rounds > 0.0015 * GHZ * 1e9 / 20


def test_the_emulators_time_is_in_a_warning(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def said(what: str) -> list[str]:
        result = pagewalk.run(program=[str(program), what], instructions="3M")
        return [w for w in result.warnings if "asked for the time" in w]

    assert said("none") == []
    [warning] = said("all")
    assert "not those of the machine (--clock simulated)" in warning


def test_a_clock_is_refused_where_no_time_is_simulated(
    program: Path, cli: Cli, tmp_path: Path
) -> None:
    def refused(*arguments: object) -> str:
        done = cli(*arguments)
        assert done.returncode == 2, done
        return done.stderr

    one = ("--clock", "simulated")
    assert "belongs to a program" in refused("run", "--workload", "gups", *one)
    assert "no clock" in refused("run", "--clock", "wall", "--", program)
    assert "between samples" in refused(
        "run", *one, "--sample", "length=20K,period=1M,warm=50K", "--", program
    )
    assert "between samples" in refused("run", *one, "--precision", "0.02", "--", program)
    out = tmp_path / "x.pwt"
    assert "--clock" in refused("record", *one, "-o", out, "--", program)
    source = {"program": {"argv": [str(program)], "clock": "simulated"}}
    with pytest.raises(pagewalk.UserError, match="nothing is simulated during a recording"):
        native.record({"source": source}, str(out))
    assert not out.exists()


def test_threads_may_end_under_the_simulated_clock(cli: Cli) -> None:
    """QEMU blocks all signals in a thread that ends, and its libraries then read the counter."""
    script = (
        "import threading, time\n"
        "threads = [threading.Thread(target=time.sleep, args=(i / 1000,)) for i in range(4)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print('joined')"
    )
    command = ("run", "--clock", "simulated", "--no-translation-cost", "--")
    done = cli(*command, sys.executable, "-S", "-c", script)
    assert (done.returncode, done.stdout) == (0, "joined\n"), done.stderr
