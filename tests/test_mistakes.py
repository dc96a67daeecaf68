"""Mistakes in commands, files and values: each is refused before the run, with its remedy."""

from __future__ import annotations

import io
import math
import os
import re
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

import pagewalk
from invoking import Cli, Invoke, refused
from pagewalk import native
from pagewalk.config.config import Config

PINATRACE = "".join(f"0x{4 * i + 4096:x}: R 0x{64 * i + 0x700000:x}\n" for i in range(100))
LACKEY = "".join(f"I  {4 * i + 4096:08x},4\n L {64 * i + 0x700000:x},8\n" for i in range(100))
SHORT = ("--workload", "gups", "--size", "1MiB", "--instructions", "10K", "--warmup", "0")


@pytest.fixture
def fifo(tmp_path: Path) -> Path:
    """A named pipe that nobody writes."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    return path


def _started(*arguments: str | Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pagewalk", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("writer", [False, True])
def test_a_signal_ends_a_run_that_waits_for_a_pipe(
    number: signal.Signals, fifo: Path, writer: bool
) -> None:
    process = _started("run", "--trace", fifo)
    # Opening it without a reader is an error, so this waits until the run has opened it.
    end = None
    deadline = time.monotonic() + 60
    while end is None and time.monotonic() < deadline:
        try:
            end = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            # Without a writer, the run's own wait in `open` cannot be seen.
            waits = any(
                "fifo" in wait.read_text() or "partner" in wait.read_text()
                for wait in Path(f"/proc/{process.pid}/task").glob("*/wchan")
            )
            if waits and not writer:
                break
            time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    if end is not None:
        os.close(end)
    assert process.returncode == 128 + number, err
    assert err.startswith("error: ")


def test_a_pipe_is_read_once_and_refused_where_once_is_not_enough(
    fifo: Path, tmp_path: Path, invoke: Invoke
) -> None:
    for arguments in (
        ("run", "--precision", "2%", "--trace", str(fifo)),
        ("run", "--mix", f"gups:size=1MiB,{fifo}"),
        ("trace", "info", str(fifo)),
        ("sweep", "--trace", str(fifo), "-o", str(tmp_path / "study")),
    ):
        err = refused(invoke, *arguments)
        assert f"'{fifo}' is a pipe (FIFO)" in err and f"cat {fifo} > FILE" in err
    status, _, err = invoke("trace", "check", str(fifo))
    assert status == 2 and "is a pipe (FIFO)" in err
    reading, writing = os.pipe()
    os.write(writing, PINATRACE.encode())
    os.close(writing)
    result = pagewalk.run(trace=f"/dev/fd/{reading}", progress=False)
    os.close(reading)
    assert result["radix"]["instructions"] == 100
    recording = tmp_path / "t.pwt"
    assert invoke("record", *SHORT[:-2], "-o", str(recording))[0] == 0
    with recording.open("rb") as whole:
        process = subprocess.Popen(["cat"], stdin=whole, stdout=subprocess.PIPE)
    assert process.stdout is not None
    err = refused(invoke, "run", "--trace", f"/dev/fd/{process.stdout.fileno()}")
    process.stdout.close()
    process.wait()
    assert "is a pipe" in err and "> FILE" in err


@pytest.mark.parametrize("text", [PINATRACE, LACKEY])
def test_a_text_that_is_cut_in_its_last_line_names_it(
    text: str, tmp_path: Path, invoke: Invoke
) -> None:
    path = tmp_path / "t.txt"
    path.write_text(text[:-2])
    status, out, _ = invoke("run", "--trace", str(path))
    lines = text.count("\n")
    assert status == 1
    said = f"the trace is cut off in line {lines}, `{text.splitlines()[-1][:-1]}`"
    assert f"partial: {path}, byte" in out and said in out
    path.write_text(text.replace(text.splitlines()[9], "nonsense"))
    assert "line 10, `nonsense`, makes no sense" in invoke("run", "--trace", str(path))[1]


MODES: dict[str, Any] = {"tar": "w", "tar.xz": "w:xz", "tar.gz": "w:gz"}


@pytest.mark.parametrize("ending", MODES)
def test_a_tar_of_two_files_is_refused_before_the_run(
    ending: str, tmp_path: Path, invoke: Invoke
) -> None:
    path = tmp_path / f"t.{ending}"
    member = PINATRACE.encode() * 50
    for members, refused_it in (("a", False), ("ab", True)):
        with tarfile.open(path, MODES[ending]) as archive:
            for name in members:
                entry = tarfile.TarInfo(name)
                entry.size = len(member)
                archive.addfile(entry, io.BytesIO(member))
        status, out, err = invoke("run", "--trace", str(path))
        assert (status != 0) == refused_it, err
        if refused_it:
            assert "does not hold one file; unpack it" in err
            assert out == ""


def test_a_folder_without_a_trace_names_the_file_to_give(tmp_path: Path, invoke: Invoke) -> None:
    (tmp_path / "p.out").write_text(PINATRACE)
    err = refused(invoke, "run", "--trace", str(tmp_path))
    assert f"{tmp_path}: is a folder without a drmemtrace" in err
    assert f"give the trace itself, such as {tmp_path}/p.out" in err


def test_a_comparison_without_one_of_its_designs_is_a_failure(invoke: Invoke) -> None:
    large = ("--workload", "gups", "--size", "1GiB", "--instructions", "10K", "--warmup", "0")
    least = ("--set", "thp:os.memory_gb=1", "--no-translation-cost")
    status, out, _ = invoke("compare", "--designs", "radix,thp", *large, *least)
    assert status == 1
    assert "radix" in out
    assert invoke("compare", "--designs", "thp", *large, *least)[0] == 1
    assert invoke("compare", "--designs", "radix,thp", *SHORT, "--no-translation-cost")[0] == 0


@pytest.mark.parametrize("place", ["/proc/x", "/proc/1/x", "no/such/x"])
@pytest.mark.parametrize("option", ["--html", "--json", "--parquet", "--perfetto", "--figure"])
def test_an_output_that_cannot_be_written_is_refused_before_the_run(
    option: str, place: str, invoke: Invoke
) -> None:
    err = refused(invoke, "run", *SHORT, option, f"{place}.svg")
    assert err.startswith(f"error: {option}")
    assert err.rstrip().endswith(("name another folder", "create it or name another"))


def test_a_folder_that_cannot_be_made_is_refused_before_the_runs(
    tmp_path: Path, invoke: Invoke
) -> None:
    (tmp_path / "file").touch()
    for out in ("/proc/x", f"{tmp_path}/file/x"):
        err = refused(invoke, "sweep", *SHORT, "-o", out)
        assert "--out: " in err and "; name a" in err


RUN = " ".join(("run", *SHORT))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"{RUN} --design thp[os.x=1", "thp[os.x=1: has no `]` at its end; expected NAME[KEY="),
        (f"compare {RUN[4:]} --designs thp[os.x=1,radix", "--designs thp[os.x=1,radix: has no `]`"),
        (f"{RUN} --design radix,thp", "compare takes several, as --designs radix,thp"),
        ("run --workload GUPS", "did you mean `gups`?"),
        ("run --workload gups,bfs", "--mix gups,bfs"),
        (f"{RUN} --machine=", "--machine is empty; expected one of emt-reference, epyc-milan"),
        (f"{RUN} --set MMU.walkers=2", "did you mean `mmu`?"),
        (f"{RUN} --set mmu.Walkers=2", "did you mean `walkers`?"),
        (f"{RUN} -design thp", "-design is no option; did you mean --design?"),
        ("sweep plot study -x size --y ipc", "-x is no option; did you mean --x?"),
        ("sweep plot study --x size -y ipc", "-y is no option; did you mean --y?"),
        (f"{RUN} --seed x", "'--seed': expected a whole number; see"),
        (f"{RUN} --seed -1", "'--seed': expected 0 or more; see"),
        ("attach 1 --seconds long", "'--seconds': expected a number; see"),
        ("attach 1 --seconds 9999", "'--seconds': expected at most 3600; see"),
        (f"compare {RUN[4:]} --designs nothp", "--designs nothp: there is no design of that name"),
        (f"{RUN} --design THP", "did you mean `thp`?"),
        (f"compare {RUN[4:]} --designs radix;thp", "commas between names, as radix,thp"),
        (f"compare {RUN[4:]} --designs radix+thp", "commas between names, as radix,thp"),
        (f"{RUN} --set mmu.walkers = 2", "expected NAME=VALUE without blanks around ="),
        (f"{RUN} --set walkers=2", "there is no key 'walkers'; did you mean 'mmu.walkers'?"),
        (f"{RUN} --set mmu,walkers=2", "there is no key 'mmu,walkers'; did you mean 'mmu.walkers'"),
        (f"{RUN} --set radix:memory_gb=2", "did you mean 'os.memory_gb'?"),
        (f"{RUN} --set mmu.walkers:2", "expected NAME=VALUE"),
        ("sweep --workload gups --vary mmu.walkers=1-4", "or a range as 1..4+1"),
        ("sweep --workload gups --vary Size=1MiB", "did you mean 'size'?"),
        ("--design thp run", "options follow the command, as in: pagewalk run --design thp"),
        (f"{RUN} --designs radix", "did you mean --design?"),
        ("run --workload gups --size 10%", "expected a size such as 64MiB"),
        ("run --workload gups --instructions 10MB", "expected a count such as 250000, 100M"),
        ("run --workload gups --sample 20K,5M", "expected LENGTH/PERIOD, as 1M/20M"),
        ("run --workload gups --precision 2", "as 2%"),
        (f"{RUN} --param update=5", "did you mean `updates`?"),
        (f"{RUN} --figure chart.jpg", "expected a name that ends in .svg, .pdf or .png"),
        ("run --trace nofile.xz", "there is no file 'nofile.xz'; check the name"),
        ("runn --workload gups", "did you mean 'run'?"),
        ("reproduce mehptt", "did you mean 'mehpt'?"),
        ("sweep show nodir", "'pagewalk sweep' makes one"),
        ("validate ls", "as in: pagewalk validate -- ls"),
        ("attach 4194305", "expected the number of a running process"),
    ],
)
def test_a_mistake_is_answered_with_its_remedy(line: str, said: str, invoke: Invoke) -> None:
    assert said in refused(invoke, *line.split())


def test_a_value_of_an_axis_that_is_impossible_names_the_key_and_no_file(
    tmp_path: Path, cli: Cli
) -> None:
    axes = ("--vary", "mmu.walkers=0,1", "--cache", str(tmp_path / "cache"))
    for said in ("1 run to simulate: ", "nothing to simulate: 1 run is there from before\n"):
        answer = cli("sweep", *SHORT, *axes, "-o", tmp_path / "study")
        assert answer.returncode == 1
        assert said in answer.stderr
        refusal = r"no result: gups 1MiB, \S+: mmu\.walkers is 0; expected 1 to 256\n"
        assert re.search(refusal, answer.stderr)


def _set(config: Config, path: str, value: object) -> None:
    *tables, key = path.split(".")
    section: Any = config
    for name in tables:
        section = section[name]
    section[key] = value


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("mmu.walkers", 0, "is 0; expected 1 to 256"),
        ("mmu.walkers", -3, "is -3; expected 1 to 256"),
        ("mmu.walkers", 1 << 40, f"is {1 << 40}; expected 1 to 256"),
        ("page_table.radix.levels", 7, "is 7; expected 4 or 5"),
        ("frequency_ghz", -1, "is -1; expected 0.01 to 100"),
        ("frequency_ghz", math.inf, "is inf; expected 0.01 to 100"),
        ("frequency_ghz", math.nan, "is nan; expected 0.01 to 100"),
        ("cores", 0, "is 0; expected 1 to 64"),
        ("core.indirect_entries", 1000, "is 1000; expected a power of two"),
        ("os.memory_gb", 0, "is 0; expected 1 to 16384"),
    ],
)
def test_a_number_out_of_range_is_refused_at_its_assignment_in_the_engines_words(
    key: str, value: Any, said: str
) -> None:
    design = pagewalk.design("radix")
    with pytest.raises(pagewalk.UserError) as error:
        _set(design, key, value)
    assert str(error.value) == f"{key} {said}"
    assert error.value.option == key
    assert design.changes == {}
    if isinstance(value, int) and 0 <= value < 1 << 32:
        with pytest.raises(pagewalk.UserError) as refusal:
            native.resolve("epyc-milan", f"radix[{key}={value}]")
        assert refusal.value.text in said


def test_relations_of_keys_are_checked_when_all_are_set() -> None:
    design = pagewalk.design("radix")
    design.mmu.l2.main.ways = 4096
    design.mmu.l2.main.entries = 8192
    assert design.changes == {"mmu": {"l2": {"main": {"ways": 4096, "entries": 8192}}}}


def test_the_help_and_the_reference_have_the_same_rule_of_exit_status(invoke: Invoke) -> None:
    said = " ".join(invoke("--help")[1].split())
    assert "1 for a failure or a design without a result, with -- PROGRAM 125" in said
