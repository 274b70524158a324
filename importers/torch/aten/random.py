"""Random numbers: torch's distributions, not its values.

Bits are Philox's (``stablehlo.rng_bit_generator``), from a key that ``torch.initial_seed()`` gives
at the import and a counter that tells the operators of a program apart. So a program gives the same
numbers each time that it runs; ``torch.manual_seed`` before the import chooses others, and a
function of JAX takes a key for each call (``interop.jax``).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.torch.aten.numbers.complex import REAL
from relax2xla.importers.torch.engine.context import (
    Context,
    Dims,
    chlo,
    dims_of,
    dtype_of,
    row,
    scalar,
)
from relax2xla.importers.torch.engine.context import static as _static
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Constant, Expr
from relax2xla.stablehlo.draws import drawn_bits

MASK = (1 << 64) - 1
Draw = Callable[[Context, Dims, str], Expr]


def bits(ctx: Context, dims: Dims) -> Expr:
    """Random uint32 of a shape."""
    seed, number = torch.initial_seed() & MASK, next(ctx.draws)
    state = Constant(np.array([seed, (number << 40) & MASK], np.uint64))
    made = ctx.emit(drawn_bits(state, dims, "uint32", "PHILOX", number))
    return ctx.emit(made[1])


def uniform01(ctx: Context, dims: Dims, dtype: str) -> Expr:
    """In [0, 1), of 24 random bits (float64: 53)."""
    if dtype == "float64":
        high = R.astype(row("shift_right_logical", bits(ctx, dims), _u32(ctx, dims, 5)), dtype)
        low = R.astype(row("shift_right_logical", bits(ctx, dims), _u32(ctx, dims, 6)), dtype)
        whole = R.add(R.multiply(high, scalar(2.0**26, dtype)), low)
        return R.multiply(whole, scalar(2.0**-53, dtype))
    # Narrow dtypes hold fewer bits: more of them would round up to 1.
    kept = {"float16": 11, "bfloat16": 8}.get(dtype, 24)
    top = row("shift_right_logical", bits(ctx, dims), _u32(ctx, dims, 32 - kept))
    return ctx.cast(R.multiply(R.astype(top, "float32"), scalar(2.0**-kept, "float32")), dtype)


def _u32(ctx: Context, dims: Dims, value: int) -> Expr:
    return R.broadcast_to(Constant(np.array(value, np.uint32)), dims)


def normal01(ctx: Context, dims: Dims, dtype: str) -> Expr:
    """The standard normal distribution, by its inverse."""
    kind = dtype if dtype == "float64" else "float32"
    u = uniform01(ctx, dims, kind)
    # Between -1 and 1, neither of them.
    tiny = 2.0**-54 if kind == "float64" else 2.0**-25
    centred = R.subtract(R.multiply(R.add(u, scalar(tiny, kind)), scalar(2, kind)), scalar(1, kind))
    edge = 1.0 - (2.0**-53 if kind == "float64" else 2.0**-24)
    centred = R.minimum(R.maximum(centred, scalar(-edge, kind)), scalar(edge, kind))
    return ctx.cast(R.multiply(chlo("erf_inv", centred), scalar(math.sqrt(2.0), kind)), dtype)


def _drawing(draw: Draw) -> Function:
    return lambda ctx: _of(ctx, draw)


aten("rand rand.generator rand_like rand_like.generator", ignored="size self dtype")(
    _drawing(uniform01)
)
aten("randn randn.generator randn_like randn_like.generator", ignored="size self dtype")(
    _drawing(normal01)
)


def _of(ctx: Context, draw: Draw) -> Expr:
    dtype = ctx.dtype()
    if dtype.startswith("complex"):
        part = REAL[dtype]
        parts = [draw(ctx, ctx.dims(), part) for _ in range(2)]
        # Of variance 1 together.
        if draw is normal01:
            parts = [R.multiply(p, scalar(math.sqrt(0.5), part)) for p in parts]
        return row("complex", *parts)
    return draw(ctx, ctx.dims(), dtype)


def _moved(ctx: Context, mean: Any, std: Any) -> Expr:
    dtype = ctx.dtype()
    x = _of(ctx, normal01)
    return R.add(R.multiply(x, ctx.tensor(std, dtype)), ctx.tensor(mean, dtype))


@aten(
    "normal_functional normal.Tensor_float normal.float_Tensor",
    "normal.Tensor_Tensor normal.float_float prims::normal",
    ignored="self size shape dtype requires_grad",
)
def normal(ctx: Context, mean: Any = 0.0, std: Any = 1.0) -> Expr:
    return _moved(ctx, mean, std)


def _between(ctx: Context, low: float, high: float) -> Expr:
    dtype = ctx.dtype()
    u = uniform01(ctx, ctx.dims(), dtype)
    return R.add(R.multiply(u, scalar(float(high - low), dtype)), scalar(float(low), dtype))


aten("prims::uniform", ignored="shape dtype stride")(_between)


@aten("uniform", ignored="self")
def uniform(ctx: Context, from_: Any = 0.0, to: Any = 1.0) -> Expr:
    return _between(ctx, from_, to)


@aten(
    "randint randint.low randint.generator randint.low_generator",
    "randint_like randint_like.low_dtype",
    "randint_like.generator randint_like.low_generator_dtype",
    ignored="size self dtype",
)
def randint(ctx: Context, high: Any, low: Any = 0) -> Expr:
    first, last = _static(low, "a bound of randint"), _static(high, "a bound of randint")
    return _whole(ctx, first, last)


def _whole(ctx: Context, first: int, last: int) -> Expr:
    """From ``first`` up to ``last``, which is left out: of 64 random bits, by their remainder."""
    dims = ctx.dims()
    wide = [R.astype(bits(ctx, dims), "uint64") for _ in range(2)]
    shift = R.broadcast_to(Constant(np.array(32, np.uint64)), dims)
    whole = R.bitwise_or(row("shift_left", wide[0], shift), wide[1])
    size = R.broadcast_to(Constant(np.array(last - first, np.uint64)), dims)
    rest = R.astype(row("remainder", whole, size), "int64")
    return ctx.cast(R.add(rest, scalar(first, "int64")), ctx.dtype())


# Up to which every whole number is one of the dtype.
_WHOLE = {"float64": 2**53, "float32": 2**24, "float16": 2**11, "bfloat16": 2**8, "bool": 1}


@aten("random", "random.to", ignored="self")
def random(ctx: Context, to: int | None = None) -> Expr:
    """Without ``to`` up to the largest number of the dtype, of floats as far as it holds all."""
    dtype = ctx.dtype()
    if to is None:
        to = 1 + (_WHOLE[dtype] if dtype in _WHOLE else int(np.iinfo(dtype).max))
    return _whole(ctx, 0, to)


@aten("randperm", "randperm.generator", ignored="n dtype")
def randperm(ctx: Context) -> Expr:
    order = R.argsort(R.astype(bits(ctx, ctx.dims()), "int64"), -1, False, "int64")
    return ctx.cast(order, ctx.dtype())


@aten("bernoulli", "bernoulli.p", "bernoulli.Tensor")
def bernoulli(ctx: Context, self: Expr, p: Any = None) -> Expr:
    chance = self if p is None else p
    kind = dtype_of(self) if is_float(dtype_of(self)) else "float32"
    u = uniform01(ctx, ctx.dims(), "float64" if kind == "float64" else "float32")
    return ctx.cast(R.less(u, ctx.tensor(chance, dtype_of(u))), ctx.dtype())


@aten("exponential", ignored="self")
def exponential(ctx: Context, lambd: float = 1.0) -> Expr:
    dtype = ctx.dtype()
    u = uniform01(ctx, ctx.dims(), dtype)
    gone = row("log_plus_one", R.negative(u))
    return R.divide(R.negative(gone), scalar(float(lambd), dtype))


@aten("geometric", ignored="self")
def geometric(ctx: Context, p: float) -> Expr:
    """Trials up to the first success."""
    dtype = ctx.dtype()
    kind = dtype if is_float(dtype) else "float32"
    gone = row("log_plus_one", R.negative(uniform01(ctx, ctx.dims(), kind)))
    failures = R.floor(R.divide(gone, scalar(math.log1p(-p), kind)))
    return ctx.cast(R.add(failures, scalar(1, kind)), dtype)


@aten("log_normal", ignored="self")
def log_normal(ctx: Context, mean: float = 1.0, std: float = 2.0) -> Expr:
    return R.exp(_moved(ctx, mean, std))


@aten("cauchy", ignored="self")
def cauchy(ctx: Context, median: float = 0.0, sigma: float = 1.0) -> Expr:
    dtype = ctx.dtype()
    turn = R.subtract(uniform01(ctx, ctx.dims(), dtype), scalar(0.5, dtype))
    far = R.tan(R.multiply(turn, scalar(math.pi, dtype)))
    return R.add(R.multiply(far, scalar(sigma, dtype)), scalar(median, dtype))


@aten("multinomial")
def multinomial(ctx: Context, self: Expr, num_samples: Any, replacement: bool = False) -> Expr:
    """The largest of log(p) + Gumbel noise: with replacement one draw a sample, else the top."""
    p = ctx.emit(ctx.cast(self, "float32"))
    count = _static(num_samples, "num_samples")
    *lead, size = dims_of(p)
    weight = R.log(p)
    if not replacement:
        noise = _gumbel(ctx, dims_of(p))
        return ctx.emit(R.topk(R.add(weight, noise), count, -1, "indices", True, "int64"))
    noise = _gumbel(ctx, (*lead, count, size))
    at = R.argmax(R.add(R.expand_dims(weight, [-2]), noise), -1, False)
    return ctx.cast(at, "int64")


def _gumbel(ctx: Context, dims: Dims) -> Expr:
    u = R.add(uniform01(ctx, dims, "float32"), scalar(2.0**-25, "float32"))
    return R.negative(R.log(R.negative(R.log(u))))


# -- dropout -------------------------------------------------------------------------------------
def kept(ctx: Context, dims: Dims, p: float) -> Expr:
    """Where something stays that is dropped with the probability ``p``."""
    return ctx.emit(R.greater_equal(uniform01(ctx, dims, "float32"), scalar(float(p), "float32")))


def _scaled(ctx: Context, x: Expr, mask: Expr, p: float) -> Expr:
    dtype = dtype_of(x)
    if p == 1:
        return R.zeros_like(x)
    return R.where(mask, R.multiply(x, scalar(1.0 / (1.0 - p), dtype)), scalar(0, dtype))


@aten("native_dropout")
def native_dropout(ctx: Context, input: Expr, p: float, train: bool | None) -> tuple[Expr, Expr]:
    if train is False or p == 0:
        return input, ctx.full(dims_of(input), True, "bool")
    mask = kept(ctx, dims_of(input), p)
    return _scaled(ctx, input, mask, p), mask


SATURATION = -1.7580993408473766  # of SELU: what dropped values become


def _alpha(ctx: Context, x: Expr, mask: Expr, p: float) -> Expr:
    if p == 1:
        return R.zeros_like(x)
    dtype = dtype_of(x)
    a = 1.0 / math.sqrt((SATURATION * SATURATION * p + 1) * (1 - p))
    alive = R.where(mask, x, scalar(SATURATION, dtype))
    return R.add(R.multiply(alive, scalar(a, dtype)), scalar(-a * SATURATION * p, dtype))


def _dropping(change: Callable[[Context, Expr, Expr, float], Expr], channels: bool) -> Function:
    """``change`` of the input, where it stays, and p; ``channels``: whole ones are dropped."""

    def convert(ctx: Context, input: Expr, p: float, train: bool) -> Expr:
        if not train or p == 0:
            return input
        dims = dims_of(input)
        dims = (*dims[:2], *[1] * (len(dims) - 2)) if channels else dims
        return change(ctx, input, kept(ctx, dims, p), p)

    return convert


dropout = aten("dropout")(_dropping(_scaled, False))
aten("feature_dropout")(_dropping(_scaled, True))
aten("alpha_dropout")(_dropping(_alpha, False))
aten("feature_alpha_dropout")(_dropping(_alpha, True))


@aten("rrelu", "rrelu_with_noise", "rrelu_with_noise_functional")
def rrelu(
    ctx: Context,
    self: Expr,
    noise: Any = None,
    lower: Any = 0.125,
    upper: Any = 1 / 3,
    training: bool = False,
) -> Any:
    dtype = dtype_of(self)
    if training:
        u = uniform01(ctx, dims_of(self), dtype)
        slope = R.add(R.multiply(u, scalar(float(upper - lower), dtype)), scalar(lower, dtype))
    else:
        slope = scalar((lower + upper) / 2, dtype)
    above = ctx.emit(R.greater(self, scalar(0, dtype)))
    slope = ctx.emit(R.where(above, scalar(1, dtype), slope))
    y = R.multiply(self, slope)
    return (y, slope if training else noise) if isinstance(ctx.out, list | tuple) else y
