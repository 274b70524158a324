"""Images that a forward graph saves for the backward one, as both of them compute with them.

XLA's convolutions on the CPU have channels last; torch's graphs have them first. What one graph
saves and the other reads is seen by nobody else, so it goes over without being transposed twice.
"""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.fx import GraphModule, Node

from relax2xla.importers.torch.compile.graphs import memory_order, placeholders_of, results_of
from relax2xla.importers.torch.source.inplace import named
from relax2xla.importers.torch.source.torch_internals import OpOverload, detect_fake_mode

ATEN: Any = torch.ops.aten
_LAST, _FIRST = [0, 2, 3, 1], [0, 3, 1, 2]
# Operators besides those of single elements whose images and results lie alike.
_ALIKE = named(
    "_adaptive_avg_pool2d _native_batch_norm_legit _native_batch_norm_legit.no_stats "
    "_native_batch_norm_legit_functional _native_batch_norm_legit_no_training alias avg_pool2d cat "
    "clone constant_pad_nd convolution detach max_pool2d_with_indices native_batch_norm "
    "native_dropout slice.Tensor upsample_bilinear2d.vec upsample_nearest2d.vec"
)


def channels_last(forward: GraphModule, backward: GraphModule, results: int) -> None:
    """Let ``forward`` save images of convolutions with channels last, and ``backward`` take them.

    results: how many of the forward graph's results are the function's own; the others are saved.
    Only what the forward graph has computed itself: inputs are saved as they are.
    """
    saved = {n.name: n for n in results_of(forward)[results:] if isinstance(n, Node)}
    images = _images(forward)
    (output,) = (n for n in forward.graph.nodes if n.op == "output")
    moved: dict[Node, Node] = {}
    for place in placeholders_of(backward):
        node = saved.get(place.name)
        if node is None or node not in images or node.op == "placeholder":
            continue
        with forward.graph.inserting_before(output):
            moved[node] = _ordered(forward, node, _LAST)
        readers = list(place.users)
        place.meta = {**place.meta, "val": moved[node].meta["val"], "tensor_meta": None}
        after = next(n for n in backward.graph.nodes if n.op != "placeholder")
        with backward.graph.inserting_before(after):
            first = _ordered(backward, place, _FIRST)
        for reader in readers:
            reader.replace_input_with(place, first)
    if not moved:
        return
    own, others = results_of(forward)[:results], results_of(forward)[results:]
    output.args = ((*own, *(moved.get(n, n) for n in others)),)
    for graph in (forward, backward):
        graph.recompile()


def _ordered(module: GraphModule, node: Node, axes: list[int]) -> Node:
    """A value with its axes in another order, also in memory, with what torch says of it."""
    made, value = node, node.meta["val"]
    mode = detect_fake_mode(value)
    for op, args, kwargs in (
        (ATEN.permute.default, (axes,), {}),
        (ATEN.clone.default, (), {"memory_format": torch.contiguous_format}),
    ):
        made = module.graph.call_function(op, (made, *args), kwargs)
        with contextlib.nullcontext() if mode is None else mode:
            value = op(value, *args, **kwargs)
        made.meta = {"val": value}
    return made


def _images(module: GraphModule) -> set[Node]:
    """Images of convolutions, their results, and what is computed of them or makes them, pixel by
    pixel or by windows.
    """
    found: set[Node] = set()
    todo = [
        n
        for node in module.graph.nodes
        if node.target is ATEN.convolution.default
        for n in (node, node.args[0])
    ]
    while todo:
        node = todo.pop()
        if node in found or not _is_image(node):
            continue
        found.add(node)
        todo += [user for user in node.users if _alike(user)]
        todo += node.all_input_nodes if _alike(node) else ()
    return found


def _is_image(node: Node) -> bool:
    """Whether a value has four axes that lie in their order, or is several values."""
    value = node.meta.get("val")
    if isinstance(value, tuple | list):
        return True
    return isinstance(value, torch.Tensor) and value.ndim == 4 and memory_order(value) is None


def _alike(node: Node) -> bool:
    """Whether an operator's images and results lie alike."""
    op = node.target
    field = getattr(op, "__name__", "") == "getitem"
    return field or op in _ALIKE or (isinstance(op, OpOverload) and torch.Tag.pointwise in op.tags)
