"""Walks: substitution, free variables, comparison, evaluation."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings

from relax2xla import tir
from tests.tir.strategies import VARS, environments, exprs

n, m, k, h = VARS


@settings(max_examples=150, deadline=None)
@given(expr=exprs, env=environments)
def test_substitution_of_values_is_evaluation(expr: tir.Dim, env: dict[tir.Var, int]) -> None:
    try:
        expected = tir.evaluate(expr, env)
    except ZeroDivisionError:
        return
    # Folding refuses a literal 0 as divisor, also in a branch that is not taken.
    with contextlib.suppress(ZeroDivisionError):
        assert tir.substitute(expr, dict(env)) == expected


@settings(max_examples=150, deadline=None)
@given(expr=exprs)
def test_renaming_is_seen_by_structural_equality(expr: tir.Dim) -> None:
    fresh = {v: tir.Var(v.name) for v in VARS}
    renamed = tir.substitute(expr, dict(fresh))
    assert tir.structural_equal(expr, renamed, dict(fresh))
    assert tir.structural_equal(expr, renamed, map_free_vars=True)
    assert tir.structural_hash(expr, lambda v: hash(v.name)) == tir.structural_hash(
        renamed, lambda v: hash(v.name)
    )
    if tir.free_vars(expr):
        assert not tir.structural_equal(expr, renamed)


def test_substitute_is_simultaneous() -> None:
    assert tir.substitute(n + m * 2, {n: m, m: n}) == m + n * 2
    assert tir.substitute(n * m, {n: 3, m: 4}) == 12
    assert type(tir.substitute(n * m, {n: 3, m: 4})) is int
    assert tir.substitute(5, {n: 3}) == 5
    untouched = n + 1
    assert tir.substitute(untouched, {m: 3}) is untouched


def test_substitute_checks_dtypes() -> None:
    with pytest.raises(TypeError, match="has dtype int64, its replacement `i` has int32"):
        tir.substitute(n + 1, {n: tir.Var("i", "int32")})


def test_free_vars() -> None:
    assert tir.free_vars(m * 2 + n // m) == [m, n]
    assert tir.free_vars(3) == []
    assert tir.analysis.undefined_vars(n + m, [n]) == [m]


def test_structural_equal_maps_one_to_one() -> None:
    assert tir.structural_equal(n + m, k + h, map_free_vars=True)
    assert not tir.structural_equal(n + m, k + k, map_free_vars=True)
    assert not tir.structural_equal(n + n, k + h, map_free_vars=True)
    pairs: dict[tir.Var, tir.Var] = {}
    assert tir.structural_equal(n, k, pairs, map_free_vars=True)
    assert not tir.structural_equal(n, h, pairs, map_free_vars=True)
    assert tir.structural_equal(3, tir.const(3))
    assert not tir.structural_equal(n, 3)


def test_evaluate() -> None:
    assert tir.evaluate(tir.if_then_else(n > 0, 10 // n, 0), {n: 0}) == 0
    assert tir.evaluate((n << 2) | 1, {n: 3}) == 13
    assert tir.evaluate(tir.Not(n < 3), {n: 3}) == 1
    assert tir.evaluate(n.astype("int8"), {n: 300}) == 44
    assert tir.evaluate(7, {}) == 7
    with pytest.raises(KeyError, match="no value for the variable `m`"):
        tir.evaluate(n + m, {n: 1})
    with pytest.raises(ZeroDivisionError, match="`n // m` divides by zero"):
        tir.evaluate(n // m + 1, {n: 1, m: 0})
    with pytest.raises(TypeError, match="float32 expression"):
        tir.evaluate(n + 1.5, {n: 1})


def test_deep_expressions() -> None:
    deep: tir.PrimExpr = n
    for i in range(10_000):
        deep = deep + 1 if i % 2 else 1 + deep
    assert tir.evaluate(deep, {n: 1}) == 10_001
    assert tir.substitute(deep, {n: 2}) == 10_002
    assert tir.free_vars(deep) == [n]
    other = tir.substitute(deep, {n: m})
    assert other != deep
    assert tir.structural_equal(deep, other, map_free_vars=True)
    assert tir.substitute(other, {m: n}) == deep
    assert len(str(deep)) == 49_999
