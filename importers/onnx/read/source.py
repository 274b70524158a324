"""ONNX models as messages: of files, bytes or a message itself, checked before anything is read.

Files are treated as hostile (D12); where the bytes of tensors lie, :mod:`.tensors` reads them.
"""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import google.protobuf.message
import onnx
from onnx import ModelProto, NodeProto, TensorProto

from relax2xla.errors import FileFormatError
from relax2xla.importers.onnx.read.large_initializers import LARGE, cut
from relax2xla.importers.onnx.read.tensors import Folder

MIN_IR_VERSION = 3
# A protobuf message cannot be larger; ONNX keeps the weights of larger models in other files.
PROTOBUF_LIMIT = 2**31 - 1
# Nodes of a model, those of its functions and subgraphs included. Exports of the largest networks
# have some ten thousand; a million would take minutes to import, and XLA does not compile them.
GRAPH_LIMIT = 1 << 18


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
        if size < LARGE:
            return memoryview(file.read())
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _source(contents: memoryview, path: Path | None, name: str) -> Source:
    folder = Folder(path, contents)
    small = cut(contents, folder.inside)
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
