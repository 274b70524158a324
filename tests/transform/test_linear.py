"""Passes stay linear where one tuple is wide, and where there are many functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.compiler.passes import GIVEN, kernels, loss
from relax2xla import BlockBuilder, IRModule, op, tir
from relax2xla.ir import Call, Expr, Tuple, TupleGetItem, Var
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.transform import DeadCodeElimination, FoldConstant, Gradient, Pass, ToMixedPrecision

INFO = TensorStructInfo((4, 4))


def wide(size: int) -> IRModule:
    """``main`` with a tuple of ``size`` fields, which are read one by one."""
    bb, x = BlockBuilder(), Var("x", INFO)
    with bb.function("main", [x]):
        with bb.dataflow():
            whole = bb.emit(Tuple([bb.emit(op.sin(x)) for _ in range(size)]))
            y: Expr = x
            for i in range(size):
                y = bb.emit(op.add(y, bb.emit(TupleGetItem(whole, i))))
            y = bb.emit_output(op.sum(y))
        bb.emit_func_output(y)
    return bb.get()


def many(size: int) -> IRModule:
    """``size`` functions, which ``main`` calls, and as many loop-level ones."""
    bb, x = BlockBuilder(), Var("x", INFO)
    names: list[Any] = []
    for i in range(size):
        z = Var("z", INFO)
        with bb.function(f"f{i}", [z], private=True):
            names.append(bb.emit_func_output(bb.emit(op.sin(z))))
        body = tir.Evaluate(tir.IntImm("int32", i))
        bb.add_func(tir.PrimFunc([], body, attrs={"global_symbol": f"k{i}"}), f"k{i}")
    with bb.function("main", [x]):
        y: Expr = x
        for name in names:
            y = bb.emit(Call(name, [y]))
        bb.emit_func_output(y)
    return bb.get()


def steps(made: Pass, mod: IRModule) -> int:
    """How many calls of functions the pass takes; clocks differ, this does not."""
    count = 0

    def seen(_frame: object, _event: str, _arg: object) -> None:
        nonlocal count
        count += 1

    old = sys.getprofile()
    sys.setprofile(seen)
    try:
        made(mod)
    finally:
        sys.setprofile(old)
    return count


@pytest.mark.parametrize(
    ("make", "program"),
    [
        (lambda: Gradient("main"), wide),
        (ToMixedPrecision, wide),
        (FoldConstant, many),
        (DeadCodeElimination, many),
    ],
)
def test_twice_the_program_takes_twice_the_steps(
    make: Callable[[], Pass], program: Callable[[int], IRModule]
) -> None:
    make()(program(20))  # what is imported and cached once
    small, large = (steps(make(), program(n)) for n in (300, 600))
    assert large < 2.4 * small


@pytest.mark.parametrize(
    ("make", "program", "most"),
    [(GIVEN["Gradient"], loss, 380), (GIVEN["AlterOpImpl"], kernels, 200)],
)
def test_steps_a_binding(
    make: Callable[[], Pass], program: Callable[[int], IRModule], most: int
) -> None:
    """The goal of 20 microseconds, in calls and returns."""
    make()(program(20))
    assert steps(make(), program(1200)) < most * 1200
