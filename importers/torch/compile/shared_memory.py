"""Results of a graph that share memory: torch makes them as views of one tensor, as it does in
eager mode, so that what is written to one is seen in the others.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node
from torch.multiprocessing.reductions import StorageWeakRef

from relax2xla.importers.torch.source.inplace import may_alias
from relax2xla.importers.torch.source.torch_internals import pytree


@dataclass(frozen=True, slots=True)
class Size:
    """A symbolic size among a view's arguments, as a sympy expression."""

    expr: Any


@dataclass(frozen=True, slots=True)
class View:
    """A view of a tensor: an operator and its other arguments; ``field``: of several views."""

    op: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    field: int | None

    def __call__(self, base: torch.Tensor, sizes: Mapping[Any, int]) -> Any:
        """The view of ``base``, for these values of the expressions of sizes."""
        kwargs = {k: _filled(v, sizes) for k, v in self.kwargs.items()}
        made = self.op(base, *(_filled(a, sizes) for a in self.args), **kwargs)
        return made if self.field is None else made[self.field]

    def sizes(self) -> Iterator[Any]:
        """The expressions of sizes that a call needs the values of."""
        for value in pytree.tree_leaves((self.args, dict(self.kwargs))):
            if isinstance(value, Size):
                yield value.expr


def _filled(value: Any, sizes: Mapping[Any, int]) -> Any:
    if isinstance(value, list | tuple):
        return [_filled(v, sizes) for v in value]
    return sizes[value.expr] if isinstance(value, Size) else value


def origin(node: Node, known: Callable[[Any], bool]) -> tuple[Node, tuple[View, ...]]:
    """The node in whose memory the tensor of ``node`` lies, and the views from there to it.

    ``known``: whether the value of a size is known before the graph has run; else no view of that
    size can be made of a result.
    """
    views: list[View] = []
    while (step := _step(node, known)) is not None:
        node, view = step
        views.append(view)
    return node, tuple(reversed(views))


def _step(node: Node, known: Callable[[Any], bool]) -> tuple[Node, View] | None:
    """What ``node`` is a view of, and how; None where it has memory of its own."""
    call, field = node, None
    if node.target is operator.getitem:
        call, field = node.args
    if not isinstance(call, Node) or not may_alias(call.target):
        return None
    base = call.args[0] if call.args else None
    if not isinstance(base, Node) or not _share(node, base):
        return None
    try:
        args = tuple(_argument(a, known) for a in call.args[1:])
        kwargs = {k: _argument(v, known) for k, v in call.kwargs.items()}
    except _NotKnown:
        return None
    return base, View(call.target, args, kwargs, field)  # pyright: ignore[reportArgumentType]


class _NotKnown(Exception):
    """An argument of a view that is known only when the graph has run."""


def _argument(value: Any, known: Callable[[Any], bool]) -> Any:
    if isinstance(value, list | tuple):
        return [_argument(v, known) for v in value]
    if not isinstance(value, Node):
        return value
    meta = value.meta.get("val")
    if not isinstance(meta, torch.SymInt) or not known(meta.node.expr):
        raise _NotKnown
    return Size(meta.node.expr)


def _share(a: Node, b: Node) -> bool:
    """Whether torch keeps two tensors in the same memory."""
    values = a.meta.get("val"), b.meta.get("val")
    if not all(isinstance(v, torch.Tensor) and v.layout == torch.strided for v in values):
        return False
    first, second = (StorageWeakRef(v.untyped_storage()) for v in values)  # pyright: ignore
    return first == second
