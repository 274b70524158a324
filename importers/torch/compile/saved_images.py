"""What a forward graph saves for the backward one, as both of them have it in memory.

XLA's convolutions on the CPU have channels last; torch's graphs have them first. What one graph
saves and the other reads is seen by nobody else, so images go over with channels last, without
being transposed twice, operands of products of several matrices as XLA has them for these, and
other values in the order in which torch says that they lie.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.fx import GraphModule, Node

from relax2xla.importers.torch.compile.graphs import (
    is_dense,
    memory_order,
    placeholders_of,
    results_of,
)
from relax2xla.importers.torch.source.inplace import named
from relax2xla.importers.torch.source.torch_internals import OpOverload, detect_fake_mode

ATEN: Any = torch.ops.aten
#: Axes, from the slowest in memory to the fastest.
Order: TypeAlias = tuple[int, ...]
# With channels last, of images that are planes and that are volumes, by how many axes these have.
_LAST: Mapping[int, Order] = {4: (0, 2, 3, 1), 5: (0, 2, 3, 4, 1)}
# Operators besides those of single elements whose images and results lie alike.
_ALIKE = named(
    "_adaptive_avg_pool2d _adaptive_avg_pool3d _native_batch_norm_legit "
    "_native_batch_norm_legit.no_stats _native_batch_norm_legit_functional "
    "_native_batch_norm_legit_no_training alias avg_pool2d avg_pool3d cat clone constant_pad_nd "
    "convolution detach max_pool2d_with_indices max_pool3d_with_indices native_batch_norm "
    "native_dropout native_layer_norm slice.Tensor upsample_bilinear2d.vec upsample_nearest2d.vec "
    "upsample_nearest3d.vec upsample_trilinear3d.vec"
)


def in_order(forward: GraphModule, backward: GraphModule, results: int) -> None:
    """Let ``forward`` save images of convolutions with channels last, and ``backward`` take them.

    What else is saved that does not lie as its axes are in order goes over as it lies.

    results: how many of the forward graph's results are the function's own; the others are saved.
    Only what the forward graph has computed itself: inputs are saved as they are.
    """
    saved = {n.name: n for n in results_of(forward)[results:] if isinstance(n, Node)}
    orders = {**_operands(forward), **_images(forward)}
    (output,) = (n for n in forward.graph.nodes if n.op == "output")
    moved: dict[Node, Node] = {}
    for place in placeholders_of(backward):
        node = saved.get(place.name)
        value = None if node is None or node.op == "placeholder" else node.meta.get("val")
        if node is None or not isinstance(value, torch.Tensor) or not is_dense(value):
            continue
        lies = memory_order(value)
        own = tuple(lies or range(value.ndim))
        order = orders.get(node, own)
        if order == tuple(range(value.ndim)) and lies is None:
            continue
        with forward.graph.inserting_before(output):
            moved[node] = _lying(forward, _turned(forward, node, order))
        readers = list(place.users)
        place.meta = {**place.meta, "val": moved[node].meta["val"], "tensor_meta": None}
        after = next(n for n in backward.graph.nodes if n.op != "placeholder")
        with backward.graph.inserting_before(after):
            # What reads it finds it in memory as it was.
            made = _turned(backward, place, [order.index(axis) for axis in own])
            if order != own:
                made = _lying(backward, made)
            made = _turned(backward, made, [own.index(axis) for axis in range(value.ndim)])
        for reader in readers:
            reader.replace_input_with(place, made)
    if not moved:
        return
    own_results, others = results_of(forward)[:results], results_of(forward)[results:]
    output.args = ((*own_results, *(moved.get(n, n) for n in others)),)
    for graph in (forward, backward):
        graph.recompile()


def _turned(module: GraphModule, node: Node, axes: Sequence[int]) -> Node:
    """A value with its axes in another order."""
    if list(axes) == list(range(len(axes))):
        return node
    return _called(module, ATEN.permute.default, node, list(axes))


def _lying(module: GraphModule, node: Node) -> Node:
    """A value whose axes are in order in memory."""
    return _called(module, ATEN.clone.default, node, memory_format=torch.contiguous_format)


def _called(module: GraphModule, op: Any, node: Node, *args: Any, **kwargs: Any) -> Node:
    """A call of an operator of one tensor, with the value that torch says it has."""
    made = module.graph.call_function(op, (node, *args), kwargs)
    value = node.meta["val"]
    mode = detect_fake_mode(value)
    with contextlib.nullcontext() if mode is None else mode:
        made.meta = {"val": op(value, *args, **kwargs)}
    return made


def _operands(module: GraphModule) -> dict[Node, Order]:
    """Operands of products of several matrices, and what these are with their axes in another
    order: they lie as XLA has them for the products.
    """
    found: dict[Node, Order] = {}
    todo = [
        (n, (0, 1, 2))
        for node in module.graph.nodes
        if node.target is ATEN.bmm.default
        for n in node.all_input_nodes
    ]
    while todo:
        node, order = todo.pop()
        if node in found:
            continue
        found[node] = order
        todo += [(user, after) for user in node.users if (after := _permuted(user, order))]
    return found


def _images(module: GraphModule) -> dict[Node, Order]:
    """Images of convolutions, their results, and what is computed of them or makes them, pixel by
    pixel or by windows; and where their channels are last.
    """
    found: dict[Node, Order] = {}
    todo = [
        (n, _LAST[rank])
        for node in module.graph.nodes
        if node.target is ATEN.convolution.default and (rank := _rank(node)) in _LAST
        for n in (node, node.args[0])
    ]
    while todo:
        node, order = todo.pop()
        if node in found or not _is_image(node, len(order)):
            continue
        found[node] = order
        todo += [(user, after) for user in node.users if (after := _after(user, order))]
        before = _before(node, order)
        todo += [(n, before) for n in node.all_input_nodes] if before else ()
    return found


def _rank(node: Node) -> int:
    """The axes of a convolution's result; 0 of volumes but in float32, which are read in planes."""
    value: torch.Tensor = node.meta["val"]
    return 0 if value.ndim == 5 and value.dtype != torch.float32 else value.ndim


