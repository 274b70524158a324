"""Operators that rearrange elements without computing: reshape, permute, concat, split, repeat ...

Sources: TVM Relax v0.20 for names and inference, numpy for values. Axes may be negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, PrimValue, ShapeExpr, Tuple
from relax2xla.ir.op import AxesLike, IntsLike, ShapeLike, TupleLike, op
from relax2xla.ir.struct_info import (
    Dims,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    show,
)
from relax2xla.op import _lower
from relax2xla.op._lower import (
    broadcast_in_dim,
    concatenate,
    convert,
    dtype_of,
    elements,
    hlo,
    reduce,
    shape_of,
    slice_axis,
    static,
)
from relax2xla.op._rules import (
    common_dtype,
    fields_of,
    fold,
    known_shape,
    literal_dims,
    norm_axes,
    norm_axis,
    product,
    same_dim,
    tensor,
    want_fields,
    want_shape,
    want_tensor,
)
from relax2xla.tir import Dim


def _like_shape(x: TensorStructInfo, shape: Expr) -> TensorStructInfo:
    """``x`` in the shape that a shape operand holds."""
    return TensorStructInfo(known_shape(shape), x.dtype, x.vdevice)


def _differ(a: Dim, b: Dim) -> bool:
    """Whether two dimensions are provably different."""
    return isinstance(a, int) and isinstance(b, int) and a != b


# ---- one shape to another
@op("relax.broadcast_to")
def broadcast_to(x: Expr, shape: ShapeLike) -> StructInfo:
    """``x`` repeated along new axes in front and along its axes of size 1.

    x: (*s), any dtype; shape: a shape with at least as many axes
    result: ``shape``, dtype of ``x``
    """
    info, target = want_tensor(x, "x"), want_shape(shape, "shape")
    if info.ndim != -1 and target.ndim != -1 and info.ndim > target.ndim:
        raise OpError(f"`x` of rank {info.ndim} cannot be broadcast to {show(target)}")
    if info.dims is not None and target.values is not None:
        for i in range(1, len(info.dims) + 1):
            own, new = info.dims[-i], target.values[-i]
            if own != 1 and _differ(own, new):
                raise OpError(f"{show(info)} cannot be broadcast to {show(target)}: axis -{i}")
    return _like_shape(info, shape)


@broadcast_to.legalize
def _(x: Expr, shape: ShapeLike) -> Expr:
    return _lower.broadcast_to(x, static(literal_dims(shape, "shape"), "`shape`"))


def new_shape(x: TensorStructInfo, dims: Sequence[Any]) -> tuple[Any, ...]:
    """``dims`` of a reshape with -1 (what is left) and 0 (as in ``x``) replaced."""
    made = [d.__index__() if isinstance(d, int | np.integer) else d for d in dims]
    count = None if x.dims is None else product(x.dims)
    empty = isinstance(count, int) and count == 0
    for i, d in enumerate(made):
        if isinstance(d, int) and d == 0 and not empty:
            if x.dims is None or i >= len(x.dims):
                raise OpError(
                    f"reshape: dimension {i} of the new shape {tuple(dims)} is 0, which copies it "
                    f"from `x`, but {show(x)} has none there"
                )
            made[i] = x.dims[i]
        elif isinstance(d, int) and d < -1:
            raise OpError(f"reshape: dimension {i} of the new shape is {d}; valid: -1, 0, 1, ...")
    unknown = [i for i, d in enumerate(made) if isinstance(d, int) and d == -1]
    if len(unknown) > 1:
        raise OpError(f"reshape: the new shape {tuple(dims)} has -1 more than once")
    if unknown:
        if x.dims is None:
            raise OpError(f"reshape: -1 needs a known shape, but `x` is {show(x)}")
        rest = product(d for i, d in enumerate(made) if i != unknown[0])
        total = product(x.dims)
        if isinstance(rest, int) and rest == 0:
            raise OpError(f"reshape: -1 in {tuple(dims)} could be anything beside a 0")
        if isinstance(rest, int) and isinstance(total, int) and total % rest:
            raise OpError(f"reshape: {show(x)} cannot take the shape {tuple(dims)}")
        made[unknown[0]] = _quotient(x.dims, made, unknown[0])
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


@op("relax.reshape")
def reshape(x: Expr, shape: ShapeLike) -> StructInfo:
    """``x`` in another shape of as many elements, in row-major order.

    Where the shape is written as numbers, one -1 stands for what is left, and 0 copies the
    dimension of ``x`` at that place (of a tensor without elements it is 0 itself).

    x: (*s), any dtype
    result: ``shape``, dtype of ``x``
    Raises ``OpError`` if the number of elements differs.
    """
    info, target = want_tensor(x, "x"), want_shape(shape, "shape")
    if info.dims is not None and target.values is not None:
        have, want = product(info.dims), product(target.values)
        both = isinstance(have, int) and isinstance(want, int)
        # Symbolic sizes too: 4 * n elements are never 6.
        if have != want if both else tir.Analyzer().can_prove(tir.NE.make(have, want)):
            raise OpError(
                f"reshape: {show(info)} has {product(info.dims)} elements, but {show(target)} has "
                f"{product(target.values)}"
            )
    return _like_shape(info, shape)


@reshape.shorthand
def _(x: Expr, shape: ShapeLike) -> Mapping[str, Any]:
    if isinstance(shape, ShapeExpr | Tuple) or not isinstance(shape, Expr):
        if isinstance(shape, int | np.integer | tir.PrimExpr):
            shape = (shape,)
        items: Iterable[Any] = shape.fields if isinstance(shape, Tuple) else shape
        numbers: list[Any] = [d.value if isinstance(d, PrimValue) else d for d in items]
        return {"shape": new_shape(want_tensor(x, "x"), [tir.as_dim(d) for d in numbers])}
    return {}


@reshape.legalize
def _(x: Expr, shape: ShapeLike) -> Expr:
    return _lower.reshape(x, static(literal_dims(shape, "shape"), "`shape`"))


@op("relax.flatten")
def flatten(x: Expr) -> StructInfo:
    """All elements in one axis.

    x: (*s), any dtype
    result: (product of s,), dtype of ``x``
    """
    info = want_tensor(x, "x")
    if info.ndim == 1:
        return info
    return tensor(None if info.dims is None else (product(info.dims),), info.dtype, 1, info)


@flatten.legalize
def _(x: Expr) -> Expr:
    return _lower.reshape(x, (elements(shape_of(x)),))


@op("relax.expand_dims")
def expand_dims(x: Expr, axis: IntsLike) -> StructInfo:
    """``x`` with new axes of size 1.

    x: (*s), any dtype; axis: where the new axes are in the result
    result: rank of ``x`` plus the number of new axes, dtype of ``x``
    """
    info = want_tensor(x, "x")
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
    return _lower.reshape(x, [1 if i in new else next(rest) for i in range(len(shape) + len(axis))])


def _squeezed(dims: Dims, axis: tuple[int, ...] | None) -> Dims | None:
    if axis is None:
        if not all(isinstance(d, int) for d in dims):
            return None
        return tuple(d for d in dims if d != 1)
    gone = norm_axes(axis, len(dims))
    return tuple(d for i, d in enumerate(dims) if i not in gone or (isinstance(d, int) and d != 1))


@op("relax.squeeze")
def squeeze(x: Expr, axis: AxesLike = None) -> StructInfo:
    """``x`` without axes of size 1: all of them, or those named.

    A named axis whose size is known not to be 1 stays, as in TVM and torch; a symbolic one counts
    as 1.

    x: (*s), any dtype
    result: the other axes, dtype of ``x``
    """
    info = want_tensor(x, "x")
    if info.dims is not None:
        dims = _squeezed(info.dims, axis)
        return tensor(dims, info.dtype, like=info)
    known = axis is not None and info.ndim != -1
    ndim = info.ndim - len(norm_axes(axis, info.ndim)) if known else -1
    return tensor(None, info.dtype, ndim, info)


@squeeze.legalize
def _(x: Expr, axis: AxesLike = None) -> Expr:
    return _lower.reshape(x, static(_squeezed(shape_of(x), axis)))


@op("relax.permute_dims")
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
    return _lower.transpose(x, _order(axes, len(shape_of(x))))


@op("relax.flip")
def flip(data: Expr, axis: IntsLike) -> StructInfo:
    """``data`` with the order along an axis reversed.

    data: (*s), any dtype; axis: one axis or several
    result: (*s), dtype of ``data``
    """
    info = want_tensor(data, "data")
    if info.ndim != -1:
        norm_axes(axis, info.ndim)
    return info


@flip.legalize
def _(data: Expr, axis: IntsLike) -> Expr:
    return hlo("reverse", data, dimensions=norm_axes(axis, len(shape_of(data))))


# ---- several tensors to one, one to several
def _tensors(tensors: Expr, what: str) -> tuple[list[TensorStructInfo], str, int]:
    """Struct infos of a tuple operand of tensors, their dtype and their rank (-1 unknown)."""
    infos: list[TensorStructInfo] = []
    for i, f in enumerate(want_fields(tensors, "tensors")):
        if not isinstance(f, TensorStructInfo):
            raise OpError(f"{what}: field {i} of `tensors` must be a tensor; got {show(f)}")
        infos.append(f)
    if not infos:
        raise OpError(f"{what} needs at least one tensor")
    dtype = common_dtype(infos, [f"tensors[{i}]" for i in range(len(infos))])
    ranks = {i.ndim for i in infos if i.ndim != -1}
    if len(ranks) > 1:
        raise OpError(f"{what}: the tensors must have one rank; got {sorted(ranks)}")
    return infos, dtype, ranks.pop() if ranks else -1


def _joint(infos: Sequence[TensorStructInfo], skip: int | None, what: str) -> Dims | None:
    """The common dimensions of tensors (that of axis ``skip`` is the first's), None if open."""
    shapes = [i.dims for i in infos if i.dims is not None]
    if not shapes:
        return None
    known = len(shapes) == len(infos)
    for axis in range(len(shapes[0])):
        for s in shapes[1:]:
            if axis != skip and not same_dim(s[axis], shapes[0][axis]):
                if _differ(s[axis], shapes[0][axis]):
                    raise OpError(
                        f"{what}: the tensors differ in dimension {axis}: "
                        f"{shapes[0][axis]} and {s[axis]}"
                    )
                known = False
    return shapes[0] if known else None


@op("relax.concat")
def concat(tensors: TupleLike, axis: int | None = 0) -> StructInfo:
    """Tensors one after the other along an axis; ``axis=None`` is for tensors of rank 1.

    tensors: a tuple of tensors of one dtype and rank that differ in ``axis`` only
    result: the sum of their sizes along ``axis``, their dtype
    """
    infos, dtype, ndim = _tensors(tensors, "concat")
    if axis is None:
        if ndim not in (-1, 1):
            raise OpError(f"concat: axis=None is for tensors of rank 1; got rank {ndim}")
        ndim = 1
    if ndim == -1:
        return tensor(None, dtype, like=infos[0])
    at = norm_axis(axis or 0, ndim)
    dims = _joint(infos, at, "concat")
    if dims is None:
        return tensor(None, dtype, ndim, infos[0])
    total: Dim = 0
    for i in infos:
        total = total + (i.dims or dims)[at]
    return tensor((*dims[:at], fold(total), *dims[at + 1 :]), dtype, like=infos[0])


@concat.legalize
def _(tensors: TupleLike, axis: int | None = 0) -> Expr:
    parts = fields_of(tensors)
    return concatenate(parts, norm_axis(axis or 0, len(shape_of(parts[0]))))


@op("relax.stack")
def stack(tensors: TupleLike, axis: int = 0) -> StructInfo:
    """Tensors one after the other along a new axis.

    tensors: a tuple of tensors of one dtype and shape; axis: the new axis in the result
    result: their shape with their number at ``axis``, their dtype
    """
    infos, dtype, ndim = _tensors(tensors, "stack")
    if ndim == -1:
        return tensor(None, dtype, like=infos[0])
    at = norm_axis(axis, ndim + 1)
    dims = _joint(infos, None, "stack")
    if dims is None:
        return tensor(None, dtype, ndim + 1, infos[0])
    return tensor((*dims[:at], len(infos), *dims[at:]), dtype, like=infos[0])


@stack.legalize
def _(tensors: TupleLike, axis: int = 0) -> Expr:
    parts = fields_of(tensors)
    shape = shape_of(parts[0])
    at = norm_axis(axis, len(shape) + 1)
    return concatenate([_lower.reshape(p, (*shape[:at], 1, *shape[at:])) for p in parts], at)


def _cuts(indices_or_sections: Any, size: Dim) -> list[tuple[Dim, Dim]] | None:
    """(start, length) of the parts of a split."""
    if isinstance(indices_or_sections, int | np.integer):
        count = int(indices_or_sections)
        if count < 1:
            raise OpError(f"split: the number of sections must be positive; got {count}")
        step = fold((size + count - 1) // count)
        if isinstance(size, int) and isinstance(step, int):
            starts = [min(i * step, size) for i in range(count + 1)]
            return [(a, b - a) for a, b in pairwise(starts)]
        last = fold(size - step * (count - 1))
        lengths = [step] * (count - 1) + [last]
        return [(fold(step * i), n) for i, n in enumerate(lengths)]
    marks: list[Dim] = [tir.as_dim(i) for i in indices_or_sections]
    parts: list[tuple[Dim, Dim]] = []
    for start, end in zip([0, *marks], [*marks, size], strict=True):
        if isinstance(start, int) and isinstance(end, int) and isinstance(size, int):
            a = min(max(start + size if start < 0 else start, 0), size)
            b = min(max(end + size if end < 0 else end, 0), size)
            parts.append((a, max(b - a, 0)))
        elif end is size:
            parts.append((start, fold(tir.max(size - start, 0))))
        else:
            length = fold(tir.max(tir.min(end, size) - tir.min(start, size), 0))
            parts.append((start, length))
    return parts


@op("relax.split")
def split(x: Expr, indices_or_sections: Any, axis: int = 0) -> StructInfo:
    """``x`` cut into parts along an axis.

    A number is how many parts: each of ``ceil(size / n)``, the last ones shorter. A list holds the
    positions before which ``x`` is cut, as in ``numpy.split``.

    x: (*s), any dtype
    result: a tuple of tensors of dtype of ``x``; ``x`` itself (no tuple) for one section
    """
    info = want_tensor(x, "x")
    whole = isinstance(indices_or_sections, int | np.integer)
    if whole and indices_or_sections == 1:
        return info
    count = int(indices_or_sections) if whole else len(indices_or_sections) + 1
    if whole and count < 1:
        raise OpError(f"split: the number of sections must be positive; got {count}")
    at = norm_axis(axis, info.ndim) if info.ndim != -1 else 0
    if info.dims is None:
        return TupleStructInfo([tensor(None, info.dtype, info.ndim, info)] * count)
    parts = _cuts(indices_or_sections, info.dims[at]) or []
    return TupleStructInfo(
        [
            tensor((*info.dims[:at], length, *info.dims[at + 1 :]), info.dtype, like=info)
            for _, length in parts
        ]
    )


@split.shorthand
def _(x: Expr, indices_or_sections: Any, axis: int = 0) -> Mapping[str, Any]:
    if isinstance(indices_or_sections, Iterable):
        items: Iterable[Any] = indices_or_sections
        return {"indices_or_sections": tuple(tir.as_dim(i) for i in items)}
    if isinstance(indices_or_sections, tir.IntImm):
        return {"indices_or_sections": indices_or_sections.value}
    return {}


@split.legalize
def _(x: Expr, indices_or_sections: Any, axis: int = 0) -> Expr:
    shape = shape_of(x)
    at = norm_axis(axis, len(shape))
    if indices_or_sections == 1:
        return x
    parts = _cuts(indices_or_sections, shape[at]) or []
    return Tuple(
        [
            slice_axis(x, at, start, start + length)
            for start, length in (static(p, "a position of `split`") for p in parts)
        ]
    )


@op("relax.meshgrid")
def meshgrid(tensors: TupleLike, indexing: str = "ij") -> StructInfo:
    """The coordinates of a grid, one tensor an axis.

    tensors: a tuple of vectors of one dtype; indexing: "ij" (matrix order) or "xy" (the first two
    axes of the results are swapped, as in numpy)
    result: a tuple of as many tensors, of the grid's shape
    """
    infos, dtype, _ = _tensors(tensors, "meshgrid")
    if indexing not in ("ij", "xy"):
        raise OpError(f'`indexing` must be "ij" or "xy"; got {indexing!r}')
    for i in infos:
        if i.ndim not in (-1, 0, 1):
            raise OpError(f"meshgrid takes vectors; got {show(i)}")
    sizes = [(i.dims[0] if i.dims else 1) for i in infos if i.dims is not None]
    if len(sizes) < len(infos):
        return TupleStructInfo([tensor(None, dtype, len(infos), infos[0])] * len(infos))
    if indexing == "xy":
        sizes[:2] = reversed(sizes[:2])
    return TupleStructInfo([tensor(tuple(sizes), dtype, like=infos[0])] * len(infos))


@meshgrid.legalize
def _(tensors: TupleLike, indexing: str = "ij") -> Expr:
    parts = fields_of(tensors)
    parts = [_lower.reshape(p, (elements(shape_of(p)),)) for p in parts]
    axes = list(range(len(parts)))
    if indexing == "xy":
        axes[:2] = reversed(axes[:2])
    shape = [0] * len(parts)
    for p, axis in zip(parts, axes, strict=True):
        shape[axis] = shape_of(p)[0]
    return Tuple([broadcast_in_dim(p, shape, [a]) for p, a in zip(parts, axes, strict=True)])


# ---- repetition
@op("relax.repeat")
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
        data, axis = _lower.reshape(data, (elements(shape_of(data)),)), 0
    shape = shape_of(data)
    at = norm_axis(axis, len(shape))
    wide = (*shape[: at + 1], repeats, *shape[at + 1 :])
    dims = [i if i <= at else i + 1 for i in range(len(shape))]
    return _lower.reshape(
        broadcast_in_dim(data, wide, dims), (*shape[:at], shape[at] * repeats, *shape[at + 1 :])
    )


@op("relax.tile")
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
    spread = broadcast_in_dim(_lower.reshape(data, dims), wide, range(1, 2 * ndim, 2))
    return _lower.reshape(spread, [d * r for d, r in zip(dims, times, strict=True)])


# ---- the inverse of broadcasting
def _check_collapse(info: TensorStructInfo, target: Dims) -> None:
    if info.dims is None:
        return
    if len(target) > len(info.dims):
        raise OpError(f"{show(info)} cannot be collapsed to {target}, which has more axes")
    for i in range(1, len(target) + 1):
        if target[-i] != 1 and _differ(target[-i], info.dims[-i]):
            raise OpError(f"{show(info)} cannot be collapsed to {target}: axis -{i} differs")


def sum_to(x: Expr, target: Sequence[int]) -> Expr:
    """``x`` summed over the axes along which ``target`` was broadcast to its shape."""
    shape, dtype = shape_of(x), dtype_of(x)
    lead = len(shape) - len(target)
    axes = [i for i, d in enumerate(shape) if i < lead or (target[i - lead] == 1 and d != 1)]
    if not axes:
        return _lower.reshape(x, target)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    row = "or" if dtype == "bool" else "add"
    return _lower.reshape(convert(reduce(convert(x, work), row, axes), dtype), target)


@op("relax.collapse_sum_to")
def collapse_sum_to(data: Expr, shape: ShapeLike) -> StructInfo:
    """``data`` summed over the axes along which ``shape`` would broadcast to its shape.

    data: (*s), any number; shape: a shape that broadcasts to (*s)
    result: ``shape``, dtype of ``data``
    """
    info, target = want_tensor(data, "data"), want_shape(shape, "shape")
    if target.values is not None:
        _check_collapse(info, target.values)
    return _like_shape(info, shape)


@collapse_sum_to.legalize
def _(data: Expr, shape: ShapeLike) -> Expr:
    return sum_to(data, static(literal_dims(shape, "shape"), "`shape`"))


@op("relax.collapse_sum_like")
def collapse_sum_like(data: Expr, collapse_target: Expr) -> StructInfo:
    """:func:`collapse_sum_to` with the shape of another tensor.

    data: (*s), any number; collapse_target: a tensor whose shape broadcasts to (*s)
    result: shape of ``collapse_target``, dtype of ``data``
    """
    info, target = want_tensor(data, "data"), want_tensor(collapse_target, "collapse_target")
    if target.dims is not None:
        _check_collapse(info, target.dims)
    elif target.shape is not None:
        return _like_shape(info, target.shape)
    return tensor(target.dims, info.dtype, target.ndim, info)


@collapse_sum_like.legalize
def _(data: Expr, collapse_target: Expr) -> Expr:
    return sum_to(data, shape_of(collapse_target))
