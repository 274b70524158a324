"""Which axes of a loop-level function's buffers can be cut together.

An axis is cut by running fewer steps of the loop that goes along it. That is right where the loop's
variable says nothing else: not how much is added, nor where on another axis. Loops, the axes of
blocks and the axes of buffers that run together are one group.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from relax2xla import tir
from relax2xla.tir import stmt as s
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.tir.functor import free_vars, post_order

# A loop variable or an axis of a block; an axis of a buffer.
Node = tir.Var | tuple[Buffer, int]

_PLAIN: Final = (s.SeqStmt, s.For, s.BlockRealize, s.Block, s.BufferStore, s.IfThenElse)


class Groups:
    """What of ``func`` can be cut together."""

    def __init__(self, func: tir.PrimFunc) -> None:
        self.func = func
        self._numbers: dict[Node, int] = {}
        # By number: one that is cut with it; the last of them stands for all.
        self._parent: list[int] = []
        # What cannot be cut, whatever is cut with it.
        self._fixed: set[Node] = set()
        self.extents: dict[tir.Var, tir.Dim] = {}
        # Numbers of which parts must be multiples: indices say the variable modulo these.
        self.periods: dict[tir.Var, set[int]] = {}
        self.analyzer = tir.Analyzer()
        #: Whether all statements are of the kinds that are understood.
        self.known = self._walk(func.body)
        self.buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]

    def group_of(self, node: Node) -> int:
        """A number for all that are cut with ``node``."""
        number = self._numbers.setdefault(node, len(self._parent))
        if number == len(self._parent):
            self._parent.append(number)
        while self._parent[number] != number:
            number = self._parent[number]
        return number

    def cuttable(self) -> set[int]:
        """The groups that can be cut."""
        if not self.known:
            return set()
        fixed = {self.group_of(node) for node in self._fixed}
        return {self.group_of(node) for node in self._numbers} - fixed

    def axes(self) -> list[list[tuple[int, int]]]:
        """Axes of the parameters' buffers, (which buffer, which axis), that are cut together."""
        found: dict[int, list[tuple[int, int]]] = {group: [] for group in self.cuttable()}
        for i, buffer in enumerate(self.buffers):
            for axis in range(buffer.ndim):
                group = self.group_of((buffer, axis))
                if group in found:
                    found[group].append((i, axis))
        return list(found.values())

    # -- finding them ------------------------------------------------------------------------
    def _join(self, a: Node, b: Node) -> None:
        self._parent[self.group_of(a)] = self.group_of(b)

    def _walk(self, root: s.Stmt) -> bool:
        todo = [root]
        while todo:
            node = todo.pop()
            if not isinstance(node, _PLAIN):
                return False
            match node:
                case s.For():
                    if node.kind == s.ForKind.THREAD_BINDING or node.thread_binding is not None:
                        return False
                    self._range(node.loop_var, node.min, node.extent)
                case s.BlockRealize():
                    if node.block.match_buffers:
                        return False
                    self._block(node)
                case s.BufferStore():
                    if node.predicate is not None:
                        return False
                    self._access(node.buffer, node.indices)
                    self._uses((node.value, *_loads_in(node.indices)))
                case s.IfThenElse():
                    self._uses([node.condition])
                case _:
                    pass
            todo += reversed(s.children(node))
        return True

    def _range(self, var: tir.Var, low: tir.Dim, extent: tir.Dim) -> None:
        self.extents[var] = extent
        self.analyzer.bind(var, tir.Range.from_min_extent(low, extent), allow_override=True)
        if not tir.can_prove_equal(low, 0):
            self._fixed.add(var)

    def _block(self, node: s.BlockRealize) -> None:
        for axis, value in zip(node.block.iter_vars, node.iter_values, strict=True):
            if axis.dom is None:
                self._fixed.add(axis.var)
                continue
            self._range(axis.var, axis.dom.min, axis.dom.extent)
            extent = self.extents.get(value) if isinstance(value, tir.Var) else None
            if extent is not None and tir.can_prove_equal(extent, axis.dom.extent):
                assert isinstance(value, tir.Var)
                self._join(axis.var, value)
            else:
                self._fixed.add(axis.var)
                self._uses([value])
        self._uses([node.predicate])

    def _uses(self, exprs: Iterable[tir.PrimExpr]) -> None:
        """Values: what they load is accessed, other variables in them say something."""
        todo = list(exprs)
        while todo:
            node = todo.pop()
            match node:
                case BufferLoad():
                    self._access(node.buffer, node.indices)
                    todo += _loads_in(node.indices)
                    if node.predicate is not None:
                        todo.append(node.predicate)
                case tir.Var():
                    self._fixed.add(node)
                case _:
                    todo += node.children()

    def _access(self, buffer: Buffer, indices: Iterable[tir.PrimExpr]) -> None:
        for axis, index in enumerate(indices):
            index = self.analyzer.simplify(index)
            variables = [] if isinstance(index, int) else free_vars(index)
            along = next((v for v in variables if self._goes_along(v, index, buffer, axis)), None)
            for v in variables:
                steps = None if v is along else _modulo(v, index)
                if steps is not None:
                    self.periods.setdefault(v, set()).update(steps)
                elif v is not along:
                    self._fixed.add(v)
            if along is None:
                self._fixed.add((buffer, axis))
            else:
                self._join((buffer, axis), along)

    def _goes_along(self, v: tir.Var, index: tir.Dim, buffer: Buffer, axis: int) -> bool:
        """Whether the first of n parts of v's range are the first of n parts of the axis."""
        if v not in self.extents:
            return False
        if tir.can_prove_equal(self.extents[v], buffer.shape[axis]):
            return index is v
        extent, size = _number(self.extents[v]), _number(buffer.shape[axis])
        if not extent or not size:
            return False
        if size % extent == 0:
            steps = size // extent
            rest = self.analyzer.simplify(index - v * steps)
            if not isinstance(rest, int) and v in free_vars(rest):
                return False
            bound = self.analyzer.const_int_bound(rest)
            return bound.min_value >= 0 and bound.max_value < steps
        steps = extent // size
        whole = self.analyzer.simplify(tir.floordiv(v, steps))
        return extent % size == 0 and self.analyzer.can_prove_equal(index, whole)


def _modulo(v: tir.Var, index: tir.Dim) -> list[int] | None:
    """The numbers q of ``v % q``, where ``index`` says no more of ``v``; None where it does."""
    found: list[int] = []
    todo = [] if isinstance(index, int) else [index]
    while todo:
        node = todo.pop()
        if node is v:
            return None
        if isinstance(node, tir.FloorMod) and node.a is v:
            by = _number(node.b)
            if by is not None:
                found.append(by)
                continue
        todo += node.children()
    return found


def _number(size: tir.Dim) -> int | None:
    value = getattr(size, "value", size)
    return value if isinstance(value, int) else None


def _loads_in(indices: Iterable[tir.PrimExpr]) -> list[BufferLoad]:
    return [e for i in indices for e in post_order(i) if isinstance(e, BufferLoad)]
