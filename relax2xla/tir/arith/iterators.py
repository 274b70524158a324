"""Which iterators indices are made of, and whether indices tell where their iterators are.

An index is read as a sum of splits, ``mark // lower % extent * scale``, and a rest without
iterators. A mark is an iterator, or a sum of splits that is divided further. Splits of one mark
are told apart as long as they are digits of it. Source of the semantics: TVM's
``arith::DetectIterMap``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relax2xla.tir.arith.analyzer import can_prove_equal, simplify
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.binary import Add, FloorDiv, FloorMod, Max, Mul, Sub
from relax2xla.tir.functor import post_order
from relax2xla.tir.node import Dim, IntImm, PrimExpr, Var, is_int


def iterators_of(
    indices: Sequence[PrimExpr], domains: Mapping[Var, Range]
) -> list[Var | None] | None:
    """By index the iterator that it is made of; None for an index without one.

    None for all where an index has several iterators or is no sum of splits, or where two indices
    depend on each other, as those of a diagonal do. Iterators of one step are none.
    """
    reader = _Reader(domains, complete=False)
    try:
        sums = [reader.read(index) for index in indices]
        if reader.padding:
            # Only now it is known to what each mark is filled up; all of its splits then share it.
            reader.settled = True
            sums = [reader.read(index) for index in indices]
    except _NoSumError:
        return None
    if any(len(found.splits) > 1 for found in sums) or not reader.told_apart(sums):
        return None
    return [_iterator(found.splits[0].mark) if found.splits else None for found in sums]


def is_bijective(indices: Sequence[PrimExpr], domains: Mapping[Var, Range]) -> bool:
    """Whether ``indices``, of iterators alone, have each of their values at one place of them.

    Scales and shifts of whole indices are left open: they change which values these are.
    """
    reader = _Reader(domains, complete=True)
    try:
        return reader.told_apart([reader.read(index) for index in indices])
    except _NoSumError:
        return False


class _NoSumError(Exception):
    """An index is no sum of splits."""


@dataclass(frozen=True, eq=False, slots=True)
class _Mark:
    """Values from zero, ``extent`` many: those of an iterator, or of a sum of splits."""

    source: Var | tuple[_Split, ...]
    extent: Dim


@dataclass(frozen=True, slots=True)
class _Split:
    """``mark // lower % extent * scale``"""

    mark: _Mark
    lower: Dim
    extent: Dim
    scale: Dim = 1


@dataclass(frozen=True, slots=True)
class _Sum:
    splits: tuple[_Split, ...]
    base: Dim


@dataclass(slots=True)
class _Padding:
    """To a multiple of what a mark is filled up, from where on, and the filled mark."""

    factor: Dim = 1
    left: Dim = 0
    filled: _Mark | None = None


def _iterator(mark: _Mark) -> Var:
    while not isinstance(mark.source, Var):
        mark = mark.source[0].mark
    return mark.source


def _plain(value: Dim) -> Dim:
    return value.value if isinstance(value, IntImm) else value


def divides(by: Dim, value: Dim) -> bool:
    """Whether ``value`` is known to be a multiple of ``by``."""
    if isinstance(by, int) and isinstance(value, int):
        return by != 0 and value % by == 0
    return by == 1 or (by != 0 and can_prove_equal(simplify(value % by), 0))


