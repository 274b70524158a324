"""Reductions, sorting, searching and scans against eager torch."""

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


X = randn(2, 3, 4)
INTS = torch.tensor([[3, -1, 4], [1, 5, -9]])
B = torch.tensor([[True, False, True], [True, True, True]])
GAPS = torch.tensor([[1.0, math.nan, 2.0], [math.inf, 0.0, -math.inf]])
TIES = torch.tensor([[1.0, 3.0, 3.0, 0.0], [2.0, 2.0, 2.0, 2.0]])


def test_sums() -> None:
    check_table(
        {
            "sum": (lambda x: (x.sum(), x.sum(1), x.sum((0, -1), keepdim=True)), X),
            "sum of integers": (lambda x: (x.sum(), x.sum(0), x.sum(dtype=torch.float32)), INTS),
            "sum of booleans": (lambda x: (x.sum(), x.sum(1)), B),
            "mean": (lambda x: (x.mean(), x.mean(-1), x.mean((0, 2), keepdim=True)), X),
            "mean of integers": (lambda x: x.mean(dtype=torch.float64), INTS),
            "prod": (lambda x: (x.prod(), x.prod(1), x.prod(-1, keepdim=True)), X),
            "amax": (lambda x: (x.amax(), x.amax(1), x.amin((0, 2), keepdim=True)), X),
            "max": (lambda x: (x.max(), x.min()), GAPS),
            "any": (lambda x: (x.any(), x.all(), x.any(1), x.all(0, keepdim=True)), B),
            "any of nothing": (lambda x: (x.any(), x.all(), x.any(0), x.all(0)), B[:0]),
            "any of integers": (lambda x: (x.any(), x.all(1)), INTS - 3),
            "count_nonzero": (lambda x: (x.count_nonzero(), x.count_nonzero(1)), INTS - 3),
            "aminmax": (lambda x: (*torch.aminmax(x, dim=1), *torch.aminmax(x)), X),
            "logsumexp": (lambda x: (x.logsumexp(1), (x * 100).logsumexp(-1, keepdim=True)), X),
            "logsumexp of infinities": (lambda x: x.logsumexp(0), torch.full((3, 2), -math.inf)),
            "a scalar": (
                lambda x: (x.sum(), x.sum(0), x.mean(), x.max(), x.amax()),
                torch.tensor(1.5),
            ),
        }
    )


def test_spread() -> None:
    check_table(
        {
            "var": (lambda x: (x.var(), x.var(1), x.var(0, correction=0, keepdim=True)), X),
            "std": (lambda x: (x.std(), x.std(-1), x.std((0, 1), correction=2)), X),
            "var_mean": (lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x)), X),
            "norm": (lambda x: (x.norm(), x.norm(dim=1), torch.linalg.vector_norm(x, 3)), X),
            "norms": (
                lambda x: [
                    torch.linalg.vector_norm(x, p, (0, 2)) for p in (0, 1, 2, 3.5, math.inf)
                ],
                X,
            ),
            "normalize": (lambda x: F.normalize(x, dim=-1), X),
        }
    )


def test_spread_of_what_is_not_finite() -> None:
    """Beside a variance the mean is NaN, unless nothing but the last value is infinite."""
    inf, nan = math.inf, math.nan
    rows = [[1, inf, 2], [1, 2, inf], [nan, 1, 2], [-inf, 1, inf], [inf, inf, inf], [1, 2, 3]]
    x = torch.tensor(rows)
    check_table(
        {
            "rows": (lambda x: (*torch.var_mean(x, 1), *torch.std_mean(x, 1, keepdim=True)), x),
            "last of all": (lambda x: torch.var_mean(x[:2]), x[[5, 1]]),
            "two axes": (lambda x: torch.var_mean(x.reshape(1, 3, 2), (0, 2)), x[[5, 1]]),
            "var": (lambda x: (x.var(1), x.std(1), x.mean(1)), x),
        }
    )
    n = torch.export.Dim("n", min=2, max=9)
    other = [torch.tensor([[inf, 1.0], [1.0, inf]])]
    check(lambda x: torch.var_mean(x, 0), [x[:, :2]], [{0: n}], [other])


def test_positions() -> None:
    check_table(
        {
            "argmax": (lambda x: (x.argmax(), x.argmax(1), x.argmax(-1, keepdim=True)), X),
            "argmin": (lambda x: (x.argmin(), x.argmin(1), x.argmin(-1, keepdim=True)), X),
            "with NaN": (lambda x: (x.argmax(), x.argmax(1), x.argmin(1)), GAPS),
            "first of equals": (lambda x: (x.argmax(1), x.argmin(1)), TIES),
            "max along an axis": (lambda x: (*x.max(1), *x.min(0, keepdim=True)), X),
            "max along an axis with NaN": (lambda x: (*x.max(1), *x.min(1)), GAPS),
            "topk": (lambda x: (*x.topk(2), *x.topk(2, 1, largest=False)), X),
            "sort": (lambda x: (*x.sort(), *x.sort(1, descending=True), x.argsort(0)), X),
            "sort is stable": (lambda x: (*x.sort(stable=True),), TIES),
            "kthvalue": (lambda x: (*x.kthvalue(2), *x.kthvalue(2, 1, True)), X),
            "median of integers": (lambda x: (*x.median(1),), INTS),
        }
    )


def test_scans() -> None:
    check_table(
        {
            "cumsum": (lambda x: (x.cumsum(0), x.cumsum(-1)), X),
            "cumsum of integers": (lambda x: (x.cumsum(1), x.int().cumsum(0)), INTS),
            "cumsum of booleans": (lambda x: x.cumsum(1), B),
            "cumprod": (lambda x: x.cumprod(1), X),
            "bucketize": (
                lambda x, e: (torch.bucketize(x, e), torch.bucketize(x, e, right=True)),
                X,
                torch.tensor([-1.0, 0.0, 0.5]),
            ),
        }
    )


def test_symbolic_sizes() -> None:
    n = torch.export.Dim("n", min=2, max=20)
    check(
        lambda x: (x.mean(0), x.var(0), x.sum(), x.softmax(0), x.argmax(0), x.cumsum(0)),
        [randn(5, 4)],
        [{0: n}],
        [[randn(9, 4)]],
    )


def test_any_and_all_along_no_axes() -> None:
    x = torch.tensor([[0.0, 1.0], [float("nan"), 0.0]])
    u = x.nan_to_num().to(torch.uint8)
    axes: list[Any] = [(), (0, 1), (-1,)]
    check_table(
        {
            f.__name__: (lambda a, b, f=f: [f(v, dim=d) for v in (a, b) for d in axes], x, u)
            for f in (torch.any, torch.all)
        }
    )
