# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: random numbers.

Without a seed they are others at each run and in each iteration of a loop: XLA makes them from a
key that the host draws (``R.random_key``) and the number of the iteration. With one they are the
same each time; small tensors of static shape are then what numpy's ``RandomState(seed)`` draws, as
in the reference of ONNX.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.converters import onnx_op
from relax2xla.importers.onnx.engine.known_values import dims_of, dtype_of, scalar
from relax2xla.importers.onnx.read.tensors import dtype_of_code
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.tensors import chlo
from relax2xla.ir import Constant, Expr, TupleGetItem
from relax2xla.stablehlo.draws import DRAWS, drawn_bits
from relax2xla.tir import Dim

# Values that are drawn at import.
DRAWN_LIMIT = 1 << 16
RANDOM = frozenset(
    {
        "Bernoulli",
        "Dropout",
        "Multinomial",
        "RandomNormal",
        "RandomNormalLike",
        "RandomUniform",
        "RandomUniformLike",
    }
)
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")


def _number(seed: float | None) -> int | None:
    """The seed that a node has, None where it has none."""
    return None if seed is None or not math.isfinite(seed) else int(seed) & 0xFFFFFFFF


def new_key(ctx: Context) -> Expr:
    """A key (1,), uint64, for this node and run; in a loop of XLA for the iteration, too."""
    name = ctx.builder.get_unique_name("draw")
    if ctx.key is not None:
        return folded(ctx, ctx.key, Constant(np.array(_crc(name), np.uint64)))
    if not ctx.host:
        raise Unsupported("random numbers without a seed in a loop of XLA")
    return ctx.emit(R.random_key(name))


def folded(ctx: Context, key: Expr, number: Expr) -> Expr:
    """The key for ``number``, a scalar: what the generator of ``key`` draws at this place."""
    at = R.reshape(ctx.cast(number, "uint64"), (1,))
    bits = drawn_bits(R.concat([key, at]), (1,), "uint64", "THREE_FRY", None)
    return ctx.emit(TupleGetItem(bits, 1))


def loop_key(ctx: Context, *bodies: GraphProto) -> Callable[[Expr], Expr | None]:
    """Keys by the number of the iteration, for the bodies of a loop of XLA.

    The key of the loop is drawn where the builder stands, if there are random numbers in it.
    """
    if not (ctx.host or ctx.key) or not any(_draws(g) for g in bodies):
        return lambda at: None
    key = new_key(ctx)
    return lambda at: folded(ctx, key, at)


def _draws(graph: GraphProto) -> bool:
    """Whether there may be random numbers; the model's own functions count as having some."""
    stack = [graph]
    while stack:
        for node in stack.pop().node:
            own = node.domain not in DOMAINS
            if own or (node.op_type in RANDOM and node.domain in DOMAINS[:2]):
                return True
            for a in node.attribute:
                stack += [a.g] if a.HasField("g") else list(a.graphs)
    return False


def _static(dims: Sequence[Dim]) -> tuple[int, ...] | None:
    known = tuple(d for d in dims if isinstance(d, int))
    return known if len(known) == len(dims) and math.prod(known) <= DRAWN_LIMIT else None


def uniform(ctx: Context, dims: Sequence[Dim], seed: float | None, dtype: str) -> Expr:
    """Numbers in [0, 1)."""
    number, known = _number(seed), _static(dims)
    if number is not None and known is not None:
        return Constant(np.asarray(np.random.RandomState(number).random_sample(known), dtype))
    part = R.multiply(_bits(ctx, dims, number, 24), scalar(2.0**-24, "float32"))
    return ctx.cast(part, dtype)


def _bits(ctx: Context, dims: Sequence[Dim], seed: int | None, count: int) -> Expr:
    """Integers of ``count`` random bits as float32, which holds 24 of them exactly."""
    key = new_key(ctx) if seed is None else Constant(np.array([seed], np.uint64))
    state = ctx.emit(R.concat([key, Constant(np.zeros(1, np.uint64))]))
    # With a seed the file says which numbers.
    number = None if seed is not None else _crc(ctx.builder.get_unique_name("bits")) % DRAWS
    bits = TupleGetItem(drawn_bits(state, dims, "uint32", "THREE_FRY", number), 1)
    return R.astype(R.right_shift(bits, scalar(32 - count, "uint32")), "float32")


def _crc(name: str) -> int:
    return zlib.crc32(name.encode())