def _quotient(value: Dim, by: Dim) -> Dim:
    return _plain(simplify(value // by))


def _product(a: Dim, b: Dim) -> Dim:
    return _plain(simplify(a * b))


def _common_multiple(a: Dim, b: Dim) -> Dim:
    if divides(a, b):
        return b
    return a if divides(b, a) else _product(a, b)


class _Reader:
    """Indices as sums; ``complete``: splits must be all digits of their mark, none filled up."""

    def __init__(self, domains: Mapping[Var, Range], *, complete: bool) -> None:
        self.complete = complete
        self.settled = complete
        self.starts: dict[Var, _Sum] = {}
        self.joined: dict[tuple[_Split, ...], _Mark] = {}
        self.padding: dict[_Mark, _Padding] = {}
        for var, domain in domains.items():
            first, extent = _plain(domain.min), _plain(domain.extent)
            whole = _Split(_Mark(var, extent), 1, extent)
            self.starts[var] = _Sum(() if extent == 1 else (whole,), first)

    def read(self, index: PrimExpr) -> _Sum:
        """An index as a sum; where splits must be complete, of one split at most."""
        made: dict[int, _Sum | Dim] = {}
        for node in post_order(index):
            made[id(node)] = self._value(node, [made[id(c)] for c in node.children()])
        found = made[id(index)]
        if not isinstance(found, _Sum):
            return _Sum((), found)
        splits = self._combined(found.splits)
        if len(splits) > 1 and self.complete:
            splits = (self._join(splits),)
        return _Sum(splits, found.base)

    def _value(self, node: PrimExpr, parts: list[_Sum | Dim]) -> _Sum | Dim:
        if isinstance(node, Var):
            return self.starts.get(node, node)
        if isinstance(node, IntImm):
            return node.value
        if not any(isinstance(x, _Sum) for x in parts):
            return node
        match node:
            case Add() | Sub() if is_int(node.dtype):
                sign = 1 if isinstance(node, Add) else -1
                a, b = parts
                return self._added(a, b, sign)
            case Mul() if is_int(node.dtype):
                a, b = parts
                return self._scaled(a, b) if isinstance(a, _Sum) else self._scaled(b, a)
            case FloorDiv() | FloorMod():
                a, by = parts
                if not isinstance(a, _Sum) or isinstance(by, _Sum):
                    raise _NoSumError
                if not a.splits:
                    return node
                divide = self._divided if isinstance(node, FloorDiv) else self._remainder
                splits = self._combined(a.splits)
                return divide(splits[0] if len(splits) == 1 else self._join(splits), a.base, by)
            case _:
                raise _NoSumError

    @staticmethod
    def _added(a: _Sum | Dim, b: _Sum | Dim, sign: int) -> _Sum:
        a = a if isinstance(a, _Sum) else _Sum((), a)
        b = b if isinstance(b, _Sum) else _Sum((), b)
        splits = {replace(x, scale=1): x.scale for x in a.splits}
        for x in b.splits:
            key = replace(x, scale=1)
            splits[key] = _plain(simplify(splits.get(key, 0) + sign * x.scale))
        total = tuple(replace(x, scale=scale) for x, scale in splits.items() if scale != 0)
        return _Sum(total, a.base + sign * b.base)

    @staticmethod
    def _scaled(a: _Sum | Dim, by: _Sum | Dim) -> _Sum:
        if not isinstance(a, _Sum) or isinstance(by, _Sum):
            raise _NoSumError
        splits = tuple(replace(x, scale=_product(x.scale, by)) for x in a.splits)
        return _Sum(splits, a.base * by)

    def _divided(self, split: _Split, base: Dim, by: Dim) -> _Sum:
        scale = split.scale
        if divides(by, scale) and divides(by, base):
            less = replace(split, scale=_quotient(scale, by))
            return _Sum((less,), _quotient(base, by))
        split, base, by = self._without_scale(split, base, by)
        split, left = self._filled(split, base, by)
        mark, lower, extent = split.mark, split.lower, split.extent
        if divides(by, extent):
            made = _Split(mark, _product(lower, by), _quotient(extent, by))
        elif not self.settled or (lower == 1 and can_prove_equal(extent, mark.extent)):
            made = _Split(mark, by, _quotient(extent + by - 1, by))
        else:
            raise _NoSumError
        return _Sum((made,), _quotient(base - left, by))

    def _remainder(self, split: _Split, base: Dim, by: Dim) -> _Sum | Dim:
        scale = split.scale
        if by == 1 or (scale != 1 and divides(by, scale) and divides(by, base)):
            return 0
        split, base, by = self._without_scale(split, base, by)
        split, _ = self._filled(split, base, by)
        return _Sum((_Split(split.mark, split.lower, by, scale),), 0)

    @staticmethod
    def _without_scale(split: _Split, base: Dim, by: Dim) -> tuple[_Split, Dim, Dim]:
        """A split and what is beside it, divided by the scale of the split, as their divisor is."""
        scale = split.scale
        if scale == 1:
            return split, base, by
        if not (divides(scale, by) and divides(scale, base)):
            raise _NoSumError
        return replace(split, scale=1), _quotient(base, scale), _quotient(by, scale)

    def _filled(self, split: _Split, base: Dim, by: Dim) -> tuple[_Split, Dim]:
        """A split of a mark that is filled up to blocks of ``by``, and how much before it."""
        left = _plain(simplify(base % by))
        if self.complete:
            if left != 0:
                raise _NoSumError
            return split, 0
        right = _plain(simplify(-(left + split.extent) % by))
        if not self.settled:
            padding = self.padding.setdefault(split.mark, _Padding())
            padding.factor = _common_multiple(padding.factor, _product(by, split.lower))
            if left == 0 and right == 0:
                return split, 0
            before = _product(left, split.lower)
            padding.left = _plain(simplify(Max.make(padding.left, before)))
            return replace(split, extent=_plain(simplify(left + split.extent + right))), left
        padding = self.padding.get(split.mark)
        if padding is None:
            return split, left
        mark = split.mark
        if padding.left == 0 and divides(padding.factor, mark.extent):
            return split, left
        if padding.filled is None:
            if not divides(split.lower, padding.left):
                raise _NoSumError
            left = _quotient(padding.left, split.lower)
            end = padding.left + mark.extent
            extent = _plain(simplify(end + -end % padding.factor))
            padding.filled = _Mark((_Split(mark, 1, mark.extent),), extent)
        filled = padding.filled
        extent = _quotient(filled.extent, split.lower)
        return replace(split, mark=filled, extent=extent), left

    @staticmethod
    def _combined(splits: tuple[_Split, ...]) -> tuple[_Split, ...]:
        """Splits, with those that are neighbouring digits of one mark as one."""
        found = list(splits)
        for low in splits:
            while low in found:
                lower, scale = low.lower * low.extent, low.scale * low.extent
                high = next(
                    (
                        x
                        for x in found
                        if x.mark is low.mark
                        and x is not low
                        and can_prove_equal(x.lower, lower)
                        and can_prove_equal(x.scale, scale)
                    ),
                    None,
                )
                if high is None:
                    break
                both = replace(low, extent=_product(high.extent, low.extent))
                found[found.index(low)] = both
                found.remove(high)
                low = both
        return tuple(found)

    def _join(self, splits: tuple[_Split, ...]) -> _Split:
        """Splits that are the digits of a number, as one of a mark of their own."""
        if not self.complete:
            raise _NoSumError  # several iterators are as good as none
        rest = sorted(splits, key=lambda x: x.extent != 1)  # one value changes no scale: first
        first = min((x.scale for x in rest if isinstance(x.scale, int)), default=0)
        if first == 0:
            raise _NoSumError
        expected: Dim = first
        digits: list[_Split] = []
        while rest:
            found = next((x for x in rest if can_prove_equal(x.scale, expected)), None)
            if found is None:
                raise _NoSumError
            rest.remove(found)
            digits.append(replace(found, scale=_quotient(expected, first)))
            expected = _product(expected, found.extent)
        key = tuple(reversed(digits))
        extent = functools.reduce(_product, (x.extent for x in digits))
        mark = self.joined.setdefault(key, _Mark(key, extent))
        return _Split(mark, 1, extent, first)

    def told_apart(self, sums: Sequence[_Sum]) -> bool:
        """Whether the splits of each mark are different digits of it."""
        by_mark: dict[_Mark, list[_Split]] = {}
        todo = [x for found in sums for x in found.splits]
        while todo:
            split = todo.pop()
            if split.mark not in by_mark and not isinstance(split.mark.source, Var):
                todo += split.mark.source
            by_mark.setdefault(split.mark, []).append(split)
        if not all(self._digits(mark, splits) for mark, splits in by_mark.items()):
            return False
        whole = [x.mark for start in self.starts.values() for x in start.splits]
        return not self.complete or all(mark in by_mark for mark in whole)

    def _digits(self, mark: _Mark, splits: Sequence[_Split]) -> bool:
        rest = list(splits)
        expected: Dim = 1
        while rest:
            found = next((x for x in rest if can_prove_equal(x.lower, expected)), None)
            if found is None:
                if self.complete or not all(divides(expected, x.lower) for x in rest):
                    return False
                found = functools.reduce(lambda a, b: b if divides(b.lower, a.lower) else a, rest)
            rest.remove(found)
            expected = _product(found.lower, found.extent)
        if self.complete:
            return can_prove_equal(expected, mark.extent)
        filled = any(mark is padding.filled for padding in self.padding.values())
        return filled or divides(expected, mark.extent)
