"""Scratch memory: buffers that every iteration of a loop has for itself.

A script allocates scratch where its block begins; TVM's lowering moves it to the innermost place
that holds all its uses. So memory that is used inside one loop alone is each iteration's own, if
an iteration writes all of it before it reads any of it. Local memory is each thread's own, shared
memory each block's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from relax2xla import tir
from relax2xla.op.shared.lowering import full
from relax2xla.stablehlo.loops.accesses import (
    Access,
    Body,
    expressions_of,
    resolved,
    statements,
    views_below,
)
from relax2xla.stablehlo.loops.accumulate import loads_of
from relax2xla.stablehlo.loops.affine import Form, is_nested
from relax2xla.stablehlo.loops.axes import Axis, in_order, size_of
from relax2xla.stablehlo.loops.dependence import obstacle
from relax2xla.stablehlo.loops.memory import MOST_ELEMENTS
from relax2xla.stablehlo.loops.state import Kernel, Memory, Scope
from relax2xla.tir import stmt as st


def uses(kernel: Kernel, root: st.Stmt) -> Counter[tir.Var]:
    """How often each memory is named below ``root``."""
    views = {**kernel.views, **views_below(root)}
    found: Counter[tir.Var] = Counter()
    for s in statements(root):
        if isinstance(s, st.BufferStore):
            found[resolved(views, s.buffer).data] += 1
        for load in loads_of(*expressions_of(s)):
            found[resolved(views, load.buffer).data] += 1
    return found


def own_scratch(
    kernel: Kernel, s: st.For, axes: Sequence[Axis], body: Body, tag: str
) -> list[tir.Var]:
    """Memory from outside that each iteration of ``s`` has for itself."""
    names = dict.fromkeys(a.buffer.data for a in body.accesses if a.kind != "read")
    inside: Counter[tir.Var] | None = None
    found: list[tir.Var] = []
    for data in names:
        if data in body.private or data in kernel.parameters or data not in kernel.memory:
            continue
        accesses = [a for a in body.accesses if a.buffer.data is data]
        if not any(obstacle([a], Body(accesses, set(), {}), False) for a in axes):
            continue
        if inside is None:
            inside = uses(kernel, s.body)
        if inside[data] != kernel.uses[data]:
            continue
        scope = accesses[0].buffer.scope
        shared = scope.startswith("shared")
        if tag and shared and not tag.startswith("blockIdx"):
            continue
        if (tag and (shared or scope.startswith("local"))) or _written_first(
            accesses, kernel.memory[data].shape
        ):
            found.append(data)
    return found


def _written_first(accesses: Sequence[Access], shape: Sequence[int]) -> bool:
    """Whether the first access writes all of the memory, wherever the loop is run."""
    first = accesses[0]
    if first.kind not in ("write", "init") or not first.always:
        return False
    seen: set[Axis] = set()
    if len(first.forms) != len(shape):
        return False
    for form, size in zip(first.forms, shape, strict=True):
        if form is None or form.scalar is not None:
            return False
        if not _covers(form, size) or not seen.isdisjoint(form.terms):
            return False
        seen |= set(form.terms)
    return True


def _covers(form: Form, size: int) -> bool:
    """Whether the form takes every value from 0 to ``size - 1``."""
    terms = form.sorted_terms()
    if form.const or any(k < 0 for _, k in terms) or size_of(form.terms) != size:
        return False
    return not terms or (is_nested(terms) and terms[-1][1] == 1)


def give(kernel: Kernel, names: Sequence[tir.Var], axes: Sequence[Axis], scope: Scope) -> bool:
    """New memory with ``axes`` for each of ``names``; False if it would be too large."""
    new: dict[tir.Var, Memory] = {}
    for data in names:
        old = kernel.memory[data]
        lanes = in_order({*old.axes, *axes} - scope.fixed.keys())
        sizes = [*(a.size for a in lanes), *old.shape]
        if size_of(lanes) * max(1, _count(old.shape)) > MOST_ELEMENTS:
            return False
        dtype = old.dtype
        new[data] = Memory(full(sizes, 0, dtype), tuple(lanes), old.shape)
    kernel.memory.update(new)
    return True


def _count(shape: Sequence[int]) -> int:
    total = 1
    for n in shape:
        total *= n
    return total
