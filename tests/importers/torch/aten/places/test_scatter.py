"""Scattering and reducing by places against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check, check_table  # noqa: E402

g = torch.Generator().manual_seed(7)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


X = randn(3, 4)
SOURCE = randn(3, 4)
AT = torch.tensor([[0, 2, 1, 0], [2, 2, 0, 1], [1, 0, 2, 2]])
LINE = torch.tensor([2, 0, 2])
MASK = torch.tensor([[True, False, True, True], [False] * 4, [True, True, False, True]])
WAYS = ("sum", "prod", "mean", "amax", "amin")


@pytest.mark.filterwarnings("ignore:index_reduce")
def test_reductions() -> None:
    check_table(
        {
            "scatter_reduce": (
                lambda x, i, s: [
                    x.scatter_reduce(0, i, s, way, include_self=own)
                    for way in WAYS
                    for own in (True, False)
                ],
                X,
                AT,
                SOURCE,
            ),
            "index_reduce": (
                lambda x, i, s: [
                    x.index_reduce(0, i, s, way, include_self=own)
                    for way in ("prod", "mean", "amax", "amin")
                    for own in (True, False)
                ],
                X,
                LINE,
                SOURCE,
            ),
            "scatter_add": (lambda x, i, s: x.scatter_add(1, i, s), X, AT, SOURCE),
            "segment_reduce": (
                lambda x, n: [
                    torch.segment_reduce(x, way, lengths=n, unsafe=True)
                    for way in ("sum", "mean", "max", "min", "prod")
                ],
                X,
                torch.tensor([2, 0, 1]),
            ),
        }
    )


def test_writes() -> None:
    check_table(
        {
            "put": (
                lambda x, i, s: (x.put(i, s), x.put(i, s, accumulate=True)),
                X,
                torch.tensor([0, -1, 5]),
                SOURCE[0, :3],
            ),
            "scatter": (
                lambda x, i, s: (x.scatter(0, i[:1], s), x.scatter(1, i, 7)),
                X,
                AT,
                SOURCE,
            ),
        }
    )


def test_a_masked_scatter() -> None:
    check(lambda x, m, s: x.masked_scatter(m, s), (X, MASK, SOURCE))
