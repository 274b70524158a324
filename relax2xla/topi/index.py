"""Elements at places that are data: take, gather, scatter."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.topi.broadcast import broadcast_shapes, element
from relax2xla.topi.shared import (
    compute,
    of_dtype,
    one_axis,
    product,
    replaced,
    unravel,
    want_int,
    want_one_of,
)

_MODES = ("clip", "wrap", "fast", "nan")


def _placed(index: Any, length: Any, mode: str) -> Any:
    """An index within ``length``, as ``mode`` puts it there."""
    if mode == "clip":
        return tir.min(tir.max(of_dtype(0, index.dtype), index), length - 1)
    if mode == "wrap":
        return tir.floormod(index, length)
    return index


def take(
    a: te.Tensor, indices: Any, axis: int | None = None, batch_dims: int = 0, mode: str = "clip"
) -> te.Tensor:
    """Elements of an axis, or of all in row-major order, at ``indices``, a tensor or a number.

    mode: what an index outside is: "clip" the nearest one, "wrap" counted around, "nan" a NaN (a
    negative one counts from the end), "fast" not looked after.
    """
    want_one_of(mode, _MODES, "take: mode")
    at_shape = indices.shape if isinstance(indices, te.Tensor) else ()
    batch = want_int(batch_dims, "take: batch_dims")
    batch = batch + len(at_shape) if batch < 0 else batch
    if axis is None:
        if batch:
            raise ValueError("topi.take: batch_dims go with an axis")
        return _take_flat(a, indices, at_shape, mode)
    along = one_axis(axis, a.ndim, "take")
    if batch > min(along, len(at_shape)):
        raise ValueError(f"topi.take: batch_dims {batch} is beyond the axis or the indices")
    count = len(at_shape) - batch
    length = a.shape[along]

    def read(*i: Any) -> Any:
        index = element(indices, (*i[:batch], *i[along : along + count]))
        return _read(a, [*i[:along], index, *i[along + count :]], along, length, mode)

    return compute([*a.shape[:along], *at_shape[batch:], *a.shape[along + 1 :]], read, "T_take")


def _take_flat(a: te.Tensor, indices: Any, shape: Sequence[Any], mode: str) -> te.Tensor:
    whole = product(a.shape)

    def read(*i: Any) -> Any:
        index = _placed(element(indices, i), whole, mode)
        value = a(*unravel(index, a.shape))
        return _or_nan(value, index, whole) if mode == "nan" else value

    return compute(shape, read, "T_take")


def _read(a: te.Tensor, at: list[Any], axis: int, length: Any, mode: str) -> Any:
    index = at[axis]
    if mode == "nan":
        index = tir.Select(index < 0, index + length, index)
    value = a(*replaced(at, axis, _placed(index, length, mode)))
    return _or_nan(value, index, length) if mode == "nan" else value


def _or_nan(value: Any, index: Any, length: Any) -> Any:
    inside = tir.And.make(index >= 0, index < length)
    return tir.if_then_else(inside, value, tir.const(float("nan"), value.dtype))


def gather(data: te.Tensor, axis: int, indices: te.Tensor) -> te.Tensor:
    """``data[i, indices[i, j]]`` along one axis; both tensors have the same number of axes."""
    along = one_axis(axis, data.ndim, "gather")
    if indices.ndim != data.ndim:
        raise ValueError(f"topi.gather: indices has {indices.ndim} axes, data {data.ndim}")
    return compute(indices.shape, lambda *i: data(*replaced(i, along, indices(*i))), "T_gather")


def gather_nd(a: te.Tensor, indices: te.Tensor, batch_dims: int = 0) -> te.Tensor:
    """Elements, or slices, of ``a`` at ``indices[:, ...]``, whose first axis holds the places."""
    batch = want_int(batch_dims, "gather_nd: batch_dims")
    depth = want_int(indices.shape[0], "gather_nd: the first size of indices")
    if batch + depth > a.ndim or batch > indices.ndim - 1:
        raise ValueError(f"topi.gather_nd: {batch} + {depth} axes of a tensor of {a.ndim}")
    count = indices.ndim - 1

    def read(*i: Any) -> Any:
        at = [tir.cast("int32", indices(n, *i[:count])) for n in range(depth)]
        return a(*i[:batch], *at, *i[count:])

    return compute([*indices.shape[1:], *a.shape[batch + depth :]], read, "T_gather_nd")


def adv_index(data: te.Tensor, indices: Sequence[te.Tensor]) -> te.Tensor:
    """``data[indices]``: tensors of indices that broadcast, for the first axes."""
    if len(indices) > data.ndim or not indices:
        raise ValueError(f"topi.adv_index: {len(indices)} indices of {data.ndim} axes")
    shape = broadcast_shapes([t.shape for t in indices], "adv_index")

    def read(*i: Any) -> Any:
        here = i[: len(shape)]
        return data(*(element(t, here) for t in indices), *i[len(shape) :])

    return compute([*shape, *data.shape[len(indices) :]], read, "advanced_index")


def unravel_index(indices: te.Tensor, shape: te.Tensor) -> te.Tensor:
    """The places in a tensor of ``shape`` of row-major indices, along a new first axis."""
    ndim = want_int(shape.shape[0], "unravel_index: the number of axes")

    def read(*i: Any) -> Any:
        rest = indices(*i[1:])
        made = rest
        for n in reversed(range(ndim)):
            here = tir.floormod(rest, shape(n))
            made = here if n == ndim - 1 else tir.if_then_else(tir.EQ.make(i[0], n), here, made)
            rest = tir.floordiv(rest, shape(n))
        return made

    return compute([ndim, *indices.shape], read, "T_unravel")


# -- scatter: loops, one after the other ---------------------------------------------------------
_UPDATES: dict[str, Callable[[Any, Any], Any]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": tir.min,
    "max": tir.max,
}


def loops(shape: Sequence[Any], names: str, body: Callable[[list[tir.Var]], s.Stmt]) -> s.Stmt:
    """A loop for each size, and ``body`` of their variables."""
    found = [tir.Var(f"{names}{n}", getattr(d, "dtype", "int64")) for n, d in enumerate(shape)]
    made = body(found)
    for v, d in reversed(list(zip(found, shape, strict=True))):
        zero = tir.as_dim(tir.const(0, v.dtype))
        made = s.For(v, zero, tir.as_dim(tir.as_prim_expr(d, v.dtype)), "serial", made)
    return made


def store(buffer: Buffer, value: Any, index: Sequence[Any]) -> s.Stmt:
    """``buffer[index] = value``."""
    return s.BufferStore(buffer, value, tuple(tir.as_prim_expr(i) for i in index))


def read_at(buffer: Buffer, index: Sequence[Any]) -> BufferLoad:
    """``buffer[index]``."""
    return BufferLoad(buffer, list(index))


def from_end(index: Any, length: Any) -> Any:
    """An index that counts from the end where it is negative."""
    return index + length * tir.cast(index.dtype, index < 0)


def _scatter(
    name: str,
    data: te.Tensor,
    indices: te.Tensor,
    updates: te.Tensor,
    reduction: str,
    place: Callable[[Buffer, list[tir.Var]], list[Any]],
) -> te.Tensor:
    combine = _UPDATES[reduction]

    def body(given: Sequence[Buffer], made: Sequence[Buffer]) -> s.Stmt:
        base, where, new = given
        out = made[0]

        def copy(i: list[tir.Var]) -> s.Stmt:
            return store(out, read_at(base, i), i)

        def update(i: list[tir.Var]) -> s.Stmt:
            at = place(where, i)
            return store(out, combine(read_at(out, at), read_at(new, i)), at)

        return s.seq([loops(base.shape, "i", copy), loops(new.shape, "j", update)])

    return te.extern(
        [list(data.shape)], [data, indices, updates], body, name, data.dtype, tag="scatter"
    )


def scatter_elements(
    data: te.Tensor,
    indices: te.Tensor,
    updates: te.Tensor,
    axis: int = 0,
    reduction: str = "update",
) -> te.Tensor:
    """``data`` with ``updates`` at places of which the index along ``axis`` is in ``indices``.

    reduction: "update", "add", "mul", "min" or "max". Negative indices count from the end.
    """
    want_one_of(reduction, tuple(_UPDATES), "scatter_elements: reduction")
    along = one_axis(axis, data.ndim, "scatter_elements")
    length = data.shape[along]

    def place(where: Buffer, i: list[tir.Var]) -> list[Any]:
        return replaced(i, along, from_end(read_at(where, i), length))

    return _scatter("scatter_elements", data, indices, updates, reduction, place)


def scatter_nd(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, mode: str = "update"
) -> te.Tensor:
    """``data`` with elements or slices of ``updates`` at ``indices[:, ...]``.

    The first axis of ``indices`` holds the places; ``mode`` is as for :func:`scatter_elements`.
    """
    want_one_of(mode, tuple(_UPDATES), "scatter_nd: mode")
    depth = want_int(indices.shape[0], "scatter_nd: the first size of indices")
    count = indices.ndim - 1
    if depth > data.ndim or updates.ndim != count + data.ndim - depth:
        raise ValueError(
            f"topi.scatter_nd: {updates.ndim} axes of updates for {depth} axes of {data.ndim}"
        )

    def place(where: Buffer, i: list[tir.Var]) -> list[Any]:
        own = [read_at(where, [tir.const(n, "int64"), *i[:count]]) for n in range(depth)]
        at = [from_end(v, data.shape[n]) for n, v in enumerate(own)]
        return [*at, *i[count:]]

    return _scatter("scatter_nd", data, indices, updates, mode, place)
