"""Progress of long work, for those who watch: nothing is printed here, but notebooks watch.

``with watch(watcher):`` tells a watcher of one's own instead, and ``watch(lambda *_: None)`` none.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Generator, Iterator
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")
# What is being done, how much of it is done, how much there is, and of what. It is over when all is
# done. Work that cannot say how far it is has no unit: 0 of 0, and 1 of 1 when it is over.
Watcher = Callable[[str, int, int, str], None]

_watcher: ContextVar[Watcher | None] = ContextVar("relax2xla_progress", default=None)


@contextlib.contextmanager
def watch(watcher: Watcher) -> Generator[None]:
    """Call ``watcher`` as work goes on in this thread while the block runs."""
    token = _watcher.set(watcher)
    try:
        yield
    finally:
        _watcher.reset(token)


def report(what: str, done: int, total: int, unit: str = "bytes") -> None:
    """Tell the watcher, if there is one, how far ``what`` is."""
    watcher = _watcher.get() or _notebook()
    if watcher is not None:
        watcher(what, done, total, unit)


def counted(what: str, items: Collection[T], unit: str) -> Iterator[T]:
    """``items`` in order, and each time what is done of them."""
    for done, item in enumerate(items):
        report(what, done, len(items), unit)
        yield item
    report(what, len(items), len(items), unit)


@contextlib.contextmanager
def waiting(what: str) -> Generator[None]:
    """Tell the watcher of work that cannot say how far it is."""
    report(what, 0, 0, "")
    try:
        yield
    finally:
        report(what, 1, 1, "")


def _notebook() -> Watcher | None:
    """The bars of the notebook that this process is the kernel of."""
    if "ipykernel" not in sys.modules:
        return None
    from relax2xla.runtime.notebook import bars

    return bars()
