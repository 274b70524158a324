"""Python text to its syntax tree, in any thread.

``ast.parse`` of CPython 3.11 counts the depth of its recursion in one place for all threads: where
the garbage collector hands over to another thread that parses, too, it ends with ``SystemError:
AST constructor recursion depth mismatch`` on a good text. Whoever reads text here does it by
``parse``, one thread at a time.
"""

from __future__ import annotations

import ast
import threading
from typing import Literal, overload

_ONE_AT_A_TIME = threading.Lock()
# Other packages parse without the lock.
_TRIES = 8


@overload
def parse(text: str, file: str = ..., mode: Literal["exec"] = ...) -> ast.Module: ...
@overload
def parse(text: str, file: str = ..., *, mode: Literal["eval"]) -> ast.Expression: ...
def parse(text: str, file: str = "<unknown>", mode: str = "exec") -> ast.AST:
    """``ast.parse(text, file, mode)``, with its errors."""
    for left in reversed(range(_TRIES)):
        try:
            with _ONE_AT_A_TIME:
                return ast.parse(text, file, mode)
        except SystemError:
            if not left:
                raise
    raise AssertionError("unreachable")


def literal(text: str) -> object:
    """``ast.literal_eval(text)``, with its errors."""
    return ast.literal_eval(parse(text.lstrip(" \t"), mode="eval"))
