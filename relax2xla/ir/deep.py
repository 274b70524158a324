"""Recursion over nested scopes (branches in branches, functions in functions) without a limit.

Walks are loops over bindings and operands and recurse for nested scopes only. Python allows a
thousand frames a thread, so after some levels the walk goes on in a thread of its own, which has a
stack and a count of its own, while this one waits.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

LEVELS = 25
"""Levels in one thread; a level takes a dozen frames at most."""


class _Depth(threading.local):
    value = 0


_depth = _Depth()


def elsewhere(fn: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """``fn(*args, **kwargs)`` in a thread of its own, with the context variables of this one."""
    results: list[R] = []
    errors: list[BaseException] = []
    context = copy_context()

    def run() -> None:
        try:
            results.append(context.run(fn, *args, **kwargs))
        except BaseException as error:  # the waiting thread raises it
            errors.append(error)

    thread = threading.Thread(target=run, name="relax2xla deep walk")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def nests(fn: Callable[P, R]) -> Callable[P, R]:
    """Decorator of a function that handles one scope and calls itself for the scopes inside it."""

    @functools.wraps(fn)
    def level(*args: P.args, **kwargs: P.kwargs) -> R:
        depth = _depth.value
        if depth >= LEVELS:
            return elsewhere(level, *args, **kwargs)
        _depth.value = depth + 1
        try:
            return fn(*args, **kwargs)
        finally:
            _depth.value = depth

    return level
