"""Gradients of element-wise operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from relax2xla.ir.expr import Expr
from relax2xla.ir.make import const
from relax2xla.op.shared.gradients.table import (
    Backward,
    fit,
    gradient,
    is_differentiable,
    none,
    tensor_of,
    zero,
)
from relax2xla.op.shared.lowering import relax

# ---- of one operand: the gradient of x, of what Backward holds
UNARY: dict[str, Callable[[Backward], Expr]] = {
    "acos": lambda s: -s.grad * relax("rsqrt", s.number(1) - s.x * s.x),
    "acosh": lambda s: s.grad * relax("rsqrt", s.x * s.x - s.number(1)),
    "asin": lambda s: s.grad * relax("rsqrt", s.number(1) - s.x * s.x),
    "asinh": lambda s: s.grad * relax("rsqrt", s.x * s.x + s.number(1)),
    "atan": lambda s: s.grad / (s.number(1) + s.x * s.x),
    "atanh": lambda s: s.grad / (s.number(1) - s.x * s.x),
    "cos": lambda s: -s.grad * relax("sin", s.x),
    "cosh": lambda s: s.grad * relax("sinh", s.x),
    "erf": lambda s: s.grad * s.number(2 / math.sqrt(math.pi)) * relax("exp", -(s.x * s.x)),
    "exp": lambda s: s.grad * s.out,
    "log": lambda s: s.grad / s.x,
    "negative": lambda s: -s.grad,
    "rsqrt": lambda s: s.number(-0.5) * s.grad * s.out / s.x,
    "sigmoid": lambda s: s.grad * s.out * (s.number(1) - s.out),
    "sin": lambda s: s.grad * relax("cos", s.x),
    "sinh": lambda s: s.grad * relax("cosh", s.x),
    "sqrt": lambda s: s.number(0.5) * s.grad / s.out,
    "square": lambda s: s.number(2) * s.grad * s.x,
    "tan": lambda s: s.grad * (s.number(1) + s.out * s.out),
    "tanh": lambda s: s.grad * (s.number(1) - s.out * s.out),
    "nn.silu": lambda s: _silu(s),
    "nn.relu": lambda s: relax("where", s.x < zero(s.x), zero(s.x), s.grad),
    "abs": lambda s: s.grad * relax("where", s.x < zero(s.x), s.number(-1), s.number(1)),
}


def _silu(s: Backward) -> Expr:
    sigmoid = relax("sigmoid", s.x)
    return s.grad * (sigmoid + s.out * (s.number(1) - sigmoid))


def _unary(formula: Callable[[Backward], Expr]) -> Callable[[Backward], Sequence[Expr] | None]:
    """A rule for real numbers; what is complex has no expression here."""

    def rule(s: Backward) -> Sequence[Expr] | None:
        return None if "complex" in tensor_of(s.x).dtype else [formula(s)]

    return rule


for _name, _formula in UNARY.items():
    gradient(f"relax.{_name}")(_unary(_formula))

# ---- those whose result does not change with their operands, or is no float
FLAT = (
    *("ceil", "floor", "round", "sign", "trunc"),
    *("equal", "greater", "greater_equal", "less", "less_equal", "not_equal"),
    *("isfinite", "isinf", "isnan", "logical_and", "logical_not", "logical_or", "logical_xor"),
    *("zeros_like", "ones_like", "zeros", "ones", "full", "full_like"),
    *("argmax", "argmin", "argsort", "shape_of", "size"),
)


@gradient(*(f"relax.{name}" for name in FLAT))
def _(s: Backward) -> Sequence[Expr]:
    return [none(x) for x in s.args]


# ---- of two operands
@gradient("relax.add")
def _(s: Backward) -> Sequence[Expr]:
    return [fit(s.grad, x) for x in s.args]


@gradient("relax.subtract")
def _(s: Backward) -> Sequence[Expr]:
    x, y = s.args
    return [fit(s.grad, x), fit(-s.grad, y)]


@gradient("relax.multiply")
def _(s: Backward) -> Sequence[Expr]:
    x, y = s.args
    return [fit(s.grad * y, x), fit(s.grad * x, y)]


@gradient("relax.divide")
def _(s: Backward) -> Sequence[Expr]:
    x, y = s.args
    return [fit(s.grad / y, x), fit(-s.grad * s.out / y, y)]


@gradient("relax.power")
def _(s: Backward) -> Sequence[Expr]:
    x, y = s.args
    less = y - const(1, tensor_of(s.out).dtype)
    by_exponent = s.grad * s.out * relax("log", x) if is_differentiable(y.struct_info) else s.grad
    return [fit(s.grad * y * relax("power", x, less), x), fit(by_exponent, y)]


@gradient("relax.maximum")
def _(s: Backward) -> Sequence[Expr]:
    x, y = s.args
    return [
        fit(relax("where", x < y, zero(s.out), s.grad), x),
        fit(relax("where", x >= y, zero(s.out), s.grad), y),
    ]


@gradient("relax.minimum")
def _(s: Backward) -> Sequence[Expr]:
    x, y = s.args
    return [
        fit(relax("where", x >= y, zero(s.out), s.grad), x),
        fit(relax("where", x < y, zero(s.out), s.grad), y),
    ]


@gradient("relax.where")
def _(s: Backward) -> Sequence[Expr]:
    cond, x, y = s.args
    chosen = relax("where", cond, s.grad, zero(x)), relax("where", cond, zero(y), s.grad)
    return [none(cond), fit(chosen[0], x), fit(chosen[1], y)]


@gradient("relax.astype")
def _(s: Backward) -> Sequence[Expr]:
    if not is_differentiable(s.x.struct_info) or not is_differentiable(s.out.struct_info):
        return [none(s.x)]
    return [relax("astype", s.grad, tensor_of(s.x).dtype)]
