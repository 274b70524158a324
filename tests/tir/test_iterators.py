"""What indices are made of: held against their values on every place of the iterators."""

from __future__ import annotations

import itertools
import random

import pytest

from relax2xla import tir
from relax2xla.tir.arith.iterators import is_bijective, iterators_of

X, Y, K = (tir.Var(name) for name in "xyk")
DOMAINS = {X: tir.Range(0, 24), Y: tir.Range(0, 8)}


def values(indices: list[tir.PrimExpr]) -> list[tuple[int, ...]]:
    return [
        tuple(tir.evaluate(index, {X: x, Y: y}) for index in indices)
        for x, y in itertools.product(range(24), range(8))
    ]


def random_index(rng: random.Random, depth: int = 3) -> tir.PrimExpr:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([X, Y])
    a = random_index(rng, depth - 1)
    number = rng.choice([1, 2, 3, 4, 8, 24])
    kind = rng.randrange(5)
    if kind == 0:
        return a // number
    if kind == 1:
        return a % number
    if kind == 2:
        return a * number
    return a * number + random_index(rng, depth - 1) if kind == 3 else a + number


def test_bijective_maps_have_each_value_once() -> None:
    rng = random.Random(28)
    found = 0
    for _ in range(4000):
        indices = [random_index(rng) for _ in range(rng.randint(1, 4))]
        if is_bijective(indices, DOMAINS):
            found += 1
            assert len(set(values(indices))) == 24 * 8, indices
    assert found > 100


@pytest.mark.parametrize(
    "indices",
    [
        [X, Y],
        [X * 8 + Y],
        [(X * 8 + Y) // 32, (X * 8 + Y) % 32],
        [X // 12, X // 4 % 3, Y, X % 4],
        [Y * 6 + X // 4, X % 4],
        [X // 4 * 4 + X % 4, Y * 3 + 1],
    ],
    ids=str,
)
def test_maps_that_are_bijective(indices: list[tir.PrimExpr]) -> None:
    assert is_bijective(indices, DOMAINS)


@pytest.mark.parametrize(
    "indices",
    [
        [X],
        [X, Y, X],
        [X // 5, X % 5, Y],
        [X // 4, X % 8, Y],
        [X // 4, Y],
        [X + Y, Y],
        [X * 7 + Y],
        [(X + 1) // 4, (X + 1) % 4, Y],
        [X * Y],
        [tir.max(X, 1), Y],
    ],
    ids=str,
)
def test_maps_that_are_not(indices: list[tir.PrimExpr]) -> None:
    assert not is_bijective(indices, DOMAINS)


@pytest.mark.parametrize(
    ("indices", "expected"),
    [
        ([X, Y], [X, Y]),
        ([Y * 3 + 5, K, X // 5], [Y, None, X]),
        ([(X + K) // 4, Y], [X, Y]),
        ([X // 4, X % 4], [X, X]),
        ([X // 12, X % 4], [X, X]),
        ([X - X + 3, Y], [None, Y]),
        ([X // 4 * 4 + X % 4], [X]),
        ([X // 4, X % 8], None),
        ([X, X], None),
        ([X + Y], None),
        ([X * Y], None),
        ([tir.max(X, 1)], None),
        ([X * 6 // 4], None),
        ([Y // X], None),
    ],
    ids=str,
)
def test_iterators_of(indices: list[tir.PrimExpr], expected: list[tir.Var | None] | None) -> None:
    assert iterators_of(indices, DOMAINS) == expected


def test_iterators_of_one_step_are_none() -> None:
    domains = {X: tir.Range(0, 1), Y: tir.Range(0, 8)}
    assert iterators_of([X, Y], domains) == [None, Y]
    assert is_bijective([Y], domains)


def test_symbolic_extents() -> None:
    n = tir.Var("n")
    domains = {X: tir.Range(0, n), Y: tir.Range(0, 8)}
    assert iterators_of([X // 4, X % 4, Y], domains) == [X, X, Y]
    assert is_bijective([Y // 4, X, Y % 4], domains)
    assert is_bijective([X * 8 + Y], domains)
    assert is_bijective([Y * n + X], domains)
    assert not is_bijective([X // 4, X % 4, Y], domains)
