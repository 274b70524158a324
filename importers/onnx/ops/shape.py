# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: other shapes, parts and arrangements of a tensor.

Semantics: the operator specifications of ONNX. Lists that say a shape were attributes in early
opsets and are inputs now; both forms end in one function here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla import tir
from relax2xla.importers.onnx.engine import computed_shapes
from relax2xla.importers.onnx.engine.context import Context, choice, known_number
from relax2xla.importers.onnx.engine.converters import Ints, Lazy, Sizes, one, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    axis_of,
    dims_of,
    dtype_of,
    info_of,
    ndim_of,
    statics,
)
from relax2xla.importers.onnx.ops.strings import strings_too
from relax2xla.importers.shared.dims import fold_dim, larger, product, smaller
from relax2xla.ir import Expr, ShapeExpr
from relax2xla.tir import Dim


@onnx_op("Identity")
def identity(ctx: Context, input: Expr) -> Expr:
    return input


# -- reshape -------------------------------------------------------------------------------------
@onnx_op("Reshape", attributes="shape", lacks="allowzero")
@onnx_op("Reshape", since=5)
@strings_too(0)
def reshape(ctx: Context, data: Expr, shape: Lazy, *, allowzero: int = 0) -> Expr:
    """0 copies a dimension (unless ``allowzero``), one -1 is what is left."""
    if isinstance(shape, Expr):
        return computed_shapes.reshape(ctx, data, shape, bool(allowzero))
    wanted = [tir.as_dim(d) for d in shape]
    if allowzero and 0 in wanted:
        return R.zeros(ShapeExpr(wanted), dtype_of(data))  # of no elements; R.reshape would copy
    dims = info_of(data).dims
    if not allowzero and (dims is not None or 0 in wanted):
        dims = dims_of(data)
        wanted = [_copied(d, dims, i) for i, d in enumerate(wanted)]
    if -1 in wanted:
        if 0 in wanted:
            # Beside a zero what is left cannot be computed by division: it is zero elements.
            return R.reshape(data, ShapeExpr(_beside_zero(dims_of(data), wanted)))
        if any(not isinstance(d, int) for d in wanted):
            return ctx.reshape(data, _filled(dims_of(data), wanted))
        return R.reshape(data, wanted)
    return ctx.reshape(data, wanted)


def _copied(wanted: Dim, dims: Sequence[Dim], axis: int) -> Dim:
    """A wanted size, or the one that a 0 in its place copies.

    Sizes that the tensor's own say are 0 only where the tensor is empty, which hardly matters.
    """
    if axis >= len(dims):
        if isinstance(wanted, int) and wanted == 0:
            raise ValueError(f"0 copies the axis {axis} of a tensor of rank {len(dims)}")
        return wanted
    own = dims[axis]
    if isinstance(wanted, int) or tir.can_prove_equal(wanted, own):
        return own if isinstance(wanted, int) and wanted == 0 else wanted
    known = {v for d in dims if not isinstance(d, int) for v in tir.free_vars(d)}
    if known.issuperset(tir.free_vars(wanted)):
        return wanted
    return fold_dim(tir.if_then_else(tir.EQ.make(wanted, 0), own, wanted))


