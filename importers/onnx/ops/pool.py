# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: convolutions and pooling, with ONNX's ways to say padding.

Everything that these operators share is :class:`Window`. Semantics: the operator specifications of
ONNX.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, Unpack

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import is_float, limits, numpy_dtype
from relax2xla.importers.onnx.engine.context import Context, choice
from relax2xla.importers.onnx.engine.converters import Ints, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
    static,
    statics,
)
from relax2xla.importers.shared.dims import fold_dim, larger, product
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.reductions import root
from relax2xla.importers.shared.windows import (
    AVG_POOL,
    CONV,
    CONV_TRANSPOSE,
    MAX_POOL,
    Family,
    biased,
    halves,
)
from relax2xla.ir import Constant, Expr, ShapeExpr
from relax2xla.tir import Dim

# Elements of all windows whose positions are made at import.
POSITIONS_LIMIT = 1 << 26
AUTO = ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")


class Windowed(TypedDict):
    """Attributes of everything that slides a window."""

    auto_pad: Annotated[str, "NOTSET"]
    dilations: Annotated[list[int] | None, None]
    pads: Annotated[list[int] | None, None]
    strides: Annotated[list[int] | None, None]


class Convolved(Windowed):
    """Attributes of convolutions, whose weights say the kernel's shape."""

    group: Annotated[int, 1]
    kernel_shape: Annotated[list[int] | None, None]


