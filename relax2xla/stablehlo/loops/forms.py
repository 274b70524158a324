"""Expressions as affine forms, where they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from relax2xla import tir
from relax2xla.op.shared.lowering import convert, hlo, scalar
from relax2xla.stablehlo.loops.affine import (
    INDEX,
    Form,
    divided,
    fixed_form,
    number,
    plus,
    times,
)
from relax2xla.stablehlo.loops.axes import NeedsLoop, Value
from relax2xla.stablehlo.loops.state import Kernel, Scope
from relax2xla.tir.binary import truncdiv_int
from relax2xla.tir.buffer import Let
from relax2xla.tir.node import int_range, is_int

_WIDE: Final = ("int32", "int64")
_SHIFTS: Final = {"tir.shift_left", "tir.shift_right"}
_DIVISIONS: Final[dict[type[tir.PrimExpr], Callable[[int, int], int]]] = {
    tir.FloorDiv: lambda a, b: a // b,
    tir.FloorMod: lambda a, b: a % b,
    tir.Div: truncdiv_int,
    tir.Mod: lambda a, b: a - b * truncdiv_int(a, b),
}


def form_of(kernel: Kernel, e: tir.PrimExpr, scope: Scope, scalars: bool = True) -> Form | None:
    """``e`` as an affine form, or None.

    With ``scalars``, integers that are known only when the program runs may be part of it: values
    that no axis changes. Forms without a scalar are exact: they fit the dtype of ``e``.
    """
    if not is_int(e.dtype):
        return None
    form = _form(kernel, e, scope, scalars)
    if form is not None:
        if form.scalar is None:
            low, high = int_range(e.dtype)
            least, most = form.range()
            return form if low <= least and most <= high else None
        if e.dtype in _WIDE:
            return form
    return _scalar_form(kernel, e, scope) if scalars else None


def _scalar_form(kernel: Kernel, e: tir.PrimExpr, scope: Scope) -> Form | None:
    """A value of no axes as a form."""
    if isinstance(e, tir.Select) or (isinstance(e, tir.Call) and e.op == "tir.if_then_else"):
        return None
    try:
        value = kernel.evaluate(e, scope, exact=True)
    except NeedsLoop:
        return None
    return None if value.axes else Form(scalar=convert(value.expr, INDEX), key=(e,))


def _form(kernel: Kernel, e: tir.PrimExpr, scope: Scope, scalars: bool) -> Form | None:
    if isinstance(e, tir.IntImm):
        return number(e.value)
    if isinstance(e, tir.Var):
        return _of_var(kernel, e, scope, scalars)
    if isinstance(e, tir.Cast):
        inner = form_of(kernel, e.value, scope, scalars)
        return inner if inner is None or inner.scalar is None or _wide(e) else None
    if isinstance(e, tir.BinaryExpr) or (isinstance(e, tir.Call) and e.op in _SHIFTS):
        left, right = e.children()
        a = form_of(kernel, left, scope, scalars)
        b = None if a is None else form_of(kernel, right, scope, scalars)
        return None if a is None or b is None else _combined(e, a, b, scalars)
    return _chosen(kernel, e, scope, scalars)


def _chosen(kernel: Kernel, e: tir.PrimExpr, scope: Scope, scalars: bool) -> Form | None:
    """The side that a choice always takes."""
    sides = sides_of(e)
    truth = None if sides is None else decided(kernel, sides[0], scope)
    if sides is None or truth is None:
        return None
    return form_of(kernel, sides[1 if truth else 2], scope, scalars)


def _wide(e: tir.Cast) -> bool:
    return e.dtype in _WIDE and e.value.dtype in _WIDE


def _of_var(kernel: Kernel, var: tir.Var, scope: Scope, scalars: bool) -> Form | None:
    held = scope.env.get(var)
    if held is None:
        raise kernel.error(f"the variable {var.name} has no value here")
    if isinstance(held, Form):
        return fixed_form(held, scope.fixed)
    if isinstance(held, Value) and not held.axes and scalars:
        return Form(scalar=convert(held.expr, INDEX), key=(var,))
    return None


def _combined(e: tir.PrimExpr, a: Form, b: Form, scalars: bool) -> Form | None:
    divide = _DIVISIONS.get(type(e))
    if divide is not None and a.is_number and b.is_number:
        return number(divide(a.const, b.const)) if b.const else None
    match e:
        case tir.Add():
            return plus(a, b)
        case tir.Sub():
            return plus(a, b, -1)
        case tir.Mul():
            return _product(e, a, b, scalars)
        case tir.FloorDiv() | tir.FloorMod():
            return divided(a, b.const, isinstance(e, tir.FloorMod)) if _positive(b) else None
        case tir.Div() | tir.Mod():
            if not _positive(b) or a.scalar is not None or a.range()[0] < 0:
                return None
            return divided(a, b.const, isinstance(e, tir.Mod))
        case tir.Min() | tir.Max():
            return _extremum(a, b, isinstance(e, tir.Min))
        case tir.Call(op="tir.shift_left") if b.is_number and 0 <= b.const < 63:
            return times(a, 1 << b.const)
        case tir.Call(op="tir.shift_right") if b.is_number and 0 <= b.const < 31:
            return divided(a, 1 << b.const, False)
        case _:
            return None


def _positive(form: Form) -> bool:
    return form.is_number and form.const > 0


def _product(e: tir.PrimExpr, a: Form, b: Form, scalars: bool) -> Form | None:
    if b.is_number:
        return times(a, b.const)
    if a.is_number:
        return times(b, a.const)
    if a.terms or b.terms or not scalars:
        return None
    factors = [hlo("add", f.scalar, scalar(f.const, INDEX)) for f in (a, b) if f.scalar is not None]
    return Form(scalar=hlo("multiply", *factors), key=(e,))


def _extremum(a: Form, b: Form, smaller: bool) -> Form | None:
    if a.scalar is not None or b.scalar is not None:
        return None
    (a_low, a_high), (b_low, b_high) = a.range(), b.range()
    if a_high <= b_low:
        return a if smaller else b
    if b_high <= a_low:
        return b if smaller else a
    return None


# -- conditions ---------------------------------------------------------------------------------
def decided(kernel: Kernel, e: tir.PrimExpr, scope: Scope) -> bool | None:
    """What a condition is wherever the loops are, or None; no rows are made."""
    match e:
        case tir.IntImm():
            return bool(e.value)
        case tir.Call(op="tir.likely"):
            return decided(kernel, e.args[0], scope)
        case tir.Not():
            truth = decided(kernel, e.a, scope)
            return None if truth is None else not truth
        case tir.And() | tir.Or():
            decides = isinstance(e, tir.Or)
            sides = decided(kernel, e.a, scope), decided(kernel, e.b, scope)
            if decides in sides:
                return decides
            return None if None in sides else not decides
        case tir.CmpExpr():
            return compared(kernel, e, scope)
        case _:
            return None


def difference_of(kernel: Kernel, e: tir.CmpExpr, scope: Scope) -> Form | None:
    """What the left side of a comparison of affine forms is more than the right one."""
    a = form_of(kernel, e.a, scope, scalars=False)
    b = None if a is None else form_of(kernel, e.b, scope, scalars=False)
    if a is None or b is None:
        return None
    difference = plus(a, b, -1)
    return difference if difference.scalar is None else None


def compared(kernel: Kernel, e: tir.CmpExpr, scope: Scope) -> bool | None:
    """What a comparison of affine forms always is."""
    difference = difference_of(kernel, e, scope) if is_int(e.a.dtype) else None
    if difference is None:
        return None
    low, high = difference.range()
    match e:
        case tir.LT():
            return True if high < 0 else False if low >= 0 else None
        case tir.LE():
            return True if high <= 0 else False if low > 0 else None
        case tir.GT():
            return True if low > 0 else False if high <= 0 else None
        case tir.GE():
            return True if low >= 0 else False if high < 0 else None
        case _:
            equal = True if low == high == 0 else False if low > 0 or high < 0 else None
            return equal if isinstance(e, tir.EQ) or equal is None else not equal


def sides_of(e: tir.PrimExpr) -> tuple[tir.PrimExpr, ...] | None:
    """Condition, value where it holds, value where not; None if ``e`` does not choose."""
    if isinstance(e, tir.Select):
        return e.condition, e.true_value, e.false_value
    return e.args if isinstance(e, tir.Call) and e.op == "tir.if_then_else" else None


def settled(kernel: Kernel, e: tir.PrimExpr, scope: Scope) -> tir.PrimExpr:
    """``e`` without the sides that are never taken, whatever iteration runs."""
    if all(sides_of(node) is None for node in tir.post_order(e)):
        return e
    return _settled(kernel, e, scope)


def _settled(kernel: Kernel, e: tir.PrimExpr, scope: Scope) -> tir.PrimExpr:
    sides = sides_of(e)
    if sides is not None:
        truth = decided(kernel, sides[0], scope)
        if truth is not None:
            return _settled(kernel, sides[1 if truth else 2], scope)
    if isinstance(e, Let):  # its variable has no value out here
        return e
    old = e.children()
    new = [_settled(kernel, c, scope) for c in old]
    return e.rebuild(new) if any(a is not b for a, b in zip(old, new, strict=True)) else e
