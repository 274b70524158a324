"""Stores of vectors, such as ``C[0:4] = A[0:4]``, as loops over their lanes."""

from __future__ import annotations

from relax2xla import tir
from relax2xla.tir import stmt as st
from relax2xla.tir.buffer import BufferLoad
from relax2xla.tir.node import PrimExpr, element_of, lanes_of
from relax2xla.tir.stmt_functor import transformed
from relax2xla.tir.vector import Broadcast, Ramp


def lanes_as_loops(root: st.Stmt) -> st.Stmt:
    """``root`` with a loop in the place of each store of a vector.

    What reads other elements of the memory that it writes stays, as all lanes are read before any
    is written; so do masks, and vectors that are no part of a store.
    """
    if not any(_is_vector(s) for s in st.walk(root)):
        return root
    return transformed(root, _as_loop)


def _is_vector(s: st.Stmt) -> bool:
    return isinstance(s, st.BufferStore) and any(lanes_of(i.dtype) > 1 for i in s.indices[-1:])


def _as_loop(s: st.Stmt) -> st.Stmt:
    if not isinstance(s, st.BufferStore) or not _is_vector(s) or s.predicate is not None:
        return s
    lane = tir.Var("lane", "int32")
    try:
        value = _of_lane(s.value, lane, s)
        indices = [_of_lane(i, lane, s) for i in s.indices]
    except _OtherVector:
        return s
    store = st.BufferStore(s.buffer, value, tuple(indices), line=s.line)
    count = tir.const(lanes_of(s.indices[-1].dtype), "int32")
    return st.For(lane, tir.const(0, "int32"), count, "vectorized", store, line=s.line)


class _OtherVector(Exception):
    """A vector whose lanes cannot be told apart."""


def _of_lane(root: PrimExpr, lane: tir.Var, store: st.BufferStore) -> PrimExpr:
    """The value of an expression in one lane."""
    done: dict[int, PrimExpr] = {}
    for node in tir.post_order(root):
        children = [done[id(c)] for c in node.children()]
        element = element_of(node.dtype)
        made = node
        match node:
            case BufferLoad():
                here = node.buffer.data is store.buffer.data
                if (here and node.indices != store.indices) or lanes_of(node.buffer.dtype) != 1:
                    raise _OtherVector
                if node.predicate is not None:
                    raise _OtherVector
                if lanes_of(node.dtype) != 1:
                    made = BufferLoad(node.buffer, children)
            case _ if lanes_of(node.dtype) == 1:
                pass
            case Ramp():
                base, stride = children
                made = base + stride * tir.cast(base.dtype, lane)
            case Broadcast():
                made = children[0]
            case tir.Cast():
                made = tir.cast(element, children[0])
            case tir.Call():
                made = tir.Call(element, node.op, children)
            case tir.BinaryExpr() | tir.Select() | tir.Not():
                made = node.rebuild(children)
            case _:
                raise _OtherVector
        done[id(node)] = made
    return done[id(root)]
