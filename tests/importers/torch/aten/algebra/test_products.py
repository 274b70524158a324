"""Products of matrices and vectors against eager torch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check_table  # noqa: E402

g = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Any:
    return torch.randn(*shape, generator=g)


def test_products() -> None:
    a, b, v = randn(3, 4), randn(4, 5), randn(4)
    check_table(
        {
            "matmul": (lambda a, b, v: (a @ b, a @ v, v @ b, v @ v), a, b, v),
            "mm": (lambda a, b, v: (a.mm(b), a.mv(v), v.dot(v)), a, b, v),
            "batched": (torch.matmul, randn(2, 1, 3, 4), randn(5, 4, 2)),
            "bmm": (torch.bmm, randn(2, 3, 4), randn(2, 4, 5)),
            "linear": (F.linear, randn(2, 3, 4), randn(5, 4), randn(5)),
            "linear without bias": (F.linear, randn(4), randn(5, 4)),
            "linear to a scalar": (F.linear, randn(3, 4), randn(4)),
            "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), randn(5), a, b),
            "addmm beta 0": (
                lambda c, a, b: c.addmm(a, b, beta=0),
                torch.full((3, 5), math.nan),
                a,
                b,
            ),
            "baddbmm": (torch.baddbmm, randn(2, 3, 5), randn(2, 3, 4), randn(2, 4, 5)),
            "addmv": (torch.addmv, randn(3), a, v),
            "outer": (torch.outer, randn(3), randn(4)),
            "einsum": (
                lambda a, b: torch.einsum("bij, bkj -> bik", a, b),
                randn(2, 3, 4),
                randn(2, 5, 4),
            ),
            "einsum of one": (lambda a: torch.einsum("ij->ji", a), a),
        }
    )
