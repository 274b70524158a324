"""ONNX files as messages whose tensors are numpy arrays. Files are treated as hostile (D12).

What is read besides the model itself is external data: regular files inside the model's directory,
reached without links, memory-mapped, with offset and length checked against the file and the shape.
"""

from __future__ import annotations

import math
import mmap
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import google.protobuf.message
import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, NodeProto, SparseTensorProto, TensorProto, numpy_helper

from relax2xla.dtypes import BY_ONNX, DType
from relax2xla.errors import FileFormatError
from relax2xla.importers.onnx.read import wire
from relax2xla.importers.shared.gaps import Unsupported

Array = npt.NDArray[Any]
MIN_IR_VERSION = 3
# A protobuf message cannot be larger; ONNX keeps the weights of larger models in other files.
PROTOBUF_LIMIT = 2**31 - 1
# A dense copy of a sparse tensor takes memory that the file does not show.
SPARSE_LIMIT = 1 << 30
# More is a length that no machine's memory holds; numpy would overflow on the way.
SIZE_LIMIT = 1 << 48
# Nodes of a model, those of its functions and subgraphs included. Exports of the largest networks
# have some ten thousand; a million would take minutes to import, and XLA does not compile them.
GRAPH_LIMIT = 1 << 18


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


class Source:
    """A model, and where bytes of its tensors lie besides the message."""

    def __init__(self, proto: ModelProto, directory: Folder | None, name: str) -> None:
        self.proto = proto
        self.directory = directory
        self.name = name


# What a model may be given as.
Model = ModelProto | bytes | str | os.PathLike[str] | Source


def read(model: Model) -> Source:
    """The model of a message, of a file or of a file's contents; a source is one already.

    Raises ``FileFormatError`` for what is no ONNX model and ``FileNotFoundError`` for a path where
    nothing is.
    """
    if isinstance(model, Source):
        return model
    if isinstance(model, ModelProto):
        return Source(_checked(model, "the model"), None, "the model")
    if isinstance(model, bytes | bytearray | memoryview):
        return _source(memoryview(bytes(model)), None, "the model")
    if not isinstance(model, str | os.PathLike):
        raise TypeError(
            f"from_onnx takes a ModelProto, a path or bytes; got {type(model).__name__}"
        )
    path = Path(model)
    if path.is_dir():
        raise FileFormatError(f"{path} is a directory; expected an ONNX file")
    if path.stat().st_size > PROTOBUF_LIMIT:
        raise FileFormatError(
            f"{path} is larger than 2 GiB, which no ONNX file can be; store its weights as "
            "external data: onnx.save(model, path, save_as_external_data=True)"
        )
    return _source(_mapped(path), path.parent, str(path))


