"""How a graph of torch.compile is called: what its program takes, and what its results are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import GraphModule, Node

from relax2xla.importers.torch.compile.graphs import (
    is_dense,
    memory_order,
    placeholders_of,
    results_of,
)
from relax2xla.importers.torch.compile.shared_memory import origin
from relax2xla.importers.torch.source.torch_internals import pytree


def device_of(graph: GraphModule) -> torch.device:
    """The device of a graph: the GPU of most of its tensors, else the CPU."""
    counts = Counter(
        value.device
        for node in graph.graph.nodes
        if isinstance(value := node.meta.get("val"), torch.Tensor) and value.device.type == "cuda"
    )
    return counts.most_common(1)[0][0] if counts else torch.device("cpu")


def elsewhere(node: Node, device: torch.device) -> torch.device | None:
    """The device of a tensor that ``node`` makes or reads and that XLA does not take beside those
    on ``device``; numbers of rank 0 may lie on the CPU.
    """
    for value in pytree.tree_leaves([n.meta.get("val") for n in (node, *node.all_input_nodes)]):
        if not isinstance(value, torch.Tensor) or value.device == device:
            continue
        if value.device.type != "cpu" or value.ndim:
            return value.device
    return None


@dataclass(frozen=True, slots=True)
class Result:
    """Where a result comes from: ``kind`` "array" (of the program, ``at`` its place), "argument"
    (passed through), "constant", "size" (a sympy expression), or "view" (of the base ``at``;
    ``value``: the views that lead to it).
    """

    kind: str
    at: int = 0
    value: Any = None
    order: tuple[int, ...] | None = None
    device: torch.device | None = None


@dataclass(frozen=True, slots=True)
class Size:
    """A symbolic size that an argument says: itself, or as that of its axis ``axis``.

    ``expr``: the size (a sympy expression); ``symbol``: one of its symbols that follows from it and
    the sizes before it, or None.
    """

    place: int
    axis: int | None
    expr: Any
    symbol: Any

    def of(self, args: Sequence[Any]) -> int:
        """The number at a call."""
        value = args[self.place]
        return int(value if self.axis is None else value.shape[self.axis])

    def tell(self, number: int, known: dict[Any, Any]) -> None:
        """Add to ``known`` what follows from the number."""
        value = sympy.Integer(number)
        if self.symbol is not None and self.symbol != self.expr:
            rest = self.expr.xreplace(known)
            at_zero = rest.xreplace({self.symbol: sympy.Integer(0)})
            slope = rest.xreplace({self.symbol: sympy.Integer(1)}) - at_zero
            known[self.symbol] = (value - at_zero) / slope
        known[self.expr] = value


@dataclass(frozen=True, slots=True)
class Plan:
    """How a graph is called: which arguments its program takes, and what its results are.

    ``sizes``: where the arguments say symbolic sizes; ``computed``: the sizes (sympy expressions)
    that results need, which those tell. ``bases``: tensors whose memory several results, or
    a result and an argument, share. The graph is left with the results that it computes, each in
    the order of axes that it has in torch's memory.
    """

    feeds: tuple[int, ...]
    results: tuple[Result, ...]
    sizes: tuple[Size, ...]
    computed: tuple[Any, ...]
    bases: tuple[Result, ...]


def planned(graph: GraphModule) -> Plan:
    """The plan for a graph, which is changed to compute what the plan asks for."""
    return _Planner(graph).plan()


class _Planner:
    """The making of one plan."""

    def __init__(self, graph: GraphModule) -> None:
        self.graph = graph
        self.placeholders = placeholders_of(graph)
        (self.output,) = (n for n in graph.graph.nodes if n.op == "output")
        self.places = {n: i for i, n in enumerate(self.placeholders)}
        self.symbols = [
            (i, n.meta["val"].node.expr)
            for i, n in enumerate(self.placeholders)
            if isinstance(n.meta["val"], torch.SymInt)
        ]
        self.told = _told(self.placeholders)
        # Expressions of sizes that results need.
        self.sizes: dict[Any, None] = {}
        # What the program computes, by the node; each in the order of axes of its memory.
        self.computed: dict[Node, int] = {}
        self.made: list[Node] = []

    def plan(self) -> Plan:
        """The plan; the graph computes what it asks for."""
        items = results_of(self.graph)
        tensors = [n for n in items if isinstance(n, Node) and _is_tensor(n)]
        origins = {n: origin(n, self.known) for n in dict.fromkeys(tensors)}
        counts = Counter(origins[n][0] for n in tensors)
        bases: dict[Node, int] = {}
        results: list[Result] = []
        for item in items:
            base, views = origins.get(item, (item, ()))
            # The views of an argument, of what there are several of, and those with gaps.
            if item not in self.places and (
                base in self.places
                or counts[base] > 1
                or (views and not is_dense(item.meta["val"]))
            ):
                self.sizes.update((expr, None) for view in views for expr in view.sizes())
                results.append(Result("view", bases.setdefault(base, len(bases)), views))
            else:
                results.append(self.result(item))
        shared = tuple(self.result(n) for n in bases)
        self.output.args = (tuple(self.made),)
        self.graph.graph.eliminate_dead_code()
        return Plan(self.feeds(), tuple(results), self.needed(), tuple(self.sizes), shared)

    def known(self, expr: Any) -> bool:
        """Whether a size can be computed at each call from those that the arguments say."""
        one = sympy.Integer(1)
        values = {e: one for size in self.told for e in (size.expr, size.symbol) if e is not None}
        return not expr.xreplace(values).free_symbols

    def needed(self) -> tuple[Size, ...]:
        """Those of the sizes that arguments say which tell the ones that results need."""
        wanted = {s for expr in self.sizes for s in expr.free_symbols}
        kept: list[Size] = []
        for size in reversed(self.told):
            if size.symbol in wanted or (self.sizes and size.symbol is None):
                wanted |= size.expr.free_symbols
                kept.append(size)
        return tuple(reversed(kept))

    def result(self, item: Any) -> Result:
        """A result that is no view of another one."""
        if not isinstance(item, Node):
            return Result("constant", value=item)
        value = item.meta.get("val")
        if item in self.places:
            return Result("argument", self.places[item])
        if isinstance(value, torch.SymInt):
            self.sizes[value.node.expr] = None
            return Result("size", value=value.node.expr)
        if not isinstance(value, torch.Tensor):
            return Result("constant", value=value)
        order = memory_order(value)
        if item not in self.computed:
            self.computed[item] = len(self.made)
            self.made.append(item if order is None else self.permuted(item, order))
        back = None if order is None else tuple(order.index(a) for a in range(len(order)))
        return Result("array", self.computed[item], None, back, value.device)

    def permuted(self, node: Node, order: Sequence[int]) -> Node:
        """A node with its axes in another order."""
        with self.graph.graph.inserting_before(self.output):
            made = self.graph.graph.call_function(
                torch.ops.aten.permute.default, (node, list(order))
            )
        made.meta = {**node.meta, "val": node.meta["val"].permute(*order)}
        return made

    def feeds(self) -> tuple[int, ...]:
        """Arguments that the program takes: not the sizes that its tensors tell."""
        used = [i for i, n in enumerate(self.placeholders) if n.users]
        tensors = [self.placeholders[i].meta["val"] for i in used]
        bound = {
            size.node.expr
            for value in tensors
            if isinstance(value, torch.Tensor)
            for size in value.shape
            if isinstance(size, torch.SymInt)
        }
        known = {i for i, expr in self.symbols if expr in bound}
        return tuple(i for i in used if i not in known)


def _told(placeholders: Sequence[Node]) -> list[Size]:
    """The sizes that arguments say, as far as they tell a symbol that those before do not.

    Mostly an argument is the symbol itself. A part of a graph may have tensors alone, and of sizes
    that are computed from it: ``s - 2`` tells ``s``, too.
    """
    said: list[tuple[int, int | None, Any]] = []
    for i, node in enumerate(placeholders):
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            said.append((i, None, value.node.expr))
        elif isinstance(value, torch.Tensor):
            dims = [(a, d) for a, d in enumerate(value.shape) if isinstance(d, torch.SymInt)]
            said += [(i, a, d.node.expr) for a, d in dims]
    told: list[Size] = []
    known: set[Any] = set()
    # Symbols first, and among them arguments, which cost less to ask than an axis.
    left = sorted(said, key=lambda s: (not s[2].is_Symbol, s[1] is not None))
    while left:
        before, waiting = len(known), list[tuple[int, int | None, Any]]()
        for place, axis, expr in left:
            unknown = expr.free_symbols - known
            if len(unknown) == 1 and _linear(expr, symbol := next(iter(unknown))):
                told.append(Size(place, axis, expr, symbol))
                known.add(symbol)
            elif unknown:
                waiting.append((place, axis, expr))
        if len(known) == before:
            # What an expression comes to is known even where its symbols are not.
            return told + [Size(place, axis, expr, None) for place, axis, expr in waiting]
        left = waiting
    return told


def _linear(expr: Any, symbol: Any) -> bool:
    return expr.is_polynomial(symbol) and sympy.degree(expr, symbol) == 1


def _is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("val"), torch.Tensor)
