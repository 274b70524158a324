"""What a block reads and writes, from the statements in it.

Source of the semantics: TVM's ``GetBlockAccessRegion``. An index is taken over the loops inside
the block; accesses of one buffer are united; what cannot be bounded is the whole axis, and so is
what an element of the block's own memory says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeAlias

from relax2xla.tir import stmt as s
from relax2xla.tir.arith.analyzer import Analyzer
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.binary import Add, FloorDiv, FloorMod, Max, Min, Mul, Sub
from relax2xla.tir.buffer import Buffer, BufferLoad, BufferRegion, Let
from relax2xla.tir.call import Call
from relax2xla.tir.convert import Cast, as_dim, as_prim_expr, const
from relax2xla.tir.functor import free_vars, post_order, substitute
from relax2xla.tir.node import Dim, IntImm, PrimExpr, Var, is_int
from relax2xla.tir.vector import Ramp


class _Box(NamedTuple):
    """All values from ``low`` to ``high``, both included; None: every value of the axis."""

    low: PrimExpr | None
    high: PrimExpr | None


_WHOLE = _Box(None, None)
_Domains: TypeAlias = dict[Var, _Box]


def access_regions(
    block: s.Block, memory: Mapping[Var, Buffer]
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """The regions that ``block`` reads and writes of the buffers in ``memory`` (by data pointer).

    A block with an init does not list what it writes among its reads.
    """
    found = _Accesses(memory)
    for m in block.match_buffers:
        if m.source.buffer.data in found.memory:
            found.matched[m.buffer.data] = m
            found.memory[m.buffer.data] = m.buffer
    if block.init is not None:
        found.walk(block.init)
    found.walk(block.body)
    written = [b for b, _ in found.writes.values()] if block.init is not None else []
    reads = found.regions(found.reads, written)
    return reads, found.regions(found.writes, [])


_Found: TypeAlias = dict[int, tuple[Buffer, list[_Box]]]


class _Accesses:
    def __init__(self, memory: Mapping[Var, Buffer]) -> None:
        self.memory = dict(memory)
        # What is there outside of the block as well, where its regions are read.
        self.outside = frozenset(memory)
        self.matched: dict[Var, s.MatchBufferRegion] = {}
        self.reads: _Found = {}
        self.writes: _Found = {}
        self.analyzer = Analyzer()

    def walk(self, root: s.Stmt) -> None:
        """Every access in ``root``; inner blocks say theirs themselves."""
        stack: list[tuple[s.Stmt, _Domains, dict[Var, PrimExpr]]] = [(root, {}, {})]
        while stack:
            node, domains, lets = stack.pop()
            match node:
                case s.SeqStmt():
                    stack += [(x, domains, lets) for x in reversed(node.seq)]
                case s.For():
                    low = as_prim_expr(node.min)
                    for e in (low, as_prim_expr(node.extent)):
                        self._loads(e, domains, lets)
                    high = self._simple(low + as_prim_expr(node.extent) - 1)
                    inner = {**domains, node.loop_var: _Box(low, high)}
                    stack.append((node.body, inner, lets))
                case s.BlockRealize():
                    self._inner(node, domains, lets)
                case s.BufferStore():
                    self._add(self.writes, node.buffer, node.indices, domains, lets)
                    for e in (node.value, *node.indices):
                        self._loads(e, domains, lets)
                case s.LetStmt():
                    self._loads(node.value, domains, lets)
                    stack.append((node.body, domains, {**lets, node.var: node.value}))
                case s.IfThenElse():
                    self._loads(node.condition, domains, lets)
                    if node.else_case is not None:
                        stack.append((node.else_case, domains, lets))
                    stack.append((node.then_case, domains, lets))
                case s.Evaluate():
                    self._loads(node.value, domains, lets)
                case s.While() | s.AssertStmt():
                    self._loads(node.condition, domains, lets)
                    stack.append((node.body, domains, lets))
                case (
                    s.AttrStmt()
                    | s.Allocate()
                    | s.AllocateConst()
                    | s.BufferRealize()
                    | s.DeclBuffer()
                ):
                    stack.append((node.body, domains, lets))
                case _:
                    pass

    def _inner(self, node: s.BlockRealize, domains: _Domains, lets: dict[Var, PrimExpr]) -> None:
        values = zip(node.block.iter_vars, node.iter_values, strict=True)
        bound: dict[Var, Dim] = {axis.var: value for axis, value in values}
        for regions, into in ((node.block.reads, self.reads), (node.block.writes, self.writes)):
            for region in regions:
                boxes: list[_Box] = []
                for r in region.region:
                    low = as_prim_expr(substitute(as_prim_expr(r.min), bound))
                    extent = as_prim_expr(substitute(as_prim_expr(r.extent), bound))
                    first = self._box(low, domains, lets)
                    last = self._box(low + extent - 1, domains, lets)
                    boxes.append(_Box(first.low, last.high))
                self._update(into, region.buffer, boxes)

    def _loads(self, root: PrimExpr, domains: _Domains, lets: dict[Var, PrimExpr]) -> None:
        for load in _in_order(root):
            self._add(self.reads, load.buffer, load.indices, domains, lets)

    def _add(
        self,
        into: _Found,
        buffer: Buffer,
        indices: tuple[PrimExpr, ...],
        domains: _Domains,
        lets: dict[Var, PrimExpr],
    ) -> None:
        self._update(into, buffer, [self._box(i, domains, lets) for i in indices])

    def _update(self, into: _Found, buffer: Buffer, boxes: list[_Box]) -> None:
        if buffer.data not in self.memory:
            return
        match = self.matched.get(buffer.data)
        if match is not None:
            buffer, boxes = (
                match.source.buffer,
                [
                    _Box(as_prim_expr(r.min), as_prim_expr(r.min) + as_prim_expr(r.extent) - 1)
                    for r in match.source.region
                ],
            )
        old = into.get(id(buffer))
        if old is not None:
            boxes = [self._union(a, b) for a, b in zip(old[1], boxes, strict=True)]
        into[id(buffer)] = (buffer, boxes)

    def _union(self, a: _Box, b: _Box) -> _Box:
        if a.low is None or b.low is None or a.high is None or b.high is None:
            return _WHOLE
        return _Box(
            self._simple(Min.make(a.low, b.low)),
            self._simple(Max.make(a.high, b.high)),
        )

    def regions(self, found: _Found, without: list[Buffer]) -> tuple[BufferRegion, ...]:
        """What was found, but for some buffers."""
        return tuple(
            BufferRegion(
                buffer,
                tuple(self._range(x, d) for x, d in zip(boxes, buffer.shape, strict=True)),
            )
            for buffer, boxes in found.values()
            if not any(buffer is b for b in without)
        )

    def _range(self, box: _Box, size: Dim) -> Range:
        if box.low is None or box.high is None:
            whole = as_prim_expr(size)
            return Range.from_min_extent(as_dim(const(0, whole.dtype)), size)
        if box.low is box.high or self.analyzer.can_prove_equal(box.low, box.high):
            return Range.from_min_extent(as_dim(box.low), as_dim(const(1, box.low.dtype)))
        return Range.from_min_extent(as_dim(box.low), as_dim(self._simple(box.high + 1 - box.low)))

    def _simple(self, e: PrimExpr) -> PrimExpr:
        made = self.analyzer.simplify(e)
        return const(made, e.dtype) if isinstance(made, int) else made

    # -- intervals -------------------------------------------------------------------------------
    def _box(self, index: PrimExpr, domains: _Domains, lets: dict[Var, PrimExpr]) -> _Box:
        if lets:
            for _ in range(len(lets)):
                if not any(v in lets for v in free_vars(index)):
                    break
                index = as_prim_expr(substitute(index, dict(lets)))
        if isinstance(index, Ramp):
            first = self._box(index.base, domains, {})
            if isinstance(index.stride, IntImm) and first.high is not None:
                reach = index.stride * (index.lanes - 1)
                return _Box(first.low, self._simple(first.high + reach))
            return _WHOLE
        done: dict[int, _Box] = {}
        for node in post_order(index):
            done[id(node)] = self._interval(node, done, domains)
        box = done[id(index)]
        if not is_int(index.dtype):
            return _WHOLE
        if box.low is None or box.high is None or box.low is box.high:
            return box
        return _Box(self._simple(box.low), self._simple(box.high))

    def _interval(self, e: PrimExpr, done: dict[int, _Box], domains: _Domains) -> _Box:
        if isinstance(e, Var):
            return domains.get(e, _Box(e, e))
        if isinstance(e, Call) and e.args:  # one without is a constant, such as T.vscale()
            return _WHOLE
        if isinstance(e, BufferLoad) and e.buffer.data not in self.outside:
            return _WHOLE
        kids = [done[id(c)] for c in e.children()]
        if all(k.low is k.high and k.low is c for k, c in zip(kids, e.children(), strict=True)):
            return _Box(e, e)
        if any(k.low is None or k.high is None for k in kids):
            return _WHOLE
        low = [k.low for k in kids if k.low is not None]
        high = [k.high for k in kids if k.high is not None]
        match e:
            case Add():
                return _Box(low[0] + low[1], high[0] + high[1])
            case Sub():
                return _Box(low[0] - high[1], high[0] - low[1])
            case Min():
                return _Box(Min.make(low[0], low[1]), Min.make(high[0], high[1]))
            case Max():
                return _Box(Max.make(low[0], low[1]), Max.make(high[0], high[1]))
            case Mul():
                return self._product(low, high)
            case FloorDiv() if isinstance(e.b, IntImm) and e.b.value > 0:
                return _Box(low[0] // e.b, high[0] // e.b)
            case FloorMod() if isinstance(e.b, IntImm) and e.b.value > 0:
                if self.analyzer.can_prove_equal(low[0] // e.b, high[0] // e.b):
                    return _Box(low[0] % e.b, high[0] % e.b)
                return _Box(const(0, e.dtype), e.b - 1)
            case Cast() if is_int(e.dtype) and is_int(e.value.dtype):
                return _Box(low[0].astype(e.dtype), high[0].astype(e.dtype))
            case _:
                return _WHOLE

    def _product(self, low: list[PrimExpr], high: list[PrimExpr]) -> _Box:
        for i, j in ((0, 1), (1, 0)):
            if low[i] is not high[i] and not self.analyzer.can_prove_equal(low[i], high[i]):
                continue
            by = low[i]
            if self.analyzer.can_prove(by >= 0):
                return _Box(low[j] * by, high[j] * by)
            if self.analyzer.can_prove(by <= 0):
                return _Box(high[j] * by, low[j] * by)
        return _WHOLE


def _in_order(root: PrimExpr) -> Iterator[BufferLoad]:
    """The loads in an expression as they are written, those in an index after their buffer's."""
    stack = [root]
    while stack:
        node = stack.pop()
        if isinstance(node, BufferLoad):
            yield node
        if isinstance(node, Let):
            # Its variable is known in the body only.
            stack.append(node.body)
            stack.append(node.value)
            continue
        stack.extend(reversed(node.children()))
