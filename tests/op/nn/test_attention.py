"""Attention: values against torch's own, masks, errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import Op, TensorStructInfo, Var
from relax2xla.op import nn
from tests.op.nn.support import Batch


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def reference(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    bias: torch.Tensor | None,
    scale: float | None,
    seen: Any,
) -> torch.Tensor:
    """torch's attention in float64, over (batch, sequence, heads, depth)."""
    mask = torch.zeros(q.shape[1], k.shape[1], dtype=torch.float64)
    if bias is not None:
        mask = mask + bias.double()
    if seen is not None:
        mask = mask.masked_fill(~torch.tensor(seen), float("-inf"))
    heads_first = (t.double().transpose(1, 2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(*heads_first, attn_mask=mask, scale=scale)
    return out.transpose(1, 2).to(q.dtype)


CASES: list[
    tuple[tuple[int, int], tuple[int, ...] | None, float | None, str | None, int | None]
] = [
    ((5, 5), None, None, None, None),
    ((5, 7), None, 0.3, None, None),
    ((5, 7), (2, 3, 5, 7), None, None, None),
    ((5, 7), (1, 1, 1, 7), 1.0, None, None),
    ((5, 7), (5, 7), None, "TopLeft", None),
    ((5, 5), None, None, "TopLeft", None),
    ((4, 2), None, None, "TopLeft", None),
    ((2, 4), None, None, "BottomRight", None),
    ((4, 2), None, None, "BottomRight", None),
    ((6, 6), None, None, "TopLeft", 2),
    ((3, 6), None, None, "BottomRight", 2),
    ((6, 6), (1, 3, 1, 6), None, None, 3),
    ((7, 3), None, None, "TopLeft", 2),  # the last queries see nothing
]


def seen_by(rows: int, columns: int, mask: str | None, window: int | None) -> Any:
    if mask is None and window is None:
        return None
    offset = abs(rows - columns) if mask == "BottomRight" else 0
    seen = np.ones((rows, columns), bool)
    if mask is not None:
        seen = np.tril(seen, k=offset)
    return seen if window is None else np.triu(seen, k=offset - window + 1)


@pytest.mark.parametrize(
    ("dtype", "tol"),
    [(torch.float32, 1e-5), (torch.float64, 1e-12), (torch.float16, 4e-3), (torch.bfloat16, 3e-2)],
)
def test_values(dtype: torch.dtype, tol: float) -> None:
    batch = Batch()
    cases = CASES if dtype == torch.float32 else CASES[1::3]
    for (rows, columns), shape, scale, mask, window in cases:
        q = random(2, rows, 3, 8, dtype=dtype)
        k, v = random(2, columns, 3, 8, dtype=dtype), random(2, columns, 3, 4, dtype=dtype)
        bias = None if shape is None else random(*shape, dtype=dtype)
        made = nn.attention(
            *map(batch.var, (q, k, v)),
            None if bias is None else batch.var(bias),
            scale=scale,
            causal_mask=mask,
            window_size=window,
        )
        seen = seen_by(rows, columns, mask, window)
        want = reference(q, k, v, bias, scale, seen)
        if seen is not None:
            want[:, ~seen.any(axis=1)] = 0
        batch.add(f"{rows, columns} {shape} {scale} {mask} {window}", made, want, tol)
    batch.check()


def test_var_len() -> None:
    batch = Batch()
    lengths_q, lengths_k = [3, 0, 5, 2], [3, 2, 4, 6]
    q, k, v = random(1, 10, 2, 4), random(1, 15, 2, 4), random(1, 15, 2, 3)
    starts_q, starts_k = (np.cumsum([0, *x]).astype(np.int32) for x in (lengths_q, lengths_k))
    operands = [batch.var(x) for x in (q, k, v, starts_q, np.int32(5), starts_k, np.int32(6))]
    for mask, window in ((None, None), ("TopLeft", None), ("BottomRight", None), ("TopLeft", 2)):
        made = nn.attention_var_len(*operands, causal_mask=mask, window_size=window)
        parts: list[torch.Tensor] = []
        for i in range(4):
            a, b = (slice(s[i], s[i + 1]) for s in (starts_q, starts_k))
            seen = seen_by(lengths_q[i], lengths_k[i], mask, window)
            parts.append(reference(q[:, a], k[:, b], v[:, b], None, None, seen))
        batch.add(f"{mask} {window}", made, torch.cat(parts, 1))
    same = nn.attention_var_len(*[operands[0]] * 3, *operands[3:5])
    pieces = [q[:, a:b] for a, b in itertools.pairwise(starts_q)]
    want = torch.cat([reference(x, x, x, None, None, None) for x in pieces], 1)
    batch.add("same", same, want)
    batch.check()


def test_large_scores_do_not_overflow() -> None:
    batch = Batch()
    q = random(1, 3, 1, 16, dtype=torch.float16) * 60
    want = reference(q, q, q, None, None, None)
    batch.add("half", nn.attention(*[batch.var(q)] * 3), want, 1e-2)
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def test_struct_info_and_names() -> None:
    n = tir.Var("n", "int64")
    q, k, v = tensor(2, n, 4, 8), tensor(2, 6, 4, 8), tensor(2, 6, 4, 5)
    made = nn.attention(q, k, v)
    assert made.struct_info == TensorStructInfo((2, n, 4, 5), "float32")
    assert made.op is Op.get("relax.nn.attention")
    assert dict(made.attrs) == {"scale": None, "causal_mask": None, "window_size": None}
    biased = nn.attention(q, k, v, tensor(2, 4, n, 6), scale=tir.FloatImm("float32", 0.5))
    assert biased.op is Op.get("relax.nn.attention_bias")
    assert biased.attrs.scale == 0.5
    unknown = Var("x", TensorStructInfo(ndim=4))
    assert nn.attention(unknown, k, v).struct_info == unknown.struct_info


def var_len(**changes: Var) -> Any:
    start, longest = tensor(4, dtype="int32"), tensor(dtype="int32")
    q, k, v = (tensor(1, n, 2, 4) for n in (10, 15, 15))
    operands = {"queries": q, "keys": k, "values": v, "seqstart_q": start, "max_seqlen_q": longest}
    return nn.attention_var_len(**{**operands, **changes})


Q, K, V = tensor(2, 5, 4, 8), tensor(2, 6, 4, 8), tensor(2, 6, 4, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: nn.attention(tensor(2, 5, 8), K, V), "`query` must have rank 4"),
        (lambda: nn.attention(Q, tensor(1, 6, 4, 8), V), "agree in batch"),
        (lambda: nn.attention(Q, tensor(2, 6, 3, 8), V), "agree in heads"),
        (lambda: nn.attention(Q, tensor(2, 6, 4, 7), V), r"agree in depth \(axis 3\); got 8 and 7"),
        (
            lambda: nn.attention(Q, K, tensor(2, 7, 4, 8)),
            "`key` and `value` must agree in sequence",
        ),
        (lambda: nn.attention(Q, K, V, causal_mask="Left"), '"TopLeft", "BottomRight" or None'),
        (lambda: nn.attention(Q, K, V, window_size=0), "`window_size` must be at least 1"),
        (lambda: nn.attention(Q, K, V, tensor(2, 4, 6, 5)), "cannot be broadcast"),
        (lambda: nn.attention(Q, K, V, tensor(1, 2, 4, 5, 6)), "`bias` must be broadcastable"),
        (lambda: nn.attention(tensor(2, 5, 4, 8, dtype="float16"), K, V), "must have one dtype"),
        (lambda: nn.attention(tensor(2, 5, 4, 8, dtype="int32"), K, V), "`query` must be one of"),
        (lambda: var_len(queries=Q), "`queries` must have a first axis of size 1"),
        (lambda: var_len(seqstart_q=tensor(4)), "`seqstart_q` must be one of int32"),
        (lambda: var_len(seqstart_k=tensor(5, dtype="int32")), "must have one size"),
        (lambda: var_len(max_seqlen_k=tensor()), "`max_seqlen_k` must be one of int32"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        call()