def _is_image(node: Node, rank: int) -> bool:
    """Whether a value has so many axes, or is several values."""
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        return value.ndim == rank
    return isinstance(value, tuple | list)


def _after(node: Node, order: Order) -> Order | None:
    """The order of what an operator makes of an image; None where it is none."""
    return _permuted(node, order) or (order if _alike(node) else None)


def _permuted(node: Node, order: Order) -> Order | None:
    """The order of a value with its axes permuted; None for what is none."""
    axes = _axes(node, len(order))
    return None if axes is None else tuple(axes.index(axis) for axis in order)


def _before(node: Node, order: Order) -> Order | None:
    """The order of what an operator has made an image of; None where it is none."""
    axes = _axes(node, len(order))
    if axes is not None:
        return tuple(axes[axis] for axis in order)
    return order if _alike(node) else None


def _axes(node: Node, rank: int) -> list[int] | None:
    """Which axes of its operand those of a permutation are."""
    if node.target is ATEN.permute.default:
        axes: Any = node.args[1]
        return [a % rank for a in axes]
    if node.target is ATEN.transpose.int:
        made = list(range(rank))
        a, b = (int(axis) % rank for axis in node.args[1:3])  # pyright: ignore[reportArgumentType]
        made[a], made[b] = made[b], made[a]
        return made
    return None


def _alike(node: Node) -> bool:
    """Whether an operator's images and results lie alike."""
    op = node.target
    field = getattr(op, "__name__", "") == "getitem"
    return field or op in _ALIKE or (isinstance(op, OpOverload) and torch.Tag.pointwise in op.tags)
