"""Rotary position embedding by positions that a model is given, for batches of sequences."""

from __future__ import annotations

import numpy as np

from relax2xla import op
from relax2xla.frontend.nn.values import Tensor, expr_of, wrap_nested
from relax2xla.ir import const
from relax2xla.kv_state.rope import Rotation


def rotary_tables(positions: Tensor, how: Rotation) -> tuple[Tensor, Tensor]:
    """Cosines and sines of ``positions`` (n,), integers: two tensors (n, 1, pairs), float32."""
    at = op.expand_dims(op.astype(expr_of(positions), "float32"), [1, 2])
    frequencies = const(np.array(how.frequencies, np.float32).reshape(1, 1, -1))
    angles = expr_of(wrap_nested(op.multiply(at, frequencies), "angles"))
    by = const(how.magnitude, "float32")
    cos, sin = (
        wrap_nested(f(angles) if how.magnitude == 1.0 else op.multiply(f(angles), by), name)
        for f, name in ((op.cos, "cos"), (op.sin, "sin"))
    )
    return cos, sin


def rotate(x: Tensor, tables: tuple[Tensor, Tensor], how: Rotation) -> Tensor:
    """``x`` (..., n, heads, size), the first ``how.size`` features turned; in its dtype.

    tables: of ``rotary_tables`` for the ``n`` positions. Computed in float32. Raises ValueError
    where the heads have fewer features.
    """
    *outer, size = x.shape
    if how.size > size:
        raise ValueError(f"rotate: {how.size} features of heads of {size}")
    cos, sin = map(expr_of, tables)
    axis, half = len(outer), how.size // 2
    wide = expr_of(wrap_nested(op.astype(expr_of(x), "float32"), "wide"))

    def part(start: int, end: int, stride: int = 1):
        return op.strided_slice(wide, [axis], [start], [end], [stride])

    pairs = how.interleaved
    a = part(0, how.size, 2) if pairs else part(0, half)
    b = part(1, how.size, 2) if pairs else part(half, how.size)
    a, b = (expr_of(wrap_nested(e, "half")) for e in (a, b))
    first = op.subtract(op.multiply(a, cos), op.multiply(b, sin))
    second = op.add(op.multiply(b, cos), op.multiply(a, sin))
    parts = [first, second]
    if pairs:
        parts = [op.reshape(op.stack(parts, axis + 1), (*outer, how.size))]
    if how.size < size:
        parts.append(part(how.size, size))
    made = op.concat(parts, axis) if len(parts) > 1 else parts[0]
    return wrap_nested(op.astype(made, x.dtype), "rotated")
