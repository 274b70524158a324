"""Indexing with tensors, gathering and scattering.

Relax counts indices from the front; negative ones are wrapped here, as in torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.index import joined
from relax2xla.importers.torch.aten.places.scatter import of_ranks
from relax2xla.importers.torch.aten.shape import bound_of, fits, place_of, take_range
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    axis_of,
    broadcast,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Expr, PrimValue, Tuple


@aten("index_select")
def index_select(ctx: Context, self: Expr, dim: int, index: Expr) -> Expr:
    if ndim_of(self) == 0:
        return self
    axis = axis_of(dim, ndim_of(self))
    if ndim_of(index) == 0:
        index = R.reshape(index, (1,))
    return R.take(self, index, axis)


@aten("take")
def take(ctx: Context, self: Expr, index: Expr) -> Expr:
    flat = ctx.emit(R.reshape(self, (-1,)))
    return R.take(flat, ctx.wrap(index, dims_of(flat)[0]), 0)


@aten("gather", ignored="sparse_grad")
def gather(ctx: Context, self: Expr, dim: int, index: Expr) -> Expr:
    """``index`` may be shorter than ``self``; ``sparse_grad`` concerns the gradient.

    Torch refuses negative indices here, as for ``index_select`` and ``scatter``.
    """
    ndim = ndim_of(self)
    if ndim == 0 or ndim_of(index) == 0:
        flat = R.reshape(self, (-1,))
        return ctx.reshape(R.take(flat, R.reshape(index, (-1,)), 0), ctx.dims())
    axis = axis_of(dim, ndim)
    return R.gather_elements(_cut(ctx, self, index, axis), index, dim)


def _cut(ctx: Context, x: Expr, index: Expr, skip: int | None) -> Expr:
    """``x`` cut to the shape of ``index``, except along ``skip``."""
    for a, (have, want) in enumerate(zip(dims_of(x), dims_of(index), strict=True)):
        if a != skip and have != want:
            x = ctx.emit(take_range(ctx.emit(x), a, 0, want))
    return x


SCATTER_REDUCTIONS = {"sum": "add", "add": "add", "multiply": "mul", "prod": "mul"}


@aten("scatter.src scatter.reduce scatter.value scatter.value_reduce")
def scatter(
    ctx: Context,
    self: Expr,
    dim: int,
    index: Expr,
    src: Any = None,
    value: Any = None,
    reduce: str | None = None,
) -> Expr:
    kind = "update" if reduce is None else SCATTER_REDUCTIONS[reduce]
    if src is None:
        source = R.broadcast_to(ctx.tensor(value, dtype_of(self)), dims_of(index))
    else:
        source = _cut(ctx, src, index, None)
    ndim = ndim_of(self)
    if ndim == 0:
        flat, at = R.reshape(self, (1,)), R.reshape(index, (1,))
        one = R.reshape(source, (1,))
        return R.reshape(R.scatter_elements(flat, at, one, 0, kind), ())
    return R.scatter_elements(self, index, source, dim, kind)


aten("scatter_add")(
    lambda ctx, self, dim, index, src: scatter(ctx, self, dim, index, src, reduce="add")
)


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(ctx: Context, self: Expr, indices: Sequence[Expr | None]) -> Expr:
    """numpy's advanced indexing. A mask selects a number of elements that is not known."""
    at = [(a, i) for a, i in enumerate(indices) if i is not None]
    if any(dtype_of(i) == "bool" for _, i in at):
        raise Unsupported(
            "indexing with a mask: the result's shape depends on the data",
            "use torch.where or multiply by the mask",
        )
    shape = dims_of(self)
    if len(at) == 1:
        axis, one = at[0]
        return R.take(self, ctx.wrap(one, shape[axis]), axis)
    axes = [a for a, _ in at]
    wrapped = [ctx.wrap(i, shape[a]) for a, i in at]
    joint = _broadcast(ctx, wrapped)
    rest = [a for a in range(len(shape)) if a not in axes]
    order = axes + rest
    data = self if order == list(range(len(shape))) else R.permute_dims(self, order)
    found = R.gather_nd(data, R.stack(joint, -1))
    # Axes of the result: those of the indices first. Where the indexed axes are neighbours, torch
    # puts them in their place.
    together = axes == list(range(axes[0], axes[-1] + 1))
    if not together or axes[0] == 0:
        return found
    n = ndim_of(joint[0])
    before = list(range(n, n + axes[0]))
    after = list(range(n + axes[0], n + len(rest)))
    return R.permute_dims(found, [*before, *range(n), *after])


