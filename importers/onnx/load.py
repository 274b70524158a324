"""ONNX files with sizes by name, as the command line gives them; and with every value a result."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from onnx import GraphProto, ModelProto, NodeProto

from relax2xla.errors import TVMError
from relax2xla.importers.onnx.engine.model import from_onnx
from relax2xla.importers.onnx.read.source import read
from relax2xla.ir import IRModule
from relax2xla.ir.source_names import identifier

# Sizes of symbolic dimensions by name, or the whole shape of an input by its name.
Shapes = Mapping[str, int | Sequence[int]]


def load(path: Path, shapes: Shapes, taps: Iterable[str] = ()) -> IRModule:
    """The model in a file; ``taps``: values inside of its graph that are results as well.

    Raises as :func:`from_onnx`, and TVMError for shapes of what the model does not have.
    """
    source = read(path)
    add_outputs(source.proto, taps)
    return from_onnx(source, _shape_dict(source.proto.graph, shapes) if shapes else None)


def input_names(graph: GraphProto) -> list[str]:
    """The inputs that are no weights, in order: what a caller gives."""
    weights = {t.name for t in graph.initializer}
    weights |= {s.values.name for s in graph.sparse_initializer}
    return [i.name for i in graph.input if i.name not in weights]


def makers(graph: GraphProto) -> dict[str, NodeProto]:
    """The node of ``graph`` that makes each value, in the order of the nodes."""
    return {o: node for node in graph.node for o in node.output if o}


def add_outputs(proto: ModelProto, names: Iterable[str]) -> None:
    """Make values of the graph outputs of it, after those that it has."""
    for name in names:
        proto.graph.output.add(name=name)


def _shape_dict(graph: GraphProto, shapes: Shapes) -> dict[str, list[int | str]]:
    """Shapes by the model's own input names; sizes given by a dimension's name are filled in."""
    names = set(input_names(graph))
    inputs = {i.name: i.type.tensor_type for i in graph.input if i.name in names}
    # Parameters have names that are identifiers; either name is right here.
    identifiers: dict[str, str] = {}
    for name in inputs:
        identifiers[identifier(name, identifiers, each=True)] = name
    made: dict[str, list[int | str]] = {}
    known: list[str] = []
    # What the dimensions of each input are given as by their names, in order.
    by_name: dict[str, list[tuple[str, int | None]]] = {name: [] for name in inputs}
    for name, tensor in inputs.items():
        dims: list[int | str] = []
        for at, d in enumerate(tensor.shape.dim):
            if d.HasField("dim_value"):
                dims.append(d.dim_value)
                by_name[name].append(("", None))
                continue
            label = d.dim_param or f"{name}_{at}"
            # What Relax calls it is right, too.
            own = identifier(label, prefix="dim", each=True)
            known += [label, own]
            size = shapes.get(label, shapes.get(own))
            by_name[name].append((label, size if isinstance(size, int) else None))
            dims.append(size if isinstance(size, int) else label)
        if any(k in shapes for k in known):
            made[name] = dims
    for key, value in shapes.items():
        name = key if key in inputs else identifiers.get(key)
        if isinstance(value, int) and key in known:
            continue
        if isinstance(value, int) and name is None:
            raise TVMError(
                f"there is no symbolic dimension {key!r}; there are "
                f"{', '.join(dict.fromkeys(known)) or 'none: every dimension is known'}"
            )
        if name is None:
            raise TVMError(f"there is no input {key!r}; there are {', '.join(inputs)}")
        # A number is the shape of an input of rank 1.
        sizes: list[int | str] = [value] if isinstance(value, int) else list(value)
        for size, (label, said) in zip(sizes, by_name[name], strict=False):
            if said not in (None, size):
                raise TVMError(f"the dimension {label!r} of {key!r} is given as {said} and {size}")
        made[name] = sizes
    return made
