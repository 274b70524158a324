"""Variables, bindings, purity, recursion, dead code."""

from __future__ import annotations

from typing import Any

import pytest

from relax2xla import analysis, op, script
from relax2xla.builder import BlockBuilder
from relax2xla.ir import (
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    ExternFunc,
    FuncStructInfo,
    Function,
    GlobalVar,
    If,
    IRModule,
    ObjectStructInfo,
    SeqExpr,
    TensorStructInfo,
    Var,
    VarBinding,
    assert_structural_equal,
)
from relax2xla.ir.op import Op

INFO = TensorStructInfo((2,))
OBJECT = [ObjectStructInfo()]


def names(items: list[Var]) -> list[str]:
    return [v.name_hint for v in items]


def model() -> Function:
    x, c, y, free = Var("x", INFO), Var("c", TensorStructInfo((), "bool")), Var("y", INFO), FREE
    bb = BlockBuilder()
    with bb.function("main", [x, c]):
        with bb.dataflow():
            a = bb.emit(op.exp(x), "a")
            b = bb.emit(op.add(a, x), "b")
            bb.emit(op.sin(b), "dead1")
            out = bb.emit_output(b, "out")
        f = bb.emit(Function([y], op.add(y, free)), "f")
        bb.emit(Call(f, [out]), "dead2")
        r = bb.emit(If(c, op.exp(out), out), "r")
        bb.match_cast(r, INFO, "cast")
        bb.emit_func_output(r)
    return bb.get()["main"]


FREE = Var("free", INFO)


def test_variables() -> None:
    func = model()
    assert analysis.free_vars(func) == [FREE]
    bound = ["x", "c", "a", "b", "dead1", "out", "f", "y", "gv", "dead2", "r", "gv1", "cast"]
    assert names(analysis.bound_vars(func)) == bound
    assert set(names(analysis.all_vars(func))) == {*bound, "free"}
    assert names(analysis.used_vars(func.body.blocks[0].bindings[1].value)) == ["a", "x"]
    g = GlobalVar("g", FuncStructInfo([INFO], INFO))
    x = Var("x", INFO)
    assert analysis.all_global_vars(op.add(Call(g, [x]), Call(g, [x]))) == [g]


def test_udchain() -> None:
    block = model().body.blocks[0]
    assert isinstance(block, DataflowBlock)
    chain = {k.name_hint: names(v) for k, v in analysis.udchain(block).items()}
    assert chain == {"x": ["a", "b"], "a": ["b"], "b": ["dead1", "out"], "dead1": [], "out": []}


def test_name_to_binding_and_values() -> None:
    func = model()
    table = analysis.name_to_binding(func)
    # Not those inside the local function and the branch.
    assert list(table) == ["a", "b", "dead1", "out", "f", "dead2", "r", "cast"]
    (binding,) = table["b"]
    values = analysis.get_var2val(func)
    assert values[binding.var] is binding.value
    assert table["cast"][0].var not in values
    assert len(values) == len(table) - 1 + 2


def test_remove_all_unused() -> None:
    func = model()
    new = analysis.remove_all_unused(func)
    bound = ["x", "c", "a", "b", "out", "r", "gv1", "cast"]
    assert names(analysis.bound_vars(new)) == bound
    analysis.check_well_formed(new)
    assert analysis.remove_all_unused(new) is new
    assert len(analysis.bound_vars(func)) == 13


def test_unused_impure_calls_and_insides() -> None:
    x, c = Var("x", INFO), Var("c", TensorStructInfo((), "bool"))
    effect = Call(ExternFunc("f"), [x], sinfo_args=OBJECT)

    def arm(impure: bool) -> SeqExpr:
        u, w = Var("u", ObjectStructInfo()), Var("w", INFO)
        first = VarBinding(u, effect if impure else op.sin(x))
        return SeqExpr([BindingBlock([first, VarBinding(w, op.exp(x))])], x)

    bb = BlockBuilder()
    with bb.function("main", [x, c], pure=False):
        bb.emit(effect, "kept")
        bb.emit(If(c, arm(False), arm(False)), "gone")
        bb.emit(If(c, arm(True), arm(False)), "kept_too")
        bb.emit_func_output(x)
    new = analysis.remove_all_unused(bb.get()["main"])
    assert names(analysis.bound_vars(new)) == ["x", "c", "kept", "kept_too", "u"]


def test_contains_impure_call() -> None:
    x, y = Var("x", INFO), Var("y", INFO)
    effect = Call(ExternFunc("f"), [x], sinfo_args=OBJECT)
    assert analysis.contains_impure_call(effect)
    assert not analysis.contains_impure_call(op.exp(x))
    local = Function([y], Call(ExternFunc("f"), [y], sinfo_args=OBJECT), is_pure=False)
    f = Var("f", local.struct_info)
    holder = Function([x], SeqExpr([BindingBlock([VarBinding(f, local)])], x))
    assert not analysis.contains_impure_call(holder)
    assert analysis.contains_impure_call(local)
    calls = Call(f, [x])
    assert analysis.contains_impure_call(calls)
    assert not analysis.contains_impure_call(calls, own_name=f)


