"""Complex numbers: their parts, conjugates, and matrices transposed with or without conjugation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.torch.engine.context import (
    Context,
    broadcast,
    dims_of,
    dtype_of,
    ndim_of,
    row,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr

#: The real dtype that goes with a dtype: that of norms, singular values and the like.
REAL = {
    "float32": "float32",
    "float64": "float64",
    "complex64": "float32",
    "complex128": "float64",
}


def is_complex(x: Expr) -> bool:
    """Whether ``x`` holds complex numbers."""
    return dtype_of(x).startswith("complex")


def conjugate(x: Expr) -> Expr:
    """The complex conjugate; real tensors are their own."""
    if not is_complex(x):
        return x
    return row("complex", row("real", x), R.negative(row("imag", x)))


def joined(ctx: Context, real: Expr, imag: Expr) -> Expr:
    """Complex numbers of their parts, which broadcast."""
    return row("complex", *(broadcast(x, ctx.dims()) for x in (real, imag)))


@aten("_conj", "conj_physical", "_conj_physical", "_conj_copy", "conj")
def conj(ctx: Context, self: Expr) -> Expr:
    return conjugate(ctx.emit(self))


aten("real")(lambda ctx, self: row("real", self) if is_complex(self) else self)
aten("imag")(lambda ctx, self: row("imag", self))
aten("complex")(joined)


@aten("polar")
def polar(ctx: Context, abs: Expr, angle: Expr) -> Expr:
    size, turn = ctx.emit(abs), ctx.emit(angle)
    return joined(ctx, R.multiply(size, R.cos(turn)), R.multiply(size, R.sin(turn)))


@aten("angle")
def angle(ctx: Context, self: Expr) -> Expr:
    """Of real numbers: 0, or pi below zero; NaN stays."""
    x = ctx.emit(self)
    if is_complex(x):
        return R.atan2(row("imag", x), row("real", x))
    y = ctx.emit(ctx.cast(x, ctx.dtype()))
    dtype = dtype_of(y)
    turned = R.where(
        R.less(y, scalar(0, dtype)), scalar(3.141592653589793, dtype), scalar(0, dtype)
    )
    return R.where(R.isnan(y), y, turned) if is_float(dtype_of(x)) else turned


@aten("view_as_real", "view_as_real_copy")
def view_as_real(ctx: Context, self: Expr) -> Expr:
    x = ctx.emit(self)
    return R.stack([row("real", x), row("imag", x)], -1)


@aten("view_as_complex", "view_as_complex_copy")
def view_as_complex(ctx: Context, self: Expr) -> Expr:
    x, last = ctx.emit(self), ndim_of(self) - 1
    parts = [
        ctx.reshape(R.strided_slice(x, [last], [i], [i + 1]), dims_of(x)[:-1]) for i in range(2)
    ]
    return row("complex", *parts)


# -- transposition -------------------------------------------------------------------------------
def transposed(x: Expr) -> Expr:
    """The last two axes exchanged; vectors and scalars stay."""
    n = ndim_of(x)
    return x if n < 2 else R.permute_dims(x, [*range(n - 2), n - 1, n - 2])


aten("t", "t_copy", "mT")(lambda ctx, self: transposed(self))
aten("mH", "matrix_H", "adjoint")(lambda ctx, self: conjugate(ctx.emit(transposed(self))))


@aten("numpy_T")
def all_reversed(ctx: Context, self: Expr) -> Expr:
    n = ndim_of(self)
    return self if n < 2 else R.permute_dims(self, list(reversed(range(n))))


@aten("vdot", "linalg_vecdot")
def vdot(
    ctx: Context, self: Any = None, other: Any = None, x: Any = None, y: Any = None, dim: int = -1
) -> Expr:
    """The first operand is conjugated."""
    if self is not None:
        return R.matmul(conjugate(ctx.emit(self)), other)
    a, b = ctx.promote(x, y, dtype=ctx.dtype())
    n = max(ndim_of(a), ndim_of(b))
    return R.sum(R.multiply(conjugate(ctx.emit(a)), b), [dim % n])


def square_of_abs(ctx: Context, x: Expr) -> Expr:
    """``|x|^2`` in the real dtype."""
    x = ctx.emit(x)
    if not is_complex(x):
        return R.multiply(x, x)
    a, b = ctx.emit(row("real", x)), ctx.emit(row("imag", x))
    return R.add(R.multiply(a, a), R.multiply(b, b))


def padded_with_zeros(x: Expr, pairs: Sequence[tuple[int, int]], value: complex = 0) -> Expr:
    """A complex tensor with (before, after) elements added along each axis."""
    return row(
        "pad",
        x,
        scalar(value, dtype_of(x)),
        edge_padding_low=[low for low, _ in pairs],
        edge_padding_high=[high for _, high in pairs],
        interior_padding=[0] * len(pairs),
    )
