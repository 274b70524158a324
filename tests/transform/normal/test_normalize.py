"""Normalize."""

from __future__ import annotations

import pytest

from relax2xla import op
from relax2xla.analysis import check_well_formed
from relax2xla.errors import TransformError
from relax2xla.ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    IRModule,
    Op,
    SeqExpr,
    TensorStructInfo,
    Tuple,
    TupleStructInfo,
    Var,
    VarBinding,
    const,
)
from relax2xla.transform import Normalize

from .compare import becomes, stays

INFO = TensorStructInfo((2,), "float32")


def test_operands_are_bound_first() -> None:
    x = Var("x", INFO)
    e = op.exp(x)
    func = Function([x], Tuple([op.add(e, e), op.sin(op.cos(x))]))
    becomes(
        Normalize(),
        IRModule({"main": func}),
        """
        @R.function(private=True)
        def main(x: R.Tensor((2,), "float32")):
            a = R.exp(x)
            b = R.add(a, a)
            c = R.cos(x)
            d = R.sin(c)
            return (b, d)
        """,
        checked=False,
    )


def test_branches_without_struct_info() -> None:
    c, x, y = Var("c", TensorStructInfo((), "bool")), Var("x", INFO), Var("y")
    branches = If(c, op.add(op.exp(x), x), x)
    body = SeqExpr([BindingBlock([VarBinding(y, branches)])], Tuple([y, x]))
    becomes(
        Normalize(),
        IRModule({"main": Function([c, x], body, TupleStructInfo([INFO, INFO]))}),
        """
        @R.function(private=True)
        def main(c: R.Tensor((), "bool"), x: R.Tensor((2,), "float32")):
            if c:
                e = R.exp(x)
                y = R.add(e, x)
            else:
                y = x
            return (y, x)
        """,
        checked=False,
    )


def test_sequences_and_blocks_become_one() -> None:
    x, u = Var("x", INFO), Var("u", INFO)
    v, w = DataflowVar("v", INFO), Var("w", INFO)
    inner = SeqExpr([DataflowBlock([VarBinding(v, op.exp(x)), VarBinding(w, op.sin(v))])], w)
    blocks = [
        BindingBlock([VarBinding(u, inner)]),
        BindingBlock([]),
        BindingBlock([VarBinding(y := Var("y", INFO), op.cos(u))]),
    ]
    new = Normalize()(IRModule({"main": Function([x], SeqExpr(blocks, y))}))
    check_well_formed(new)
    kinds = [(type(b), len(b.bindings)) for b in new["main"].body.blocks]
    assert kinds == [(DataflowBlock, 2), (BindingBlock, 2)]


def test_results_of_what_gives_none_are_written_out() -> None:
    void = Var("void", TupleStructInfo(()))
    call = Call(Op.get("relax.assert_op"), [const(True)])
    body = SeqExpr([BindingBlock([VarBinding(void, call)])], void)
    new = Normalize()(IRModule({"main": Function([], body, is_pure=False)}))
    assert isinstance(new["main"].body.body, Tuple)


def test_ordinary_blocks_inside_of_dataflow() -> None:
    x, u, w = Var("x", INFO), Var("u", INFO), Var("w", INFO)
    inner = SeqExpr([BindingBlock([VarBinding(w, op.exp(x))])], w)
    func = Function([x], SeqExpr([DataflowBlock([VarBinding(u, inner)])], u))
    with pytest.raises(TransformError, match="the dataflow block that binds u"):
        Normalize()(IRModule({"main": func}))


def test_what_is_normal_stays() -> None:
    stays(
        Normalize(),
        """
        @R.function
        def main(x: R.Tensor((2,), "float32")):
            with R.dataflow():
                y = R.exp(x)
                R.output(y)
            z = R.sin(y)
            return z
        """,
    )
