"""Branches and functions nested 300 deep, through everything that walks them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import relax2xla as relax
from relax2xla import analysis, ir, op
from relax2xla.ir import (
    BindingBlock,
    Call,
    Expr,
    Function,
    If,
    IRModule,
    SeqExpr,
    Var,
    VarBinding,
)
from relax2xla.ir.copy import copy_with_new_vars
from relax2xla.ir.deep import elsewhere
from relax2xla.script import relax as R

DEPTH = 300
INFO = R.Tensor((2,), "float32")


def one(value: Expr) -> SeqExpr:
    var = Var("v", value.struct_info)
    return SeqExpr([BindingBlock([VarBinding(var, value)])], var)


def nested_branches() -> Function:
    c, x = Var("c", R.Tensor((), "bool")), Var("x", INFO)
    seq = one(op.exp(x))
    for _ in range(DEPTH):
        seq = one(If(c, seq, one(op.sin(x))))
    return Function([c, x], seq, attrs={"global_symbol": "main"})


def nested_functions() -> Function:
    y = Var("y", INFO)
    func = Function([y], one(op.exp(y)))
    for _ in range(DEPTH):
        y, g = Var("y", INFO), Var("g", func.struct_info)
        call = one(Call(g, [y]))
        seq = SeqExpr([BindingBlock([VarBinding(g, func)]), *call.blocks], call.body)
        func = Function([y], seq)
    return func.with_attr("global_symbol", "main")


def computing_branches() -> Function:
    """Not in A-normal form; every value is shared, so a third of the levels says as much."""
    c, x = Var("c", R.Tensor((), "bool")), Var("x", INFO)
    value: Expr = op.exp(x)
    for _ in range(DEPTH // 3):
        value = If(c, op.add(value, value), op.sin(x))
    return Function([c, x], value, attrs={"global_symbol": "main"})


@relax.expr_functor.visitor
class Visitor(relax.PyExprVisitor):
    pass


@relax.expr_functor.mutator
class Cosines(relax.PyExprMutator):
    def visit_call_(self, op: Call) -> Expr:
        call = self.visit_expr_post_order(op)
        if isinstance(call, Call) and call.op is ir.Op.get("relax.sin"):
            return relax.op.cos(call.args[0])
        return call


def emit(func: Function) -> None:
    bb = relax.BlockBuilder()
    with bb.function("main", func.params):
        bb.emit_func_output(bb.emit(func.body))
    analysis.check_well_formed(bb.get())


WALKS: dict[str, Callable[[Function], object]] = {
    "equal": lambda f: ir.assert_structural_equal(f, ir.load_json(ir.save_json(f))),
    "hash": ir.structural_hash,
    "check": lambda f: analysis.check_well_formed(relax.BlockBuilder().normalize(f)),
    "normalize": lambda f: relax.BlockBuilder().normalize(f),
    "emit": emit,
    "free_vars": analysis.free_vars,
    "remove_all_unused": analysis.remove_all_unused,
    "copy": copy_with_new_vars,
    "bind": lambda f: f.bind_params({f.params[-1]: ir.const([1.0, 2.0], "float32")}),
    "visit": lambda f: Visitor().visit_expr(f),
    "mutate": lambda f: Cosines().visit_expr(relax.BlockBuilder().normalize(f)),
    "canonicalize": lambda f: relax.transform.CanonicalizeBindings()(IRModule({"main": f})),
    "add": lambda f: relax.BlockBuilder().add_func(f.without_attr("global_symbol"), "f"),
}


@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("make", [nested_branches, nested_functions, computing_branches])
def test_no_limit(make: Callable[[], Function], walk: str) -> None:
    WALKS[walk](make())


def test_errors_come_through() -> None:
    def fail() -> None:
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        elsewhere(fail)