def _filled(dims: Sequence[Dim], wanted: Sequence[Dim]) -> list[Dim]:
    """Sizes with the one that is left in place of -1; of an empty tensor 0 where it is unclear."""
    above, below = list(dims), list[Dim]()
    for d in wanted:
        same = next((i for i, a in enumerate(above) if tir.can_prove_equal(a, d)), None)
        if same is not None:
            above.pop(same)
        elif d != -1:
            below.append(d)
    total, rest = product(above), product(below)
    left = fold_dim(total // rest)
    if not isinstance(rest, int) and _divides(left):
        left = fold_dim(total // tir.max(rest, 1))
    return [left if isinstance(d, int) and d == -1 else d for d in wanted]


def _divides(value: Dim) -> bool:
    """Whether a division is left in a size."""
    stack = [] if isinstance(value, int) else [value]
    while stack:
        node = stack.pop()
        if isinstance(node, tir.FloorDiv):
            return True
        stack.extend(node.children())
    return False


def _beside_zero(dims: Sequence[Dim], wanted: Sequence[Dim]) -> list[Dim]:
    """-1 beside copied zeros: the quotient of the dimensions that are not zero."""
    above = product(d for d in dims if d != 0)
    below = product(d for d in wanted if d not in (0, -1))
    left = above // below
    return [left if isinstance(d, int) and d == -1 else d for d in wanted]


@onnx_op("Flatten")
@strings_too(0)
def flatten(ctx: Context, input: Expr, *, axis: int = 1) -> Expr:
    dims = dims_of(input)
    at = len(dims) if axis == len(dims) else axis_of(axis, len(dims)) if dims else 0
    return ctx.reshape(input, (product(dims[:at]), product(dims[at:])))


@onnx_op("Squeeze", attributes="axes")
@onnx_op("Squeeze", since=13)
@strings_too(0)
def squeeze(ctx: Context, data: Expr, axes: Lazy | None = None) -> Expr:
    if isinstance(axes, Expr):
        return computed_shapes.squeeze(ctx, data, axes)
    if axes is not None:
        return R.squeeze(data, statics(axes, "an axis"))
    made, dims = R.squeeze(data), info_of(data).dims
    if dims is None or info_of(made).dims is not None:
        return made
    # Symbolic sizes are taken not to be 1; where one is, the rank differs and the cast says so.
    return ctx.pinned(made, [d for d in dims if d != 1])


@onnx_op("Unsqueeze", attributes="axes")
@onnx_op("Unsqueeze", since=13)
@strings_too(0)
def unsqueeze(ctx: Context, data: Expr, axes: Lazy) -> Expr:
    if isinstance(axes, Expr):
        return computed_shapes.unsqueeze(ctx, data, axes)
    wanted = statics(axes, "an axis")
    rank = ndim_of(data) + len(wanted)
    return R.expand_dims(data, sorted(axis_of(a, rank) for a in wanted))


@onnx_op("Transpose")
@strings_too(0)
def transpose(ctx: Context, data: Expr, *, perm: list[int] | None = None) -> Expr:
    return R.permute_dims(data, perm)


@onnx_op("Expand", since=8)
@strings_too(0)
def expand(ctx: Context, input: Expr, shape: Lazy) -> Expr:
    """Broadcast both ways: an axis of ``input`` that is larger than in ``shape`` stays."""
    if isinstance(shape, Expr):
        return computed_shapes.expand(ctx, input, shape)
    dims = dims_of(input)
    wanted = [tir.as_dim(d) for d in shape]
    rank = max(len(dims), len(wanted))
    own: list[Dim] = [*[1] * (rank - len(dims)), *dims]
    wanted = [*[1] * (rank - len(wanted)), *wanted]
    target = [_expanded(a, b) for a, b in zip(own, wanted, strict=True)]
    return input if tuple(target) == dims else R.broadcast_to(input, ShapeExpr(target))


def _expanded(size: Dim, wanted: Dim) -> Dim:
    """The size of an axis of ``size`` that is wanted as ``wanted``, of which one may be 1."""
    if isinstance(wanted, int):
        return size if wanted == 1 else wanted
    if size == 1 or tir.can_prove_equal(size, wanted):
        return wanted
    # torch writes the first of n elements so, for one of them.
    return fold_dim(tir.if_then_else(tir.EQ.make(wanted, 1), size, wanted))


@onnx_op("Tile")
@strings_too(0)
def tile_axis(ctx: Context, input: Expr, tiles: Ints, axis: Ints) -> Expr:
    count, at = one(tiles, "tiles"), one(axis, "axis")
    if isinstance(at, int):
        axis_of(at, ndim_of(input))
    times = [fold_dim(_chosen(at, i, count)) for i in range(ndim_of(input))]
    return R.tile(input, times)


def _chosen(axis: Dim, at: int, count: Dim) -> Dim:
    """``count`` for the axis ``at``, 1 for the others; the axis may be symbolic."""
    if isinstance(axis, int):
        return count if axis == at else 1
    return tir.if_then_else(tir.EQ.make(axis, at), count, 1)


@onnx_op("Tile", since=6)
@strings_too(0)
def tile(ctx: Context, input: Expr, repeats: Sizes) -> Expr:
    times = [tir.as_dim(r) for r in repeats]
    known = [r for r in times if isinstance(r, int)]
    if len(known) == len(times):
        return R.tile(input, known)
    # Repeat by a symbolic number: broadcast along new axes.
    dims = dims_of(input)
    wide = [d for pair in zip(times, dims, strict=True) for d in pair]
    ones = [d for size in dims for d in (1, size)]
    spread = R.broadcast_to(R.reshape(input, ShapeExpr(ones)), ShapeExpr(wide))
    shape = [fold_dim(r * d) for r, d in zip(times, dims, strict=True)]
    return R.reshape(spread, ShapeExpr(shape))


# -- joining and cutting -------------------------------------------------------------------------
@onnx_op("Concat", axis=1)
@onnx_op("Concat", since=4)
@strings_too()
def concat(ctx: Context, *inputs: Expr, axis: int) -> Expr:
    if len(inputs) == 1:
        return inputs[0]
    made = ctx.emit(R.concat(list(inputs), axis))
    sizes = [info_of(x).dims for x in inputs]
    if info_of(made).dims or not all(sizes):
        return made
    # Off the axis sizes agree, or the machine says that they do not: the best known ones serve.
    at = axis_of(axis, ndim_of(made))
    across = zip(*map(dims_of, inputs), strict=True)
    dims = [next((d for d in of if isinstance(d, int)), of[0]) for of in across]
    total: Any = 0
    for x in inputs:
        total = total + dims_of(x)[at]
    dims[at] = fold_dim(total)
    return ctx.pinned(made, dims)


def _parts(ctx: Context, x: Expr, axis: int, lengths: Sequence[Dim]) -> Any:
    """Consecutive parts of these lengths."""
    if len(lengths) != len(ctx.wanted):
        raise ValueError(f"it has {len(ctx.wanted)} outputs and {len(lengths)} parts")
    if len(lengths) == 1:
        return [x]
    cuts: list[Dim] = []
    total: Any = 0
    for length in lengths[:-1]:
        total = fold_dim(total + length)
        cuts.append(total)
    at = axis_of(axis, ndim_of(x))
    made = R.split(x, cuts, at)
    if all(isinstance(length, int) for length in lengths):
        return made
    # With the sizes as they are given, instead of what they come to where they do not fit.
    parts = ctx.emit(made)
    dims = dims_of(x)
    return [
        ctx.pinned(parts[i], [*dims[:at], length, *dims[at + 1 :]])
        for i, length in enumerate(lengths)
    ]


@onnx_op("Split")
@strings_too(0)
def split_either(
    ctx: Context,
    input: Expr,
    lengths: Sizes | None = None,
    *,
    axis: int = 0,
    split: list[int] | None = None,
) -> Any:
    """By an attribute or, in opset 1, by an input; the latter counts."""
    return split_(ctx, input, split if lengths is None else lengths, axis=axis)


@onnx_op("Split", since=2, attributes="split", lacks="num_outputs")
@onnx_op("Split", since=13, lacks="num_outputs")
@onnx_op("Split", since=18)
@strings_too(0)
def split_(
    ctx: Context,
    input: Expr,
    split: Sizes | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
) -> Any:
    """Without lengths in equal parts; with ``num_outputs`` the last is what the others leave."""
    if split is not None:
        return _parts(ctx, input, axis, [tir.as_dim(s) for s in split])
    count = len(ctx.wanted)
    size = dims_of(input)[axis_of(axis, ndim_of(input))]
    if num_outputs is None:
        if isinstance(size, int) and size % count:
            raise ValueError(f"{size} elements in {count} equal parts")
        return _parts(ctx, input, axis, [fold_dim(size // count)] * count)
    if num_outputs != count:
        raise ValueError(f"num_outputs is {num_outputs}; the node has {count} outputs")
    step = fold_dim((size + num_outputs - 1) // num_outputs)
    lengths: list[Dim] = [step] * (num_outputs - 1)
    return _parts(ctx, input, axis, [*lengths, fold_dim(size - step * (num_outputs - 1))])


@onnx_op("Slice", attributes="starts ends axes", lacks="steps")
@onnx_op("Slice", since=10)
@strings_too(0)
def slice_(
    ctx: Context,
    data: Expr,
    starts: Lazy,
    ends: Lazy,
    axes: Lazy | None = None,
    steps: Lazy | None = None,
) -> Expr:
    """Ends that are beyond the tensor are cut; INT64_MAX and the like mean "to the end"."""
    if (
        isinstance(starts, Expr)
        or isinstance(ends, Expr)
        or isinstance(axes, Expr)
        or isinstance(steps, Expr)
    ):
        return computed_shapes.slice_(ctx, data, starts, ends, axes, steps)
    dims = dims_of(data)
    count = len(starts)
    where = list(range(count)) if axes is None else statics(axes, "an axis")
    strides = [1] * count if steps is None else statics(steps, "a step")
    at = [axis_of(a, len(dims)) for a in where]
    begin: list[Dim] = []
    end: list[Dim] = []
    for a, first, last, step in zip(at, starts, ends, strides, strict=True):
        begin.append(_bound(tir.as_dim(first), dims[a]))
        stop = _bound(tir.as_dim(last), dims[a])
        # Backwards, an end before the first element means that the first is taken.
        end.append(stop if step > 0 or not _before(stop, dims[a]) else -(2**31) + 1)
    kept = [
        i
        for i, (a, s) in enumerate(zip(at, strides, strict=True))
        if not (s == 1 and begin[i] == 0 and end[i] is dims[a])
    ]
    if not kept:
        return data
    axes_, begin_, end_, steps_ = (
        [values[i] for i in kept] for values in (at, begin, end, strides)
    )
    return R.strided_slice(data, axes_, begin_, end_, steps_)


def _bound(value: Dim, size: Dim) -> Dim:
    """A position, with everything beyond the end made the end itself."""
    if not isinstance(value, int):
        return value
    if isinstance(size, int):
        return max(min(value, size), -size - 1)
    return size if value >= 2**31 - 1 else max(value, -(2**31) + 1)


def _before(value: Dim, size: Dim) -> bool:
    return isinstance(value, int) and (
        value <= -(2**31) + 1 or (isinstance(size, int) and value < -size)
    )


# -- padding -------------------------------------------------------------------------------------
# ONNX's modes by the names that Relax has for them.
_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


@onnx_op("Pad", lacks="pads", needs="paddings")
@onnx_op("Pad", since=2, lacks="paddings", needs="pads")
def pad_attributes(
    ctx: Context,
    data: Expr,
    *,
    paddings: list[int] | None = None,
    pads: list[int] | None = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Expr:
    return _pad(ctx, data, pads or paddings or [], mode, value)


@onnx_op("Pad", since=11)
def pad(
    ctx: Context,
    data: Expr,
    pads: Lazy,
    constant_value: Expr | None = None,
    axes: Lazy | None = None,
    *,
    mode: str = "constant",
) -> Expr:
    """``axes`` (opset 18) names the axes that ``pads`` is about."""
    rank, late = ndim_of(data), isinstance(pads, Expr) or isinstance(axes, Expr)
    widths: list[Dim] = [0] * (2 * rank)
    if isinstance(pads, Expr) or isinstance(axes, Expr):
        widths = computed_shapes.pad_widths(ctx, rank, pads, axes)
    elif axes is None:
        widths = [tir.as_dim(w) for w in pads]
    else:
        for i, a in enumerate(statics(axes, "an axis")):
            at = axis_of(a, rank)
            widths[at], widths[at + rank] = pads[i], pads[i + len(axes)]
    if constant_value is None or mode != "constant":
        return _pad(ctx, data, widths, mode, 0.0, late)
    value = known_number(constant_value)
    if value is not None and dtype_of(data) not in ("int64", "uint64"):
        return _pad(ctx, data, widths, mode, value, late)
    # Where the value is no attribute (or would lose bits as one): in place of what was padded.
    made = _pad(ctx, data, widths, mode, 0.0, late)
    own = _pad(ctx, R.ones(ShapeExpr(dims_of(data)), "uint8"), widths, mode, 0.0, late)
    own = ctx.pinned(own, dims_of(made)) if late else own
    return R.where(R.astype(own, "bool"), made, R.reshape(constant_value, ()))


def _at_least_zero(width: Dim) -> Dim:
    if not isinstance(width, int) and tir.Analyzer(tir.free_vars(width)).can_prove(width >= 0):
        return width
    return larger(width, 0)


def _pad(
    ctx: Context, data: Expr, widths: Sequence[Dim], mode: str, value: float, late: bool = False
) -> Expr:
    """``late``: the widths are read when the model runs, and so are the sizes of the result."""
    kind = _PAD_MODES[choice(mode, _PAD_MODES, "mode")]
    rank = len(widths) // 2
    # Whatever the mode, negative widths crop first.
    less = [_at_least_zero(fold_dim(-w)) for w in widths]
    crops = [(i, less[i], less[i + rank]) for i in range(rank)]
    crops = [c for c in crops if c[1:] != (0, 0)]
    if crops:
        dims = dims_of(data)
        ends = [fold_dim(dims[a] - after) for a, _, after in crops]
        axes, begins = [a for a, *_ in crops], [b for _, b, _ in crops]
        inside = not late and not all(isinstance(c, int) for c in less)
        data = R.strided_slice(data, axes, begins, ends, assume_inbound=inside)
        data = ctx.pinned(data, [None] * rank) if late else data
    flat = [_at_least_zero(widths[i + side * rank]) for i in range(rank) for side in (0, 1)]
    if flat == [0] * len(flat):
        return data
    truth = dtype_of(data) == "bool"
    x = R.astype(data, "uint8") if truth else data
    x = R.nn.pad(x, flat, kind, float(bool(value)) if truth else value)
    if late:
        x = ctx.pinned(x, [None] * rank)
    elif not all(isinstance(w, int) for w in flat):
        grown = [flat[i] + flat[i + 1] for i in range(0, len(flat), 2)]
        sides = zip(dims_of(data), grown, strict=True)
        x = ctx.pinned(x, [fold_dim(d + g) for d, g in sides])
    return R.astype(x, "bool") if truth else x


# -- channels and space --------------------------------------------------------------------------
@onnx_op("DepthToSpace")
def depth_to_space(ctx: Context, input: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    n, c, h, w = dims_of(input)
    b = blocksize
    inner = fold_dim(c // (b * b))
    if choice(mode, ("DCR", "CRD"), "mode") == "DCR":
        x = R.reshape(input, ShapeExpr((n, b, b, inner, h, w)))
        x = R.permute_dims(x, [0, 3, 4, 1, 5, 2])
    else:
        x = R.reshape(input, ShapeExpr((n, inner, b, b, h, w)))
        x = R.permute_dims(x, [0, 1, 4, 2, 5, 3])
    return R.reshape(x, ShapeExpr((n, inner, fold_dim(h * b), fold_dim(w * b))))


@onnx_op("SpaceToDepth")
def space_to_depth(ctx: Context, input: Expr, *, blocksize: int, mode: str = "DCR") -> Expr:
    n, c, h, w = dims_of(input)
    b = blocksize
    down, across = fold_dim(h // b), fold_dim(w // b)
    x = R.reshape(input, ShapeExpr((n, c, down, b, across, b)))
    depth_first = choice(mode, ("DCR", "CRD"), "mode") == "DCR"
    x = R.permute_dims(x, [0, 3, 5, 1, 2, 4] if depth_first else [0, 1, 3, 5, 2, 4])
    return R.reshape(x, ShapeExpr((n, fold_dim(c * b * b), down, across)))


@onnx_op("CenterCropPad", since=18)
def center_crop_pad(
    ctx: Context, input_data: Expr, shape: Sizes, *, axes: list[int] | None = None
) -> Expr:
    dims = dims_of(input_data)
    where = list(range(len(dims))) if axes is None else [axis_of(a, len(dims)) for a in axes]
    """Each axis cut, or padded with zeros, around its middle."""
    result = list(dims)
    widths: list[Dim] = [0] * (2 * len(dims))
    begin, end = list[Dim](), list[Dim]()
    for a, wanted in zip(where, shape, strict=True):
        size: Any = dims[a]
        target: Any = tir.as_dim(wanted)
        begin.append(fold_dim(larger(size - target, 0) // 2))
        end.append(fold_dim(begin[-1] + smaller(size, target)))
        more = larger(target - size, 0)
        before = fold_dim(more // 2)
        widths[a], widths[a + len(dims)] = before, fold_dim(more - before)
        result[a] = target
    cut = R.strided_slice(input_data, where, begin, end)
    if all(isinstance(d, int) for d in (*begin, *end, *widths)):
        return _pad(ctx, cut, widths, "constant", 0.0)
    return ctx.pinned(_pad(ctx, cut, widths, "constant", 0.0, True), result)
