"""Fake quantisation: rounded to steps and back at once, with torch's derivatives.

By ``x`` the derivative is 1 where the step is within the range, and 0 elsewhere; rounding itself
has none anywhere. Scales and zero points have one where they are learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.torch.engine.context import (
    Context,
    broadcast,
    dims_of,
    dtype_of,
    info_of,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr


@dataclass(frozen=True, slots=True)
class Steps:
    """A tensor in steps of ``scale``, of which there are those from ``low`` to ``high``."""

    x: Expr
    scale: Expr
    zero_point: Expr
    low: int
    high: int
    count: Expr

    @classmethod
    def of(cls, ctx: Context, x: Expr, scale: Any, zero_point: Any, low: int, high: int) -> Steps:
        """``scale`` and ``zero_point`` are numbers, or tensors that go with ``x``."""
        if not isinstance(scale, Expr):
            scale = scalar(scale, "float32")
        inverse = R.divide(scalar(1, dtype_of(scale)), scale)
        count = R.multiply(*ctx.promote(x, inverse))
        if not isinstance(zero_point, Expr):
            zero_point = scalar(zero_point, "int64")
        if is_float(dtype_of(zero_point)):
            count = R.round(R.add(*ctx.promote(count, zero_point)))
        else:
            count = R.add(*ctx.promote(R.round(count), zero_point))
        return cls(x, scale, zero_point, low, high, ctx.emit(count))

    def below(self) -> Expr:
        return R.less(self.count, scalar(self.low, dtype_of(self.count)))

    def within(self) -> Expr:
        """Where there is such a step; NaN has none."""
        low, high = (scalar(n, dtype_of(self.count)) for n in (self.low, self.high))
        return R.logical_and(R.greater_equal(self.count, low), R.less_equal(self.count, high))

    def values(self, ctx: Context) -> Expr:
        """The steps as values, without derivative; NaN becomes the least, as in torch.

        Numbers beyond the range of int64 end at the side that they are on (torch leaves them to the
        machine: x86 takes all of them to the least).
        """
        least = scalar(self.low, dtype_of(self.count))
        kept = R.where(R.isnan(self.count), least, R.clip(self.count, self.low, self.high))
        at, zero_point, scale = ctx.promote(kept, self.zero_point, self.scale, dtype="float64")
        made = R.multiply(R.subtract(at, zero_point), scale)
        if not info_of(self.scale).ndim:  # of one scale, torch has float32 in float64
            made = R.astype(made, "float32")
        made = ctx.cast(made, dtype_of(self.x))
        return ctx.emit(R.grad.no_grad(ctx.emit(made)))

    def by_scale(self, ctx: Context, made: Expr) -> Expr:
        """The derivative of a learnt scale at each element, where ``made`` are the values."""
        dtype = dtype_of(self.x)
        scale, zero_point = (ctx.cast(v, dtype) for v in (self.scale, self.zero_point))
        least, most = (R.subtract(scalar(n, dtype), zero_point) for n in (self.low, self.high))
        inside = R.divide(R.subtract(made, self.x), scale)
        return R.where(self.within(), inside, R.where(self.below(), least, most))

    def by_zero_point(self, ctx: Context) -> Expr:
        """The derivative of a learnt zero point at each element."""
        dtype = dtype_of(self.x)
        return R.where(self.within(), scalar(0, dtype), R.negative(ctx.cast(self.scale, dtype)))


def _rise(x: Expr, slope: Expr) -> Expr:
    """0, with the derivative ``slope`` by ``x``."""
    return R.multiply(R.subtract(x, R.grad.no_grad(x)), slope)


def _through(x: Expr, within: Expr) -> Expr:
    """0, through which the gradient of ``x`` passes where ``within``."""
    return R.where(within, R.subtract(x, R.grad.no_grad(x)), scalar(0, dtype_of(x)))


def _passing(ctx: Context, made: Expr, x: Expr, within: Expr) -> Expr:
    """``made``, through which the gradient of ``x`` passes where ``within``."""
    return R.grad.differentiate_as(made, R.add(made, _through(ctx.emit(x), within)))


def _masked(
    ctx: Context, x: Expr, scale: Any, zero_point: Any, low: int, high: int
) -> tuple[Expr, Expr]:
    """The values, and where they are within the range."""
    steps = Steps.of(ctx, ctx.emit(x), scale, zero_point, low, high)
    within = ctx.emit(steps.within())
    return _passing(ctx, steps.values(ctx), x, within), within


def _number(ctx: Context, x: Expr) -> Expr:
    """What a tensor of one element holds."""
    return ctx.emit(ctx.reshape(x, ()))


def _along(ctx: Context, values: Expr, x: Expr, axis: int) -> Expr:
    """One for each channel of ``x``."""
    shape: list[Any] = [1] * len(dims_of(x))
    shape[axis] = dims_of(values)[0]
    return ctx.emit(ctx.reshape(values, shape))


@aten("fake_quantize_per_tensor_affine_cachemask")
def fake_quantize_masked(
    ctx: Context, self: Expr, scale: float, zero_point: int, quant_min: int, quant_max: int
) -> tuple[Expr, Expr]:
    return _masked(ctx, self, scale, zero_point, quant_min, quant_max)


@aten("fake_quantize_per_tensor_affine", "fake_quantize_per_tensor_affine.tensor_qparams")
def fake_quantize(
    ctx: Context, self: Expr, scale: Any, zero_point: Any, quant_min: int, quant_max: int
) -> Expr:
    scale, zero_point = (_number(ctx, v) if isinstance(v, Expr) else v for v in (scale, zero_point))
    return _masked(ctx, self, scale, zero_point, quant_min, quant_max)[0]


@aten("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams")
def fake_quantize_by_tensors(
    ctx: Context,
    self: Expr,
    scale: Expr,
    zero_point: Expr,
    fake_quant_enabled: Expr,
    quant_min: int,
    quant_max: int,
) -> tuple[Expr, Expr]:
    """The input itself where the first element of ``fake_quant_enabled`` is 0."""
    first = R.take(ctx.reshape(fake_quant_enabled, (-1,)), scalar(0, "int64"), 0)
    on = ctx.emit(R.not_equal(first, scalar(0, dtype_of(fake_quant_enabled))))
    one, zero = _number(ctx, scale), _number(ctx, zero_point)
    made, within = _masked(ctx, self, one, zero, quant_min, quant_max)
    return R.where(on, made, self), R.logical_or(within, R.logical_not(on))


@aten("fake_quantize_per_channel_affine_cachemask")
def fake_quantize_channels_masked(
    ctx: Context,
    self: Expr,
    scale: Expr,
    zero_point: Expr,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> tuple[Expr, Expr]:
    scale, zero_point = (_along(ctx, v, self, axis) for v in (scale, zero_point))
    return _masked(ctx, self, scale, zero_point, quant_min, quant_max)


@aten("fake_quantize_per_channel_affine")
def fake_quantize_channels(
    ctx: Context,
    self: Expr,
    scale: Expr,
    zero_point: Expr,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Expr:
    return fake_quantize_channels_masked(ctx, self, scale, zero_point, axis, quant_min, quant_max)[
        0
    ]


@aten("quantized_decomposed::fake_quant_per_channel")
def fake_quant_per_channel(
    ctx: Context,
    input: Expr,
    scales: Expr,
    zero_points: Expr,
    axis: int,
    quant_min: int,
    quant_max: int,
) -> Expr:
    """In float32 where ATen's has float64, with integers for zero points."""
    x = ctx.emit(input)
    scale = _along(ctx, ctx.cast(scales, "float32"), x, axis)
    zero_point = _along(ctx, ctx.cast(zero_points, "int32"), x, axis)
    steps = Steps.of(ctx, x, scale, zero_point, quant_min, quant_max)
    cut = R.clip(steps.count, quant_min, quant_max)
    gap = R.subtract(*ctx.promote(cut, zero_point))
    made = ctx.emit(ctx.cast(R.multiply(*ctx.promote(gap, scale)), ctx.dtype()))
    made = ctx.emit(R.grad.no_grad(made))
    return _passing(ctx, made, ctx.cast(x, dtype_of(made)), steps.within())


