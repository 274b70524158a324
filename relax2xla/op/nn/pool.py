"""Pooling over one, two and three spatial axes: maximum, average, adaptive average.

Semantics: Relax; ``ceil_mode`` and ``count_include_pad`` as in torch's ``max_pool*d`` and
``avg_pool*d``, which TVM's importers rely on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce as reduce_pairs
from typing import Any, Concatenate, cast

import numpy as np

from relax2xla.dtypes import dtype_info, is_float
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Op, Rule
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.ir.traits import Window
from relax2xla.op.shared.checks import REAL, tensor, want_tensor, window_dim
from relax2xla.op.shared.families import P, Which, member
from relax2xla.op.shared.layouts import PlainRule, in_layouts
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    convert,
    dot_general,
    dtype_of,
    full,
    hlo,
    identity_of,
    known,
    larger,
    pad,
    reduce,
    scalar,
    scalar_region,
    shape_of,
    tensor_info,
    transpose,
)
from relax2xla.op.shared.spatial import (
    SPATIAL,
    Ints,
    Padding,
    Size,
    arrange,
    data_axes,
    replaced,
    want_positive,
)
from relax2xla.op.shared.traced import (
    Numbers,
    Traced,
    clip,
    count_up,
    size_of,
    spread_to,
    tensor_of,
)

_DOC = """{what} over windows of {axes}.

data:      axes named by ``layout``: N batch, C channels, {axes} space; any integer or float dtype
pool_size, strides, dilation: one number, or one per spatial axis
padding:   one number, one per spatial axis, or all befores followed by all afters
ceil_mode: round the number of windows up; a last window that would start in the padding on the
           right is dropped
{include}
result:    axes named by ``out_layout`` (default: ``layout``), dtype of ``data``. Size of a spatial
           axis: ``(size + padding - dilation * (window - 1) - 1) // stride + 1``
Raises ``OpError`` for a wrong rank or layout, and for a window that does not fit.
"""
_IGNORED = "count_include_pad: of no effect; padding never wins a maximum"
_COUNTED = """count_include_pad: whether an average counts the padding; what ``ceil_mode`` adds
           beyond it is never counted. Integers are divided rounding towards zero"""
_ADAPTIVE = """Average over windows that split each axis of {axes} into ``output_size`` parts.

