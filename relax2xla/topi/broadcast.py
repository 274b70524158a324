"""Functions of two tensors, or of a tensor and a number, whose shapes broadcast as numpy's do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.dtypes import is_float
from relax2xla.te.tensor import operators
from relax2xla.topi.shared import FUNCTIONS, compute, is_same, known, scalar, shown


def broadcast_shapes(shapes: Sequence[Sequence[Any]], what: str) -> list[Any]:
    """The common shape; ValueError where there is none for certain.

    A symbolic size beside a number other than 1 is taken to be that number, as TVM does.
    """
    ndim = max((len(s) for s in shapes), default=0)
    made: list[Any] = []
    for axis in range(-ndim, 0):
        sizes = [s[axis] for s in shapes if len(s) >= -axis]
        best = sizes[0]
        for n in sizes[1:]:
            best = _common(best, n, what)
        made.append(best)
    return made


def _common(a: Any, b: Any, what: str) -> Any:
    x, y = known(a), known(b)
    if y == 1:
        return a
    if x == 1 or (x is None and y is not None):
        return b
    if (y is None and x is not None) or is_same(a, b):
        return a
    raise ValueError(f"topi.{what}: the sizes {shown(a)} and {shown(b)} do not broadcast")


def element(x: Any, index: Sequence[Any], shape: Sequence[Any] | None = None) -> Any:
    """The element of ``x`` that broadcasting puts at ``index``; a scalar is everywhere.

    shape: of the result; where an axis has size 1 there, too, its index needs no 0.
    """
    if not isinstance(x, te.Tensor):
        return scalar(x)
    first = len(index) - x.ndim
    repeated = [
        known(n) == 1 and (shape is None or known(shape[first + k]) != 1)
        for k, n in enumerate(x.shape)
    ]
    return x(*(0 if r else i for i, r in zip(index[first:], repeated, strict=True)))


def broadcast(name: str, rule: Callable[..., Any], *operands: Any) -> Any:
    """``rule`` of the elements of operands whose shapes broadcast."""
    shapes = [x.shape for x in operands if isinstance(x, te.Tensor)]
    if not shapes:
        return rule(*map(scalar, operands))
    shape = broadcast_shapes(shapes, name)

    def at(*index: Any) -> Any:
        return rule(*(element(x, index, shape) for x in operands))

    return compute(shape, at, f"T_{name}", "broadcast")


def _binary(name: str, rule: Callable[[Any, Any], Any], doc: str) -> Callable[[Any, Any], Any]:
    def function(lhs: Any, rhs: Any) -> Any:
        return broadcast(name, rule, lhs, rhs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _floor_divide(a: Any, b: Any) -> Any:
    x, y = tir.match_dtypes(a, b)
    return FUNCTIONS["floor"](tir.div(x, y)) if is_float(x.dtype) else tir.floordiv(x, y)


def _floor_mod(a: Any, b: Any) -> Any:
    x, y = tir.match_dtypes(a, b)
    return x - _floor_divide(x, y) * y if is_float(x.dtype) else tir.floormod(x, y)


def _mod(a: Any, b: Any) -> Any:
    x, y = tir.match_dtypes(a, b)
    return FUNCTIONS["fmod"](x, y) if is_float(x.dtype) else tir.truncmod(x, y)


def _compared(kind: type[tir.CmpExpr], swapped: bool = False) -> Callable[[Any, Any], Any]:
    return lambda a, b: kind.make(b, a) if swapped else kind.make(a, b)


def _logical(kind: type[tir.And] | type[tir.Or]) -> Callable[[Any, Any], Any]:
    return lambda a, b: kind.make(tir.cast("bool", a), tir.cast("bool", b))


def _logical_xor(a: Any, b: Any) -> Any:
    return tir.NE.make(tir.cast("bool", a), tir.cast("bool", b))


add = _binary("add", lambda a, b: a + b, "lhs + rhs.")
subtract = _binary("subtract", lambda a, b: a - b, "lhs - rhs.")
multiply = _binary("multiply", lambda a, b: a * b, "lhs * rhs.")
divide = _binary("divide", tir.div, "lhs / rhs; of integers rounded towards zero.")
floor_divide = _binary("floor_divide", _floor_divide, "lhs / rhs rounded towards minus infinity.")
mod = _binary("mod", _mod, "The remainder that has the sign of lhs.")
floor_mod = _binary("floor_mod", _floor_mod, "The remainder of floor_divide.")
maximum = _binary("maximum", tir.max, "The larger one.")
minimum = _binary("minimum", tir.min, "The smaller one.")
power = _binary("power", FUNCTIONS["pow"], "lhs to the power of rhs, of floating point.")
left_shift = _binary("left_shift", lambda a, b: a << b, "The bits of lhs, rhs places to the left.")
right_shift = _binary("right_shift", lambda a, b: a >> b, "The bits of lhs, rhs places lower.")
greater = _binary("greater", _compared(tir.LT, True), "Where lhs > rhs.")
less = _binary("less", _compared(tir.LT), "Where lhs < rhs.")
equal = _binary("equal", _compared(tir.EQ), "Where lhs == rhs.")
not_equal = _binary("not_equal", _compared(tir.NE), "Where lhs != rhs.")
greater_equal = _binary("greater_equal", _compared(tir.LE, True), "Where lhs >= rhs.")
less_equal = _binary("less_equal", _compared(tir.LE), "Where lhs <= rhs.")
logical_and = _binary("logical_and", _logical(tir.And), "Where both are true.")
logical_or = _binary("logical_or", _logical(tir.Or), "Where one of both is true.")
logical_xor = _binary("logical_xor", _logical_xor, "Where one of both is true, and not the other.")
bitwise_and = _binary("bitwise_and", lambda a, b: a & b, "The bits that both have.")
bitwise_or = _binary("bitwise_or", lambda a, b: a | b, "The bits that one of both has.")
bitwise_xor = _binary("bitwise_xor", lambda a, b: a ^ b, "The bits in which both differ.")

operators.update(
    {f.__name__: f for f in (add, subtract, multiply, divide, floor_divide, floor_mod)}
)


def broadcast_to(data: te.Tensor, shape: Sequence[Any]) -> te.Tensor:
    """``data`` repeated along axes of size 1, and along new axes in front."""
    sizes = list(shape)
    made = broadcast_shapes([data.shape, sizes], "broadcast_to")
    if len(made) != len(sizes) or not all(map(is_same, made, sizes)):
        raise ValueError(
            f"topi.broadcast_to: {shown(data.shape)} does not broadcast to {shown(sizes)}"
        )
    return compute(sizes, lambda *i: element(data, i, sizes), "T_broadcast_to", "broadcast")


def where(condition: te.Tensor, x: Any, y: Any) -> te.Tensor:
    """Elements of ``x`` where ``condition`` is not zero, of ``y`` elsewhere; all broadcast."""

    def select(c: Any, yes: Any, no: Any) -> Any:
        zero = tir.const(0, "int32")
        chosen = zero < tir.cast("int32", c) if c.dtype == "bool" else tir.NE.make(c, zero)
        return tir.Select(chosen, yes, no)

    return broadcast("where", select, condition, x, y)