def test_detect_recursion() -> None:
    def calls(*callees: GlobalVar) -> Function:
        x = Var("x", INFO)
        y: Expr = x
        for g in callees:
            y = Call(g, [y])
        return Function([x], y, INFO)

    a, b, c, d, e = (GlobalVar(s, FuncStructInfo([INFO], INFO)) for s in "abcde")
    mod = IRModule({a: calls(b), b: calls(c, e), c: calls(a), d: calls(d, a), e: calls()})
    assert analysis.detect_recursion(mod) == [[a, b, c], [d]]


def test_computable_at_compile_time() -> None:
    x, w = Var("x", INFO), Var("w", INFO)
    bb = BlockBuilder()
    with bb.function("main", [x, w], attrs={"num_input": 1}):
        with bb.dataflow():
            a = bb.emit(op.exp(w), "a")
            b = bb.emit(op.add(a, x), "b")
            c = bb.emit(op.sin(a), "c")
            out = bb.emit_output(op.add(b, c))
        bb.emit_func_output(out)
    assert names(analysis.computable_at_compile_time(bb.get()["main"])) == [
        *("w", "a", "c"),
    ]
    assert analysis.computable_at_compile_time(model()) == []


def test_symbols_of_inputs_are_not_known_at_compile_time() -> None:
    source = """
@R.function
def main(x: R.Tensor(("n",), "float32"), w: R.Tensor(("m",), "float32")):
    R.func_attr({"num_input": 1})
    n = T.int64()
    m = T.int64()
    a = R.zeros(R.shape([m, 2]), "float32")
    b = R.zeros(R.shape([n]), "float32")
    c = R.broadcast_to(w, R.shape([2, m]))
    d = R.broadcast_to(w, R.shape([n, m]))
    return (a, b, c, d)
"""
    func = script.from_source(source)
    assert isinstance(func, Function)
    assert names(analysis.computable_at_compile_time(func)) == ["w", "a", "c"]


def test_post_order_visit() -> None:
    func = model()
    seen: list[Expr] = []
    analysis.post_order_visit(func, seen.append)
    assert len({id(e) for e in seen}) == len(seen)
    assert seen[-1] is func
    assert seen[:2] == [Op.get("relax.exp"), func.params[0]]
    ops = [e.name for e in seen if isinstance(e, Op)]
    assert ops == ["relax.exp", "relax.add", "relax.sin"]
    position = {id(e): i for i, e in enumerate(seen)}
    for e in seen:
        if isinstance(e, Call):
            assert all(position[id(k)] < position[id(e)] for k in (e.op, *e.args))


def test_remove_all_unused_of_every_part() -> None:
    """A function, its body, a branch, a block; what comes back is of the same kind."""
    func = model()
    whole = analysis.remove_all_unused(func)
    seq = analysis.remove_all_unused(func.body)
    assert isinstance(seq, SeqExpr)
    assert_structural_equal(seq, whole.body, map_free_vars=True)
    block = analysis.remove_all_unused(func.body.blocks[0])
    assert isinstance(block, DataflowBlock)
    assert names([b.var for b in block.bindings]) == ["a", "b", "out"]
    # All that an ordinary block binds can be read by later ones.
    ordinary = func.body.blocks[1]
    assert analysis.remove_all_unused(ordinary) is ordinary
    empty = analysis.remove_all_unused(DataflowBlock(func.body.blocks[0].bindings[2:3]))
    assert (type(empty), empty.bindings) == (DataflowBlock, ())
    branch = next(b.value for b in ordinary.bindings if isinstance(b.value, If))
    assert analysis.remove_all_unused(branch) is branch
    assert analysis.remove_all_unused(FREE) is FREE
    nothing: Any = IRModule({})
    with pytest.raises(TypeError, match="takes a Function, a SeqExpr or a block of bindings"):
        analysis.remove_all_unused(nothing)


def test_a_shared_graph_is_walked_once() -> None:
    """2 ** 200 paths lead to the function that is named."""
    named = GlobalVar("f", FuncStructInfo([INFO], INFO))
    y: Expr = Call(named, [Var("x", INFO)])
    for _ in range(200):
        y = op.add(y, y)
    assert analysis.all_global_vars(y) == [named]
    Function([], y)


def test_parameters_have_the_names_of_tvm() -> None:
    assert analysis.struct_info_lca(lhs=INFO, rhs=OBJECT[0]) == OBJECT[0]
    func = model()
    assert_structural_equal(analysis.remove_all_unused(func=func), analysis.remove_all_unused(func))
