"""Rewriter, copies, and walks."""

from __future__ import annotations

from relax2xla import op, tir
from relax2xla.analysis import check_well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    PrimValue,
    SeqExpr,
    ShapeExpr,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
)
from relax2xla.ir.copy import copy_expr, copy_function, copy_with_new_vars
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import Rewriter, post_order, post_order_deep, rewrite_function

n, m = tir.Var("n"), tir.Var("m")
INFO = TensorStructInfo((n, 4))


def build(dim: tir.Dim = n) -> Function:
    """A function with a dataflow block, a branch, a local function and symbolic operands."""
    info = TensorStructInfo((dim, 4))
    x, c, y = Var("x", info), Var("c", TensorStructInfo((), "bool")), Var("y", info)
    bb = BlockBuilder()
    with bb.function("main", [x, c]):
        with bb.dataflow():
            a = bb.emit(op.concat((op.exp(x), x)))
            b = bb.emit_output(op.reshape(a, ShapeExpr([dim * 8])))
        f = bb.emit(Function([y], op.add(y, x)))  # captures x
        r = bb.emit(If(c, Call(f, [x]), op.sin(x)))
        e = bb.emit(Call(ExternFunc("f"), [PrimValue(dim * 2), r], sinfo_args=[info]))
        bb.emit_func_output((b, r, e))
    return bb.get()["main"].replace(is_pure=False)


def test_nothing_to_do_gives_the_same_object() -> None:
    func = build()
    assert rewrite_function(func) is func
    assert rewrite_function(func, rule=lambda e: None) is func
    assert rewrite_function(func, symbolic={m: 3}) is func


def test_symbols_are_replaced_everywhere_and_inferred_again() -> None:
    new = rewrite_function(build(), symbolic={n: 5})
    check_well_formed(new)
    assert_structural_equal(new, build(5))
    concat = new.body.blocks[0].bindings[1]
    assert concat.var.struct_info == TensorStructInfo((10, 4))
    assert isinstance(concat.var, DataflowVar)
    renamed = rewrite_function(build(), symbolic={n: m})
    assert_structural_equal(renamed, build())


def test_a_rule_sees_shared_nodes_once() -> None:
    x = Var("x", INFO)
    shared = op.exp(x)
    seen: list[Expr] = []
    new = Rewriter(values={x: const(1.0)}, rule=lambda e: seen.append(e)).expr(
        op.add(shared, shared)
    )
    assert isinstance(new, Call)
    assert new.args[0] is new.args[1]
    assert [type(e).__name__ for e in seen] == ["Constant", "Call", "Call"]


def test_a_rule_replaces_and_changes_the_types_that_follow() -> None:
    bb, x = BlockBuilder(), Var("x", INFO)
    with bb.function("main", [x]):
        with bb.dataflow():
            a = bb.emit(op.exp(x))
            b = bb.emit(op.sin(a))
            c = bb.emit_output(b)
        bb.emit_func_output(c)

    def rule(e: Expr) -> Expr | None:
        return op.astype(e.args[0], "float16") if is_op(e, "relax.exp") else None  # type: ignore[attr-defined]

    new = rewrite_function(bb.get()["main"], rule=rule)
    half = TensorStructInfo((n, 4), "float16")
    bindings = new.body.blocks[0].bindings
    assert [b.var.struct_info for b in bindings] == [half] * 3
    assert [type(b.var) for b in bindings] == [DataflowVar, DataflowVar, Var]
    assert bindings[1].value.args == (bindings[0].var,)  # type: ignore[attr-defined]
    assert new.body.struct_info == half
    # The Id of a variable outlives its replacement.
    assert bindings[0].var.vid is a.vid
    assert bindings[0].var is not a


def test_a_weaker_declaration_stays() -> None:
    x, w = Var("x", INFO), Var("w", TensorStructInfo(ndim=2))
    func = Function([x], SeqExpr([BindingBlock([VarBinding(w, op.sin(x))])], w))
    new = rewrite_function(func, rule=lambda e: op.cos(x) if is_op(e, "relax.sin") else None)
    assert new.body.blocks[0].bindings[0].var is w


def test_values_reach_into_local_functions_and_branches() -> None:
    func = build()
    x, c = func.params
    other = Var("other", INFO)
    new = rewrite_function(func.replace(params=[other, c]), values={x: other})
    check_well_formed(new)
    assert_structural_equal(new, build())


def test_an_item_of_a_known_tuple_is_the_field() -> None:
    x, t = Var("x", INFO), Var("t")
    new = Rewriter(values={t: Tuple([x, x])}).expr(TupleGetItem(t, 1))
    assert new is x


def test_match_cast_under_substitution() -> None:
    x, y = Var("x", INFO), Var("y", TensorStructInfo((m, n)))
    func = Function([x], SeqExpr([BindingBlock([MatchCast(y, x, TensorStructInfo((m, n)))])], y))
    new = rewrite_function(func, symbolic={n: 4})
    cast = new.body.blocks[0].bindings[0]
    assert isinstance(cast, MatchCast)
    assert cast.struct_info == cast.var.struct_info == TensorStructInfo((m, 4))
    assert new.body.body is cast.var


def test_a_recursive_local_function() -> None:
    x, y = Var("x", INFO), Var("y", INFO)
    f = Var("f", FuncStructInfo([INFO], INFO))
    body = Function([y], Call(f, [y]), INFO)
    func = Function([x], SeqExpr([BindingBlock([VarBinding(f, body)])], x))
    new = rewrite_function(func, symbolic={n: 3})
    made = new.body.blocks[0].bindings[0]
    assert isinstance(made.value, Function)
    inner = made.value.body.body
    assert isinstance(inner, Call)
    assert inner.op is made.var
    assert inner.struct_info == TensorStructInfo((3, 4))


def test_copies_share_no_variable() -> None:
    func = build()

    def variables(f: Function) -> set[Var]:
        from relax2xla.analysis import bound_vars

        return set(bound_vars(f))

    for copy in (copy_with_new_vars(func), copy_function(func)):
        check_well_formed(copy)
        assert_structural_equal(copy, func)
        assert not variables(copy) & variables(func)
        assert not {v.vid for v in variables(copy)} & {v.vid for v in variables(func)}
    assert copy_function(func).params[0].struct_info == INFO
    assert copy_with_new_vars(func).params[0].struct_info != INFO
    assert isinstance(copy_with_new_vars(func.body, symbolic=False), SeqExpr)
    assert copy_expr(const(1.0)).struct_info == TensorStructInfo(())


def test_walks_give_children_first_and_each_object_once() -> None:
    x = Var("x", INFO)
    shared = op.exp(x)
    root = op.add(shared, shared)
    assert list(post_order(root)) == [x, shared, root]
    func = build()
    nodes = list(post_order_deep(func))
    assert nodes[-1] is func
    assert len({id(e) for e in nodes}) == len(nodes)
    assert sum(isinstance(e, SeqExpr) for e in nodes) == 4


def test_the_kind_of_block_stays() -> None:
    new = rewrite_function(build(), symbolic={n: 2})
    kinds = [isinstance(b, DataflowBlock) for b in new.body.blocks]
    assert kinds == [True, False]
