"""Measures Redis' processor time a GET with lookaside and without it, and adds it to results.json.

    lookaside/redis/measure.py SERVER [--keys N] [--gate COMMAND]

Two servers of one program hold the same keys. One has no table (LOOKASIDE_ROWS=0), the other one is
always on. Both serve the same pipelined requests in turn, and the CPU time of their main threads
counts. Keys have 24 bytes, values 64.
"""

import argparse
import json
import os
import random
import socket
import statistics
import subprocess
import tempfile
import time
from bisect import bisect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent.parent / "results.json"
ROWS = 1 << 23
REQUESTS, FILLS, PAIRS, PIPELINE = 200_000, 15, 5, 500
VALUE = b"v" * 64


def key_of(number: int) -> bytes:
    """A key of 24 bytes. A multiplication scatters neighbours in popularity."""
    return b"user%020d" % (number * 0x9E3779B97F4A7C15 % 2**64)


def command(*words: bytes) -> bytes:
    """A request in Redis' protocol."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


class Server:
    """A server on a socket in a folder."""

    def __init__(self, program: Path, folder: Path, rows: int) -> None:
        path = folder / f"{rows}.sock"
        settings = {"LOOKASIDE_ROWS": str(rows), "LOOKASIDE_AUTOMATIC": "0"}
        arguments = ["--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(folder)]
        self.process = subprocess.Popen(
            [str(program), *arguments], env={**os.environ, **settings}, stdout=subprocess.DEVNULL
        )
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(100):
            if path.exists():
                break
            time.sleep(0.1)
        self.socket.connect(str(path))

    def send(self, requests: list[bytes], reply_bytes: int) -> None:
        """Sends pipelined requests, whose replies have so many bytes each."""
        for start in range(0, len(requests), PIPELINE):
            group = requests[start : start + PIPELINE]
            self.socket.sendall(b"".join(group))
            left = len(group) * reply_bytes
            while left:
                left -= len(self.socket.recv(min(left, 1 << 20)))

    def cpu(self) -> float:
        """Seconds of CPU time of the server so far."""
        fields = Path(f"/proc/{self.process.pid}/schedstat").read_text().split()
        return int(fields[0]) / 1e9

    def close(self) -> None:
        """Ends the server."""
        self.process.kill()
        self.process.wait()


@contextmanager
def quiet(gate: list[str]) -> Iterator[None]:
    """Holds the machine by the gate's command."""
    with subprocess.Popen([*gate, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as hold:
        assert hold.stdin and hold.stdout
        hold.stdin.write(b"\n")
        hold.stdin.flush()
        hold.stdout.read(1)
        yield
        hold.stdin.close()


def main() -> None:
    """Loads both servers and measures them in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", type=Path, help="redis-server of build.sh")
    parser.add_argument("--keys", type=int, default=5_000_000, help="Number of keys")
    parser.add_argument("--gate", default="", help="Command that keeps the machine quiet")
    options = parser.parse_args()
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        servers = [Server(options.server, Path(folder), rows) for rows in (0, ROWS)]
        for start in range(0, options.keys, 100_000):
            numbers = range(start, min(start + 100_000, options.keys))
            requests = [command(b"SET", key_of(number), VALUE) for number in numbers]
            for server in servers:
                server.send(requests, len(b"+OK\r\n"))
        weights = list(accumulate((rank + 1) ** -0.99 for rank in range(options.keys)))
        draws: dict[str, Callable[[], int]] = {
            "zipf": lambda: bisect(weights, rng.random() * weights[-1]),
            "uniform": lambda: rng.randrange(options.keys),
        }
        reply = len(b"$64\r\n" + VALUE + b"\r\n")

        def requests_of(distribution: str) -> list[bytes]:
            draw = draws[distribution]
            return [command(b"GET", key_of(min(draw(), options.keys - 1))) for _ in range(REQUESTS)]

        rows: list[dict[str, Any]] = []
        for distribution in draws:
            for _ in range(FILLS):
                requests = requests_of(distribution)
                for server in servers:
                    server.send(requests, reply)
            lists = [requests_of(distribution) for _ in range(PAIRS)]
            pairs = []
            with quiet(options.gate.split()):
                for requests in lists:
                    cost = []
                    for server in servers:
                        before = server.cpu()
                        server.send(requests, reply)
                        cost.append((server.cpu() - before) / REQUESTS * 1e9)
                    pairs.append(cost)
            rows.append(
                {
                    "case": f"GET, {options.keys // 10**6} M keys, {distribution}",
                    "base": statistics.median(pair[0] for pair in pairs),
                    "lookaside": statistics.median(pair[1] for pair in pairs),
                    "speedup": statistics.median(pair[0] / pair[1] for pair in pairs),
                    "pairs": pairs,
                }
            )
        for server in servers:
            server.close()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["redis"] = rows
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
