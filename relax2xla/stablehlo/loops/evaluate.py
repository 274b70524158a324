"""Expressions as values: tensors with an axis for each vector loop that they depend on."""

from __future__ import annotations

import math

from relax2xla import tir
from relax2xla.dtypes import is_float, limits
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.op.shared.lowering import convert, hlo, scalar, select, tensor_info
from relax2xla.stablehlo.loops import reads
from relax2xla.stablehlo.loops.affine import Form, value_of
from relax2xla.stablehlo.loops.allreduce import across_threads
from relax2xla.stablehlo.loops.axes import Value, constant, elementwise, fixed_at, known
from relax2xla.stablehlo.loops.forms import compared, form_of
from relax2xla.stablehlo.loops.scalars import CALLS, NODES, OPERANDS, ROUNDINGS, divide_exactly
from relax2xla.stablehlo.loops.state import Kernel, Scope
from relax2xla.tir.buffer import BufferLoad, Let
from relax2xla.tir.node import is_int


def evaluate(kernel: Kernel, e: tir.PrimExpr, scope: Scope, exact: bool = False) -> Value:
    """The value of ``e``. With ``exact``, ``e`` itself is not taken as an affine form."""
    match e:
        case tir.IntImm() | tir.FloatImm():
            return constant(e.value, e.dtype)
        case tir.Var():
            return _variable(kernel, e, scope)
        case BufferLoad():
            return reads.read(kernel, e, scope)
        case Let():
            return evaluate(kernel, e.body, scope.bind(e.var, bound(kernel, e.value, scope)))
        case tir.Select():
            return _select(kernel, e, (e.condition, e.true_value, e.false_value), scope)
        case tir.Call(op="tir.if_then_else"):
            return _select(kernel, e, e.args, scope)
        case tir.Cast():
            whole = is_int(e.dtype) and not is_int(e.value.dtype)
            value = evaluate(kernel, e.value, scope.but(rounded=True) if whole else scope)
            return Value(convert(value.expr, e.dtype), value.axes)
        case tir.And() | tir.Or():
            return _logical(kernel, e, scope)
        case tir.Call():
            return _call(kernel, e, scope)
        case _:
            pass
    if not exact and is_int(e.dtype):
        form = form_of(kernel, e, scope, scalars=False)
        if form is not None:
            return value_of(form, e.dtype)
    if isinstance(e, tir.CmpExpr):
        truth = compared(kernel, e, scope)
        if truth is not None:
            return constant(truth, "bool")
    rule = divide_exactly if scope.rounded and isinstance(e, tir.Div) else NODES.get(type(e))
    if rule is None:
        raise kernel.error(f"the expression `{e}` of kind {type(e).__name__} cannot be lowered")
    return elementwise(rule, *(evaluate(kernel, c, scope) for c in e.children()))


def bound(kernel: Kernel, e: tir.PrimExpr, scope: Scope) -> Form | Value:
    """What a variable is that stands for ``e``: a form if it can be, else a value."""
    form = form_of(kernel, e, scope, scalars=False)
    return evaluate(kernel, e, scope) if form is None else form


def _variable(kernel: Kernel, var: tir.Var, scope: Scope) -> Value:
    held = scope.env.get(var)
    if isinstance(held, Value):
        return fixed_at(held, scope.fixed)
    form = form_of(kernel, var, scope)
    if form is None:
        raise kernel.error(f"the variable {var.name} has no value here")
    return value_of(form, var.dtype)


def _logical(kernel: Kernel, e: tir.And | tir.Or, scope: Scope) -> Value:
    """A known side decides, or leaves the other."""
    decides = isinstance(e, tir.Or)
    a = evaluate(kernel, e.a, scope)
    if known(a) is not None:
        return a if known(a) == decides else evaluate(kernel, e.b, scope)
    # The right side is only computed where the left one leaves it open.
    b = evaluate(kernel, e.b, scope.but(guarded=True))
    if known(b) is not None:
        return b if known(b) == decides else a
    return elementwise(NODES[type(e)], a, b)


