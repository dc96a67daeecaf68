"""Programs that people run, live: the designs keep their order on each."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from invoking import Cli
from live import needs, needs_qemu

Numbers = dict[str, dict[str, float]]


pytestmark = [pytest.mark.qemu, needs_qemu]

DESIGNS = ["--designs", "radix,l2tlb-128k,perfect-tlb"]
# The interpreter itself: what is found first on the path may be a script.
PYTHON = [os.path.realpath(sys.executable), "-I", "-S", "-c"]
# More entries than a second-level TLB has pages, visited in no order.
DICTIONARY = "d = {i * 2654435761 % 2**32: i for i in range(15000)}; print(sum(d.values()))"


def numbers(report: Path) -> Numbers:
    data = json.loads(report.read_text())
    assert not data["partial"]
    assert not [w for w in data["warnings"] if "inferred" in w], data["warnings"]
    return {d["name"]: {q["name"]: q["value"] for q in d["summary"]} for d in data["designs"]}


def in_order(found: Numbers) -> None:
    radix, larger, perfect = (found[n] for n in ("radix", "l2tlb-128k", "perfect-tlb"))
    assert radix["walks"] > 0
    assert radix["l2_tlb_mpki"] > 0
    assert (perfect["walks"], perfect["l2_tlb_mpki"]) == (0, 0)
    assert radix["instructions"] == larger["instructions"] == perfect["instructions"]
    # A saved walk saves time. Earlier accesses also meet other DRAM rows and prefetches, though.
    # If few walks are saved, that adds anomalies of up to a few tenths of a per cent.
    assert larger["walks"] <= radix["walks"] * 1.01
    assert larger["ipc"] >= radix["ipc"] * 0.99
    assert perfect["ipc"] >= larger["ipc"] * 0.99
    assert perfect["ipc"] > radix["ipc"]


@pytest.mark.long
def test_python(cli: Cli, tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    answer = cli("compare", *DESIGNS, "--json", report, "--", *PYTHON, DICTIONARY)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == "112492500\n"
    in_order(numbers(report))


INDEX = """
create table t(k integer, v text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 6000)
insert into t select i * 2654435761 % 4294967296, hex(i * 40503) from n;
create index by_key on t(k);
create index by_value on t(v);
select count(*) from t where k > 2147483648;
"""


@needs("sqlite3")
def test_sqlite_builds_an_index(cli: Cli, tmp_path: Path) -> None:
    plain = subprocess.run(
        ["sqlite3", ":memory:"], input=INDEX, capture_output=True, text=True, check=True
    )
    report = tmp_path / "r.json"
    answer = cli("compare", *DESIGNS, "--json", report, "--", "sqlite3", ":memory:", input=INDEX)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout == plain.stdout
    in_order(numbers(report))


def a_free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


@contextlib.contextmanager
def started(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end of the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 600
    while time.monotonic() < end:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
            return
        time.sleep(0.05)
    raise AssertionError(f"nothing answers on port {port}")


@needs("redis-server", "redis-benchmark", "redis-cli")
@pytest.mark.parametrize("cores", [pytest.param(1, marks=pytest.mark.long), 4])
def test_redis_under_load(tmp_path: Path, cores: int) -> None:
    port, report = a_free_port(), tmp_path / "r.json"

    def talk(program: str, *words: str) -> str:
        command = [program, "-h", "127.0.0.1", "-p", str(port), *words]
        return subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=600
        ).stdout

    with started(
        *(sys.executable, "-m", "pagewalk", "compare", *DESIGNS, "--set", f"cores={cores}"),
        *("--json", str(report), "--", "redis-server", "--port", str(port)),
        *("--bind", "127.0.0.1", "--save", "", "--dir", str(tmp_path)),
    ) as simulation:
        wait_for(port, simulation)
        options = "-n 1000 -c 4 -r 100000 -d 1024 -t set,get --csv"
        answer = talk("redis-benchmark", *options.split())
        assert '"SET"' in answer
        assert '"GET"' in answer
        # Random keys: nearly all of them different.
        assert int(talk("redis-cli", "dbsize")) > 900
        talk("redis-cli", "shutdown", "nosave")
        _, errors = simulation.communicate(timeout=600)
        assert simulation.returncode == 0, errors.decode()
    in_order(numbers(report))


@needs("g++")
def test_a_built_in_key_value_program_is_the_real_one(cli: Cli, tmp_path: Path) -> None:
    """A program over std::map has the counts of its built-in twin."""
    keys, operations = 20_000, 10_000
    root = Path(__file__).parent.parent
    source = root / "validation" / "programs"
    for name in ("kv_requests", "kv_map"):
        compiler = ["g++", "-O2", "-std=c++17", "-I", str(root / "include")]
        program = [str(source / f"{name}.cc"), "-o", str(tmp_path / name)]
        subprocess.run([*compiler, *program], check=True)
    requests, report = tmp_path / "requests", tmp_path / "r.json"
    words = [str(keys), str(operations), "uniform", "0", "64"]
    with requests.open("wb") as file:
        subprocess.run([tmp_path / "kv_requests", *words], check=True, stdout=file)
    limits = ["--roi", "--warmup", "0", "--instructions", "1G", "--json", report]
    with requests.open("rb") as file:
        live = cli("run", *limits, "--", tmp_path / "kv_map", keys, stdin=file)
    assert live.returncode == 0, live.stderr
    real = numbers(report)["radix"]
    parameters = {"keys": keys, "operations": operations, "distribution": "uniform"}
    named = [word for n, v in parameters.items() for word in ("--param", f"{n}={v}")]
    answer = cli("run", *limits, "--workload", "kv-map", *named)
    assert answer.returncode == 0, answer.stderr
    built = numbers(report)["radix"]
    # They agree within 1 % with the compiler of the built-in program's model; other compilers and
    # libraries generate other code.
    for name in ("instructions", "memory_operands"):
        assert built[name] == pytest.approx(real[name], rel=0.2), name


@pytest.mark.long
def test_two_recordings_of_a_program_agree(cli: Cli, tmp_path: Path) -> None:
    """The same program twice: the emulator places it at the same addresses and gives it the same
    random bytes at its start. Later random bytes are the kernel's. Python would take the hashes of
    its words from them without PYTHONHASHSEED, which isolated Python does not read. So only times
    and process numbers differ."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    runs = []
    for name in ("first", "second"):
        trace, report = tmp_path / f"{name}.pwt", tmp_path / f"{name}.json"
        program = [PYTHON[0], "-s", "-S", "-c", DICTIONARY.replace("15000", "10000")]
        recorded = cli("record", "-o", trace, "--", *program, env=environment)
        assert recorded.returncode == 0, recorded.stderr
        replayed = cli("run", "--trace", trace, "--json", report)
        assert replayed.returncode == 0, replayed.stderr
        runs.append(numbers(report)["radix"])
    first, second = runs
    assert first["instructions"] == pytest.approx(second["instructions"], rel=3e-3)
    assert first["memory_operands"] == pytest.approx(second["memory_operands"], rel=3e-3)
    assert first["page_faults"] == pytest.approx(second["page_faults"], rel=0.01)
    assert first["walks"] > 100
    for name in ("cycles", "walks", "l2_tlb_mpki", "l1d_tlb_mpki", "dram_reads"):
        assert first[name] == pytest.approx(second[name], rel=0.02), name


