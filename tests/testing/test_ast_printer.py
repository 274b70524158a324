"""dump_ast."""

from __future__ import annotations

import pytest

from relax2xla import ir, op, tir
from relax2xla.script import relax as R
from relax2xla.testing import dump_ast
from relax2xla.testing.ast_printer import ASTPrinter


def test_a_function() -> None:
    @R.function(private=True)
    def func(x: R.Tensor((2,), "float32")):
        with R.dataflow():
            y = R.sum(x, axis=[0], keepdims=True)
            R.output(y)
        return y

    assert dump_ast(func, "  ", include_struct_info_annotations=False) == (
        """\
Function(
  params=[Var(name_hint="x")],
  body=SeqExpr(
    blocks=[
      DataflowBlock(
        bindings=[
          VarBinding(
            var=Var(name_hint="y"),
            value=Call(
              op=Op(name="relax.sum"),
              args=[Var(name_hint="x")],
              attrs={
                "axis": (0,),
                "keepdims": True
              }
            )
          )
        ]
      )
    ],
    body=Var(name_hint="y")
  ),
  ret_struct_info=TensorStructInfo(
    dtype=float32,
    shape=ShapeExpr(values=[PrimExpr(value=`T.int64(1)`)])
  ),
  is_pure=True
)"""
    )


def test_what_is_known_of_a_variable() -> None:
    x = ir.Var("x", ir.ShapeStructInfo((tir.Var("n", "int64"), 4)))
    text = dump_ast(x, "", include_type_annotations=True).replace("\n", "")
    assert text == (
        'Var(name_hint="x",struct_info=ShapeStructInfo(ndim=2,'
        "values=[PrimExpr(value=`n`),PrimExpr(value=`T.int64(4)`)]),"
        "checked_type_=ShapeType(ndim=2))"
    )
    assert dump_ast(ir.Var("x")) == 'Var(name_hint="x")'
    assert "attrs" not in dump_ast(op.sum(ir.const([1.0])), include_call_attrs=False)


def test_every_kind_of_struct_info() -> None:
    show = ASTPrinter("").visit_struct_info_
    assert show(ir.ObjectStructInfo()) == "ObjectStructInfo()"
    assert show(ir.TupleStructInfo([ir.PrimStructInfo("int64")])) == (
        "TupleStructInfo(fields=[PrimStructInfo(dtype=int64)])"
    )
    func = ir.FuncStructInfo([ir.ObjectStructInfo()], ir.ObjectStructInfo(), False)
    assert show(func).replace("\n", "") == (
        "FuncStructInfo(params=[ObjectStructInfo()],ret=ObjectStructInfo(),purity=False)"
    )
    with pytest.raises(ValueError, match="no struct info"):
        show(ir.const(1))  # pyright: ignore[reportArgumentType]
