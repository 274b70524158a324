"""ShapeTuple: a shape as a value that programs take and give."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any, Self, cast


class ShapeTuple(tuple[int, ...]):
    """A tuple of the integers that it is made of; TypeError for anything else, and for bools.

    It is one of Python's tuples, so it equals them, and functions whose parameter is an ``R.Shape``
    take either. As in TVM it equals a list of the same integers, too.
    """

    __slots__ = ()

    def __new__(cls, shape: Iterable[int]) -> Self:
        values = list(shape)
        for v in values:
            if isinstance(v, bool) or not hasattr(v, "__index__"):
                raise TypeError(f"a ShapeTuple holds integers; got {v!r} in {values!r}")
        return super().__new__(cls, map(operator.index, values))

    @classmethod
    def of_sizes(cls, *sizes: int) -> Self:
        """A shape of integers that are known to be some; nothing is checked."""
        return super().__new__(cls, sizes)

    def __eq__(self, other: object) -> bool:
        return super().__eq__(tuple(cast("list[Any]", other)) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple[int, ...].__hash__

    def __repr__(self) -> str:
        return f"ShapeTuple({list(self)!r})"
