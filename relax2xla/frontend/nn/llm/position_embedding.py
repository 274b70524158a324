"""Rotary position embedding in models: ``llama_rope``, with every scaling of kv_state.rope."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from relax2xla import op, tir
from relax2xla.frontend.nn.llm.kernels import Kernel
from relax2xla.frontend.nn.llm.rope_frequency import rope_freq_default as rope_freq_default
from relax2xla.frontend.nn.llm.rope_frequency import rope_freq_gptj as rope_freq_gptj
from relax2xla.frontend.nn.llm.rope_frequency import rope_freq_llama3 as rope_freq_llama3
from relax2xla.frontend.nn.llm.rope_frequency import rope_freq_longrope as rope_freq_longrope
from relax2xla.frontend.nn.llm.rope_frequency import rope_freq_yarn as rope_freq_yarn
from relax2xla.frontend.nn.llm.rope_frequency import switch_rope_freq_func as switch_rope_freq_func
from relax2xla.frontend.nn.values import Tensor, current_builder, expr_of
from relax2xla.ir import Expr, TupleGetItem, const
from relax2xla.kv_state.rope import Rotation, rotation


def llama_rope(
    qkv: Tensor,
    total_seq_len: int | tir.PrimExpr,
    theta: float,
    scale: float,
    num_q_heads: int,
    num_kv_heads: int,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values of fused ones, the first two turned by their positions.

    qkv: (batch, n, num_q_heads + 2 * num_kv_heads, head_dim), the last ``n`` of ``total_seq_len``
    positions. theta: the base; scale: multiplies positions; rope_scaling: ``{"rope_type": ...}``
    as in config.json, empty for none; rotary_dim: features that are turned, None for all.
    result: three tensors (batch, n, heads, head_dim). Computed in float32. Raises ValueError where
    the heads do not add up.
    """
    batch, length, fused, head_dim = qkv.shape
    if fused != num_q_heads + 2 * num_kv_heads:
        raise ValueError(
            f"llama_rope: {num_q_heads} heads of queries and 2 * {num_kv_heads} others of {fused}"
        )
    how = rotation(rotary_dim or head_dim, theta, scale, rope_scaling)
    b = current_builder("llama_rope")
    start = total_seq_len - length
    positions = b.emit(op.arange(start, total_seq_len, 1, "float32"))
    angles = op.multiply(
        op.expand_dims(positions, [1]), const(np.array(how.frequencies, np.float32))
    )
    # (n, 1, pairs): the same for every head.
    angles = b.emit(op.expand_dims(angles, [1]))
    cos, sin = (
        b.emit(op.multiply(f(angles), const(how.magnitude, "float32"))) for f in (op.cos, op.sin)
    )
    parts = b.emit(op.split(expr_of(qkv), [num_q_heads, num_q_heads + num_kv_heads], 2))
    q, k, v = (b.emit(TupleGetItem(parts, i)) for i in range(3))
    shapes = [(batch, length, heads, head_dim) for heads in (num_q_heads, num_kv_heads)]
    q, k = (
        b.emit(op.astype(_turned(b, x, cos, sin, how, shape), qkv.dtype))
        for x, shape in zip((q, k), shapes, strict=True)
    )
    return Tensor(_expr=q), Tensor(_expr=k), Tensor(_expr=v)


def _turned(b: Any, x: Expr, cos: Expr, sin: Expr, how: Rotation, shape: tuple[Any, ...]) -> Expr:
    size, half, head_dim = how.size, how.size // 2, shape[-1]
    wide = b.emit(op.astype(x, "float32"))

    def part(start: int, end: int, stride: int = 1) -> Expr:
        return b.emit(op.strided_slice(wide, [3], [start], [end], [stride]))

    pairs = how.interleaved
    first, second = (
        (part(0, size, 2), part(1, size, 2)) if pairs else (part(0, half), part(half, size))
    )
    one = b.emit(op.subtract(op.multiply(first, cos), op.multiply(second, sin)))
    two = b.emit(op.add(op.multiply(second, cos), op.multiply(first, sin)))
    done = [one, two]
    if pairs:
        done = [b.emit(op.reshape(op.stack([one, two], 4), (*shape[:-1], size)))]
    if size < head_dim:
        done.append(part(size, head_dim))
    return b.emit(op.concat(done, 3)) if len(done) > 1 else done[0]


def llama_rope_with_position_map(
    theta: float,
    scale: float,
    head_dim: int,
    num_q_heads: int,
    num_kv_heads: int,
    dtype: str,
    rope_scaling: Mapping[str, Any],
    rotary_dim: int | None = None,
) -> Kernel:
    """A stand-in for the kernel of rope, which tells a cache the scaling and the size of rope."""
    how = rotation(rotary_dim or head_dim, theta, scale, rope_scaling)
    return Kernel("llama_rope_with_position_map", dict(rope_scaling), how.size)
