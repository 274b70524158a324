"""Graphs as files of other viewers: model-explorer's JSON, and ONNX for Netron.

Both are for looking: neither can be run, nor read back.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np

from relax2xla.cli.page.graph import Graph, Group, Node
from relax2xla.cli.page.heat import Heat
from relax2xla.cli.page.texts import relax_texts
from relax2xla.dtypes import DTYPES, numpy_dtype
from relax2xla.errors import BudgetError
from relax2xla.ir.struct_info import show

#: The domain of operators in an ONNX file that is only looked at.
DOMAIN: Final = "relax2xla.view"
# A file of protobuf holds at most 2 GiB; what is meant to be looked at is smaller.
_MOST_BYTES: Final = 1 << 30


def _inside(graph: Graph, root: int) -> list[Node]:
    """The nodes of a function, those of its groups included, in order."""
    found: list[int] = []
    waiting = [root]
    while waiting:
        group: Group = graph.groups[waiting.pop()]
        found += group.nodes
        waiting += group.groups
    return [graph.nodes[i] for i in sorted(found)]


def _path(graph: Graph, node: Node) -> list[str]:
    """The groups around ``node`` but the function, from the outside in."""
    parts: list[str] = []
    at = node.group
    while graph.groups[at].parent >= 0:
        parts.append(graph.groups[at].label)
        at = graph.groups[at].parent
    return parts[::-1]


def model_explorer(graph: Graph, title: str, heat: Heat | None = None) -> str:
    """A graph collection as model-explorer reads it from a file: a graph for each function."""
    texts = relax_texts(graph)
    graphs = [
        {
            "id": graph.groups[root].label,
            "nodes": [_explored(graph, n, texts[n.index], heat) for n in _inside(graph, root)],
        }
        for root in graph.roots
    ]
    return json.dumps({"label": title, "graphs": graphs}, allow_nan=False)


def _explored(graph: Graph, node: Node, text: str, heat: Heat | None) -> dict[str, Any]:
    attrs = {"name": node.name, "source": node.source, "gives": node.info, "relax": text}
    for at in node.weights:
        info = graph.weights[at].struct_info_
        attrs[f"weight {graph.weight_names[at] or at}"] = show(info)
    made: dict[str, Any] = {
        "id": str(node.index),
        "label": node.label,
        # Slashes separate the parts of a namespace.
        "namespace": "/".join(p.replace("/", ".") for p in _path(graph, node)),
        "incomingEdges": [
            {"sourceNodeId": str(v), "sourceNodeOutputId": "0", "targetNodeInputId": str(i)}
            for i, (v, _) in enumerate(node.inputs)
        ],
        "outputsMetadata": [{"id": "0", "attrs": [{"key": "tensor_shape", "value": node.info}]}],
    }
    if heat is not None and node.index in heat.nodes:
        strength, attrs[heat.title] = heat.nodes[node.index]
        made["style"] = {"backgroundColor": _colour(strength)}
    made["attrs"] = [{"key": k, "value": v} for k, v in attrs.items() if v]
    return made


def _colour(strength: float) -> str:
    """From white to the red that the page has."""
    mixed = (round(255 + strength * (c - 255)) for c in (224, 49, 49))
    return "#" + "".join(f"{c:02x}" for c in mixed)


def netron(graph: Graph, title: str, heat: Heat | None = None) -> bytes:
    """The function ``main``, or the first one, as an ONNX model in a domain that nothing runs.

    Each operator is a node with its Relax text, modules are parts of its name, and weights are
    initializers. Raises BudgetError for weights above 1 GiB.
    """
    import onnx

    held = sum(w.data.nbytes for w in graph.weights)
    if held > _MOST_BYTES:
        raise BudgetError(
            f"the weights have {held:,} bytes, and an .onnx file to look at at most "
            f"{_MOST_BYTES:,}; write a page (.html), or .json for model-explorer"
        )
    h = onnx.helper
    labels = [graph.groups[r].label for r in graph.roots]
    nodes = _inside(graph, graph.roots[labels.index("main") if "main" in labels else 0])
    texts = relax_texts(graph)
    weights: dict[int, str] = {}
    for at in (w for n in nodes for w in n.weights):
        weights.setdefault(at, f"{graph.weight_names[at] or 'constant'}#{at}")

    names = {n.index: _value(n) for n in nodes}
    made: list[Any] = []
    for n in nodes:
        taken = [names[v] for v, _ in n.inputs] + [weights[w] for w in n.weights]
        if n.kind == "input":
            continue
        told = {"relax": texts[n.index], "gives": n.info, "source": n.source}
        if heat is not None and n.index in heat.nodes:
            told[heat.title] = heat.nodes[n.index][1]
        name = "/".join([*_path(graph, n), n.name])
        kind = "output" if n.kind == "output" else re.sub(r"\W", "_", n.label)
        row = h.make_node(kind, taken, [names[n.index]], name=name, domain=DOMAIN)
        row.attribute.extend(h.make_attribute(k, v) for k, v in told.items() if v)
        made.append(row)
    tensors = [_initializer(graph.weights[at].data, name) for at, name in weights.items()]
    main = h.make_graph(
        made,
        title,
        [_declared(n, names[n.index]) for n in nodes if n.kind == "input"],
        [_declared(n, names[n.index]) for n in nodes if n.kind == "output"],
        tensors,
        value_info=[_declared(n, names[n.index]) for n in nodes if n.values],
    )
    model = h.make_model(main, producer_name="relax2xla", opset_imports=[h.make_opsetid(DOMAIN, 1)])
    model.doc_string = "A picture of a program: its operators are Relax's, and no runtime has them."
    return model.SerializeToString()


def _value(node: Node) -> str:
    return f"{node.name or node.label}#{node.index}"


def _declared(node: Node, name: str) -> Any:
    """What is known of a value: its text is a dtype and sizes where it is a tensor."""
    from onnx import TensorProto, helper

    dtype, _, text = node.info.partition(" ")
    if dtype not in DTYPES:
        return helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None)
    dims = [] if text == "scalar" else text.split("×")
    sizes = None if "?" in text else [int(d) if d.isdigit() else d for d in dims]
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype)), sizes
    )


def _initializer(data: np.ndarray[Any, Any], name: str) -> Any:
    import onnx

    return onnx.numpy_helper.from_array(np.ascontiguousarray(data), name)