data:        axes named by ``layout``: N batch, C channels, {axes} space; real numbers
output_size: one number, one per spatial axis, or None for the size of ``data``
result:      axes named by ``out_layout`` (default: ``layout``), dtype of ``data``. Output i of an
             axis averages ``data[i * size // out : ceil((i + 1) * size / out)]``, as in torch;
             averages of integers are truncated
Raises ``OpError`` for a wrong rank, layout or output size.
"""


def _doc(ndim: int, maximum: bool) -> str:
    what, include = ("Maximum", _IGNORED) if maximum else ("Average", _COUNTED)
    return _DOC.format(what=what, axes=SPATIAL[ndim], include=include)


def wide_dtype(dtype: str) -> str:
    """The dtype in which values of ``dtype`` are summed."""
    info = dtype_info(dtype)
    if info.bits >= 32:
        return dtype
    return "float32" if info.kind == "float" else "int32"


def within(
    size: int, window: int, stride: int, dilation: int, pads: tuple[int, int], count: int
) -> tuple[int, tuple[int, int]]:
    """A window and padding that see the same values, without taps that only meet padding.

    XLA visits each tap of each window, so a window far larger than its operand, which a model may
    have, would take for ever.
    """
    low, high = pads
    # Tap number t of window number i is at i * stride - low + t * dilation.
    first = min(max(0, -(((count - 1) * stride - low) // dilation)), low // dilation, window - 1)
    last = max(first, min(window - 1, (low + size - 1) // dilation))
    kept = last - first + 1
    if kept == window or count < 1:
        return window, pads
    low -= first * dilation
    high = (count - 1) * stride + (kept - 1) * dilation + 1 - size - low
    # Without negative padding, there must be no room for another window.
    return (kept, (low, max(0, high))) if -high < stride else (window, pads)


@dataclass(frozen=True, slots=True)
class Pool:
    """A pooling operator's attributes."""

    pool_size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil_mode: bool
    layout: str
    out_layout: str | None

    @property
    def ndim(self) -> int:
        return len(self.pool_size)

    @property
    def pads(self) -> list[tuple[int, int]]:
        return list(zip(self.padding[: self.ndim], self.padding[self.ndim :], strict=True))

    @property
    def axes(self) -> list[int]:
        return data_axes(self.layout, self.ndim, "layout")

    @property
    def out_axes(self) -> list[int]:
        return data_axes(self.out_layout or self.layout, self.ndim, "out_layout")

    def infer(self, data: Expr) -> TensorStructInfo:
        """The struct-info rule."""
        x = want_tensor(data, "data", REAL, self.ndim + 2)
        axes, out_axes = self.axes, self.out_axes
        want_positive(self.pool_size, "pool_size")
        want_positive(self.strides, "strides")
        want_positive(self.dilation, "dilation")
        if any(p < 0 for p in self.padding):
            raise OpError(f"`padding` must not be negative; got {self.padding}")
        if x.dims is None:
            return tensor(None, x.dtype, self.ndim + 2, x)
        sizes = [x.dims[a] for a in axes]
        out = sizes[:2] + [
            window_dim(
                sizes[2 + i],
                self.pool_size[i],
                self.strides[i],
                *self.pads[i],
                self.dilation[i],
                self.ceil_mode,
            )
            for i in range(self.ndim)
        ]
        return tensor(arrange(out, out_axes), x.dtype, like=x)

    def counts(self, shape: Sequence[int]) -> tuple[list[int], list[tuple[int, int]]]:
        """Of each spatial axis: the number of windows, and the padding that gives exactly them."""
        out: list[int] = []
        pads: list[tuple[int, int]] = []
        for i, axis in enumerate(self.axes[2:]):
            (low, high), size, stride = self.pads[i], shape[axis], self.strides[i]
            span = self.dilation[i] * (self.pool_size[i] - 1) + 1
            count = window_dim(
                size, self.pool_size[i], stride, low, high, self.dilation[i], self.ceil_mode
            )
            count = cast(int, count)  # Over symbolic dimensions it is an expression.
            if self.ceil_mode:
                high = larger(0, (count - 1) * stride + span - size - low)
            out.append(count)
            pads.append((low, high))
        return out, pads

    def slide(self, data: Expr, name: str, backwards: bool = False) -> Expr:
        """The reduction of each window with the row ``name``, in the layout of ``data``.

        ``backwards``: the last spatial axis first.

        One ``reduce_window`` an axis: XLA:CPU takes a third of the time of one over all axes where
        windows have 3x3 values (a fifteenth with 5x5), and as much with 2x2.
        """
        axes = self.axes
        count, pads = self.counts(shape_of(data))
        if name == "add" and all(c == 1 for c in count) and self._covers(shape_of(data)):
            return reduce(data, name, axes[2:], keepdims=True)
        dtype = dtype_of(data)
        ends = zip(pads, count, strict=True)
        columns = zip(axes[2:], self.pool_size, self.strides, self.dilation, ends, strict=True)
        neutral = scalar(identity_of(name, dtype), dtype)
        for axis, window, stride, dilation, (pads_, out) in sorted(
            columns, key=lambda c: -c[0] if backwards else c[0]
        ):
            if window == stride == 1 and pads_ == (0, 0):
                continue
            ones = (1,) * len(axes)
            shape = shape_of(data)
            if not known(*pads_):  # Windows that are slid have no form for such padding.
                low, high = (replaced((0,) * len(axes), axis, p) for p in pads_)
                data, pads_ = pad(data, low, high, neutral), (0, 0)
            if known(shape[axis], out):
                window, pads_ = within(shape[axis], window, stride, dilation, pads_, out)
            data = hlo(
                "reduce_window",
                data,
                neutral,
                scalar_region(name, dtype),
                window_dimensions=replaced(ones, axis, window),
                window_strides=replaced(ones, axis, stride),
                base_dilations=ones,
                window_dilations=replaced(ones, axis, dilation),
                padding=replaced(((0, 0),) * len(axes), axis, pads_),
                out=tensor_info(replaced(shape, axis, out), dtype),
            )
        return data

    def _covers(self, shape: Sequence[int]) -> bool:
        """Whether the first window of every axis is the whole axis."""
        return all(
            w == shape[a] and d == 1 and low == 0
            for w, a, d, (low, _) in zip(
                self.pool_size, self.axes[2:], self.dilation, self.pads, strict=True
            )
        )

    def arranged(self, x: Expr) -> Expr:
        """``x`` from ``layout`` to ``out_layout``."""
        source = self.axes
        return transpose(x, arrange(source, self.out_axes))

    def maximum(self, data: Expr) -> Expr:
        """Lowering of max_pool."""
        return self.arranged(self.slide(data, "maximum"))

    def average(self, data: Expr, count_include_pad: bool) -> Expr:
        """Lowering of avg_pool: a windowed sum divided by how many values each window holds."""
        dtype = dtype_of(data)
        total = self.slide(convert(data, wide_dtype(dtype)), "add")
        held = self.held(shape_of(data), count_include_pad)
        shape, wide = shape_of(total), dtype_of(total)
        space = self.axes[2:]
        if any(isinstance(h, Traced) for h in held):
            vectors = [tensor_of(h, wide) for h in held]
            grids = [broadcast_in_dim(v, shape, [a]) for v, a in zip(vectors, space, strict=True)]
            divisor = reduce_pairs(lambda a, b: hlo("multiply", a, b), grids)
        elif all(np.all(h == h[0]) for h in held):
            divisor = full(shape, int(np.prod([h[0] for h in held])), wide)
        else:
            grid = reduce_pairs(np.multiply.outer, held)
            # The grid's axes are in the order D, H, W; those of the layout may be in another.
            order = sorted(range(self.ndim), key=lambda i: space[i])
            divisor = broadcast_in_dim(tensor_of(grid.transpose(order), wide), shape, sorted(space))
        return self.arranged(convert(hlo("divide", total, divisor), dtype))

    def held(self, shape: Sequence[int], count_include_pad: bool) -> list[Numbers]:
        """Of each spatial axis: how many values each window averages, one at least."""
        held: list[Numbers] = []
        for i, (axis, count) in enumerate(zip(self.axes[2:], self.counts(shape)[0], strict=True)):
            (low, high), step, most = self.pads[i], self.dilation[i], self.pool_size[i]
            first, last = (-low, shape[axis] + high) if count_include_pad else (0, shape[axis])
            start = count_up((count,), dtype="int64") * self.strides[i] - low
            # Taps are at start, start + step, ...: those below a bound, as a number.
            below = [
                clip((size_of(bound + step - 1, "int64") - start) // step, 0, most)
                for bound in (first, last)
            ]
            held.append(np.maximum(below[1] - below[0], 1))
        return held


def _adaptive(
    ndim: int,
    data: Expr,
    output_size: Size = None,
    layout: str = "",
    out_layout: str | None = None,
) -> Rule:
    info, lower = in_layouts(
        data, layout, out_layout, lambda x, at, out: _averages(ndim, x, output_size, at, out)
    )
    if output_size is None and (out_layout or layout) == layout:
        given = want_tensor(data, "data")
        info = info if given.ndim == -1 else given  # A shape that a variable holds stays, too.
    return info, lower


def _averages(
    ndim: int, data: Expr, output_size: tuple[int, ...] | None, layout: str, out_layout: str | None
) -> PlainRule:
    """Struct info and lowering of an adaptive average in plain layouts."""
    x = want_tensor(data, "data", REAL, ndim + 2)
    axes = data_axes(layout, ndim, "layout")
    out_axes = data_axes(out_layout or layout, ndim, "out_layout")
    if output_size is not None:
        want_positive([s for s in output_size if isinstance(s, int)], "output_size")

    def lower(data: Expr) -> Expr:
        """Equal windows: an ordinary average. Unequal ones: an averaging matrix per axis.

        XLA computes the product as a matrix multiplication, faster than many slices and sums.
        Integers are summed, and divided once at the end.
        """
        sizes = [shape_of(data)[a] for a in axes[2:]]
        out = tuple(sizes) if output_size is None else output_size
        # Of symbolic sizes it is not known whether windows are equal.
        equal = tuple(
            s // o if known(s, o) and s % o == 0 else 1 for s, o in zip(sizes, out, strict=True)
        )
        pool = Pool(equal, equal, (0,) * (2 * ndim), (1,) * ndim, False, layout, out_layout)
        dtype = dtype_of(data)
        x = convert(data, wide_dtype(dtype))
        real, many = is_float(dtype), int(np.prod(equal))
        if many != 1:
            x = pool.slide(x, "add")
            x = hlo("divide", x, full(shape_of(x), many, dtype_of(x))) if real else x
        counts: list[tuple[int, Expr]] = []  # Of integers: how many values of an axis are summed.
        order = list(range(ndim + 2))  # order[i]: which axis of `data` is axis i of `x`
        for axis, size, parts in zip(axes[2:], sizes, out, strict=True):
            if parts == size or (known(size, parts) and size % parts == 0):
                continue
            at = order.index(axis)
            matrix = spread_to(_shares(size, parts, real), dtype_of(x), (parts, size))
            counts.append((axis, reduce(matrix, "add", [1])))
            x = dot_general(x, matrix, ([at], [1]))
            order.append(order.pop(at))
        x = transpose(x, [order.index(a) for a in range(ndim + 2)])
        if not real:
            count = full(shape_of(x), many, dtype_of(x))
            for axis, length in counts:
                count = hlo("multiply", count, broadcast_in_dim(length, shape_of(x), [axis]))
            x = hlo("divide", x, count)
        return pool.arranged(convert(x, dtype))

    if x.dims is None:
        return tensor(None, x.dtype, ndim + 2, x), lower
    sizes = [x.dims[a] for a in axes]
    space = sizes[2:] if output_size is None else list(output_size)
    return tensor(arrange(sizes[:2] + space, out_axes), x.dtype, like=x), lower


def _shares(size: int, parts: int, real: bool) -> Numbers:
    """The matrix (parts, size) that averages each part of an axis; sums it unless ``real``."""
    index, at = (count_up((parts, size), axis, "int64") for axis in (0, 1))
    whole, count = size_of(size, "int64"), size_of(parts, "int64")
    first, behind = index * whole // count, ((index + 1) * whole + (count - 1)) // count
    inside = (at >= first) & (at < behind)
    return inside.astype("float64") / (behind - first).astype("float64") if real else inside


def _pool(
    maximum: bool,
    data: Expr,
    pool_size: Ints = 1,
    strides: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "",
    out_layout: str | None = None,
) -> Rule:
    def rule(x: Expr, at: str, out: str | None) -> PlainRule:
        pool = Pool(pool_size, strides, padding, dilation, ceil_mode, at, out)
        if maximum:
            return pool.infer(x), pool.maximum
        return pool.infer(x), lambda x: pool.average(x, count_include_pad)

    return in_layouts(data, layout, out_layout, rule)


def _member(
    name: str, rule: Callable[Concatenate[Which, P], Rule], which: Which, ndim: int, doc: str
) -> Op[P]:
    """The pooling of ``ndim`` spatial axes."""
    defaults: dict[str, Any] = {"layout": "NC" + SPATIAL[ndim]}
    if rule is _pool:
        defaults |= dict.fromkeys(("pool_size", "strides", "dilation"), (1,) * ndim)
        defaults["padding"] = (0,) * max(ndim, 2)
    return member(
        f"relax.nn.{name}{ndim}d",
        *(rule, which, ndim),
        traits=[Window()],
        doc=doc,
        follows={"out_layout": "layout"},
        defaults=defaults,
    )


max_pool1d = _member("max_pool", _pool, True, 1, _doc(1, True))
max_pool2d = _member("max_pool", _pool, True, 2, _doc(2, True))
max_pool3d = _member("max_pool", _pool, True, 3, _doc(3, True))


def _first_wins(
    data: Expr,
    pool_size: Ints = 1,
    strides: Ints = 1,
    padding: Padding = 0,
    dilation: Ints = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "",
    out_layout: str | None = None,
) -> Expr:
    """The maximum, whose gradient goes to the first of equal elements, row by row.

    It is the first one of the first row that has it: rows are pooled before columns.
    """
    pool = Pool(pool_size, strides, padding, dilation, ceil_mode, layout, out_layout)
    return pool.arranged(pool.slide(data, "maximum", backwards=True))


for _made in (max_pool1d, max_pool2d, max_pool3d):
    _made.derivative(_first_wins)
avg_pool1d = _member("avg_pool", _pool, False, 1, _doc(1, False))
avg_pool2d = _member("avg_pool", _pool, False, 2, _doc(2, False))
avg_pool3d = _member("avg_pool", _pool, False, 3, _doc(3, False))
adaptive_avg_pool1d = _member("adaptive_avg_pool", _adaptive, 1, 1, _ADAPTIVE.format(axes="W"))
adaptive_avg_pool2d = _member("adaptive_avg_pool", _adaptive, 2, 2, _ADAPTIVE.format(axes="HW"))
adaptive_avg_pool3d = _member("adaptive_avg_pool", _adaptive, 3, 3, _ADAPTIVE.format(axes="DHW"))
