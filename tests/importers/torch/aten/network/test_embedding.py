"""Embeddings, bags of them, distances and products of three operands against eager torch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check_table  # noqa: E402

g = torch.Generator().manual_seed(1)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


TABLE = randn(7, 3)
WORDS = torch.tensor([1, 2, 2, 6, 0, 3])
STARTS = torch.tensor([0, 2, 2, 5])


def test_embedding() -> None:
    ids = torch.tensor([[0, 2], [4, 1]])
    check_table({"embedding": (lambda i, w: F.embedding(i, w, 2), ids, randn(5, 3))})


def test_bags() -> None:
    table: dict[str, tuple[Any, ...]] = {}
    for mode in ("sum", "mean", "max"):
        table[mode] = (
            lambda w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m),
            TABLE,
            WORDS,
            STARTS,
        )
        table[f"{mode} without a word"] = (
            lambda w, i, o, m=mode: F.embedding_bag(i, w, o, mode=m, padding_idx=2),
            TABLE,
            WORDS,
            STARTS,
        )
    table["weighted"] = (
        lambda w, i, o, s: F.embedding_bag(i, w, o, mode="sum", per_sample_weights=s),
        TABLE,
        WORDS,
        STARTS,
        randn(6),
    )
    table["rows"] = (lambda w, i: F.embedding_bag(i, w, mode="sum"), TABLE, WORDS.view(2, 3))
    check_table(table)


def test_distances_and_products() -> None:
    a, b = randn(2, 4, 3), randn(2, 5, 3)
    whole = torch.ones(2, 2, dtype=torch.int64)
    check_table(
        {
            "cdist": (lambda x, y: [torch.cdist(x, y, p) for p in (0, 1, 2, 3.5, math.inf)], a, b),
            "pdist": (lambda x: [F.pdist(x, p) for p in (0, 1, 2, 3.5, math.inf)], a[0]),
            "bilinear": (F.bilinear, randn(4, 3), randn(4, 5), randn(2, 3, 5), randn(2)),
            "addbmm": (
                lambda c, x, y: torch.addbmm(c, x, y, beta=0.5, alpha=2),
                randn(4, 5),
                a,
                b.mT,
            ),
            # Torch cuts the fractions of the factors off.
            "addbmm of integers": (
                lambda c: torch.addbmm(c, c[None], c[None], beta=1.7, alpha=2.6),
                whole,
            ),
            "addbmm without its first operand": (
                lambda c, x, y: torch.addbmm(c, x, y, beta=0),
                torch.full((4, 5), math.nan),
                a,
                b.mT,
            ),
        }
    )
