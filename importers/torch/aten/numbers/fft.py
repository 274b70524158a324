"""Fourier transforms: torch's three primitives, one axis at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relax2xla import op as R
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.aten.numbers.complex import conjugate
from relax2xla.importers.torch.aten.shape import take_range
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    axes_of,
    dims_of,
    dtype_of,
    ndim_of,
    row,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr

KINDS = ("float32", "float64", "complex64", "complex128")


def _along(ctx: Context, x: Expr, axis: int, kind: str, length: Dim) -> Expr:
    """A transform of one axis: XLA's are along the last one."""
    last = ndim_of(x) - 1
    order = [i for i in range(last + 1) if i != axis] + [axis]
    moved = ctx.emit(x if axis == last else R.permute_dims(x, order))
    made = ctx.emit(row("fft", moved, fft_type=kind, fft_length=[length]))
    return made if axis == last else R.permute_dims(made, [order.index(i) for i in range(last + 1)])


def _size(x: Expr, axes: Sequence[int]) -> Dim:
    return math.prod(dims_of(x)[a] for a in axes)


def _number(ctx: Context, count: Dim, dtype: str, root: bool = False) -> Expr:
    """A size, or its square root, as a number of ``dtype``."""
    if isinstance(count, int):
        return scalar(math.sqrt(count) if root else float(count), dtype)
    wide = ctx.tensor(count, "float64")
    return ctx.cast(R.sqrt(wide) if root else wide, dtype)


def _scaled(ctx: Context, x: Expr, normalization: int, count: Dim) -> Expr:
    """What torch.fft's "norm" comes to: the sum is divided by 1, sqrt(n) or n."""
    if normalization == 0 or (isinstance(count, int) and count == 1):
        return x
    return R.divide(x, _number(ctx, count, dtype_of(x), normalization == 1))


def _known(x: Expr) -> None:
    if dtype_of(x) not in KINDS:
        raise Unsupported(f"the Fourier transform of a {dtype_of(x)} tensor")


@aten("_fft_c2c")
def fft_c2c(
    ctx: Context, self: Expr, dim: Sequence[int], normalization: int, forward: bool
) -> Expr:
    _known(self)
    axes = axes_of(dim, ndim_of(self)) if dim else []
    x = self
    for axis in axes:
        x = _along(ctx, x, axis, "FFT" if forward else "IFFT", dims_of(self)[axis])
    count = _size(self, axes)
    # XLA's inverse transform divides by the length.
    if forward:
        return _scaled(ctx, x, normalization, count)
    return _scaled(ctx, R.multiply(x, _number(ctx, count, dtype_of(x))), normalization, count)


@aten("_fft_r2c")
def fft_r2c(
    ctx: Context, self: Expr, dim: Sequence[int], normalization: int, onesided: bool
) -> Expr:
    """The last of ``dim`` is transformed first; its second half mirrors the first."""
    _known(self)
    axes = axes_of(dim, ndim_of(self))
    size = dims_of(self)[axes[-1]]
    x = _along(ctx, self, axes[-1], "RFFT", size)
    for axis in axes[:-1]:
        x = _along(ctx, x, axis, "FFT", dims_of(self)[axis])
    x = ctx.emit(x)
    if not onesided:
        x = _mirrored(ctx, x, axes, size)
    return _scaled(ctx, x, normalization, _size(self, axes))


def _mirrored(ctx: Context, x: Expr, axes: Sequence[int], size: Dim) -> Expr:
    """All of a real signal's spectrum: at -k stands the conjugate of what stands at k."""
    axis = axes[-1]
    rest = size - (size // 2 + 1)
    if isinstance(rest, int) and rest == 0:
        return x
    part = R.flip(take_range(x, axis, 1, rest + 1), axis)
    for other in axes[:-1]:
        part, length = ctx.emit(part), dims_of(x)[other]
        # -k counted from the front: 0 stays, the others change their order.
        back = R.flip(take_range(part, other, 1, length), other)
        part = R.concat([take_range(part, other, 0, 1), back], other)
    return R.concat([x, conjugate(ctx.emit(part))], axis)


@aten("_fft_c2r")
def fft_c2r(
    ctx: Context, self: Expr, dim: Sequence[int], normalization: int, last_dim_size: Dim
) -> Expr:
    """The last of ``dim`` is transformed last; what it does not need is not read."""
    _known(self)
    axes = axes_of(dim, ndim_of(self))
    size, x = last_dim_size, self
    for axis in axes[:-1]:
        x = _along(ctx, x, axis, "IFFT", dims_of(self)[axis])
    last = axes[-1]
    y = _along(ctx, take_range(ctx.emit(x), last, 0, size // 2 + 1), last, "IRFFT", size)
    count = size * _size(self, axes[:-1])
    return _scaled(ctx, R.multiply(y, _number(ctx, count, dtype_of(y))), normalization, count)