def _normal(ctx: Context, dims: Sequence[Dim], seed: float | None, dtype: str) -> Expr:
    number, known = _number(seed), _static(dims)
    if number is not None and known is not None:
        return Constant(np.asarray(np.random.RandomState(number).standard_normal(known), dtype))
    # Odd multiples of 2**-23, all of which float32 holds: between -1 and 1, and none of them.
    odd = R.multiply(_bits(ctx, dims, number, 23), scalar(2.0**-22, "float32"))
    made = chlo("erf_inv", R.add(odd, scalar(2.0**-23 - 1, "float32")))
    return ctx.cast(R.multiply(made, scalar(math.sqrt(2), "float32")), dtype)


def _float(code: int | None, like: str, what: str) -> str:
    """The dtype that an attribute says, or without one ``like``."""
    kind = like if code is None else dtype_of_code(code, what).name
    if not is_float(kind):
        raise Unsupported(f"random numbers of {kind}")
    return kind


def _spread(ctx: Context, x: Expr, low: float, high: float, dtype: str) -> Expr:
    moved = R.add(R.multiply(x, scalar(high - low, "float32")), scalar(low, "float32"))
    return ctx.cast(moved, dtype)


@onnx_op("RandomUniform", lacks="input", needs="shape", dtype=1)
@onnx_op("RandomUniformLike", lacks="shape", needs="input")
def random_uniform(
    ctx: Context,
    input: Expr | None = None,
    *,
    dtype: int | None = None,
    high: float = 1.0,
    low: float = 0.0,
    seed: float | None = None,
    shape: list[int] | None = None,
) -> Expr:
    dims, like = _form(input, shape)
    kind = _float(dtype, like, ctx.op)
    return _spread(ctx, uniform(ctx, dims, seed, "float32"), low, high, kind)


@onnx_op("RandomNormal", lacks="input", needs="shape", dtype=1)
@onnx_op("RandomNormalLike", lacks="shape", needs="input")
def random_normal(
    ctx: Context,
    input: Expr | None = None,
    *,
    dtype: int | None = None,
    mean: float = 0.0,
    scale: float = 1.0,
    seed: float | None = None,
    shape: list[int] | None = None,
) -> Expr:
    dims, like = _form(input, shape)
    kind = _float(dtype, like, ctx.op)
    return _spread(ctx, _normal(ctx, dims, seed, "float32"), mean, mean + scale, kind)


def _form(x: Expr | None, shape: Sequence[int] | None) -> tuple[Sequence[Dim], str]:
    """The shape and the dtype of a tensor, or the shape that is given."""
    return (shape or (), "float32") if x is None else (dims_of(x), dtype_of(x))


@onnx_op("Bernoulli", since=15)
def bernoulli(
    ctx: Context, input: Expr, *, dtype: int | None = None, seed: float | None = None
) -> Expr:
    kind = dtype_of(input) if dtype is None else dtype_of_code(dtype, "Bernoulli").name
    chance = ctx.cast(input, "float32") if dtype_of(input) != "float64" else input
    drawn = uniform(ctx, dims_of(input), seed, dtype_of(chance))
    return ctx.cast(R.less(drawn, chance), kind)


@onnx_op("Multinomial", since=7)
def multinomial(
    ctx: Context,
    input: Expr,
    *,
    dtype: int = 6,
    sample_size: int = 1,
    seed: float | None = None,
) -> Expr:
    """Classes by their unnormalised log-probabilities: where the running total passes a draw."""
    batch, classes = dims_of(input)
    chance = R.nn.softmax(ctx.cast(input, "float32"), 1)
    total = R.expand_dims(R.cumsum(chance, 1), [1])
    drawn = R.expand_dims(uniform(ctx, (batch, sample_size), seed, "float32"), [2])
    passed = R.sum(R.astype(R.greater_equal(drawn, total), "int64"), [2])
    last = R.subtract(ctx.size(classes, "int64"), scalar(1, "int64"))
    return ctx.cast(R.minimum(passed, last), dtype_of_code(dtype, "Multinomial").name)


def dropped(ctx: Context, x: Expr, ratio: Any, seed: int | None) -> tuple[Expr, Expr]:
    """``x`` with a share of its elements dropped and the others scaled up, and the mask.

    ratio: the share, which may be symbolic
    """
    share: Expr
    if isinstance(ratio, float):
        if not 0 <= ratio < 1:
            raise ValueError(f"ratio={ratio} is not in [0, 1)")
        share, factor = scalar(ratio, "float64"), scalar(1 / (1 - ratio), dtype_of(x))
    else:
        share = ctx.emit(R.number_to_tensor(ratio, "float64", 0.0, 1.0))
        rest = R.subtract(scalar(1, "float64"), share)
        factor = ctx.cast(R.divide(scalar(1, "float64"), rest), dtype_of(x))
    kept = ctx.emit(R.greater_equal(uniform(ctx, dims_of(x), seed, "float64"), share))
    scaled = R.multiply(x, factor)
    return R.where(kept, scaled, scalar(0, dtype_of(x))), kept
