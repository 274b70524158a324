"""Bars in notebooks: below its cell stands how far work is that takes longer than a second.

They need IPython alone: HTML that is displayed once, and updated. What is over leaves one line.
"""

from __future__ import annotations

import functools
import html
import importlib
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

# Seconds before a bar is shown, and between two states of it.
_PATIENCE: Final = 1.0
_OFTEN: Final = 0.2

# Shows what there is of a piece of work, or changes what is shown of it: its data by MIME type.
Show = Callable[[dict[str, str], str, bool], None]


@dataclass
class _Work:
    done: int = 0
    total: int = 0
    unit: str = ""
    begun: float = field(default_factory=lambda: time.monotonic())
    told: float = 0.0
    place: str = ""


class Bars:
    """A watcher (``runtime.progress``) that shows bars."""

    def __init__(self, show: Show) -> None:
        self._show = show
        self._works: dict[str, _Work] = {}
        # Threads that compile tell of it, and one that shows the time of what cannot.
        self._lock = threading.RLock()
        self._clock: threading.Thread | None = None

    def __call__(self, what: str, done: int, total: int, unit: str) -> None:
        """Note how far ``what`` is, and show it if it is time."""
        with self._lock:
            is_over = done >= total and (total > 0 or unit != "")
            if is_over and what not in self._works:
                return
            work = self._works.setdefault(what, _Work())
            work.done, work.total, work.unit = done, total, unit
            if is_over:
                del self._works[what]
                if work.place:
                    self._tell(what, work, "done")
            else:
                self._tell_in_time(what, work)
                if unit == "" and self._clock is None:
                    self._clock = threading.Thread(target=self._tick, daemon=True)
                    self._clock.start()

    def stop(self, *_: Any) -> None:
        """The cell has ended: so has what it did not finish."""
        with self._lock:
            works, self._works = self._works, {}
            for what, work in works.items():
                if work.place:
                    self._tell(what, work, "stopped")

    def _tick(self) -> None:
        while True:
            time.sleep(_OFTEN)
            with self._lock:
                timed = [(what, work) for what, work in self._works.items() if work.unit == ""]
                if not timed:
                    self._clock = None
                    return
                for what, work in timed:
                    self._tell_in_time(what, work)

    def _tell_in_time(self, what: str, work: _Work) -> None:
        now = time.monotonic()
        if now - work.begun >= _PATIENCE and now - work.told >= _OFTEN:
            self._tell(what, work, "")

    def _tell(self, what: str, work: _Work, end: str) -> None:
        work.told = time.monotonic()
        took = f"{work.told - work.begun:.0f} s"
        if work.unit == "":
            far = took
        elif end == "done":
            far = f"{_amount(work.total, work.unit)}, {took}"
        else:
            done = _amount(work.done, work.unit).partition(" ")[0]
            far = f"{done} of {_amount(work.total, work.unit)}, {took}"
        text = f"{what}: {far}{', stopped' if end == 'stopped' else ''}"
        bar = "" if end else _bar(work)
        data = {"text/plain": text, "text/html": f"{bar}<small>{html.escape(text)}</small>"}
        is_new = not work.place
        if is_new:
            # A notebook may still show what an earlier kernel told.
            work.place = f"relax2xla-{uuid.uuid4().hex}"
        self._show(data, work.place, not is_new)


def _bar(work: _Work) -> str:
    far = f' value="{work.done}" max="{work.total}"' if work.total else ""
    return f'<progress{far} style="width: 16em; vertical-align: middle"></progress> '


def _amount(number: int, unit: str) -> str:
    if unit != "bytes":
        return f"{number:,} {unit}"
    return f"{number / 2**20:,.1f} MiB"


@functools.cache
def bars() -> Bars | None:
    """The bars of this process, if it is a notebook's kernel."""
    ipython: Any = importlib.import_module("IPython")
    shell = ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None

    def show(data: dict[str, str], place: str, update: bool) -> None:
        ipython.display.display(data, raw=True, display_id=place, update=update)

    made = Bars(show)
    shell.events.register("post_run_cell", made.stop)
    return made
