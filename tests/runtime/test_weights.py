"""Weights in files: the safetensors package and numpy agree; damage is one clear error."""

from __future__ import annotations

import io
import json
import math
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import FileFormatError
from relax2xla.runtime import weights
from relax2xla.runtime.weights import load_weights, read_safetensors, save_weights


def some(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "a.weight": rng.standard_normal((16, 8)).astype(np.float32),
        "b": np.arange(7, dtype=np.int64),
        "c": np.array(3.5),
        "empty": np.zeros((0, 4), np.float16),
        "flags": np.array([True, False, True]),
        "half": rng.standard_normal((3, 5)).astype(ml_dtypes.bfloat16),
        "z": (rng.standard_normal(4) + 1j).astype(np.complex64),
    }


def test_the_package_reads_what_we_write(tmp_path: Path, rng: np.random.Generator) -> None:
    given = some(rng)
    save_weights(tmp_path / "w.safetensors", given)
    theirs = safetensors.numpy.load_file(tmp_path / "w.safetensors")
    ours = load_weights(tmp_path / "w.safetensors")
    assert set(ours) == set(theirs) == set(given)
    for name, value in given.items():
        assert ours[name].dtype == value.dtype
        np.testing.assert_array_equal(ours[name], value)
        np.testing.assert_array_equal(theirs[name].view(value.dtype), value)
        assert not ours[name].flags.writeable
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_we_read_what_the_package_writes(tmp_path: Path, rng: np.random.Generator) -> None:
    given = {n: a for n, a in some(rng).items() if n != "half"}
    safetensors.numpy.save_file(given, tmp_path / "w.safetensors", metadata={"format": "pt"})
    ours = load_weights(tmp_path / "w.safetensors")
    assert set(ours) == set(given)
    for name, value in given.items():
        np.testing.assert_array_equal(ours[name], value)


