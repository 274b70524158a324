"""Families of orthogonal polynomials against eager torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check_table  # noqa: E402

#: Inside, on and beyond the interval that the families are for.
X = torch.tensor([-2.0, -1.0, -0.3, 0.0, 0.7, 1.0, 1.6], dtype=torch.float64)
NAMES = [
    *(f"chebyshev_polynomial_{k}" for k in "tuvw"),
    *(f"shifted_chebyshev_polynomial_{k}" for k in "tuvw"),
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
]


def test_families() -> None:
    degrees = torch.arange(-1, 10, dtype=torch.float64)[:, None]
    check_table(
        {name: (getattr(torch.special, name), X, degrees) for name in NAMES},
    )