def test_replays_of_one_recording_are_the_same_to_the_last_byte(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "t.pwt"
    recorded = cli("record", "-o", trace, "--", *PYTHON, "print(sum(range(1000)))")
    assert recorded.returncode == 0, recorded.stderr
    results = []
    for threads in (1, 2):
        answer = cli(
            *["compare", "--trace", trace, "--designs", "radix,thp", "--instructions", "3M"],
            *["--json", "-", "--jobs", threads],
        )
        assert answer.returncode == 0, answer.stderr
        results.append(json.dumps(json.loads(answer.stdout)["designs"]))
    assert results[0] == results[1]


def test_the_designs_of_the_live_example_in_the_readme_differ(cli: Cli, tmp_path: Path) -> None:
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    command = readme.split(".venv/bin/pagewalk ")[1].split("```")[0]
    arguments = shlex.split(command.replace("\\\n", ""))
    assert arguments[0] == "compare"
    program = arguments.index("--") + 1
    assert arguments[program] == "python3"
    # The interpreter of the tests, and fewer instructions; the fast-forwarded part is the same.
    arguments[program] = os.path.realpath(sys.executable)
    arguments[arguments.index("--instructions") + 1] = "2M"
    report = tmp_path / "r.json"
    flags = ["--designs", "radix,thp,perfect-tlb", "--json", str(report)]
    answer = cli(arguments[0], *flags, *arguments[1:])
    assert answer.returncode == 0, answer.stderr
    designs = {d["name"]: d for d in json.loads(report.read_text())["designs"]}
    assert designs["radix"]["translation_cost"] > 0.1
    assert designs["perfect-tlb"]["speedup"] > designs["thp"]["speedup"] > 1.02
