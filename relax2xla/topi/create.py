"""Tensors that are made of nothing, and triangles of given ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.dtypes import is_float
from relax2xla.tir.node import PrimExpr
from relax2xla.topi.shared import FUNCTIONS, compute, known, of_dtype, one_axis, scalar, size


def full(shape: Any, dtype: str, fill_value: Any) -> te.Tensor:
    """One value everywhere, in ``dtype``."""
    sizes = list(shape) if isinstance(shape, list | tuple) else [shape]
    value = of_dtype(fill_value() if isinstance(fill_value, te.Tensor) else fill_value, dtype)
    return compute(sizes, lambda *_: value, "T_full", "elemwise")


def full_like(x: te.Tensor, fill_value: Any) -> te.Tensor:
    """One value everywhere, in the shape and dtype of ``x``."""
    value = of_dtype(fill_value, x.dtype)
    return compute(x.shape, lambda *_: value, "T_full_like", "elemwise")


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: str = "float32") -> te.Tensor:
    """start, start + step ... below ``stop``; of one argument it is ``stop``, from 0."""
    if stop is None:
        start, stop = 0, start
    first, last, by = scalar(start), scalar(stop), scalar(step)
    length: Any
    if any(is_float(v.dtype) for v in (first, last, by)):
        if not all(isinstance(v, tir.IntImm | tir.FloatImm) for v in (first, last, by)):
            raise ValueError("topi.arange: floating-point bounds must be known numbers")
        length = max(0, int(-(-(float(stop) - float(start)) // float(step))))
    else:
        length = size(tir.ceildiv(last - first, by))

    def element(*index: Any) -> Any:
        (i,) = index
        wide = tir.cast(dtype, i) if is_float(dtype) else i
        return tir.cast(dtype, _at(first, by, wide))

    return compute((length,), element, "T_arange")


def _at(first: PrimExpr, by: PrimExpr, i: PrimExpr) -> PrimExpr:
    return first + by * i


def eye(n: Any, m: Any = None, k: int = 0, dtype: str = "float32") -> te.Tensor:
    """1 where the column is the row plus ``k``, 0 elsewhere."""
    one, zero = tir.const(1, dtype), tir.const(0, dtype)

    def element(i: Any, j: Any) -> Any:
        return tir.if_then_else(tir.EQ.make(i, j - k), one, zero)

    return te.compute((n, n if m is None else m), element, "eye", "eye")


def trilu(data: te.Tensor, k: Any, upper: bool) -> te.Tensor:
    """``data`` above (``upper``) or below the diagonal ``k``, which stays; 0 elsewhere."""
    if data.ndim < 2:
        raise ValueError("topi.trilu takes a tensor of two axes or more")
    zero = tir.const(0, data.dtype)

    def element(*i: Any) -> Any:
        row, column = i[-2], i[-1]
        stays = row <= column - k if upper else row >= column - k
        return tir.Select(stays, data(*i), zero)

    return te.compute(data.shape, element, "trilu", "injective")


def one_hot(
    indices: te.Tensor, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: str
) -> te.Tensor:
    """``on_value`` where the place along a new axis of size ``depth`` is the index."""
    at = one_axis(axis, indices.ndim + 1, "one_hot")
    on, off = of_dtype(on_value, dtype), of_dtype(off_value, dtype)

    def element(*i: Any) -> Any:
        here = indices(*i[:at], *i[at + 1 :])
        return tir.Select(tir.EQ.make(here, i[at]), on, off)

    shape = [*indices.shape[:at], depth, *indices.shape[at:]]
    return compute(shape, element, "T_one_hot")


def shape(array: te.Tensor, dtype: str = "int32") -> te.Tensor:
    """The sizes as a vector."""

    def element(*index: Any) -> Any:
        (i,) = index
        made = tir.const(0, dtype)
        for n, d in enumerate(array.shape):
            made = tir.if_then_else(tir.EQ.make(i, n), tir.cast(dtype, d), made)
        return made

    return compute((array.ndim,), element, "T_shape")


def ndarray_size(array: te.Tensor, dtype: str = "int32") -> te.Tensor:
    """The number of elements."""
    made: Any = tir.const(1, dtype)
    for d in array.shape:
        made = made * tir.cast(dtype, d)
    return te.compute((), lambda: made, "ndarray_size", "injective")


def matrix_set_diag(
    data: te.Tensor, diagonal: te.Tensor, k: Any = 0, align: str = "RIGHT_LEFT"
) -> te.Tensor:
    """``data`` with the diagonal ``k`` of its last two axes replaced."""
    number = known(k) if not isinstance(k, list | tuple) else None
    if number is None:
        raise ValueError("topi.matrix_set_diag: one diagonal, a number, is taken")

    def element(*i: Any) -> Any:
        place = i[-2] if number >= 0 else i[-1]
        here = tir.EQ.make(i[-1] - i[-2], number)
        return FUNCTIONS["if_then_else"](here, diagonal(*i[:-2], place), data(*i))

    return compute(data.shape, element, "T_matrix_set_diag")


def sequence_mask(
    data: te.Tensor, valid_length: te.Tensor, mask_value: float = 0, axis: int = 0
) -> te.Tensor:
    """``mask_value`` from ``valid_length[b]`` on along ``axis``, 0 or 1; b is the other."""
    at = one_axis(axis, data.ndim, "sequence_mask")
    if at > 1 or data.ndim < 2:
        raise ValueError("topi.sequence_mask: axis is 0 or 1, of a tensor of two axes or more")
    value = of_dtype(mask_value, data.dtype)

    def element(*i: Any) -> Any:
        outside = tir.cast(i[at].dtype, valid_length(i[1 - at])) <= i[at]
        return tir.if_then_else(outside, value, data(*i))

    return compute(data.shape, element, "T_sequence_mask")


def zeros_like(x: te.Tensor) -> te.Tensor:
    """0 everywhere."""
    return full_like(x, 0)


def ones_like(x: te.Tensor) -> te.Tensor:
    """1 everywhere."""
    return full_like(x, 1)


def zeros(shape: Sequence[Any], dtype: str = "float32") -> te.Tensor:
    """0 everywhere."""
    return full(shape, dtype, 0)


def ones(shape: Sequence[Any], dtype: str = "float32") -> te.Tensor:
    """1 everywhere."""
    return full(shape, dtype, 1)
