"""``default_image_layout``: graphs whose resizing takes images with their channels last.

torch resizes images with channels first only; programs that keep them last mean the axes between
the first and the last.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.nn.functional import interpolate

FIRST = ("NCW", "NCHW", "NCDHW")
LAST = ("NWC", "NHWC", "NDHWC")


def channels_last(layout: str) -> bool:
    """Whether a layout has channels last; raises ``ValueError`` for one that is not known."""
    if layout not in FIRST + LAST:
        raise ValueError(
            f"default_image_layout is {layout!r}; expected one of {', '.join(FIRST + LAST)}"
        )
    return layout in LAST


def callee(node: Node, modules: Mapping[str, Any], last: bool) -> Any:
    """The function or module that a node calls; ``last``: resizing takes channels last."""
    found: Any = modules[str(node.target)] if node.op == "call_module" else node.target
    resizes = found is interpolate or isinstance(found, torch.nn.Upsample)
    return _with_channels_last(found) if last and resizes else found


def _with_channels_last(resize: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    @functools.wraps(interpolate)
    def resize_last(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        return resize(input.movedim(-1, 1), *args, **kwargs).movedim(1, -1)

    return resize_last


def resizing_channels_last(model: GraphModule) -> GraphModule:
    """A copy of a graph module that resizes images with channels last."""
    graph, modules = Graph(), dict(model.named_modules())
    graph.output(graph.graph_copy(model.graph, {}))
    for node in [n for n in graph.nodes if n.op in ("call_function", "call_module")]:
        found = callee(node, modules, True)
        if found is callee(node, modules, False):
            continue
        with graph.inserting_before(node):
            node.replace_all_uses_with(graph.call_function(found, node.args, node.kwargs))
        graph.erase_node(node)
    graph.lint()
    return GraphModule(model, graph)
