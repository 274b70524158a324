# ruff: noqa: D103  (a converter's documentation is the ATen schema; it says what differs)
"""Fourier transforms: torch's three primitives, one axis at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from relax2xla import op as R
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.torch.aten_complex import conjugate
from relax2xla.importers.torch.context import (
    Context,
    axes_of,
    dims_of,
    dtype_of,
    ndim_of,
    row,
    scalar,
    static,
)
from relax2xla.importers.torch.registry import aten
from relax2xla.ir import Expr

# What torch.fft's "norm" comes to: the sum is divided by 1, sqrt(n) or n.
DIVISORS = {0: lambda n: 1.0, 1: lambda n: math.sqrt(n), 2: lambda n: float(n)}
KINDS = ("float32", "float64", "complex64", "complex128")


def _along(x: Expr, axis: int, kind: str, length: int) -> Expr:
    """A transform of one axis: XLA's are along the last one."""
    last = ndim_of(x) - 1
    order = [i for i in range(last + 1) if i != axis] + [axis]
    moved = x if axis == last else R.permute_dims(x, order)
    made = row("fft", moved, fft_type=kind, fft_length=[length])
    return made if axis == last else R.permute_dims(made, [order.index(i) for i in range(last + 1)])


def _size(x: Expr, axes: Sequence[int]) -> int:
    sizes = [static(dims_of(x)[a], "the length of a transform") for a in axes]
    return math.prod(sizes)


def _scaled(ctx: Context, x: Expr, normalization: int, count: int) -> Expr:
    factor = DIVISORS[normalization](count)
    return x if factor == 1.0 else R.divide(x, scalar(factor, dtype_of(x)))


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
        size = static(dims_of(self)[axis], "the length of a transform")
        x = _along(ctx.emit(x), axis, "FFT" if forward else "IFFT", size)
    count = _size(self, axes)
    # XLA's inverse transform divides by the length.
    if forward:
        return _scaled(ctx, x, normalization, count)
    return _scaled(ctx, R.multiply(x, scalar(float(count), dtype_of(x))), normalization, count)


@aten("_fft_r2c")
def fft_r2c(
    ctx: Context, self: Expr, dim: Sequence[int], normalization: int, onesided: bool
) -> Expr:
    """The last of ``dim`` is transformed first; its second half mirrors the first."""
    _known(self)
    axes = axes_of(dim, ndim_of(self))
    size = static(dims_of(self)[axes[-1]], "the length of a transform")
    x = ctx.emit(_along(ctx.emit(self), axes[-1], "RFFT", size))
    for axis in axes[:-1]:
        length = static(dims_of(self)[axis], "the length of a transform")
        x = ctx.emit(_along(x, axis, "FFT", length))
    if not onesided:
        x = _mirrored(ctx, x, axes, size)
    return _scaled(ctx, x, normalization, _size(self, axes))


def _mirrored(ctx: Context, x: Expr, axes: Sequence[int], size: int) -> Expr:
    """All of a real signal's spectrum: at -k stands the conjugate of what stands at k."""
    axis = axes[-1]
    rest = size - (size // 2 + 1)
    if rest == 0:
        return x
    part = R.flip(R.strided_slice(x, [axis], [1], [rest + 1]), axis)
    for other in axes[:-1]:
        length = static(dims_of(x)[other], "the length of a transform")
        # -k counted from the front: 0 stays, the others change their order.
        first = R.strided_slice(part, [other], [0], [1])
        if length > 1:
            back = R.flip(R.strided_slice(part, [other], [1], [length]), other)
            part = ctx.emit(R.concat([first, back], other))
    return R.concat([x, conjugate(ctx.emit(part))], axis)


@aten("_fft_c2r")
def fft_c2r(
    ctx: Context, self: Expr, dim: Sequence[int], normalization: int, last_dim_size: int
) -> Expr:
    """The last of ``dim`` is transformed last; what it does not need is not read."""
    _known(self)
    axes = axes_of(dim, ndim_of(self))
    size = static(last_dim_size, "the length of a transform")
    x = self
    for axis in axes[:-1]:
        length = static(dims_of(self)[axis], "the length of a transform")
        x = ctx.emit(_along(ctx.emit(x), axis, "IFFT", length))
    last = axes[-1]
    half = size // 2 + 1
    if dims_of(x)[last] != half:
        x = ctx.emit(R.strided_slice(x, [last], [0], [half]))
    y = _along(x, last, "IRFFT", size)
    count = size * _size(self, axes[:-1])
    return _scaled(ctx, R.multiply(y, scalar(float(count), dtype_of(y))), normalization, count)
