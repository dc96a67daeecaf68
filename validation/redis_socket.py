"""The connection of a client to a Redis server that has just been started."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path


def connected(path: Path, server: subprocess.Popen[bytes]) -> socket.socket:
    """A connection to the server's socket `path`, as soon as it listens.

    Raises `SystemExit` if the server ends before.
    """
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
        except OSError:
            connection.close()
            if server.poll() is not None:
                raise SystemExit(f"{server.args!r} ended before it listened") from None
            time.sleep(0.05)
        else:
            return connection
