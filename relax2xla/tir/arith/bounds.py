"""Integer intervals: what is known of the values that an expression can take."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

from relax2xla.tir.convert import as_dim, as_expr, match_dtypes
from relax2xla.tir.node import Dim, Node, PrimExpr


class Interval(NamedTuple):
    """All integers from ``lo`` to ``hi``, both included; None is no limit on that side."""

    lo: int | None
    hi: int | None

    def plus(self, other: Interval) -> Interval:
        """The interval of the sum of two values."""
        return Interval(
            None if self.lo is None or other.lo is None else self.lo + other.lo,
            None if self.hi is None or other.hi is None else self.hi + other.hi,
        )

    def scaled(self, by: int) -> Interval:
        """The interval of ``by * x``."""
        if by == 0:
            return Interval(0, 0)
        lo = None if self.lo is None else self.lo * by
        hi = None if self.hi is None else self.hi * by
        return Interval(lo, hi) if by > 0 else Interval(hi, lo)

    def times(self, other: Interval) -> Interval:
        """The interval of the product of two values."""
        for one, two in ((self, other), (other, self)):
            if one.lo is not None and one.lo == one.hi:
                return two.scaled(one.lo)
        if None not in self and None not in other:
            corners = [x * y for x in self for y in other if x is not None and y is not None]
            return Interval(min(corners), max(corners))
        if self.lo is not None and other.lo is not None and self.lo >= 0 and other.lo >= 0:
            hi = None if self.hi is None or other.hi is None else self.hi * other.hi
            return Interval(self.lo * other.lo, hi)
        if self.hi is not None and self.hi <= 0:
            return self.scaled(-1).times(other).scaled(-1) if other.lo is not None else ANY
        if other.hi is not None and other.hi <= 0 and self.lo is not None and self.lo >= 0:
            return self.times(other.scaled(-1)).scaled(-1)
        return ANY

    def floordiv(self, divisor: int) -> Interval:
        """The interval of ``x // divisor`` for a divisor that is not 0."""
        if divisor < 0:
            return self.scaled(-1).floordiv(-divisor)
        return Interval(
            None if self.lo is None else self.lo // divisor,
            None if self.hi is None else self.hi // divisor,
        )

    def union(self, other: Interval) -> Interval:
        """The smallest interval that holds both."""
        return Interval(
            None if self.lo is None or other.lo is None else min(self.lo, other.lo),
            None if self.hi is None or other.hi is None else max(self.hi, other.hi),
        )

    def intersect(self, other: Interval) -> Interval:
        """What both hold."""
        los = [x for x in (self.lo, other.lo) if x is not None]
        his = [x for x in (self.hi, other.hi) if x is not None]
        return Interval(max(los, default=None), min(his, default=None))

    def maximum(self, other: Interval) -> Interval:
        """The interval of the larger of two values."""
        los = [x for x in (self.lo, other.lo) if x is not None]
        hi = None if self.hi is None or other.hi is None else max(self.hi, other.hi)
        return Interval(max(los, default=None), hi)

    def minimum(self, other: Interval) -> Interval:
        """The interval of the smaller of two values."""
        return self.scaled(-1).maximum(other.scaled(-1)).scaled(-1)

    def at_least(self, value: int) -> bool:
        """Whether every value is ``value`` or more."""
        return self.lo is not None and self.lo >= value

    def at_most(self, value: int) -> bool:
        """Whether every value is ``value`` or less."""
        return self.hi is not None and self.hi <= value


ANY = Interval(None, None)
BOOL = Interval(0, 1)


class _Bound(NamedTuple):
    min_value: int
    max_value: int


class ConstIntBound(_Bound):
    """Smallest and largest value of an expression; ``NEG_INF`` and ``POS_INF`` mean no limit."""

    __slots__ = ()
    POS_INF: ClassVar[int] = (1 << 63) - 1
    NEG_INF: ClassVar[int] = -POS_INF


class Range(Node):
    """The values ``begin <= x < end``; with one argument, ``0 <= x < begin``.

    ``min`` is the first value, ``extent`` how many there are. Two numbers of Python are int32, as
    in TVM; beside an expression a number is of its dtype.
    """

    __slots__ = ("extent", "min")
    min: Dim
    extent: Dim

    def __init__(self, begin: Dim, end: Dim | None = None) -> None:
        first, stop = (0, begin) if end is None else (begin, end)
        if isinstance(first, int) and isinstance(stop, int):
            self.min, self.extent = as_expr(first), as_expr(stop - first)
            return
        first, stop = match_dtypes(as_dim(first), as_dim(stop))
        self.min = as_dim(first)
        self.extent = as_dim(stop - first)

    @staticmethod
    def from_min_extent(min_value: Dim, extent: Dim) -> Range:
        """The range that starts at ``min_value`` and holds ``extent`` values."""
        result = Range.__new__(Range)
        min_value, extent = as_dim(min_value), as_dim(extent)
        for one, other in ((min_value, extent), (extent, min_value)):
            # A number beside an expression is of its dtype; an int alone is an int64.
            if isinstance(one, PrimExpr) and type(other) is int and one.dtype != "int64":
                min_value, extent = match_dtypes(min_value, extent)
        result.min, result.extent = min_value, extent
        return result

    def __repr__(self) -> str:
        return f"Range(min={self.min}, extent={self.extent})"
