"""Affine forms of index expressions: ``const + scalar + sum(coefficient * axis)``.

A loop whose variable is divided in the program (``i // 4``, ``i % 4``) is split into axes, the
digits of the variable, so that quotients and remainders are affine, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from relax2xla.ir.expr import Expr
from relax2xla.op.shared.lowering import broadcast_to, convert, hlo, iota, scalar
from relax2xla.stablehlo.loops.axes import Axis, Value, in_order
from relax2xla.tir.node import wrapped

INDEX = "int64"
"""The dtype of scalars that are part of an index."""

_NO_TERMS: Mapping[Axis, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Form:
    """An affine form. ``scalar`` is a 0-dimensional int64 tensor, known when the program runs.

    ``key`` says where the scalar comes from: forms of one key have the same.
    """

    terms: Mapping[Axis, int] = field(default_factory=lambda: _NO_TERMS)
    const: int = 0
    scalar: Expr | None = None
    key: tuple[Hashable, ...] = ()

    @property
    def is_number(self) -> bool:
        """Whether the value is known."""
        return self.scalar is None and not self.terms

    def range(self, without: Collection[Axis] = ()) -> tuple[int, int]:
        """Smallest and largest value, the scalar and some terms left out."""
        low = high = self.const
        for axis, k in self.terms.items():
            if axis in without:
                continue
            if k > 0:
                high += k * (axis.size - 1)
            else:
                low += k * (axis.size - 1)
        return low, high

    def sorted_terms(self) -> list[tuple[Axis, int]]:
        """Terms by falling coefficient, outer axes first among equal ones."""
        return sorted(self.terms.items(), key=lambda t: (-abs(t[1]), t[0].number))


def number(value: int) -> Form:
    """A known number as a form."""
    return Form(const=value)


def of_axis(axis: Axis) -> Form:
    """The position along an axis."""
    return Form({axis: 1})


def plus(a: Form, b: Form, sign: int = 1) -> Form:
    """``a + sign * b``"""
    terms = dict(a.terms)
    for axis, k in b.terms.items():
        total = terms.get(axis, 0) + sign * k
        if total:
            terms[axis] = total
        else:
            terms.pop(axis, None)
    value = a.scalar
    if b.scalar is not None:
        if value is None:
            value = b.scalar if sign == 1 else hlo("negate", b.scalar)
        else:
            value = hlo("add" if sign == 1 else "subtract", value, b.scalar)
    key = a.key + ((sign, b.key) if b.key else ())
    return Form(terms, a.const + sign * b.const, value, key)


def times(a: Form, by: int) -> Form:
    """``a * by``"""
    if by == 0:
        return Form()
    if by == 1:
        return a
    value = a.scalar and hlo("multiply", a.scalar, scalar(by, INDEX))
    key = (*a.key, ("*", by)) if a.key else ()
    return Form({x: k * by for x, k in a.terms.items()}, a.const * by, value, key)


def divided(a: Form, by: int, remainder: bool) -> Form | None:
    """``a // by`` or ``a % by`` for ``by`` > 0, where the terms separate into digits."""
    if a.is_number:
        return number(a.const % by if remainder else a.const // by)
    if by == 1:
        return number(0) if remainder else a
    if a.scalar is not None:
        return None
    quotient = {x: k // by for x, k in a.terms.items() if k % by == 0}
    rest = Form({x: k for x, k in a.terms.items() if k % by}, a.const % by)
    low, high = rest.range()
    if low < 0 or high >= by:
        return None
    return rest if remainder else Form(quotient, a.const // by)


def is_nested(terms: Sequence[tuple[Axis, int]]) -> bool:
    """Whether sorted terms count through one range, as the digits of a number do."""
    pairs = itertools.pairwise(terms)
    return all(k == below * axis.size for (_, k), (axis, below) in pairs)


def overlaps(form: Form) -> bool:
    """Whether two places of the axes can give one index, as in a window that slides."""
    reach = 0
    for axis, k in reversed(form.sorted_terms()):
        if axis.size > 1:
            if abs(k) <= reach:
                return True
            reach += abs(k) * (axis.size - 1)
    return False


def tell_apart(forms: Sequence[Form]) -> bool:
    """Whether no two places of the axes give the same indices."""
    told = {a for f in forms if not overlaps(f) for a in f.terms}
    return all(a in told or a.size == 1 for f in forms for a in f.terms)


def fixed_form(form: Form, where: Mapping[Axis, int]) -> Form:
    """``form`` with some axes at one place."""
    if not any(a in where for a in form.terms):
        return form
    terms = {a: k for a, k in form.terms.items() if a not in where}
    moved = sum(k * where[a] for a, k in form.terms.items() if a in where)
    return Form(terms, form.const + moved, form.scalar, form.key)


def value_of(form: Form, dtype: str) -> Value:
    """The form as a tensor; of a narrow dtype it wraps."""
    axes = in_order(form.terms)
    base = scalar(wrapped(form.const, dtype), dtype)
    if form.scalar is not None:
        base = convert(form.scalar, dtype)
        if form.const:
            base = hlo("add", base, scalar(wrapped(form.const, dtype), dtype))
    if not axes:
        return Value(base)
    shape = [a.size for a in axes]
    total: Expr | None = None
    for i, axis in enumerate(axes):
        term: Expr = iota(shape, i, dtype)
        if form.terms[axis] != 1:
            step = scalar(wrapped(form.terms[axis], dtype), dtype)
            term = hlo("multiply", term, broadcast_to(step, shape))
        total = term if total is None else hlo("add", total, term)
    assert total is not None
    if form.const or form.scalar is not None:
        total = hlo("add", total, broadcast_to(base, shape))
    return Value(total, tuple(axes))
