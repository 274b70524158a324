"""Padding in all modes; negative widths cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import is_integer
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.aten.numbers.complex import is_complex, padded_with_zeros
from relax2xla.importers.torch.aten.shape import take_range
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    dims_of,
    dtype_of,
    larger,
    ndim_of,
    scalar,
    static,
)
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Expr

PAD_MODES = ("constant", "reflect", "replicate", "circular")


def _pairs(pad: Sequence[Any], ndim: int) -> list[tuple[Dim, Dim]]:
    """(before, after) per axis from torch's order: the last axis first."""
    pairs: list[tuple[Dim, Dim]] = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    rest: list[tuple[Dim, Dim]] = [(0, 0)] * (ndim - len(pairs))
    return rest + pairs[::-1]


def _extended(ctx: Context, x: Expr, pairs: Sequence[tuple[Dim, Dim]], value: Any) -> Expr:
    """Symbolic widths of a constant are pieces of their own, and cut where they are negative."""
    for axis, (low, high) in enumerate(pairs):
        x, size = ctx.emit(x), dims_of(x)[axis]
        start = larger(0 - low, 0)
        stop = tir.simplify(size - larger(0 - high, 0))
        if (start, stop) != (0, size):
            x = R.strided_slice(x, [axis], [start], [stop], assume_inbound=True)
        rest = dims_of(x)
        sides = [
            ctx.full((*rest[:axis], width, *rest[axis + 1 :]), value, dtype_of(x))
            for width in (larger(low, 0), larger(high, 0))
        ]
        kept = [s for s in (sides[0], x, sides[1]) if dims_of(s)[axis] != 0]
        x = R.concat(kept, axis) if len(kept) > 1 else x
    return x


@aten("constant_pad_nd", "pad")
def pad(
    ctx: Context, self: Expr, pad: Sequence[Any], value: Any = None, mode: str = "constant"
) -> Expr:
    """Negative widths cut. Among integers the whole part of the value counts."""
    asked = _pairs(pad, ndim_of(self))
    if isinstance(value, float) and is_integer(dtype_of(self)) and math.isfinite(value):
        value = math.trunc(value)
    if mode == "constant" and not all(isinstance(w, int) for pair in asked for w in pair):
        return _extended(ctx, self, asked, 0 if value is None else value)
    pairs = [(static(low, "padding"), static(high, "padding")) for low, high in asked]
    widths = [(max(low, 0), max(high, 0)) for low, high in pairs]
    if mode not in PAD_MODES:
        raise Unsupported(f"the padding mode {mode!r}")
    if mode in ("reflect", "replicate"):  # what is cut off elsewhere counts among what is padded
        return _cut_off(ctx, _wider(self, widths, mode, value), pairs)
    return _wider(_cut_off(ctx, self, pairs), widths, mode, value)


def _cut_off(ctx: Context, x: Expr, pairs: Sequence[tuple[int, int]]) -> Expr:
    """``x`` without what negative widths cut."""
    for axis, (low, high) in enumerate(pairs):
        if low < 0 or high < 0:
            x = ctx.emit(x)
            stop = tir.simplify(dims_of(x)[axis] + min(high, 0))
            x = take_range(x, axis, max(-low, 0), stop)
    return x


def _wider(x: Expr, widths: Sequence[tuple[int, int]], mode: str, value: Any) -> Expr:
    if not any(low or high for low, high in widths):
        return x
    if mode == "constant" and is_complex(x):
        return padded_with_zeros(x, widths, 0 if value is None else value)
    if mode == "constant":
        fill = scalar(0 if value is None else value, dtype_of(x))
        return R.nn.pad(x, _flat(widths), "constant", fill)
    return R.nn.pad(x, _flat(widths), mode)


def _flat(pairs: Sequence[tuple[int, int]]) -> list[int]:
    return [p for pair in pairs for p in pair]


def _pad_mode(mode: str) -> Function:
    return lambda ctx, self, padding: pad(ctx, self, padding, None, mode)


aten("reflection_pad1d reflection_pad2d reflection_pad3d")(_pad_mode("reflect"))
aten("replication_pad1d replication_pad2d replication_pad3d")(_pad_mode("replicate"))
