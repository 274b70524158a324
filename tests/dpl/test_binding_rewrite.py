"""DataflowBlockRewrite: what the documentation of TVM says, and its errors."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as relax
from relax2xla.errors import TVMError
from relax2xla.ir import DataflowBlock, DataflowVar, Function, Var, assert_structural_equal
from relax2xla.script import ir as I
from relax2xla.script import relax as R
from relax2xla.testing import evaluate


@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
        with R.dataflow():
            lv0 = R.add(x, y)
            unused = R.exp(lv0)
            gv = R.multiply(lv0, y)
            R.output(gv)
        z = R.sin(gv)
        return z


def setup() -> tuple[relax.DataflowBlockRewrite, Function, dict[str, Var]]:
    func = Module["main"]
    block = func.body.blocks[0]
    names = {b.var.name_hint: b.var for b in block.bindings}
    names.update({p.name_hint: p for p in func.params})
    return relax.DataflowBlockRewrite(block, func), func, names


def test_replace_and_remove() -> None:
    rewriter, func, names = setup()
    text = func.script()
    rewriter.replace_all_uses(names["lv0"], names["x"])
    rewriter.remove_unused(names["lv0"])
    rewriter.remove_unused(names["unused"])

    @R.function
    def expected(x: R.Tensor((3,), "float32"), y: R.Tensor((3,), "float32")):
        with R.dataflow():
            gv = R.multiply(x, y)
            R.output(gv)
        z = R.sin(gv)
        return z

    new = rewriter.mutated_root_fn()
    assert_structural_equal(new, expected.with_attr("global_symbol", "main"))
    assert rewriter.mutated_dfb() is new.body.blocks[0]
    assert isinstance(rewriter.mutated_dfb(), DataflowBlock)
    assert func.script() == text  # never in place
    mod = rewriter.mutate_irmodule(Module)
    assert mod["main"] is new
    assert Module["main"] is func
    x, y = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    np.testing.assert_allclose(evaluate(mod, [x, y]), np.sin(x * y), rtol=1e-6)


def test_add() -> None:
    rewriter, _, names = setup()
    rewriter.add(relax.op.exp(names["gv"]))
    rewriter.add(relax.op.tanh(names["x"]), name="inner", is_dfvar=True)
    rewriter.add(relax.op.negative(names["lv0"]))
    bindings = rewriter.mutated_dfb().bindings
    kinds = {b.var.name_hint: type(b.var) for b in bindings}
    assert kinds["inner"] is DataflowVar
    assert kinds["tmp0"] is Var
    assert kinds["tmp1"] is Var
    order = [b.var.name_hint for b in bindings]
    assert order.index("gv") < order.index("tmp0")
    assert order.index("lv0") < order.index("tmp1")
    assert relax.analysis.well_formed(rewriter.mutated_root_fn())
    with pytest.raises(TVMError, match="defined in the block already"):
        rewriter.add_binding(bindings[0])


def test_new_value_for_what_is_used_after_the_block() -> None:
    rewriter, _, names = setup()
    rewriter.add(relax.op.sum(names["lv0"]))
    made = next(b.var for b in rewriter.mutated_dfb().bindings if b.var.name_hint == "tmp0")
    rewriter.replace_all_uses(names["gv"], made)
    rewriter.remove_all_unused()
    new = rewriter.mutated_root_fn()
    assert relax.analysis.well_formed(new)
    assert [b.var.name_hint for b in new.body.blocks[0].bindings] == ["lv0", "tmp0"]
    assert new.body.struct_info.dims == ()


def test_struct_info_follows_inside_the_block() -> None:
    rewriter, _, names = setup()
    rewriter.add(relax.op.reshape(names["lv0"], (3, 1)), "wide", True)
    wide = next(b.var for b in rewriter.mutated_dfb().bindings if b.var.name_hint == "wide")
    with pytest.raises(TVMError, match="used before"):
        rewriter.replace_all_uses(names["lv0"], wide)
    y = relax.Var("y", R.Tensor((3, 1), "float32"))
    func = Module["main"].replace(params=[*Module["main"].params, y])
    again = relax.DataflowBlockRewrite(func.body.blocks[0], func)
    again.replace_all_uses(names["y"], y)
    new = again.mutated_root_fn()
    assert relax.analysis.well_formed(new)
    assert new.body.struct_info.dims == (3, 3)


def test_remove_all_unused() -> None:
    rewriter, _, _ = setup()
    rewriter.remove_all_unused()
    assert [b.var.name_hint for b in rewriter.mutated_dfb().bindings] == ["lv0", "gv"]


def test_errors() -> None:
    rewriter, func, names = setup()
    with pytest.raises(TVMError, match="used by unused, gv"):
        rewriter.remove_unused(names["lv0"])
    with pytest.raises(TVMError, match="used by the code after the block"):
        rewriter.remove_unused(names["gv"])
    stranger = Var("stranger", R.Tensor((3,), "float32"))
    with pytest.raises(TVMError, match="not defined in the block"):
        rewriter.remove_unused(stranger)
    rewriter.remove_unused(stranger, allow_undef=True)
    with pytest.raises(TVMError, match="visible inside only"):
        rewriter.replace_all_uses(names["gv"], names["lv0"])
    with pytest.raises(TVMError, match="used before"):
        rewriter.replace_all_uses(names["x"], names["gv"])
    assert_structural_equal(rewriter.mutated_root_fn(), func)
    with pytest.raises(TVMError, match="does not hold the function"):
        rewriter.mutate_irmodule(relax.IRModule())
    with pytest.raises(TVMError, match="not a block of the function"):
        relax.DataflowBlockRewrite(DataflowBlock([]), func)
    with pytest.raises(TypeError):
        relax.DataflowBlockRewrite(func.body, func)


def test_what_uses_nothing_of_the_block_comes_second() -> None:
    rewriter, _, names = setup()
    rewriter.add(relax.op.tanh(names["x"]), name="new")
    assert [b.var.name_hint for b in rewriter.mutated_dfb().bindings][1] == "new"


def test_an_empty_block_is_left_out() -> None:
    @R.function
    def func(x: R.Tensor((3,), "float32")):
        with R.dataflow():
            lv0 = R.exp(x)
            R.output(lv0)
        return x

    rewriter = relax.DataflowBlockRewrite(func.body.blocks[0], func)
    rewriter.remove_all_unused()
    assert rewriter.mutated_dfb().bindings == ()
    assert rewriter.mutated_root_fn().body.blocks == ()
    assert len(func.body.blocks) == 1
