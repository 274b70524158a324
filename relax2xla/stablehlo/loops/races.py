"""Loops whose steps run at once, and disturb each other: mistakes of the program."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from relax2xla import tir
from relax2xla.stablehlo.loops import accumulate
from relax2xla.stablehlo.loops.state import Kernel
from relax2xla.tir import stmt as st
from relax2xla.tir.buffer import BufferLoad

# What may give two steps of a loop the same index.
_FOLDING: Final = (tir.FloorDiv, tir.FloorMod, tir.Div, tir.Mod, tir.Min, tir.Max, tir.Select)
# How many steps of a loop are compared.
_STEPS: Final = 64


def race_of(kernel: Kernel, s: st.For) -> st.BufferStore | None:
    """A store that runs in every step, and puts another value into the same element of a parameter.

    Only what is certain counts: stores under conditions, in blocks or to scratch memory do not.
    """
    for store, loops in _stores(kernel, s):
        places = {v for i in store.indices for v in tir.free_vars(i)}
        differs = s.loop_var in tir.free_vars(store.value)
        if not differs or accumulate.accumulation(store) is not None:
            continue
        if places.isdisjoint(loops):
            return store
        parts = any(isinstance(n, _FOLDING) for i in store.indices for n in tir.post_order(i))
        combines = any(load.indices == store.indices for load in _loads(store))
        if parts and not combines:
            elements = _elements(s, store.indices)
            if len(set(elements)) < len(elements):
                return store
    return None


def mixed_of(kernel: Kernel, s: st.For) -> st.BufferStore | None:
    """A store that runs in every step, of a value that reads an element which another step writes.

    Only what is certain counts, as in :func:`race_of`.
    """
    for store, _ in _stores(kernel, s):
        loads = _loads(store)
        if not loads:
            continue
        written = {e: step for step, e in enumerate(_elements(s, store.indices))}
        for load in loads:
            read = enumerate(_elements(s, load.indices))
            if any(written.get(e, step) != step for step, e in read):
                return store
    return None


def _stores(kernel: Kernel, s: st.For) -> Iterator[tuple[st.BufferStore, set[tir.Var]]]:
    """Stores to parameters that certainly run in every step, each with the loops around it."""
    stack, loops = [s.body], {s.loop_var}
    while stack:
        inner = stack.pop()
        if isinstance(inner, st.SeqStmt):
            stack += inner.seq
        elif isinstance(inner, st.For):
            loops.add(inner.loop_var)
            stack.append(inner.body)
        elif isinstance(inner, st.BufferStore) and inner.buffer.data in kernel.parameters:
            yield inner, loops


def _loads(store: st.BufferStore) -> list[BufferLoad]:
    """The elements of its own buffer that a store reads, whatever the data are."""
    stack, found = [store.value], list[BufferLoad]()
    while stack:
        e = stack.pop()
        if isinstance(e, BufferLoad) and e.buffer is store.buffer:
            found.append(e)
        if not isinstance(e, tir.Select) and not _is_conditional(e):
            stack += e.children()
    return found


def _is_conditional(e: tir.PrimExpr) -> bool:
    return isinstance(e, tir.Call) and e.op == "tir.if_then_else"


def _elements(s: st.For, indices: Sequence[tir.PrimExpr]) -> list[tuple[tir.Dim, ...]]:
    """Which element each of the first steps names, while inner loops are at the same place.

    [] where that depends on data, or the number of steps is not known.
    """
    extent = s.extent.value if isinstance(s.extent, tir.IntImm) else s.extent
    of_data = any(isinstance(n, BufferLoad) for i in indices for n in tir.post_order(i))
    steps = min(extent, _STEPS) if isinstance(extent, int) and not of_data else 0
    made: list[tuple[tir.Dim, ...]] = []
    for step in range(steps):
        at = tir.as_prim_expr(s.min, s.loop_var.dtype) + tir.const(step, s.loop_var.dtype)
        made.append(tuple(tir.simplify(tir.substitute(i, {s.loop_var: at})) for i in indices))
    return made
