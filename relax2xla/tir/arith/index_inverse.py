"""The way back of an index map whose final indices are digits of sums of the initial ones.

``(i + 1) // 4`` and ``(i + 1) % 4`` are the digits, with the radix 4, of the sum ``i + 1``. The
digits give the sum back, and the sum gives back each index in it; places whose sum is that of no
element are padding.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

from relax2xla.errors import TVMError
from relax2xla.tir.arith.analyzer import can_prove_equal, simplify
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.binary import EQ, GE, LT, NE, Add, And, FloorDiv, FloorMod, Mul, Or, Sub
from relax2xla.tir.convert import as_prim_expr
from relax2xla.tir.node import Dim, IntImm, PrimExpr, Var


@dataclass(frozen=True)
class Digit:
    """``of // divisor % modulus``; without a modulus the whole quotient."""

    of: PrimExpr
    divisor: int
    modulus: int | None


def as_digit(index: PrimExpr) -> Digit | None:
    """An index as a digit of what its quotients and remainders are taken of; None if it is none."""
    by: list[tuple[PrimExpr, int]] = []
    while isinstance(index, FloorDiv | FloorMod):
        if not isinstance(index.b, IntImm) or index.b.value < 1:
            return None
        by.append((index, index.b.value))
        index = index.a
    divisor, modulus = 1, None
    for node, number in reversed(by):
        if isinstance(node, FloorMod):
            if modulus is not None and number % modulus and modulus % number:
                return None
            modulus = number if modulus is None else min(modulus, number)
        else:
            if modulus is not None and modulus % number:
                return None
            divisor, modulus = divisor * number, modulus and modulus // number
    return Digit(index, divisor, modulus)


def extent_from_zero(given: Dim | Range) -> Dim:
    """How many indices a dimension has; TVMError for a range that does not start at zero."""
    if not isinstance(given, Range):
        return given
    if not can_prove_equal(given.min, 0):
        raise TVMError(f"an index map is inverted for indices from zero; got {given}")
    return given.extent


# Coefficients of indices, each with the index, and a number.
_Sum: TypeAlias = tuple[tuple[tuple[Var, int], ...], int]


def _sum(index: PrimExpr) -> _Sum | None:
    """An index as a sum of initial ones times numbers, and a number."""
    match index:
        case Var():
            return ((index, 1),), 0
        case IntImm():
            return (), index.value
        case Add() | Sub():
            a, b = _sum(index.a), _sum(index.b)
            if a is None or b is None:
                return None
            sign = 1 if isinstance(index, Add) else -1
            terms = dict(a[0])
            for var, by in b[0]:
                terms[var] = terms.get(var, 0) + sign * by
            return tuple((v, by) for v, by in terms.items() if by), a[1] + sign * b[1]
        case Mul(a=a, b=IntImm() as by) | Mul(a=IntImm() as by, b=a):
            inner = _sum(a)
            if inner is None or by.value == 0:
                return inner and ((), 0)
            return tuple((v, n * by.value) for v, n in inner[0]), inner[1] * by.value
        case _:
            return None


def inverted(
    final: Sequence[PrimExpr],
    places: Sequence[Var],
    extents: Mapping[Var, Dim],
    sizes: Sequence[Dim],
) -> tuple[list[PrimExpr], PrimExpr] | str:
    """Each initial index of the places, and where there is padding; or what forbids it.

    final: the map, as expressions of the indices that ``extents`` names. places: variables for the
    final indices. sizes: how many values each of these has.
    """
    # By sum its digits; what is always one number stands alone.
    groups: dict[tuple[_Sum, Var | None], list[tuple[Digit, Var, Dim]]] = {}
    for index, place, size in zip(final, places, sizes, strict=True):
        digit = as_digit(index)
        base = digit and _sum(digit.of)
        if digit is None or base is None:
            return f"`{index}` is no digit of a sum of indices"
        terms = tuple((v, by) for v, by in base[0] if not can_prove_equal(extents[v], 1))
        key = (terms, base[1]), None if terms else place
        groups.setdefault(key, []).append((digit, place, size))
    dtype = places[0].dtype if places else "int64"
    back: dict[Var, PrimExpr] = {}
    padded: PrimExpr = IntImm("bool", 0)
    for ((terms, first), _), digits in groups.items():
        found = _indices(terms, extents)
        if isinstance(found, str):
            return found
        count, way = found
        digits.sort(key=lambda d: -d[0].divisor)
        wrong = _incomplete(digits, first, count)
        if wrong:
            return wrong
        parts = [p * d.divisor for d, p, _ in digits]
        total = functools.reduce(operator.add, parts) - first
        for var, of in way.items():
            if var in back:
                return f"`{var}` is in more than one sum"
            back[var] = as_prim_expr(simplify(of(total)), dtype)
        padded = Or.make(padded, _padding(digits, first, count))
    for var, extent in extents.items():
        if var not in back and not can_prove_equal(extent, 1):
            return f"no final index has `{var}`"
    return [back.get(v, IntImm(dtype, 0)) for v in extents], padded


