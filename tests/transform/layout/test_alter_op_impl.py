"""Kernels in other layouts take the place of those of a kind; the values stay."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla
from relax2xla import BlockBuilder, IRModule, TensorStructInfo, Var, te, tir, topi
from relax2xla.errors import TransformError, TVMError
from relax2xla.tir import IndexMap
from relax2xla.transform import AlterOpImpl


def program(size: int) -> IRModule:
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((size,), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_te(topi.exp, x, primfunc_attrs={"operator_name": "relax.exp"})
            out = bb.emit_output(y)
        bb.emit_func_output(out)
    return bb.get()


def kernel(*shape: int) -> tir.PrimFunc:
    x = te.placeholder(shape, "float32", "x")
    return te.create_prim_func([x, topi.exp(x)]).without_attr("global_symbol")


@pytest.mark.parametrize(("size", "calls"), [(16, 3), (14, 4)])
def test_values_stay_and_padding_is_cut_off(size: int, calls: int) -> None:
    blocks = IndexMap.from_func(lambda i: (i % 4, i // 4))
    made = AlterOpImpl({"relax.exp": kernel(4, 4)}, {"relax.exp": [blocks, blocks]})(program(size))
    names = [b.value.op.name for b in made["main"].body.blocks[0].bindings[:calls]]
    assert names[:3] == ["relax.layout_transform", "relax.call_tir", "relax.layout_transform"]
    assert ("remove_pad" in {g.name_hint for g in made}) == (size == 14)
    x = np.linspace(-1, 1, size, dtype=np.float32)
    vm = relax2xla.VirtualMachine(relax2xla.build(made))
    np.testing.assert_allclose(vm["main"](x), np.exp(x), rtol=1e-6)


def test_each_of_several_results_goes_back_before_the_next() -> None:
    x, info = te.placeholder((16,), "float32", "x"), TensorStructInfo((16,), "float32")
    both = te.create_prim_func([x, topi.exp(x), topi.sin(x)]).without_attr("global_symbol")
    bb, v = BlockBuilder(), Var("x", info)
    gvar = bb.add_func(both.with_attr("operator_name", "relax.both"), "both")
    with bb.function("main", [v]):
        with bb.dataflow():
            out = bb.emit_output(relax2xla.op.call_tir(gvar, (v,), [info, info]))
        bb.emit_func_output(out)
    y = te.placeholder((4, 4), "float32", "x")
    new = te.create_prim_func([y, topi.exp(y), topi.sin(y)]).without_attr("global_symbol")
    blocks = IndexMap.from_func(lambda i: (i // 4, i % 4))
    made = AlterOpImpl({"relax.both": new}, {"relax.both": [blocks] * 3})(bb.get())
    values = [b.value for b in made["main"].body.blocks[0].bindings]
    kinds = [type(value).__name__ for value in values]
    assert kinds == ["Call", "Call", "TupleGetItem", "Call", "TupleGetItem", "Call", "Tuple"]
    given = np.linspace(-1, 1, 16, dtype=np.float32)
    one, two = relax2xla.VirtualMachine(relax2xla.build(made))["main"](given)
    np.testing.assert_allclose(one, np.exp(given), rtol=1e-6)
    np.testing.assert_allclose(two, np.sin(given), rtol=1e-6)


def test_other_kinds_stay_and_mistakes_are_named() -> None:
    mod = program(16)
    assert AlterOpImpl({"relax.add": kernel(16)}, {})(mod) is mod
    with pytest.raises(TransformError, match=r"2 parameters.* 1 transforms"):
        AlterOpImpl({"relax.exp": kernel(16)}, {"relax.exp": [lambda i: i]})(mod)
    with pytest.raises(TypeError, match="a transform is an IndexMap"):
        AlterOpImpl({}, {"relax.exp": [3]})


def test_inverse_of_a_map() -> None:
    blocks = IndexMap.from_func(lambda i, j: (j // 8, i, j // 2 % 4, j % 2))
    assert blocks.inverse() == IndexMap.from_func(lambda a, i, b, c: (i, a * 8 + b * 2 + c))
    assert IndexMap.from_func(lambda i: i + 1, inverse_index_map=lambda i: i - 1).inverse() == (
        IndexMap.from_func(lambda i: i - 1)
    )
    with pytest.raises(TVMError, match="split and permute"):
        IndexMap.from_func(lambda i: i + 1).inverse()
    mark = IndexMap.AXIS_SEPARATOR
    made, places = IndexMap.from_func_with_separators(lambda i: (i // 4, mark, i % 4))
    assert (made, places) == (IndexMap.from_func(lambda i: (i // 4, i % 4)), [1])
