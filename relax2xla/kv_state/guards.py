"""What methods of caches and states check first: one thread at a time; numbers, arrays."""

from __future__ import annotations

import functools
import math
import operator
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

from relax2xla.errors import RunError

P = ParamSpec("P")
R = TypeVar("R")


class Exclusive:
    """A state that one thread at a time may use."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    @contextmanager
    def alone(self, what: str) -> Generator[None]:
        """For the time of ``what``; RunError where another thread is in the object."""
        if not self.lock.acquire(blocking=False):
            raise RunError(
                f"{type(self).__name__}.{what}: another thread is using this object; let one "
                "thread at a time call it"
            )
        try:
            yield
        finally:
            self.lock.release()


def whole(value: Any, what: str) -> int:
    """``value`` as an int; RunError, which says ``what`` it is, where it is no whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise RunError(f"{what} must be a whole number; got {value!r}") from None


def wholes(values: Any, what: str) -> list[int]:
    """``values`` as ints; RunError, which says ``what`` they are, where they are none."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise RunError(f"{what} must be whole numbers; got {values!r}")
    given: Iterable[Any] = values
    return [whole(value, f"each of {what}") for value in given]


def finite(value: Any, what: str) -> float:
    """``value`` as a float; RunError, which says ``what`` it is, where it is no finite number."""
    try:
        number = math.nan if value is None else float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise RunError(f"{what} must be a finite number; got {value!r:.100}")
    return number


def array(value: Any, what: str) -> Any:
    """``value``; RunError, which says ``what`` it is, where it has no shape and dtype."""
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise RunError(f"{what} must be an array; got {type(value).__name__}")
    return value


S = TypeVar("S", bound=Exclusive)


def exclusive(
    method: Callable[Concatenate[S, P], R],
) -> Callable[Concatenate[S, P], R]:
    """RunError where another thread is in a method of the same object."""

    @functools.wraps(method)
    def call(self: S, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.alone(method.__name__):
            return method(self, *args, **kwargs)

    return call
