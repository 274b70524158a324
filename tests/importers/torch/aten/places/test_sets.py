"""Distinct values, counts, medians and running extrema against eager torch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check_table  # noqa: E402

g = torch.Generator().manual_seed(8)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


WORDS = torch.tensor([[3, 1, 3, 2], [1, 1, 2, 3], [3, 1, 3, 2]])
GAPS = torch.tensor([[1.0, math.nan, 2.0, -1.0], [5.0, 0.0, 0.0, 7.0]])
POINTS = randn(20, 2)
EDGES = torch.tensor([-1.0, -0.2, 0.0, 1.5])


def test_distinct() -> None:
    check_table(
        {"unique": (lambda x: torch.unique(x, return_inverse=True, return_counts=True), WORDS)}
    )
    check_table({"rows": (lambda x: torch.unique(x, dim=0, return_counts=True), WORDS)})
    check_table(
        {
            "runs": (
                lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
                WORDS,
            )
        }
    )


def test_counts() -> None:
    flat = POINTS.reshape(-1)
    check_table(
        {
            "histc": (lambda x: (x.histc(5), x.histc(4, -1, 1), x.histc(4, 2, 2)), flat),
            "histogram": (lambda x: torch.histogram(x, 6), flat),
            "histogram of one value": (
                lambda x: [torch.histogram(x, 4, range=(e, e)) for e in (0.0, 0.5)],
                flat,
            ),
            "histogram of a range": (
                lambda x, w: torch.histogram(x, 4, range=(-1.0, 1.0), weight=w, density=True),
                flat,
                flat.abs(),
            ),
            "histogram of edges": (torch.histogram, flat, EDGES),
            "nothing is above NaN": (
                lambda e, x: (torch.searchsorted(e, x), torch.bucketize(x, e)),
                torch.tensor([0.0, 2.0, math.nan]),
                torch.tensor([math.nan]),
            ),
            "searchsorted": (
                lambda e, x: (torch.searchsorted(e, x), torch.searchsorted(e, x, right=True)),
                EDGES,
                torch.tensor([[-2.0, -0.2], [9.0, math.nan]]),
            ),
            "nonzero_static": (
                lambda x: (
                    torch.nonzero_static(x, size=3),
                    torch.nonzero_static(x, size=9, fill_value=-7),
                ),
                GAPS > 0.5,
            ),
        }
    )
    check_table({"bincount": (lambda x: torch.bincount(x, minlength=2), WORDS.reshape(-1))})


def test_counts_in_several_dimensions() -> None:
    check_table(
        {
            "histogramdd": (lambda x: torch.histogramdd(x, [3, 4]), POINTS),
            "histogramdd of a range": (
                lambda x, w: torch.histogramdd(
                    x, 3, range=(-1.0, 1.0, -2.0, 2.0), weight=w, density=True
                ),
                POINTS,
                POINTS[:, 0].abs(),
            ),
            "histogramdd of edges": (lambda x, e: torch.histogramdd(x, [e, e[1:]]), POINTS, EDGES),
        }
    )


def test_middles() -> None:
    x = torch.randperm(12, generator=g).float().reshape(3, 4)
    check_table(
        {
            "median": (lambda x: (x.median(), *x.median(1), *x.median(0, keepdim=True)), x),
            "with NaN": (
                lambda x: (x.median(), *x.median(1), x.nanmedian(), *x.nanmedian(1)),
                GAPS,
            ),
            "mode": (lambda x: x.mode(1)[0], WORDS),
            "quantile": (
                lambda x: (x.quantile(0.3), x.quantile(0.5, 1), x.nanquantile(0.9, 0)),
                x,
            ),
        }
    )


def test_running() -> None:
    check_table(
        {
            "extrema": (lambda x: (*x.cummax(1), *x.cummin(1), *x.cummax(0)), GAPS),
            "extrema of equals": (lambda x: (*x.cummax(1), *x.cummin(1)), WORDS),
            "logcumsumexp": (
                lambda x: x.logcumsumexp(1),
                torch.tensor([[-math.inf, 100.0, 101.0, -3.0], [0.5, -math.inf, math.inf, 1.0]]),
            ),
        }
    )
