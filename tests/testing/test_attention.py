"""Modules of attention against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from relax2xla.errors import OpError
from relax2xla.testing import (
    evaluate,
    get_relax_attention_module,
    get_relax_stacked_attention_module,
)

RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def by_torch(q: Any, k: Any, v: Any, bias: Any = None, **more: Any) -> np.ndarray:
    """Of operands with the axes batch, place, head, element."""
    q, k, v = (torch.from_numpy(np.ascontiguousarray(x)).transpose(1, 2) for x in (q, k, v))
    mask = None if bias is None else torch.from_numpy(bias)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, **more)
    return out.transpose(1, 2).numpy()


def test_attention() -> None:
    q, k, v, bias = random(2, 5, 4, 8), random(2, 6, 4, 8), random(2, 6, 4, 3), random(2, 4, 5, 6)
    shapes = q.shape, k.shape, v.shape
    made = get_relax_attention_module(
        *shapes, dtype="float32", bias_shape=bias.shape, qk_scale=0.25
    )
    expected = by_torch(q, k, v, bias, scale=0.25)
    np.testing.assert_allclose(evaluate(made, [q, k, v, bias]), expected, 1e-5, 1e-6)
    plain = get_relax_attention_module(*shapes, dtype="float32", bias_shape="none")
    np.testing.assert_allclose(evaluate(plain, [q, k, v]), by_torch(q, k, v), 1e-5, 1e-6)
    causal = get_relax_attention_module(
        q.shape, q.shape, q.shape, dtype="float32", causal_mask="TopLeft"
    )
    expected = by_torch(q, q, q, is_causal=True)
    np.testing.assert_allclose(evaluate(causal, [q, q, q]), expected, 1e-5, 1e-6)


@pytest.mark.parametrize("taken_by", ["split", "strided_slice"])
@pytest.mark.parametrize("layout", ["BS3NH", "SBN3H"])
def test_one_operand(layout: Any, taken_by: Any) -> None:
    b, s, n, h, h_v = 2, 5, 4, 8, 8 if layout == "SBN3H" else 3
    bias = random(b, n, s, s)
    if layout == "SBN3H":
        qkv = random(s, b, n, 3 * h)
        parts = [x.swapaxes(0, 1) for x in np.split(qkv, 3, 3)]
    else:
        qkv = random(b, s, n * (2 * h + h_v))
        parts = [x.reshape(b, s, n, -1) for x in np.split(qkv, [n * h, 2 * n * h], 2)]
    expected = by_torch(*parts, bias, scale=0.5)
    if layout == "SBN3H":
        expected = expected.swapaxes(0, 1)
    made = get_relax_stacked_attention_module(
        qkv, b, s, n, h, h_v, taken_by, bias, 0.5, layout=layout
    )
    np.testing.assert_allclose(evaluate(made, [qkv, bias]), expected, 1e-5, 1e-6)


def test_one_shape_and_mistakes() -> None:
    qkv = random(2, 5, 96)
    made = get_relax_stacked_attention_module(qkv, 2, 5, 4, 8, 0, "split", single_shape=True)
    parts = [x.reshape(2, 5, 4, 8) for x in np.split(qkv, 3, 2)]
    np.testing.assert_allclose(evaluate(made, [qkv]), by_torch(*parts), 1e-5, 1e-6)
    with pytest.raises(OpError, match="no layout 'BSNH'; BS3NH or SBN3H"):
        get_relax_stacked_attention_module(qkv, 2, 5, 4, 8, 8, "split", layout="BSNH")  # type: ignore[arg-type]
    with pytest.raises(OpError, match="by split or strided_slice; got 'take'"):
        get_relax_stacked_attention_module(qkv, 2, 5, 4, 8, 8, "take")  # type: ignore[arg-type]
