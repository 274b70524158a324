"""Deep nests and long chains of functions: lowered and written without Python's recursion limit.

MLIR verifies what is written; its text holds each operation as often as the program does.
"""

from __future__ import annotations

from typing import Any

import pytest

import relax2xla as rx
from relax2xla import op, tir
from relax2xla.ir import (
    BindingBlock,
    Call,
    Function,
    GlobalVar,
    If,
    SeqExpr,
    TensorStructInfo,
    Var,
    VarBinding,
)
from relax2xla.transform import LegalizeOps

SIZES = [3, tir.Var("n")]
MAIN = {"global_symbol": "main"}


def seq(*bound: VarBinding) -> SeqExpr:
    return SeqExpr([BindingBlock(bound)], bound[-1].var)


def module(params: list[Var], body: SeqExpr) -> rx.IRModule:
    return rx.IRModule({GlobalVar("main"): Function(params, body, attrs=MAIN)})


def written(mod: rx.IRModule) -> str:
    assert rx.to_stablehlo(LegalizeOps()(mod)) == rx.to_stablehlo(mod)
    text = rx.to_stablehlo(mod)
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_branches_in_branches(size: Any) -> None:
    info = TensorStructInfo((size,), "float32")
    x, c = Var("x", info), Var("c", TensorStructInfo((), "bool"))
    body = seq(VarBinding(Var("y", info), op.exp(x)))
    for _ in range(300):
        other = seq(VarBinding(Var("o", info), op.negative(x)))
        body = seq(VarBinding(Var("z", info), If(c, body, other)))
    text = written(module([x, c], body))
    assert text.count("stablehlo.if") == text.count("stablehlo.negate") == 300


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_closures_in_closures(size: Any) -> None:
    info = TensorStructInfo((size,), "float32")
    x, a = Var("x", info), Var("a", info)
    func = Function([a], seq(VarBinding(Var("y", info), op.add(a, x))))
    for _ in range(60):
        p, f = Var("p", info), Var("f", func.struct_info)
        twice = Var("twice", info)
        func = Function(
            [p],
            seq(
                VarBinding(f, func),
                VarBinding(twice, Call(f, [p])),
                VarBinding(Var("r", info), op.exp(twice)),
            ),
        )
    f = Var("f", func.struct_info)
    text = written(module([x], seq(VarBinding(f, func), VarBinding(Var("r", info), Call(f, [x])))))
    assert text.count("stablehlo.exponential") == 60
    assert text.count("stablehlo.add") == 1
    assert "call" not in text


def test_functions_that_call_functions() -> None:
    made: dict[GlobalVar, Function] = {}
    last: GlobalVar | None = None
    for i in reversed(range(1500)):
        info = TensorStructInfo((tir.Var("n"),), "float32")
        x = Var("x", info)
        value = op.exp(x) if last is None else Call(last, [x])
        last = GlobalVar(f"f{i}" if i else "main")
        made[last] = Function([x], seq(VarBinding(Var("y", info), value)), attrs={} if i else MAIN)
        last.struct_info_ = made[last].struct_info
    assert written(rx.IRModule(made)).count("call @") == 1499
