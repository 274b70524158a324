"""ai.onnx.ml on maps and on strings for integers, against ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from relax2xla import onnx_backend
from relax2xla.errors import CallError

onnxruntime = pytest.importorskip("onnxruntime")

FLOAT, INT, STRING, DOUBLE = (
    TensorProto.FLOAT,
    TensorProto.INT64,
    TensorProto.STRING,
    TensorProto.DOUBLE,
)


def tensor(code: int, dims: Any = None) -> Any:
    return helper.make_tensor_type_proto(code, dims)


def map_type(key: int, code: int) -> onnx.TypeProto:
    made = onnx.TypeProto()
    made.map_type.key_type = key
    made.map_type.value_type.CopyFrom(tensor(code))
    return made


def model(op: str, x: Any, y: Any, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    ends = [helper.make_value_info(n, t) for n, t in (("x", x), ("y", y))]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:])
    imports = [helper.make_opsetid("ai.onnx.ml", 1), helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def rows(key: int) -> onnx.TypeProto:
    return helper.make_sequence_type_proto(map_type(key, FLOAT))


ROW = tensor(FLOAT, [1, "n"])
WORDS = ["a", "b", "c"]
NUMBERS = np.array([[0.5, 1.5, 2.5], [3, 4, 5]], np.float32)
CASES: list[tuple[str, Any, Any, Any, dict[str, Any]]] = [
    ("ZipMap", tensor(FLOAT, [2, 3]), rows(STRING), NUMBERS, {"classlabels_strings": WORDS}),
    ("ZipMap", tensor(FLOAT, [2, 3]), rows(INT), NUMBERS, {"classlabels_int64s": [7, 0, -1]}),
    (
        "DictVectorizer",
        map_type(STRING, FLOAT),
        tensor(FLOAT, [1, "n"]),
        {"c": 2.5, "a": 1.0},
        {"string_vocabulary": WORDS},
    ),
    ("CastMap", map_type(INT, FLOAT), ROW, {5: 1.5, 2: -1.0}, {}),
    (
        "CastMap",
        map_type(INT, FLOAT),
        tensor(INT, [1, "n"]),
        {5: 1.5, 2: -1.0},
        {"cast_to": "TO_INT64"},
    ),
    (
        "CastMap",
        map_type(INT, FLOAT),
        tensor(FLOAT, [1, "n"]),
        {3: 1.5, 0: -1.0},
        {"map_form": "SPARSE", "max_map": 5},
    ),
    (
        "CategoryMapper",
        tensor(STRING, [3]),
        tensor(INT, [3]),
        np.array(["b", "?", "a"], object),
        {"cats_strings": WORDS, "cats_int64s": [4, 5, 6], "default_int64": -7},
    ),
    (
        "CategoryMapper",
        tensor(INT, [3]),
        tensor(STRING, [3]),
        np.array([6, 0, 4]),
        {"cats_strings": WORDS, "cats_int64s": [4, 5, 6], "default_string": "none"},
    ),
    (
        "LabelEncoder",
        tensor(STRING, [3]),
        tensor(INT, [3]),
        np.array(["b", "?", "a"], object),
        {"classes_strings": WORDS},
    ),
    (
        "LabelEncoder",
        tensor(INT, [3]),
        tensor(STRING, [3]),
        np.array([2, 0, 9]),
        {"classes_strings": WORDS, "default_string": "none"},
    ),
]


@pytest.mark.parametrize("at", range(len(CASES)), ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_against_onnxruntime(at: int) -> None:
    op, x, y, given, attributes = CASES[at]
    made = model(op, x, y, **attributes)
    (got,) = onnx_backend.run_model(made, [given])
    session = onnxruntime.InferenceSession(made.SerializeToString())
    (want,) = session.run(None, {"x": given})
    if isinstance(want, list):
        assert got == want
    else:
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        assert got.tolist() == want.tolist()


def test_maps_that_onnxruntime_takes_from_no_python() -> None:
    row = tensor(DOUBLE, [1, "n"])
    made = model("DictVectorizer", map_type(INT, DOUBLE), row, int64_vocabulary=[3, 9])
    (got,) = onnx_backend.run_model(made, [{9: 2.5}])
    assert (got.dtype, got.tolist()) == (np.float64, [[0.0, 2.5]])
    made = model("CastMap", map_type(INT, STRING), ROW)
    (got,) = onnx_backend.run_model(made, [{5: "1.5", 2: "-1"}])
    assert (got.dtype, got.tolist()) == (np.float32, [[-1.0, 1.5]])


def test_maps_that_do_not_fit() -> None:
    made = model("DictVectorizer", map_type(STRING, FLOAT), ROW, string_vocabulary=WORDS)
    run = onnx_backend.prepare(made).run
    with pytest.raises(CallError, match="the key 'z', which the vocabulary lacks"):
        run([{"z": 1.0}])
    with pytest.raises(CallError, match="is no float32"):
        run([{"a": "one"}])
    with pytest.raises(CallError, match="expected a map"):
        run([[1.0]])
