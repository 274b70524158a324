"""The parser that is reading a ``T.prim_func`` while Python runs a function that the script calls.

A script may call functions of the program around it: ``init(k, buffer)``. They get expressions and
buffers, and may use ``T`` as the script does: ``T.exp(x)``, ``T.buffer_store(buffer, x, [i])``,
``with T.If(c):``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final, Protocol

from relax2xla.tir.node import writing


class Reader(Protocol):
    """What this module asks of a parser."""

    def form(self, name: str) -> Any:
        """The function of ``T`` that needs the parser; None if it is none."""
        ...


_READER: Final[ContextVar[Reader | None]] = ContextVar("reader", default=None)


@contextmanager
def reading(parser: Reader) -> Generator[None]:
    """``T``'s statements go to ``parser``."""
    token = _READER.set(parser)
    try:
        with writing():
            yield
    finally:
        _READER.reset(token)


def form(name: str) -> Callable[..., Any]:
    """``T.name`` for a statement: it goes into the script that is being read."""

    def call(*args: Any, **kwargs: Any) -> Any:
        parser = _READER.get()
        if parser is None:
            raise TypeError(
                f"T.{name} works only below @T.prim_func, or in a function that such a script calls"
            )
        return parser.form(name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call
