"""Operators that rearrange elements without computing: reshape, permute, concat, split, repeat ...

Sources: TVM Relax v0.20 for names and inference, numpy for values. Axes may be negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import numpy as np

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, PrimValue, ShapeExpr, Tuple
from relax2xla.ir.op import Given, Rule, op
from relax2xla.ir.op_param import AxesLike, IntsLike, Kind, ShapeLike, as_ints
from relax2xla.ir.struct_info import Dims, StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import AlongAxis, Broadcasting, Opaque, Permutes, Reshapes
from relax2xla.op.shared import lowering
from relax2xla.op.shared.checks import (
    differ,
    fold,
    known_shape,
    literal_dims,
    norm_axes,
    norm_axis,
    product,
    same_dim,
    seen_dims,
    tensor,
    want_shape,
    want_tensor,
)
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    convert,
    dtype_of,
    elements,
    hlo,
    reduce,
    shape_of,
    static,
)
from relax2xla.tir import Dim


def _like_shape(x: TensorStructInfo, shape: Expr) -> TensorStructInfo:
    """``x`` in the shape that a shape operand holds."""
    return TensorStructInfo(known_shape(shape), x.dtype, x.vdevice)


# ---- one shape to another
@op("relax.broadcast_to", Broadcasting())
def broadcast_to(x: Expr, shape: ShapeLike) -> Rule:
    """``x`` repeated along new axes in front and along its axes of size 1.

    x: (*s), any dtype; shape: a shape with at least as many axes
    result: ``shape``, dtype of ``x``
    """
    info, target = want_tensor(x, "x"), want_shape(shape, "shape")
    if info.ndim != -1 and target.ndim != -1 and info.ndim > target.ndim:
        raise OpError(f"`x` of rank {info.ndim} cannot be broadcast to {show(target)}")
    dims = seen_dims(info)
    if dims is not None and target.values is not None:
        for i in range(1, len(dims) + 1):
            own, new = dims[-i], target.values[-i]
            if own != 1 and differ(own, new):
                raise OpError(f"`x` {show(info)} cannot be broadcast to {show(target)}: axis -{i}")

    def lower() -> Expr:
        return lowering.broadcast_to(x, static(literal_dims(shape, "shape"), "`shape`"))

    return _like_shape(info, shape), lower


def new_shape(x: TensorStructInfo, dims: Sequence[Any]) -> tuple[Any, ...]:
    """``dims`` of a reshape with -1 (what is left) and 0 (as in ``x``) replaced."""
    made = [d.__index__() if isinstance(d, int | np.integer) else d for d in dims]
    own = seen_dims(x)
    count = None if own is None else product(own)
    empty = isinstance(count, int) and count == 0
    for i, d in enumerate(made):
        if isinstance(d, int) and d == 0 and not empty:
            if own is None or i >= len(own):
                raise OpError(
                    f"reshape: dimension {i} of the new shape {tuple(dims)} is 0, which copies it "
                    f"from `x`, but {show(x)} has none there"
                )
            made[i] = own[i]
        elif isinstance(d, int) and d < -1:
            raise OpError(f"reshape: dimension {i} of the new shape is {d}; valid: -1, 0, 1, ...")
    unknown = [i for i, d in enumerate(made) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise OpError(f"reshape: the new shape {tuple(dims)} has -1 more than once")
    if unknown:
        if own is None:
            raise OpError(f"reshape: -1 needs a known shape, but `x` is {show(x)}")
        rest = product(d for i, d in enumerate(made) if i != unknown[0])
        total = product(own)
        if isinstance(rest, int) and rest == 0:
            raise OpError(f"reshape: -1 in {tuple(dims)} could be anything beside a 0")
        if isinstance(rest, int) and isinstance(total, int) and total % rest:
            raise OpError(f"reshape: {show(x)} cannot take the shape {tuple(dims)}")
        made[unknown[0]] = _quotient(own, made, unknown[0])
    return tuple(made)


def _quotient(old: Dims, new: Sequence[Any], skip: int) -> Dim:
    """Number of elements of ``old`` over that of ``new`` without one; equal dimensions cancel."""
    above = list(old)
    below: list[Dim] = []
    for i, d in enumerate(new):
        if i == skip:
            continue
        same = next((j for j, a in enumerate(above) if same_dim(a, d)), None)
        if same is None:
            below.append(d)
        else:
            above.pop(same)
    return fold(product(above) // product(below))


@op("relax.reshape", Reshapes())
def reshape(x: Expr, shape: ShapeLike) -> Rule:
    """``x`` in another shape of as many elements, in row-major order.

    Where the shape is written as numbers, one -1 stands for what is left, and 0 copies the
    dimension of ``x`` at that place (of a tensor without elements it is 0 itself).

    x: (*s), any dtype
    result: ``shape``, dtype of ``x``
    Raises ``OpError`` if the number of elements differs.
    """
    info, target = want_tensor(x, "x"), want_shape(shape, "shape")
    dims = seen_dims(info)
    if dims is not None and target.values is not None:
        have, want = product(dims), product(target.values)
        both = isinstance(have, int) and isinstance(want, int)
        # Symbolic sizes too: 4 * n elements are never 6.
        if have != want if both else tir.Analyzer().can_prove(tir.NE.make(have, want)):
            raise OpError(
                f"`x` {show(info)} has {have} elements, but `shape` {show(target)} has {want}"
            )

    def lower() -> Expr:
        return lowering.reshape(x, static(literal_dims(shape, "shape"), "`shape`"))

    return _like_shape(info, shape), lower


@reshape.shorthand
def _(given: Given) -> Given:
    shape = given["shape"]
    if isinstance(shape, ShapeExpr | Tuple) or not isinstance(shape, Expr):
        if isinstance(shape, int | np.integer | tir.PrimExpr):
            raise OpError(f"`shape` must be a sequence of dimensions; write ({shape},)")
        items: Iterable[Any] = shape.fields if isinstance(shape, Tuple) else shape
        numbers: list[Any] = [d.value if isinstance(d, PrimValue) else d for d in items]
        x = want_tensor(given["x"], "x")
        return {"shape": new_shape(x, [tir.as_dim(d) for d in numbers])}
    return {}


@op("relax.flatten", Reshapes())
def flatten(x: Expr) -> Rule:
    """All elements in one axis.

    x: (*s), any dtype
    result: (product of s,), dtype of ``x``
    """
    info = want_tensor(x, "x")
    if info.ndim != 1:
        dims = (1,) if info.ndim == 0 else None if info.dims is None else (product(info.dims),)
        info = tensor(dims, info.dtype, 1, info)
    return info, lambda: lowering.reshape(x, (elements(shape_of(x)),))


@op("relax.expand_dims", Reshapes())
def expand_dims(x: Expr, axis: IntsLike) -> StructInfo:
    """``x`` with new axes of size 1.

    x: (*s), any dtype; axis: where the new axes are in the result
    result: rank of ``x`` plus the number of new axes, dtype of ``x``
    """
    info = want_tensor(x, "x")
    if not axis:
        return info
    if info.ndim == -1:
        return tensor(None, info.dtype, like=info)
    ndim = info.ndim + len(axis)
    new = norm_axes(axis, ndim)
    if info.dims is None:
        return tensor(None, info.dtype, ndim, info)
    rest = iter(info.dims)
    return tensor(tuple(1 if i in new else next(rest) for i in range(ndim)), info.dtype, like=info)


@expand_dims.legalize
def _(x: Expr, axis: IntsLike) -> Expr:
    shape = shape_of(x)
    new, rest = norm_axes(axis, len(shape) + len(axis)), iter(shape)
    return lowering.reshape(
        x, [1 if i in new else next(rest) for i in range(len(shape) + len(axis))]
    )


def _squeezed(dims: Dims, axis: tuple[int, ...] | None) -> Dims | None:
    if axis is None:
        if not all(isinstance(d, int) for d in dims):
            return None
        return tuple(d for d in dims if d != 1)
    gone = norm_axes(axis, len(dims))
    for i in gone:
        if differ(dims[i], 1):
            shape = ", ".join(map(str, dims))
            raise OpError(
                f"axis {i} of a tensor of shape ({shape}) has {dims[i]} elements; only an axis of "
                "one can be squeezed"
            )
    return tuple(d for i, d in enumerate(dims) if i not in gone)


@op("relax.squeeze", Reshapes())
def squeeze(x: Expr, axis: AxesLike = None) -> Rule:
    """``x`` without axes of size 1: all of them, or those named.

    A named axis has to be of size 1; a symbolic size counts as 1, and calls with another are
    refused. (TVM from 0.21 on and torch let a named axis of another size stay, so that the rank
    depends on the size.)

    x: (*s), any dtype
    result: the other axes, dtype of ``x``
    Raises ``OpError`` for a named axis whose size is known not to be 1.
    """
    info = want_tensor(x, "x")
    dims, ndim = None, -1
    seen = seen_dims(info)
    left = None if seen is None else _squeezed(seen, axis)
    if axis == () or (left is not None and left == seen):
        return info, lambda: x
    if info.dims is not None:
        dims = left
    elif axis is not None and info.ndim != -1:
        ndim = info.ndim - len(norm_axes(axis, info.ndim))

    def lower() -> Expr:
        return lowering.reshape(x, static(_squeezed(shape_of(x), axis)))

    return tensor(dims, info.dtype, ndim, info), lower


@op("relax.permute_dims", Permutes())
def permute_dims(x: Expr, axes: AxesLike = None) -> StructInfo:
    """``x`` with its axes in another order; None reverses them.

    x: (*s), any dtype; axes: the axis of ``x`` that each axis of the result is
    result: the dimensions in that order, dtype of ``x``
    """
    info = want_tensor(x, "x")
    if axes is None and info.ndim == -1:
        return tensor(None, info.dtype, like=info)
    ndim = info.ndim if axes is None or info.ndim != -1 else len(axes)
    order = _order(axes, ndim)
    if order == tuple(range(info.ndim)):
        return info
    if info.dims is None:
        return tensor(None, info.dtype, ndim, info)
    return tensor(tuple(info.dims[i] for i in order), info.dtype, like=info)


def _order(axes: tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(reversed(range(ndim)))
    if len(axes) != ndim:
        raise OpError(f"`axes` must name all {ndim} axes of `x`; got {tuple(axes)}")
    return norm_axes(axes, ndim, "axes")


@permute_dims.legalize
def _(x: Expr, axes: AxesLike = None) -> Expr:
    return lowering.transpose(x, _order(axes, len(shape_of(x))))


def _one_or_many(value: Any) -> Any:
    """An axis stays a number, as TVM writes it."""
    made = as_ints(value)
    return value if isinstance(value, int) else made


OneOrMany = Annotated[Any, Kind(False, _one_or_many)]


@op("relax.flip", AlongAxis())
def flip(data: Expr, axis: OneOrMany) -> Rule:
    """``data`` with the order along an axis reversed.

    data: (*s), any dtype; axis: one axis or several
    result: (*s), dtype of ``data``
    """
    info = want_tensor(data, "data")
    if info.ndim != -1:
        norm_axes(as_ints(axis), info.ndim)

    def lower() -> Expr:
        return hlo("reverse", data, dimensions=norm_axes(as_ints(axis), len(shape_of(data))))

    return info, lower


# ---- repetition
@op("relax.repeat", AlongAxis())
def repeat(data: Expr, repeats: int, axis: int | None = None) -> StructInfo:
    """Each element ``repeats`` times, one beside the other; ``axis=None`` flattens before.

    data: (*s), any dtype
    result: ``repeats`` times as long along ``axis``, dtype of ``data``
    """
    info = want_tensor(data, "data")
    if repeats < 0:
        raise OpError(f"`repeats` must not be negative; got {repeats}")
    if axis is None:
        dims = None if info.dims is None else (fold(product(info.dims) * repeats),)
        return tensor(dims, info.dtype, 1, info)
    if info.ndim == -1:
        return tensor(None, info.dtype, like=info)
    at = norm_axis(axis, info.ndim)
    if info.dims is None:
        return tensor(None, info.dtype, info.ndim, info)
    longer = fold(info.dims[at] * repeats)
    return tensor((*info.dims[:at], longer, *info.dims[at + 1 :]), info.dtype, like=info)


@repeat.legalize
def _(data: Expr, repeats: int, axis: int | None = None) -> Expr:
    if axis is None:
        data, axis = lowering.reshape(data, (elements(shape_of(data)),)), 0
    shape = shape_of(data)
    at = norm_axis(axis, len(shape))
    wide = (*shape[: at + 1], repeats, *shape[at + 1 :])
    dims = [i if i <= at else i + 1 for i in range(len(shape))]
    return lowering.reshape(
        broadcast_in_dim(data, wide, dims), (*shape[:at], shape[at] * repeats, *shape[at + 1 :])
    )


@op("relax.tile", Opaque())
def tile(data: Expr, repeats: IntsLike) -> StructInfo:
    """The whole tensor repeated; ``repeats`` aligns with the axes at the end, as in numpy.

    data: (*s), any dtype; repeats: one number, or one for each axis (missing ones are 1)
    result: each dimension times its number, dtype of ``data``
    """
    info = want_tensor(data, "data")
    if any(r < 0 for r in repeats):
        raise OpError(f"`repeats` must not be negative; got {tuple(repeats)}")
    if info.ndim == -1:
        return tensor(None, info.dtype, like=info)
    ndim = max(info.ndim, len(repeats))
    if info.dims is None:
        return tensor(None, info.dtype, ndim, info)
    dims = (*(1,) * (ndim - info.ndim), *info.dims)
    times = (*(1,) * (ndim - len(repeats)), *repeats)
    return tensor(
        tuple(fold(d * r) for d, r in zip(dims, times, strict=True)), info.dtype, like=info
    )


@tile.legalize
def _(data: Expr, repeats: IntsLike) -> Expr:
    shape = shape_of(data)
    ndim = max(len(shape), len(repeats))
    dims = (*(1,) * (ndim - len(shape)), *shape)
    times = (*(1,) * (ndim - len(repeats)), *repeats)
    wide = [n for pair in zip(times, dims, strict=True) for n in pair]
    spread = broadcast_in_dim(lowering.reshape(data, dims), wide, range(1, 2 * ndim, 2))
    return lowering.reshape(spread, [d * r for d, r in zip(dims, times, strict=True)])


# ---- the inverse of broadcasting
def _check_collapse(info: TensorStructInfo, target: Dims) -> None:
    if info.dims is None:
        return
    if len(target) > len(info.dims):
        raise OpError(f"`data` {show(info)} cannot be collapsed to {target}, which has more axes")
    for i in range(1, len(target) + 1):
        if target[-i] != 1 and differ(target[-i], info.dims[-i]):
            raise OpError(f"`data` {show(info)} cannot be collapsed to {target}: axis -{i} differs")


def sum_to(x: Expr, target: Sequence[int]) -> Expr:
    """``x`` summed over the axes along which ``target`` was broadcast to its shape."""
    shape, dtype = shape_of(x), dtype_of(x)
    lead = len(shape) - len(target)
    axes = [i for i, d in enumerate(shape) if i < lead or (target[i - lead] == 1 and d != 1)]
    if not axes:
        return lowering.reshape(x, target)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    row = "or" if dtype == "bool" else "add"
    return lowering.reshape(convert(reduce(convert(x, work), row, axes), dtype), target)


@op("relax.collapse_sum_to", Opaque())
def collapse_sum_to(data: Expr, shape: ShapeLike) -> Rule:
    """``data`` summed over the axes along which ``shape`` would broadcast to its shape.

    data: (*s), any number; shape: a shape that broadcasts to (*s)
    result: ``shape``, dtype of ``data``
    """
    info, target = want_tensor(data, "data"), want_shape(shape, "shape")
    if target.values is not None:
        _check_collapse(info, target.values)

    def lower() -> Expr:
        return sum_to(data, static(literal_dims(shape, "shape"), "`shape`"))

    return _like_shape(info, shape), lower


@op("relax.collapse_sum_like", Opaque())
def collapse_sum_like(data: Expr, collapse_target: Expr) -> Rule:
    """:func:`collapse_sum_to` with the shape of another tensor.

    data: (*s), any number; collapse_target: a tensor whose shape broadcasts to (*s)
    result: shape of ``collapse_target``, dtype of ``data``
    """
    info, target = want_tensor(data, "data"), want_tensor(collapse_target, "collapse_target")
    if target.dims is not None:
        _check_collapse(info, target.dims)
    if target.dims is None and target.shape is not None:
        made = _like_shape(info, target.shape)
    else:
        made = tensor(target.dims, info.dtype, target.ndim, info)
    return made, lambda: sum_to(data, shape_of(collapse_target))