@dataclass(frozen=True, slots=True)
class Window:
    """A window over the spatial axes: one number an axis, ``pads`` befores and then afters."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    @staticmethod
    def of(x: Expr, kernel: Sequence[int], given: Windowed, auto_pad: str | None = None) -> Window:
        """With defaults filled in and ``auto_pad`` (the operator's, or this one) made explicit."""
        n = len(kernel)
        step = tuple(given["strides"] or (1,) * n)
        spread = tuple(given["dilations"] or (1,) * n)
        if not len(step) == len(spread) == n == ndim_of(x) - 2:
            raise ValueError(f"{n} kernel sizes for {ndim_of(x) - 2} spatial axes")
        if min((*step, *spread, *kernel)) < 1:
            raise ValueError("kernel sizes, strides and dilations must be positive")
        auto = auto_pad or choice(given["auto_pad"], AUTO, "auto_pad")
        around = [0] * (2 * n)
        if auto == "NOTSET":
            around = given["pads"] or around
        elif auto != "VALID":
            # With a stride of 1 the padding depends on no size.
            sizes = [
                s if s == 1 and not isinstance(d, int) else static(d, f"a spatial size with {auto}")
                for d, s in zip(dims_of(x)[2:], step, strict=True)
            ]
            total = [_same(*of)[1] for of in zip(sizes, kernel, step, spread, strict=True)]
            around = halves(statics(total, "padding"), auto == "SAME_UPPER")
        if len(around) != 2 * n:
            raise ValueError(f"{len(around)} paddings for {n} spatial axes")
        return Window(tuple(kernel), step, spread, tuple(around))


def _same(size: Any, kernel: int, stride: int, dilation: int) -> tuple[Dim, Dim]:
    """Of an axis in a SAME mode: the size of the result, and how much is padded."""
    out: Any = fold_dim((size + (stride - 1)) // stride)
    return out, larger((out - 1) * stride + ((kernel - 1) * dilation + 1) - size, 0)


@dataclass(frozen=True, slots=True)
class LateSame:
    """The padding of a SAME mode where it depends on symbolic sizes: done before the operator.

    ``widths``: for each axis before and behind, ``sizes``: of the result.
    """

    widths: tuple[Dim, ...]
    sizes: tuple[Dim, ...]

    @staticmethod
    def of(ctx: Context, x: Expr, kernel: Sequence[int], given: Windowed) -> LateSame | None:
        """None where :class:`Window` knows the padding, or refuses it."""
        n, space = len(kernel), dims_of(x)[2:]
        step, spread = given["strides"] or [1] * n, given["dilations"] or [1] * n
        auto_pad = given["auto_pad"]
        known = all(isinstance(d, int) or s == 1 for d, s in zip(space, step, strict=False))
        sound = len(space) == len(step) == len(spread) == n and min((*step, *spread, *kernel)) > 0
        if known or not (auto_pad.startswith("SAME") and ctx.binds and sound):
            return None
        widths: list[Dim] = [0] * 4
        sizes: list[Dim] = []
        for size, k, s, d in zip(space, kernel, step, spread, strict=True):
            out, total = _same(size, k, s, d)
            less, more = fold_dim(total // 2), fold_dim(total - total // 2)
            widths += [less, more] if auto_pad == "SAME_UPPER" else [more, less]
            sizes.append(out)
        return LateSame(tuple(widths), tuple(sizes))

    def padded(self, ctx: Context, x: Expr, fill: float = 0.0) -> Expr:
        """``x`` with ``fill`` around it."""
        around = zip(dims_of(x), self.widths[::2], self.widths[1::2], strict=True)
        made = R.nn.pad(x, list(self.widths), "constant", fill)
        return ctx.pinned(made, [fold_dim(size + a + b) for size, a, b in around])

    def pinned(self, ctx: Context, y: Expr) -> Expr:
        """The operator's result ``y`` with its sizes as they follow from the input's."""
        return ctx.pinned(y, [*dims_of(y)[:2], *self.sizes])


# -- convolution ---------------------------------------------------------------------------------
def _spatial(x: Expr, what: str) -> int:
    n = ndim_of(x) - 2
    if n not in (1, 2, 3):
        raise Unsupported(f"{what} over {n} spatial axes")
    return n


def kernel_of(W: Expr, given: Convolved) -> list[int]:
    """The sizes of a kernel, which ``kernel_shape`` may only repeat."""
    found, asked = statics(dims_of(W)[2:], "the kernel's shape"), given["kernel_shape"]
    if asked is not None and list(asked) != found:
        raise ValueError(f"kernel_shape {list(asked)} differs from the weight's {found}")
    return found


@onnx_op("Conv")
def conv(
    ctx: Context, X: Expr, W: Expr, B: Expr | None = None, **window: Unpack[Convolved]
) -> Expr:
    n, x = _spatial(X, "a convolution"), X
    kernel = kernel_of(W, window)
    late = LateSame.of(ctx, X, kernel, window)
    if late is not None:
        x = late.padded(ctx, X)
    w = Window.of(x, kernel, window, late and "VALID")
    if min(w.pads) < 0:
        raise Unsupported("a convolution with negative padding")
    form = {"strides": w.strides, "padding": w.pads, "dilation": w.dilations}
    y = CONV[n](x, W, **form, groups=window["group"])
    y = y if late is None else late.pinned(ctx, ctx.emit(y))
    return biased(y, B)


@onnx_op("ConvTranspose")
def conv_transpose(
    ctx: Context,
    X: Expr,
    W: Expr,
    B: Expr | None = None,
    *,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    **window: Unpack[Convolved],
) -> Expr:
    """``output_shape`` and the SAME modes say the padding; what it lacks is added behind."""
    n = _spatial(X, "a transposed convolution")
    kernel = kernel_of(W, window)
    grown = list(output_padding or [0] * n)
    auto = choice(window["auto_pad"], AUTO, "auto_pad")
    w = Window.of(X, kernel, window, None if auto == "NOTSET" else "VALID")
    around: Sequence[int] = w.pads
    cut: list[tuple[Dim, Dim, Dim]] = []
    if output_shape is not None or auto.startswith("SAME"):
        space = dims_of(X)[2:]
        wanted = (output_shape or [i * s for i, s in zip(space, w.strides, strict=True)])[-n:]
        total = [
            fold_dim((i - 1) * s + o + (k - 1) * d + 1 - out)
            for i, s, o, k, d, out in zip(
                space, w.strides, grown, kernel, w.dilations, wanted, strict=True
            )
        ]
        known = [t if isinstance(t, int) else 0 for t in total]
        grown = [o + max(-t, 0) for o, t in zip(grown, known, strict=True)]
        around = halves([max(t, 0) for t in known], auto == "SAME_UPPER")
        if not all(isinstance(t, int) for t in total):
            cut = [_cut(t, out, auto == "SAME_UPPER") for t, out in zip(total, wanted, strict=True)]
    # What the operator cannot add itself (it allows less than a stride) is padding behind.
    most = [max(s, d) - 1 for s, d in zip(w.strides, w.dilations, strict=True)]
    extra: list[Dim] = [max(g - m, 0) for g, m in zip(grown, most, strict=True)]
    y = CONV_TRANSPOSE[n](
        X,
        W,
        strides=w.strides,
        padding=around,
        output_padding=[min(g, m) for g, m in zip(grown, most, strict=True)],
        dilation=w.dilations,
        groups=window["group"],
    )
    if cut:
        extra = [fold_dim(e + behind) for e, (_, behind, _) in zip(extra, cut, strict=True)]
    if any(not isinstance(e, int) or e for e in extra):
        made = R.nn.pad(y, [0, 0, 0, 0, *(p for e in extra for p in (0, e))])
        sides = zip(dims_of(y), [0, 0, *extra], strict=True)
        y = ctx.pinned(made, [fold_dim(d + e) for d, e in sides]) if cut else made
    if cut:
        first = [f for f, _, _ in cut]
        last = [fold_dim(f + out) for f, _, out in cut]
        whole = [*dims_of(y)[:2], *(out for _, _, out in cut)]
        y = ctx.pinned(R.strided_slice(y, list(range(2, 2 + n)), first, last), whole)
    return biased(y, B)


def _cut(total: Dim, out: Dim, upper: bool) -> tuple[Dim, Dim, Dim]:
    """Of an axis of a transposed convolution that is ``total`` too long, or short, which is a
    symbolic size: where the result begins, what is added behind, and the result's size.
    """
    if isinstance(total, int):  # the operator does it
        return 0, 0, out
    less = fold_dim(larger(total, 0) // 2)
    return (less if upper else fold_dim(larger(total, 0) - less)), larger(-total, 0), out


def channels_first(x: Expr) -> Expr:
    """NHWC as NCHW."""
    n = ndim_of(x)
    return R.permute_dims(x, [0, n - 1, *range(1, n - 1)])


def to_channels_last(x: Expr) -> Expr:
    """NCHW as NHWC."""
    n = ndim_of(x)
    return R.permute_dims(x, [0, *range(2, n), 1])


# -- pooling -------------------------------------------------------------------------------------
def _pool(family: Family, x: Expr, w: Window, **more: Any) -> Expr:
    return family[_spatial(x, "pooling")](
        x, w.kernel, strides=w.strides, padding=w.pads, dilation=w.dilations, **more
    )


@onnx_op("MaxPool")
def max_pool(
    ctx: Context,
    X: Expr,
    *,
    ceil_mode: int = 0,
    kernel_shape: list[int],
    storage_order: int = 0,
    **window: Unpack[Windowed],
) -> list[Expr]:
    late = LateSame.of(ctx, X, kernel_shape, window)
    if late is not None and is_float(dtype_of(X)) and not ctx.wants(1):
        w = Window.of(X, kernel_shape, window, "VALID")
        values = _pool(MAX_POOL, late.padded(ctx, X, -math.inf), w)
        return [late.pinned(ctx, ctx.emit(values))]
    w = Window.of(X, kernel_shape, window)
    values = _pool(MAX_POOL, X, w, ceil_mode=bool(ceil_mode))
    if not ctx.wants(1):
        return [values]
    open_sizes = not all(isinstance(d, int) for d in dims_of(X)[2:])
    positions = _positions_of_open_sizes if open_sizes else _positions
    return [values, positions(ctx, X, ctx.emit(values), w, storage_order)]


def _positions(ctx: Context, x: Expr, pooled: Expr, w: Window, storage_order: int) -> Expr:
    """Where each maximum stands in the flattened tensor; the first of equal ones.

    Each element of each window is looked up by a gather of positions known at import.
    """
    batch, channels = dims_of(x)[:2]
    space, out = (statics(dims_of(t)[2:], "the spatial sizes") for t in (x, pooled))
    n, area = len(w.kernel), math.prod(space)
    if math.prod(out) * math.prod(w.kernel) > POSITIONS_LIMIT:
        raise Unsupported(f"the positions of maxima in windows of {w.kernel} over {space}")
    flat, linear = np.zeros((1,) * 2 * n, np.int64), np.zeros((1,) * 2 * n, np.int64)
    valid = np.ones((1,) * 2 * n, bool)
    for i, size in enumerate(space):
        at = np.arange(out[i])[:, None] * w.strides[i] - w.pads[i]
        at = at + np.arange(w.kernel[i]) * w.dilations[i]
        at = np.expand_dims(at, [k for k in range(2 * n) if k not in (i, n + i)])
        valid = valid & (at >= 0) & (at < size)
        flat = flat * size + at
        # What is counted: the last axis first, or (``storage_order``) the first.
        linear = linear + at * math.prod(space[:i] if storage_order else space[i + 1 :])
    count = math.prod(w.kernel)
    # What is beyond the image comes last, so that the least number is the image's.
    valid, linear = (np.broadcast_to(a, valid.shape).reshape(-1, count) for a in (valid, linear))
    order = np.argsort(~valid, axis=1, kind="stable")
    flat = np.where(valid, flat.reshape(-1, count), 0)
    flat, valid, linear = (np.take_along_axis(a, order, 1) for a in (flat, valid, linear))
    seen = R.take(R.reshape(x, ShapeExpr((batch, channels, area))), Constant(flat), 2)
    dtype = dtype_of(x)
    low = -math.inf if is_float(dtype) else limits(dtype)[0]
    seen = R.where(Constant(valid), seen, scalar(low, dtype))
    best = R.argmax(seen, axis=3, keepdims=True)
    table = Constant(np.ascontiguousarray(linear).reshape(1, 1, -1, count))
    spread = R.broadcast_to(table, ShapeExpr((batch, channels, *linear.shape)))
    local = R.reshape(R.gather_elements(spread, best, 3), ShapeExpr((batch, channels, *out)))
    return _in_the_whole(ctx, x, local)


def _in_the_whole(ctx: Context, x: Expr, local: Expr) -> Expr:
    """Positions within planes of ``x`` as those in all of it."""
    batch, channels, *space = dims_of(x)
    planes = R.arange(0, product((batch, channels)), 1, "int64")
    planes = R.reshape(planes, ShapeExpr((batch, channels, *[1] * len(space))))
    return R.add(local, R.multiply(planes, ctx.size(product(space), "int64")))


def _positions_of_open_sizes(
    ctx: Context, x: Expr, pooled: Expr, w: Window, storage_order: int
) -> Expr:
    """The same, by going over the elements of a window: all windows look at one in turn."""
    batch, channels, *space = dims_of(x)
    out, whole = dims_of(pooled)[2:], ShapeExpr(dims_of(pooled))
    n, zero = len(space), scalar(0, "int64")
    sizes = [ctx.emit(ctx.size(d, "int64")) for d in space]
    flat = ctx.emit(R.reshape(x, ShapeExpr((batch, channels, product(space)))))

    def along(axis: int, tap: int) -> tuple[Expr, Expr]:
        """Where an axis is read, and whether that is in the image."""
        first = tap * w.dilations[axis] - w.pads[axis]
        step = R.multiply(R.arange(0, out[axis], 1, "int64"), scalar(w.strides[axis], "int64"))
        at = R.expand_dims(R.add(step, scalar(first, "int64")), [k for k in range(n) if k != axis])
        last = R.subtract(sizes[axis], scalar(1, "int64"))
        known = ctx.emit(R.maximum(R.minimum(ctx.emit(at), last), zero))
        return known, R.equal(at, known)

    def counted(at: Sequence[Expr], sizes: Sequence[Expr]) -> Expr:
        total = at[0]
        for place, size in zip(at[1:], sizes[1:], strict=True):
            total = R.add(R.multiply(total, size), place)
        return ctx.emit(total)

    best: Expr | None = None
    place: Expr = R.broadcast_to(scalar(-1, "int64"), whole)
    for taps in np.ndindex(*w.kernel):
        at, inside = zip(*(along(i, t) for i, t in enumerate(taps)), strict=True)
        read = R.reshape(counted(at, sizes), ShapeExpr((product(out),)))
        value = ctx.emit(R.reshape(R.take(flat, read, 2), whole))
        better: Expr = R.less(place, zero)
        if best is not None:
            better = R.logical_or(better, R.greater(value, best))
        better = ctx.emit(functools.reduce(R.logical_and, inside, better))
        # What is counted: the last axis first, or (``storage_order``) the first.
        linear = counted(at[::-1], sizes[::-1]) if storage_order else counted(at, sizes)
        place = ctx.emit(R.where(better, linear, place))
        best = value if best is None else ctx.emit(R.where(better, value, best))
    return _in_the_whole(ctx, x, place)


@onnx_op("AveragePool")
def average_pool(
    ctx: Context,
    X: Expr,
    *,
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    kernel_shape: list[int],
    **window: Unpack[Windowed],
) -> Expr:
    late = LateSame.of(ctx, X, kernel_shape, window)
    if late is not None:
        w = Window.of(X, kernel_shape, window, "VALID")
        y = _pool(AVG_POOL, late.padded(ctx, X), w)
        if not count_include_pad:
            ones = R.ones(ShapeExpr((1, 1, *dims_of(X)[2:])), dtype_of(X))
            y = R.divide(y, _pool(AVG_POOL, late.padded(ctx, ones), w))
        return late.pinned(ctx, ctx.emit(y))
    w = Window.of(X, kernel_shape, window)
    counted = bool(count_include_pad)
    return _pool(AVG_POOL, X, w, ceil_mode=bool(ceil_mode), count_include_pad=counted)


@onnx_op("LpPool", lacks="ceil_mode dilations")
@onnx_op("LpPool", since=2)
def lp_pool(
    ctx: Context,
    X: Expr,
    *,
    ceil_mode: int = 0,
    kernel_shape: list[int],
    p: float = 2,
    **window: Unpack[Windowed],
) -> Expr:
    """The p-th root of the sum of p-th powers: padding counts nothing, whatever its number."""
    dtype = dtype_of(X)
    late = LateSame.of(ctx, X, kernel_shape, window)
    w = Window.of(X, kernel_shape, window, late and "VALID")
    powers = R.power(R.abs(X), scalar(p, dtype))
    if late is not None:
        mean = _pool(AVG_POOL, late.padded(ctx, powers), w)
        mean = late.pinned(ctx, ctx.emit(mean))
        total = R.multiply(mean, scalar(math.prod(w.kernel), dtype))
    elif ceil_mode:
        # The last windows may reach beyond the padding: what they hold is counted for each.
        mean = _pool(AVG_POOL, powers, w, ceil_mode=True, count_include_pad=False)
        sizes = statics(dims_of(X)[2:], "the spatial sizes")
        counts = _counts(sizes, statics(dims_of(mean)[2:], "the spatial sizes"), w)
        total = R.multiply(mean, Constant(counts.astype(numpy_dtype(dtype))[None, None]))
        total = R.where(Constant(counts[None, None] > 0), total, scalar(0, dtype))
    else:
        mean = _pool(AVG_POOL, powers, w, ceil_mode=False, count_include_pad=True)
        total = R.multiply(mean, scalar(math.prod(w.kernel), dtype))
    return _root(ctx, total, p)


def _root(ctx: Context, total: Expr, p: float) -> Expr:
    """By the general power, as in ONNX Runtime."""
    total = ctx.emit(total)
    made = R.power(total, scalar(1 / p, dtype_of(total)))
    return made if p < 1 else R.grad.differentiate_as(made, root(total, p))


def _counts(sizes: Sequence[int], out: Sequence[int], w: Window) -> Any:
    """How many elements of the input each window holds."""
    total = np.ones((), np.int64)
    for i, (size, count) in enumerate(zip(sizes, out, strict=True)):
        at = np.arange(count)[:, None] * w.strides[i] - w.pads[i]
        at = at + np.arange(w.kernel[i])[None, :] * w.dilations[i]
        own = ((at >= 0) & (at < size)).sum(1)
        total = total[..., None] * own
    return total


def _space(x: Expr) -> list[int]:
    """The axes of space."""
    return list(range(2, ndim_of(x)))


@onnx_op("GlobalAveragePool")
def global_average_pool(ctx: Context, X: Expr) -> Expr:
    return R.mean(X, _space(X), True)


@onnx_op("GlobalMaxPool")
def global_max_pool(ctx: Context, X: Expr) -> Expr:
    return R.max(X, _space(X), True)


@onnx_op("GlobalLpPool")
def global_lp_pool(ctx: Context, X: Expr, *, p: float = 2) -> Expr:
    dtype = dtype_of(X)
    total = R.sum(R.power(R.abs(X), scalar(p, dtype)), _space(X), True)
    return _root(ctx, total, p)


@onnx_op("MaxUnpool", since=9, lacks="auto_pad dilations")
def max_unpool(
    ctx: Context,
    X: Expr,
    I: Expr,  # noqa: E741  (the schema's name)
    output_shape: Ints | None = None,
    *,
    kernel_shape: list[int],
    **window: Unpack[Windowed],
) -> Expr:
    """Values go back to the positions that MaxPool gave, in the smallest tensor it had."""
    w = Window.of(X, kernel_shape, window)
    dims, n = dims_of(X), len(w.kernel)
    sizes = [
        fold_dim((d - 1) * s + k - w.pads[i] - w.pads[i + n])
        for i, (d, s, k) in enumerate(zip(dims[2:], w.strides, w.kernel, strict=True))
    ]
    small = [dims[0], dims[1], *sizes]
    # With output_shape the indices still count in the smallest tensor, which is padded after.
    flat = R.zeros(ShapeExpr((product(small),)), dtype_of(X))
    put = R.scatter_elements(flat, R.flatten(I), R.flatten(X), 0)
    made = R.reshape(put, ShapeExpr(small))
    if output_shape is None:
        return made
    more = [fold_dim(want - have) for want, have in zip(output_shape, small, strict=True)]
    widths = [p for m in more for p in (0, m)]
    return ctx.pinned(R.nn.pad(made, widths), list(output_shape))
