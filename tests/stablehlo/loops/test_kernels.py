"""Kernels of our own against numpy: values, what they became, and how many loops stayed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import tir
from relax2xla.ir import Function, IRModule, TensorStructInfo, Tuple, Var
from relax2xla.script import from_source
from relax2xla.stablehlo import loops
from relax2xla.stablehlo.loops.repeat import function
from tests.stablehlo.loops import (
    indexed,
    norms,
    pointwise,
    products,
    scans,
    sequential,
    threads,
    totals,
    windows,
)
from tests.stablehlo.loops.cases import Case

TABLES = (pointwise, totals, products, windows, norms, scans, indexed, sequential, threads)
CASES: list[Case] = [case for table in TABLES for case in table.CASES]


def lowered(text: str, args: list[Any]) -> tuple[Function, loops.Lowered]:
    """A kernel as a function of rows, which gives the written buffers, and what it became."""
    func = from_source("from relax2xla.script import tir as T\n" + text)
    assert isinstance(func, tir.PrimFunc)
    params = [
        Var(f"p{i}", TensorStructInfo(a.shape, str(a.dtype)))
        for i, a in enumerate(args)
        if isinstance(a, np.ndarray)
    ]
    left = iter(params)
    made = loops.lower(func, [next(left) if isinstance(a, np.ndarray) else a for a in args])
    results = [made.contents[i] for i in sorted(made.written)]
    return function(params, [Tuple(results)]).with_attr("global_symbol", "main"), made


def run(text: str, args: list[Any]) -> tuple[list[np.ndarray], loops.Lowered]:
    """The written buffers after a kernel, and what it became."""
    main, made = lowered(text, args)
    machine = relax2xla.VirtualMachine(relax2xla.build(IRModule.from_expr(main)), relax2xla.cpu())
    given = [a for a in args if isinstance(a, np.ndarray)]
    return [np.asarray(x) for x in machine["main"](*given)], made


@pytest.mark.parametrize("case", CASES, ids=str)
def test_kernel(case: Case) -> None:
    args = list(case.inputs(np.random.default_rng(7)))
    results, made = run(case.text, args)
    with np.errstate(all="ignore"):
        expected = case.expected(*args)
    if not isinstance(expected, tuple | list):
        expected = [expected]
    assert len(results) == len(expected)
    for got, want in zip(results, expected, strict=True):
        want = np.asarray(want)
        if want.dtype.kind in "biu" or got.dtype.kind in "biu":
            np.testing.assert_array_equal(got, want)
        else:
            tolerance = case.tolerance
            np.testing.assert_allclose(
                got.astype("float64"), want.astype("float64"), rtol=tolerance, atol=tolerance
            )
    assert set(case.forms) <= set(made.forms), made.forms
    assert made.forms.get("while", 0) <= case.loops, made.loops


PADDED = """@T.prim_func
def main(X: T.Buffer((1, 3, 6, 5), "float32"), W: T.Buffer((4, 3, 3, 3), "float32"),
         Y: T.Buffer((1, 4, 6, 5), "float32")):
    P = T.alloc_buffer((1, 3, 8, 7))
    for n, c, y, x in T.grid(1, 3, 8, 7):
        with T.block("pad"):
            vn, vc, vy, vx = T.axis.remap("SSSS", [n, c, y, x])
            P[vn, vc, vy, vx] = T.if_then_else(
                1 <= vy and vy < 7 and 1 <= vx and vx < 6,
                X[vn, vc, vy - 1, vx - 1], T.float32(VALUE))
    for n, o, y, x, c, dy, dx in T.grid(1, 4, 6, 5, 3, 3, 3):
        with T.block("conv"):
            vn, vo, vy, vx, vc, vdy, vdx = T.axis.remap("SSSSRRR", [n, o, y, x, c, dy, dx])
            with T.init():
                Y[vn, vo, vy, vx] = T.float32(0)
            Y[vn, vo, vy, vx] = (
                Y[vn, vo, vy, vx] + P[vn, vc, vy + vdy, vx + vdx] * W[vo, vc, vdy, vdx])
"""


@pytest.mark.parametrize(("value", "pads"), [(0, 0), (1, 1)])
def test_zeros_around_become_padding_of_the_convolution(value: int, pads: int) -> None:
    rng = np.random.default_rng(2)
    x, w = rng.random((1, 3, 6, 5), "float32"), rng.random((4, 3, 3, 3), "float32")
    args = [x, w, np.zeros((1, 4, 6, 5), "float32")]
    text = PADDED.replace("VALUE", str(value))
    main, _ = lowered(text, args)
    assert str(relax2xla.to_stablehlo(IRModule.from_expr(main))).count("stablehlo.pad") == pads
    wide = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=value)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))
    (got,) = run(text, args)[0]
    want = np.einsum("ncyxij,ocij->noyx", windows, w)
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_quotients_are_rounded_once() -> None:
    """XLA would multiply with the reciprocal of a divisor that repeats itself.

    What is rounded to an integer then may be another one.
    """
    text = """
