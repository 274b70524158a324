"""Attributes of nodes as Python values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import AttributeProto, NodeProto, TensorProto

from relax2xla.errors import FileFormatError
from relax2xla.importers.onnx.read import tensors

Attributes = Mapping[str, AttributeProto]


def text(value: bytes) -> str:
    """A string attribute; what is not UTF-8 keeps its bytes as escapes."""
    return value.decode("utf-8", "backslashreplace")


def resolved(node: NodeProto, scope: Attributes) -> dict[str, AttributeProto]:
    """Attributes of a node; those that refer to the enclosing function's take its values.

    An attribute that refers to one the caller did not give is left out, as ONNX says.
    """
    found: dict[str, AttributeProto] = {}
    for a in node.attribute:
        if a.name in found:
            raise FileFormatError(f"the node {node.name!r} has the attribute {a.name!r} twice")
        if not a.ref_attr_name:
            found[a.name] = a
        elif a.ref_attr_name in scope:
            given = scope[a.ref_attr_name]
            if a.type not in (given.type, AttributeProto.UNDEFINED):
                raise FileFormatError(
                    f"the attribute {a.name!r} of the node {node.name!r} refers to "
                    f"{a.ref_attr_name!r}, which has another type"
                )
            found[a.name] = given
    return found


def value(proto: AttributeProto, directory: tensors.Folder | None) -> Any:
    """The value: int, float, str, numpy array, GraphProto, or a list of them."""
    kind = AttributeProto
    match proto.type:
        case kind.INT:
            return int(proto.i)
        case kind.FLOAT:
            return float(proto.f)
        case kind.STRING:
            return text(proto.s)
        case kind.TENSOR:
            if proto.t.data_type == TensorProto.STRING:
                return tensors.strings(proto.t)
            return tensors.tensor(proto.t, directory)
        case kind.GRAPH:
            return proto.g
        case kind.INTS:
            return [int(v) for v in proto.ints]
        case kind.FLOATS:
            return [float(v) for v in proto.floats]
        case kind.STRINGS:
            return [text(v) for v in proto.strings]
        case kind.SPARSE_TENSOR:
            return tensors.sparse(proto.sparse_tensor, directory)
        case kind.TENSORS:
            return [tensors.tensor(t, directory) for t in proto.tensors]
        case kind.GRAPHS:
            return list(proto.graphs)
        case kind.TYPE_PROTO:
            return proto.tp
        case _:
            raise FileFormatError(f"the attribute {proto.name!r} has the unknown type {proto.type}")