_Way: TypeAlias = dict[Var, Callable[[PrimExpr], PrimExpr]]


def _indices(
    terms: Sequence[tuple[Var, int]], extents: Mapping[Var, Dim]
) -> tuple[Dim, _Way] | str:
    """How many values a sum takes, and how it gives back each index: they are its digits, too."""
    scale: Dim = 1
    way: _Way = {}
    for var, by in sorted(terms, key=lambda term: term[1]):
        if scale != by:
            return f"`{var}` times {by} is not where the indices before it end, at {scale}"
        last = len(way) + 1 == len(terms)

        def of(total: PrimExpr, by: int = by, var: Var = var, last: bool = last) -> PrimExpr:
            quotient = FloorDiv.make(total, by)
            return quotient if last else FloorMod.make(quotient, extents[var])

        way[var] = of
        scale = simplify(extents[var] * by)
    return scale, way


def _incomplete(digits: Sequence[tuple[Digit, Var, Dim]], first: int, count: Dim) -> str:
    """Why digits do not tell the sum, from those that count most; nothing where they do."""
    highest, lowest = digits[0][0], digits[-1][0]
    if first < 0:
        return f"`{highest.of}` may be negative"
    if lowest.divisor != 1:
        return f"no final index has the remainder of `{highest.of}` by {lowest.divisor}"
    for (above, *_), (below, *_) in pairwise(digits):
        if below.modulus is None or below.divisor * below.modulus != above.divisor:
            return f"the digits of `{highest.of}` overlap, or leave some out"
    if highest.modulus is not None:
        enough = isinstance(count, int) and first + count <= highest.divisor * highest.modulus
        if not enough:
            return f"no final index has the quotient of `{highest.of}`"
    return ""


def _padding(digits: Sequence[tuple[Digit, Var, Dim]], first: int, count: Dim) -> PrimExpr:
    """Where a sum is less than its first value, or at least its first and ``count`` more."""
    (highest, outer, size), *lower = digits
    radix = highest.divisor
    rest = functools.reduce(operator.add, [p * d.divisor for d, p, _ in lower]) if lower else None
    end = simplify(count + first)
    blocks, over = simplify(end // radix), simplify(end % radix)

    def edge(block: Dim, compare: PrimExpr | None) -> PrimExpr:
        """In this block of the outermost digit, what ``compare`` says of the others."""
        if compare is None:
            return EQ.make(outer, block)
        return compare if can_prove_equal(size, 1) else And.make(EQ.make(outer, block), compare)

    def others(compare: Callable[..., PrimExpr], bound: Dim) -> PrimExpr | None:
        return None if rest is None else compare(rest, bound)

    found: PrimExpr = IntImm("bool", 0)
    if first:
        if first // radix:
            found = LT.make(outer, first // radix)
        if first % radix:
            found = Or.make(found, edge(first // radix, others(LT.make, first % radix)))
    if not can_prove_equal(over, 0):
        # `rest` is below the radix.
        last = EQ.make if can_prove_equal(over, radix - 1) and len(lower) == 1 else GE.make
        after = edge(blocks, others(last, over))
        if not isinstance(over, int):
            after = And.make(NE.make(over, 0), after)
        found = Or.make(found, after)
        blocks = simplify(blocks + 1)
    if isinstance(blocks, int) and isinstance(size, int) and blocks < size:
        found = Or.make(found, GE.make(outer, blocks))
    return found
