"""Operators that a program defines by attributes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import relax2xla
from relax2xla import ir, op, register_op_attr
from relax2xla.analysis import well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.errors import OpError, TVMError, UnsupportedError
from relax2xla.ir import Call, Op, assert_structural_equal
from relax2xla.script import relax as R
from relax2xla.testing.transform import ApplyEmptyCppMutator

NAME = "mine.scaled_sum"
VEC = ir.TensorStructInfo((3,), "float32")


def _infer(call: Call, builder: BlockBuilder) -> ir.StructInfo:
    return call.args[0].struct_info


def _legalize(builder: BlockBuilder, call: Call) -> ir.Expr:
    """``(x + y) * factor``, a part of it bound by the builder."""
    total = builder.emit(op.add(call.args[0], call.args[1]))
    return op.multiply(total, ir.const(call.attrs["factor"], "float32"))


def _normalize(builder: BlockBuilder, call: Call) -> ir.Expr:
    """One operand stands for two."""
    if len(call.args) == 2:
        return call
    return Call(call.op, [call.args[0], call.args[0]], call.attrs)


@pytest.fixture
def scaled() -> Iterator[Op[Any]]:
    attrs = {
        "FInferStructInfo": _infer,
        "FLegalize": _legalize,
        "FPurity": True,
        "FNormalize": _normalize,
        "note": "mine",
    }
    for key, value in attrs.items():
        register_op_attr(NAME, key, value)
    made = Op.get(NAME)
    yield made
    for key in attrs:
        made.reset_attr(key)


def _module(scaled: Op[Any], *, normal: bool) -> ir.IRModule:
    x, y = ir.Var("x", VEC), ir.Var("y", VEC)
    call = Call(scaled, [x, x] if normal else [x], {"factor": 3.0}, struct_info=VEC)
    lv = ir.DataflowVar("lv", VEC)
    gv = ir.Var("gv", VEC)
    bindings = [ir.VarBinding(lv, call), ir.VarBinding(gv, op.add(lv, y))]
    seq = ir.SeqExpr([ir.DataflowBlock(bindings)], gv)
    return ir.IRModule({"main": ir.Function([x, y], seq, VEC, attrs={"global_symbol": "main"})})


def test_it_runs(scaled: Op[Any]) -> None:
    x, y = np.arange(3, dtype="float32"), np.ones(3, "float32")
    machine = relax2xla.VirtualMachine(
        relax2xla.build(_module(scaled, normal=True)), relax2xla.cpu()
    )
    np.testing.assert_array_equal(machine["main"](x, y), 6 * x + 1)


def test_the_builder_normalises(scaled: Op[Any]) -> None:
    x = ir.Var("x", VEC)
    bb = BlockBuilder()
    with bb.function("main", [x]):
        v = bb.emit(Call(scaled, [op.negative(x)], {"factor": 2.0}))
        bb.emit_func_output(v)
    negative, made = (b.value for b in bb.get()["main"].body.blocks[0].bindings)
    assert negative.op.name == "relax.negative"
    assert len(made.args) == 2
    assert made.args[0] is made.args[1]


def test_passes_normalise_and_well_formed_knows(scaled: Op[Any]) -> None:
    before, expected = _module(scaled, normal=False), _module(scaled, normal=True)
    assert not well_formed(before)
    assert well_formed(expected)
    after = ApplyEmptyCppMutator()(before)
    assert_structural_equal(after, expected)
    assert ApplyEmptyCppMutator()(expected)["main"] is expected["main"]


def test_script_says_what_is_there(scaled: Op[Any]) -> None:
    @R.function(check_well_formed=False)
    def func(x: R.Tensor((3,), "float32")):
        return ir.Call(scaled, [x], {"factor": 3.0})

    assert len(func.body.blocks[0].bindings[0].value.args) == 1


def test_attributes(scaled: Op[Any]) -> None:
    assert scaled.get_attr("note") == "mine"
    assert scaled.get_attr("FPurity") is True
    assert scaled.get_attr("nothing") is None
    with pytest.raises(TVMError, match="already"):
        register_op_attr(NAME, "note", "again")
    register_op_attr(NAME, "note", "weaker", level=5)
    assert scaled.get_attr("note") == "mine"
    register_op_attr(NAME, "note", "stronger", level=11)
    assert scaled.get_attr("note") == "stronger"
    scaled.reset_attr("FInferStructInfo")
    with pytest.raises(OpError, match="no FInferStructInfo"):
        scaled(ir.Var("x", VEC))


def test_of_operators_here() -> None:
    with pytest.raises(UnsupportedError, match="customize_legalize_map"):
        register_op_attr("relax.add", "FLegalize", _legalize)

    @register_op_attr("relax.add", "note")
    def note() -> None: ...

    add = Op.get("relax.add")
    assert add.get_attr("note") is note
    add.reset_attr("note")
    assert not add.has_attr("note")
    gradient = add.get_attr("FPrimalGradient")
    register_op_attr("relax.add", "FPrimalGradient", note)
    assert add.get_attr("FPrimalGradient") is note
    add.reset_attr("FPrimalGradient")
    assert add.get_attr("FPrimalGradient") is gradient


def test_what_an_operator_infers_can_be_asked() -> None:
    """As programs for TVM do in the FInferStructInfo of operators of their own."""
    x = ir.Var("x", ir.TensorStructInfo((2, 3), "float32"))
    infer = Op.get("relax.permute_dims").get_attr("FInferStructInfo")
    assert infer(op.permute_dims(x), BlockBuilder()) == ir.TensorStructInfo((3, 2), "float32")
