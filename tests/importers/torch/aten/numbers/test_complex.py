"""Complex numbers and transposed matrices against eager torch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from relax2xla import OpNotImplemented  # noqa: E402
from tests.importers.torch.helpers import check_table, imported  # noqa: E402

g = torch.Generator().manual_seed(2)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


Z = randn(2, 3, 4, dtype=torch.complex64)
X = randn(2, 3, 4)


def test_parts() -> None:
    check_table(
        {
            "parts": (lambda z: (z.real, z.imag, z.abs(), z.angle()), Z),
            "conjugate": (lambda z: (z.conj().resolve_conj(), z.conj_physical()), Z),
            "complex": (lambda a, b: torch.complex(a, b[0]), X, X.flip(0)),
            "polar": (torch.polar, X.abs(), X),
            "angle": (torch.angle, torch.tensor([1.0, -1.0, 0.0, math.nan, -math.inf])),
            "angle of integers": (torch.angle, torch.tensor([2, 0, -2])),
            "as real": (lambda z: torch.view_as_real(z * 1), Z),
            "as complex": (lambda x: torch.view_as_complex(x.reshape(6, 2, 2) * 1), X),
        }
    )


def test_arithmetic() -> None:
    check_table(
        {
            "products": (lambda z: (z * z, z / (z + 3), z @ z.mT, z * 2j), Z),
            "powers": (lambda z: (z.exp(), z.sqrt(), (z * z).log(), z.pow(2)), Z),
            "sums": (lambda z: (z.sum(1), z.mean(), z.prod(2), z.cumsum(0)), Z),
            "spread": (lambda z: (z.var(1), z.std(), torch.linalg.vector_norm(z, dim=0)), Z),
        }
    )


def test_matrices() -> None:
    check_table(
        {
            "adjoint": (lambda z: (z.mH, z[0].H, z.adjoint(), z.mT), Z),
            "reversed": (lambda x: (x[0].t(), x.permute(2, 1, 0), x[0].T), X),
            "vdot": (lambda z: torch.vdot(z[0, 0], z[1, 0]), Z),
            "vecdot": (lambda z: torch.linalg.vecdot(z[0], z[1], dim=0), Z),
        }
    )


@pytest.mark.filterwarnings("ignore:ComplexHalf support:UserWarning")
def test_complex_numbers_of_half_precision_are_refused() -> None:
    with pytest.raises(OpNotImplemented, match=r"input args_0 .*complex32.*\n.*torch\.complex64"):
        imported(lambda x: x.real, [torch.ones(3, dtype=torch.complex32)])
