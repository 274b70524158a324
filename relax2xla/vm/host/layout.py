"""How a caller's array lies in memory, for ``relax.inspect``: strides and the offset of its data.

Arrays of XLA are row-major and start where their buffer does. An argument that was a strided array
of the host, or a view that starts later, is copied for XLA; how it lay stays with the copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

#: The operators whose results are not those of XLA's own arrays.
LAYOUT_OPERATORS: Final = frozenset(
    f"relax.inspect.tensor_{name}" for name in ("stride_i", "byte_offset", "elem_offset")
)
_NAME: Final = "relax2xla_layout"


@dataclass(frozen=True, slots=True)
class Layout:
    """``strides`` in elements, ``byte_offset`` from where the memory starts."""

    strides: tuple[int, ...]
    byte_offset: int


def host_layout(array: np.ndarray[Any, Any]) -> Layout | None:
    """The layout of a host array; None where it is row-major and starts where its memory does.

    The offset is what the class of the array says (``byte_offset``): a slice of numpy's has a
    pointer of its own, and with that an offset of 0, as DLPack gives it.
    """
    offset = int(getattr(array, "byte_offset", 0))
    if array.flags.c_contiguous and not offset:
        return None
    return Layout(tuple(s // array.itemsize for s in array.strides), offset)


def keep_layout(made: Any, source: np.ndarray[Any, Any]) -> None:
    """Let ``made``, an array of the machine, say how ``source``, of which it is a copy, lay."""
    found = host_layout(source)
    if found is not None:
        setattr(made, _NAME, found)


def layout_of(array: Any) -> Layout:
    """The layout of an argument as its caller gave it, or of any array of the machine."""
    known: Layout | None = getattr(array, _NAME, None)
    if known is None and isinstance(array, np.ndarray):
        known = host_layout(array)
    if known is not None:
        return known
    shape = array.shape
    return Layout(tuple(math.prod(shape[i + 1 :]) for i in range(len(shape))), 0)
