"""A headless Chromium that loads pages and evaluates scripts, over its DevTools pipe."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

Json = dict[str, Any]

PROGRAM = "chromium"
"""Debian's package and program."""
_FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",  # root cannot have a sandbox
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)
_WAIT = 60.0
"""Seconds until an answer that does not come is a failure."""


class Browser:
    """One Chromium with one tab; `errors` are its failures since `load`."""

    def __init__(self) -> None:
        self._profile = tempfile.mkdtemp(prefix="pagewalk-chromium-")
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        # It reads descriptor 3 and writes descriptor 4.
        script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write}'
        self._process = subprocess.Popen(
            ["bash", "-c", script, PROGRAM, *_FLAGS, f"--user-data-dir={self._profile}"],
            pass_fds=(to_read, to_write),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Its own group: what it starts ends with it.
            start_new_session=True,
        )
        os.close(to_read)
        os.close(to_write)
        self._number = 0
        self._buffer = b""
        self._session: str | None = None
        self._events: list[Json] = []
        try:
            self._open()
        except BaseException:
            # The caller has no browser that it could close.
            self._kill()
            raise

    def _open(self) -> None:
        """Makes the tab, and enables the events that `errors` and `requests` need."""
        target = self._ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self._ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")

    def close(self) -> None:
        """Ends it and all that it has started, and removes what it has written."""
        try:
            self._session = None
            self._ask("Browser.close")
            self._process.wait(10)
        except (OSError, RuntimeError, subprocess.TimeoutExpired):
            self._kill()
        else:
            self._leave()

    def _kill(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._leave()

    def _leave(self) -> None:
        os.close(self._in)
        os.close(self._out)
        shutil.rmtree(self._profile, ignore_errors=True)

    def show(self, width: int, height: int = 900, *, dark: bool = False, media: str = "") -> None:
        """Sets the size of the window in CSS pixels, the reader's preference and the medium."""
        self._ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=False,
        )  # fmt: skip
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def load(self, path: Path) -> None:
        """Loads a file and waits until all of it is there."""
        self._events.clear()
        answer = self._ask("Page.navigate", url=path.resolve().as_uri())
        if "errorText" in answer:
            raise RuntimeError(f"{path}: {answer['errorText']}")
        self._until("Page.loadEventFired")

    def ask(self, expression: str) -> Any:
        """The value of an expression of JavaScript, which may be a promise."""
        answer = self._ask(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def picture(self, path: Path) -> None:
        """Writes the whole page as it is shown, as PNG."""
        size = self._ask("Page.getLayoutMetrics")["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        data = self._ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)["data"]
        path.write_bytes(base64.b64decode(data))

    def errors(self) -> list[str]:
        """Console messages, exceptions and failed requests since `load`."""
        found = []
        for event in self._events:
            about, method = event["params"], event["method"]
            if method in ("Runtime.exceptionThrown", "Network.loadingFailed"):
                found.append(f"{method}: {json.dumps(about)[:500]}")
            elif method == "Log.entryAdded":
                found.append(f"{about['entry']['level']}: {about['entry']['text']}")
            elif method == "Runtime.consoleAPICalled":
                found.append(f"console.{about['type']}: {json.dumps(about['args'])[:500]}")
        return found

    def requests(self) -> list[str]:
        """Addresses of all requests since `load`, the page's own among them."""
        return [
            event["params"]["request"]["url"]
            for event in self._events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def _until(self, method: str) -> None:
        while not any(event["method"] == method for event in self._events):
            self._read()

    def _ask(self, method: str, **parameters: Any) -> Json:
        self._number += 1
        message: Json = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self._out, data) :]
        while True:
            answer = self._read()
            if answer is not None and answer.get("id") == self._number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                result: Json = answer["result"]
                return result

    def _read(self) -> Json | None:
        """The next message; an event is kept."""
        end = time.monotonic() + _WAIT
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise RuntimeError(f"{PROGRAM} has not answered for {_WAIT:.0f} s")
            piece = os.read(self._in, 1 << 16)
            if not piece:
                raise RuntimeError(f"{PROGRAM} has ended")
            self._buffer += piece
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: Json = json.loads(text)
        if "method" in message:
            self._events.append(message)
            return None
        return message
