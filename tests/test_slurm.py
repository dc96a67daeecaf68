"""Sweeps and runs on a real SLURM of two nodes: the same results, whatever becomes of the jobs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from pagewalk import native
from pagewalk.runs.cache import Cache
from slurm import NODES, Slurm, needed, until

Json = dict[str, Any]

pytestmark = pytest.mark.long

JOBS = "slurm:cores=1,memory=1GB"
QUICK, LONG = "300K", "20M"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    needed()
    made = Slurm(tmp_path_factory.mktemp("slurm"))
    try:
        yield made
    finally:
        made.close()
        assert not made.processes()


def sweep(instructions: str, seeds: int, *more: str, jobs: str = JOBS) -> list[str]:
    words = "--workload gups --size 16MiB --designs radix,thp --warmup 0 -o study --cache cache"
    return [
        *(sys.executable, "-m", "pagewalk", "sweep", *words.split(), "--seeds", str(seeds)),
        *("--instructions", instructions, "--jobs", "2", *more),
        *(("--cluster", jobs) if jobs else ()),
    ]


def started(command: list[str], slurm: Slurm, folder: Path) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        command,
        cwd=folder,
        env=slurm.env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def ended(process: subprocess.Popen[str], status: int = 0) -> tuple[str, str]:
    out, err = process.communicate(timeout=600)
    assert process.returncode == status, err
    assert "Traceback" not in err
    return out, err


def finished(folder: Path) -> dict[str, int]:
    """Kept runs, and when each was written."""
    return {p.name: p.stat().st_mtime_ns for p in (folder / "cache").glob("*/*.json.gz")}


def results(folder: Path) -> dict[str, str]:
    """The text of each kept run without what is of the host."""
    cache, found = Cache(folder / "cache"), {}
    for name in finished(folder):
        outcome = cache.read(name.partition(".")[0])
        assert outcome is not None and outcome.data is not None
        data = {key: value for key, value in outcome.data.items() if key != "host"}
        found[outcome.key] = json.dumps(data)
    return found


def statuses(folder: Path) -> list[str]:
    return list(pl.read_parquet(folder / "study" / "runs" / "*.parquet")["status"])


def test_a_sweep_has_the_results_of_this_host(slurm: Slurm, tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    ended(started(sweep(QUICK, 3), slurm, there))
    ended(started(sweep(QUICK, 3, jobs=""), slurm, here))
    assert len(results(there)) == 6
    assert results(there) == results(here)
    until(lambda: not slurm.said("squeue", "--noheader"), "the end of the jobs")


def sampled(trace: Path, out: str, *more: str) -> list[str]:
    return [
        *(sys.executable, "-m", "pagewalk", "run", "--trace", str(trace), "--design", "thp"),
        *("--sample", "20K/400K:200K+50K", "--json", out, *more),
    ]


def test_a_run_is_the_same_when_its_jobs_are_killed(slurm: Slurm, tmp_path: Path) -> None:
    trace = tmp_path / "gups.pwt"
    source = {"workload": {"name": "gups", "size": "16MiB"}}
    native.record({"source": source, "instructions": 40_000_000}, str(trace))
    process = started(
        sampled(trace, "there.json", "--cluster", JOBS, "--jobs", "2"), slurm, tmp_path
    )
    until(lambda: len(slurm.jobs()) == 2, "two jobs")
    first = slurm.jobs()
    slurm.said("scancel", *first)
    until(lambda: bool(set(slurm.jobs()) - {*first}), "another job")
    ended(process)
    ended(started(sampled(trace, "here.json"), slurm, tmp_path))
    there, here = (json.loads((tmp_path / f"{one}.json").read_text()) for one in ("there", "here"))
    assert there.pop("host")["remote_shards"] > 0
    here.pop("host")
    assert json.dumps(there) == json.dumps(here)


def test_killed_jobs_are_submitted_again(slurm: Slurm, tmp_path: Path) -> None:
    process = started(sweep(LONG, 8), slurm, tmp_path)
    until(lambda: bool(finished(tmp_path)), "a finished run")
    first, before = slurm.jobs(), finished(tmp_path)
    slurm.said("scancel", *first)
    until(lambda: bool(slurm.jobs()) and not {*first} & {*slurm.jobs()}, "another job")
    ended(process)
    after = finished(tmp_path)
    assert len(after) == 16
    assert {name: after[name] for name in before} == before
    assert statuses(tmp_path) == ["complete"] * 16


def test_jobs_that_end_by_their_walltime_are_submitted_again(slurm: Slurm, tmp_path: Path) -> None:
    # A minute is the shortest time that SLURM takes.
    process = started(sweep(LONG, 500, jobs=f"{JOBS},walltime=1"), slurm, tmp_path)
    until(lambda: len(slurm.jobs()) == 2, "two jobs")
    seen = {*slurm.jobs()}
    until(lambda: len({*slurm.jobs()} - seen) == 2, "two other jobs")
    before = finished(tmp_path)
    until(lambda: len(finished(tmp_path)) > len(before), "a run of the other jobs")
    process.send_signal(signal.SIGTERM)
    _, err = ended(process, 128 + signal.SIGTERM)
    assert "runs are kept" in err
    assert {*statuses(tmp_path)} == {"complete"}
    until(lambda: not slurm.said("squeue", "--noheader"), "the end of the jobs")


def test_a_drained_node_gets_no_jobs(slurm: Slurm, tmp_path: Path) -> None:
    process = started(sweep(LONG, 6), slurm, tmp_path)
    until(lambda: len(slurm.jobs()) == 2, "two jobs")
    drained = slurm.jobs("--nodelist", NODES[0])
    slurm.said("scontrol", "update", f"nodename={NODES[0]}", "state=drain", "reason=test")
    try:
        slurm.said("scancel", *drained)
        until(lambda: slurm.states()[0] == "drained", "a drained node")
        out, _ = ended(process)
        assert "12 of 12 runs" in out
        assert not slurm.jobs("--nodelist", NODES[0])
    finally:
        slurm.said("scontrol", "update", f"nodename={NODES[0]}", "state=resume")
    assert statuses(tmp_path) == ["complete"] * 12
    until(lambda: slurm.states() == ["idle", "idle"], "two idle nodes")


@pytest.mark.parametrize(
    ("jobs", "said"),
    [
        (f"{JOBS},queue=none", "no job was submitted: sbatch: error: invalid partition specified"),
        ("slurm:cores=1,memory=1TB", "no job was submitted: sbatch: error: Memory specification"),
    ],
)
def test_a_refused_job_is_one_sentence(slurm: Slurm, tmp_path: Path, jobs: str, said: str) -> None:
    _, err = ended(started(sweep(QUICK, 1, jobs=jobs), slurm, tmp_path), 1)
    assert f"error: --cluster slurm: {said}" in err


def test_jobs_that_end_at_once_end_the_command(slurm: Slurm, tmp_path: Path) -> None:
    jobs = f"{JOBS},python=/bin/false"
    _, err = ended(started(sweep(QUICK, 1, jobs=jobs), slurm, tmp_path), 1)
    assert "all jobs of slurm have ended 3 times before their workers came" in err
    last = err.partition("the output of job ")[2].partition(" ")[0]
    assert (tmp_path / f"slurm-{last}.out").exists()
