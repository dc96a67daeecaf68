"""Runs on a real Dask cluster of this host, and what is left of them when parts of it die."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pytest

import pagewalk
from pagewalk import native
from pagewalk.errors import UserError
from pagewalk.runs import shards
from pagewalk.runs.batch import Batch
from pagewalk.runs.cache import Cache
from pagewalk.runs.cluster import STARTS, Cluster, ClusterOption, _Handed, pods, queue
from pagewalk.runs.jobs import EARLY, LOST, Jobs
from pagewalk.runs.plan import Design, Program, Run
from pagewalk.runs.shards import Hosts
from pagewalk.runs.task import Workers
from paper import arguments, small_paper

Json = dict[str, Any]

QUICK, LONG = "300K", "12M"
MOST_SECONDS = 120


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + MOST_SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"{what} has not come about"
        time.sleep(0.02)


class Dask:
    """A scheduler and workers, each a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.scheduler = self._start_scheduler("0")

    def _start_scheduler(self, port: str) -> subprocess.Popen[bytes]:
        self.file.unlink(missing_ok=True)
        started = self._start(
            *("scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard"),
            *("--scheduler-file", str(self.file)),
        )
        _until(lambda: self.file.exists() and self.file.stat().st_size > 0, "a scheduler")
        self.address: str = json.loads(self.file.read_text())["address"]
        return started

    def again(self) -> None:
        """Another scheduler at the same address."""
        self.scheduler = self._start_scheduler(self.address.rpartition(":")[2])

    def worker(
        self, memory: str | None = "8e9", limit: Callable[[], None] | None = None
    ) -> subprocess.Popen[bytes]:
        """Another worker of one thread."""
        given = ("--resources", f"memory={memory}") if memory else ()
        log = self.folder / f"worker-{len(self.processes)}.log"
        found = self._start(
            *("worker", self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"),
            *("--local-directory", str(self.folder)),
            *given,
            log=log,
            limit=limit,
        )
        _until(lambda: b"Registered to" in log.read_bytes(), "a worker")
        return found

    def _start(
        self, *words: str, log: Path | None = None, limit: Callable[[], None] | None = None
    ) -> subprocess.Popen[bytes]:
        with (log or self.folder / "scheduler.log").open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "dask", *words],
                stdout=out,
                stderr=out,
                preexec_fn=limit,  # noqa: PLW1509
            )
        self.processes.append(process)
        return process

    def close(self) -> None:
        """Ends all of it."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Dask]:
    made = Dask(tmp_path)
    try:
        yield made
    finally:
        made.close()


def sweep(
    dask: Dask, instructions: str = QUICK, *more: str, seeds: int = 2, study: str = "study"
) -> list[str]:
    words = f"--workload gups --size 16MiB --designs radix,thp --seeds {seeds} --warmup 0"
    return [
        *(sys.executable, "-m", "pagewalk", "sweep", *words.split()),
        *("--instructions", instructions, "--cluster", dask.address),
        *("--cache", str(dask.folder / "cache"), "-o", str(dask.folder / study), *more),
    ]


def started(command: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
    )


def finished(dask: Dask) -> dict[str, int]:
    """Kept runs, and when each was written."""
    return {p.name: p.stat().st_mtime_ns for p in (dask.folder / "cache").glob("*/*.json.gz")}


def rows(dask: Dask, study: str = "study") -> pl.DataFrame:
    return pl.read_parquet(dask.folder / study / "runs" / "*.parquet")


def test_results_are_those_of_this_host(dask: Dask) -> None:
    dask.worker()
    dask.worker()
    answer = run(sweep(dask))
    assert answer.returncode == 0, answer.stderr
    assert len(finished(dask)) == 4
    here = sweep(dask, QUICK, "--cluster", "local", study="here")
    # The last option would win, if it could be given twice.
    del here[here.index("--cluster") : here.index("--cluster") + 2]
    here[here.index("--cache") + 1] = str(dask.folder / "other")
    assert run(here).returncode == 0
    order = ["design", "seed"]
    there, ours = (rows(dask, name).sort(order).drop("host_seconds") for name in ("study", "here"))
    assert there.equals(ours)


@pytest.mark.long
def test_a_paper_is_reproduced_on_a_cluster(dask: Dask, tmp_path: Path) -> None:
    dask.worker()
    folder = small_paper(tmp_path)
    command = [sys.executable, "-m", "pagewalk", *arguments(folder)]
    answer = run([*command, "--cluster", dask.address])
    assert answer.returncode == 0, answer.stderr
    results = folder.parent / "out" / "results.csv"
    there = results.read_bytes()
    assert len(finished(dask)) == 3
    # Here, with nothing kept.
    for kept in (dask.folder / "cache").glob("*/*.json.gz"):
        kept.unlink()
    answer = run(command)
    assert "3 runs to simulate" in answer.stderr
    assert results.read_bytes() == there


def recorded(folder: Path, instructions: int) -> Path:
    source = {"workload": {"name": "gups", "size": "16MiB"}}
    native.record({"source": source, "instructions": instructions}, str(folder / "gups.pwt"))
    return folder / "gups.pwt"


def shared_out(trace: Path, out: str, *more: str, sample: str = "2K/40K:8K+4K") -> list[str]:
    """A command that simulates samples of a recording."""
    return [
        *(sys.executable, "-m", "pagewalk", "compare", "--trace", trace.name),
        *("--sample", sample, "--json", out, *more),
    ]


def counted(path: Path) -> tuple[Json, Json]:
    """A result without what is of the host, and that."""
    found = json.loads(path.read_text())
    return found, found.pop("host")


@pytest.mark.long
def test_samples_of_a_recording_count_the_same_on_other_hosts(dask: Dask, tmp_path: Path) -> None:
    dask.worker()
    dask.worker()
    trace = recorded(tmp_path, 3_000_000)
    (tmp_path / "base.toml").write_text('base = "thp"\n')
    (tmp_path / "mine.toml").write_text('base = "./base.toml"\n[mmu]\nwalkers = 1\n')
    milan = (native.DATA / "machines" / "epyc-milan.toml").read_text()
    (tmp_path / "small.toml").write_text(milan.replace("size_kb = 32768", "size_kb = 8192"))
    named = ("--designs", "radix,./mine.toml,./mine.toml[mmu.walkers=3]")
    on = ("--machine", "./small.toml")
    here = shared_out(trace, "here.json", *named, *on, "--jobs", "2")
    there = shared_out(trace, "there.json", *named, *on, "--cluster", dask.address)
    for command in (here, there):
        answer = run(command, tmp_path)
        assert answer.returncode == 0, answer.stderr
    assert "and 8 shards on other hosts" in answer.stdout
    (ours, _), (theirs, host) = counted(tmp_path / "here.json"), counted(tmp_path / "there.json")
    assert ours == theirs
    assert ours["designs"][0]["sampling"]["samples"] == 76
    assert host["remote_shards"] == 8


@pytest.mark.long
def test_a_precision_is_reached_with_samples_of_other_hosts(dask: Dask, tmp_path: Path) -> None:
    dask.worker()
    trace = recorded(tmp_path, 12_000_000)
    named = ("--designs", "radix,thp", "--precision", "5%", "--instructions")
    for length, out in (("12M", "samples"), ("3M", "all")):
        for place, more in (("here", ()), ("there", ("--cluster", dask.address))):
            file = f"{out}-{place}.json"
            command = shared_out(trace, file, *named, length, *more, sample="2K/5G:8K+4K")
            answer = run(command, tmp_path)
            assert answer.returncode == 0, answer.stderr
    (ours, _), (theirs, host) = (counted(tmp_path / f"samples-{p}.json") for p in ("here", "there"))
    assert ours == theirs
    assert ours["designs"][0]["sampling"]["samples"] >= 16
    assert host["remote_shards"] > 0
    (ours, _), (theirs, host) = (counted(tmp_path / f"all-{p}.json") for p in ("here", "there"))
    assert ours["designs"] == theirs["designs"]
    assert theirs["designs"][0]["sampling"] is None
    assert "so much precision takes all instructions" in theirs["warnings"][-1]


@pytest.mark.long
def test_another_worker_simulates_the_shard_of_one_that_dies(dask: Dask, tmp_path: Path) -> None:
    first = dask.worker()
    trace = recorded(tmp_path, 20_000_000)
    more = ("--cluster", dask.address)
    command = shared_out(trace, "out.json", *more, sample="20K/400K:200K+50K")
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    children = Path(f"/proc/{first.pid}/task/{first.pid}/children")
    threads = children.parent.parent
    _until(
        lambda: any((t / "children").read_text() for t in threads.iterdir()), "a shard's process"
    )
    first.send_signal(signal.SIGKILL)
    dask.worker()
    _, err = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 0, err
    found, host = counted(tmp_path / "out.json")
    assert host["remote_shards"] == 5
    here = shared_out(trace, "here.json", sample="20K/400K:200K+50K")
    subprocess.run(here, cwd=tmp_path, capture_output=True, check=True)
    assert found == counted(tmp_path / "here.json")[0]


def test_without_a_scheduler_this_host_simulates_the_rest(dask: Dask, tmp_path: Path) -> None:
    trace = recorded(tmp_path, 3_000_000)
    # No worker ever comes.
    command = shared_out(trace, "out.json", "--cluster", dask.address)
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log = dask.folder / "scheduler.log"
    _until(lambda: b"Receive client connection" in log.read_bytes(), "a client")
    time.sleep(1)
    dask.scheduler.kill()
    out, err = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 0, err
    assert "Traceback" not in err
    found, host = counted(tmp_path / "out.json")
    assert "remote_shards" not in host
    [warning] = [w for w in found["warnings"] if "--cluster" in w]
    assert f"did not return: the scheduler at {dask.address} is gone" in warning
    assert "this host simulated 1, 2, 3" in warning and warning in " ".join(out.split())


def test_a_trace_changed_before_the_worker_reads_it_is_an_error(
    dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dask.worker()
    trace = recorded(tmp_path, 3_000_000)
    spec: Json = {"designs": ["radix"], "machine": "epyc-milan"}
    spec["source"] = {"trace": {"path": str(trace)}}
    option = ClusterOption.read(dask.address)
    assert option is not None
    real = Cluster.hand
    # One of the same length, between the command's look at it and the worker's.
    data = bytearray(trace.read_bytes())
    data[-1000] ^= 1

    def later(*given: Any) -> Any:
        trace.write_bytes(bytes(data))
        return real(*given)

    monkeypatch.setattr(Cluster, "hand", later)
    with Cluster(option) as place:
        hosts = Hosts(place)
        hosts.begin(json.dumps(spec), [3], 7)
        with pytest.raises(UserError, match=r"shard 4 of 7, on a worker: .*another trace"):
            _until(lambda: any(what == "ended" for _, what, _ in hosts.events()), "an answer")


def test_a_base_file_changed_before_the_worker_reads_it_is_an_error(
    dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dask.worker()
    trace = recorded(tmp_path, 3_000_000)
    base, mine = tmp_path / "base.toml", tmp_path / "mine.toml"
    base.write_text('base = "thp"\n')
    mine.write_text('base = "./base.toml"\n')
    spec: Json = {"designs": [str(mine)], "machine": "epyc-milan"}
    spec["source"] = {"trace": {"path": str(trace)}}
    real = Cluster.hand

    def later(*given: Any) -> Any:
        base.write_text('base = "thp"\n[mmu]\nwalkers = 1\n')
        return real(*given)

    monkeypatch.setattr(Cluster, "hand", later)
    option = ClusterOption.read(dask.address)
    assert option is not None
    with Cluster(option) as place:
        hosts = Hosts(place)
        hosts.begin(json.dumps(spec), [3], 7)
        with pytest.raises(UserError, match=r"shard 4 of 7, on a worker: a design or the machine"):
            _until(lambda: any(what == "ended" for _, what, _ in hosts.events()), "an answer")


def test_a_run_that_is_refused_makes_no_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made(_self: Cluster) -> None:
        raise AssertionError("a cluster was made")

    monkeypatch.setattr(Cluster, "connect", made)
    trace = recorded(tmp_path, 3_000_000)
    given: Json = {"cluster": "tcp://127.0.0.1:9", "progress": False}
    sampled: Json = {**given, "trace": str(trace), "sample": "2K/40K:10K+2K"}
    for wrong, said in (
        ({**sampled, "trace": str(tmp_path / "none.pwt")}, "there is no file"),
        ({**sampled, "design": "none"}, "there is no design of that name"),
        ({**sampled, "sample": "2K/40K"}, "has to be bounded"),
    ):
        with pytest.raises(UserError, match=said):
            pagewalk.run(**wrong)
    with pytest.raises(AssertionError, match="a cluster was made"):
        pagewalk.run(**sampled)


def test_a_missing_worker_is_reported_once(
    dask: Dask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "LOOK", 0.1)
    monkeypatch.setattr(shards, "PATIENCE", 2)
    trace = recorded(tmp_path, 3_000_000)
    spec: Json = {"designs": ["radix"], "machine": "epyc-milan"}
    spec["source"] = {"trace": {"path": str(trace)}}
    option = ClusterOption.read(dask.address)
    assert option is not None
    said: list[str] = []
    with Cluster(option) as place:
        hosts = Hosts(place, said.append)
        hosts.begin(json.dumps(spec), [3, 4], 7)
        _until(lambda: bool(hosts.events() or said), "a sentence")
        for _ in range(5):
            time.sleep(0.1)
            assert hosts.events() == []
    assert len(said) == 1
    assert f"--cluster {dask.address}: there has been no worker" in said[0]
    assert "2 shards" in said[0]


@pytest.mark.long
def test_only_samples_of_a_recording_are_shared_out(dask: Dask, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pagewalk", "run", "--cluster", dask.address]
    answer = run([*command, "--workload", "gups", "--size", "16MiB"])
    assert answer.returncode == 2
    assert "expected --trace FILE" in answer.stderr
    trace = recorded(tmp_path, 3_000_000)
    answer = run([*command, "--trace", str(trace), "--sample", "2K/40K"])
    assert answer.returncode == 2
    assert "cannot be shared out: what comes before each sample has to be bounded" in answer.stderr
    words = [*command[:3], "trace", "regions", str(trace), "--length", "100K", "-o", "regions.toml"]
    assert run(words, tmp_path).returncode == 0
    answer = run([*command, "--trace", trace.name, "--regions", "regions.toml"], tmp_path)
    assert answer.returncode == 2
    assert "regions are simulated by this one" in answer.stderr
    with pytest.raises(UserError, match="expected trace \\("):
        pagewalk.run(workload="gups", cluster=dask.address, progress=False)


def test_a_worker_that_dies_loses_nothing(dask: Dask) -> None:
    first = dask.worker()
    dask.worker()
    process = started(sweep(dask, LONG, seeds=4))
    _until(lambda: len(finished(dask)) >= 2, "a finished run")
    before = finished(dask)
    first.send_signal(signal.SIGKILL)
    out, err = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 0, err
    after = finished(dask)
    assert len(after) == 8
    assert {name: after[name] for name in before} == before
    assert rows(dask)["status"].to_list() == ["complete"] * 8
    assert "8 of 8 runs" in out


@pytest.mark.long
def test_a_client_that_dies_goes_on_where_it_was(dask: Dask) -> None:
    dask.worker()
    dask.worker()
    process = started(sweep(dask, LONG, seeds=4))
    _until(lambda: len(finished(dask)) >= 2, "a finished run")
    process.kill()
    process.communicate()
    before = finished(dask)
    answer = run(sweep(dask, LONG, seeds=4))
    assert answer.returncode == 0, answer.stderr
    after = finished(dask)
    assert len(after) == 8
    # Also those that were simulated while there was no client.
    assert {name: after[name] for name in before} == before
    assert rows(dask)["status"].to_list() == ["complete"] * 8


@pytest.mark.long
def test_a_dead_scheduler_is_reported_and_loses_no_finished_run(dask: Dask) -> None:
    dask.worker()
    process = started(sweep(dask, LONG, seeds=4))
    _until(lambda: len(finished(dask)) >= 2, "a finished run")
    dask.scheduler.kill()
    _, err = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 1
    assert "Traceback" not in err
    assert f"the scheduler at {dask.address} is gone; what has finished is kept" in err
    before = finished(dask)
    there = rows(dask)
    assert there.filter(pl.col("status") == "complete").height == len(before)
    assert there.filter(pl.col("status") != "complete")["why"].str.contains("is gone").all()
    dask.again()
    dask.worker()
    answer = run(sweep(dask, LONG, seeds=4))
    assert answer.returncode == 0, answer.stderr
    after = finished(dask)
    assert len(after) == 8
    assert {name: after[name] for name in before} == before
    assert rows(dask)["status"].to_list() == ["complete"] * 8


def test_a_client_without_its_scheduler_knows_no_workers(
    dask: Dask, monkeypatch: pytest.MonkeyPatch
) -> None:
    option = ClusterOption.read(dask.address)
    assert option is not None
    dask.worker()
    run = Run(Program("gups", "16MiB"), Design("radix", "radix"), "epyc-milan", 100_000)
    with Cluster(option) as place:
        # So Dask leaves it between the end of a scheduler and that of the client.
        monkeypatch.setattr(place._client, "scheduler_info", lambda **_: {})
        assert place.slots == 1
        assert place.refuses(Batch((run,))) == ""


@pytest.mark.long
def test_a_run_larger_than_every_worker_fails_by_name(dask: Dask) -> None:
    dask.worker(memory="1e9")
    command = sweep(dask)
    at = command.index("--size")
    command[at : at + 2] = []
    command[command.index("--workload") + 1] = "mummer"
    answer = run([*command, "--vary", "size=16MiB,64GiB", "--seeds", "1"][:-2])
    assert answer.returncode == 1
    assert "of the host, and no worker of the cluster has more than 954 MiB" in answer.stderr
    there = rows(dask)
    assert sorted(there["status"].to_list()) == ["complete"] * 4 + ["failed"] * 4
    large = there.filter(pl.col("status") == "failed")
    assert set(large["size"].to_list()) == {64 << 30}


def test_a_folder_that_is_full_loses_no_result(dask: Dask) -> None:
    most = 3000  # The mark of the folder fits, a result does not.

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    process = dask.worker(limit=limit)
    answer = run(sweep(dask))
    assert process.poll() is None
    assert answer.returncode == 1
    assert "4 finished runs could not be kept, and will be simulated again" in answer.stderr
    assert "make room, or name another --cache" in answer.stderr
    assert not finished(dask)
    # The study has them all the same.
    assert rows(dask)["status"].to_list() == ["complete"] * 4


@pytest.mark.long
def test_two_clients_simulate_no_run_twice(dask: Dask) -> None:
    dask.worker()
    dask.worker()
    both = [started(sweep(dask, LONG, study=name)) for name in ("one", "two")]
    written: dict[str, set[int]] = {}
    while any(process.poll() is None for process in both):
        for name, when in finished(dask).items():
            written.setdefault(name, set()).add(when)
        time.sleep(0.02)
    for process in both:
        assert process.wait() == 0
        process.communicate()
    assert len(written) == 4
    assert all(len(times) == 1 for times in written.values())
    order = ["design", "seed"]
    one, two = (rows(dask, name).sort(order) for name in ("one", "two"))
    # Both have the same simulation, down to its host time.
    assert one.equals(two)


def test_a_folder_of_another_host_is_no_folder_of_ours(tmp_path: Path) -> None:
    run = Run(Program("gups", "16MiB"), Design("radix", "radix"), "epyc-milan", 100_000)
    cache = Cache(tmp_path)
    order = {
        "spec": Batch((run,)).spec(),
        "runs": Batch((run,)).order({run.identity: "0123"}),
        "cache": str(tmp_path),
        "mark": "of another folder",
        "model": native.model_version(),
        "fresh": False,
    }
    # The worker's own folder of that name is another cache, so the worker returns the result.
    workers = Workers()
    report = workers.simulate(order)
    assert cache.mark() != order["mark"]
    assert report["error"] is None
    assert list(report["results"]) == ["0123"]
    assert not report["kept"]
    assert cache.read("0123") is None
    report = workers.simulate({**order, "mark": cache.mark()})
    assert report["kept"] == ["0123"]
    kept = cache.read("0123")
    assert kept is not None
    assert kept.result.complete
    report = workers.simulate({**order, "mark": cache.mark()})
    assert (report["kept"], report["there"]) == ([], ["0123"])
    report = workers.simulate({**order, "model": -1})
    assert "install the same on both" in report["error"]
    workers.close()


def test_a_wrong_address_is_an_error(tmp_path: Path) -> None:
    answer = run(
        [
            *(sys.executable, "-m", "pagewalk", "sweep", "--workload", "gups"),
            *("--cluster", "tcp://127.0.0.1:9", "--cache", str(tmp_path / "cache")),
            *("-o", str(tmp_path / "study")),
        ]
    )
    assert answer.returncode == 1
    assert answer.stderr.splitlines()[-1].startswith(
        "error: there is no Dask scheduler at tcp://127.0.0.1:9"
    )
    assert "Traceback" not in answer.stderr


def test_a_job_script_requests_the_given_resources() -> None:
    option = ClusterOption.read(
        "slurm:queue=long,cores=8,processes=2,memory=32GiB,walltime=24:00:00,account=vm"
    )
    assert option is not None
    with queue(option) as made:
        script = made.job_script()
    lines = script.splitlines()
    assert lines[0].startswith("#!")
    for said in ("-p long", "-A vm", "-t 24:00:00", "--cpus-per-task=8", "--mem=32G"):
        assert f"#SBATCH {said}" in lines
    # Each of two processes has half of the memory.
    assert f"--resources memory={16 << 30}" in script
    assert "distributed.cli.dask_worker" in script


def test_a_job_is_one_process_with_all_of_its_memory() -> None:
    option = ClusterOption.read("slurm:cores=8,memory=32GB")
    assert option is not None
    with queue(option) as made:
        script = made.job_script()
    assert "--nthreads 8" in script
    assert "--nworkers" not in script
    # Dask reads GB as powers of ten.
    assert f"--resources memory={32 * 10**9}" in script


@pytest.mark.parametrize("system", ["pbs", "lsf", "sge", "oar", "htcondor"])
def test_other_batch_systems_have_their_scripts(system: str) -> None:
    option = ClusterOption.read(
        f"{system}:cores=4,memory=8GB" + (",disk=1GB" if system == "htcondor" else "")
    )
    assert option is not None
    with queue(option) as made:
        assert (
            f"memory={8 * 10**9}" in made.job_script() or "memory=8589934592" in made.job_script()
        )


def test_pods_request_the_given_resources() -> None:
    option = ClusterOption.read("kubernetes:image=lab/pagewalk:1,memory=16GiB,cores=4,name=vm")
    assert option is not None
    spec = pods(option, 20)
    assert spec["metadata"]["name"] == "vm"
    workers = spec["spec"]["worker"]
    assert workers["replicas"] == 20
    (container,) = workers["spec"]["containers"]
    assert container["image"] == "lab/pagewalk:1"
    assert container["resources"]["limits"] == {"memory": str(16 << 30), "cpu": "4"}
    words = " ".join(container["args"])
    assert "dask worker" in words
    assert "--nthreads 4" in words
    assert f"--resources memory={16 << 30}" in words


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("somewhere", "--cluster: 'somewhere' is not understood; expected local, the address"),
        *(
            (text, f"--cluster: '{text}' is no address of a Dask scheduler; expected one as tcp://")
            for text in ("tcp://", "tcp://head", "tcp://head:port", "http://head:8786")
        ),
        ("slurm:queue", "--cluster slurm: 'queue' is not understood; expected NAME=VALUE"),
        ("slurm:cores=2", "nothing says how much memory a job has"),
        ("slurm:cores=x,memory=1GB", "cores='x' is not possible; expected 1 or more"),
        ("slurm:cores=1,memory=much", "memory: 'much' is not understood"),
        ("kubernetes:memory=1GiB", "expected image=…"),
        ("kubernetes:image=a,queue=b", "there is no option 'queue'; expected some of"),
    ],
)
def test_a_mistake_is_one_sentence(text: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        option = ClusterOption.read(text)
        assert option is not None
        if option.where == "kubernetes":
            pods(option, 1)
        else:
            queue(option)
    assert said in str(raised.value)


def test_jobs_can_be_made_beside_the_main_thread_and_leave_its_signals() -> None:
    # As `run` does it; importing dask-jobqueue sets a handler of its own.
    code = (
        "import signal, threading\n"
        "from pagewalk.runs.cluster import ClusterOption, queue\n"
        "before, made = signal.getsignal(signal.SIGINT), []\n"
        "option = ClusterOption.read('slurm:cores=1,memory=1GB')\n"
        "thread = threading.Thread(target=lambda: made.append(queue(option)))\n"
        "thread.start(); thread.join(); made[0].close()\n"
        "assert signal.getsignal(signal.SIGINT) is before\n"
    )
    answer = run([sys.executable, "-c", code])
    assert answer.returncode == 0, answer.stderr


def test_a_host_without_the_batch_system_is_an_error(tmp_path: Path) -> None:
    words = "sweep --workload gups --instructions 1K --cluster pbs:cores=1,memory=1GB --jobs 1"
    command = [sys.executable, "-m", "pagewalk", *words.split(), "--cache", str(tmp_path / "cache")]
    answer = run([*command, "-o", str(tmp_path / "study")])
    assert answer.returncode == 1
    said = "error: --cluster pbs: no job was submitted: there is no command 'qsub' here"
    assert said in answer.stderr


class _Queue:
    """A cluster of dask-jobqueue, as `Jobs` needs it: two jobs of one worker each."""

    def __init__(self) -> None:
        self.worker_spec: Json = {"a": {}, "b": {}}
        self.workers: Json = {}
        self.scheduler_info: Json = {"workers": {}}
        self.closed: list[str] = []
        self.scaled: list[int] = []
        self._ids = iter("123456789")
        self.scale(jobs=2)

    def scale(self, jobs: int) -> None:
        self.scaled.append(jobs)
        for name in self.worker_spec.keys() - self.workers.keys():
            self.workers[name] = SimpleNamespace(job_id=next(self._ids), close=self._close)

    async def _close(self) -> None:
        self.closed.append("")

    def present(self, *names: str) -> None:
        self.scheduler_info = {"workers": {name: {"name": name} for name in names}}

    def ids(self) -> set[str]:
        return {job.job_id for job in self.workers.values()}


def test_a_job_that_lost_its_worker_is_submitted_again() -> None:
    made, why = _Queue(), list[str]()

    async def look() -> None:
        jobs = Jobs(made, "pbs", why.append)
        # Jobs that wait in the queue are left alone, however long.
        jobs._look(None, 0.0)
        jobs._look(None, 1000.0)
        first = made.ids()
        assert len(first) == 2
        made.present("a", "b")
        jobs._look(None, 1001.0)
        made.present("b")
        jobs._look(None, 1001.0 + LOST / 2)
        assert made.ids() == first
        jobs._look(None, 1001.0 + LOST)
        assert len(made.ids() - first) == 1
        assert len(made.ids() & first) == 1
        await asyncio.sleep(0)

    asyncio.run(look())
    assert len(made.closed) == 1
    assert not why


def test_jobs_that_end_before_their_workers_come_are_given_up() -> None:
    made, why = _Queue(), list[str]()

    async def look() -> None:
        jobs = Jobs(made, "slurm", why.append)
        for turn in range(EARLY):
            assert not why
            # The queue knows none of them any more.
            jobs._look(set(), float(turn))

    asyncio.run(look())
    assert not made.worker_spec
    assert len(why) == 1
    assert f"ended {EARLY} times before their workers came" in why[0]


def test_starts_of_jobs_that_end_together_are_one() -> None:
    handed = _Handed(lambda _share: None)
    assert all(handed.begin(100.0 + i) for i in range(int(LOST)))
    assert handed.starts == 1
    later = [handed.begin(100.0 + LOST * i) for i in range(1, STARTS + 1)]
    assert later == [True] * (STARTS - 1) + [False]
