"""``verify --bisect``: the part of an ONNX model that departs, as a model with its inputs.

The first node that departs is tried alone, on the values that the reference has for its inputs. If
it agrees then, what departs needs its neighbours (a fusion, for instance), and the nodes before it
are taken in, twice as many each time, until the piece departs as well.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto, helper

from relax2xla.errors import TVMError
from relax2xla.importers.files import write_atomically

MODEL, INPUTS, SCRIPT = "model.onnx", "inputs.npz", "reproduce.py"

_TEXT: Final = '''"""The nodes {nodes} alone: relax2xla beside ONNX Runtime and onnx.reference.

Options of relax2xla verify may follow, such as --taps or --json.
"""

import sys
from pathlib import Path

from relax2xla.cli import main

here = Path(__file__).parent
inputs = ["--inputs", str(here / "{inputs}")]
sys.exit(main(["verify", str(here / "{model}"), *inputs, *{options!r}, *sys.argv[1:]]))
'''


def reproduce(
    folder: Path,
    model: ModelProto,
    output: str,
    values: Mapping[str, Any],
    departs: Callable[[Path, Path], bool],
    options: Sequence[str],
) -> tuple[list[str], bool]:
    """Write the smallest piece around the node that makes ``output`` which departs, and its script.

    values: what the reference has for the graph's inputs and the results of its nodes
    departs: whether a model, on inputs in a file, gives something else than the reference
    options: of ``verify``, for the script

    Gives the names of the piece's nodes, and whether it departs. Raises TVMError for inputs that
    are no arrays, and for a folder that cannot be written to.
    """
    nodes: list[NodeProto] = []
    departed = False
    for piece in _pieces(model.graph, output):
        made, inputs = _model(model, piece, values)
        nodes = piece
        _write(folder, made, inputs)
        if departed := departs(folder / MODEL, folder / INPUTS):
            break
    names = [n.name or n.output[0] for n in nodes]
    text = _TEXT.format(nodes=", ".join(names), inputs=INPUTS, model=MODEL, options=list(options))
    write_atomically(folder / SCRIPT, lambda file: file.write(text.encode()))
    return names, departed


def check_folder(folder: Path) -> None:
    """TVMError where the folder is a file, or what it is to be in does not exist."""
    if folder.exists() and not folder.is_dir():
        raise TVMError(f"--bisect {folder}: that is a file; name a folder, which is made")
    if not folder.parent.is_dir():
        raise TVMError(f"--bisect {folder}: there is no directory {folder.parent}")


def _pieces(graph: GraphProto, output: str) -> Iterator[list[NodeProto]]:
    """The node that makes ``output``, then with more and more of what it is computed from."""
    makers = {o: node for node in graph.node for o in node.output if o}
    order = {id(node): i for i, node in enumerate(graph.node)}
    chosen = [makers[output]]
    known = {id(chosen[0])}
    # Nearest first.
    for node in chosen:
        for name in _read(node):
            made = makers.get(name)
            if made is not None and id(made) not in known:
                known.add(id(made))
                chosen.append(made)
    size = 1
    while True:
        yield sorted(chosen[:size], key=lambda node: order[id(node)])
        if size >= len(chosen):
            return
        size *= 2


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


def _write(folder: Path, model: ModelProto, inputs: Mapping[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **inputs)
    write_atomically(folder / INPUTS, lambda file: file.write(data.getvalue()))
    text = model.SerializeToString()
    write_atomically(folder / MODEL, lambda file: file.write(text))
