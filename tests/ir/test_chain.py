"""A function of many bindings through everything that walks the IR."""

from __future__ import annotations

from relax2xla.analysis import (
    all_vars,
    check_well_formed,
    free_vars,
    post_order_visit,
    remove_all_unused,
)
from relax2xla.ir import Expr, const
from relax2xla.ir.equal import assert_structural_equal, structural_hash
from relax2xla.ir.rewrite import rewrite_function
from tests.ir.chains import COUNT, chain


def test_a_long_chain() -> None:
    one, two = const(1.0), const(2.0)
    a, b = chain(one), chain(one)
    check_well_formed(a)
    assert_structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    func = a["main"]
    new = rewrite_function(func, rule=lambda e: two if e is one else None)
    assert new.body.blocks[0].bindings[-2].value.args[1] is two
    assert remove_all_unused(func) is func
    assert len(all_vars(func)) == COUNT + 2
    assert free_vars(func) == []
    seen: list[Expr] = []
    post_order_visit(func, seen.append)
    assert len(seen) == 2 * COUNT + 6  # variables and calls; +, 1, x, gv, the body, the function
