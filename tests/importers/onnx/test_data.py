"""Tensors of every dtype in every encoding; large initializers, which no message holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relax2xla.dtypes import BY_ONNX
from relax2xla.errors import FileFormatError
from relax2xla.frontend.onnx import from_onnx
from relax2xla.importers.onnx import load_initializers
from relax2xla.importers.onnx.read import large_initializers, tensors
from relax2xla.ir import Call, Constant
from tests.importers.onnx.support import model_of, value

CODES = sorted(BY_ONNX)
NAMES = [BY_ONNX[c].name for c in CODES]


def sample(code: int) -> np.ndarray[Any, Any]:
    """Seven values (an odd number, so that the last byte of packed ones is not full)."""
    dtype = BY_ONNX[code].numpy
    numbers = [0, 1, 1, 0, 1, 1, 0] if dtype.kind == "b" else [0, 1, 2, 3, 1, 0, 2]
    if BY_ONNX[code].bits == 2:
        numbers = [0, 1, 1, 0, 1, 0, 1]
    made = np.array(numbers).astype(dtype)
    return made * dtype.type(1 - 2j) if dtype.kind == "c" else made


def same(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> None:
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("code", CODES, ids=NAMES)
def test_raw_bytes(code: int) -> None:
    want = sample(code).reshape(7, 1)
    proto = numpy_helper.from_array(want, "w")
    assert proto.data_type == code
    assert proto.HasField("raw_data")
    same(tensors.tensor(proto), want)
    proto.raw_data = proto.raw_data[:-1]
    with pytest.raises(FileFormatError, match=r"'w' of shape .7, 1. and .* needs"):
        tensors.tensor(proto)


@pytest.mark.parametrize("code", CODES, ids=NAMES)
def test_typed_fields(code: int) -> None:
    want = sample(code)
    proto = helper.make_tensor("w", code, [7], want)
    assert not proto.HasField("raw_data")
    same(numpy_helper.to_array(proto), want)
    same(tensors.tensor(proto), want)
    proto.dims[0] = 30
    with pytest.raises(FileFormatError, match=r"needs .* values in"):
        tensors.tensor(proto)


@pytest.mark.parametrize("code", CODES, ids=NAMES)
def test_external_data(code: int, tmp_path: Path) -> None:
    want = sample(code)
    proto = numpy_helper.from_array(want, "w")
    (tmp_path / "data").write_bytes(b"abc" + proto.raw_data)
    entries = {"location": "data", "offset": "3", "length": str(len(proto.raw_data))}
    proto.ClearField("raw_data")
    proto.data_location = TensorProto.EXTERNAL
    for key, text in entries.items():
        proto.external_data.add(key=key, value=text)
    same(tensors.tensor(proto, tensors.Folder(tmp_path)), want)
    with pytest.raises(FileFormatError, match="pass the model's path"):
        tensors.tensor(proto)


def test_strings() -> None:
    proto = helper.make_tensor("w", TensorProto.STRING, [3], np.array(["a", "é", ""], object))
    assert tensors.strings(proto).tolist() == ["a", "é", ""]
    proto.dims[0] = 2**40
    with pytest.raises(FileFormatError, match="needs 1099511627776 strings; it has 3"):
        tensors.strings(proto)


@pytest.mark.parametrize("indices", [[1, 7], [[0, 1], [3, 1]]])
def test_sparse(indices: Any) -> None:
    proto = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([5, 6], np.float32), "w"),
        numpy_helper.from_array(np.array(indices), "i"),
        [4, 2],
    )
    want = np.array([[0, 5], [0, 0], [0, 0], [0, 6]], np.float32)
    same(tensors.sparse(proto), want)
    proto.dims[0] = 3
    with pytest.raises(FileFormatError, match="indices do not fit"):
        tensors.sparse(proto)
    proto.dims[0] = 2**40
    with pytest.raises(FileFormatError, match="too large to be made dense"):
        tensors.sparse(proto)


# -- large initializers ----------------------------------------------------------------------------
SIZE = large_initializers.LARGE // 4
W = np.arange(2 * SIZE, dtype=np.float32).reshape(2, SIZE)


def large() -> onnx.ModelProto:
    """y = x @ w + b, with ``w`` too large for the message, and ``b`` between other fields."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["y"]),
    ]
    weights = {"w": W, "b": np.ones(3, np.float32)[:1], "half": W.astype(np.float16)}
    return model_of(nodes, [value("x", W[:, :2])], weights=weights)


def constants(mod: Any) -> list[np.ndarray[Any, Any]]:
    bindings = [b for block in mod["main"].body.blocks for b in block.bindings]
    args = [a for b in bindings if isinstance(b.value, Call) for a in b.value.args]
    return [a.data for a in args if isinstance(a, Constant)]


def test_large_initializers_are_cut_out_and_found_again(tmp_path: Path) -> None:
    contents = large().SerializeToString()
    small = large_initializers.cut(memoryview(contents), "here")
    assert small is not None
    assert len(small) < 1000
    path = tmp_path / "m.onnx"
    path.write_bytes(contents)
    for model in (large(), contents, path):
        w, b = constants(from_onnx(model))
        same(w, W)
        same(b, np.ones(1, np.float32))
        assert w.flags.aligned
    found = load_initializers(path)
    assert list(found) == ["w", "b", "half"]
    same(found["half"], W.astype(np.float16))
    # What was read stays when the file is written again.
    path.write_bytes(bytes(len(contents)))
    same(w, W)
    same(found["half"], W.astype(np.float16))


def test_no_file_names_what_was_cut_out_of_another(tmp_path: Path) -> None:
    """The place of a cut is a secret of the reading: a location that a model says is a file."""
    model = large()
    t = model.graph.initializer.add(name="spy", data_type=TensorProto.UINT8, dims=[4])
    t.data_location = TensorProto.EXTERNAL
    for key, text in {"location": "here", "offset": "0", "length": "4"}.items():
        t.external_data.add(key=key, value=text)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(FileFormatError, match="'here' cannot be read"):
        load_initializers(path)


def test_a_cut_model_says_what_the_whole_one_says() -> None:
    """With the bytes put back in, the message is the one that protobuf reads, or neither is."""
    contents = large().SerializeToString()
    rng = np.random.default_rng(0)
    at = contents.index(W.tobytes()[:64])
    heads = [*range(max(0, at - 40), at), *range(at + W.nbytes - 4, at + W.nbytes + 40)]
    cuts = 0
    for _ in range(300):
        changed = bytearray(contents)
        changed[int(rng.choice(heads))] = int(rng.integers(256))
        damaged = bytes(changed)
        small = large_initializers.cut(memoryview(damaged), "here")
        if small is None:
            continue
        cuts += 1
        whole, rest = onnx.ModelProto(), onnx.ModelProto()
        try:
            whole.ParseFromString(damaged)
        except Exception:  # protobuf's own, which the rest must raise too
            with pytest.raises(Exception, match="parsing"):
                rest.ParseFromString(small)
            continue
        rest.ParseFromString(small)
        for t in rest.graph.initializer:
            where = {e.key: e.value for e in t.external_data}
            if where.get("location") == "here":
                start = int(where["offset"])
                t.raw_data = damaged[start : start + int(where["length"])]
                t.ClearField("external_data")
                t.ClearField("data_location")
        assert rest == whole
    assert cuts > 100
