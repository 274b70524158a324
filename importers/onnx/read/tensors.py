"""The tensors of ONNX messages as numpy arrays. Files are treated as hostile (D12).

What is read besides the message itself is external data: regular files inside the model's
directory, reached without links, memory-mapped, with offset and length checked against the file
and the shape.
"""

from __future__ import annotations

import math
import mmap
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from onnx import SparseTensorProto, TensorProto, numpy_helper

from relax2xla.dtypes import BY_ONNX, DType
from relax2xla.errors import FileFormatError
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.paths import inside

Array = npt.NDArray[Any]
# A dense copy of a sparse tensor takes memory that the file does not show.
SPARSE_LIMIT = 1 << 30
# More is a length that no machine's memory holds; numpy would overflow on the way.
SIZE_LIMIT = 1 << 48


class Folder:
    """Where bytes of tensors lie besides the message: in ``path`` (None: nowhere), and in the
    model's own ``contents``, from which large initializers were cut out.
    """

    def __init__(self, path: Path | None, contents: memoryview | None = None) -> None:
        self.path = path
        self.contents = contents
        # What no file can name: the location of what was cut out.
        self.inside = secrets.token_hex(16)

    def own(self, proto: TensorProto) -> memoryview | Array | None:
        """The bytes of a tensor that was cut out of the model.

        Those of a file are copied: models are written again under the same name, which must not
        change what was read.
        """
        found = {e.key: e.value for e in proto.external_data}
        if self.contents is None or found.get("location") != self.inside:
            return None
        start, size = int(found["offset"]), int(found["length"])
        raw = self.contents[start : start + size]
        if not isinstance(self.contents.obj, mmap.mmap):
            return raw
        made = np.frombuffer(raw, np.uint8).copy()
        if hasattr(mmap, "MADV_DONTNEED"):
            # The pages of the file need not stay in memory beside the copy.
            page = start // mmap.PAGESIZE * mmap.PAGESIZE
            self.contents.obj.madvise(mmap.MADV_DONTNEED, page, start + size - page)
        return made


def dtype_of_code(code: int, what: str) -> DType:
    """The dtype of a number in ``TensorProto.DataType``."""
    if code in BY_ONNX:
        return BY_ONNX[code]
    if code == TensorProto.STRING:
        raise Unsupported(f"{what} holds strings")
    raise FileFormatError(f"{what} has the unknown data type {code}")


def tensor(proto: TensorProto, directory: Folder | None = None) -> Array:
    """A tensor's values, as views of its bytes where the encoding allows.

    Raises ``FileFormatError`` where the bytes do not fit dtype and shape.
    """
    what = f"the tensor {proto.name!r}" if proto.name else "an unnamed tensor"
    info = dtype_of_code(proto.data_type, what)
    shape, count = _shape(proto.dims, what)
    if proto.HasField("segment"):
        raise FileFormatError(f"{what} is stored in segments, which ONNX never defined")
    want = (count * info.bits + 7) // 8 if _packed(info) else count * info.nbytes
    raw: Any = None if directory is None else directory.own(proto)
    if raw is None and proto.data_location == TensorProto.EXTERNAL:
        folder = None if directory is None else directory.path
        return _view(_external(proto, want, folder, what), info, shape)
    if raw is None and not proto.HasField("raw_data"):
        return _typed(proto, info, shape, count, what)
    raw = proto.raw_data if raw is None else raw
    if len(raw) != want:
        raise FileFormatError(
            f"{what} of shape {shape} and {info.name} needs {want} bytes; it has {len(raw)}"
        )
    return _view(raw, info, shape)


def _packed(info: DType) -> bool:
    """Whether several values share a byte."""
    return info.bits < 8 and info.kind != "bool"


def _shape(dims: Sequence[int], what: str) -> tuple[tuple[int, ...], int]:
    shape = tuple(dims)
    count = math.prod(shape)
    # Beside a 0 the others must fit numpy, too.
    if (
        any(d < 0 for d in shape)
        or math.prod(d or 1 for d in shape) > SIZE_LIMIT
        or len(shape) > 64
    ):
        raise FileFormatError(f"{what} has the impossible shape {shape}")
    return shape, count


def _view(raw: Any, info: DType, shape: tuple[int, ...]) -> Array:
    """Bytes as an array: a view, or a copy where values share bytes or the bytes are unaligned."""
    data = np.frombuffer(raw, np.uint8)
    if info.kind == "bool":
        return (data != 0).reshape(shape)
    if _packed(info):
        return _unpacked(data, info, math.prod(shape)).reshape(shape)
    if data.ctypes.data % info.nbytes:
        data = data.copy()
    return data.view(info.numpy).reshape(shape)


