"""Decompositions put in the place of single nodes of a graph.

``run_decompositions`` of torch traces a program anew as a whole, which takes it fifty times as long
as the import. Here torch traces the decomposition of a node alone, for what the graph says of its
operands.
"""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch.export.graph_signature import CustomObjArgument
from torch.fx import Graph, GraphModule, Node

from relax2xla.importers.torch.source.decompositions import Table, is_ours
from relax2xla.importers.torch.source.inplace import is_mutable
from relax2xla.importers.torch.source.program import Program
from relax2xla.importers.torch.source.torch_internals import (
    detect_fake_mode,
    dispatch_functionalize,
    enable_python_dispatcher,
    free_unbacked_symbols,
    make_fx,
    pytree,
)

#: Meta data of a node: the operators that it was made of, which it is not decomposed into again.
ORIGIN = "relax2xla_origin"
#: Where a node stands in the user's source: what is made of it stands there too.
PLACE = ("stack_trace", "nn_module_stack")


class NotSpliced(Exception):
    """A node whose decomposition cannot stand in its place; torch traces the program instead."""


def spliced(program: Program, nodes: Collection[Node], table: Table) -> Program:
    """The program with the decompositions of those of ``nodes`` that are in ``table``.

    Its ``decompose`` is that of ``program``: it starts from there. Raises :class:`NotSpliced`.
    """
    todo = [
        n
        for n in program.module.graph.nodes
        if n in nodes
        and n.target in table
        and n.target not in n.meta.get(ORIGIN, ())
        and isinstance(n.meta["val"], torch.Tensor | tuple | list)  # sizes stand on what failed
    ]
    if not todo:
        raise NotSpliced("the operators are within branches and loops")
    for node in todo:
        # What it writes to has other readers than those of its result.
        if is_mutable(node.target):
            raise NotSpliced(f"{node.target} writes in place")
    graph, copies = Graph(), dict[Node, Node]()
    graph.output(graph.graph_copy(program.module.graph, copies))
    module = GraphModule(program.module, graph)
    mode = detect_fake_mode([n.meta.get("val") for n in graph.nodes])
    for node in todo:
        _splice(module, copies[node], table[node.target], mode)
    inputs = [dataclasses.replace(i, node=copies[i.node]) for i in program.inputs]
    return dataclasses.replace(program, module=module, inputs=inputs)


def _splice(module: GraphModule, node: Node, function: Callable[..., Any], mode: Any) -> None:
    """Replace a node by the graph of ``function`` of its arguments."""
    leaves, spec = pytree.tree_flatten((node.args, node.kwargs))
    operands = list(dict.fromkeys(x for x in leaves if isinstance(x, Node)))

    def call(*values: Any) -> Any:
        known = dict(zip(operands, values, strict=True))
        given = [known[x] if isinstance(x, Node) else x for x in leaves]
        args, kwargs = pytree.tree_unflatten(given, spec)
        made = function(*map(_mutable, args), **{k: _mutable(v) for k, v in kwargs.items()})
        return tuple(made) if isinstance(made, tuple) else made  # without names of the fields

    values, expected = [n.meta["val"] for n in operands], node.meta["val"]
    if any(isinstance(v, CustomObjArgument) for v in values):
        raise NotSpliced(f"{node.target} takes an object")
    if free_unbacked_symbols(expected) - free_unbacked_symbols(values):
        raise NotSpliced(f"{node.target} makes a size that depends on data")
    try:
        part = _traced(call, values, mode, is_ours(node.target))
    except Exception as e:
        raise NotSpliced(f"{node.target}: {e}") from e
    results = _inlined(module, node, part, operands)
    if isinstance(expected, torch.Tensor):
        _replace(node, results, expected)
        return
    for user in list(node.users):
        if user.target is not operator.getitem:
            raise NotSpliced(f"{user.target} takes all results of {node.target}")
        at: Any = user.args[1]
        _replace(user, results[at], expected[at])
    module.graph.erase_node(node)


def _mutable(argument: Any) -> Any:
    """Lists of a graph as those that a call gets, which may be changed."""
    return list(argument) if isinstance(argument, list) else argument


def _traced(
    function: Callable[..., Any], values: Sequence[Any], mode: Any, composite: bool
) -> GraphModule:
    """The graph of a function of fake tensors; ``composite``: with composite operators whole."""
    with torch.no_grad(), enable_python_dispatcher(), mode:
        made = make_fx(function, pre_dispatch=composite)(*values)
        if any(is_mutable(n.target) for n in made.graph.nodes):
            made = make_fx(dispatch_functionalize(function))(*values)
    made.graph.eliminate_dead_code()
    return made


def _inlined(module: GraphModule, node: Node, part: GraphModule, operands: Sequence[Node]) -> Any:
    """Put the nodes of ``part`` before ``node``; gives what it returns."""
    origin = {*node.meta.get(ORIGIN, ()), node.target}
    place = {k: node.meta[k] for k in PLACE if k in node.meta}
    given = iter(operands)
    known: dict[Node, Node] = {}
    with module.graph.inserting_before(node):
        for inner in part.graph.nodes:
            if inner.op == "placeholder":
                known[inner] = next(given)
                continue
            if inner.op == "output":
                return pytree.tree_map_only(Node, known.__getitem__, inner.args[0])
            if inner.op == "get_attr":
                value = getattr(part, str(inner.target))
                if type(value) is not torch.Tensor:
                    raise NotSpliced(f"{node.target} has a constant {type(value).__name__}")
                name = f"{node.name}_{inner.target}"
                setattr(module, name, value)
                known[inner] = module.graph.get_attr(name)
            else:
                known[inner] = module.graph.node_copy(inner, known.__getitem__)
            known[inner].meta = {**place, ORIGIN: origin, "val": inner.meta.get("val")}
    raise NotSpliced(f"the decomposition of {node.target} gives nothing")


def _replace(node: Node, made: Any, expected: Any) -> None:
    """Let the users of a node take ``made``, of which is known what was known of the node."""
    if isinstance(made, Node):
        value = made.meta["val"]
        if isinstance(value, torch.Tensor) and ORIGIN in made.meta:
            if value.dtype != expected.dtype or value.ndim != expected.ndim:
                raise NotSpliced(f"{node} is {expected}, but its decomposition {value}")
            made.meta["val"] = expected
        node.replace_all_uses_with(made)
    elif node.users:
        raise NotSpliced(f"{node} is {made}")
    node.graph.erase_node(node)
