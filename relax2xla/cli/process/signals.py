"""Ctrl-C and polite kills: one line, the exit status that shells expect, and nothing half done."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from types import FrameType
from typing import Final

NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)
_ALARMS: Final = (signal.SIGALRM,) if hasattr(signal, "setitimer") else ()
# Seconds that Python has to notice a signal before the process is ended from another thread.
_GRACE: Final = 0.5
# Seconds from one look whether the import is over that a signal came in to the next, and for all.
_LOOK: Final = 0.005
_PATIENCE: Final = 5.0
_SHOW_CURSOR: Final = "\x1b[?25h"


def signal_name(number: int) -> str:
    """What people call a signal: SIGKILL."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class Interrupted(SystemExit):
    """The end that a signal asks for, told from that of a user's module that calls sys.exit."""


@contextlib.contextmanager
def handled(
    handler: Callable[[int, FrameType | None], None], numbers: Sequence[signal.Signals] = NUMBERS
) -> Generator[None]:
    """Ctrl-C and a polite kill go to ``handler``; outside the main thread, nothing changes."""
    try:
        before = {n: signal.signal(n, handler) for n in numbers}
    except ValueError:  # not the main thread, which has the signals
        yield
        return
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own)


@contextlib.contextmanager
def signals() -> Generator[None]:
    """Ctrl-C and a polite kill end the command, after what it was writing has been cleaned up.

    Where native code keeps Python from noticing them, they end the process after ``_GRACE``. In an
    import they wait for its end, for ``_PATIENCE``: libraries drop an exception in theirs, so
    that the command would go on, or end the process. Another signal does not wait.
    """

    first: list[float] = []
    noticed = [-math.inf]
    put_off: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        noticed[:] = [time.monotonic()]
        # Ctrl-C reaches a whole group of processes, and those that wait for us pass it on as well.
        if first and time.monotonic() - first[0] < _GRACE:
            return
        waits = not first and _importing(frame)
        first[:] = [time.monotonic()]
        sys.stderr.write("\nrelax2xla: interrupted\n")
        if waits:
            put_off[:] = [number]
            signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
        else:
            raise Interrupted(128 + number)

    def look(_: int, frame: FrameType | None) -> None:
        if put_off and (not _importing(frame) or time.monotonic() - first[0] > _PATIENCE):
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise Interrupted(128 + put_off.pop())

    with _watched(lambda: noticed[0]), handled(stop), handled(look, _ALARMS):
        try:
            yield
            if put_off:
                raise Interrupted(128 + put_off.pop())
        finally:
            if _ALARMS:
                put_off.clear()
                signal.setitimer(signal.ITIMER_REAL, 0)


def _importing(frame: FrameType | None) -> bool:
    """Whether a module is being loaded, where the system has alarms to look again by."""
    while _ALARMS and frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


@contextlib.contextmanager
def _watched(noticed: Callable[[], float]) -> Generator[None]:
    """End the process where Python takes no notice of a signal: XLA compiles for minutes.

    ``noticed``: when a signal was last handled. What was being written goes, as it does otherwise.
    """
    source, sink = os.pipe()
    os.set_blocking(sink, False)
    try:
        before = signal.set_wakeup_fd(sink, warn_on_full_buffer=False)
    except ValueError:  # not the main thread
        os.close(source)
        os.close(sink)
        yield
        return

    def wait() -> None:
        with open(source, "rb", buffering=0) as pipe:
            while word := pipe.read(1):
                if word[0] not in NUMBERS:
                    continue
                time.sleep(_GRACE)
                if time.monotonic() - noticed() > 2 * _GRACE:
                    _leave(word[0])

    threading.Thread(target=wait, daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(sink)


def _leave(number: int) -> None:
    # Not imported here: the main thread may be in the middle of that.
    if files := sys.modules.get("relax2xla.runtime.whole_file"):
        files.abandon()
    show = _SHOW_CURSOR if sys.stderr.isatty() else ""
    os.write(sys.stderr.fileno(), f"{show}\nrelax2xla: interrupted\n".encode())
    os._exit(128 + number)
