"""Several tensors as one and one as several: concat, stack, split, meshgrid.

Sources: TVM Relax v0.20 for names and inference, numpy for values. Axes may be negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, Tuple
from relax2xla.ir.op import Given, op
from relax2xla.ir.op_param import TupleLike
from relax2xla.ir.struct_info import Dims, StructInfo, TensorStructInfo, TupleStructInfo, show
from relax2xla.ir.traits import AlongAxis, Joins, Opaque, Stacks
from relax2xla.op.shared import lowering
from relax2xla.op.shared.checks import (
    common_dtype,
    differ,
    fields_of,
    fold,
    norm_axis,
    same_dim,
    seen_dims,
    tensor,
    want_fields,
    want_tensor,
)
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    concatenate,
    elements,
    shape_of,
    slice_axis,
    static,
)
from relax2xla.op.slices import canonical
from relax2xla.tir import Dim


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
    shapes = [d for i in infos if (d := seen_dims(i)) is not None]
    if not shapes:
        return None
    known = all(i.dims is not None for i in infos)
    for axis in range(len(shapes[0])):
        for s in shapes[1:]:
            if axis != skip and not same_dim(s[axis], shapes[0][axis]):
                if differ(s[axis], shapes[0][axis]):
                    raise OpError(
                        f"{what}: the tensors differ in dimension {axis}: "
                        f"{shapes[0][axis]} and {s[axis]}"
                    )
                known = False
    return shapes[0] if known else None


@op("relax.concat", Joins())
def concat(tensors: TupleLike, axis: int | None = 0) -> StructInfo:
    """Tensors one after the other along an axis; ``axis=None`` is for tensors of rank 1.

    tensors: a tuple of tensors of one dtype and rank that differ in ``axis`` only
    result: the sum of their sizes along ``axis``, their dtype
    """
    infos, dtype, ndim = _tensors(tensors, "concat")
    if axis is None:
        if ndim not in (-1, 1):
            raise OpError(f"concat: axis=None is for tensors of rank 1; got rank {ndim}")
        ndim = 1 if len(infos) > 1 else ndim
    if ndim == -1:
        return infos[0] if len(infos) == 1 else tensor(None, dtype, like=infos[0])
    at = norm_axis(axis or 0, ndim)
    if len(infos) == 1:
        return infos[0]
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


@op("relax.stack", Stacks())
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
    return concatenate([lowering.reshape(p, (*shape[:at], 1, *shape[at:])) for p in parts], at)


# Each is a value of the program; beyond these the number is a mistake, or an attack.
MOST_SECTIONS: Final = 1 << 16


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
        if same_dim(step * count, size):
            return [(fold(step * i), step) for i in range(count)]
        parts: list[tuple[Dim, Dim]] = [(0, step)]
        for i in range(1, count):
            length: Any = size - step * i  # What is left.
            length = length if i == count - 1 else tir.min(step, length)
            length = length if i == 1 else tir.max(length, 0)
            parts.append((fold(tir.min(step * i, size)), fold(length)))
        return parts
    marks: list[Dim] = [_mark(tir.as_dim(i), size) for i in indices_or_sections]
    parts = []
    for start, end in zip([0, *marks], [*marks, size], strict=True):
        if isinstance(start, int) and isinstance(end, int) and isinstance(size, int):
            a, b = (min(max(v, 0), size) for v in (start, end))
            parts.append((a, max(b - a, 0)))
            continue
        if end is size:
            length = tir.max(size - start, 0)
        else:
            length = tir.max(tir.min(end, size) - tir.min(start, size), 0)
        parts.append((fold(tir.min(start, size)), fold(length)))
    return parts


def _mark(mark: Dim, size: Dim) -> Dim:
    """A position, counted from the end if it is negative (or may be, where it is symbolic)."""
    return mark if isinstance(mark, int) and mark >= 0 else canonical(mark, size, False)


@op("relax.split", AlongAxis())
def split(x: Expr, indices_or_sections: Any, axis: int = 0) -> StructInfo:
    """``x`` cut into parts along an axis.

    A number is how many parts: each of ``ceil(size / n)``, the last ones shorter. A list holds the
    positions before which ``x`` is cut, as in ``numpy.split``: negative ones count from the end.

    x: (*s), any dtype
    result: a tuple of tensors of dtype of ``x``; ``x`` itself (no tuple) for one section or no
    position
    """
    info = want_tensor(x, "x")
    whole = isinstance(indices_or_sections, int | np.integer)
    if not whole and not (
        isinstance(indices_or_sections, tuple | list)
        and all(isinstance(i, int | np.integer | tir.PrimExpr) for i in indices_or_sections)
    ):
        raise OpError(
            "`indices_or_sections` must be a number or a list of positions; "
            f"got {indices_or_sections!r}"
        )
    at = norm_axis(axis, info.ndim) if info.ndim != -1 else 0
    if indices_or_sections in (1, (), []):
        return info
    count = int(indices_or_sections) if whole else len(indices_or_sections) + 1
    if whole and count < 1:
        raise OpError(f"split: the number of sections must be positive; got {count}")
    if whole and count > MOST_SECTIONS:
        raise OpError(
            f"split: {count} sections are more than the {MOST_SECTIONS} that a tuple may have here"
        )
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
def _(given: Given) -> Given:
    cuts = given["indices_or_sections"]
    if isinstance(cuts, Iterable):
        items: Iterable[Any] = cuts
        return {"indices_or_sections": tuple(tir.as_dim(i) for i in items)}
    return {"indices_or_sections": cuts.value} if isinstance(cuts, tir.IntImm) else {}


@split.legalize
def _(x: Expr, indices_or_sections: Any, axis: int = 0) -> Expr:
    shape = shape_of(x)
    at = norm_axis(axis, len(shape))
    if indices_or_sections in (1, (), []):
        return x
    parts = _cuts(indices_or_sections, shape[at]) or []
    return Tuple(
        [
            slice_axis(x, at, start, start + length)
            for start, length in (static(p, "a position of `split`") for p in parts)
        ]
    )


@op("relax.meshgrid", Opaque())
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
    parts = [lowering.reshape(p, (elements(shape_of(p)),)) for p in parts]
    axes = list(range(len(parts)))
    if indexing == "xy":
        axes[:2] = reversed(axes[:2])
    shape = [0] * len(parts)
    for p, axis in zip(parts, axes, strict=True):
        shape[axis] = shape_of(p)[0]
    return Tuple([broadcast_in_dim(p, shape, [a]) for p, a in zip(parts, axes, strict=True)])
