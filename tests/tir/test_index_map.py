"""Index maps: the way back, and where there is padding, at every place."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from relax2xla import tir
from relax2xla.errors import TVMError
from relax2xla.tir.functor import substitute


# What TVM 0.25 says of padding; the last three it refuses, or says otherwise.
@pytest.mark.parametrize(
    ("rule", "shape", "padded"),
    [
        (lambda i: (i // 4, i % 4), (16,), "T.bool(False)"),
        (lambda i: (i // 4, i % 4), (15,), "axis0 == 3 and axis1 == 3"),
        (lambda i: (i // 4, i % 4), (3,), "axis1 == 3"),
        (
            lambda i: ((i + 1) // 4, (i + 1) % 4),
            (14,),
            "axis0 == 0 and axis1 < 1 or axis0 == 3 and axis1 == 3",
        ),
        (
            lambda i: (i // 4 % 8, i // 32, i % 4),
            (116,),
            "axis1 == 3 and 20 <= axis0 * 4 + axis2",
        ),
        (
            lambda i, j: ((i + 1) // 4, (j + 5) // 8, (i + 1) % 4, (j + 5) % 8),
            (14, 31),
            "axis0 == 0 and axis2 < 1 or axis0 == 3 and axis2 == 3 or "
            "(axis1 == 0 and axis3 < 5 or axis1 == 4 and 4 <= axis3)",
        ),
        (
            lambda i: ((i + 9) // 4, (i + 9) % 4),
            (14,),
            "axis0 < 2 or axis0 == 2 and axis1 < 1 or axis0 == 5 and axis1 == 3",
        ),
        (lambda i, j: ((i * 7 + j) // 4, (i * 7 + j) % 4), (5, 7), "axis0 == 8 and axis1 == 3"),
        (lambda i, j, k: (k + 3, 0, i, j), (1, 3, 2), "axis0 < 3"),
    ],
)
def test_the_way_back_of_every_place(rule: Any, shape: tuple[int, ...], padded: str):
    made = tir.IndexMap.from_func(rule)
    back, padding = made.non_surjective_inverse(shape)
    assert str(tir.simplify(padding)) == padded
    sent = {tuple(made.map_indices(i)): list(i) for i in itertools.product(*map(range, shape))}
    for place in itertools.product(
        *(range(d) for d in made.map_shape(shape) if isinstance(d, int))
    ):
        values = dict(zip(back.initial_indices, place, strict=True))
        assert bool(substitute(padding, values)) == (place not in sent)
        if place in sent:
            assert back.map_indices(place) == sent[place]
    if padded == "T.bool(False)":
        assert made.inverse(shape) == back
    else:
        with pytest.raises(TVMError, match="places without an element"):
            made.inverse(shape)


def test_the_way_back_of_a_symbolic_size():
    n = tir.Var("n", "int64")
    made = tir.IndexMap.from_func(lambda i: (i // 4, i % 4))
    back, padding = made.non_surjective_inverse([tir.Range(0, n)])
    assert str(back) == "T.index_map(lambda axis0, axis1: (axis0 * 4 + axis1,))"
    assert str(padding) == "n % 4 != 0 and (axis0 == n // 4 and axis1 >= n % 4)"
    with pytest.raises(TVMError, match="from zero"):
        made.non_surjective_inverse([tir.Range(1, n)])


@pytest.mark.parametrize(
    ("rule", "shape", "why"),
    [
        (lambda i: (i // 4, i % 2), (8,), "overlap, or leave some out"),
        (lambda i: (i // 4,), (8,), "no final index has the remainder"),
        (lambda i: (i % 4,), (8,), "no final index has the quotient"),
        (lambda i, j: (i + j,), (2, 3), "times 1 is not where"),
        (lambda i: (i * i,), (2,), "no digit of a sum"),
        (lambda i: (i, i + 1), (4,), "in more than one sum"),
        (lambda i, j: (i,), (2, 3), "no final index has `j`"),
        (lambda i: (i - 1,), (4,), "may be negative"),
    ],
)
def test_maps_without_a_way_back(rule: Any, shape: tuple[int, ...], why: str):
    with pytest.raises(TVMError, match=why):
        tir.IndexMap.from_func(rule).non_surjective_inverse(shape)


def test_indices_of_another_dtype_and_arrays():
    made = tir.IndexMap.from_func(lambda i: (i // 4, i % 4), index_dtype="int32")
    assert made.map_indices([tir.const(42, "int64")]) == [10, 2]
    assert made.map_ndarray(np.arange(1, 7)).tolist() == [[1, 2, 3, 4], [5, 6, 0, 0]]
    assert made.map_shape([3]) == [1, 4]
