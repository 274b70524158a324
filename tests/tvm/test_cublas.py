"""Products for cuBLAS and lowerings of a program, under the names that TVM has for them."""

from __future__ import annotations

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op
from relax2xla.builder import BlockBuilder
from relax2xla.errors import UnsupportedError
from relax2xla.ir import IRModule, Op, TensorStructInfo, Var
from relax2xla.transform import RunCodegen
from relax2xla.transform.fusion.patterns import get_pattern
from relax2xla.tvm.gpu.cublas import partition_for_cublas
from relax2xla.tvm.language.legalizing import register_legalize


def program(dtype: str) -> IRModule:
    bb = BlockBuilder()
    shapes = {"x": (2, 3), "w": (4, 3), "b": (4,)}
    x, w, b = (Var(name, TensorStructInfo(shape, dtype)) for name, shape in shapes.items())
    with bb.function("main", [x, w, b]):
        with bb.dataflow():
            y = bb.emit(op.matmul(x, bb.emit(op.permute_dims(w))))
            out = bb.emit_output(op.nn.relu(bb.emit(op.add(y, b))))
        bb.emit_func_output(out)
    return bb.get()


def test_the_longest_pattern_takes_a_product_and_xla_runs_it() -> None:
    made = partition_for_cublas(program("float32"))
    (func,) = (f for f in made.relax_functions().values() if "Codegen" in f.attrs)
    assert func.attrs["Codegen"] == "cublas"
    assert "cublas.matmul_transposed_bias_relu" in func.script()
    x, w = np.ones((2, 3), "float32"), np.ones((4, 3), "float32")
    b = -np.arange(4, dtype="float32")
    vm = rx.VirtualMachine(rx.build(RunCodegen()(made)))
    np.testing.assert_array_equal(vm["main"](x, w, b), np.maximum(x @ w.T + b, 0))


def test_products_of_integers_stay() -> None:
    mod = program("int32")
    assert partition_for_cublas(mod) is mod
    assert get_pattern("cublas.matmul_bias_gelu") is not None


def test_lowerings_are_those_of_declared_operators() -> None:
    @register_legalize("test.doubled")
    def doubled(builder: BlockBuilder, call: rx.Call) -> rx.Expr:
        return op.add(call.args[0], call.args[0])

    try:
        assert Op.get("test.doubled").get_attr("FLegalize") is doubled
    finally:
        del Op.registry["test.doubled"]
    with pytest.raises(UnsupportedError, match="customize_legalize_map"):
        register_legalize("relax.nn.relu", doubled)
