"""Folders of tensors as TVM and MLC-LLM keep weights: shards of bytes, and what is where in them.

``tensor-cache.json`` (``ndarray-cache.json`` before TVM 0.25) holds ``metadata`` and ``records``:
of each shard the file, its size and MD5, and the tensors in it, each with name, shape, dtype,
format, offset and size.
The format ``f32-to-bf16`` keeps float32 in the 16 bits of bfloat16; ``raw`` keeps the bytes.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from relax2xla.dtypes import dtype_name, numpy_dtype
from relax2xla.errors import FileFormatError, RunError
from relax2xla.runtime.whole_file import whole_file

Array = npt.NDArray[Any]
NAMES: Final = ("tensor-cache", "ndarray-cache")
FORMATS: Final = ("f32-to-bf16", "raw")
_SHARD: Final = "raw-shard"
# The largest number of bfloat16, whose bits are the upper half of a float32's.
_LIMIT: Final = np.array(0x7F7F0000, "uint32").view("float32")[()]


# -- one tensor: what it is written as, and back ---------------------------------------------------
def f32_to_bf16(value: Array) -> Array:
    """The bits of bfloat16, uint16, rounded to even; beyond its largest number they are cut off."""
    bits = np.ascontiguousarray(value).view("uint32")
    rounding = np.where(np.abs(value) < _LIMIT, (bits >> 16 & 1) + 0x7FFF, 0).astype("uint32")
    return (bits + rounding >> 16).astype("uint16")


def bf16_to_f32(bits: Array) -> Array:
    """float32 of the bits of bfloat16, exactly."""
    return (np.ascontiguousarray(bits).view("uint16").astype("uint32") << 16).view("float32")


def _encode(value: Array, form: str) -> tuple[str, bytes]:
    dtype = dtype_name(value.dtype)
    if form == "f32-to-bf16" and dtype == "float32":
        value = f32_to_bf16(value)
    return dtype, value.tobytes()


def _decode(dtype: str, form: str, shape: tuple[int, ...], data: bytes | memoryview) -> Array:
    if form == "f32-to-bf16" and dtype == "float32":
        return bf16_to_f32(np.frombuffer(data, "uint16")).reshape(shape)
    return np.frombuffer(data, numpy_dtype(dtype)).reshape(shape).copy()


def _itemsize(dtype: str, form: str) -> int:
    return 2 if (form, dtype) == ("f32-to-bf16", "float32") else numpy_dtype(dtype).itemsize


# -- a folder --------------------------------------------------------------------------------------
def dump(
    params: Mapping[str, Any] | Iterable[tuple[str, Any]],
    folder: str | Path,
    encode_format: str = "f32-to-bf16",
    meta_data: Any = None,
    shard_cap_mb: int = 32,
    update_if_exists: bool = False,
    name: str = NAMES[0],
) -> None:
    """Write tensors (anything that numpy takes) into ``folder``, which is made where there is none.

    encode_format: "raw", or "f32-to-bf16", which halves float32 and loses digits.
    meta_data: what JSON can hold, or a function that gives it.
    shard_cap_mb: MiB of a file of tensors; a larger tensor has a file of its own.
    update_if_exists: keep what the folder has; a tensor of a name that is there takes the place of
        the old one, whose size it must have. ValueError for a name that comes twice otherwise.
    """
    if encode_format not in FORMATS:
        raise ValueError(f"encode_format is one of {', '.join(FORMATS)}, got {encode_format!r}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    index, cap = folder / f"{name}.json", shard_cap_mb << 20
    shards: list[dict[str, Any]] = []
    if update_if_exists and index.is_file():
        kept, shards = _read_index(index)
        meta_data = kept if meta_data is None else meta_data
    places = {r["name"]: (s, r) for s in shards for r in s["records"]}
    pending: list[tuple[dict[str, Any], bytes]] = []

    def commit(entries: list[tuple[dict[str, Any], bytes]]) -> None:
        if entries:
            data = b"".join(d for _, d in entries)
            shard = _shard(f"params_shard_{len(shards)}.bin", data, [r for r, _ in entries])
            _write(folder / shard["dataPath"], data)
            shards.append(shard)

    for key, value in params.items() if isinstance(params, Mapping) else params:
        array = np.asarray(value)
        dtype, data = _encode(array, encode_format)
        record: dict[str, Any] = {
            "name": key,
            "shape": list(array.shape),
            "dtype": dtype,
            "format": encode_format,
            "nbytes": len(data),
        }
        if key in places:
            if not update_if_exists:
                raise ValueError(f"the tensor {key!r} comes twice")
            _update(folder, *places[key], record, data)
            continue
        held = sum(len(d) for _, d in pending)
        if held + len(data) >= cap and len(data) * 2 >= cap:
            record["byteOffset"] = 0
            commit([(record, data)])
        else:
            if held + len(data) >= cap:
                commit(pending)
                pending, held = [], 0
            record["byteOffset"] = held
            pending.append((record, data))
        places[key] = ({}, record)
    commit(pending)
    meta: Any = {} if meta_data is None else meta_data() if callable(meta_data) else meta_data
    _write_index(index, meta, shards)
    halved = any(r["dtype"] == "float32" for s in shards for r in s["records"])
    if encode_format == "f32-to-bf16" and halved:
        # For readers that compute in bfloat16: the same bytes under their own dtype.
        _write_index(folder / f"{name}-b16.json", meta, [_as_bf16(s) for s in shards])


def _shard(file: str, data: bytes, records: list[dict[str, Any]]) -> dict[str, Any]:
    md5 = hashlib.md5(data, usedforsecurity=False).hexdigest()
    return {
        "dataPath": file,
        "format": _SHARD,
        "nbytes": len(data),
        "records": records,
        "md5sum": md5,
    }


def _update(
    folder: Path,
    shard: dict[str, Any],
    old: dict[str, Any],
    new: dict[str, Any],
    data: bytes,
) -> None:
    """Put a tensor in the place of an old one of another call, in its file."""
    if not shard:
        raise ValueError(f"the tensor {new['name']!r} comes twice")
    if old["nbytes"] != new["nbytes"]:
        raise ValueError(
            f"the tensor {new['name']!r} has {new['nbytes']} bytes; in the folder it has "
            f"{old['nbytes']}"
        )
    path = folder / shard["dataPath"]
    bytes_ = bytearray(path.read_bytes())
    bytes_[old["byteOffset"] : old["byteOffset"] + len(data)] = data
    _write(path, bytes_)
    old.update(new)
    shard.update(_shard(shard["dataPath"], bytes(bytes_), shard["records"]))


def _as_bf16(shard: Mapping[str, Any]) -> dict[str, Any]:
    changed = {"dtype": "bfloat16", "format": "raw"}
    return {
        **shard,
        "records": [r | changed if r["dtype"] == "float32" else r for r in shard["records"]],
    }


def _write_index(path: Path, meta: Any, shards: list[dict[str, Any]]) -> None:
    text = json.dumps({"metadata": meta, "records": shards}, indent=4)
    _write(path, text.encode())


def _write(path: Path, data: bytes | bytearray) -> None:
    """A file that is there whole, or as it was before."""
    with whole_file(path) as file:
        file.write(data)


def load(path: str | Path) -> tuple[dict[str, Array], dict[str, Any]]:
    """The tensors of a folder, or of one of its ``.json`` files, and the metadata.

    Safe for folders of unknown origin: FileFormatError for files of other folders, for sizes that
    are not those of the tensors, and for bytes whose MD5 is not the one that is stated.
    """
    path = Path(path)
    if path.suffix != ".json":
        found = [p for p in (path / f"{name}.json" for name in NAMES) if p.is_file()]
        if not found:
            raise FileFormatError(f"{path} has no {NAMES[0]}.json, nor the older {NAMES[1]}.json")
        path = found[0]
    meta, shards = _read_index(path)
    return dict(t for s in shards for t in _read_shard(path, s)), meta


def _read_index(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    try:
        made: Any = json.loads(path.read_text("utf-8"))
        meta, shards = made["metadata"], made["records"]
        for shard in shards:
            _check_shard(path, shard)
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise FileFormatError(f"{path}: {str(error)[:300]}") from None
    return meta, shards


def _check_shard(path: Path, shard: Any) -> None:
    """ValueError, KeyError or TypeError where an entry of a shard is not what it is to be."""
    name, size = str(shard["dataPath"]), shard["nbytes"]
    file = path.parent / name
    if Path(name).name != name or file.is_symlink():
        raise ValueError(f"the shard {name!r} is not a file of this folder")
    if shard["format"] != _SHARD:
        raise ValueError(f"the shard {name!r} is of the format {shard['format']!r}, not {_SHARD}")
    if not file.is_file() or file.stat().st_size != size:
        raise ValueError(f"there is no file {name!r} of {size} bytes")
    for r in shard["records"]:
        shape, offset, length = r["shape"], r["byteOffset"], r["nbytes"]
        numbers = [*shape, offset, length]
        if not all(type(n) is int and n >= 0 for n in numbers) or offset + length > size:
            raise ValueError(f"{r['name']!r} is not within the {size} bytes of {name!r}")
        if r["format"] not in FORMATS:
            raise ValueError(f"{r['name']!r} has the format {r['format']!r}")
        if math.prod(shape) * _itemsize(r["dtype"], r["format"]) != length:
            raise ValueError(f"{r['name']!r} is {r['dtype']} of {shape} in {length} bytes")


def _read_shard(path: Path, shard: Mapping[str, Any]) -> Iterator[tuple[str, Array]]:
    file = path.parent / shard["dataPath"]
    data = memoryview(file.read_bytes())
    stated = shard.get("md5sum")
    if stated is not None and hashlib.md5(data, usedforsecurity=False).hexdigest() != stated:
        raise FileFormatError(f"{file}: the MD5 of the bytes is not {stated}; the file is damaged")
    for r in shard["records"]:
        part = data[r["byteOffset"] : r["byteOffset"] + r["nbytes"]]
        yield r["name"], _decode(r["dtype"], r["format"], tuple(r["shape"]), part)


# -- the cache of TVM's machine --------------------------------------------------------------------
_cache: dict[str, Any] = {}


def _load(path: str, device_type: int, device_id: int) -> None:
    """Put the tensors of a folder into the cache; they are on the host until a machine has them."""
    _cache.update(load(path)[0])


def _array(prefix: str, count: int) -> list[Any]:
    """The tensors ``prefix_0``, ``prefix_1``, ...: ``count`` of them, with -1 all there are."""
    found: list[Any] = []
    while count < 0 or len(found) < count:
        value = _cache.get(f"{prefix}_{len(found)}")
        if value is None:
            if count >= 0:
                raise RunError(f"the cache has no tensor {prefix}_{len(found)}")
            break
        found.append(value)
    return found


def _by_name(*names: Any) -> list[Any]:
    listed = len(names) == 1 and not isinstance(names[0], str)
    wanted: Iterable[str] = names[0] if listed else names
    if missing := [n for n in wanted if n not in _cache]:
        raise RunError(f"the cache has no tensor {', '.join(missing)}")
    return [_cache[n] for n in wanted]


def _put(name: str, value: Any, override: bool = False) -> None:
    if name in _cache and not override:
        raise RunError(f"the cache has a tensor {name} already; say override")
    _cache[name] = value


_FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "load": _load,
    "get": _cache.get,
    "update": _put,
    "remove": lambda name: _cache.pop(name, None),
    "clear": _cache.clear,
}
BUILTINS: Final[dict[str, Callable[..., Any]]] = {
    **{
        f"vm.builtin.{c}_cache.{k}": f for c in ("ndarray", "tensor") for k, f in _FUNCTIONS.items()
    },
    "vm.builtin.param_array_from_cache": _array,
    "vm.builtin.param_array_from_cache_by_name": _by_name,
    "vm.builtin.param_array_from_cache_by_name_unpacked": _by_name,
}
