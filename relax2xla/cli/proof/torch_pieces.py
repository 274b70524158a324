"""Parts of an exported program as programs of their own, for ``verify --bisect``."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from relax2xla.cli.proof.reproduce import Piece, grown
from relax2xla.errors import TVMError
from relax2xla.importers.torch.engine.tensor_data import as_numpy
from relax2xla.importers.torch.source.spans import Spans
from relax2xla.importers.torch.verification import Evaluated


def torch_pieces(made: Evaluated, name: str) -> Iterator[Piece]:
    """The node ``name``, then with more and more of what it is computed from, as .pt2 files.

    Tensors from elsewhere, weights among them, are inputs of a piece, and numbers are written into
    it; what is neither (the tuple of a split) comes with what needs it. A piece with which torch
    itself gives something else than within the model, because of a draw or a write through a view,
    is left out.

    Raises TVMError where that is all of them.
    """
    graph = made.program.module.graph
    order = {node: i for i, node in enumerate(graph.nodes)}
    (last,) = (node for node in graph.nodes if node.name == name)

    def before(node: Node) -> list[Node]:
        return [n for n in _needed(made, [node])[1] if n.op == "call_function"]

    found = False
    for chosen in grown(last, before, order.__getitem__):
        nodes, taken = _needed(made, chosen)
        module = _module(made, sorted(nodes, key=order.__getitem__), taken, last)
        tensors = [made.known[n].detach().clone() for n in taken]
        if _gives(module, tensors, made.known[last]):
            found = True
            yield _piece(module, chosen, taken, tensors)
    if not found:
        raise TVMError(
            f"--bisect: no part of the program gives in torch what {name} is within it, since it "
            "draws random numbers or reads what is written in place elsewhere"
        )


def _needed(made: Evaluated, chosen: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The nodes of a piece, with those that it cannot do without, and the tensors it takes."""
    nodes = list(chosen)
    taken: dict[Node, None] = {}
    for node in nodes:
        for n in node.all_input_nodes:
            if n in nodes or n in taken:
                continue
            if isinstance(made.known[n], torch.Tensor):
                taken[n] = None
            elif not _is_number(made.known[n]):
                nodes.append(n)
    return nodes, list(taken)


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, (bool, int, float, complex, str))


def _module(
    made: Evaluated, nodes: Sequence[Node], taken: Sequence[Node], last: Node
) -> GraphModule:
    """The nodes in a graph with ``taken`` as its inputs and ``last`` as its result."""
    graph = Graph()
    copied = {n: graph.placeholder(n.name) for n in taken}

    def argument(n: Node) -> Any:
        return copied[n] if n in copied else made.known[n]

    for node in nodes:
        copied[node] = graph.node_copy(node, argument)
    graph.output((copied[last],))
    return GraphModule(made.program.module, graph)


def _gives(module: GraphModule, tensors: Sequence[Any], want: Any) -> bool:
    """Whether torch gives the recorded value; it may write to its inputs, which are copied."""
    with torch.no_grad():
        (got,) = module(*(t.clone() for t in tensors))
    return got.dtype == want.dtype and torch.allclose(got, want, 1e-3, 1e-4, equal_nan=True)


def _piece(
    module: GraphModule, chosen: Sequence[Node], taken: Sequence[Node], tensors: Sequence[Any]
) -> Piece:
    with torch.no_grad():
        program = torch.export.export(module, tuple(tensors))
    data = io.BytesIO()
    torch.export.save(program, data)
    spans = Spans()
    paths = [(n, spans.of(n).name) for n in chosen]
    names = [f"{n.name} in {path}" if path else n.name for n, path in paths]
    inputs = {n.name: as_numpy(t) for n, t in zip(taken, tensors, strict=True)}
    return Piece(names, "model.pt2", data.getvalue(), inputs)
