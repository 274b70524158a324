"""Parts of tensors, and tensors joined, as every importer needs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relax2xla import op as R
from relax2xla.importers.shared.tensors import dims_of, ndim_of
from relax2xla.ir import Constant, Expr


def entry(x: Expr, at: int, axis: int = 0) -> Expr:
    """``x[..., at, ...]`` at a place that is known; the axis goes away."""
    return R.squeeze(part(x, at, 1, axis), [axis])


def part(x: Expr, at: int, size: int, axis: int = -1) -> Expr:
    """Part ``at`` of parts of ``size`` along an axis. Of a constant without a name it is one.

    A weight keeps its name, by which it is given other numbers, and differentiated.
    """
    axis %= ndim_of(x)
    if isinstance(x, Constant) and (x.span is None or not x.span.name):
        index = [slice(None)] * x.data.ndim
        index[axis] = slice(at * size, (at + 1) * size)
        return Constant(np.ascontiguousarray(x.data[tuple(index)]))
    if dims_of(x)[axis] == size:
        return x
    return R.strided_slice(x, [axis], [at * size], [(at + 1) * size])


def joined(parts: Sequence[Expr], axis: int = 0) -> Expr:
    """Tensors one after the other along an axis; a single one as it is."""
    return parts[0] if len(parts) == 1 else R.concat(list(parts), axis)


def wrapped(index: Expr, size: Expr, zero: Expr) -> Expr:
    """Indices that may be negative, counted from the front; scalars of their dtype beside them."""
    return R.where(R.less(index, zero), R.add(index, size), index)
