"""Folders of tensors: the bytes are those that TVM 0.25 writes, and are read back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from relax2xla.errors import FileFormatError, RunError
from relax2xla.runtime import get_global_func, tensor_cache

TENSORS: dict[str, Any] = {
    "x_0": np.array([1, 2, 3], "int32"),
    "x_1": np.array(
        [1, 1.00390625, -3.4e38, 1.0117188, 1e-40, np.inf, -np.inf, np.nan, 3.3961775e38, 0.1],
        "float32",
    ),
    "b": np.array([[True, False]]),
    "h": np.arange(3).astype("float16"),
    "e": np.zeros((0, 2), "float32"),
}
# What tvm.contrib.tvmjs.dump_tensor_cache of TVM 0.25 wrote of these.
HALVED = "010000000200000003000000803f803f7fff823f0100807f80ffc07f7f7fcd3d01000000003c0040"
RECORDS = [
    ("x_0", [3], "int32", 12, 0),
    ("x_1", [10], "float32", 20, 12),
    ("b", [1, 2], "bool", 2, 32),
    ("h", [3], "float16", 6, 34),
    ("e", [0, 2], "float32", 0, 40),
]
MD5 = "92baed9f47c2ff37a0c98c6a86b395a9"


def equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        wide = "float32" if value.dtype == "bfloat16" else value.dtype  # numpy knows NaN in these
        np.testing.assert_array_equal(found[name].astype(wide), value.astype(wide))


def test_the_bytes_are_tvms(tmp_path: Path) -> None:
    tensor_cache.dump(TENSORS, tmp_path, meta_data={"a": 1})
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "params_shard_0.bin",
        "tensor-cache-b16.json",
        "tensor-cache.json",
    ]
    assert (tmp_path / "params_shard_0.bin").read_bytes().hex() == HALVED
    keys = ("name", "shape", "dtype", "nbytes", "byteOffset")
    shard = {
        "dataPath": "params_shard_0.bin",
        "format": "raw-shard",
        "nbytes": 40,
        "records": [{**dict(zip(keys, r, strict=True)), "format": "f32-to-bf16"} for r in RECORDS],
        "md5sum": MD5,
    }
    index = json.loads((tmp_path / "tensor-cache.json").read_text())
    assert index == {"metadata": {"a": 1}, "records": [shard]}


def test_what_was_written_is_read(tmp_path: Path) -> None:
    tensor_cache.dump(TENSORS, tmp_path / "raw", "raw", lambda: {"made": "here"})
    found, meta = tensor_cache.load(tmp_path / "raw")
    equal(found, TENSORS)
    assert meta == {"made": "here"}
    halved = {k: v.astype(ml_dtypes.bfloat16) for k, v in TENSORS.items() if v.dtype == "float32"}
    # Beyond the largest number of bfloat16 the rest is cut off instead of rounded to infinity.
    halved["x_1"][[2, 8]] = [-ml_dtypes.finfo("bfloat16").max, ml_dtypes.finfo("bfloat16").max]
    tensor_cache.dump(TENSORS.items(), tmp_path, name="ndarray-cache")
    found, meta = tensor_cache.load(tmp_path)
    equal(found, TENSORS | {k: v.astype("float32") for k, v in halved.items()})
    assert meta == {}
    equal(tensor_cache.load(tmp_path / "ndarray-cache-b16.json")[0], TENSORS | halved)


def test_every_dtype_comes_back(tmp_path: Path) -> None:
    given = {
        str(np.dtype(d)): np.arange(4).astype(d)
        for d in (
            "int8", "uint8", "int16", "uint16", "int64", "uint64", "float64", "complex64",
            ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2,
        )
    } | {"scalar": np.array(3.5)}  # fmt: skip
    tensor_cache.dump(given, tmp_path, "raw")
    equal(tensor_cache.load(tmp_path)[0], given)


def test_shards_hold_what_they_may(tmp_path: Path) -> None:
    mib = 1 << 18  # numbers of 4 bytes
    sizes = {"a": mib // 4, "b": mib // 2 + mib // 4, "c": 3 * mib, "d": 1, "e": mib // 2}
    given = {k: np.full(n, i, "int32") for i, (k, n) in enumerate(sizes.items())}
    tensor_cache.dump(given, tmp_path, "raw", shard_cap_mb=1)
    shards = json.loads((tmp_path / "tensor-cache.json").read_text())["records"]
    assert [[r["name"] for r in s["records"]] for s in shards] == [["b"], ["c"], ["a", "d", "e"]]
    found, _ = tensor_cache.load(tmp_path)
    equal({k: found[k] for k in given}, given)


def test_a_folder_is_updated(tmp_path: Path) -> None:
    tensor_cache.dump(TENSORS, tmp_path, "raw", {"a": 1})
    new = {"x_0": np.array([7, 8, 9], "int32"), "y": np.ones(2, "float32")}
    tensor_cache.dump(new, tmp_path, "raw", update_if_exists=True)
    found, meta = tensor_cache.load(tmp_path)
    equal(found, TENSORS | new)
    assert meta == {"a": 1}
    with pytest.raises(ValueError, match="'x_0' has 8 bytes; in the folder it has 12"):
        tensor_cache.dump({"x_0": np.ones(2, "int32")}, tmp_path, "raw", update_if_exists=True)
    tensor_cache.dump(new, tmp_path, "raw")
    equal(tensor_cache.load(tmp_path)[0], new)
    with pytest.raises(ValueError, match="'x' comes twice"):
        tensor_cache.dump([("x", np.ones(1)), ("x", np.ones(1))], tmp_path)
    with pytest.raises(ValueError, match="one of f32-to-bf16, raw, got 'other'"):
        tensor_cache.dump({}, tmp_path, "other")


def _change(**changes: Any) -> Callable[[Path, dict[str, Any]], None]:
    return lambda folder, index: index["records"][0]["records"][0].update(changes)


def _shard(**changes: Any) -> Callable[[Path, dict[str, Any]], None]:
    return lambda folder, index: index["records"][0].update(changes)


def _link(folder: Path, index: dict[str, Any]) -> None:
    file = folder / "params_shard_0.bin"
    (folder / "other.bin").write_bytes(file.read_bytes())
    file.unlink()
    file.symlink_to(folder / "other.bin")


def _damage(folder: Path, index: dict[str, Any]) -> None:
    (folder / "params_shard_0.bin").write_bytes(bytes(12))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (_shard(dataPath="../x.bin"), "is not a file of this folder"),
        (_shard(dataPath="/etc/hostname"), "is not a file of this folder"),
        (_shard(dataPath=".."), "there is no file"),
        (_shard(dataPath=7), "there is no file '7'"),
        (_shard(nbytes=13), "there is no file 'params_shard_0.bin' of 13 bytes"),
        (_shard(format="zip"), "is of the format 'zip'"),
        (_link, "is not a file of this folder"),
        (_damage, "the MD5 of the bytes is not"),
        (_change(byteOffset=1), "is not within the 12 bytes"),
        (_change(byteOffset=-1), "is not within the 12 bytes"),
        (_change(nbytes=True), "is not within the 12 bytes"),
        (_change(shape=[1 << 40]), r"is int32 of \[1099511627776\] in 12 bytes"),
        (_change(shape=[-3]), "is not within the 12 bytes"),
        (_change(shape="3"), "is not within|not"),
        (_change(dtype="object"), "object"),
        (_change(format="f64"), "has the format 'f64'"),
        (lambda folder, index: index.pop("records"), "records"),
    ],
)
def test_folders_of_others_are_read_with_care(
    tmp_path: Path, spoil: Callable[[Path, dict[str, Any]], None], message: str
) -> None:
    tensor_cache.dump({"x": np.array([1, 2, 3], "int32")}, tmp_path, "raw")
    file = tmp_path / "tensor-cache.json"
    index = json.loads(file.read_text())
    spoil(tmp_path, index)
    file.write_text(json.dumps(index))
    with pytest.raises(FileFormatError, match=message):
        tensor_cache.load(tmp_path)


@pytest.mark.parametrize("text", ["", "[]", "[" * 100_000, '{"metadata": {}, "records": [7]}'])
def test_indexes_that_are_none(tmp_path: Path, text: str) -> None:
    with pytest.raises(FileFormatError, match=r"has no tensor-cache\.json, nor the older"):
        tensor_cache.load(tmp_path)
    (tmp_path / "tensor-cache.json").write_text(text)
    with pytest.raises(FileFormatError, match=r"tensor-cache\.json"):
        tensor_cache.load(tmp_path)


def test_the_cache_of_the_machine(tmp_path: Path) -> None:
    tensor_cache.dump(TENSORS, tmp_path, "raw")
    get_global_func("vm.builtin.ndarray_cache.load")(str(tmp_path), 1, 0)
    found = get_global_func("vm.builtin.param_array_from_cache")("x", -1)
    assert [x.dtype for x in found] == ["int32", "float32"]
    assert get_global_func("vm.builtin.param_array_from_cache")("x", 1)[0] is found[0]
    by_name = get_global_func("vm.builtin.param_array_from_cache_by_name")
    np.testing.assert_array_equal(by_name(["h", "x_0"])[1], TENSORS["x_0"])
    with pytest.raises(RunError, match="no tensor x_2"):
        get_global_func("vm.builtin.param_array_from_cache")("x", 3)
    with pytest.raises(RunError, match="no tensor z"):
        by_name("h", "z")
    update = get_global_func("vm.builtin.tensor_cache.update")
    with pytest.raises(RunError, match="a tensor h already"):
        update("h", np.ones(1))
    update("h", np.ones(1), True)
    assert get_global_func("vm.builtin.tensor_cache.get")("h")[0] == 1
    get_global_func("vm.builtin.tensor_cache.remove")("h")
    assert get_global_func("vm.builtin.tensor_cache.get")("h") is None
    get_global_func("vm.builtin.ndarray_cache.clear")()
    assert get_global_func("vm.builtin.param_array_from_cache")("x", -1) == []


def test_what_cannot_be_written_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor_cache.dump({"w": np.ones(4, "float32")}, tmp_path, "raw")
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("relax2xla.runtime.whole_file.os.fsync", full)
    with pytest.raises(OSError, match="params_shard_0"):
        tensor_cache.dump({"w": np.zeros(4, "float32")}, tmp_path, "raw", update_if_exists=True)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before
