"""Activations that Relax has no operator for, of floating-point tensors; numbers take their dtype.

Where Relax has one (relu, leakyrelu, gelu, silu, selu, softplus) importers call it.
"""

from __future__ import annotations

from relax2xla import op as R
from relax2xla.importers.shared.tensors import dtype_of, row
from relax2xla.ir import Constant, Expr, const


def like(x: Expr, value: float) -> Constant:
    """A scalar of the dtype of ``x``."""
    return const(value, dtype_of(x))


def clamped(x: Expr, low: float | Expr, high: float | Expr) -> Expr:
    """The nearest value to ``x`` within the bounds; where they cross, the upper one."""
    least, most = (b if isinstance(b, Expr) else like(x, b) for b in (low, high))
    return R.minimum(R.maximum(x, least), most)


def affine(x: Expr, alpha: float, beta: float) -> Expr:
    """``alpha x + beta``."""
    return R.add(R.multiply(x, like(x, alpha)), like(x, beta))


def scaled_tanh(x: Expr, alpha: float, beta: float) -> Expr:
    """``alpha tanh(beta x)``."""
    return R.multiply(R.tanh(R.multiply(x, like(x, beta))), like(x, alpha))


def hard_sigmoid(x: Expr, alpha: float, beta: float) -> Expr:
    """``alpha x + beta``, between 0 and 1."""
    return clamped(affine(x, alpha, beta), 0, 1)


def relu6_gate(x: Expr) -> Expr:
    """``x + 3``, between 0 and 6: six times what mobile networks take for a sigmoid."""
    return R.nn.relu6(R.add(x, like(x, 3)))


def hard_swish(x: Expr) -> Expr:
    """``x`` by a sixth of :func:`relu6_gate`."""
    return R.divide(R.multiply(x, relu6_gate(x)), like(x, 6))


def elu(x: Expr, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Expr:
    """``scale x`` above zero, ``scale alpha (exp(input_scale x) - 1)`` below; NaN stays NaN.

    With ``input_scale = 1 / alpha`` it is celu.
    """
    positive = R.greater(x, like(x, 0))
    # Nothing grows where it is not taken: infinity there would be NaN in the derivative.
    part = R.where(positive, like(x, 0), x)
    grown = part if input_scale == 1 else R.multiply(part, like(x, input_scale))
    below = R.multiply(row("exponential_minus_one", grown), like(x, alpha * scale))
    above = x if scale == 1 else R.multiply(x, like(x, scale))
    return R.where(positive, above, below)


def mish(x: Expr) -> Expr:
    """``x tanh(softplus(x))``."""
    return R.multiply(x, R.tanh(R.nn.softplus(x)))


def swish(x: Expr, alpha: float) -> Expr:
    """``x sigmoid(alpha x)``."""
    return R.multiply(x, R.sigmoid(R.multiply(x, like(x, alpha))))


def softplus(x: Expr) -> Expr:
    """``log(exp(x) + 1)`` to the last digit of every dtype; R.nn.softplus is ``x`` above 20."""
    return R.log_add_exp(x, like(x, 0))


def softsign(x: Expr) -> Expr:
    """``x / (1 + |x|)``."""
    return R.divide(x, R.add(R.abs(x), like(x, 1)))


def thresholded(x: Expr, alpha: float) -> Expr:
    """``x`` where it is larger than ``alpha``, else 0."""
    return R.where(R.greater(x, like(x, alpha)), x, like(x, 0))


def prelu(x: Expr, slope: Expr) -> Expr:
    """``x`` above zero, ``slope x`` below; the slope broadcasts."""
    return R.where(R.greater(x, like(x, 0)), x, R.multiply(slope, x))
