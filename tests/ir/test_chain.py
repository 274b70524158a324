"""A function of 100,000 bindings through everything that walks the IR."""

from __future__ import annotations

import time

from relax2xla import op, tir
from relax2xla.analysis import (
    all_vars,
    check_well_formed,
    free_vars,
    post_order_visit,
    remove_all_unused,
)
from relax2xla.builder import BlockBuilder
from relax2xla.ir import Call, Constant, Expr, IRModule, TensorStructInfo, Var, const
from relax2xla.ir.equal import assert_structural_equal, structural_hash
from relax2xla.ir.rewrite import rewrite_function

COUNT = 100_000


def chain(one: Constant) -> IRModule:
    n = tir.Var("n")
    info = TensorStructInfo((n, 4))
    x = Var("x", info)
    add = op.add(x, one).op
    bb = BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y: Expr = x
            for _ in range(COUNT):
                y = bb.emit(Call(add, [y, one], struct_info=info))
            y = bb.emit_output(y)
        bb.emit_func_output(y)
    return bb.get()


def test_a_long_chain() -> None:
    start = time.perf_counter()
    one, two = const(1.0), const(2.0)
    a, b = chain(one), chain(one)
    check_well_formed(a)
    assert_structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    func = a["main"]
    new = rewrite_function(func, rule=lambda e: two if e is one else None)
    assert new.body.blocks[0].bindings[-2].value.args[1] is two
    # 8 s on one quiet core; the figure leaves room for a busy one.
    assert time.perf_counter() - start < 40
    assert remove_all_unused(func) is func
    assert len(all_vars(func)) == COUNT + 2
    assert free_vars(func) == []
    seen: list[Expr] = []
    post_order_visit(func, seen.append)
    assert len(seen) == 2 * COUNT + 6  # variables and calls; +, 1, x, gv, the body, the function
