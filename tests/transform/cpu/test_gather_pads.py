"""GatherPads: numpy's results, by gathers, where rows are short or stay or the result is large."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import tir
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import bindings_of
from relax2xla.transform.core import run_on_function
from relax2xla.transform.cpu.gather_pads import GatherPads
from relax2xla.transform.pipeline import Pipeline, default

RNG = np.random.default_rng(7)
MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}
Widths = tuple[tuple[int, int], ...]


def padded(shape: tuple[int, ...], widths: Widths, mode: str, dtype: str) -> rx.Function:
    x = rx.Var("x", rx.TensorStructInfo(shape, dtype))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.nn.pad(x, widths, mode)))
    return builder.get()["main"]


@pytest.mark.parametrize("mode", list(MODES))
@pytest.mark.parametrize(
    ("shape", "widths", "dtype"),
    [
        ((2, 3, 5, 7), ((0, 0), (0, 0), (4, 0), (2, 6)), "float32"),
        ((2, 3, 5, 8), ((0, 0), (0, 0), (1, 3), (0, 0)), "float64"),
        ((3, 5, 4, 8), ((0, 0), (1, 1), (2, 3), (0, 0)), "float16"),
        ((2, 2, 3, 4, 5), ((0, 0), (1, 0), (1, 2), (0, 3), (4, 4)), "int32"),
        ((4, 9), ((2, 2), (0, 0)), "uint8"),
        ((62,), ((1, 1),), "int64"),
        ((3, 400, 300), ((0, 0), (3, 1), (0, 2)), "float32"),
        ((8,), ((0, 0),), "float32"),
    ],
)
def test_results_are_numpys(shape: tuple[int, ...], widths: Widths, dtype: str, mode: str) -> None:
    func = run_on_function([GatherPads()], padded(shape, widths, mode, dtype), "main")
    assert not any(is_op(b.value, "relax.nn.pad") for b in bindings_of(func.body))
    x = (RNG.standard_normal(shape) * 9).astype(dtype)
    expected = np.pad(x, widths, MODES[mode])  # pyright: ignore[reportCallIssue, reportArgumentType]
    np.testing.assert_array_equal(rx.testing.evaluate(func, [x]), expected)


@pytest.mark.parametrize(
    ("shape", "widths", "mode", "dtype"),
    [
        ((2, 8, 8), ((0, 0), (1, 1), (1, 1)), "constant", "float32"),
        ((2, 8, 63), ((0, 0), (1, 1), (1, 1)), "reflect", "float32"),
        ((2, 8, 8), ((0, 0), (1, 1), (1, 1)), "reflect", "float16"),
        ((4, 8, 7), ((0, 0), (1, 1), (0, 0)), "reflect", "float32"),
        ((300, 1000), ((0, 0), (1, 1)), "reflect", "float32"),
        ((0, 8, 8), ((0, 0), (1, 1), (1, 1)), "reflect", "float32"),
        ((), (), "reflect", "float32"),
    ],
)
def test_others_stay(shape: tuple[int, ...], widths: Widths, mode: str, dtype: str) -> None:
    func = padded(shape, widths, mode, dtype)
    assert run_on_function([GatherPads()], func, "main") is func


def test_shapes_that_calls_say() -> None:
    n = tir.Var("n", "int64")
    x = rx.Var("x", rx.TensorStructInfo((2, n, n), "float32"))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        made = R.nn.pad(x, ((0, 0), (1, 2), (3, 0)), "reflect")
        builder.emit_func_output(builder.emit(made))
    call = rx.VirtualMachine(rx.build(builder.get(), "cpu"))["main"]
    for size in (4, 70):
        values = RNG.standard_normal((2, size, size)).astype("f")
        expected = np.pad(values, ((0, 0), (1, 2), (3, 0)), mode="reflect")
        np.testing.assert_array_equal(np.asarray(call(values)), expected)


def test_functions_of_jax_are_differentiated_as_written() -> None:
    for for_jax in (False, True):
        pipeline = default(for_jax=for_jax)
        assert isinstance(pipeline, Pipeline)
        assert (GatherPads in map(type, pipeline.static)) is not for_jax
