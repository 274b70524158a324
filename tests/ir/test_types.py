"""Types: struct info without shapes. The expected ones are those of TVM 0.25."""

from __future__ import annotations

import pytest

import relax2xla
from relax2xla import ir, tir
from relax2xla.ir.types import type_of

T = ir.TensorStructInfo
F32 = ir.TensorType(1)


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        (T((2, tir.Var("n"))), ir.TensorType(2, "float32")),
        (T(None, "int8", ndim=2), ir.TensorType(2, "int8")),
        (T(None, None), ir.TensorType(-1, "")),
        (ir.ShapeStructInfo([1, 2]), ir.ShapeType(2)),
        (ir.ShapeStructInfo(ndim=3), ir.ShapeType(3)),
        (ir.ShapeStructInfo(), ir.ShapeType()),
        (ir.PrimStructInfo(value=tir.Var("n")), ir.PrimType("int64")),
        (ir.ObjectStructInfo(), ir.ObjectType()),
        (ir.TupleStructInfo([T((2,)), ir.TupleStructInfo(())]),
         ir.TupleType([F32, ir.TupleType([])])),
        (ir.FuncStructInfo([T((2,))], T((3,))), ir.FuncType([F32], F32)),
        (ir.FuncStructInfo.opaque_func(), ir.PackedFuncType()),
    ],
)  # fmt: skip
def test_type_of(info: ir.StructInfo, expected: ir.Type) -> None:
    made = type_of(info)
    assert made == expected
    assert hash(made) == hash(expected)
    assert isinstance(made, ir.Type)


def test_types_are_values() -> None:
    assert relax2xla.TensorType() == relax2xla.TensorType(-1, "float32")
    assert relax2xla.TensorType(2) != relax2xla.TensorType(3)
    assert relax2xla.TensorType(2) != relax2xla.TensorType(2, "int8")
    assert relax2xla.ShapeType(2, span=None) != relax2xla.ShapeType()
    assert relax2xla.ObjectType() != relax2xla.PackedFuncType()
    f = relax2xla.FuncType([relax2xla.ObjectType()], relax2xla.TupleType([]))
    assert (f.arg_types, f.ret_type.fields) == ((relax2xla.ObjectType(),), ())
    assert f.same_as(f)
    assert not f.same_as(relax2xla.FuncType([relax2xla.ObjectType()], f.ret_type))
    with pytest.raises(TypeError, match="float33"):
        ir.TensorType(1, "float33")
