"""TopologicalSort: bindings of dataflow blocks in the order in which a search finds them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from typing import Final, Literal

from relax2xla import tir
from relax2xla.analysis.variables import free_vars
from relax2xla.ir import (
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    Expr,
    Function,
    If,
    IRModule,
    MatchCast,
    SeqExpr,
    Var,
)
from relax2xla.ir.deep import nests
from relax2xla.ir.lattice import definable_vars, free_symbolic_vars
from relax2xla.ir.rewrite import Rewriter, bindings_deep, post_order
from relax2xla.transform.core import FunctionPass, PassContext, register
from relax2xla.transform.normal.signatures import symbols_of_value

ORDERS: Final = ("depth-first", "breadth-first")
DIRECTIONS: Final = ("from-inputs", "from-outputs")


@register()
class TopologicalSort(FunctionPass):
    """Sort the bindings of each dataflow block, so that each still comes after what it reads.

    ``order``: "depth-first" or "breadth-first", as the search from the parameters (``direction``
    "from-inputs") or from the result ("from-outputs", and the last found comes first) meets them;
    ties are broken by the order there was. ValueError for other words.
    """

    def __init__(
        self,
        order: Literal["depth-first", "breadth-first"] = "depth-first",
        direction: Literal["from-inputs", "from-outputs"] = "from-inputs",
    ) -> None:
        for word, known in ((order, ORDERS), (direction, DIRECTIONS)):
            if word not in known:
                raise ValueError(f"TopologicalSort takes {' or '.join(known)}; got {word!r}")
        self.order = order
        self.direction = direction

    def transform_function(self, func: Function, mod: IRModule, context: PassContext) -> Function:
        depth_first = self.order == "depth-first"
        return _Sorter(depth_first, self.direction == "from-inputs").function(func)


class _End(Enum):
    """Where a search begins: what is there at the start, and what is wanted at the end."""

    INPUT = 0
    OUTPUT = 1


_Node = Var | _End


class _Graph:
    """Which variable is read for which in a function, its branches included.

    A local function is read with all that it captures; inside it the order is its own.
    """

    def __init__(self, func: Function) -> None:
        self.users: dict[_Node, list[_Node]] = {_End.INPUT: [], _End.OUTPUT: []}
        self.needs: dict[_Node, list[_Node]] = {_End.INPUT: [], _End.OUTPUT: []}
        self._symbols: dict[tir.Var, Var] = {}  # casts that define symbolic variables
        for b in bindings_deep(func):
            if isinstance(b, MatchCast):
                for symbol in definable_vars(b.struct_info):
                    self._symbols.setdefault(symbol, b.var)
        self._bound: list[Var] = []
        for p in func.params:
            self._node(p)
            self._edge(_End.INPUT, p)
        self._seq(func.body, _End.OUTPUT)
        alone = [v for v in self._bound if not self.needs[v]]
        unused = [v for v in self._bound if not self.users[v]]
        for var in alone:
            self._edge(_End.INPUT, var)
        self.needs[_End.OUTPUT][:0] = unused
        for var in unused:
            self.users[var].append(_End.OUTPUT)

    def _node(self, var: _Node) -> None:
        self.users[var], self.needs[var] = [], []

    def _edge(self, need: _Node, user: _Node) -> None:
        if need not in self.users:  # captured
            self._node(need)
            self._edge(_End.INPUT, need)
        self.needs[user].append(need)
        self.users[need].append(user)

    @nests
    def _seq(self, seq: SeqExpr, user: _Node) -> None:
        for block in seq.blocks:
            for b in block.bindings:
                self._node(b.var)
                self._bound.append(b.var)
                self._reads(b.value, b.var)
                if self._symbols:
                    self._sizes(b)
        self._reads(seq.body, user)

    def _reads(self, value: Expr, user: _Node) -> None:
        for node in _in_order(value):
            if isinstance(node, Var):
                self._edge(node, user)
            elif isinstance(node, If):
                self._seq(node.true_branch, user)
                self._seq(node.false_branch, user)
            elif isinstance(node, Function):
                for var in free_vars(node):
                    if var is not user:  # which a recursive one reads
                        self._edge(var, user)

    def _sizes(self, b: Binding) -> None:
        """A binding that names a symbolic variable needs the cast that defines it."""
        found = dict.fromkeys(symbols_of_value(b.value))
        found.update(dict.fromkeys(free_symbolic_vars(b.var.struct_info_)))
        for symbol in found:
            cast = self._symbols.get(symbol)
            if cast is not None and cast is not b.var and cast in self.needs:
                self._edge(cast, b.var)

    def places(self, depth_first: bool, from_inputs: bool) -> dict[_Node, int]:
        """In which order the bindings are to come."""
        forward, back = (self.users, self.needs) if from_inputs else (self.needs, self.users)
        waits = {node: len(edges) for node, edges in back.items()}
        reverse = depth_first and from_inputs
        start = _End.INPUT if from_inputs else _End.OUTPUT
        todo: deque[_Node] = deque([start])
        found: dict[_Node, int] = {}
        while todo:
            node = todo.pop() if depth_first else todo.popleft()
            if node in found:
                continue
            found[node] = len(found)
            edges = forward[node]
            for other in edges:
                waits[other] -= 1
            todo.extend(o for o in (reversed(edges) if reverse else edges) if not waits[o])
        last = len(found)
        return found if from_inputs else {node: last - i for node, i in found.items()}


def _in_order(value: Expr) -> Iterator[Expr]:
    """Nodes of a plain expression; a variable as often as it is read."""
    if isinstance(value, Var):
        yield value
        return
    if isinstance(value, Call) and all(isinstance(a, Var) for a in value.args):
        if isinstance(value.op, Var):
            yield value.op
        yield from value.args
        return
    yield from post_order(value)


class _Sorter(Rewriter):
    def __init__(self, depth_first: bool, from_inputs: bool) -> None:
        super().__init__()
        self.depth_first, self.from_inputs = depth_first, from_inputs
        self.place: dict[_Node, int] = {}

    @nests
    def function(self, func: Function) -> Function:
        outer = self.place
        self.place = _Graph(func).places(self.depth_first, self.from_inputs)
        try:
            return super().function(func)
        finally:
            self.place = outer

    def block(self, block: BindingBlock) -> BindingBlock:
        new = super().block(block)
        if not isinstance(block, DataflowBlock):
            return new
        pairs = sorted(
            zip(block.bindings, new.bindings, strict=True), key=lambda p: self.place[p[0].var]
        )
        if all(old is b for (old, _), b in zip(pairs, block.bindings, strict=True)):
            return new
        return DataflowBlock([b for _, b in pairs], block.span)
