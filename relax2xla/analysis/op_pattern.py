"""How a loop-level function reads what it computes from: the classes that fusion goes by.

Source of the semantics: ``AnalyzeOpPatternKind`` of TVM v0.20.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeGuard

from relax2xla import tir
from relax2xla.tir import stmt as s
from relax2xla.tir.binary import Add, Mul, is_literal
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.tir.convert import Cast
from relax2xla.tir.functor import free_vars, post_order
from relax2xla.tir.kernel.use import expressions
from relax2xla.tir.node import PrimExpr, Var


class OpPatternKind(IntEnum):
    """What an element of a result is made of, under TVM's names and with its numbers.

    Of the element of each operand at the same place (ElemWise), of some for several results
    (Broadcast), of elements anywhere whose places are computed (Injective), of an axis that is
    folded (CommReduce), of products over an axis or of windows, whose results elementwise functions
    may follow in the same loops (OutEWiseFusable); nothing is known (Opaque).
    """

    ElemWise = 0
    Broadcast = 1
    Injective = 2
    CommReduce = 3
    OutEWiseFusable = 4
    Tuple = 7
    Opaque = 8


def op_pattern_kind(func: tir.PrimFunc) -> OpPatternKind:
    """The class of ``func``; Opaque where its body is no root block, or cannot be read."""
    if not isinstance(func.body, s.BlockRealize):
        return OpPatternKind.Opaque
    return _Classified(func).kind


class _Classified:
    """The class of one function, block by block."""

    def __init__(self, func: tir.PrimFunc) -> None:
        self.kind = OpPatternKind.ElemWise
        self.given = list(func.buffer_map.values())
        # A block's body holds the blocks in it, which are looked at on their own, behind it.
        for node in s.walk(func.body):
            if isinstance(node, s.Text):
                self.kind = OpPatternKind.Opaque
            if isinstance(node, s.BlockRealize) and node.block.name_hint != "root":
                self._block(node.block)

    def _block(self, block: s.Block) -> None:
        stores = [n for n in s.walk(block.body) if isinstance(n, s.BufferStore)]
        if not stores or any(not _same(n.indices, stores[0].indices) for n in stores):
            self.kind = OpPatternKind.Opaque
            return
        store, loads = stores[0], _loads(block.body)
        found = _index_kind(store, loads)
        if found is not OpPatternKind.Opaque:
            # Elements of a result that are computed from what a block before has folded: softmax.
            folded = self.kind is OpPatternKind.CommReduce
            if folded and any(w.buffer is b for w in block.writes for b in self.given):
                found = OpPatternKind.OutEWiseFusable
            self.kind = max(self.kind, found)
            return
        axes = [axis.var for axis in block.iter_vars if axis.iter_type == "reduce"]
        if not axes:
            self.kind = OpPatternKind.Opaque
        elif _multiplies_and_adds(block.body) or not all(_folds(axes, x) for x in loads):
            self.kind = max(self.kind, OpPatternKind.OutEWiseFusable)
        else:
            self.kind = max(self.kind, OpPatternKind.CommReduce)


def _loads(body: s.Stmt) -> list[BufferLoad]:
    roots = (e for node in s.walk(body) for e in expressions(node))
    return [e for root in roots for e in post_order(root) if isinstance(e, BufferLoad)]


def _same(one: tuple[PrimExpr, ...], two: tuple[PrimExpr, ...]) -> bool:
    """Whether two places are written as the same variables."""
    return len(one) == len(two) and all(a is b for a, b in zip(one, two, strict=True))


def _index_kind(store: s.BufferStore, loads: list[BufferLoad]) -> OpPatternKind:
    """How ``store`` reads; Opaque where it reads places that its own does not say."""
    kinds = [_pair_kind(store, load) for load in loads]
    found = max(kinds, default=OpPatternKind.ElemWise)
    if found is OpPatternKind.Broadcast and OpPatternKind.ElemWise in kinds:
        return OpPatternKind.ElemWise
    return found


def _pair_kind(store: s.BufferStore, load: BufferLoad) -> OpPatternKind:
    if _same(store.indices, load.indices):
        return OpPatternKind.ElemWise
    if load.buffer is store.buffer:
        # Elements follow from each other, as in a running sum.
        return OpPatternKind.Opaque
    if _broadcasts(store, load):
        return OpPatternKind.Broadcast
    own = set(store.indices)
    direct = all(isinstance(i, Var) for i in store.indices)
    if direct and all(v in own for i in load.indices for v in free_vars(i)):
        return OpPatternKind.Injective
    return OpPatternKind.Opaque


def _broadcasts(store: s.BufferStore, load: BufferLoad) -> bool:
    """Whether the places read are some of those written, in their order; axes of one do not
    count."""
    rest = iter(store.indices)
    return all(
        (size == 1 and is_literal(index, 0)) or any(index is own for own in rest)
        for size, index in zip(load.buffer.shape, load.indices, strict=True)
    )


def _multiplies_and_adds(body: s.Stmt) -> bool:
    """Whether ``body`` is ``c[i] = c[i] + a[..] * b[..]``, where both operands are read again."""
    if not isinstance(body, s.BufferStore):
        return False
    total = _uncast(body.value)
    product = _uncast(total.b) if isinstance(total, Add) else None
    if not isinstance(total, Add) or not isinstance(product, Mul):
        return False
    old, one, two = _uncast(total.a), _uncast(product.a), _uncast(product.b)
    if not _is_load(old, body.buffer) or not _same(body.indices, old.indices):
        return False
    return all(isinstance(x, BufferLoad) and _read_again(body, x) for x in (one, two))


def _is_load(e: PrimExpr, buffer: Buffer) -> TypeGuard[BufferLoad]:
    return isinstance(e, BufferLoad) and e.buffer is buffer


def _uncast(e: PrimExpr) -> PrimExpr:
    while isinstance(e, Cast):
        e = e.value
    return e


def _read_again(store: s.BufferStore, load: BufferLoad) -> bool:
    """Whether several results read the same place: ``load`` lacks a variable of ``store``."""
    if not all(isinstance(i, Var) for i in store.indices):
        return False
    read = {v for i in load.indices for v in free_vars(i)}
    return not read.issuperset(store.indices)


def _folds(axes: list[Var], load: BufferLoad) -> bool:
    """Whether each place in ``load`` that says a folded axis is that axis itself."""
    return all(
        any(index is axis for axis in axes)
        for index in load.indices
        if any(v in axes for v in free_vars(index))
    )
