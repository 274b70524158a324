"""Bits of floating-point numbers, common divisors and hashes against eager torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check_table  # noqa: E402

NAN = float("nan")
INF = float("inf")
EDGES = torch.tensor([0.0, -0.0, 1.5, -2.0, INF, -INF, NAN, 3.4e38])
INTS = torch.tensor([[12, -18, 0, 7], [2**40, -(2**33), 1, 9]])
OTHERS = torch.tensor([[8, 27, 0, 0], [2**38, 6, -5, -12]])


def test_signs_and_neighbours() -> None:
    check_table(
        {
            "signbit": (torch.signbit, EDGES),
            "signbit of integers": (torch.signbit, INTS),
            "copysign": (lambda x: (x.copysign(-1), x.copysign(x.flip(0))), EDGES[:6]),
            "nextafter": (
                lambda x, y: (torch.nextafter(x, y), torch.nextafter(y, x)),
                torch.tensor([1.0, -1.0, 0.0, INF]),
                torch.tensor([2.0, -INF, -1.0, 0.0]),
            ),
            "frexp": (torch.frexp, torch.tensor([0.0, -3.0, 3.4e38, 0.5, INF])),
            "frexp of float64": (torch.frexp, torch.tensor([1e-300, -1e300], dtype=torch.float64)),
        }
    )


def test_divisors() -> None:
    check_table(
        {
            "gcd": (torch.gcd, INTS, OTHERS),
            "lcm": (torch.lcm, INTS[:1], OTHERS[:1]),
            "gcd of one row": (lambda a, b: torch.gcd(a, b[0]), INTS.int(), OTHERS.int()),
        }
    )


def test_hashes() -> None:
    check_table(
        {
            "float32": (torch.hash_tensor, EDGES),
            "bfloat16": (torch.hash_tensor, EDGES.to(torch.bfloat16)),
            "integers": (lambda x: [torch.hash_tensor(x, dim=d) for d in ((), 0, (0, 1))], INTS),
            "kept axes": (lambda x: torch.hash_tensor(x, dim=1, keepdim=True), INTS.int()),
            "booleans": (torch.hash_tensor, torch.tensor([True, False, True, True])),
        }
    )