def _mapped(path: Path) -> memoryview:
    """A file's bytes, read when they are needed; those of a small one at once."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size < wire.LARGE:
            return memoryview(file.read())
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _source(contents: memoryview, path: Path | None, name: str) -> Source:
    folder = Folder(path, contents)
    small = wire.cut(contents, folder.inside)
    if small is None:
        return Source(_parsed(bytes(contents), name), path and Folder(path), name)
    return Source(_parsed(small, name), folder, name)


def _parsed(contents: bytes, name: str) -> ModelProto:
    proto = ModelProto()
    try:
        proto.ParseFromString(contents)
    except (google.protobuf.message.DecodeError, ValueError) as e:
        if "depth" in str(e).lower():
            raise FileFormatError(
                f"{name} is nested too deeply: protobuf reads at most 100 messages inside of each "
                "other, which is 33 subgraphs"
            ) from e
        raise FileFormatError(
            f"{name} is not an ONNX model, or is truncated: {len(contents)} bytes that do not "
            "decode as a protobuf message. Export or copy it again"
        ) from e
    return _checked(proto, name)


def _checked(proto: ModelProto, name: str) -> ModelProto:
    if not proto.HasField("graph") or not (proto.graph.node or proto.graph.output):
        raise FileFormatError(
            f"{name} is not an ONNX model, or is truncated: it has no graph. "
            "Export or copy it again"
        )
    if proto.ir_version < MIN_IR_VERSION:
        raise FileFormatError(
            f"{name} has ir_version {proto.ir_version}; {MIN_IR_VERSION} (ONNX 1.1) or newer is "
            "supported. Convert it with onnx.version_converter"
        )
    try:
        "".join(_names(proto, name))
    except (TypeError, UnicodeDecodeError):
        raise FileFormatError(f"{name} has a name that is not UTF-8; is it damaged?") from None
    return proto


def _names(proto: ModelProto, model: str) -> list[str]:
    """All names of ``model``; protobuf gives those that are not UTF-8 as bytes."""
    nodes = 0
    found = [i.domain for i in proto.opset_import]
    graphs = [proto.graph]
    bodies: list[Sequence[NodeProto]] = []
    for f in proto.functions:
        found += [f.name, f.domain, f.overload, *f.input, *f.output, *f.attribute]
        found += [i.domain for i in f.opset_import]
        bodies.append(f.node)
    while graphs or bodies:
        if graphs:
            graph = graphs.pop()
            found.append(graph.name)
            found += [t.name for t in graph.initializer]
            found += [s.values.name for s in graph.sparse_initializer]
            for v in (*graph.input, *graph.output):
                found.append(v.name)
                found += [d.dim_param for d in v.type.tensor_type.shape.dim]
            bodies.append(graph.node)
        body = bodies.pop()
        nodes += len(body)
        if nodes > GRAPH_LIMIT:
            raise FileFormatError(
                f"{model} has more than {GRAPH_LIMIT:,} nodes; so many are not supported. Split it "
                "(onnx.utils.extract_model), or keep loops as Loop or Scan"
            )
        for node in body:
            found += (node.name, node.op_type, node.domain, node.overload)
            found += node.input
            found += node.output
            for a in node.attribute:
                found += (a.name, a.ref_attr_name)
                if a.HasField("g"):
                    graphs.append(a.g)
                graphs += a.graphs
    return found


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
    path = _inside(directory, entries.get("location", ""), what)
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


def _inside(directory: Path, location: str, what: str) -> Path:
    """The path of a location inside ``directory``; refuses links and everything that leads out."""
    pure = PurePosixPath(location)
    parts = pure.parts
    if (
        not parts
        or "\0" in location
        or "\\" in location
        or pure.is_absolute()
        or PureWindowsPath(location).drive
        or ".." in parts
    ):
        raise FileFormatError(
            f"{what} names the external data {location!r}; it must be a relative path inside the "
            "model's directory"
        )
    path = directory
    for part in parts:
        path = path / part
        if path.is_symlink():
            raise FileFormatError(
                f"{what}: the external data {location!r} is reached through a link ({part}), which "
                "is never followed. Copy the file beside the model"
            )
    return path


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


# -- the checker ---------------------------------------------------------------------------------
INLINE_LIMIT = 1 << 12


def complaints(proto: ModelProto) -> str | None:
    """What onnx's checker says against the model, or None.

    It sees large initializers as inputs of their type: their bytes are checked by :func:`tensor`,
    without two more copies of the weights.
    """
    graph = proto.graph
    bare = ModelProto()
    for field in ("ir_version", "producer_name", "domain", "model_version"):
        if proto.HasField(field):
            setattr(bare, field, getattr(proto, field))
    bare.opset_import.extend(proto.opset_import)
    bare.functions.extend(proto.functions)
    bare.graph.name = graph.name
    for field in ("node", "input", "output", "value_info", "sparse_initializer"):
        getattr(bare.graph, field).extend(getattr(graph, field))
    inputs = {i.name for i in graph.input}
    for t in graph.initializer:
        if t.data_location != TensorProto.EXTERNAL and math.prod(t.dims) <= INLINE_LIMIT:
            bare.graph.initializer.append(t)
        elif t.name not in inputs:
            info = onnx.helper.make_tensor_value_info(t.name, t.data_type, list(t.dims))
            bare.graph.input.append(info)
    try:
        onnx.checker.check_model(bare)
    except Exception as e:  # the checker's own errors, and those of its C++ side
        return str(e)
    return None
