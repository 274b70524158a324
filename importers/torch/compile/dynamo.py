"""Graphs of TorchDynamo as one IRModule."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.fx import Graph, GraphModule, Node

from relax2xla.errors import UnsupportedError
from relax2xla.importers.torch.engine.fx import from_fx
from relax2xla.importers.torch.source.torch_internals import reset_dynamo
from relax2xla.ir import Function, IRModule

# A step from a module to one in it, or to a weight.
_STEP = re.compile(r"\._(modules|parameters|buffers)\['([^']+)'\]")

#: The documented type of ``dynamo_capture_subgraphs``' result: the module itself.
ImporterOutput = IRModule


def dynamo_capture_subgraphs(
    model: Callable[..., Any], *params: Any, keep_params_as_input: bool = False, **kwargs: Any
) -> ImporterOutput:
    """The graphs into which ``torch.compile`` divides a call of ``model``, as one IRModule.

    model:   a module or a function; it is called as ``model(*params, **kwargs)``
    result:  functions ``subgraph_0``, ``subgraph_1``, ... in the order in which torch comes to
             them. A graph's one result is returned without a tuple. With ``keep_params_as_input``
             each has the attribute ``params`` (see ``detach_params``)

    Raises ``OpNotImplemented`` with what cannot be converted, and UnsupportedError where torch
    captures no graph.
    """
    return captured(model, params, kwargs, keep_params_as_input)


def captured(
    model: Callable[..., Any],
    params: Sequence[Any],
    kwargs: Mapping[str, Any],
    keep_params_as_input: bool | None,
) -> IRModule:
    """See :func:`dynamo_capture_subgraphs`; None leaves weights the inputs that torch makes them.

    They have no attribute ``params`` then, and stand where torch comes to them.
    """
    functions: dict[str, Function] = {}

    def capture(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        info: list[tuple[tuple[int, ...], str]] = []
        own = graph
        if keep_params_as_input is not None:
            own, inputs = _with_weights(graph, inputs)
        for x in inputs:
            if not isinstance(x, torch.Tensor):
                raise UnsupportedError(
                    f"torch.compile passes a {type(x).__name__} into a graph; call the model with "
                    "tensors of fixed shapes"
                )
            info.append((tuple(int(d) for d in x.shape), str(x.dtype)))
        made = from_fx(
            own,
            info,
            keep_params_as_input=bool(keep_params_as_input),
            unwrap_unit_return_tuple=True,
        )
        name = f"subgraph_{len(functions)}"
        function = made["main"]
        assert isinstance(function, Function)
        functions[name] = function.with_attr("global_symbol", name)
        return graph.forward

    reset_dynamo()
    with torch.no_grad():
        torch.compile(model, backend=capture, dynamic=False)(*params, **kwargs)
    reset_dynamo()
    if not functions:
        raise UnsupportedError(
            f"torch.compile captured no graph of {getattr(model, '__name__', type(model).__name__)}"
            "; see TORCH_LOGS=graph_breaks"
        )
    module = IRModule({})
    for name, function in functions.items():
        module[name] = function
    return module


def _with_weights(graph: GraphModule, inputs: Sequence[Any]) -> tuple[GraphModule, list[Any]]:
    """A copy of a graph in which weights are attributes again, and the inputs that are left.

    TorchDynamo passes the weights of modules as inputs; their sources tell their names.
    """
    copied: dict[Node, Node] = {}
    inner = Graph()
    inner.output(inner.graph_copy(graph.graph, copied))
    made = GraphModule(graph, inner)
    placeholders = [n for n in graph.graph.nodes if n.op == "placeholder"]
    rest: list[Any] = []
    taken: set[str] = set()
    for node, value in zip(placeholders, inputs, strict=True):
        steps = _STEP.findall(_source(node))
        if not steps or steps[-1][0] == "modules" or not isinstance(value, torch.Tensor):
            rest.append(value)
            continue
        *path, name = (step for _, step in steps)
        while ".".join([*path, name]) in taken:
            name += "_"
        taken.add(".".join([*path, name]))
        home: nn.Module = made
        for part in path:
            if part not in dict(home.named_children()):
                home.add_module(part, nn.Module())
            home = home.get_submodule(part)
        if isinstance(value, nn.Parameter):
            home.register_parameter(name, value)
        else:
            home.register_buffer(name, value)
        old = copied[node]
        with inner.inserting_before(old):
            old.replace_all_uses_with(inner.get_attr(".".join([*path, name])))
        inner.erase_node(old)
    made.recompile()
    return made, rest


def _source(node: Node) -> str:
    """Where TorchDynamo found an input, such as ``L['self']._modules['a']._parameters['b']``."""
    argument = node.meta.get("grapharg")
    name: Any = getattr(getattr(argument, "source", None), "name", "")
    return str(name() if callable(name) else name)
