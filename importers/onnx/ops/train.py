# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx.preview.training: one step of an optimiser for several tensors.

Semantics: the operator specifications of ONNX. Inputs after the rate ``R`` and the count ``T`` of
updates are the tensors, then their gradients, then each kind of state; outputs have no gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from relax2xla import op as R
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import dtype_of, like, scalar
from relax2xla.ir import Expr

DOMAIN = "ai.onnx.preview.training"


def _scaled(x: Expr, factor: float) -> Expr:
    return R.multiply(x, like(x, factor))


def _each(inputs: Sequence[Expr], kinds: int, rule: Callable[..., Sequence[Expr]]) -> list[Expr]:
    """Apply ``rule`` to each tensor with its gradient and states; ``kinds``: how many operands."""
    count = len(inputs) // kinds
    if not count or len(inputs) % kinds:
        raise ValueError(f"{len(inputs)} tensors, which is no multiple of {kinds}")
    made = [rule(*inputs[i::count]) for i in range(count)]
    return [results[kind] for kind in range(kinds - 1) for results in made]


def _regularised(x: Expr, g: Expr, norm_coefficient: float) -> Expr:
    return R.add(_scaled(x, norm_coefficient), g) if norm_coefficient else g


@onnx_op("Adagrad", domain=DOMAIN)
def adagrad(
    ctx: Context,
    R_: Expr,
    T: Expr,
    *inputs: Expr,
    decay_factor: float = 0.0,
    epsilon: float = 9.999999974752427e-07,
    norm_coefficient: float = 0.0,
) -> list[Expr]:
    def rule(x: Expr, g: Expr, h: Expr) -> list[Expr]:
        steps = R.astype(T, dtype_of(x))
        rate = R.divide(ctx.cast(R_, dtype_of(x)), R.add(_scaled(steps, decay_factor), like(x, 1)))
        gradient = ctx.emit(_regularised(x, g, norm_coefficient))
        squares = ctx.emit(R.add(h, R.multiply(gradient, gradient)))
        length = R.add(R.sqrt(squares), like(x, epsilon))
        return [R.subtract(x, R.divide(R.multiply(rate, gradient), length)), squares]

    return _each(inputs, 3, rule)


@onnx_op("Adam", domain=DOMAIN)
def adam(
    ctx: Context,
    R_: Expr,
    T: Expr,
    *inputs: Expr,
    alpha: float = 0.8999999761581421,
    beta: float = 0.9990000128746033,
    epsilon: float = 9.999999974752427e-07,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> list[Expr]:
    """The rate is corrected for the states' start at zero, unless ``T`` is zero."""

    def rule(x: Expr, g: Expr, v: Expr, h: Expr) -> list[Expr]:
        gradient = ctx.emit(_regularised(x, g, norm_coefficient))
        mean = ctx.emit(R.add(_scaled(v, alpha), _scaled(gradient, 1 - alpha)))
        squares = _scaled(R.multiply(gradient, gradient), 1 - beta)
        squares = ctx.emit(R.add(_scaled(h, beta), squares))
        length = R.add(R.sqrt(squares), like(x, epsilon))
        steps, rate = R.astype(T, dtype_of(x)), ctx.cast(R_, dtype_of(x))
        one = like(x, 1)
        ups = R.sqrt(R.subtract(one, R.power(like(x, beta), steps)))
        downs = R.subtract(one, R.power(like(x, alpha), steps))
        started = R.greater(T, scalar(0, dtype_of(T)))
        rate = R.where(started, R.divide(R.multiply(rate, ups), downs), rate)
        new = R.subtract(x, R.multiply(rate, R.divide(mean, length)))
        return [_scaled(new, 1 - norm_coefficient_post), mean, squares]

    return _each(inputs, 4, rule)


@onnx_op("Momentum", domain=DOMAIN)
def momentum(
    ctx: Context,
    R_: Expr,
    T: Expr,
    *inputs: Expr,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> list[Expr]:
    """The first gradient counts in full, whatever ``beta``."""
    nesterov = choice(mode, ("standard", "nesterov"), "mode") == "nesterov"

    def rule(x: Expr, g: Expr, v: Expr) -> list[Expr]:
        gradient = ctx.emit(_regularised(x, g, norm_coefficient))
        started = R.greater(T, scalar(0, dtype_of(T)))
        share = R.where(started, like(x, beta), like(x, 1))
        speed = ctx.emit(R.add(_scaled(v, alpha), R.multiply(share, gradient)))
        step = R.add(gradient, _scaled(speed, alpha)) if nesterov else speed
        return [R.subtract(x, R.multiply(ctx.cast(R_, dtype_of(x)), step)), speed]

    return _each(inputs, 3, rule)
