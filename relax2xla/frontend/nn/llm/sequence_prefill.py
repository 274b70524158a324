"""Attention without a cache as a loop-level function, for ``op.tensor_ir_op``."""

from __future__ import annotations

import math
from typing import Any, Final

from relax2xla import te, tir
from relax2xla.te import functions as f

MASKS: Final = ("padded", "causal_padded_left")
# Less than every score, and finite, so that a row that sees nothing has no NaN.
_HIDDEN: Final = -3.0e38


def attention_sequence_prefill(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    target: Any = None,
    causal: int = 0,
    sm_scale: float = 1.0,
) -> tir.PrimFunc:
    """``softmax(sm_scale * q k^T) v``, and the base-2 logarithm of the sums.

    The function takes q (batch, n, h_q, d), k and v (batch, m, h_kv, d), and writes the result
    (batch, n, h_q, d) and the logarithms (batch, n, h_q), all of ``dtype``; it computes in float32.
    causal: a query sees the keys up to its place, where the last query is the last key's.
    target: a program runs where it is built for.
    """
    return _attention(h_kv, h_q, d, dtype, sm_scale, bool(causal), None)


def attention_sequence_prefill_with_mask(
    h_kv: int,
    h_q: int,
    d: int,
    dtype: str,
    target: Any = None,
    sm_scale: float = 1.0,
    *,
    mask_mode: str = "padded",
) -> tir.PrimFunc:
    """As :func:`attention_sequence_prefill`, of sequences that are padded to one length.

    The function takes valid_lens (batch,), int32, after v: how many tokens of a sequence count.
    mask_mode: "padded": these are the first, and each sees all of them; "causal_padded_left": the
    last, and each sees those up to its place. Rows of padding hold nothing that means anything.
    """
    if mask_mode not in MASKS:
        raise ValueError(f"mask_mode is {mask_mode!r}; known: {', '.join(MASKS)}")
    return _attention(h_kv, h_q, d, dtype, sm_scale, mask_mode != "padded", mask_mode)


def _attention(
    h_kv: int, h_q: int, d: int, dtype: str, sm_scale: float, causal: bool, mask: str | None
) -> tir.PrimFunc:
    batch, n, m = (tir.SizeVar(name, "int64") for name in ("batch_size", "qo_len", "kv_len"))
    q = te.placeholder((batch, n, h_q, d), dtype, "q")
    k, v = (te.placeholder((batch, m, h_kv, d), dtype, name) for name in ("k", "v"))
    lengths = [te.placeholder((batch,), "int32", "valid_lens")] if mask else []
    group = h_q // h_kv
    scale = tir.const(sm_scale / math.log(2), "float32")

    def product(b: Any, h: Any, i: Any, j: Any) -> Any:
        x = q[b, i, h, feature].astype("float32") * k[b, j, h // group, feature].astype("float32")
        return te.sum(x, axis=feature)

    feature = te.reduce_axis((0, d), "feature")
    scores = te.compute((batch, h_q, n, m), product, "scores")

    def scaled(b: Any, h: Any, i: Any, j: Any) -> Any:
        x = scores[b, h, i, j] * scale
        conditions: list[Any] = [j - m <= i - n] if causal else []
        if lengths:
            valid = lengths[0][b].astype("int64")
            conditions.append(j < valid if mask == "padded" else j >= m - valid)
        if not conditions:
            return x
        return tir.Select(tir.all(*conditions), x, tir.const(_HIDDEN, "float32"))

    masked = te.compute((batch, h_q, n, m), scaled, "masked")
    key = te.reduce_axis((0, m), "key")
    most = te.compute(
        (batch, h_q, n), lambda b, h, i: te.max(masked[b, h, i, key], axis=key), "most"
    )
    weights = te.compute(
        (batch, h_q, n, m),
        lambda b, h, i, j: f.exp2(masked[b, h, i, j] - most[b, h, i]),
        "weights",
    )
    other = te.reduce_axis((0, m), "other")
    total = te.compute(
        (batch, h_q, n), lambda b, h, i: te.sum(weights[b, h, i, other], axis=other), "total"
    )
    seen = te.reduce_axis((0, m), "seen")

    def weighted(b: Any, i: Any, h: Any, c: Any) -> Any:
        return te.sum(weights[b, h, i, seen] * v[b, seen, h // group, c].astype("float32"), seen)

    summed = te.compute((batch, n, h_q, d), weighted, "summed")
    output = te.compute(
        (batch, n, h_q, d),
        lambda b, i, h, c: (summed[b, i, h, c] / total[b, h, i]).astype(dtype),
        "output",
    )
    lse = te.compute(
        (batch, n, h_q),
        lambda b, i, h: (most[b, h, i] + f.log2(total[b, h, i])).astype(dtype),
        "lse",
    )
    made = te.create_prim_func([q, k, v, *lengths, output, lse])
    return made.with_attr("tir.noalias", True).without_attr("global_symbol")
