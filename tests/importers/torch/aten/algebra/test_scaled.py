"""Products of float8 matrices against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from relax2xla import OpNotImplemented  # noqa: E402
from tests.importers.torch.helpers import check_table, imported  # noqa: E402


def operands() -> tuple[Any, ...]:
    g = torch.Generator().manual_seed(0)
    kind = torch.float8_e4m3fn
    a, b = torch.randn(4, 16, generator=g).to(kind), torch.randn(32, 16, generator=g).to(kind)
    return a, b, torch.rand(4, 1, generator=g), torch.rand(1, 32, generator=g)


def test_products_with_scales() -> None:
    a, b, rows, columns = operands()
    mm, wide = torch._scaled_mm, torch.float32
    check_table(
        {
            "whole": (
                lambda a, b: mm(a, b.t(), torch.tensor(2.0), torch.tensor(0.5), out_dtype=wide),
                a,
                b,
            ),
            "bias": (
                lambda a, b, x: mm(
                    a, b.t(), torch.tensor(2.0), torch.tensor(0.5), bias=x, out_dtype=wide
                ),
                a,
                b,
                torch.arange(32.0),
            ),
            "rows": (
                lambda a, b, r, c: mm(a, b.t(), r, c, out_dtype=torch.bfloat16),
                a,
                b,
                rows,
                columns,
            ),
        }
    )


def test_a_scale_of_the_result_is_refused() -> None:
    a, b, *_ = operands()
    one = torch.tensor(1.0)
    with pytest.raises(OpNotImplemented, match="the argument scale_result="):
        imported(lambda a, b: torch._scaled_mm(a, b.t(), one, one, scale_result=one), [a, b])


def test_casts_to_float8_end_at_its_largest_number() -> None:
    values = [0.0, -0.0, 448.0, 463.0, 465.0, 1e6, -1e6, float("inf"), -float("inf"), 1e-9]
    x = torch.tensor([*values, float("nan")])
    kinds = (torch.float8_e4m3fn, torch.float8_e5m2)

    def casts(x: Any, n: Any) -> list[Any]:
        """float8 as float32, which numpy compares with NaN."""
        narrow = [y.to(k) for y in (x, x.bfloat16(), x.double(), n) for k in kinds]
        return [y.float() for y in narrow]

    check_table({"casts": (casts, x, torch.tensor([1, -500, 70000]))})
