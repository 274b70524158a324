"""InlineSymbolicFunctions."""

from __future__ import annotations

import pytest

from relax2xla import op, tir
from relax2xla.analysis import check_well_formed
from relax2xla.builder import BlockBuilder
from relax2xla.errors import TransformError
from relax2xla.ir import (
    Call,
    DataflowBlock,
    Function,
    GlobalVar,
    If,
    IRModule,
    TensorStructInfo,
    Var,
)
from relax2xla.ir.equal import assert_structural_equal
from relax2xla.ir.rewrite import bindings_of, post_order_deep
from relax2xla.transform.normal.inline import InlineSymbolicFunctions


def symbolic(name: str = "x") -> Var:
    return Var(name, TensorStructInfo((tir.Var("n"), 4)))


def towers(depth: int, branches: bool = False) -> IRModule:
    """``main`` calls f0, which calls f1, and so on; all are private but ``main``."""
    bb = BlockBuilder()
    callee: GlobalVar | None = None
    for i in reversed(range(depth)):
        x, c = symbolic(), Var("c", TensorStructInfo((), "bool"))
        with bb.function(f"f{i}", [x, c], private=True):
            y = bb.emit(op.sin(x))
            if callee is not None:
                call = Call(callee, [y, c])
                y = bb.emit(If(c, call, y)) if branches else bb.emit(call)
            callee = bb.emit_func_output(op.add(y, y))
    x, c = Var("x", TensorStructInfo((2, 4))), Var("c", TensorStructInfo((), "bool"))
    assert callee is not None
    with bb.function("main", [x, c]):
        bb.emit_func_output(Call(callee, [x, c]))
    return bb.get()


def calls(func: Function) -> list[Call]:
    found = [node for node in post_order_deep(func) if isinstance(node, Call)]
    return [c for c in found if isinstance(c.op, GlobalVar)]


@pytest.mark.parametrize("branches", [False, True])
def test_a_tower_of_functions(branches: bool) -> None:
    mod = towers(4, branches)
    new = InlineSymbolicFunctions()(mod)
    check_well_formed(new)
    assert not calls(new["main"])
    assert all(new[f"f{i}"] is mod[f"f{i}"] for i in range(4))
    ops = [n for n in post_order_deep(new["main"]) if isinstance(n, Call)]
    assert [c.op.name for c in ops] == ["relax.sin"] * 4 + ["relax.add"] * 4  # type: ignore[attr-defined]
    assert all(c.struct_info == TensorStructInfo((2, 4)) for c in ops)


def test_the_cost_is_linear() -> None:
    new = InlineSymbolicFunctions()(towers(600))
    bindings = list(bindings_of(new["main"].body))
    assert len(bindings) == 3 * 600
    assert len({b.var for b in bindings}) == len(bindings)


def test_public_functions_and_values_are_inlined_into() -> None:
    mod = towers(3)
    mod["f1"] = mod["f1"].with_attr("global_symbol", "f1")
    new = InlineSymbolicFunctions()(mod)
    check_well_formed(new)
    assert not calls(new["f1"])
    assert new["f0"] is mod["f0"]
    f0 = mod.get_global_var("f0")
    closure = Function([], f0, f0.struct_info, attrs={"global_symbol": "get"})
    mod["get"] = closure
    assert not calls(InlineSymbolicFunctions()(mod)["f0"])


def test_dataflow_blocks_stay_apart() -> None:
    bb, x = BlockBuilder(), symbolic()
    with bb.function("f", [x], private=True):
        with bb.dataflow():
            y = bb.emit_output(op.sin(bb.emit(op.exp(x))))
        f = bb.emit_func_output(y)
    z = Var("z", TensorStructInfo((2, 4)))
    with bb.function("main", [z]):
        a = bb.emit(Call(f, [z]))
        bb.emit_func_output(Call(f, [a]))
    new = InlineSymbolicFunctions()(bb.get())
    check_well_formed(new)
    kinds = [isinstance(b, DataflowBlock) for b in new["main"].body.blocks]
    assert kinds == [True, False, True, False]


def test_recursive_and_static_functions_stay() -> None:
    x, y = symbolic(), Var("y", TensorStructInfo((2, 4)))
    loop = GlobalVar("loop")
    loop.struct_info_ = Function([x], x).struct_info_
    mod = BlockBuilder(IRModule({loop: Function([x], x)}))
    mod.update_func(loop, mod.normalize(Function([x], Call(loop, [x]))))
    with mod.function("main", [y]):
        mod.emit_func_output(Call(loop, [y]))
    assert_structural_equal(InlineSymbolicFunctions()(mod.get()), mod.get())


def test_an_argument_that_does_not_fit() -> None:
    x, y = symbolic(), Var("y", TensorStructInfo((2, 5)))
    bb = BlockBuilder()
    with bb.function("f", [x], private=True):
        f = bb.emit_func_output(op.sin(x))
    with bb.function("main", [y]):
        bb.emit_func_output(bb.emit(Call(f, [y], struct_info=TensorStructInfo((2, 4)))))
    with pytest.raises(TransformError, match="the argument for x has 5 in dimension 1, expected 4"):
        InlineSymbolicFunctions()(bb.get())
