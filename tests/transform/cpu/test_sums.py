"""SumsAsProducts: numpy's results, as products of matrices, where rows and columns are many."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform.core import run_on_function
from relax2xla.transform.cpu.sums import SumsAsProducts

RNG = np.random.default_rng(7)


def summed(
    name: str, shape: tuple[int, ...], axes: list[int], keep: bool, dtype: str = "float32"
) -> rx.Function:
    x = rx.Var("x", rx.TensorStructInfo(shape, dtype))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(getattr(R, name)(x, axes, keep)))
    return builder.get()["main"]


@pytest.mark.parametrize("name", ["sum", "mean"])
@pytest.mark.parametrize(
    ("shape", "axes", "keep"),
    [
        ((1, 4, 5, 8), [1, 2], True),
        ((3, 4, 5, 8), [-2, 1], False),
        ((2, 3, 4, 5, 2, 4), [2, 3], False),
        ((6, 7, 9), [0, 1], True),
    ],
)
def test_results_are_numpys(name: str, shape: tuple[int, ...], axes: list[int], keep: bool) -> None:
    func = run_on_function([SumsAsProducts()], summed(name, shape, axes, keep), "main")
    assert any(is_op(b.value, "relax.matmul") for b in bindings_of(func.body))
    x = RNG.standard_normal(shape).astype("f")
    expected = getattr(x, name)(tuple(axes), keepdims=keep)
    np.testing.assert_allclose(rx.testing.evaluate(func, [x]), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "axes", "dtype"),
    [
        ((4, 5, 8), [1, 2], "float32"),
        ((4, 5, 8), [1], "float32"),
        ((8, 2, 8, 8), [0, 2], "float32"),
        ((2, 2, 8), [0, 1], "float32"),
        ((4, 5, 4), [0, 1], "float32"),
        ((4, 5, 8), [0, 1], "float64"),
        ((4, 5, 8), [], "float32"),
        ((), [], "float32"),
    ],
)
def test_others_stay(shape: tuple[int, ...], axes: list[int], dtype: str) -> None:
    func = summed("sum", shape, axes, False, dtype)
    assert run_on_function([SumsAsProducts()], func, "main") is func
