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
from tests.stablehlo.loops import control, pointwise, reductions
from tests.stablehlo.loops.cases import Case

CASES = [*pointwise.CASES, *reductions.CASES, *control.CASES]


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