# -- learnt scales and zero points -----------------------------------------------------------------
def _learnt(
    ctx: Context, forward: Steps, scale: Expr, zero_point: Expr, factor: float, slopes: Steps
) -> Expr:
    """The values of ``forward``, with the derivatives that ``slopes`` has."""
    made, dtype = forward.values(ctx), dtype_of(forward.x)
    step = _through(forward.x, slopes.within())
    for what, slope in (
        (scale, slopes.by_scale(ctx, slopes.values(ctx))),
        (zero_point, slopes.by_zero_point(ctx)),
    ):
        known = ctx.emit(R.grad.no_grad(ctx.emit(R.multiply(slope, scalar(factor, dtype)))))
        step = R.add(step, _rise(ctx.emit(ctx.cast(what, dtype)), known))
    return R.grad.differentiate_as(made, R.add(made, step))


# What torch has for zero points that are learnt. It makes gradients of others: they are fractions,
# though without digits, which are added before there is rounding, and that of a whole tensor is
# rounded in another way.
def _of_values(zero_point: Expr, low: int, high: int) -> Expr:
    return R.astype(_of_slopes_along(zero_point, low, high), "int32")


def _of_slopes(zero_point: Expr, low: int, high: int) -> Expr:
    return R.trunc(R.clip(R.add(zero_point, scalar(0.5, dtype_of(zero_point))), low, high))


