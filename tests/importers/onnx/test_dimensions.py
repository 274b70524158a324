"""Names of dimensions: marks of unknown sizes, arithmetic, and names that look like it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relax2xla.errors import FileFormatError, TVMError
from relax2xla.frontend.onnx import from_onnx
from relax2xla.ir import TensorStructInfo, VarBinding
from relax2xla.testing import evaluate
from tests.importers.onnx.support import ours


def model(**inputs: Sequence[Any]) -> onnx.ModelProto:
    """A model that negates each of its inputs."""
    f = TensorProto.FLOAT
    nodes = [helper.make_node("Neg", [n], [f"{n}_out"]) for n in inputs]
    ins = [helper.make_tensor_value_info(n, f, dims) for n, dims in inputs.items()]
    outs = [helper.make_tensor_value_info(f"{n}_out", f, dims) for n, dims in inputs.items()]
    graph = helper.make_graph(nodes, "g", ins, outs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def shapes(proto: onnx.ModelProto, **options: Any) -> list[str]:
    """Shapes of the imported parameters, as text."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        main = from_onnx(proto, **options)["main"]
    infos = [p.struct_info for p in main.params]
    assert all(isinstance(i, TensorStructInfo) for i in infos)
    return [", ".join(map(str, i.dims)) for i in infos]


@pytest.mark.parametrize("mark", ["?", "*", "None", "-1", " "])
def test_marks_of_unknown_sizes_are_other_sizes(mark: str) -> None:
    proto = model(a=[mark, mark], b=[mark, 3])
    assert shapes(proto) == ["a_0, a_1", "b_0, 3"]
    arrays = [np.ones(s, np.float32) for s in ((2, 5), (4, 3))]
    for got, x in zip(ours(proto, arrays), arrays, strict=True):
        np.testing.assert_array_equal(got, -x)
    assert shapes(proto, shape_dict={"a": [2, 5]}) == ["2, 5", "b_0, 3"]


@pytest.mark.parametrize(
    ("written", "read", "size"),
    [
        ("A + B", "A + B", 12),
        ("A - B", "A - B", 6),
        ("A*B", "A * B", 27),
        ("A / B", "A // B", 3),
        ("A // B", "A // B", 3),
        ("A + B*2 - 1", "A + B * 2 - 1", 14),
        ("(A + 1)//2", "(A + 1) // 2", 5),
        ("Max(2, A - 1)", "T.max(2, A - 1)", 8),
    ],
)
def test_arithmetic(written: str, read: str, size: int) -> None:
    proto = model(x=["A", "B", written], y=[written])
    assert shapes(proto) == [f"A, B, {read}", read]
    mod = from_onnx(proto)
    good = [np.ones((9, 3, size), np.float32), np.ones(size, np.float32)]
    for got, x in zip(evaluate(mod, good), good, strict=True):
        np.testing.assert_array_equal(got, -x)
    with pytest.raises(TVMError, match="dimension 2"):
        evaluate(mod, [good[0][:, :, 1:], good[1]])
    # The user's sizes count in it.
    assert shapes(proto, shape_dict={"x": [9, 3, size]})[1] == str(size)


def test_names_that_look_like_arithmetic() -> None:
    """Their parts are sizes of nothing."""
    assert shapes(model(x=["batch-size", "len/2"], y=["batch-size"])) == [
        "batch_size, len_2",
        "batch_size",
    ]
    assert shapes(model(x=["a", "f(a)", "a if a else a", "a.b", "-a", "a <<2", "1+"])) == [
        "a, f_a_, a_if_a_else_a, a_b, _a, a___2, dim_1_"
    ]
    deep = "(" * 90 + "a" + " + 1)" * 90
    assert len(shapes(model(x=["a", deep]))) == 1
    assert len(shapes(model(x=["a", "+".join(["a"] * 100_000)]))) == 1


def test_division_by_zero() -> None:
    with pytest.raises(FileFormatError, match="divides by zero"):
        from_onnx(model(x=["a", "a // 0"]))


def test_the_users_names() -> None:
    proto = model(x=["a", 2], y=["a", "a + 1"])
    assert shapes(proto, shape_dict={"x": ["n", "n + 1"], "y": ["n", 3]}) == ["n, n + 1", "n, 3"]


def test_no_binding_is_only_another_name() -> None:
    """A size or a value that is used twice is no value of its own yet."""
    f = TensorProto.INT64
    nodes = [
        helper.make_node("Gather", ["x", "i"], ["y"]),
        helper.make_node("Slice", ["x", "i", "i", "i", "i"], ["z"]),
        helper.make_node("Reshape", ["x", "i"], ["r"]),
    ]
    ins = [helper.make_tensor_value_info(n, f, d) for n, d in (("x", ["n"]), ("i", [1]))]
    outs = [helper.make_tensor_value_info(n, f, [None]) for n in "yzr"]
    graph = helper.make_graph(nodes, "g", ins, outs)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    main = from_onnx(proto)["main"]
    params = set(main.params)
    bindings = [b for block in main.body.blocks for b in block.bindings]
    assert not [b for b in bindings if isinstance(b, VarBinding) and b.value in params]