def _broadcast(ctx: Context, indices: Sequence[Expr]) -> list[Expr]:
    indices = [ctx.cast(i, "int64") for i in indices]
    total = indices[0]
    for i in indices[1:]:
        total = R.add(total, i)
    info = total.struct_info
    dims = getattr(info, "dims", None)
    if dims is None:
        raise Unsupported("index tensors whose common shape is not known")
    return [broadcast(i, dims) for i in indices]


@aten("index_put", "_unsafe_index_put")
def index_put(
    ctx: Context,
    self: Expr,
    indices: Sequence[Expr | None],
    values: Expr,
    accumulate: bool = False,
) -> Expr:
    at = [(a, i) for a, i in enumerate(indices) if i is not None]
    if len(at) == 1 and dtype_of(at[0][1]) == "bool":
        return _masked_put(ctx, self, *at[0], values, accumulate)
    if any(dtype_of(i) == "bool" for _, i in at):
        raise Unsupported(
            "index_put with a mask among several indices",
            "index with places alone, or write by torch.where(mask, values, x)",
        )
    axes, places = [a for a, _ in at], [i for _, i in at]
    shape = dims_of(self)
    rest = [a for a in range(len(shape)) if a not in axes]
    kept = accumulate and dtype_of(self) == "bool"
    if axes == list(range(len(axes))) and not kept and not any(map(ctx.from_front, places)):
        new = ctx.cast(values, dtype_of(self))
        return R.index_put(self, Tuple([ctx.emit(i) for i in places]), new, accumulate)
    joint = _broadcast(ctx, [ctx.wrap(i, shape[a]) for a, i in at])
    many = dims_of(joint[0])
    n = len(many)
    # Axes of what is written: where the indexed axes are neighbours, the indices' take their place.
    together = axes == list(range(axes[0], axes[-1] + 1))
    before = axes[0] if together else 0
    left, right = [shape[a] for a in rest[:before]], [shape[a] for a in rest[before:]]
    wanted: tuple[Dim, ...] = (*left, *many, *right)
    updates = broadcast(ctx.cast(values, dtype_of(self)), wanted)
    if before:
        order = [*range(before, before + n), *range(before), *range(before + n, len(wanted))]
        updates = R.permute_dims(updates, order)
    order = [*axes, *rest]
    plain = order == list(range(len(shape)))
    data = self if plain else R.permute_dims(self, order)
    kind = "add" if accumulate else "update"
    if accumulate and dtype_of(self) == "bool":
        kind = "max"
    made = _scatter_places(ctx, data, R.stack(joint, -1), updates, kind)
    return made if plain else R.permute_dims(made, [order.index(a) for a in range(len(shape))])


def _scatter_places(ctx: Context, data: Expr, at: Expr, updates: Expr, kind: str) -> Expr:
    if dtype_of(data) != "bool" or kind == "update":
        return R.scatter_nd(data, at, updates, kind)
    made = R.scatter_nd(ctx.cast(data, "int8"), at, ctx.cast(updates, "int8"), kind)
    return ctx.cast(made, "bool")


def _masked_put(
    ctx: Context, self: Expr, axis: int, mask: Expr, values: Expr, accumulate: bool
) -> Expr:
    """A mask of the axes from ``axis`` on: its k-th place gets the k-th of the values.

    One value goes to all places. The values' other axes broadcast.
    """
    x, m = ctx.emit(self), ctx.emit(mask)
    rest = ndim_of(x) - axis - ndim_of(m)
    values = ctx.emit(ctx.cast(values, dtype_of(x)))
    have = dims_of(values)
    along = len(have) - rest - 1
    if along < 0:
        new = values
    elif have[along] == 0:
        return x
    elif have[along] == 1:
        new = ctx.reshape(values, (*have[:along], *[1] * ndim_of(m), *have[along + 1 :]))
    else:
        new = of_ranks(ctx, values, m, along)
    if accumulate:
        new = R.logical_or(x, new) if dtype_of(x) == "bool" else R.add(x, new)
    return R.where(ctx.reshape(m, (*dims_of(m), *[1] * rest)), new, x)


