"""Operators on elements, activations, comparisons and reductions."""

from __future__ import annotations

from typing import Any

from relax2xla import op
from relax2xla.frontend.nn.eager import eager
from relax2xla.frontend.nn.op._family import binary, extremum, reduction, unary
from relax2xla.frontend.nn.values import Tensor, expr_of, wrap_nested

_FLOAT = " The tensor must be of a float dtype."

square = unary(op.square, "square", "``x * x``.")
sqrt = unary(op.sqrt, "sqrt", "The square root." + _FLOAT)
exp = unary(op.exp, "exp", "``e`` to the power of ``x``." + _FLOAT)
log = unary(op.log, "log", "The natural logarithm." + _FLOAT)
floor = unary(op.floor, "floor", "The largest integer that is not larger." + _FLOAT)
tanh = unary(op.tanh, "tanh", "The hyperbolic tangent." + _FLOAT)
sigmoid = unary(op.sigmoid, "sigmoid", "``1 / (1 + exp(-x))``." + _FLOAT)
negative = unary(op.negative, "neg", "``-x``. The hint of its name is `neg`.")
relu = unary(op.nn.relu, "relu", "``max(x, 0)``.")
relu6 = unary(op.nn.relu6, "relu6", "``min(max(x, 0), 6)``.")
silu = unary(op.nn.silu, "silu", "``x * sigmoid(x)``." + _FLOAT)

add = binary(op.add, "add", "``a + b``.")
subtract = binary(op.subtract, "subtract", "``a - b``.")
multiply = binary(op.multiply, "mul", "``a * b``. The hint of its name is `mul`.")
divide = binary(op.divide, "divide", "``a / b``.")
less = binary(op.less, "less", "``a < b``, of bool.")
less_equal = binary(op.less_equal, "less_equal", "``a <= b``, of bool.")
greater = binary(op.greater, "greater", "``a > b``, of bool.")
greater_equal = binary(op.greater_equal, "greater_equal", "``a >= b``, of bool.")
equal = binary(op.equal, "equal", "``a == b``, of bool.")
not_equal = binary(op.not_equal, "not_equal", "``a != b``, of bool.")
maximum = extremum(op.maximum, "The larger of two elements.")
minimum = extremum(op.minimum, "The smaller of two elements.")

sum = reduction(op.sum, "The sum over axes.")
max = reduction(op.max, "The largest element over axes.")
min = reduction(op.min, "The smallest element over axes.")


@eager
def gelu(x: Tensor, approximate: str | bool | None = None, name: str = "gelu") -> Tensor:
    """``0.5 * x * (1 + erf(x / sqrt(2)))``; approximate "tanh": the form with tanh.

    The tensor must be of a float dtype. As in torch "none" is None; a bool, which programs for TVM
    pass, does not approximate there either. Anything else is a ValueError.
    """
    if approximate not in (None, "none", "tanh", True, False):
        raise ValueError(f"approximate is None or 'tanh'; got {approximate!r}")
    build = op.nn.gelu_tanh if approximate == "tanh" else op.nn.gelu
    return wrap_nested(build(expr_of(x)), name)


@eager
def softplus(
    x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus"
) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; ``x`` itself where ``beta * x`` is above ``threshold``."""
    return wrap_nested(op.nn.softplus(expr_of(x), beta=beta, threshold=threshold), name)


@eager
def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """``x`` where it is positive, else ``alpha * x``; alpha: one slope for each channel."""
    return wrap_nested(op.nn.prelu(expr_of(x), expr_of(alpha)), name)


@eager
def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``. The tensor must be of a float dtype."""
    return wrap_nested(op.nn.softmax(expr_of(x), axis), name)


@eager
def astype(x: Tensor, dtype: str, name: str = "astype") -> Tensor:
    """``x`` in another dtype; ``x`` itself where it is of that."""
    return x if x.dtype == dtype else wrap_nested(op.astype(expr_of(x), dtype), name)


@eager
def where(condition: Tensor, x1: Any, x2: Any, name: str = "where") -> Tensor:
    """``x1`` where ``condition`` (cast to bool) is true, else ``x2``."""
    if not isinstance(condition, Tensor):
        raise TypeError(
            f"where: the condition is {condition!r}, and no nn.Tensor; values are compared by "
            "op.equal and op.not_equal, where Python's == and != compare the objects"
        )
    chosen = expr_of(astype(condition, "bool"))
    return wrap_nested(op.where(chosen, expr_of(x1, x2), expr_of(x2, x1)), name)
