"""Debian's redis-server with STLT in front of its look-ups answers as one without."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from invoking import Cli
from live import needs, needs_qemu

Answer = bytes | int | list["Answer"] | None

ROOT = Path(__file__).parent.parent
PROGRAMS = ROOT / "validation" / "programs"
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
SERVER = TARGET / "redis-stlt" / "redis-server"

# Its source is downloaded and compiled, which takes minutes and a network: for those who ask.
needs_server = pytest.mark.skipif(
    not SERVER.exists(), reason="SKIPPED: make redis-stlt builds the server first"
)

# Rows of a table with room for everything, and of one with room for hardly anything.
LARGE, SMALL = "65536", "256"


@pytest.fixture(scope="module")
def double(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code that is linked into Redis, over a dictionary that unmaps freed entries."""
    program = tmp_path_factory.mktemp("redis") / "check"
    words = ["make", "-s", "-C", str(PROGRAMS), "redis_double/check", f"OUT={program}"]
    subprocess.run(words, check=True)
    return program


def counts(output: str) -> Iterator[tuple[int, int, int]]:
    """Counts of each line: look-ups, those that searched the dictionary, wrong answers."""
    for line in output.splitlines():
        lookups, searched, wrong = map(int, line.split())
        yield lookups, searched, wrong


@needs("cc", "make", "xxhash.h")
def test_no_row_leads_to_an_entry_that_is_gone(double: Path) -> None:
    shares = []
    for rows in (None, SMALL, LARGE):
        environment = {**os.environ, **({"PAGEWALK_STLT_ROWS": rows} if rows else {})}
        done = subprocess.run(
            [double, "200000"], check=False, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, (rows, done)
        [(lookups, searched, wrong)] = counts(done.stdout)
        assert wrong == 0
        shares.append(searched / lookups)
    # A third of the look-ups are in a dictionary that has no rows.
    assert shares[0] == 1
    assert 1 / 3 < shares[2] < 0.72
    assert shares[2] < shares[1] < 0.85


@pytest.mark.long
@pytest.mark.qemu
@needs_qemu
@needs("cc", "make", "xxhash.h")
def test_the_machine_serves_it_and_where_there_is_none_it_does_without(
    double: Path, cli: Cli, tmp_path: Path
) -> None:
    report = tmp_path / "r.json"
    small = "stlt[shortcut.stlt.rows=65536]"
    program = ["--json", report, "--", double, "20000"]
    answer = cli("compare", "--designs", f"radix,{small},stlt-va", *program)
    assert answer.returncode == 0, answer.stderr
    plain, *served = sorted(counts(answer.stdout), key=lambda c: -c[1])
    lookups = plain[0]
    assert plain == (lookups, lookups, 0)
    stats = [
        {s["name"]: s["value"] for s in d["stats"] if s["path"] == "stlt"}
        for d in json.loads(report.read_text())["designs"]
    ]
    assert not stats[0]
    # Most wins first, as the larger table and the one without pages that are invalid.
    by_hits = sorted(stats[1:], key=lambda s: s["hits"])
    for (n, searched, wrong), table in zip(served, by_hits, strict=True):
        assert (n, wrong) == (lookups, 0)
        # A hit on another key's entry also searches the dictionary.
        found = lookups - searched
        assert found <= table["hits"] <= found * 1.02
        assert table["calls"] > 5
        assert table["refused_calls"] == 0
        assert table["emptied_rows"] > 10
        # A row after each search that found an entry: so many SETs and other searches are none.
        assert table["loads"] > table["hits"] > 0


class Client:
    """Talks to a server at the other end of a socket."""

    def __init__(self, path: Path, server: subprocess.Popen[bytes]) -> None:
        end = time.monotonic() + 600
        self.socket = socket.socket(socket.AF_UNIX)
        while True:
            try:
                self.socket.connect(str(path))
                break
            except OSError:
                assert server.poll() is None, "the server has ended"
                assert time.monotonic() < end, "nothing answers"
                time.sleep(0.05)
        self.file = self.socket.makefile("rb")

    def send(self, commands: Sequence[Sequence[str | bytes]]) -> None:
        out = b""
        for words in commands:
            encoded = [w if isinstance(w, bytes) else w.encode() for w in words]
            out += b"*%d\r\n" % len(encoded)
            out += b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in encoded)
        self.socket.sendall(out)

    def all(self, commands: Sequence[Sequence[str | bytes]]) -> list[Answer]:
        """The answer to each."""
        found = []
        for at in range(0, len(commands), 100):
            some = commands[at : at + 100]
            self.send(some)
            found += [self.answer() for _ in some]
        return found

    def __call__(self, *words: str | bytes) -> Answer:
        return self.all([words])[0]

    def answer(self) -> Answer:
        line = self.file.readline()
        assert line, "the server has gone"
        kind, rest = line[:1], line[1:-2]
        if kind == b":":
            return int(rest)
        if kind == b"*":
            return [self.answer() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        assert kind == b"+", line
        return bytes(rest)


class Store:
    """Two databases with the same keys, and what has to be in them."""

    def __init__(self, client: Client, keys: int) -> None:
        self.client, self.keys = client, keys
        self.wanted: list[dict[str, bytes]] = [{}, {}]
        self.random = random.Random(3)
        self.gets = 0

    def check(self) -> None:
        """The answer to GET of every key, and of some that never were."""
        for number, wanted in enumerate(self.wanted):
            self.client("SELECT", str(number))
            keys = [f"key:{k}" for k in range(self.keys + 20)]
            self.random.shuffle(keys)
            self.gets += len(keys)
            for key, value in zip(keys, self.client.all([("GET", k) for k in keys]), strict=True):
                assert value == wanted.get(key), (number, key)
            assert self.client("DBSIZE") == len(wanted)

    def change(self, commands: int) -> None:
        """Random commands that make, replace, move and take records."""
        for number, wanted in enumerate(self.wanted):
            self.client("SELECT", str(number))
            said: list[tuple[str | bytes, ...]] = []
            for _ in range(commands):
                key = f"key:{self.random.randrange(self.keys)}"
                value = b"%d:%d" % (self.random.randrange(10**9), number)
                value *= self.random.choice([1, 1, 5, 40])
                what = self.random.random()
                if what < 0.5:
                    said.append(("SET", key, value))
                    wanted[key] = value
                elif what < 0.6:
                    said.append(("APPEND", key, value))
                    wanted[key] = wanted.get(key, b"") + value
                elif what < 0.9 or key not in wanted:
                    said.append(("DEL" if what < 0.7 else "UNLINK", key))
                    wanted.pop(key, None)
                else:
                    to = f"key:{self.random.randrange(self.keys)}"
                    said.append(("RENAME", key, to))
                    wanted[to] = wanted.pop(key)
            self.client.all(said)
            # Nothing is done to these before they are gone.
            some = self.random.sample(sorted(wanted), len(wanted) // 10)
            for key in some:
                del wanted[key]
            self.client.all([("PEXPIRE", key, "1") for key in some])
        time.sleep(0.02)

    def everything(self) -> None:
        """Changes of all kinds, with a look at everything after each."""
        for command in ("FLUSHALL", "FLUSHALL ASYNC", "SWAPDB 0 1", "DEBUG RELOAD", "PING"):
            self.change(self.keys)
            self.check()
            assert self.client(*command.split()) in (b"OK", b"PONG")
            if command.startswith("FLUSHALL"):
                self.wanted = [{}, {}]
            elif command.startswith("SWAPDB"):
                self.wanted.reverse()
            self.check()


@contextlib.contextmanager
def serving(folder: Path, *before: str, **environment: str) -> Iterator[Client]:
    """The server, run by `before`, and a client of it."""
    folder.mkdir()
    command = [*before, str(SERVER), "--port", "0", "--unixsocket", str(folder / "socket")]
    command += ["--save", "", "--dir", str(folder), "--enable-debug-command", "yes"]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, env={**os.environ, **environment}
    )
    try:
        client = Client(folder / "socket", process)
        yield client
        client.send([("SHUTDOWN", "NOSAVE")])
        assert process.wait(600) == 0
    finally:
        process.kill()
        process.wait()


@needs_server
def test_redis_answers_the_same_natively(tmp_path: Path) -> None:
    # The allocator overwrites freed memory, so that a freed entry is invalid.
    for rows in ("", SMALL, LARGE):
        environment = {"MALLOC_CONF": "junk:true"}
        if rows:
            environment["PAGEWALK_STLT_ROWS"] = rows
        with serving(tmp_path / f"rows{rows}", **environment) as client:
            store = Store(client, 2000)
            for _ in range(3):
                store.everything()


@pytest.mark.qemu
@needs_qemu
@needs_server
def test_redis_answers_the_same_live(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    for design in ("radix", "stlt", "stlt-va"):
        small = ["--set", "shortcut.stlt.rows=65536"] if design != "radix" else []
        run = [sys.executable, "-m", "pagewalk", "run", "--design", design, *small]
        with serving(tmp_path / design, *run, "--json", str(report), "--") as client:
            store = Store(client, 150)
            store.everything()
        [found] = json.loads(report.read_text())["designs"]
        assert found["status"] == "complete"
        table = {s["name"]: s["value"] for s in found["stats"] if s["path"] == "stlt"}
        if design != "radix":
            assert table["loads"] > store.gets
            assert table["hits"] > store.gets / 10
            assert table["emptied_rows"] > 20
            assert (table["calls"] > 3, table["refused_calls"]) == (True, 0)
