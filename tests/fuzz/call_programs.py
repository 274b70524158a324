"""Random Relax programs around what becomes calls of functions in C++.

A program is one or two cores (a product, a convolution, attention, a norm, moments) and what may
follow them in a call, or nearly does: arithmetic with constants of any rank, activations, axes in
another order or in their own, other dtypes, parts, second readers.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

# Elements of a value, and the axes that one has at most.
MOST, AXES = 1 << 16, 5


@dataclass
class Program:
    """A program that grows: ``given`` are its parameters, each with how far it may be scaled."""

    draw: random.Random
    builder: Any
    rng: np.random.Generator
    params: list[Any] = field(default_factory=list[Any])
    arrays: list[Any] = field(default_factory=list[Any])
    plain: list[bool] = field(default_factory=list[bool])

    def param(self, shape: Sequence[int], dtype: str = "float32", plain: bool = False) -> Any:
        """A new parameter. plain: whether its values stay as they are where others are large."""
        from relax2xla import TensorStructInfo, Var

        var = Var(f"p{len(self.params)}", TensorStructInfo(tuple(shape), dtype))
        self.params.append(var)
        self.arrays.append(self.rng.standard_normal(tuple(shape)).astype(dtype))
        self.plain.append(plain)
        return var

    def weight(self, shape: Sequence[int], depth: int, dtype: str) -> Any:
        """A constant, or a parameter; sums of ``depth`` products by it are as large as those."""
        if self.draw.random() < 0.3:
            found = self.param(shape, dtype, plain=True)
            self.arrays[-1] /= np.float32(depth**0.5)
            return found
        return constant(self.rng.standard_normal(tuple(shape)) / depth**0.5, dtype)

    def emit(self, value: Any) -> Any:
        """A binding of a value."""
        return self.builder.emit(self.builder.normalize(value))


def constant(value: Any, dtype: str) -> Any:
    """A constant of an array or a number."""
    from relax2xla import const

    return const(np.asarray(value).astype(dtype))


def shape_of(value: Any) -> tuple[int, ...]:
    """The sizes of an expression's axes."""
    return tuple(int(d) for d in value.struct_info.dims)


def dtype_of(value: Any) -> str:
    """The dtype of an expression."""
    return str(value.struct_info.dtype)


# What makes the next value of one; None where it has not the axes for that.
Step: TypeAlias = Callable[[Program, Any], Any]


# -- cores -----------------------------------------------------------------------------------------
def _matmul(p: Program, x: Any) -> Any:
    from relax2xla import op

    *_, depth = shape = shape_of(x)
    if len(shape) < 2:
        return None
    weight = p.weight((depth, p.draw.choice((4, 48, 64, 70))), depth, dtype_of(x))
    return op.matmul(x, weight, out_dtype=p.draw.choice((*[None] * 4, "float16", "float64")))


def _linear(p: Program, x: Any) -> Any:
    """An einsum, the weight's results first or last."""
    from relax2xla import op

    *_, depth = shape = shape_of(x)
    axes = "abcdefg"[: len(shape)]
    if len(shape) < 2:
        return None
    results, first = p.draw.choice((4, 48, 64)), p.draw.random() < 0.5
    sizes = (results, depth) if first else (depth, results)
    both = f"z{axes[-1]}" if first else f"{axes[-1]}z"
    weight = p.weight(sizes, depth, dtype_of(x))
    return op.einsum((x, weight), f"{axes},{both}->{axes[:-1]}z")


def _turned(p: Program, x: Any) -> Any:
    """A matrix whose axes are named, by another that is given."""
    from relax2xla import op

    shape = shape_of(x)
    if len(shape) != 2:
        return None
    axes = p.draw.choice((None, (1, 0), (-1, 0), (-1, -2), (0, 1), (0, -1), (-2, -1), (-2, 1)))
    turned = op.permute_dims(op.tanh(x) if p.draw.random() < 0.3 else x, axes)
    depth = shape[0] if axes is None or axes[0] % 2 else shape[1]
    other = p.param((depth, p.draw.choice((50, 70))), dtype_of(x), plain=True)
    out_dtype = p.draw.choice((*[None] * 5, "float64"))
    return op.matmul(turned, other, out_dtype=out_dtype)


