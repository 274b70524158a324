"""Simplification and proofs: against TVM's own results, and against evaluation."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relax2xla import tir
from tests.tir.strategies import VARS, conditions, environments, exprs, sizes

n, m, k, h = VARS
NAMES: dict[str, object] = {
    "n": n, "m": m, "k": k, "h": h, "floordiv": tir.floordiv, "floormod": tir.floormod,
    "truncdiv": tir.truncdiv, "truncmod": tir.truncmod, "ceildiv": tir.ceildiv, "max": tir.max,
    "min": tir.min, "Select": tir.Select, "if_then_else": tir.if_then_else, "EQ": tir.EQ,
    "NE": tir.NE, "And": tir.And, "Or": tir.Or, "Not": tir.Not, "C": tir.const,
}  # fmt: skip
with Path(__file__).with_name("cases_tvm.tsv").open(newline="") as _file:
    CASES = [tuple(row) for row in csv.reader(_file, delimiter="\t")]


@pytest.mark.parametrize(("source", "expected"), CASES)
def test_simplify_prints_what_tvm_prints(source: str, expected: str) -> None:
    """The table was made by ``tvm.arith.Analyzer().simplify`` (TVM 0.25), ``T.int64`` removed."""
    assert str(tir.simplify(eval(source, NAMES))) == expected


def value(expr: tir.Dim, env: dict[tir.Var, int]) -> int | None:
    """The value, or None where the expression divides by zero."""
    try:
        return tir.evaluate(expr, env)
    except ZeroDivisionError:
        return None


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expr=exprs, envs=st.lists(environments, min_size=4, max_size=4))
def test_simplify_keeps_the_value(expr: tir.Dim, envs: list[dict[tir.Var, int]]) -> None:
    short = tir.simplify(expr)
    for env in envs:
        if (expected := value(expr, env)) is not None:
            assert value(short, env) == expected


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(expr=exprs, envs=st.lists(sizes, min_size=4, max_size=4))
def test_simplify_of_sizes_keeps_the_value(expr: tir.Dim, envs: list[dict[tir.Var, int]]) -> None:
    analyzer = tir.Analyzer(VARS)
    short, bound = analyzer.simplify(expr), analyzer.const_int_bound(expr)
    for env in envs:
        if (expected := value(expr, env)) is not None:
            assert value(short, env) == expected
            assert bound.min_value <= expected <= bound.max_value


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(a=exprs, b=exprs, envs=st.lists(environments, min_size=6, max_size=6))
def test_what_is_proved_equal_is_equal(
    a: tir.Dim, b: tir.Dim, envs: list[dict[tir.Var, int]]
) -> None:
    for other in (b, a + (b - b), tir.max(a, b) + tir.min(a, b) - b):
        if tir.can_prove_equal(a, other):
            for env in envs:
                x, y = value(a, env), value(other, env)
                assert x is None or y is None or x == y


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(condition=conditions, envs=st.lists(sizes, min_size=6, max_size=6))
def test_what_is_proved_holds(condition: tir.PrimExpr, envs: list[dict[tir.Var, int]]) -> None:
    analyzer = tir.Analyzer(VARS)
    if analyzer.can_prove(condition):
        assert all(value(condition, env) in (1, None) for env in envs)
    if isinstance(decided := analyzer.simplify(condition), tir.IntImm):
        assert all(value(condition, env) in (decided.value, None) for env in envs)


EQUAL = [
    ((n + 1) * (m + 1), n * m + n + m + 1),
    (n * m * k, k * (m * n)),
    ((n + m) // 2, (m + n) // 2),
    ((n + 6) // 4, (n + 2) // 4 + 1),
    ((n * 6 + 3) // 9, (n * 2 + 1) // 3),
    (n // 4 * 4 + n % 4, n),
    ((n + 6) // 4 * 4 + (n + 2) % 4, n + 6),
    (n % 8 // 4 * 4 + n % 4, n % 8),
    (n // 2 // 3, n // 6),
    (n % 6 % 2, n % 2),
    ((n * 5 + 4 * m) % 4, n % 4),
    (tir.max(n, m) + tir.min(n, m), n + m),
    (tir.max(tir.max(n, 1), m), tir.max(n, tir.max(m, 1))),
    (tir.max(n + 2, m + 1), tir.max(n + 1, m) + 1),
    (tir.max(n * 2, 4), tir.max(n, 2) * 2),
    ((n * m + n + m + 1) // (n + 1), m + 1),
    (n * m * 4 // (m * 2), n * 2),
    (tir.ceildiv(n * 4, 8), (n + 1) // 2),
    ((n + m) * (n - m), n * n - m * m),
    (n * (m - 1) + n, m * n),
]


@pytest.mark.parametrize(("a", "b"), EQUAL, ids=str)
def test_can_prove_equal(a: tir.PrimExpr, b: tir.PrimExpr) -> None:
    assert tir.can_prove_equal(a, b)
    assert tir.can_prove_equal(b, a)
    assert not tir.can_prove_equal(a, b + 1)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [(2, 2, True), (2, 3, False), (n, n, True), (n, m, False), (n, 2, False), (2, n - n + 2, True)],
)
def test_can_prove_equal_of_dims(a: tir.Dim, b: tir.Dim, expected: bool) -> None:
    assert tir.can_prove_equal(a, b) is expected


SIZES = tir.Analyzer(VARS)


@pytest.mark.parametrize(
    "condition",
    [
        n >= 0,
        n * m + 1 > 0,
        n // 2 * 2 <= n,
        (n + 7) // 8 * 8 >= n,
        (n + 7) // 8 * 8 < n + 8,
        n % 4 < 4,
        tir.max(n, m) >= m,
        tir.min(n, m) <= n,
        tir.max(n, 1) >= 1,
        tir.min(n, 3) <= 3,
        tir.NE(n + 1, 0),
        tir.EQ(n * 2, n + n),
        tir.Or(n < 3, n >= 3),
        tir.And(n >= 0, n + 1 > n),
        tir.Not(n < 0),
        tir.Not(tir.And(n > 3, n < 2)),
    ],
    ids=str,
)
def test_can_prove(condition: tir.PrimExpr) -> None:
    assert SIZES.can_prove(condition)


@pytest.mark.parametrize(
    "condition", [n > 0, n < m, n * m > n, tir.EQ(n, m), tir.NE(n, m), tir.Not(n < 1)], ids=str
)
def test_cannot_prove(condition: tir.PrimExpr) -> None:
    assert not SIZES.can_prove(condition)


def test_sizes_are_not_assumed_unless_said() -> None:
    size = tir.SizeVar("s")
    assert not tir.Analyzer().can_prove(n >= 0)
    assert tir.Analyzer().can_prove(size >= 0)
    assert tir.simplify(tir.max(size, 0)) is size
    assert str(tir.simplify(tir.max(n, 0))) == "T.max(n, 0)"


def test_bind_a_range_and_a_value() -> None:
    analyzer = tir.Analyzer()
    analyzer.bind(n, range(1, 9))
    analyzer.bind(m, tir.Range(4, 6))
    analyzer.bind(k, n * 2)
    assert analyzer.const_int_bound(n) == (1, 8)
    assert analyzer.const_int_bound(n + m) == (5, 13)
    assert analyzer.simplify(m // 6) == 0
    assert str(analyzer.simplify(k + n)) == "n * 3"
    assert analyzer.can_prove(k <= 16)
    assert analyzer.const_int_bound(h) == (tir.ConstIntBound.NEG_INF, tir.ConstIntBound.POS_INF)
    with pytest.raises(ValueError, match="`k` is bound to"):
        analyzer.bind(k, 3)
    analyzer.bind(k, 3, allow_override=True)
    assert analyzer.simplify(k) == 3


def test_constraint_scope() -> None:
    analyzer = tir.Analyzer(VARS)
    with analyzer.constraint_scope(tir.And(n >= 4, m <= n)):
        assert analyzer.can_prove(n > 3)
        assert analyzer.can_prove(m <= n + 1)
        assert analyzer.simplify(tir.max(n, 2)) is n
    assert not analyzer.can_prove(n > 3)
    assert not analyzer.can_prove(m <= n)


def test_can_prove_wants_a_condition() -> None:
    with pytest.raises(TypeError, match="expected a condition"):
        tir.Analyzer().can_prove(n + 1)


def test_ints_pass_straight_through() -> None:
    big = 1 << 40
    assert tir.simplify(big) is big
    assert tir.simplify(n) is n
    assert type(tir.simplify(n - n + 2)) is int


def test_deep_and_wide_expressions() -> None:
    deep: tir.Dim = n
    for i in range(10_000):
        deep = deep + (i % 3) if i % 2 else m + deep
    assert str(tir.simplify(deep)) == "m * 5000 + n + 4999"
    wide: tir.Dim = 0
    for i in range(2_000):
        wide = wide + tir.Var(f"v{i}") * (i % 7 + 1)
    assert tir.can_prove_equal(wide, wide + n - n)
    nested: tir.Dim = n
    for _ in range(300):
        nested = tir.max(nested // 2 + 1, m)
    assert tir.can_prove_equal(nested, nested)
    tir.simplify(nested)
    shared: tir.Dim = n
    for _ in range(200):
        shared = shared + shared
    assert tir.can_prove_equal(shared - shared, 0)
