"""What an ONNX model says of the inputs that it takes."""

from __future__ import annotations

from pathlib import Path

from onnx import TensorProto, TypeProto

from relax2xla.cli.reading.values import Declared
from relax2xla.importers.onnx.load import input_names
from relax2xla.importers.onnx.read.source import read
from relax2xla.importers.onnx.read.tensors import dtype_of_code


def declared(file: Path) -> dict[str, Declared]:
    """What a model says of its inputs that are no tensors of numbers, by name."""
    graph = read(file).proto.graph
    names = set(input_names(graph))
    found = {i.name: _declared(i.type) for i in graph.input if i.name in names}
    return {name: kind for name, kind in found.items() if kind is not None}


def _declared(proto: TypeProto) -> Declared | None:
    """None for tensors of numbers, and where the type is not stated."""
    optional = proto.HasField("optional_type")
    inner = proto.optional_type.elem_type if optional else proto
    sequence = inner.HasField("sequence_type")
    inner = inner.sequence_type.elem_type if sequence else inner
    keys = ""
    if inner.HasField("map_type"):
        keys = "string" if inner.map_type.key_type == TensorProto.STRING else "int64"
        inner = inner.map_type.value_type
    tensor = inner.tensor_type
    if not inner.HasField("tensor_type") or tensor.elem_type == TensorProto.UNDEFINED:
        return None
    text = tensor.elem_type == TensorProto.STRING
    if not (optional or sequence or keys or text):
        return None
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(
            d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim
        )
    dtype = "" if text else dtype_of_code(tensor.elem_type, "an input").name
    return Declared(dtype, sequence, optional, keys, dims)
