"""Objects of programs that hold arrays on the device: caches of keys and values, recurrent states.

The host knows what is in the arrays, and says so to each call; programs compute with the arrays
alone (design decision D21).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla.transform.lower.objects_to_arrays import ObjectForm

Array = npt.NDArray[Any]


@dataclass(slots=True)
class Loan:
    """What an object lends to one call.

    ``form``: hashable, what programs for the call depend on; None where the object is not ready for
    one, so that its own methods say why. ``kept``: the arrays that the object keeps; the call takes
    their memory, and puts their next values into ``back``. ``given``: numpy arrays by name and
    shape, as the calls in the program ask for them; RunError for a shape that does not fit.
    """

    form: ObjectForm | None
    kept: tuple[Any, ...]
    given: Callable[[str, tuple[int, ...]], Array]
    back: tuple[Any, ...] | None = None

    def lost(self) -> bool:
        """Whether a call that failed has taken the memory of an array."""
        return self.back is None and any(a.is_deleted() for a in self.kept)


class DeviceObject(ABC):
    """An object that programs can take as arrays."""

    @abstractmethod
    def lent(self) -> AbstractContextManager[Loan]:
        """The object for the time of one call; RunError where another thread uses it."""


def rows_to(given: Array, count: int, fill: int) -> Array:
    """``given`` with ``fill`` behind it, ``count`` rows in all."""
    if len(given) == count:
        return given
    made = np.full((count, *given.shape[1:]), fill, given.dtype)
    made[: len(given)] = given
    return made


def power_of_two(size: int, least: int = 1) -> int:
    """The least power of two of at least ``size``, so that few sizes serve all; or ``least``."""
    return max(least, 1 << max(size - 1, 0).bit_length())


def roomy(size: int, least: int = 1) -> int:
    """``size`` or a little more, so that few sizes serve all: a power of two, or 3/4 of one."""
    power = power_of_two(size, least)
    half = power * 3 // 4
    return half if max(size, least) <= half else power
