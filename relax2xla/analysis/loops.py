"""Analyses of loop-level functions (``tir.PrimFunc``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from relax2xla import tir
from relax2xla.analysis.layouts import want_kernel
from relax2xla.tir import stmt as s
from relax2xla.tir.arith.bounds import Range
from relax2xla.tir.buffer import Buffer, BufferLoad
from relax2xla.tir.functor import post_order
from relax2xla.tir.stmt_functor import rebuilt


def has_reshape_pattern(func: tir.PrimFunc) -> bool:
    """Whether ``func`` copies its first buffer to its last, elements in their order.

    That is: one store of one load, in loops and blocks without reductions, at provably equal places
    in row-major order. Elements that no loop reaches are left open, as by TVM. Raises TypeError for
    another kind of function, UnsupportedError for one that was kept as text.
    """
    want_kernel("has_reshape_pattern", func)
    buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
    domains: dict[tir.Var, Range] = {}
    store = _only_store(func.body, domains)
    if len(buffers) < 2 or store is None or not isinstance(store.value, BufferLoad):
        return False
    load = store.value
    if store.buffer is not buffers[-1] or load.buffer is not buffers[0]:
        return False
    return _same_place(load, store, domains)


def _only_store(body: s.Stmt, domains: dict[tir.Var, Range]) -> s.BufferStore | None:
    """The store that is all of ``body`` but loops and blocks; ``domains``: of their variables."""
    node = body
    while True:
        match node:
            case s.For():
                domains[node.loop_var] = Range.from_min_extent(node.min, node.extent)
                node = node.body
            case s.BlockRealize(block=block):
                if block.init is not None or block.match_buffers:
                    return None
                for axis in block.iter_vars:
                    if axis.iter_type != "spatial" or axis.dom is None:
                        return None
                    domains[axis.var] = axis.dom
                node = block.body
            case s.BufferStore():
                return node
            case _:
                return None


def _same_place(load: BufferLoad, store: s.BufferStore, domains: Mapping[tir.Var, Range]) -> bool:
    sides = [_flat(load.buffer, load.indices), _flat(store.buffer, store.indices)]
    if any(place is None for place in sides):
        return False
    analyzer = tir.Analyzer()
    with ExitStack() as known:
        for var, domain in domains.items():
            if analyzer.can_prove_equal(domain.extent, 1):
                analyzer.bind(var, domain.min)
                continue
            known.enter_context(analyzer.constraint_scope(tir.GE.make(var, domain.min)))
            end = domain.min + domain.extent
            known.enter_context(analyzer.constraint_scope(tir.LT.make(var, end)))
        a, b = (_without_wrapping(place, analyzer) for place in sides if place is not None)
        return analyzer.can_prove_equal(a, b)


def _flat(buffer: Buffer, indices: Sequence[tir.PrimExpr]) -> tir.Dim | None:
    """The place of an element in row-major order; None where the buffer is laid out otherwise."""
    if buffer.strides:
        return None
    place: tir.Dim = 0
    for size, index in zip(buffer.shape, indices, strict=True):
        place = place * size + index
    return place


def _without_wrapping(place: tir.Dim, analyzer: tir.Analyzer) -> tir.Dim:
    """``place`` without remainders and quotients by a (symbolic) size that is never reached."""
    if isinstance(place, int):
        return place
    new: dict[int, tir.PrimExpr] = {}
    for node in post_order(place):
        inner = [new[id(c)] for c in node.children()]
        same = all(a is b for a, b in zip(inner, node.children(), strict=True))
        made = node if same else rebuilt(node, inner)
        if isinstance(made, tir.FloorMod | tir.FloorDiv) and _below(made.a, made.b, analyzer):
            made = made.a if isinstance(made, tir.FloorMod) else tir.const(0, made.dtype)
        new[id(node)] = made
    return new[id(place)]


def _below(value: tir.PrimExpr, size: tir.PrimExpr, analyzer: tir.Analyzer) -> bool:
    return analyzer.can_prove_greater_equal(value, 0) and analyzer.can_prove_less(value, size)
