"""Ranges of integers against the values themselves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla import op as R
from relax2xla.builder import BlockBuilder
from relax2xla.importers.shared.ranges import range_of
from relax2xla.ir import Expr, TensorStructInfo, Var, const
from relax2xla.tir import Var as Size

X = Var("x", TensorStructInfo((3, 4), "float32"))
I = Var("i", TensorStructInfo((4,), "int64"))  # noqa: E741
N = Var("n", TensorStructInfo((Size("n"), 2), "float32"))


def number(value: int) -> Expr:
    return const(value, "int64")


def line(low: int, high: int, step: int = 1) -> Expr:
    return R.arange(low, high, step, "int64")


def reflected(at: Expr, size: int) -> Expr:
    last = number(size - 1)
    return R.subtract(last, R.abs(R.subtract(last, R.abs(at))))


@pytest.mark.parametrize(
    ("made", "want"),
    [
        (line(-2, 12), (-2, 11)),
        (line(9, -3, -4), (1, 9)),
        (line(3, 3), (0, 0)),
        (reflected(line(-2, 12), 10), (0, 9)),
        (R.multiply(line(-3, 3), line(-1, 5)), (-12, 8)),
        (R.minimum(R.negative(line(1, 5)), number(-2)), (-4, -2)),
        (R.where(const(np.array([True, False])), line(0, 2), number(7)), (0, 7)),
        (R.argmax(X, 1), (0, 3)),
        (R.argsort(X, 0, False, "int64"), (0, 2)),
        (R.argmax(X), (0, 11)),
        (R.argmax(N, 0), (0, 2**63 - 1)),
        (R.reshape(R.astype(line(0, 4), "int32"), (2, 2)), (0, 3)),
        (R.take(const(np.array([[3, -1], [2, 5]])), I, 0), (-1, 5)),
        (R.clip(line(-2, 12), 0, 9), (0, 9)),
        (R.clip(line(20, 22), 0, 9), (9, 9)),
        (R.clip(I, 3, 7), (3, 7)),
        (R.clip(I, 7, 3), (3, 3)),
        (I, None),
        (R.add(I, number(1)), None),
        (R.add(number(2**62), number(2**62)), None),
        (R.astype(line(0, 300), "int8"), None),
        (R.astype(X, "int32"), None),
        (X, None),
    ],
)
def test_ranges(made: Any, want: Any) -> None:
    assert range_of(made, lambda _: None) == want


def test_through_variables() -> None:
    """As far back as it looks, and no further."""
    builder = BlockBuilder()
    with builder.function("main", [X]):
        x = builder.emit(R.argmax(X, 1))
        for _ in range(5):
            x = builder.emit(R.add(x, number(1)))
        assert range_of(x, builder.lookup_binding) == (5, 8)
        for _ in range(40):
            x = builder.emit(R.add(x, number(1)))
        assert range_of(x, builder.lookup_binding) is None
        builder.emit_func_output(x)