@pytest.mark.parametrize("name", sorted(weights._DTYPES.values()))
def test_every_dtype(name: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(numpy_dtype(name))
    file = io.BytesIO()
    weights.write_safetensors(file, {"x": array})
    (found,) = read_safetensors(memoryview(file.getvalue()), "f").values()
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


def test_views_and_foreign_byte_orders(tmp_path: Path) -> None:
    base = np.arange(12, dtype=np.float32).reshape(3, 4)
    given = {"t": base.T, "big": base.astype(">f4"), "splat": np.broadcast_to(base[0, 1], (2, 2))}
    save_weights(tmp_path / "w.safetensors", given)
    for name, found in load_weights(tmp_path / "w.safetensors").items():
        np.testing.assert_array_equal(found, given[name])


def test_arrays_are_the_file_and_aligned(tmp_path: Path) -> None:
    given = {"odd": np.ones(3, np.int8), "a": np.ones((64, 3), "f"), "b": np.ones(32, "f")}
    save_weights(tmp_path / "w.safetensors", given)
    found = load_weights(tmp_path / "w.safetensors")
    for name in "ab":
        assert found[name].ctypes.data % weights.ALIGNMENT == 0
        assert not found[name].flags.owndata


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    save_weights(path, {"x": np.ones(3, "f")})
    with pytest.raises(FileFormatError, match="complex128"):
        save_weights(path, {"x": np.ones(3, np.complex128)})
    np.testing.assert_array_equal(load_weights(path)["x"], np.ones(3, "f"))
    assert len(list(tmp_path.iterdir())) == 1


def made(header: Any, data: bytes = b"\0" * 16) -> memoryview:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return memoryview(len(text).to_bytes(8, "little") + text + data)


def row(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [4], "data_offsets": [0, 16], **changes}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (memoryview(b""), "truncated"),
        (memoryview(b"\xff" * 16), "truncated"),
        (made(b"{nonsense"), "header"),
        (made(b"[1, 2]"), "no object"),
        (made(b"[" * 100_000), "header"),
        (made(b'{"a": 1, "a": 2}'), "twice"),
        (made({"x": 3}), "no description"),
        (made({"x": row(dtype="PICKLE")}), "PICKLE"),
        (made({"x": row(shape=[-1])}), "shape"),
        (made({"x": row(shape=[True])}), "shape"),
        (made({"x": row(shape=[1 << 62, 1 << 62])}), "does not fit"),
        (made({"x": row(shape=[0, 1 << 63], data_offsets=[0, 0])}), "does not fit"),
        (made({"x": row(shape=[0, (1 << 63) - 1], data_offsets=[0, 0])}), "does not fit"),
        (made({"x": row(shape=[1] * 65, data_offsets=[0, 4])}), "65 dimensions"),
        (made({"x": row(shape=[1] * 99, data_offsets=[0, 4])}), "99 dimensions"),
        (made({"x": row(shape=[4.0])}), "shape"),
        (made({"x": row(data_offsets=[False, 16])}), "place"),
        (made({"x": row(data_offsets=[0, 16, 16])}), "place"),
        (made({"x": row(dtype=["F32"])}), "dtype"),
        (made({"__metadata__": {"a": math.nan}, "x": row()}), "NaN is no JSON"),
        (made(b'{"x": ' + b"9" * 5000 + b"}"), "header"),
        (made(json.dumps({"\ud800": row()}).encode()), "no text"),
        (made(json.dumps({"x": row()}).encode("utf-16")), "header"),
        (made({"x": row(shape=[400], data_offsets=[0, 1600])}), "does not fit"),
        (made({"x": row(data_offsets=[16, 0])}), "place"),
        (made({"x": row(shape=[2], data_offsets=[8, 16])}), "gap"),
        (made({"x": row(), "y": row()}), "overlap"),
        (made({"x": row(shape=[2], data_offsets=[0, 8])}), "belong to no tensor"),
    ],
)
def test_damaged_safetensors(data: memoryview, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        read_safetensors(data, "file")


@given(st.data())
def test_changed_headers_never_crash(data: st.DataObject) -> None:
    file = io.BytesIO()
    weights.write_safetensors(file, {"x": np.ones(3, "f"), "y": np.ones((2, 2), np.int8)})
    raw = bytearray(file.getvalue())
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(raw)))
    try:
        for array in read_safetensors(memoryview(bytes(raw[:cut])), "f").values():
            assert array.nbytes <= len(raw)
    except FileFormatError:
        pass


def test_numpy_files(tmp_path: Path, rng: np.random.Generator) -> None:
    given = {n: a for n, a in some(rng).items() if n != "half"}
    np.savez(tmp_path / "w.npz", **given)
    np.save(tmp_path / "one.npy", np.asfortranarray(given["a.weight"]))
    found = load_weights(tmp_path / "w.npz")
    assert set(found) == set(given)
    for name, value in given.items():
        np.testing.assert_array_equal(found[name], value)
    np.testing.assert_array_equal(load_weights(tmp_path / "one.npy")["one"], given["a.weight"])
    np.savez(tmp_path / "objects.npz", x=np.array([{}]))
    with pytest.raises(FileFormatError, match="can run code"):
        load_weights(tmp_path / "objects.npz")


def test_hostile_and_foreign_files(tmp_path: Path) -> None:
    (tmp_path / "cut.npz").write_bytes(b"PK\3\4")
    with zipfile.ZipFile(tmp_path / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        header = b"\x93NUMPY\1\0v\0" + b"{'descr': '<f4', 'fortran_order': False, "
        header += b"'shape': (1000000000000000,), }".ljust(128 - len(header) - 1) + b"\n"
        archive.writestr("x.npy", header)
    for name, message in {
        "cut.npz": "truncated",
        "bomb.npz": "does not fit",
        "gone.npz": "No such file",
        "model.bin": "load_state_dict",
    }.items():
        with pytest.raises(FileFormatError, match=message):
            load_weights(tmp_path / name)
