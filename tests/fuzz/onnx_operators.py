"""Operators of random ONNX models: each draws its operands among the values so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper, numpy_helper

from tests.fuzz.onnx_growth import FLOATS, INTS, KINDS, NUMBERS, SIZES, Graph, NoFit, Value

Rule = Callable[[Graph], object]
RULES: dict[str, Rule] = {}


def _only(wanted: bool, **attributes: Any) -> dict[str, Any]:
    """Attributes that a node has or leaves out."""
    return attributes if wanted else {}


def rule(*names: str) -> Callable[[Callable[[Graph, str], object]], Callable[[Graph, str], object]]:
    """Register what draws the operands of these operators."""

    def register(draw: Callable[[Graph, str], object]) -> Callable[[Graph, str], object]:
        for name in names:
            RULES[name] = lambda g, name=name: draw(g, name)
        return draw

    return register


@rule("Abs", "Neg", "Sign", "Identity")
def _unary(g: Graph, op: str) -> object:
    return g.emit(op, [g.value(exact=op == "Sign")])


@rule("Floor", "Ceil", "Round")
def _steps(g: Graph, op: str) -> object:
    return g.emit(op, [g.value(FLOATS, exact=True)])


@rule("Exp", "Tanh", "Sigmoid", "Softplus", "Softsign", "Erf", "Elu", "LeakyRelu", "HardSigmoid")
def _rounding(g: Graph, op: str) -> object:
    return g.emit(op, [g.value(("float32",))], exact=False)


@rule("Relu", "Clip")
def _bounded(g: Graph, op: str) -> object:
    x = g.value(("float32", "int32") if op == "Relu" else NUMBERS)
    if op == "Relu":
        return g.emit(op, [x])
    bounds = [
        g.leaf(g.numbers((), str(x.data.dtype)), 0.7) if g.chance(0.7) else None for _ in range(2)
    ]
    return g.emit(op, [x, *bounds])


@rule("Add", "Sub", "Mul")
def _arithmetic(g: Graph, op: str) -> object:
    x = g.value()
    pair = [x, g.beside(x)]
    return g.emit(op, pair if g.chance(0.5) else pair[::-1])


@rule("Min", "Max", "Sum", "Mean")
def _variadic(g: Graph, op: str) -> object:
    x = g.value(("float32",) if op in ("Sum", "Mean") else NUMBERS)
    more = [g.beside(x) for _ in range(g.between(0, 2))]
    return g.emit(op, [x, *more], exact=op != "Mean")


@rule("Div", "Mod")
def _division(g: Graph, op: str) -> object:
    x = g.value(INTS if op == "Mod" else NUMBERS, exact=True)
    y = g.beside(x)
    if not y.data.all():
        raise NoFit
    exact = x.data.dtype.kind == "i"
    return g.emit(op, [x, y], exact=exact, **_only(op == "Mod", fmod=g.between(0, 1)))


@rule("Pow")
def _power(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"))
    shape = [1] * g.between(0, 4) if g.chance(0.7) else x.data.shape
    exponent = g.rng.integers(0, 4, shape).astype(g.pick(("float32", "int64")))
    return g.emit(op, [x, g.leaf(exponent)], exact=x.data.dtype.kind == "i")


@rule("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
def _comparison(g: Graph, op: str) -> object:
    x = g.value(exact=True)
    return g.emit(op, [x, g.beside(x, exact=True)])


@rule("And", "Or", "Xor", "Not")
def _logic(g: Graph, op: str) -> object:
    x = g.value(("bool",))
    return g.emit(op, [x] if op == "Not" else [x, g.beside(x)])


@rule("Where")
def _where(g: Graph, op: str) -> object:
    x = g.value()
    y = g.beside(x)
    shape = np.broadcast_shapes(x.data.shape, y.data.shape)
    shape = [d if g.chance(0.7) else 1 for d in shape]
    return g.emit(op, [g.leaf(g.numbers(shape, "bool")), x, y])


@rule("Cast")
def _cast(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), exact=True)
    kind = g.pick((*NUMBERS, "bool", "float16", "int8", "uint8"))
    code = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    return g.emit(op, [x], to=code)


# -- shapes
@rule("Reshape")
def _reshape(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    dims = _regrouped(g, x.data.shape)
    zero = 0
    if 0 in x.data.shape and g.chance(0.3):
        zero = 1
    else:
        # 0 copies the size at the same place.
        dims = [
            0 if i < x.data.ndim and d == x.data.shape[i] and g.chance(0.4) else d
            for i, d in enumerate(dims)
        ]
    if dims and g.chance(0.4) and not (zero and 0 in dims):
        dims[g.between(0, len(dims) - 1)] = -1
    return g.emit(op, [x, g.sizes(dims)], **_only(zero == 1, allowzero=zero))


def _regrouped(g: Graph, shape: Sequence[int]) -> list[int]:
    """Sizes of as many elements."""
    total = math.prod(shape)
    if not total:
        dims = list(g.shape((1, 2, 3)))
        return dims if 0 in dims else [*dims[:-1], 0]
    dims: list[int] = []
    for factor in (2, 2, 3, 3, 4):
        if total % factor == 0 and g.chance(0.5):
            dims.append(factor)
            total //= factor
    dims.append(total)
    dims += [1] * g.between(0, 2)
    return [dims[int(i)] for i in g.rng.permutation(len(dims))]


@rule("Flatten")
def _flatten(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    return g.emit(op, [x], axis=g.between(-x.data.ndim, x.data.ndim))


@rule("Squeeze")
def _squeeze(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: 1 in v.data.shape)
    if g.chance(0.2) and x.name in g.weights:  # else the rank would depend on the sizes
        return g.emit(op, [x])
    ones = [i for i, d in enumerate(x.data.shape) if d == 1]
    axes = sorted({g.pick(ones) for _ in range(2)})
    return g.emit(op, [x, g.known([a - x.data.ndim if g.chance(0.3) else a for a in axes])])


@rule("Unsqueeze")
def _unsqueeze(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    count = g.between(1, 2)
    rank = x.data.ndim + count
    axes = [int(a) for a in g.rng.permutation(rank)[:count]]
    return g.emit(op, [x, g.known([a - rank if g.chance(0.3) else a for a in axes])])


@rule("Transpose")
def _transpose(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    perm = [int(i) for i in g.rng.permutation(x.data.ndim)]
    return g.emit(op, [x], **_only(bool(perm) and g.chance(0.8), perm=perm))


@rule("Expand")
def _expand(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    dims = [g.pick(SIZES) if d == 1 else d if g.chance(0.7) else 1 for d in x.data.shape]
    dims = [*g.shape((0, 0, 1)), *dims] if g.chance(0.7) else dims[g.between(0, len(dims)) :]
    return g.emit(op, [x, g.sizes(dims)])


@rule("Tile")
def _tile(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    return g.emit(op, [x, g.sizes([g.pick((0, 1, 1, 2, 3)) for _ in x.data.shape])])


@rule("Concat")
def _concat(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0)
    axis = g.axis(x)
    parts = [x]
    for _ in range(g.between(0, 2)):
        shape = list(x.data.shape)
        shape[axis] = g.pick(SIZES)
        parts.append(x if g.chance(0.3) else g.leaf(g.numbers(shape, str(x.data.dtype))))
    return g.emit(op, [parts[int(i)] for i in g.rng.permutation(len(parts))], axis=axis)


@rule("Split")
def _split(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0)
    axis = g.axis(x)
    size, count = x.data.shape[axis], g.between(1, 3)
    if g.chance(0.4) and size >= count and size % count == 0:
        return g.emit(op, [x], count, axis=axis, num_outputs=count)
    cuts = sorted(g.between(0, size) for _ in range(count - 1))
    lengths = [int(n) for n in np.diff([0, *cuts, size])]
    return g.emit(op, [x, g.sizes(lengths)], count, axis=axis)


@rule("Slice")
def _slice(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0)
    axes = [int(a) for a in g.rng.permutation(x.data.ndim)[: g.between(1, 2)]]
    step = [g.pick((1, 1, 1, 2, -1, -2)) for _ in axes]
    ends = [g.pick((-(2**63), -4, -2, -1, 0, 1, 2, 3, 5, 2**63 - 1)) for _ in axes]
    starts = [g.between(-4, 4) for _ in axes]
    operands = [x, *(g.known(v) for v in (starts, ends, axes, step))]
    return g.emit(op, operands)


@rule("Pad")
def _pad(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"), lambda v: v.data.ndim > 0)
    widths = [g.pick((0, 0, 1, 2, -1)) for _ in range(2 * x.data.ndim)]
    rank = x.data.ndim
    if any(d + widths[i] + widths[i + rank] < 0 for i, d in enumerate(x.data.shape)):
        raise NoFit
    fill = g.leaf(g.numbers((), str(x.data.dtype)), 0.7) if g.chance(0.7) else None
    return g.emit(op, [x, g.known(widths), fill])


@rule("Gather", "GatherElements")
def _gather(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0)
    axis = g.axis(x)
    shape = g.shape((0, 1, 1, 2))
    if op == "GatherElements":
        shape = tuple(g.between(0, d) for d in x.data.shape)
    return g.emit(op, [x, _indices(g, x.data.shape[axis], shape)], axis=axis)


def _indices(g: Graph, size: int, shape: Sequence[int]) -> Value:
    """Positions among ``size``, counted from either end."""
    if not size and math.prod(shape):
        raise NoFit
    return g.known(g.rng.integers(-size, max(size, 1), shape), g.pick(("int64", "int32")))


@rule("GatherND")
def _gather_nd(g: Graph, op: str) -> object:
    x = g.value(NUMBERS, lambda v: v.data.ndim > 0)
    depth = g.between(1, x.data.ndim)
    count = g.pick(SIZES)
    sizes = x.data.shape[:depth]
    if 0 in sizes and count:
        raise NoFit
    columns = [g.rng.integers(-s, max(s, 1), (count, 1)) for s in sizes]
    return g.emit(op, [x, g.known(np.concatenate(columns, 1))])


@rule("ScatterElements")
def _scatter_elements(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"), lambda v: v.data.ndim > 0)
    axis = g.axis(x) % x.data.ndim
    shape = [g.between(0, d) for d in x.data.shape]
    # No place twice along the axis: the order of writes would count.
    ranks = np.argsort(g.rng.random(x.data.shape), axis)
    where = ranks[tuple(slice(0, n) for n in shape)]
    return g.emit(op, [x, g.known(where), g.leaf(g.numbers(shape, str(x.data.dtype)))], axis=axis)


@rule("ScatterND")
def _scatter_nd(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"), lambda v: v.data.ndim > 0)
    rows = g.rng.permutation(x.data.shape[0])[: g.pick(SIZES)].reshape(-1, 1)
    updates = g.numbers((len(rows), *x.data.shape[1:]), str(x.data.dtype))
    return g.emit(op, [x, g.known(rows), g.leaf(updates)])


@rule("Compress")
def _compress(g: Graph, op: str) -> object:
    x = g.value(NUMBERS, lambda v: v.data.ndim > 0)
    axis = g.axis(x)
    flags = g.leaf(g.numbers((x.data.shape[axis],), "bool"))
    return g.emit(op, [x, flags], axis=axis)


@rule("Shape", "Size")
def _shape(g: Graph, op: str) -> object:
    x = g.value((*NUMBERS, "bool"))
    if op == "Size" or g.chance(0.5):
        return g.emit(op, [x])
    return g.emit(op, [x], start=g.between(-3, 2), end=g.between(-2, 4))


@rule("ConstantOfShape")
def _constant_of_shape(g: Graph, op: str) -> object:
    fill = numpy_helper.from_array(g.numbers((1,), g.pick(KINDS)), "fill")
    return g.emit(op, [g.sizes(g.shape())], **_only(g.chance(0.7), value=fill))


@rule("Range")
def _range(g: Graph, op: str) -> object:
    kind = g.pick(("int64", "int32", "float32"))
    step = g.pick((-2, -1, 1, 2))
    return g.emit(op, [g.known(v, kind) for v in (g.between(-3, 3), g.between(-3, 5), step)])


@rule("NonZero")
def _nonzero(g: Graph, op: str) -> object:
    return g.emit(op, [g.value((*NUMBERS, "bool"), lambda v: v.data.ndim > 0, exact=True)])


@rule("OneHot")
def _one_hot(g: Graph, op: str) -> object:
    where = g.value(("int64",), lambda v: v.data.ndim > 0)
    ends = g.leaf(g.numbers((2,), "float32"))
    return g.emit(op, [where, g.known([g.between(1, 4)]), ends], axis=g.pick((0, -1)))


@rule("Trilu")
def _trilu(g: Graph, op: str) -> object:
    x = g.value(NUMBERS, lambda v: v.data.ndim > 1)
    return g.emit(op, [x, g.known(g.between(-2, 2))], upper=g.between(0, 1))


@rule("CumSum")
def _cumsum(g: Graph, op: str) -> object:
    x = g.value(NUMBERS, lambda v: v.data.ndim > 0)
    where = g.known(g.axis(x))
    return g.emit(op, [x, where], exclusive=g.between(0, 1), reverse=g.between(0, 1))


@rule("EyeLike")
def _eye_like(g: Graph, op: str) -> object:
    return g.emit(op, [g.value(NUMBERS, lambda v: v.data.ndim == 2)], k=g.between(-1, 2))


@rule("DepthToSpace", "SpaceToDepth")
def _blocks(g: Graph, op: str) -> object:
    n, c, h, w = (g.pick(SIZES) for _ in range(4))
    shape = (n, 4 * c, h, w) if op == "DepthToSpace" else (n, c, 2 * h, 2 * w)
    return g.emit(op, [g.leaf(g.numbers(shape, "float32"))], blocksize=2)


# -- along axes
_REDUCTIONS = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")


@rule(*(f"Reduce{r}" for r in _REDUCTIONS))
def _reduce(g: Graph, op: str) -> object:
    # The reference gives the squares of int32 as int64.
    floats = op[6:] in ("Mean", "L2", "LogSumExp", "SumSquare")
    x = g.value(("float32",) if floats else ("float32", "int32"))
    rank = x.data.ndim
    axes = [int(a) for a in g.rng.permutation(rank)[: g.between(0, rank)]]
    axes = [a - rank if g.chance(0.3) else a for a in axes]
    # Of nothing, the two runtimes disagree on a mean and on extremes of integers.
    over = axes or range(rank)
    if any(x.data.shape[a] == 0 for a in over) and op[6:] in ("Mean", "Max", "Min", "LogSumExp"):
        raise NoFit
    by = g.known(axes) if axes or g.chance(0.5) else None
    if op in _REDUCED_LATE and by is not None:
        return g.emit(op, [x, by], exact=False, keepdims=g.between(0, 1))
    if op == "ReduceSum":
        noop = g.between(0, 1)
        return g.emit(op, [x, by], keepdims=g.between(0, 1), noop_with_empty_axes=noop)
    exact = op[6:] in ("Max", "Min", "L1", "SumSquare", "Prod")
    return g.emit(op, [x, by], exact=exact, keepdims=g.between(0, 1))


_REDUCED_LATE = ("ReduceMean", "ReduceL2", "ReduceLogSumExp")


@rule("ArgMax", "ArgMin")
def _position(g: Graph, op: str) -> object:
    x = g.value(("float32", "int32"), lambda v: v.data.ndim > 0, exact=True)
    last, keep = g.between(0, 1), g.between(0, 1)
    return g.emit(op, [x], axis=g.axis(x), keepdims=keep, select_last_index=last)


@rule("TopK")
def _topk(g: Graph, op: str) -> object:
    x = g.value(("float32", "int64"), lambda v: v.data.ndim > 0, exact=True)
    axis = g.axis(x)
    count = g.between(0, x.data.shape[axis])
    return g.emit(op, [x, g.known([count])], 2, axis=axis, largest=g.between(0, 1))


@rule("Softmax", "LogSoftmax", "Hardmax")
def _soft(g: Graph, op: str) -> object:
    x = g.value(("float32",), lambda v: v.data.ndim > 0, exact=op == "Hardmax")
    return g.emit(op, [x], exact=op == "Hardmax", axis=g.axis(x))


# -- products and networks
@rule("MatMul")
def _matmul(g: Graph, op: str) -> object:
    x = g.value(("float32",), lambda v: v.data.ndim > 0)
    shape = [*x.data.shape[:-2], x.data.shape[-1], g.pick(SIZES)]
    shape = shape[g.between(0, len(shape) - 2) :] if g.chance(0.5) else shape
    shape = shape[:1] if g.chance(0.15) and len(shape) == 2 else shape
    return g.emit(op, [x, g.leaf(g.numbers(shape, "float32"))])


@rule("Gemm")
def _gemm(g: Graph, op: str) -> object:
    m, k, n = (g.pick(SIZES) for _ in range(3))
    turned = [g.between(0, 1) for _ in range(2)]
    a = g.leaf(g.numbers((k, m) if turned[0] else (m, k), "float32"))
    b = g.leaf(g.numbers((n, k) if turned[1] else (k, n), "float32"))
    c = g.leaf(g.numbers(g.pick([(m, n), (1, n), (n,), (m, 1), ()]), "float32"))
    more = _only(g.chance(0.5), alpha=0.5, beta=g.pick((0.0, 2.0)))
    return g.emit(op, [a, b, c], transA=turned[0], transB=turned[1], **more)


@rule("Conv")
def _conv(g: Graph, op: str) -> object:
    n, c, size, out, kernel = (g.pick(SIZES) for _ in range(5))
    x = g.leaf(g.numbers((n, max(c, 1), size + 2), "float32"))
    w = g.closed(g.leaf(g.numbers((max(out, 1), max(c, 1), max(kernel, 1)), "float32")))
    pads, strides = [g.between(0, 1) for _ in range(2)], [g.between(1, 2)]
    if kernel > size + 2 + sum(pads):
        pads = [1, 1]  # windows that do not fit are refused; ONNX Runtime computes something
    return g.emit(op, [x, w], pads=pads, strides=strides)


@rule("MaxPool", "AveragePool")
def _pool(g: Graph, op: str) -> object:
    x = g.leaf(g.numbers((g.pick(SIZES), g.pick((1, 2)), g.between(2, 4)), "float32"))
    kernel = g.between(1, 2)
    return g.emit(op, [x], exact=op == "MaxPool", kernel_shape=[kernel], strides=[g.between(1, 2)])


@rule("GlobalAveragePool", "GlobalMaxPool")
def _whole(g: Graph, op: str) -> object:
    # Of rank 3, the reference drops the last axis of a maximum.
    x = g.value(("float32",), lambda v: v.data.ndim > 3 and 0 not in v.data.shape[2:])
    return g.emit(op, [x], exact=op == "GlobalMaxPool")


@rule("LayerNormalization")
def _layer_norm(g: Graph, op: str) -> object:
    x = g.value(("float32",), lambda v: v.data.ndim > 0 and v.data.shape[-1] > 1)
    scale = g.leaf(g.numbers((x.data.shape[-1],), "float32"))
    return g.emit(op, [x, scale], exact=False, axis=-1)


@rule("Einsum")
def _einsum(g: Graph, op: str) -> object:
    x = g.value(("float32",), lambda v: v.data.ndim == 2)
    y = g.leaf(g.numbers((x.data.shape[1], g.pick(SIZES)), "float32"))
    return g.emit(op, [x, y], equation=g.pick(("ij,jk->ik", "ij,jk->ki", "ij,jk->j", "ij,jk->")))