@aten("select_scatter")
def select_scatter(ctx: Context, self: Expr, src: Expr, dim: int, index: Any) -> Expr:
    shape = dims_of(self)
    axis = axis_of(dim, len(shape))
    at = place_of(ctx, index, shape[axis])
    thin = ctx.reshape(src, (*shape[:axis], 1, *shape[axis + 1 :]))
    return _between(ctx, self, thin, axis, at, at + 1)


@aten("slice_scatter")
def slice_scatter(
    ctx: Context,
    self: Expr,
    src: Expr,
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Expr:
    axis = axis_of(dim, ndim_of(self))
    size, count = dims_of(self)[axis], dims_of(src)[axis]
    low = bound_of(ctx, start, size, 0, axis)
    high = bound_of(ctx, end, size, size, axis)
    if all(isinstance(d, int) for d in (size, low, high)):
        return R.slice_scatter(self, ctx.cast(src, dtype_of(self)), low, high, step, dim)
    if step == 1:
        fits(ctx, count, size)
        return _between(ctx, self, src, axis, low, low + count)
    places = R.arange(low, low + count * step, step, "int64")
    column: list[Dim] = [1] * ndim_of(self)
    column[axis] = count
    at = R.broadcast_to(R.reshape(places, column), dims_of(src))
    return R.scatter_elements(self, at, src, axis, "update")


def _between(ctx: Context, x: Expr, part: Expr, axis: int, start: Any, stop: Any) -> Expr:
    """``x`` with ``x[start:stop]`` along an axis replaced: what lies around it, joined."""
    x = ctx.emit(x)
    size = dims_of(x)[axis]
    parts = [ctx.cast(part, dtype_of(x))]
    if not (isinstance(start, int) and start == 0):
        parts.insert(0, take_range(x, axis, 0, start))
    if stop != size:
        parts.append(take_range(x, axis, stop, size))
    return joined(parts, axis)


@aten("index_fill.int_Scalar", "index_fill.int_Tensor")
def index_fill(ctx: Context, self: Expr, dim: int, index: Expr, value: Any) -> Expr:
    if ndim_of(index) == 0:
        index = ctx.reshape(index, (1,))
    if ndim_of(self) == 0:
        return ctx.full((), value, dtype_of(self))
    axis = axis_of(dim, ndim_of(self))
    shape = list(dims_of(self))
    shape[axis] = dims_of(index)[0]
    return _along(ctx, self, dim, index, ctx.full(tuple(shape), value, dtype_of(self)), "update")


def _writing(kind: str) -> Function:
    def convert(
        ctx: Context, self: Expr, dim: int, index: Expr, source: Expr, alpha: Any = 1
    ) -> Expr:
        return _along(ctx, self, dim, index, source, kind, alpha)

    return convert


aten("index_add")(_writing("add"))
aten("index_copy")(_writing("update"))


def _along(
    ctx: Context, self: Expr, dim: int, index: Expr, source: Expr, kind: str, alpha: Any = 1
) -> Expr:
    if ndim_of(index) == 0:
        index = ctx.reshape(index, (1,))
    if ndim_of(self) == 0:
        flat = _along(ctx, R.reshape(self, (1,)), 0, index, ctx.reshape(source, (1,)), kind, alpha)
        return R.reshape(flat, ())
    if ndim_of(source) == 0:
        source = ctx.reshape(source, [1] * ndim_of(self))
    axis = axis_of(dim, ndim_of(self))
    updates = source
    if alpha != 1:
        updates = R.multiply(source, scalar(alpha, dtype_of(source)))
    column: list[Dim] = [1] * ndim_of(self)
    column[axis] = dims_of(index)[0]
    at = R.reshape(ctx.wrap(index, dims_of(self)[axis]), column)
    return R.scatter_elements(self, R.broadcast_to(at, dims_of(source)), updates, axis, kind)


@aten("one_hot", ignored="num_classes")
def one_hot(ctx: Context, self: Expr) -> Expr:
    """The labels lie within the classes: torch looks at them, or they are its own to count."""
    classes = ctx.dims()[-1]
    if isinstance(classes, int) and classes:
        return R.one_hot(self, PrimValue(1), PrimValue(0), classes, -1)
    labels = R.expand_dims(self, -1)
    return R.astype(R.equal(labels, R.arange(classes, dtype=dtype_of(self))), "int64")
