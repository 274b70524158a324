"""Counts, windows and sizes that no memory holds, in small models."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relax2xla as rx
from relax2xla.errors import TVMError
from relax2xla.importers.onnx import from_onnx
from relax2xla.importers.shared.gaps import reason_of

# The models say no shapes of their results.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
HUGE = 2**62
F = TensorProto.FLOAT


def model(
    op: str, x: list[int] | None, consts: dict[str, Any] | None = None, /, **attributes: Any
) -> onnx.ModelProto:
    """One node of ``op`` on an input of shape ``x``, if any, and constants."""
    consts = consts or {}
    inputs = ["x"] * (x is not None) + list(consts)
    node = helper.make_node(op, inputs, ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        "g",
        [] if x is None else [helper.make_tensor_value_info("x", F, x)],
        [helper.make_tensor_value_info("y", F, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in consts.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, ir_version=9, opset_imports=opsets)


def run(proto: onnx.ModelProto, *args: np.ndarray) -> np.ndarray:
    machine = rx.VirtualMachine(rx.build(from_onnx(proto)))
    return np.asarray(machine["main"](*args))


IMAGE = [5, 5, 5, 5]
W = np.ones((5, 5, 3, 3), np.float32)
ABSURD = {
    "max_pool": model("MaxPool", IMAGE, kernel_shape=[3, 3], pads=[HUGE] * 4),
    "max_pool_dilated": model(
        "MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[HUGE] * 2, pads=[HUGE] * 4
    ),
    "average_pool": model("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[HUGE] * 4),
    "average_pool_large": model("AveragePool", IMAGE, kernel_shape=[10**6] * 2, pads=[10**6] * 4),
    "lp_pool": model("LpPool", IMAGE, kernel_shape=[3, 3], pads=[HUGE] * 4),
    "conv": model("Conv", IMAGE, {"w": W}, pads=[HUGE] * 4),
    "conv_transpose": model("ConvTranspose", IMAGE, {"w": W}, strides=[HUGE] * 2),
    "pad": model("Pad", [2, 5], {"p": np.array([0, HUGE, 0, HUGE])}),
    "tile": model("Tile", [2, 5], {"p": np.array([HUGE, HUGE])}),
    "expand": model("Expand", [2, 5], {"p": np.array([HUGE, 2, 5])}),
    "constant_of_shape": model("ConstantOfShape", None, {"p": np.array([HUGE, 2])}),
    "range": model("Range", None, {"a": np.int64(0), "b": np.int64(HUGE), "c": np.int64(1)}),
    "random": model("RandomNormal", None, shape=[HUGE, 2]),
    "max_roi_pool": model(
        "MaxRoiPool", [1, 1, 4, 4], {"r": np.zeros((1, 5), "f4")}, pooled_shape=[HUGE, HUGE]
    ),
    "resize": model(
        "Resize",
        IMAGE,
        {"r": np.zeros(0, "f4"), "s": np.array([1, 1, 1e15, 1e15], "f4")},
        mode="cubic",
    ),
}


@pytest.mark.parametrize("proto", ABSURD.values(), ids=ABSURD)
def test_absurd_sizes_are_errors(proto: onnx.ModelProto) -> None:
    args = [
        np.zeros([d.dim_value for d in i.type.tensor_type.shape.dim], np.float32)
        for i in proto.graph.input
    ]
    with pytest.raises(TVMError, match="ONNX"):
        run(proto, *args)


@pytest.mark.parametrize("known", [False, True])
def test_doubling_again_and_again(known: bool) -> None:
    nodes = [helper.make_node("Concat", [f"v{i}"] * 2, [f"v{i + 1}"], axis=0) for i in range(40)]
    value = np.ones(2, np.float32)
    graph = helper.make_graph(
        nodes,
        "g",
        [] if known else [helper.make_tensor_value_info("v0", F, [2])],
        [helper.make_tensor_value_info("v40", F, None)],
        [numpy_helper.from_array(value, "v0")] if known else [],
    )
    proto = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(TVMError, match=r"the ONNX node .* \(Concat\): v\d+ of shape"):
        from_onnx(proto)


@pytest.mark.parametrize("size", [9, 10**9 + 1, HUGE])
def test_normalisation_over_more_channels_than_there_are(
    size: int, rng: np.random.Generator
) -> None:
    x = rng.standard_normal((2, 5, 3, 3)).astype(np.float32)
    found = run(model("LRN", [2, 5, 3, 3], size=size, alpha=1.5), x)
    total = (x.astype(np.float64) ** 2).sum(1, keepdims=True)
    np.testing.assert_allclose(found, x / (1 + 1.5 / size * total) ** 0.75, rtol=1e-5)


@pytest.mark.parametrize("op", ["MaxPool", "AveragePool"])
def test_a_window_much_larger_than_its_operand(op: str, rng: np.random.Generator) -> None:
    x = rng.standard_normal((1, 1, 4, 4)).astype(np.float32)
    half = 10**6
    proto = model(op, [1, 1, 4, 4], kernel_shape=[2 * half + 1] * 2, pads=[half] * 4)
    expected = x.max() if op == "MaxPool" else x.mean()
    np.testing.assert_allclose(run(proto, x), np.full((1, 1, 4, 4), expected), rtol=1e-5)


def test_conditions_are_truth_values() -> None:
    """A branch on an integer would be text that no parser takes."""
    branch = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value_float=1.0)],
        "branch",
        [],
        [helper.make_tensor_value_info("c", F, [])],
    )
    node = helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch)
    value = helper.make_tensor_value_info("x", TensorProto.INT64, [])
    graph = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("y", F, [])])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    with pytest.raises(TVMError, match="condition must be a bool tensor; got one of int64"):
        from_onnx(proto)


def test_reasons_speak_of_the_content() -> None:
    def caught(call: Any) -> str:
        try:
            call()
        except Exception as e:
            return reason_of(e)
        raise AssertionError

    def run(code: str) -> str:
        """The reason of what ``code`` raises as a part of this package."""
        return caught(lambda: exec(code, {"__name__": "relax2xla.importers.reader"}))

    for code in ("next(iter([]))", "assert not 1", "[].output", "{}['x']", "None + 1"):
        assert run(code).startswith("its attributes or operands do not fit together"), code
        assert "no message" not in run(code)
        assert "object has no attribute" not in run(code)
    assert caught(lambda: np.load("no such file")).startswith("FileNotFoundError: [Errno 2]")