def _of_slopes_along(zero_point: Expr, low: int, high: int) -> Expr:
    return R.clip(R.round(zero_point), low, high)


@aten("_fake_quantize_learnable_per_tensor_affine")
def fake_quantize_learnt(
    ctx: Context,
    self: Expr,
    scale: Expr,
    zero_point: Expr,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Expr:
    x, one, zero = ctx.emit(self), _number(ctx, scale), _number(ctx, zero_point)
    values, slopes = (
        Steps.of(ctx, x, one, ctx.emit(of(zero, quant_min, quant_max)), quant_min, quant_max)
        for of in (_of_values, _of_slopes)
    )
    return _learnt(ctx, values, one, zero, grad_factor, slopes)


@aten("_fake_quantize_learnable_per_channel_affine")
def fake_quantize_learnt_channels(
    ctx: Context,
    self: Expr,
    scale: Expr,
    zero_point: Expr,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> Expr:
    x = ctx.emit(self)
    one, zero = (_along(ctx, v, x, axis) for v in (scale, zero_point))
    values, slopes = (
        Steps.of(ctx, x, one, ctx.emit(of(zero, quant_min, quant_max)), quant_min, quant_max)
        for of in (_of_values, _of_slopes_along)
    )
    return _learnt(ctx, values, one, zero, grad_factor, slopes)


def _slopes(ctx: Context, grad: Expr, steps: Steps, factor: float, axes: list[int]) -> list[Expr]:
    """Gradients by the tensor, its scale and its zero point, of which there are one along others
    than ``axes``.
    """
    dtype = dtype_of(steps.x)
    grad = ctx.emit(grad)
    of_x = R.where(steps.within(), grad, scalar(0, dtype))
    made = [ctx.emit(of_x)]
    for slope in (steps.by_scale(ctx, steps.values(ctx)), steps.by_zero_point(ctx)):
        each = R.multiply(
            R.multiply(grad, broadcast(slope, dims_of(steps.x))), scalar(factor, dtype)
        )
        made.append(ctx.emit(R.sum(ctx.emit(each), axes)))
    return made


@aten("_fake_quantize_learnable_per_tensor_affine_backward")
def fake_quantize_learnt_backward(
    ctx: Context,
    grad: Expr,
    self: Expr,
    scale: Expr,
    zero_point: Expr,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> list[Expr]:
    x, one, zero = ctx.emit(self), _number(ctx, scale), _number(ctx, zero_point)
    whole = ctx.emit(_of_slopes(zero, quant_min, quant_max))
    steps = Steps.of(ctx, x, one, whole, quant_min, quant_max)
    made = _slopes(ctx, grad, steps, grad_factor, list(range(len(dims_of(x)))))
    return [
        made[0],
        *(ctx.cast(ctx.reshape(m, (1,)), ctx.dtype(i)) for i, m in enumerate(made) if i),
    ]


@aten("_fake_quantize_learnable_per_channel_affine_backward")
def fake_quantize_learnt_channels_backward(
    ctx: Context,
    grad: Expr,
    self: Expr,
    scale: Expr,
    zero_point: Expr,
    axis: int,
    quant_min: int,
    quant_max: int,
    grad_factor: float = 1.0,
) -> list[Expr]:
    x = ctx.emit(self)
    one, zero = (_along(ctx, v, x, axis) for v in (scale, zero_point))
    whole = ctx.emit(_of_slopes_along(zero, quant_min, quant_max))
    steps = Steps.of(ctx, x, one, whole, quant_min, quant_max)
    others = [a for a in range(len(dims_of(x))) if a != axis % len(dims_of(x))]
    made = _slopes(ctx, grad, steps, grad_factor, others)
    return [made[0], *(ctx.cast(m, ctx.dtype(i)) for i, m in enumerate(made) if i)]
