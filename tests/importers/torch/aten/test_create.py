"""Tensors made of nothing against eager torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check_table  # noqa: E402

X = torch.zeros(2, 3)


def test_filled() -> None:
    check_table(
        {
            "full": (lambda x: (torch.full((2, 3), 7), torch.full((2,), 1.5), x + 1), X),
            "full_like": (lambda x: (torch.full_like(x, 2), x.new_full((4,), True)), X),
            "dtypes": (lambda x: (torch.full((2,), 3, dtype=torch.bfloat16), x.new_ones(3)), X),
            "fill": (lambda x: (x.clone().fill_(3.5), x.clone().fill_(x[0, 0] + 2)), X),
            "scalar_tensor": (lambda x: x + torch.scalar_tensor(2.5), X),
        }
    )


def test_lines() -> None:
    check_table(
        {
            "arange": (lambda x: (torch.arange(5), torch.arange(2, 9, 3), x + torch.arange(3)), X),
            "arange of floats": (lambda x: (torch.arange(0.5, 3, 0.7), torch.arange(3, -2, -2)), X),
            "linspace": (lambda x: [torch.linspace(-1, 2, n) for n in (0, 1, 2, 7)], X),
            "linspace of integers": (lambda x: torch.linspace(1, 10, 4, dtype=torch.int64), X),
            "logspace": (lambda x: torch.logspace(-1, 2, 5), X),
            "eye": (lambda x: (torch.eye(3), torch.eye(2, 4), torch.eye(3, dtype=torch.bool)), X),
        }
    )
