"""How much work something is, whatever machine runs it and whatever else that machine does."""

from __future__ import annotations

import gc
import sys
import threading
import tracemalloc
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(run: Callable[[], Any]) -> int:
    """Calls of Python functions while ``run`` runs, in all threads that it starts."""
    count = 0

    def see(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return count


def peak(run: Callable[[], Any]) -> int:
    """The most bytes that Python and numpy held at a time for ``run``."""
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def held(run: Callable[[], Any]) -> int:
    """Bytes of Python and numpy that are still held after ``run``."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
