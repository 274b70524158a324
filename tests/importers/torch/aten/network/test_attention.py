"""Softmax and attention against eager torch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check, check_table  # noqa: E402

g = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Any:
    return torch.randn(*shape, generator=g)


def test_attention() -> None:
    q, k, v = randn(2, 4, 5, 8), randn(2, 4, 6, 8), randn(2, 4, 6, 8)
    seen = torch.rand(2, 1, 5, 6, generator=g) > 0.4
    hidden = seen.clone()
    hidden[0, 0, 2] = False
    attend = F.scaled_dot_product_attention
    few = randn(2, 2, 6, 8)
    check_table(
        {
            "plain": (attend, q, k, v),
            "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), k, k, v),
            "causal, not square": (lambda q, k, v: attend(q, k, v, is_causal=True), q, k, v),
            "scaled": (lambda q, k, v: attend(q, k, v, scale=0.3), q, k, v),
            "float mask": (lambda q, k, v, m: attend(q, k, v, m), q, k, v, randn(5, 6)),
            "bool mask": (lambda q, k, v, m: attend(q, k, v, m), q, k, v, seen),
            "a row that sees nothing": (lambda q, k, v, m: attend(q, k, v, m), q, k, v, hidden),
            "one head": (attend, q[:, 0], k[:, 0], v[:, 0]),
            "five axes": (attend, *(x.unflatten(1, (2, 2)) for x in (q, k, v))),
            "one key for all heads": (attend, q, k[:, :1], v[:, :1]),
            "grouped": (lambda q, k, v: attend(q, k, v, enable_gqa=True), q, few, few),
        }
    )


def test_the_kernel_of_the_cpu_gives_sums_too() -> None:
    """For its own derivative; torch's decomposition has the weights in their place."""
    q, k, v, few = randn(2, 4, 5, 8), randn(2, 4, 6, 8), randn(2, 4, 6, 8), randn(2, 2, 6, 8)
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    unseen = torch.zeros(5, 6)
    unseen[1], unseen[3, 2:] = -math.inf, -math.inf
    check_table(
        {
            "plain": (flash, q, k, v),
            "scaled": (lambda q, k, v: flash(q, k, v, scale=0.3), q, k, v),
            "causal": (lambda q, k, v: flash(q, k, v, 0.0, True), q, k, v),
            "masked": (lambda q, k, v, m: flash(q, k, v, attn_mask=m), q, k, v, unseen),
            "grouped": (flash, q, few, few),
            "sums alone": (lambda q, k, v: flash(q, k, v)[1], q, k, v),
            "values alone": (lambda q, k, v: flash(q, k, v)[0], q, k, v),
            "doubles": (flash, q.double(), k.double(), v.double()),
        }
    )
    check(flash, [x.half() for x in (q, k, v)])


def test_safe_softmax_keeps_nan() -> None:
    rows = [[-math.inf, -math.inf], [math.nan, 1.0], [math.inf, 1.0], [-math.inf, 1.0]]
    check(lambda x: torch.ops.aten._safe_softmax(x, -1), [torch.tensor(rows)])
