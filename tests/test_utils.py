"""relax2xla.utils."""

from __future__ import annotations

import relax2xla as rx
from relax2xla import ir, tir


def test_copies_have_variables_of_their_own() -> None:
    n = tir.Var("n")
    x = rx.Var("x", ir.TensorStructInfo((n,), "float32"))
    func = ir.Function([x], ir.Tuple([x]), attrs={"global_symbol": "f"})
    copy = rx.utils.copy_with_new_vars(func)
    ir.assert_structural_equal(copy, func)
    assert copy.params[0] is not x
    assert copy.params[0].struct_info.shape[0] is not n
    assert rx.utils.convert_to_expr("a").value == "a"
