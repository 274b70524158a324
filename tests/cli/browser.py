"""A headless browser for tests of pages: Chromium, spoken to by its own protocol over two pipes.

The protocol is that of https://chromedevtools.github.io/devtools-protocol/: JSON messages, each
ended by a zero byte, on the file descriptors 3 and 4 of the browser.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

FOUND: Final = shutil.which("chromium") or shutil.which("chromium-browser")
_WORDS: Final = (
    "headless no-sandbox disable-gpu disable-quic no-first-run disable-sync hide-scrollbars "
    "disable-component-update disable-background-networking remote-debugging-pipe"
)
# The browser takes its pipes as 3 and 4; higher copies first, since these may be in use.
_START: Final = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]]
for number, pipe in zip((3, 4), pipes):
    os.dup2(pipe, number)
    os.close(pipe)
os.execv(sys.argv[3], sys.argv[3:])
"""
_KEYS: Final = {"Enter": "\r", "Escape": "\x1b", "ArrowDown": "", "Tab": "\t"}


class Browser:
    """One page of one browser."""

    def __init__(self, folder: Path, size: tuple[int, int]) -> None:
        assert FOUND is not None
        down, self._to = os.pipe()
        self._from, up = os.pipe()
        words = [f"--{w}" for w in _WORDS.split()]
        words += [f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}", "about:blank"]
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", _START, str(down), str(up), FOUND, *words],
            pass_fds=(down, up),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down)
        os.close(up)
        self._said = b""
        self._sent = 0
        self.errors: list[str] = []
        self._session = ""

    def begin(self, width: int, height: int) -> None:
        """Take hold of the page that is there."""
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t["targetId"] for t in targets if t["type"] == "page")
        found = self.call("Target.attachToTarget", targetId=page, flatten=True)
        self._session = found["sessionId"]
        self.call("Runtime.enable")
        self.call("Page.enable")
        self.size(width, height)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command, and its result; errors of the page's scripts are noted on the way."""
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("method") == "Runtime.exceptionThrown":
                self.errors.append(json.dumps(answer["params"]["exceptionDetails"]))
            if answer.get("id") == self._sent:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._said:
            more = os.read(self._from, 1 << 20)
            if not more:
                raise RuntimeError("the browser ended")
            self._said += more
        line, _, self._said = self._said.partition(b"\0")
        return json.loads(line)

    def size(self, width: int, height: int) -> None:
        """The size of the page."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def dark(self, on: bool = True) -> None:
        """Whether the reader prefers a dark page."""
        told = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.call("Emulation.setEmulatedMedia", features=told)

    def open(self, url: str, ready: str = "document.documentElement.dataset.ready") -> None:
        """Go to a page; it is there when an expression of its own is true."""
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait(f"document.readyState === 'complete' && {ready}")

    def wait(self, expression: str, seconds: float = 60) -> Any:
        """The value of an expression once it is true."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if found := self.value(expression):
                return found
            time.sleep(0.02)
        raise TimeoutError(expression)

    def value(self, expression: str) -> Any:
        """The value of an expression of the page."""
        found = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"])
        return found["result"].get("value")

    def move(self, x: float, y: float, kind: str = "mouseMoved", **more: Any) -> None:
        """The pointer, to a place."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x: float, y: float) -> None:
        """A click at a place."""
        self.move(x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self.move(x, y, kind, button="left", clickCount=1)

    def press(self, *keys: str) -> None:
        """Keys, one after the other."""
        for key in keys:
            text = _KEYS.get(key, key)
            more = {"text": text} if text else {}
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, **more)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def close(self) -> None:
        """End the browser."""
        self.process.terminate()
        self.process.wait(30)
        os.close(self._to)
        os.close(self._from)


@contextmanager
def browser(folder: Path, width: int = 1400, height: int = 900) -> Iterator[Browser]:
    """A browser for as long as the block; ``folder`` is for its own files."""
    made = Browser(folder, (width, height))
    try:
        made.begin(width, height)
        yield made
        assert not made.errors, "\n".join(made.errors)
    finally:
        made.close()
