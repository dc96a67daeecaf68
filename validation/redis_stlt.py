"""Redis with STLT, without the table and with it: the same requests, cycles of each.

    python validation/redis_stlt.py SERVER MODULE [--keys N] [--requests N] [--rows N] [--cold]

SERVER is what `make redis-stlt` builds, MODULE `redis_roi.so` of validation/programs. Each key is
set and got once, in batches, then GETs of random keys are measured, each sent when the one before
has been answered. Caches and TLBs are those that the batches leave, or with `--cold` empty; the
table is full in both.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from redis_socket import connected

BATCH = 100
VALUE = b"x" * 64


Command = tuple[bytes, ...]


class Client:
    """A client at the server's socket."""

    def __init__(self, path: Path, server: subprocess.Popen[bytes]) -> None:
        """Waits until the server answers."""
        self.socket = connected(path, server)
        self.file = self.socket.makefile("rb")

    def send(self, commands: Sequence[Command]) -> None:
        """Sends all commands at once."""
        words = [
            b"*%d\r\n" % len(c) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in c)
            for c in commands
        ]
        self.socket.sendall(b"".join(words))

    def all(self, commands: Sequence[Command], batch: int = BATCH) -> None:
        """Sends commands in batches; each GET has to return the value."""
        for at in range(0, len(commands), batch):
            some = commands[at : at + batch]
            self.send(some)
            for command in some:
                line = self.file.readline()
                if command[0] == b"GET":
                    value = self.file.read(len(VALUE) + 2)[:-2]
                    if value != VALUE:
                        raise SystemExit(f"{command}: {line!r} {value!r}")
                elif line[:1] != b"+":
                    raise SystemExit(f"{command}: {line!r}")


def measured(design: str, arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Counts a request with this design."""
    report, path = folder / "result.json", folder / "socket"
    regions = [] if arguments.cold else ["--warmup-requests", "1"]
    command = [sys.executable, "-m", "pagewalk", "run", "--machine", arguments.machine]
    command += ["--design", design, "--roi", *regions, "--requests", "1", "--json", str(report)]
    command += ["--", arguments.server, "--port", "0", "--unixsocket", str(path), "--save", ""]
    command += ["--dir", str(folder), "--hz", "1", "--activerehashing", "no"]
    command += ["--loadmodule", str(Path(arguments.module).resolve())]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    client = Client(path, server)
    keys = [b"user%020d" % n for n in range(arguments.keys)]
    client.all([(b"SET", key, VALUE) for key in keys])
    draw = random.Random(1)
    draw.shuffle(keys)
    begin: list[Command] = [(b"PAGEWALK.BEGIN",)]
    end: list[Command] = [(b"PAGEWALK.END",)]
    gets: list[Command] = [(b"GET", key) for key in keys]
    client.all(gets if arguments.cold else begin + gets + end)
    chosen: list[Command] = [(b"GET", draw.choice(keys)) for _ in range(arguments.requests)]
    client.all(begin + chosen + end, batch=1)
    client.send([(b"SHUTDOWN", b"NOSAVE")])
    if server.wait():
        raise SystemExit(f"{' '.join(command)}: status {server.returncode}")
    [found] = json.loads(report.read_text())["designs"]
    summary = {q["name"]: q["value"] for q in found["summary"]}
    table = {s["name"]: s["value"] for s in found["stats"] if s["path"] == "stlt"}
    searching = table.get("refresh_cycles", 0)
    each = {
        "cycles": summary["cycles"],
        "of the kernel's searches": searching,
        "instructions": summary["instructions"],
        "hits": table.get("hits", 0),
    }
    return {name: count / arguments.requests for name, count in each.items()}


def main() -> int:
    """Runs both and prints them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("server")
    parser.add_argument("module")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--requests", type=int, default=3_000)
    parser.add_argument("--rows", type=int, default=1 << 25)
    parser.add_argument("--machine", default="stlt-table3")
    parser.add_argument("--cold", action="store_true")
    arguments = parser.parse_args()
    for design in ("radix", f"stlt[shortcut.stlt.rows={arguments.rows}]"):
        with tempfile.TemporaryDirectory() as folder:
            numbers = measured(design, arguments, Path(folder))
        print(design, ", ".join(f"{name} {n:.3f}" for name, n in numbers.items()), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
