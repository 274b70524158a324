"""Operators that move, select, sort and make elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import op, tir
from relax2xla.frontend.nn.eager import eager
from relax2xla.frontend.nn.values import IntExpr, Tensor, expr_of, wrap_nested
from relax2xla.ir import ShapeExpr


@eager
def reshape(x: Tensor, shape: Sequence[IntExpr], name: str = "reshape") -> Tensor:
    """The elements in another shape.

    One size may be -1: it is inferred when the program is made, and an error where it cannot be.
    A size of 0 is that of ``x`` at the same place.
    """
    return wrap_nested(op.reshape(expr_of(x), list(shape)), name)


@eager
def broadcast_to(x: Tensor, shape: Sequence[IntExpr], name: str = "broadcast_to") -> Tensor:
    """``x`` repeated along axes of size 1, and along new ones in front, to ``shape``."""
    return wrap_nested(op.broadcast_to(expr_of(x), list(shape)), name)


@eager
def permute_dims(x: Tensor, axes: Sequence[int] | None = None, name: str | None = None) -> Tensor:
    """The axes in another order; None: the opposite one.

    name None: `permute_dims`, or, after a variable whose name holds `linear`, that name with
    `matmul` for it.
    """
    if name is None:
        hint = str(getattr(expr_of(x), "name_hint", ""))
        name = hint.replace("linear", "matmul") if "linear" in hint else "permute_dims"
    return wrap_nested(op.permute_dims(expr_of(x), axes), name)


@eager
def permute(x: Tensor, axes: Sequence[int] | None, name: str = "permute") -> Tensor:
    """:func:`permute_dims` under torch's name."""
    return wrap_nested(op.permute_dims(expr_of(x), axes), name)


@eager
def unsqueeze(x: Tensor, dim: int, name: str = "unsqueeze") -> Tensor:
    """``x`` with a new axis of size 1 at ``dim``."""
    return wrap_nested(op.expand_dims(expr_of(x), dim), name)


@eager
def squeeze(x: Tensor, axis: int | Sequence[int] | None = -1, name: str = "squeeze") -> Tensor:
    """``x`` without axes of size 1: the last (the default), those given, or (None) all.

    Naming an axis of another size is an error.
    """
    return wrap_nested(op.squeeze(expr_of(x), axis), name)


@eager
def concat(x: Sequence[Tensor], dim: int, name: str = "concat") -> Tensor:
    """Tensors one after the other along the axis ``dim``."""
    return wrap_nested(op.concat([expr_of(t) for t in x], dim), name)


@eager
def chunk(x: Tensor, chunks: int, dim: int = 0, name: str = "chunk") -> tuple[Tensor, ...]:
    """``chunks`` parts of equal size along ``dim``, as a tuple (TVM annotates one Tensor)."""
    return wrap_nested(op.split(expr_of(x), chunks, dim), name)


@eager
def split(
    ary: Tensor, indices_or_sections: int | Sequence[int], axis: int = 0, name: str = "split"
) -> tuple[Tensor, ...]:
    """Parts along ``axis``: so many of equal size, or what lies between the given places."""
    return wrap_nested(op.split(expr_of(ary), indices_or_sections, axis), name)


@eager
def repeat(x: Tensor, repeats: int, axis: int | None = None, name: str = "repeat") -> Tensor:
    """Each element ``repeats`` times in a row, along ``axis``; None: of the flattened tensor."""
    return wrap_nested(op.repeat(expr_of(x), repeats, axis), name)


@eager
def take(x: Tensor, indices: Tensor, axis: int | None = None, name: str = "take") -> Tensor:
    """Elements at ``indices`` (of any rank) along ``axis``; None needs a tensor of one axis."""
    return wrap_nested(op.take(expr_of(x), expr_of(indices), axis), name)


@eager
def pad(
    x: Tensor, pad: Sequence[int], mode: str = "constant", value: float = 0.0, name: str = "pad"
) -> Tensor:
    """``x`` with more elements around it.

    pad: before and after, for each axis from the first on (torch begins with the last). value: what
    mode "constant" puts there.
    """
    return wrap_nested(op.nn.pad(expr_of(x), list(pad), mode, value), name)


@eager
def triu(x: Tensor, diagonal: int = 0, name: str = "triu") -> Tensor:
    """Zeros below a diagonal of the last two axes: the main one, above it (> 0), below it (< 0)."""
    return wrap_nested(op.triu(expr_of(x), diagonal), name)


@eager
def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: str | None = None,
    exclusive: bool | None = None,
    name: str = "cumsum",
) -> Tensor:
    """Sums of all elements up to each one, along ``axis``; None: of the flattened tensor.

    dtype: of sums and result (state it for bool). exclusive: an element itself does not count.
    """
    return wrap_nested(op.cumsum(expr_of(data), axis, dtype, bool(exclusive)), name)


@eager
def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """The elements in their order along ``axis``."""
    return wrap_nested(op.sort(expr_of(x), axis, descending), name)


@eager
def argsort(
    data: Tensor,
    axis: int = -1,
    descending: bool = False,
    dtype: str = "int32",
    name: str = "argsort",
) -> Tensor:
    """The places of the sorted elements along ``axis``, of ``dtype``."""
    return wrap_nested(op.argsort(expr_of(data), axis, descending, dtype), name)


@eager
def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: str = "int32",
    name: str = "topk",
) -> Any:
    """The ``k`` largest (or smallest) elements along ``axis``, in order; k < 1: all.

    ret_type: "values", "indices" (of ``dtype``), or "both", as a tuple.
    """
    return wrap_nested(op.topk(expr_of(data), k, axis, ret_type, largest, dtype), name)


# -- new tensors -----------------------------------------------------------------------------------
def full(
    shape: Sequence[IntExpr], fill_value: Any, dtype: str = "float32", name: str = "full"
) -> Tensor:
    """``fill_value``, a number or a 0-dimensional tensor, everywhere; cast to ``dtype``.

    (TVM's prose says that the dtype is the value's unless it is given; its signature, and this,
    say float32.)
    """
    if not isinstance(fill_value, Tensor):
        number = (
            fill_value.value if isinstance(fill_value, tir.IntImm | tir.FloatImm) else fill_value
        )
        fill_value = Tensor.from_scalar(number, dtype)
    return wrap_nested(op.full(list(shape), expr_of(fill_value), dtype), name)


def zeros(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "zeros") -> Tensor:
    """Zeros."""
    return wrap_nested(op.zeros(list(shape), dtype), name)


def ones(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "ones") -> Tensor:
    """Ones. (TVM's documentation says zeros.)"""
    return wrap_nested(op.ones(list(shape), dtype), name)


def empty(shape: Sequence[IntExpr], dtype: str = "float32", name: str = "empty") -> Tensor:
    """A tensor whose values nobody promises."""
    return wrap_nested(op.builtin.alloc_tensor(ShapeExpr(list(shape)), dtype, 0), name)


def arange(
    start: int,
    end: int | None = None,
    step: int = 1,
    dtype: str | None = "float32",
    name: str = "arange",
) -> Tensor:
    """``start``, ``start + step``, ... below ``end``; with one number, 0 up to it."""
    return wrap_nested(op.arange(start, end, step, dtype), name)