def _select(
    kernel: Kernel, e: tir.PrimExpr, parts: tuple[tir.PrimExpr, ...], scope: Scope
) -> Value:
    """``condition ? yes : no``; a side that is not taken may read out of range."""
    condition, yes, no = parts
    test = evaluate(kernel, condition, scope)
    truth = known(test)
    if truth is not None:
        return evaluate(kernel, yes if truth else no, scope)
    padded = reads.padded(kernel, condition, yes, no, scope)
    if padded is not None:
        return padded
    inside = scope.but(guarded=True)
    sides = evaluate(kernel, yes, inside), evaluate(kernel, no, inside)
    return elementwise(select, test, *sides)


def _call(kernel: Kernel, e: tir.Call, scope: Scope) -> Value:
    name = e.op.removeprefix("tir.")
    combined = across_threads(kernel, e, scope)
    if combined is not None:
        return combined
    if name in ("likely", "tvm_thread_invariant"):
        return evaluate(kernel, e.args[0], scope)
    if is_int(e.dtype) and name.startswith("shift"):
        form = form_of(kernel, e, scope, scalars=False)
        if form is not None:
            return value_of(form, e.dtype)
    if name == "reinterpret":
        value = evaluate(kernel, e.args[0], scope)
        return Value(_bits(value.expr, e.dtype), value.axes)
    if name in _LIMITS:
        return constant(_LIMITS[name](e.dtype), e.dtype)
    if name in ("q_multiply_shift", "q_multiply_shift_per_axis"):
        return _multiply_shift(kernel, name, [evaluate(kernel, a, scope) for a in e.args])
    if name in ROUNDINGS:
        scope = scope.but(rounded=True)
    rule = CALLS.get(name)
    if rule is None:
        raise kernel.error(
            f"the intrinsic {e.op} cannot be lowered to StableHLO. Write it with arithmetic, or "
            "call the function from Relax (R.call_dps_packed)"
        )
    given = ", ".join(a.dtype for a in e.args)
    wanted = OPERANDS.get(name)
    if wanted and not all((is_float if wanted == "floats" else is_int)(a.dtype) for a in e.args):
        raise kernel.error(f"T.{name} takes {wanted}; got {given}; cast them by T.Cast")
    values = [evaluate(kernel, a, scope) for a in e.args]
    try:
        return elementwise(rule, *values)
    except (OpError, TypeError) as error:
        raise kernel.error(f"T.{name} does not take ({given}): {error}") from error


_LIMITS = {
    "infinity": lambda dtype: math.inf,
    "min_value": lambda dtype: limits(dtype)[0],
    "max_value": lambda dtype: limits(dtype)[1],
}


def _bits(x: Expr, dtype: str) -> Expr:
    from relax2xla.op.shared.lowering import shape_of

    return hlo("bitcast_convert", x, out=tensor_info(shape_of(x), dtype))


def _multiply_shift(kernel: Kernel, name: str, values: list[Value]) -> Value:
    """``round(x * y * 2**-shift)`` in fixed point, half upwards."""
    if name == "q_multiply_shift":
        x, y, bits, shift = values
        q, s = known(bits), known(shift)
        if q is None or s is None:
            raise kernel.error("q_multiply_shift: the numbers of bits must be literals")
        return elementwise(lambda x, y: _fixed_point(x, y, scalar(int(q - s), "int64")), x, y)
    x, y, left, right, bits = values[:5]
    q = known(bits)
    if q is None:
        raise kernel.error("q_multiply_shift_per_axis: the number of bits must be a literal")

    def rule(x: Expr, y: Expr, left: Expr, right: Expr) -> Expr:
        from relax2xla.op.shared.lowering import full_like

        scaled = hlo("shift_left", convert(x, "int64"), convert(left, "int64"))
        total = hlo("add", full_like(scaled, int(q)), convert(right, "int64"))
        return _fixed_point(scaled, y, total)

    return elementwise(rule, x, y, left, right)


def _fixed_point(x: Expr, y: Expr, shift: Expr) -> Expr:
    from relax2xla.op.shared.lowering import broadcast_to, full_like, shape_of

    product = hlo("multiply", convert(x, "int64"), convert(y, "int64"))
    shift = broadcast_to(shift, shape_of(product))
    one = full_like(product, 1)
    half = hlo("shift_left", one, hlo("subtract", shift, one))
    moved = hlo("shift_right_arithmetic", hlo("add", product, half), shift)
    return convert(moved, "int32")
