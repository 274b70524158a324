"""Narrow dtypes as inputs and outputs: arrays of ml_dtypes both ways."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from relax2xla import onnx_backend

KINDS = {
    "BFLOAT16": ml_dtypes.bfloat16,
    "FLOAT8E4M3FN": ml_dtypes.float8_e4m3fn,
    "FLOAT8E4M3FNUZ": ml_dtypes.float8_e4m3fnuz,
    "FLOAT8E5M2": ml_dtypes.float8_e5m2,
    "FLOAT8E5M2FNUZ": ml_dtypes.float8_e5m2fnuz,
    "FLOAT8E8M0": ml_dtypes.float8_e8m0fnu,
    "FLOAT4E2M1": ml_dtypes.float4_e2m1fn,
    "INT4": ml_dtypes.int4,
    "UINT4": ml_dtypes.uint4,
    "INT2": ml_dtypes.int2,
    "UINT2": ml_dtypes.uint2,
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_values_go_in_and_come_out(name: str) -> None:
    """As float32, back again, and transposed without a change of their bits."""
    code = getattr(TensorProto, name, None)
    if code is None:
        pytest.skip("this onnx release has no such dtype")
    kind = np.dtype(KINDS[name])
    x = np.array([[1, 0, 1], [1, 1, 0]], np.float32).astype(kind)
    if not name.startswith("U"):
        x[1, 0] = np.float32(0.5 if name == "FLOAT8E8M0" else -1)
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"]),
        helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
        helper.make_node("Cast", ["wide"], ["back"], to=code),
    ]
    infos = [
        helper.make_tensor_value_info(n, c, s)
        for n, c, s in (
            ("x", code, [2, 3]),
            ("t", code, [3, 2]),
            ("wide", TensorProto.FLOAT, [2, 3]),
            ("back", code, [2, 3]),
        )
    ]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    t, wide, back = onnx_backend.run_model(model, [x])
    assert (t.dtype, wide.dtype, back.dtype) == (kind, np.float32, kind)
    assert t.T.tobytes() == x.tobytes() == back.tobytes()
    np.testing.assert_array_equal(wide, x.astype(np.float32))