def _convolved(spatial: int, layout: str) -> Step:
    """A convolution, plain or by groups, of images or volumes."""

    def make(p: Program, x: Any) -> Any:
        from relax2xla import op

        shape, window = shape_of(x), p.draw.choice((1, 3, 3, 5))
        if len(shape) != spatial + 2:
            return None
        last = layout.endswith("C")
        channels = shape[-1 if last else 1]
        sizes = shape[1:-1] if last else shape[2:]
        window = min(window, *sizes)
        groups = p.draw.choice([1, 1, 1, *(g for g in (2, 4, channels) if channels % g == 0)])
        results = groups * max(1, p.draw.choice((16, 48)) // groups)
        if groups == channels:
            results = channels * p.draw.choice((1, 1, 2))
        inner = channels // groups
        if last:
            weight = (*[window] * spatial, inner, results)
        else:
            weight = (results, inner, *[window] * spatial)
        kernel = "DHW"[-spatial:]
        options: dict[str, Any] = {
            "strides": p.draw.choice((1, 1, 2)),
            "padding": p.draw.choice((0, window // 2)),
            "dilation": 1,
            "groups": groups,
            "data_layout": layout,
            "kernel_layout": f"{kernel}IO" if last else f"OI{kernel}",
        }
        if spatial == 2 and p.draw.random() < 0.15:
            options["out_dtype"] = "float64"
        function = op.nn.conv2d if spatial == 2 else op.nn.conv3d
        depth = inner * window**spatial
        return function(x, p.weight(weight, depth, dtype_of(x)), **options)

    return make


def _attention(p: Program, x: Any) -> Any:
    """Queries and keys of parameters, and the values that are here."""
    from relax2xla import op

    shape, dtype = shape_of(x), dtype_of(x)
    if len(shape) not in (3, 4):
        return None
    queries, depth = p.draw.choice((8, 12)), p.draw.choice((8, 16))
    if len(shape) == 4 and p.draw.random() < 0.5:  # (batch, rows, heads, width)
        batch, keys, heads, _ = shape
        q = p.param((batch, queries, heads, depth), dtype, plain=True)
        k = p.param((batch, keys, heads, depth), dtype, plain=True)
        mask = p.draw.choice((None, None, "TopLeft", "BottomRight"))
        bias = None
        if p.draw.random() < 0.4:
            sizes = p.draw.choice(((keys,), (queries, 1), (heads, 1, keys), (1, 1, 1, 1)))
            bias = p.param(sizes, dtype, plain=True)
        return op.nn.attention(q, k, x, bias, causal_mask=mask)
    *heads, keys, _ = shape
    q = p.param((*heads, queries, depth), dtype, plain=True)
    k = p.param((*heads, keys, depth), dtype, plain=True)
    rank = len(shape)
    swap = [*range(rank - 2), p.draw.choice((rank - 1, -1)), p.draw.choice((rank - 2, -2))]
    scores = op.matmul(q, op.permute_dims(k, swap))
    for _ in range(p.draw.choice((0, 1, 1, 2))):
        grown = p.draw.choice((_scaled_scores, _biased_scores))(p, scores, shape)
        scores = scores if grown is None else grown
    weights = op.nn.softmax(scores, axis=p.draw.choice((-1, -1, -1, rank - 1, rank - 2)))
    return op.matmul(weights, x, out_dtype=p.draw.choice((*[None] * 4, "float16", "float64")))


def _scaled_scores(p: Program, scores: Any, shape: Sequence[int]) -> Any:
    from relax2xla import op

    value = constant(np.full((1,) * p.draw.randint(0, len(shape)), 0.3), "float32")
    return p.draw.choice((op.multiply, op.divide))(scores, value)


def _biased_scores(p: Program, scores: Any, shape: Sequence[int]) -> Any:
    from relax2xla import op

    keys = shape[-2]
    sizes = p.draw.choice(((keys,), (1, keys), (*shape[:-2], 1, keys), (1,), (1,) * len(shape)))
    return p.draw.choice((op.add, op.subtract))(
        scores, constant(p.rng.normal(size=sizes), "float32")
    )


def _norm(p: Program, x: Any) -> Any:
    from relax2xla import op

    *_, size = shape = shape_of(x)
    axes = p.draw.choice((-1, -1, [len(shape) - 1]))
    gamma, beta = (constant(p.rng.uniform(0.5, 1.5, size), dtype_of(x)) for _ in range(2))
    if p.draw.random() < 0.5:
        return op.nn.rms_norm(x, gamma, axes, 1e-3)
    scale, center = (p.draw.random() < 0.8 for _ in range(2))
    return op.nn.layer_norm(x, gamma, beta, axes, 1e-3, center, scale)


def _written_norm(p: Program, x: Any) -> Any:
    """A layer norm or RMS norm in arithmetic; over the last axis, or over those of a batch norm."""
    from relax2xla import op

    rank, dtype = len(shape_of(x)), dtype_of(x)
    axes = p.draw.choice(([-1], [-1], [rank - 1], list(range(rank - 1)), [0, *range(2, rank)]))
    if p.draw.random() < 0.5:
        mean = p.emit(op.mean(x, axes, keepdims=True))
        x = p.emit(op.subtract(x, mean))
    power = op.square(x) if p.draw.random() < 0.5 else op.multiply(x, x)
    variance = p.emit(op.mean(power, axes, keepdims=True))
    about = op.add(variance, constant(np.full((1,) * p.draw.randint(0, rank), 1e-3), dtype))
    match p.draw.randrange(3):
        case 0:
            return op.divide(x, op.sqrt(about))
        case 1:
            return op.multiply(x, op.rsqrt(about))
        case _:
            return op.multiply(op.divide(constant(1, dtype), op.sqrt(about)), x)


def _moments(p: Program, x: Any) -> Any:
    """A batch norm by its own mean and variance."""
    from relax2xla import op

    shape, dtype = shape_of(x), dtype_of(x)
    if len(shape) < 3:
        return None
    axes = p.draw.choice((list(range(len(shape) - 1)), [0, *range(2, len(shape))]))
    mean = p.emit(op.mean(x, axes, keepdims=True))
    variance = p.emit(op.variance(x, axes, keepdims=True))
    scale = op.rsqrt(op.add(variance, constant(1e-3, dtype)))
    return op.multiply(op.subtract(x, mean), scale)


# -- what follows ----------------------------------------------------------------------------------
def _sizes(p: Program, shape: Sequence[int]) -> tuple[int, ...]:
    """Sizes that broadcast with ``shape``: of a number, a vector, the whole; up to rank 5."""
    draw, rank = p.draw, len(shape)
    match draw.randrange(4):
        case 0:
            return (1,) * draw.choice((0, 0, rank, *range(AXES + 1)))
        case 1 if rank:
            axis = draw.randrange(rank)
            kept = draw.choice((0, axis)) if axis else 0
            sizes = tuple(d if a == axis else 1 for a, d in enumerate(shape))
            return sizes[kept:]
        case 2:
            return tuple(d if draw.random() < 0.6 else 1 for d in shape)
        case _:
            extra = draw.choice((0, 0, AXES - rank)) if rank < AXES else 0
            return (1,) * extra + tuple(shape)


def _operand(p: Program, x: Any, low: float, high: float) -> Any:
    """A constant, or at times a parameter, that broadcasts with a value."""
    sizes = _sizes(p, shape_of(x))
    if p.draw.random() < 0.2:
        return p.param(sizes, dtype_of(x), plain=True)
    return constant(p.rng.uniform(low, high, sizes), dtype_of(x))


def _pair(p: Program, name: str, x: Any, other: Any) -> Any:
    from relax2xla import op

    both = (x, other) if p.draw.random() < 0.5 else (other, x)
    return getattr(op, name)(*both)


def _sum(p: Program, x: Any) -> Any:
    return _pair(p, p.draw.choice(("add", "add", "subtract")), x, _operand(p, x, -2, 2))


def _factor(p: Program, x: Any) -> Any:
    return _pair(p, "multiply", x, _operand(p, x, -2, 2))


def _quotient(p: Program, x: Any) -> Any:
    from relax2xla import op

    sizes = _sizes(p, shape_of(x))
    return op.divide(x, constant(p.rng.uniform(0.5, 2, sizes), dtype_of(x)))


BOUNDS: Final = (1.0, 6.0, 12.0, 100.0, 1e6)


def _bound(p: Program, x: Any) -> Any:
    """A bound above or below: a number, or one for each of some axes."""
    upper = p.draw.random() < 0.5
    bound = p.draw.choice((0.0, *BOUNDS)) * p.draw.choice((1, 1, -1))
    sizes = _sizes(p, shape_of(x)) if p.draw.random() < 0.5 else ()
    values = np.full(sizes, bound)
    if p.draw.random() < 0.3:
        values = values + p.rng.uniform(-1, 1, sizes)
    return _pair(p, "minimum" if upper else "maximum", x, constant(values, dtype_of(x)))


def _bounds(p: Program, x: Any) -> Any:
    """Both bounds, as relu6 and clips."""
    from relax2xla import op

    high, dtype = p.draw.choice(BOUNDS), dtype_of(x)
    low = p.draw.choice((0.0, 0.0, -high))
    return op.minimum(op.maximum(x, constant(low, dtype)), constant(high, dtype))


def _activation(p: Program, x: Any) -> Any:
    from relax2xla import op

    names = ("relu", "relu6", "silu", "gelu", "gelu_tanh")
    functions = (*(getattr(op.nn, n) for n in names), op.sigmoid, op.tanh)
    return p.draw.choice(functions)(x)


def _bounded(p: Program, x: Any) -> Any:
    """A value with a bound on one side."""
    from relax2xla import op

    bound = p.draw.choice(BOUNDS)
    if p.draw.random() < 0.4:
        return op.maximum(x, constant(-bound, "float32"))
    return op.minimum(x, constant(bound, "float32"))


def _written(p: Program, x: Any) -> Any:
    """An activation in arithmetic, with a bound at one place or more, or a number that is off."""
    from relax2xla import op

    dtype, draw = dtype_of(x), p.draw
    if dtype != "float32":
        return None
    # The reads of the value that have a bound: none, one of them, the result.
    wanted, reads = draw.choice((-1, -1, -1, 0, 1, 9)), itertools.count()
    kind = draw.choice(
        ("silu", "silu by powers", "gelu", "gelu", "gelu_tanh", "hardswish", "hardsigmoid", "relu6")
    )

    def number(value: float) -> Any:
        axes = draw.randint(0, AXES) if draw.random() < 0.35 else 0
        near = value * 1.01 if draw.random() < 0.03 else value
        return constant(np.full((1,) * axes, near), dtype)

    def read() -> Any:
        return _bounded(p, x) if next(reads) == wanted else x

    def relu6(v: Any) -> Any:
        if draw.random() < 0.4:
            return op.nn.relu6(v)
        return op.minimum(op.maximum(v, number(0.0)), number(draw.choice((6.0, 6.0, 12.0))))

    match kind:
        case "silu":
            made = _pair(p, "multiply", read(), op.sigmoid(read()))
        case "silu by powers":
            made = op.divide(read(), op.add(number(1.0), op.exp(op.negative(read()))))
        case "gelu":
            gate = op.add(number(1.0), op.erf(op.multiply(read(), number(0.5**0.5))))
            made = _pair(p, "multiply", _pair(p, "multiply", read(), number(0.5)), gate)
        case "gelu_tanh":
            v = p.emit(read()) if draw.random() < 0.3 else x
            cube = op.multiply(op.multiply(op.multiply(v, v), v), number(0.044715))
            inner = op.multiply(op.add(read(), cube), number(math.sqrt(2 / math.pi)))
            gate = op.add(op.tanh(inner), number(1.0))
            made = op.multiply(op.multiply(read(), number(0.5)), gate)
        case "hardswish":
            gate = relu6(op.add(read(), number(3.0)))
            made = op.divide(_pair(p, "multiply", read(), gate), number(6.0))
        case "hardsigmoid":
            made = op.divide(relu6(op.add(read(), number(3.0))), number(6.0))
        case _:
            made = relu6(read())
    return _bounded(p, made) if wanted == 9 else made


def _permute(p: Program, x: Any) -> Any:
    """Axes in another order or in their own, counted from either end."""
    from relax2xla import op

    rank = len(shape_of(x))
    order = list(range(rank))
    match p.draw.randrange(3):
        case 0:
            p.draw.shuffle(order)
        case 1 if rank > 1:
            at = p.draw.randrange(rank - 1)
            order[at : at + 2] = order[at : at + 2][::-1]
        case _:
            pass
    return op.permute_dims(x, [a - rank if p.draw.random() < 0.4 else a for a in order])


def _reshape(p: Program, x: Any) -> Any:
    from relax2xla import op

    shape = shape_of(x)
    flat = (math.prod(shape),)
    choices: list[tuple[int, ...]] = [shape, (-1, shape[-1]), flat]
    if len(shape) < AXES:
        at = p.draw.randint(0, len(shape))
        choices.append((*shape[:at], 1, *shape[at:]))
        if shape[-1] % 4 == 0:
            choices.append((*shape[:-1], 4, shape[-1] // 4))
    if len(shape) > 1:
        choices.append((shape[0] * shape[1], *shape[2:]))
    return op.reshape(x, p.draw.choice(choices))


def _cast(p: Program, x: Any) -> Any:
    from relax2xla import op

    return op.astype(x, p.draw.choice(("float16", "float32", "float32", "float64")))


def _slice(p: Program, x: Any) -> Any:
    from relax2xla import op

    shape = shape_of(x)
    axis = p.draw.randrange(len(shape))
    size = shape[axis]
    begin = p.draw.randrange(size) if p.draw.random() < 0.6 else 0
    end = p.draw.choice((size, size, 2**31, min(size, begin + 1 + size // 2)))
    axis -= p.draw.choice((0, len(shape)))
    return op.strided_slice(x, [axis], [begin], [end], [p.draw.choice((1, 1, 2))])


def _concat(p: Program, x: Any) -> Any:
    """Joined with itself, or with what is made of it."""
    from relax2xla import op

    shape = shape_of(x)
    other = x if p.draw.random() < 0.6 else p.emit(op.nn.relu(x))
    both = [x, other] if p.draw.random() < 0.5 else [other, x]
    return op.concat(both, p.draw.randrange(-len(shape), len(shape)))


def _twice(p: Program, x: Any) -> Any:
    """Read by two, which one reads."""
    one, other = (p.draw.choice((_activation, _written, _bound))(p, x) for _ in range(2))
    if one is None or other is None or shape_of(one := p.emit(one)) != shape_of(x):
        return None
    other = x if p.draw.random() < 0.5 else p.emit(other)
    return _pair(p, p.draw.choice(("add", "maximum")), one, other)


def _gate(p: Program, x: Any) -> Any:
    """What it is on the average over an image says how much of it there is (squeeze-excite)."""
    from relax2xla import op

    shape, dtype = shape_of(x), dtype_of(x)
    if len(shape) != 4 or dtype != "float32":
        return None
    axes = p.draw.choice(([1, 2], [2, 3]))
    channels = shape[3] if axes == [1, 2] else shape[1]
    flat = op.reshape(p.emit(op.mean(x, axes, keepdims=True)), (shape[0], channels))
    low = op.nn.relu(op.matmul(flat, p.weight((channels, 8), channels, dtype)))
    high = op.sigmoid(op.matmul(low, p.weight((8, channels), 8, dtype)))
    back = (shape[0], 1, 1, channels) if axes == [1, 2] else (shape[0], channels, 1, 1)
    return op.multiply(x, op.reshape(high, back))


FLAT: Final = ((70, 70), (64, 48), (2, 24, 32), (1, 12, 12, 32), (256, 64))
IMAGES: Final = ((1, 12, 12, 32), (2, 8, 8, 16), (1, 9, 10, 8))
PLANES: Final = ((1, 32, 12, 12), (2, 16, 8, 8), (1, 8, 9, 10))
ROWS: Final = ((2, 17, 3, 8), (2, 3, 17, 8), (3, 24, 16), (2, 2, 32, 64))
# Each core with shapes that suit it.
CORES: Final[tuple[tuple[Step, tuple[tuple[int, ...], ...]], ...]] = (
    (_matmul, FLAT),
    (_matmul, FLAT),
    (_linear, FLAT),
    (_linear, FLAT),
    (_turned, FLAT[:2]),
    (_convolved(2, "NHWC"), IMAGES),
    (_convolved(2, "NCHW"), PLANES),
    (_convolved(3, "NCDHW"), ((1, 8, 6, 6, 6),)),
    (_convolved(3, "NDHWC"), ((1, 6, 6, 6, 8),)),
    (_attention, ROWS),
    (_norm, FLAT),
    (_written_norm, FLAT),
    (_moments, (*IMAGES, *PLANES)),
)
ENDINGS: Final[tuple[Step, ...]] = (_activation, _written, _written, _written, _bounds)
STEPS: Final[tuple[Step, ...]] = (
    *(_sum, _factor, _quotient, _bound, _bounds, _activation, _written, _permute, _permute),
    *(_reshape, _cast, _slice, _concat, _twice, _gate),
)


def program(draw: random.Random) -> tuple[Any, list[Any], list[bool]]:
    """A module, its arguments, and which of them are not scaled."""
    from relax2xla import BlockBuilder

    builder = BlockBuilder()
    p = Program(draw, builder, np.random.default_rng(draw.getrandbits(32)))
    core, shapes = draw.choice(CORES)
    with builder.function("main"):
        with builder.dataflow():
            values = [p.emit(core(p, p.param(draw.choice(shapes))))]
            for step in _steps(draw):
                made = step(p, values[-1])
                if made is None:
                    continue
                value = p.emit(made)
                if 0 < math.prod(shape_of(value)) <= MOST and len(shape_of(value)) <= AXES:
                    values.append(value)
            results = [values[-1]]
            if draw.random() < 0.2:
                results.append(draw.choice(values))
            outputs = [builder.emit_output(r) for r in results]
        builder.emit_func_output(outputs, p.params)
    return builder.get(), p.arrays, p.plain


def _steps(draw: random.Random) -> list[Step]:
    """What follows a core: most often what a call takes with it, then anything, even a core."""
    made: list[Step] = [_sum] if draw.random() < 0.3 else []
    made += [draw.choice(ENDINGS)] if draw.random() < 0.7 else []
    for _ in range(draw.randint(0 if made else 1, 2)):
        made.append(draw.choice(CORES)[0] if draw.random() < 0.2 else draw.choice(STEPS))
    return made
