"""Parts of an ONNX model as models of their own, for ``verify --bisect``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from relax2xla.cli.proof.reproduce import Piece, grown
from relax2xla.errors import TVMError


def onnx_pieces(model: ModelProto, output: str, values: Mapping[str, Any]) -> Iterator[Piece]:
    """The node that makes ``output``, then with more and more of what it is computed from.

    values: what the reference has for the graph's inputs and the results of its nodes

    Raises TVMError for inputs that are no arrays.
    """
    makers = {o: node for node in model.graph.node for o in node.output if o}
    order = {id(node): i for i, node in enumerate(model.graph.node)}

    def before(node: NodeProto) -> list[NodeProto]:
        return [makers[n] for n in _read(node) if n in makers]

    for nodes in grown(makers[output], before, lambda node: order[id(node)]):
        made, inputs = _model(model, nodes, values)
        names = [n.name or n.output[0] for n in nodes]
        yield Piece(names, "model.onnx", made.SerializeToString(), inputs)


def _read(node: NodeProto) -> list[str]:
    """The names that a node reads, those that its subgraphs take from outside included."""
    found = [name for name in node.input if name]
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            inside = {i.name for i in (*graph.input, *graph.initializer)}
            for inner in graph.node:
                found += [name for name in _read(inner) if name not in inside]
                inside.update(inner.output)
            found += [o.name for o in graph.output if o.name not in inside]
    return list(dict.fromkeys(found))


def _model(
    model: ModelProto, nodes: Sequence[NodeProto], values: Mapping[str, Any]
) -> tuple[ModelProto, dict[str, Any]]:
    graph = model.graph
    made = {o for node in nodes for o in node.output}
    needed = [n for n in dict.fromkeys(n for node in nodes for n in _read(node)) if n not in made]
    weights = [t for t in graph.initializer if t.name in needed]
    sparse = [t for t in graph.sparse_initializer if t.values.name in needed]
    held = {*(t.name for t in weights), *(t.values.name for t in sparse)}
    taken = {name: values.get(name) for name in needed if name not in held}
    for name, value in taken.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS":
            raise TVMError(
                f"--bisect: the piece reads {name!r}, which is no array of numbers, and no .npz "
                "holds it"
            )
    results = {name: values.get(name) for name in nodes[-1].output if name}
    piece = helper.make_graph(
        list(nodes),
        f"{graph.name or 'graph'}, from {nodes[0].name or nodes[0].output[0]}",
        [_declared(n, v) for n, v in taken.items()],
        [_declared(n, v) for n, v in results.items()],
        weights,
        sparse_initializer=sparse,
    )
    whole = helper.make_model(piece, opset_imports=model.opset_import, functions=model.functions)
    whole.ir_version = model.ir_version
    return whole, taken


def _declared(name: str, value: Any) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS":
        return ValueInfoProto(name=name)  # what the node makes of it, runtimes find out
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
    )
