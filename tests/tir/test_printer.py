"""Text of expressions, and Python reading it back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from relax2xla import tir
from tests.tir.strategies import NAMESPACE, VARS, exprs

n, m, k, h = VARS


@settings(max_examples=300, deadline=None)
@given(expr=exprs)
def test_text_reads_back(expr: tir.Dim) -> None:
    assert tir.as_prim_expr(eval(tir.to_text(expr), NAMESPACE)) == tir.as_prim_expr(expr)


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (n + 1, "n + 1"), ((n + 3) // 2, "(n + 3) // 2"), (n - (m - k), "n - (m - k)"),
        (n - m - k, "n - m - k"), (n * (m * k), "n * (m * k)"), (n // m // k, "n // m // k"),
        (n // (m // k), "n // (m // k)"), (n * m // k, "n * m // k"),
        (n * (m // k), "n * (m // k)"),
        (n % 2 * 3, "n % 2 * 3"), (tir.max(n + 1, m), "T.max(n + 1, m)"), (n - -2, "n - -2"),
        (tir.And(tir.Or(n < 1, m < 2), k < 3), "(n < 1 or m < 2) and k < 3"),
        (tir.Or(tir.And(n < 1, m < 2), k < 3), "n < 1 and m < 2 or k < 3"),
        (tir.Not(tir.And(n < 1, m < 2)), "not (n < 1 and m < 2)"),
        (tir.EQ(tir.LT(n, 1), tir.Not(m < 2)), "(n < 1) == (not m < 2)"),
        (tir.Select(n < 1, n, m), "T.Select(n < 1, n, m)"),
        (tir.if_then_else(n < 1, n, m), "T.if_then_else(n < 1, n, m)"),
        (tir.truncdiv(n, 2), "T.Div(n, 2)"), (tir.truncmod(n, 2), "T.truncmod(n, 2)"),
        (tir.StringImm('a"b'), '"a\\"b"'), (tir.const(True), "T.bool(True)"),
    ],
    ids=str,
)  # fmt: skip
def test_text(expr: tir.PrimExpr, text: str) -> None:
    assert tir.to_text(expr) == text


def test_options() -> None:
    expr = n + tir.const(2, "int64")
    assert tir.to_text(expr, name_of=lambda v: v.name * 2) == "nn + 2"
    assert tir.to_text(expr, bare_int="int32", prefix="tir") == "n + tir.int64(2)"
    assert tir.to_text(7) == "7"
