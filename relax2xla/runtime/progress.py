"""Progress of long work, for those who watch: nothing is printed here, and no one need watch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar

# What is being done, how much of it is done, and how much there is, in bytes.
Watcher = Callable[[str, int, int], None]

_watcher: ContextVar[Watcher | None] = ContextVar("relax2xla_progress", default=None)


@contextlib.contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    """Call ``watcher`` as work goes on in this thread while the block runs."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def report(what: str, done: int, total: int) -> None:
    """Tell the watcher, if there is one, how far ``what`` is."""
    watcher = _watcher.get()
    if watcher is not None:
        watcher(what, done, total)
