"""Operators of each element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla import te, topi
from relax2xla.ir import Expr, const
from relax2xla.transform.lower.te_forms.table import Form, Site, form, plain, scalar

# Of one operand. The functions are named tir_NAME, for NAME may be one of the C library.
UNARY: Final[dict[str, Callable[..., Any]]] = {
    "abs": topi.abs,
    "acos": topi.acos,
    "acosh": topi.acosh,
    "asin": topi.asin,
    "asinh": topi.asinh,
    "atan": topi.atan,
    "atanh": topi.atanh,
    "bitwise_not": topi.bitwise_not,
    "ceil": topi.ceil,
    "clip": topi.clip,
    "cos": topi.cos,
    "cosh": topi.cosh,
    "exp": topi.exp,
    "floor": topi.floor,
    "isfinite": topi.isfinite,
    "isinf": topi.isinf,
    "isnan": topi.isnan,
    "log": topi.log,
    "logical_not": topi.logical_not,
    "negative": topi.negative,
    "round": topi.round,
    "rsqrt": topi.rsqrt,
    "sigmoid": topi.sigmoid,
    "sign": topi.sign,
    "sin": topi.sin,
    "sinh": topi.sinh,
    "sqrt": topi.sqrt,
    "square": lambda x: topi.multiply(x, x),
    "tan": topi.tan,
    "tanh": topi.tanh,
    "trunc": topi.trunc,
}
# Of two operands, one of which may be a number in the function.
BINARY: Final[dict[str, Callable[..., Any]]] = {
    "add": topi.add,
    "bitwise_and": topi.bitwise_and,
    "bitwise_or": topi.bitwise_or,
    "bitwise_xor": topi.bitwise_xor,
    "divide": topi.divide,
    "equal": topi.equal,
    "floor_divide": topi.floor_divide,
    "floor_mod": topi.floor_mod,
    "greater": topi.greater,
    "greater_equal": topi.greater_equal,
    "left_shift": topi.left_shift,
    "less": topi.less,
    "less_equal": topi.less_equal,
    "logical_and": topi.logical_and,
    "logical_or": topi.logical_or,
    "logical_xor": topi.logical_xor,
    "maximum": topi.maximum,
    "minimum": topi.minimum,
    "mod": topi.mod,
    "multiply": topi.multiply,
    "not_equal": topi.not_equal,
    "power": topi.power,
    "right_shift": topi.right_shift,
    "subtract": topi.subtract,
}


def _unary(name: str) -> Form:
    return lambda s: s.te(UNARY[name], *s.args, name=f"tir_{name}")


def _binary(name: str) -> Form:
    def rule(s: Site) -> Expr:
        x, y = s.args
        right = scalar(y)
        # A function takes a tensor: of two numbers the first stays one.
        return s.te(BINARY[name], scalar(x) if right is y else x, right, name=name)

    return rule


for _name in UNARY:
    form(f"relax.{_name}")(_unary(_name))
for _name in BINARY:
    form(f"relax.{_name}")(_binary(_name))


@form("relax.erf")
def _(s: Site) -> Expr:
    return s.te(wide_erf, s.x, name="erf")


def wide_erf(x: te.Tensor) -> te.Tensor:
    """The error function; of float16 in float32."""
    if x.dtype != "float16":
        return topi.erf(x)
    return topi.cast(topi.erf(topi.cast(x, "float32")), "float16")


@form("relax.where")
def _(s: Site) -> Expr:
    return s.te(topi.where, *s.args)


@form("relax.astype")
def _(s: Site) -> Expr:
    dtype = s.attrs["dtype"]
    number = plain(s.x)
    return s.te(topi.cast, s.x, dtype) if number is s.x else const(number, dtype)
