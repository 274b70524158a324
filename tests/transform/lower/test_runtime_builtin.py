"""LowerRuntimeBuiltin: views of tensors as calls of the runtime's function."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import RunError
from relax2xla.ir import (
    Call,
    DataTypeImm,
    ExternFunc,
    FuncStructInfo,
    Function,
    PrimValue,
    ShapeExpr,
    TensorStructInfo,
    assert_structural_equal,
)
from relax2xla.runtime import get_global_func
from relax2xla.script import from_source
from relax2xla.tir import const
from relax2xla.transform import LowerRuntimeBuiltin

HEAD = "from tvm.script import ir as I, relax as R\n@I.ir_module\nclass Module:\n"


def parsed(function: str) -> rx.IRModule:
    made = from_source(HEAD + function)
    assert isinstance(made, rx.IRModule)
    return made


BEFORE = parsed("""
    @R.function
    def main(A: R.Tensor([4096], "uint8")):
        B = R.memory.view(A)
        C = R.memory.view(A, shape=R.shape([512]), dtype=R.dtype("int32"))
        D = R.memory.view(
            A,
            shape=R.shape([16, 64]),
            dtype=R.dtype("int16"),
            relative_byte_offset=R.prim_value(2048),
        )
        return (B, C, R.add(D, D))
""")


def test_views() -> None:
    made = LowerRuntimeBuiltin()(BEFORE)
    function = made["main"]
    assert isinstance(function, Function)
    calls = [b.value for b in function.body.blocks[0].bindings[:3]]
    rule = FuncStructInfo.opaque_func(
        derive_func="tvm.relax.struct_info.infer_view_sinfo", purity=True
    )
    expected = (
        ((4096,), "uint8", 0),
        ((512,), "int32", 0),
        ((16, 64), "int16", 2048),
    )
    for call, (shape, dtype, offset) in zip(calls, expected, strict=True):
        assert isinstance(call, Call)
        assert isinstance(call.op, ExternFunc)
        assert call.op.global_symbol == "runtime.TVMArrayCreateView"
        assert_structural_equal(call.op.struct_info, rule)
        operands = [ShapeExpr(shape), DataTypeImm(dtype), PrimValue(const(offset, "int64"))]
        for given, wanted in zip(call.args[1:], operands, strict=True):
            assert_structural_equal(given, wanted)
        assert_structural_equal(call.struct_info, TensorStructInfo(shape, dtype))


def test_both_give_the_same_values() -> None:
    x = np.arange(4096).astype(np.uint8)
    results = [
        rx.VirtualMachine(rx.build(mod), rx.cpu())["main"](x)
        for mod in (BEFORE, LowerRuntimeBuiltin()(BEFORE))
    ]
    for part, other in zip(*results, strict=True):
        np.testing.assert_array_equal(part, other)


def test_what_is_not_known_stays() -> None:
    unknown = parsed("""
    @R.function
    def main(A: R.Tensor("float32"), B: R.Tensor((4,))):
        return (R.memory.view(A), R.memory.view(B))
""")
    assert LowerRuntimeBuiltin()(unknown) is unknown


def test_a_view_beyond_the_memory() -> None:
    create = get_global_func("runtime.TVMTensorCreateView")
    assert create is not None
    with pytest.raises(RunError, match="ends at byte 20, beyond an array of 16 bytes"):
        create(np.zeros(4, np.float32), (4,), "float32", 4)