def _unpacked(data: Array, info: DType, count: int) -> Array:
    """Values of less than a byte each, the first one in the lowest bits."""
    shifts = np.arange(0, 8, info.bits, dtype=np.uint8)
    values = (data[:, None] >> shifts) & np.uint8((1 << info.bits) - 1)
    return values.reshape(-1)[:count].view(info.numpy)


def strings(proto: TensorProto) -> Array:
    """The strings of a tensor, as an array of dtype object."""
    what = f"the tensor {proto.name!r}" if proto.name else "an unnamed tensor"
    shape, count = _shape(proto.dims, what)
    if len(proto.string_data) != count:
        raise FileFormatError(
            f"{what} of shape {shape} needs {count} strings; it has {len(proto.string_data)}"
        )
    made = np.empty(count, object)
    made[:] = [v.decode("utf-8", "surrogateescape") for v in proto.string_data]
    return made.reshape(shape)


# The typed field of each kind of values, and how many entries of it make one value.
_FIELDS = (
    ("float_data", {"float32": 1, "complex64": 2}),
    ("double_data", {"float64": 1, "complex128": 2}),
    ("int64_data", {"int64": 1}),
    ("uint64_data", {"uint64": 1, "uint32": 1}),
)


def _typed(proto: TensorProto, info: DType, shape: tuple[int, ...], count: int, what: str) -> Array:
    field, each = "int32_data", 1
    for name, kinds in _FIELDS:
        if info.name in kinds:
            field, each = name, kinds[info.name]
    entries = len(getattr(proto, field))
    # An entry holds a byte of values that share one.
    wanted = -(-count * info.bits // 8) if _packed(info) else count * each
    if entries != wanted:
        raise FileFormatError(
            f"{what} of shape {shape} and {info.name} needs {wanted} values in {field}; it has "
            f"{entries}"
        )
    if _packed(info):
        return _view(np.array(proto.int32_data, np.int32).astype(np.uint8), info, shape)
    return np.asarray(numpy_helper.to_array(proto)).astype(info.numpy, copy=False).reshape(shape)


# -- external data -------------------------------------------------------------------------------
def _external(proto: TensorProto, nbytes: int, directory: Path | None, what: str) -> Array:
    """The ``nbytes`` of a tensor in another file, mapped."""
    entries = {e.key: e.value for e in proto.external_data}
    if directory is None:
        raise FileFormatError(
            f"{what} is stored in another file; pass the model's path, or load the data first with "
            "onnx.load_external_data_for_model"
        )
    path = inside(directory, entries.get("location", ""), what)
    offset = _number(entries.get("offset", "0"), "offset", what)
    length = _number(entries.get("length", str(nbytes)), "length", what)
    if length != nbytes:
        raise FileFormatError(
            f"{what} needs {nbytes} bytes; its external data has the length {length}"
        )
    descriptor = _opened(path, what)
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise FileFormatError(f"{what}: {path.name} is not a regular file")
        if offset + length > status.st_size:
            raise FileFormatError(
                f"{what} lies at bytes {offset} to {offset + length} of {path.name}, which has "
                f"only {status.st_size}"
            )
        if nbytes == 0:
            return np.empty(0, np.uint8)
        return np.asarray(np.memmap(file, np.uint8, "r", offset, (nbytes,)))


def _number(text: str, key: str, what: str) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 18:
        raise FileFormatError(
            f"{what}: the external data's {key} {text!r} is not a length in bytes"
        )
    return int(text)


def _opened(path: Path, what: str) -> int:
    flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        return os.open(path, flags)
    except OSError as e:
        raise FileFormatError(
            f"{what}: its external data {path.name!r} cannot be read: {e.strerror}"
        ) from e


def sparse(proto: SparseTensorProto, directory: Folder | None = None) -> Array:
    """A sparse tensor as a dense array."""
    what = f"the sparse tensor {proto.values.name!r}"
    shape, count = _shape(proto.dims, what)
    values, indices = tensor(proto.values, directory), tensor(proto.indices, directory)
    if count * values.itemsize > SPARSE_LIMIT:
        raise FileFormatError(f"{what} of shape {shape} is too large to be made dense")
    if indices.dtype != np.int64 or indices.shape[1:] not in ((), (len(shape),)):
        raise FileFormatError(
            f"{what}: its indices are {indices.dtype} of shape {indices.shape}; expected int64 of "
            f"(count,) or (count, {len(shape)})"
        )
    linear = (
        indices.reshape(-1) if indices.ndim < 2 else indices @ np.array(_strides(shape), np.int64)
    )
    if len(linear) != values.size or (
        linear.size and not (linear.min() >= 0 and linear.max() < count)
    ):
        raise FileFormatError(f"{what}: its indices do not fit the shape {shape}")
    dense = np.zeros(count, values.dtype)
    dense[linear] = values.reshape(-1)
    return dense.reshape(shape)


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]
