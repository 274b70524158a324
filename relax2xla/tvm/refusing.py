"""Functions that programs import and may never call: calling one is an error that names it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from relax2xla.errors import UnsupportedError


def refusing(name: str, why: str) -> Callable[..., NoReturn]:
    """A function ``name`` that raises UnsupportedError: ``name`` and ``why``."""

    def call(*args: Any, **kwargs: Any) -> NoReturn:
        raise UnsupportedError(f"{name}: {why}")

    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    return call