@I.ir_module
class Module:
    @T.prim_func
    def rows(A: T.Buffer((64, 300), "float32"), B: T.Buffer((64,), "float32"),
             C: T.Buffer((64, 300), "float32"), D: T.Buffer((64, 300), "int32")):
        for i, j in T.grid(64, 300):
            with T.block("C"):
                vi, vj = T.axis.remap("SS", [i, j])
                C[vi, vj] = T.round(A[vi, vj] / B[vi])
                D[vi, vj] = T.Cast("int32", T.Cast("float32", vj * 7) / T.float32(7))

    @R.function
    def main(x: R.Tensor((64, 300), "float32"), y: R.Tensor((64,), "float32")):
        return R.call_tir(Module.rows, (x, y), [
            R.Tensor((64, 300), "float32"), R.Tensor((64, 300), "int32")])
"""
    y = np.random.default_rng(0).uniform(0.1, 3, 64).astype("float32")
    x = (np.arange(-149.5, 150, dtype="float32") * y[:, None]).astype("float32")
    by_reciprocal = x * (np.float32(1) / y[:, None])
    assert np.any(np.rint(by_reciprocal) != np.rint(x / y[:, None]))
    machine = relax2xla.VirtualMachine(relax2xla.build(from_source(text)), relax2xla.cpu())
    by_row, by_seven = machine["main"](x, y)
    np.testing.assert_array_equal(np.asarray(by_row), np.rint(x / y[:, None]))
    np.testing.assert_array_equal(np.asarray(by_seven), np.tile(np.arange(300), (64, 1)))


@pytest.mark.parametrize("masked", [False, True])
def test_whole_rows_are_scattered_as_rows(masked: bool) -> None:
    """Also under a mask of rows; one of columns leaves elements."""
    text = f"""@T.prim_func
def main(X: T.Buffer((5, 6), "float32"), P: T.Buffer((5,), "int32"),
         Y: T.Buffer((7, 3, 2), "float32")):
    for i, j in T.grid(5, 6):
        with T.block("rows"):
            vi, vj = T.axis.remap("SS", [i, j])
            if {"P[vi] > 1" if masked else "True"}:
                Y[P[vi], vj // 2, vj % 2] = X[vi, vj]
"""
    rng = np.random.default_rng(2)
    x, p = rng.random((5, 6), "float32"), rng.permutation(7)[:5].astype("int32")
    y = rng.random((7, 3, 2), "float32")
    want = y.copy()
    kept = p > 1 if masked else p >= 0
    want[p[kept]] = x[kept].reshape(-1, 3, 2)
    np.testing.assert_array_equal(run(text, [x, p, y])[0][0], want)
    main, _ = lowered(text, [x, p, y])
    assert "update_window_dims = [1, 2]" in str(relax2xla.to_stablehlo(IRModule.from_expr(main)))
    columns = text.replace("if ", "if vj > 1 and ")
    want[:] = y
    want[p[kept], 1:] = x[kept].reshape(-1, 3, 2)[:, 1:]
    np.testing.assert_array_equal(run(columns, [x, p, y])[0][0], want)


def test_an_element_at_places_of_the_data_is_one_slice() -> None:
    """XLA copies a buffer of several axes in each step of a loop that slices it axis by axis."""
    text = """@T.prim_func
def main(X: T.Buffer((4, 5, 3), "float32"), I: T.Buffer((9,), "int32"),
         J: T.Buffer((9,), "int32")):
    for t in range(9):
        X[I[t], J[t], 1] = X[I[t], J[t], 1] * T.float32(2) + T.Cast("float32", t)
"""
    rng = np.random.default_rng(3)
    x, i, j = rng.random((4, 5, 3), "float32"), rng.integers(0, 2, 9), rng.integers(0, 2, 9)
    want = x.copy()
    for t in range(9):
        want[i[t], j[t], 1] = want[i[t], j[t], 1] * 2 + t
    args = [x, i.astype("int32"), j.astype("int32")]
    (got,), made = run(text, args)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert made.forms["while"] == 1
    main, _ = lowered(text, args)
    module = str(relax2xla.to_stablehlo(IRModule.from_expr(main)))
    read = module[module.index("stablehlo.while") :]
    # One of X, and one each of I and J for the read and for the write.
    assert read.count("stablehlo.dynamic_slice") <= 5, read
