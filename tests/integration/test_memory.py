"""What stays in memory: building in a loop keeps nothing, weights are held once."""

from __future__ import annotations

import gc
import sys
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import tir

STATM = Path("/proc/self/statm")


def machine(weight: np.ndarray[Any, Any], rows: Any) -> rx.VirtualMachine:
    """``main``: x (rows, n) @ weight, where weight is doubled at load."""
    dtype = str(weight.dtype)
    x = rx.Var("x", rx.TensorStructInfo((rows, weight.shape[0]), dtype))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        doubled = builder.emit(rx.op.add(rx.const(weight), rx.const(weight)))
        builder.emit_func_output(builder.emit(rx.op.matmul(x, doubled)))
    return rx.VirtualMachine(rx.build(builder.get()))


def resident() -> float:
    """Memory of this process in MiB."""
    gc.collect()
    return int(STATM.read_text().split()[1]) * 4096 / 2**20


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rows", [2, "n"])
def test_a_machine_that_nobody_holds_is_freed(dtype: str, rows: Any) -> None:
    vm = machine(np.ones((20, 20), dtype), tir.Var("n") if rows == "n" else rows)
    function = vm["main"]
    np.asarray(function(np.ones((2, 20), dtype)))
    seen = [weakref.ref(vm.executable), weakref.ref(function)]
    del vm, function
    gc.collect()
    assert [r() for r in seen] == [None, None]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_building_in_a_loop_does_not_grow() -> None:
    def round_(count: int) -> float:
        for i in range(count):
            f = machine(np.full((20, 20), i, "f"), 2)["main"]
            np.asarray(f(np.ones((2, 20), "f")))
        return resident()

    before = round_(15)
    assert round_(25) - before < 12


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_weights_are_held_once() -> None:
    def built(weight: np.ndarray[Any, Any]) -> Any:
        x = rx.Var("x", rx.TensorStructInfo((1, 2048), "float32"))
        builder = rx.BlockBuilder()
        with builder.function("main", [x]):
            a = builder.emit(rx.op.matmul(x, rx.const(weight)))
            b = builder.emit(rx.op.matmul(rx.op.negative(x), rx.const(weight)))
            builder.emit_func_output(builder.emit(rx.op.add(a, b)))
        f = rx.VirtualMachine(rx.build(builder.get()))["main"]
        np.testing.assert_allclose(np.asarray(f(np.ones((1, 2048), "f"))), 0, atol=1e-3)
        return f

    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((2048, 4096)).astype("f") for _ in range(4)]  # 32 MiB each
    kept, sizes = [], list[float]()
    for weight in weights:
        kept.append(built(weight))
        gc.collect()
        sizes.append(resident())
    # What is loaded once, and memory that a load takes for a while, is no part of the least. On the
    # CPU the numpy array itself is the weight where it is aligned; else there is one copy.
    assert min(np.diff(sizes)) < 32 + 24
