"""Where the bytes of initializers lie: in the message, in other files; and what is not read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relax2xla.errors import FileFormatError
from relax2xla.frontend.onnx import from_onnx
from relax2xla.ir import Call, Constant
from tests.importers.onnx.support import ours, value

X = np.arange(12, dtype=np.float32).reshape(3, 4)
W = np.ones((4, 2), np.float32)


def product(**weights: Any) -> onnx.ModelProto:
    """y = x @ w; ``weights``: the field of the graph that has w."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", X)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["p", "q"])],
        **weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=9)


def tensor_of(**fields: Any) -> TensorProto:
    made = TensorProto(name="w", data_type=TensorProto.FLOAT)
    for key, v in fields.items():
        if isinstance(v, list):
            getattr(made, key).extend(v)
        else:
            setattr(made, key, v)
    return made


BAD_TENSORS = {
    "short": (tensor_of(dims=[4], raw_data=bytes(15)), "needs 16 bytes; it has 15"),
    "long": (tensor_of(dims=[4], float_data=[1.0] * 5), "needs 4 values in float_data; it has 5"),
    "negative": (tensor_of(dims=[-1]), "impossible shape"),
    "absurd": (tensor_of(dims=[2**40, 2**40]), "impossible shape"),
    "large": (tensor_of(dims=[2**30, 2**10]), "needs 1099511627776 values in float_data; it has 0"),
    "dtype": (tensor_of(data_type=77, dims=[1]), "unknown data type 77"),
}


@pytest.mark.parametrize("what", BAD_TENSORS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_whose_bytes_do_not_fit_are_refused(what: str) -> None:
    bad, message = BAD_TENSORS[what]
    with pytest.raises(FileFormatError, match=message):
        from_onnx(product(initializer=[bad]))


# -- external data -------------------------------------------------------------------------------
def external(tmp_path: Path, **entries: str) -> Path:
    """A model whose weight ``w`` (8 floats) lies in ``data.bin`` after 16 other bytes."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "data.bin").write_bytes(bytes(16) + W.tobytes())
    (tmp_path / "secret.bin").write_bytes(bytes(100))
    t = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=W.shape)
    t.data_location = TensorProto.EXTERNAL
    for key, v in {"location": "data.bin", "offset": "16", "length": "32", **entries}.items():
        t.external_data.add(key=key, value=v)
    model = product(initializer=[t])
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def test_external_data_is_mapped(tmp_path: Path) -> None:
    path = external(tmp_path)
    mod = from_onnx(path)
    (weight,) = (
        a
        for b in mod["main"].body.blocks[0].bindings
        if isinstance(b.value, Call)
        for a in b.value.args
        if isinstance(a, Constant)
    )
    np.testing.assert_array_equal(weight.data, W)
    assert not weight.data.flags.owndata
    assert not weight.data.flags.writeable


BAD_LOCATIONS = {
    "parent": ({"location": "../secret.bin"}, "must be a relative path inside"),
    "inner parent": ({"location": "a/../../secret.bin"}, "must be a relative path inside"),
    "absolute": ({"location": "/etc/hostname"}, "must be a relative path inside"),
    "drive": ({"location": "C:secret.bin"}, "must be a relative path inside"),
    "backslash": ({"location": "..\\secret.bin"}, "must be a relative path inside"),
    "empty": ({"location": ""}, "must be a relative path inside"),
    "nothing": ({"location": "none.bin"}, "cannot be read: No such file"),
    "folder": ({"location": "."}, "must be a relative path inside"),
    "negative": ({"offset": "-16"}, "offset '-16' is not a length"),
    "huge": ({"offset": "9" * 30}, "is not a length"),
    "beyond": ({"offset": "17"}, "lies at bytes 17 to 49 of data.bin, which has only 48"),
    "length": ({"length": "31"}, "needs 32 bytes; its external data has the length 31"),
}


@pytest.mark.parametrize("what", BAD_LOCATIONS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_external_data_elsewhere_is_refused(what: str, tmp_path: Path) -> None:
    entries, message = BAD_LOCATIONS[what]
    with pytest.raises(FileFormatError, match=message):
        from_onnx(external(tmp_path, **entries))


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="no symbolic links here")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_external_data_is_never_read_through_links(what: str, tmp_path: Path) -> None:
    path = external(tmp_path, location="link" if what == "file" else "link/secret.bin")
    target = tmp_path / "secret.bin" if what == "file" else tmp_path
    (path.parent / "link").symlink_to(target)
    with pytest.raises(FileFormatError, match=r"reached through a link .link."):
        from_onnx(path)


def test_external_data_needs_the_models_path(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="stored in another file; pass the model's path"):
        from_onnx(external(tmp_path).read_bytes())


def test_a_sparse_initializer_is_made_dense() -> None:
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.float32([5, 6]), "w"),
        numpy_helper.from_array(np.array([1, 7]), "w_indices"),
        [4, 2],
    )
    model = product(sparse_initializer=[sparse])
    dense_w = np.zeros(8, np.float32)
    dense_w[[1, 7]] = [5, 6]
    np.testing.assert_array_equal(ours(model, [X])[0], X @ dense_w.reshape(4, 2))
