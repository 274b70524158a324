"""One operator at a time against ONNX Runtime: forms that the node suite does not have."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from relax2xla.frontend.onnx import from_onnx
from relax2xla.importers.onnx.engine.converters import CONVERTERS, REQUIRED
from relax2xla.ir import TensorStructInfo
from tests.importers.onnx.support import agree, one, ours

RNG = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return RNG.standard_normal(shape, np.float32)


def i(*values: int) -> Any:
    return np.array(values, np.int64)


# operator, inputs, what one() takes beyond them
CASES: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("Gemm", [f(3, 4), f(5, 4), f(1, 5)], {"alpha": 0.5, "beta": 2.0, "transB": 1}),
    ("Softmax", [f(2, 3, 4)], {"opset": 11, "axis": 1}),
    ("LogSoftmax", [f(2, 3, 4)], {"opset": 11, "axis": 0}),
    ("Clip", [f(4), np.array(-0.5, np.float32), np.array(0.5, np.float32)], {}),
    ("Clip", [f(4), None, np.array(0.5, np.float32)], {"known": [2]}),
    ("Clip", [f(4)], {"opset": 6, "min": -0.1, "max": 0.2}),
    ("Mod", [np.array([-7, 7, 5], np.int32), np.array([3, -3, 5], np.int32)], {}),
    ("Mod", [f(6) * 4, f(6) + 3], {"fmod": 1}),
    ("Pow", [np.array([2, 3], np.float32), np.array([2, 3], np.int64)], {}),
    ("Einsum", [f(2, 3), f(3, 4)], {"equation": "ij, jk -> ik"}),
    ("CumSum", [f(3, 4), np.array(1, np.int64)], {"known": [1], "exclusive": 1, "reverse": 1}),
    ("Split", [f(6, 2)], {"opset": 11, "outputs": 2, "split": [2, 4]}),
    ("Split", [f(7, 2)], {"outputs": 3, "num_outputs": 3}),
    ("Squeeze", [f(1, 3, 1)], {"opset": 11, "axes": [0]}),
    ("Unsqueeze", [f(3)], {"opset": 11, "axes": [0, 2]}),
    ("Slice", [f(4, 5)], {"opset": 9, "starts": [1, -3], "ends": [100, -1]}),
    ("Slice", [f(4, 5), i(3, 0), i(-100, 4), i(0, 1), i(-2, 3)], {"known": [1, 2, 3, 4]}),
    ("Pad", [f(2, 3)], {"opset": 10, "pads": [0, 1, 1, 0], "value": 3.0}),
    ("Pad", [f(2, 3), i(0, -1, 1, 2), np.array(2, np.float32)], {"known": [1]}),
    ("Pad", [f(4, 5), i(1, 2), None, i(-1)], {"known": [1, 3], "mode": "reflect"}),
    ("Tile", [f(2, 3), i(2, 1)], {"known": [1]}),
    ("Expand", [f(3, 1), i(2, 1, 4)], {"known": [1]}),
    ("Gather", [f(3, 4), i(-1, 0)], {"axis": 1}),
    ("Gather", [f(3, 4), i(-1, 0)], {"axis": 1, "known": [1]}),
    ("GatherND", [f(2, 3, 4), i(-1, 0).reshape(1, 2)], {}),
    ("ScatterElements", [f(3, 4), i(0, -1).reshape(1, 2), f(1, 2)], {"axis": 1}),
    ("ScatterND", [f(4, 2), i(-1, 0).reshape(2, 1), f(2, 2)], {}),
    ("OneHot", [i(0, -1, 9), np.array(3, np.int64), f(2)], {"known": [1]}),
    ("TopK", [f(3, 6), i(2)], {"known": [1], "outputs": 2, "axis": 1, "largest": 0}),
    ("TopK", [f(3, 6)], {"opset": 9, "outputs": 2, "k": 3}),
    ("ArgMax", [np.array([[1, 2, 2]], np.float32)], {"axis": 1, "select_last_index": 1}),
    ("ReduceSum", [f(2, 3, 4)], {"opset": 11, "axes": [0, -1], "keepdims": 0}),
    ("ReduceMean", [f(2, 3, 4), i(1)], {"known": [1]}),
    ("ReduceLogSumExp", [f(2, 3) + 100, i(1)], {"known": [1], "keepdims": 0}),
    ("ReduceL2", [f(2, 3)], {"opset": 13}),
    ("Conv", [f(1, 4, 7, 6), f(6, 2, 3, 3), f(6)], {"group": 2, "strides": [2, 1]}),
    ("Conv", [f(1, 2, 7, 6), f(3, 2, 3, 2)], {"auto_pad": "SAME_LOWER", "strides": [2, 3]}),
    ("Conv", [f(1, 2, 9), f(3, 2, 3)], {"dilations": [2], "pads": [1, 2]}),
    ("Conv", [f(1, 2, 4, 5, 4), f(3, 2, 2, 2, 2)], {}),
    ("ConvTranspose", [f(1, 3, 4, 4), f(3, 2, 3, 3), f(2)], {"strides": [2, 2], "pads": [1] * 4}),
    (
        "ConvTranspose",
        [f(1, 2, 3, 3), f(2, 1, 3, 3)],
        {"strides": [3, 2], "output_shape": [10, 8], "auto_pad": "SAME_UPPER"},
    ),
    ("MaxPool", [f(1, 2, 7, 7)], {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1}),
    ("MaxPool", [f(2, 2, 5, 5)], {"outputs": 2, "kernel_shape": [3, 3], "pads": [1] * 4}),
    ("AveragePool", [f(1, 2, 6, 6)], {"kernel_shape": [3, 3], "pads": [1] * 4}),
    (
        "AveragePool",
        [f(1, 2, 6, 6)],
        {"kernel_shape": [3, 3], "pads": [1] * 4, "count_include_pad": 1, "strides": [2, 2]},
    ),
    ("GlobalMaxPool", [f(1, 2, 3, 4)], {}),
    ("LRN", [f(1, 7, 3, 3)], {"size": 5, "alpha": 0.1, "beta": 0.6, "bias": 2.0}),
    ("InstanceNormalization", [f(2, 3, 4), f(3), f(3)], {}),
    ("LayerNormalization", [f(2, 3, 4), f(3, 4), f(3, 4)], {"axis": 1, "outputs": 3}),
    ("LayerNormalization", [f(2, 3, 4), f(4)], {}),
    ("BatchNormalization", [f(2, 3, 4), f(3), f(3), f(3), abs(f(3))], {"opset": 9}),
    ("Dropout", [f(2, 3)], {"outputs": 2, "opset": 13}),
    ("Gelu", [f(5)], {"approximate": "tanh"}),
    ("Shrink", [np.array([-3, 1, 3], np.int32)], {"bias": 1.0, "lambd": 1.5}),
    ("Resize", [f(1, 1, 4, 5), None, None, i(1, 1, 8, 3)], {"known": [3], "mode": "cubic"}),
    (
        "Resize",
        [f(1, 1, 4, 5), None, np.array([1, 1, 2.5, 0.6], np.float32)],
        {"known": [2], "mode": "linear", "coordinate_transformation_mode": "asymmetric"},
    ),
    ("Upsample", [f(1, 2, 3, 3)], {"opset": 7, "scales": [1.0, 1.0, 2.0, 3.0]}),
    (
        "QuantizeLinear",
        [f(3, 4) * 50, np.array([0.5, 1, 2, 3], np.float32), np.array([0, 3, 9, 1], np.int8)],
        {"axis": 1},
    ),
    (
        "DequantizeLinear",
        [RNG.integers(0, 255, (3, 4), np.uint8), np.float32(0.5), np.uint8(128)],
        {},
    ),
    (
        "MatMulInteger",
        [RNG.integers(0, 255, (3, 4), np.uint8), RNG.integers(0, 255, (4, 2), np.uint8)],
        {},
    ),
    ("DepthToSpace", [f(1, 8, 2, 3)], {"blocksize": 2, "mode": "CRD"}),
    ("Trilu", [f(3, 4), np.array(1, np.int64)], {"known": [1], "upper": 0}),
    ("HardSigmoid", [f(5)], {"alpha": 0.3, "beta": 0.6}),
    ("PRelu", [f(2, 3), f(3)], {}),
    ("IsInf", [np.array([np.inf, -np.inf, 1], np.float32)], {"detect_negative": 0}),
    ("Where", [np.array([True, False]), f(2), f(2)], {}),
    ("Range", [np.float32(0), np.float32(1), np.float32(0.3)], {"known": [0, 1, 2]}),
    ("EyeLike", [f(3, 4)], {"k": 1, "dtype": onnx.TensorProto.INT32}),
]


@pytest.mark.parametrize("at", range(len(CASES)), ids=lambda at: f"{CASES[at][0]}_{at}")
def test_one_operator(at: int) -> None:
    op, arrays, more = CASES[at]
    arrays = [None if a is None else np.asarray(a) for a in arrays]
    model, inputs = one(op, arrays, **more)
    mod = from_onnx(model)
    info = mod["main"].ret_struct_info
    agree(model, inputs)
    outputs = [info] if isinstance(info, TensorStructInfo) else list(info.fields)
    for o, found in zip(model.graph.output, outputs, strict=True):
        tensor = o.type.tensor_type
        if tensor.HasField("shape") and all(d.HasField("dim_value") for d in tensor.shape.dim):
            assert found.dims == tuple(d.dim_value for d in tensor.shape.dim)


def test_registered_converters_take_what_the_schema_names() -> None:
    """Attributes and their defaults, and the number of inputs, are those of the schema."""
    bad: list[str] = []
    for (domain, op), forms in CONVERTERS.items():
        for c in forms:
            if not onnx.defs.has(op, domain):
                continue  # left ONNX
            try:
                schema = onnx.defs.get_schema(op, c.since, domain)
            except onnx.defs.SchemaError:  # the operator is younger than opset 1
                schema = onnx.defs.get_schema(op, 99, domain)
            later = [f.since for f in forms if f.since > c.since]
            # ONNX Runtime knows some operators at opsets before that of their schema.
            before = max(min(later) - 1, schema.since_version) if later else 99
            newest = onnx.defs.get_schema(op, before, domain)
            known = {**dict(schema.attributes), **dict(newest.attributes)}
            for name, default in c.attributes.items():
                if name not in known:
                    bad.append(f"{op}-{c.since}: no attribute {name}")
                    continue
                theirs = known[name].default_value
                if theirs.type and default is not REQUIRED and default is not None:
                    real = onnx.helper.get_attribute_value(theirs)
                    real = real.decode() if isinstance(real, bytes) else real
                    if default != pytest.approx(real):
                        bad.append(f"{op}-{c.since}: {name} is {default}, the schema's {real}")
            missing = set(newest.attributes) - set(c.attributes) - {"consumed_inputs"}
            if missing:
                bad.append(f"{op}-{c.since} lacks {sorted(missing)}")
            if not c.variadic and len(c.inputs) > len(newest.inputs):
                bad.append(f"{op}-{c.since} takes {len(c.inputs)} inputs")
    assert not bad, "\n".join(bad)


def test_broadcasting_of_opset_1_aligns_at_an_axis() -> None:
    """ONNX Runtime refuses such old models."""
    a, b = f(2, 3, 4), f(3)
    model, inputs = one("Add", [a, b], opset=6, broadcast=1, axis=1)
    np.testing.assert_array_equal(ours(model, inputs)[0], a + b[:, None])


def test_values_of_a_scalar_graph_are_exact() -> None:
    model, inputs = one("Add", [np.array([2**53 + 1], np.int64), np.array([1], np.int64)])
    assert ours(model, inputs)[0].tolist() == [2**53 + 2]
