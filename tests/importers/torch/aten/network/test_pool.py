"""Pooling against eager torch; fractional pooling at places that are given."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check_table  # noqa: E402

g = torch.Generator().manual_seed(6)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


def test_fractional() -> None:
    flat, volume = randn(2, 3, 7, 8), randn(1, 2, 6, 7, 8)
    check_table(
        {
            "plane": (
                lambda x, r: F.fractional_max_pool2d(
                    x, 2, output_size=(3, 4), _random_samples=r, return_indices=True
                ),
                flat,
                torch.rand(2, 3, 2, generator=g),
            ),
            "volume": (
                lambda x, r: F.fractional_max_pool3d(
                    x, 2, output_ratio=0.5, _random_samples=r, return_indices=True
                ),
                volume,
                torch.rand(1, 2, 3, generator=g),
            ),
        }
    )


def test_pools() -> None:
    x = randn(2, 3, 9, 8)
    check_table(
        {
            "max": (lambda x: F.max_pool2d(x, 3, 2, 1), x),
            "max with places": (lambda x: F.max_pool2d(x, 3, 2, 1, 2, return_indices=True), x),
            "ceil": (
                lambda x: (F.max_pool2d(x, 2, 2, ceil_mode=True), F.avg_pool2d(x, 4, 3, 1, True)),
                x,
            ),
            "mean without padding": (
                lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
                x,
            ),
            "divisor": (lambda x: F.avg_pool2d(x, 3, 2, divisor_override=5), x),
            "adaptive": (
                lambda x: (F.adaptive_avg_pool2d(x, (4, 3)), F.adaptive_max_pool2d(x, 5)),
                x,
            ),
            "power": (lambda x: F.lp_pool2d(x, 2.0, 3, 2), x),
        }
    )


def test_places_of_maxima() -> None:
    """The first of equal ones, the last NaN, none outside; windows too large to look at each."""

    def pool(*window: Any) -> Any:
        return lambda x: torch.ops.aten.max_pool2d_with_indices(x, *window)

    equal = torch.randint(0, 3, (2, 3, 9, 8), generator=g)
    holes = torch.where(equal == 0, torch.nan, equal.float())
    check_table(
        {
            "numbers": (pool([3, 2], [2, 1], [1, 1]), equal),
            "lowest": (pool([3, 3], [1, 1], [1, 1]), torch.full((1, 5, 5), -torch.inf)),
            "bytes": (pool([2, 2], [], [1, 1]), torch.zeros(1, 4, 5, dtype=torch.uint8)),
            "NaN": (pool([3, 3], [2, 2], [1, 1], [2, 1]), holes),
            "bfloat16": (pool([2, 3], [2, 2], [0, 1], [1, 1], True), holes.bfloat16()),
            "large": (pool([8, 8], [1, 1], [4, 4]), equal.float()),
            "volume": (
                lambda x: F.max_pool3d(x, 3, 2, 1, ceil_mode=True, return_indices=True),
                randn(2, 3, 5, 6, 4),
            ),
            "line": (lambda x: F.max_pool1d(x, 3, 2, 1, return_indices=True), randn(3, 9)),
        }
    )


def test_adaptive_means() -> None:
    check_table(
        {
            "line": (
                lambda x: (F.adaptive_avg_pool1d(x, 4), F.adaptive_avg_pool1d(x, 1)),
                randn(2, 3, 9),
            ),
            "plane": (
                lambda x: (F.adaptive_avg_pool2d(x, (4, None)), x.mean((2, 3))),
                randn(2, 3, 9, 7),
            ),
            "volume": (lambda x: F.adaptive_avg_pool3d(x, (2, 3, 4)), randn(1, 2, 5, 6, 7)),
        }
    )


def test_pooling() -> None:
    x1, x2, x3 = randn(2, 3, 9), randn(2, 3, 9, 8), randn(1, 2, 6, 6, 7)
    check_table(
        {
            "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1), x1),
            "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), x2),
            "max_pool2d by default": (lambda x: F.max_pool2d(x, 2), x2),
            "max_pool2d with everything": (
                lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2), ceil_mode=True),
                x2,
            ),
            "max_pool2d of one image": (lambda x: F.max_pool2d(x, 2), x2[0]),
            "max_pool2d of integers": (lambda x: F.max_pool2d(x, 2), (x2 * 9).int()),
            "max_pool3d": (lambda x: F.max_pool3d(x, 2), x3),
            "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), x1),
            "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), x2),
            "avg_pool2d without padding": (
                lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True),
                x2,
            ),
            "avg_pool2d with a divisor": (
                lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
                x2,
            ),
            "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), x3),
            "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 4), x1),
            "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (1, 1)), x2),
            "adaptive_avg_pool2d uneven": (lambda x: F.adaptive_avg_pool2d(x, (4, None)), x2),
            "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 3), x3),
            "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), x2),
        }
    )
