"""`pagewalk reproduce` when files are damaged, disks are full and signals come."""

from __future__ import annotations

import gzip
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from invoking import Invoke
from pagewalk.host import run_folder
from pagewalk.runs.cache import Cache
from paper import arguments, finished, reproduce, small_paper


def _packed(data: Any) -> bytes:
    return gzip.compress(json.dumps(data).encode())


def _without(data: dict[str, Any], *path: str) -> dict[str, Any]:
    copied: dict[str, Any] = json.loads(json.dumps(data))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return copied


def test_damaged_results_count_as_missing_and_are_reported_once(
    tmp_path: Path, invoke: Invoke
) -> None:
    folder = small_paper(tmp_path)
    assert reproduce(invoke, folder)[0] == 0
    first, second, third = finished(folder)
    before = (tmp_path / "out" / "results.csv").read_bytes()
    whole = json.loads(gzip.decompress(first.read_bytes()))
    key = first.name.removesuffix(".json.gz")
    packed = first.read_bytes()
    middle = len(packed) // 2
    cache = Cache(tmp_path / "cache")
    text = json.loads(json.dumps(whole))
    text["design"]["stats"][0]["value"] = "7"
    damaged = {
        "empty": b"",
        "cut off": packed[:middle],
        "another byte": packed[:middle] + bytes([packed[middle] ^ 255]) + packed[middle + 1 :],
        "no end": packed[:-4],
        "binary": bytes(range(256)) * 40,
        "bad stream": packed[:10] + b"\xff" * 100,
        "no JSON": gzip.compress(b'{"key": '),
        "no text": gzip.compress(b"\xff\xfe\x00"),
        "deep": gzip.compress(b"[" * 100_000),
        "a list": _packed([whole]),
        "a number": _packed(7),
        "another key": _packed({**whole, "key": "0" * 32}),
        "no design": _packed(_without(whole, "design")),
        "a text as design": _packed({**whole, "design": "radix"}),
        "no summary": _packed(_without(whole, "design", "summary")),
        "no numbers": _packed({**whole, "design": {**whole["design"], "summary": [], "stats": []}}),
        "statistics of another kind": _packed({**whole, "design": {**whole["design"], "stats": 3}}),
        "a text as number": _packed(text),
    }
    for what, content in damaged.items():
        first.write_bytes(content)
        cache.damaged.clear()
        assert cache.read(key) is None, what
        assert cache.damaged == [first], what
    first.write_bytes(packed)
    cache.damaged.clear()
    assert cache.read(key) is not None
    assert cache.read("0" * 32) is None
    assert cache.damaged == []

    first.write_bytes(damaged["bad stream"])
    second.write_bytes(damaged["a text as design"])
    third.unlink()
    third.mkdir()
    status, _, err = reproduce(invoke, folder)
    # The folder in the third's place cannot be replaced.
    assert status == 1
    assert err.count("cannot be read, and count as not there") == 1
    assert "3 runs to simulate" in err
    third.rmdir()
    status, _, err = reproduce(invoke, folder)
    assert status == 0
    assert "1 run to simulate, 2 are there from before" in err
    assert "cannot be read" not in err
    assert (tmp_path / "out" / "results.csv").read_bytes() == before


def _started(folder: Path, scratch_folder: Path) -> subprocess.Popen[bytes]:
    """A reproduction one run of which takes for ever; the others are finished."""
    command = [sys.executable, "-m", "pagewalk", *arguments(folder, "--jobs", "2")]
    environment = {**os.environ, "TMPDIR": str(scratch_folder)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    )
    deadline = time.monotonic() + 120
    while len(finished(folder)) < 2 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)
    return process


def _of(folder: Path) -> list[int]:
    """Processes that run with the folder as place for their temporary files."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if f"TMPDIR={folder}".encode() in variables:
            found.append(int(path.parent.name))
    return found


def _gone(folder: Path) -> bool:
    deadline = time.monotonic() + 60
    while _of(folder) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not _of(folder)


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (signal.SIGTERM, "error: ended by SIGTERM"),
        (signal.SIGHUP, "error: ended by SIGHUP"),
        (signal.SIGINT, "error: interrupted"),
    ],
)
def test_a_signal_leaves_finished_runs_and_nothing_else(
    tmp_path: Path, number: signal.Signals, said: str
) -> None:
    folder = small_paper(tmp_path, "20G")
    place = tmp_path / "scratch"
    place.mkdir()
    process = _started(folder, place)
    assert len(list(place.iterdir())) == 1
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    kept, last = err.decode().splitlines()[-2:]
    assert last == said
    assert kept.partition(" runs are kept; to go on: pagewalk reproduce ")[0] == "2 of 3"
    assert b"Traceback" not in err
    assert list(place.iterdir()) == []
    assert _gone(place)
    assert len(finished(folder)) == 2
    assert not (tmp_path / "out").exists()


def test_the_next_start_removes_the_folder_of_a_killed_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_paper(tmp_path, "20G")
    place = tmp_path / "scratch"
    place.mkdir()
    process = _started(folder, place)
    (left,) = place.iterdir()
    process.kill()
    process.communicate()
    assert _gone(place)
    assert left.exists()
    stranger = place / f"{run_folder.PREFIX}somebody-else-s"
    stranger.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    with run_folder.folder() as one, run_folder.folder() as other:
        # Folders in use stay, and so do folders of unknown origin.
        assert {*place.iterdir()} == {one, other, stranger}
    assert {*place.iterdir()} == {stranger}
    assert len(finished(folder)) == 2


def test_a_full_disk_loses_no_result(tmp_path: Path) -> None:
    folder = small_paper(tmp_path)
    most = 3000  # A design's file fits, a result does not.
    answer = subprocess.run(
        [sys.executable, "-m", "pagewalk", *arguments(folder, "--json", "-")],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    assert answer.returncode == 1, answer.stderr
    last = answer.stderr.splitlines()[-1]
    assert last.startswith("error: could not write '")
    assert "3 finished runs could not be kept, and will be simulated again (could not wri" in last
    assert "make room, or name another --cache" in last
    assert "Traceback" not in answer.stderr
    # The figure has its numbers all the same.
    rows = json.loads(answer.stdout)["figures"][0]["rows"]
    assert all(row["value"] > 0 for row in rows)
    # No file is half written, in the cache or elsewhere.
    left = [p for p in tmp_path.rglob("*") if p.is_file() and p.parent.name != "paper"]
    assert all(path.stat().st_size < most and not path.name.startswith(".") for path in left), left
    assert not finished(folder)


def test_a_worker_that_dies_in_a_message_is_an_error(
    tmp_path: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_paper(tmp_path)
    worker = tmp_path / "worker"
    worker.write_text("#!/bin/sh\nprintf '{\"don'\nexit 3\n")
    worker.chmod(0o755)
    monkeypatch.setattr("pagewalk.runs.task.sys", SimpleNamespace(executable=str(worker)))
    status, out, err = reproduce(invoke, folder)
    assert status == 1
    assert "ended with status 3" in out + err


def test_a_cache_that_cannot_be_made_is_an_error(tmp_path: Path, invoke: Invoke) -> None:
    folder = small_paper(tmp_path)
    (tmp_path / "cache").write_text("a file")
    status, _, err = reproduce(invoke, folder)
    assert status == 1
    assert f"error: could not make the folder '{tmp_path}/cache'" in err
    assert "name another --cache" in err
