"""Statements: what each kind does to memory, in every lane at once."""

from __future__ import annotations

import re
from collections.abc import Sequence

from relax2xla import tir
from relax2xla.ir import const
from relax2xla.op.shared.lowering import hlo
from relax2xla.stablehlo.loops import accumulate, repeat
from relax2xla.stablehlo.loops.accesses import (
    Access,
    Body,
    accesses_of,
    body_of,
    starts_of,
    statements,
)
from relax2xla.stablehlo.loops.accumulate import fixed_scope
from relax2xla.stablehlo.loops.affine import Form, number, of_axis, plus, value_of
from relax2xla.stablehlo.loops.allreduce import meets
from relax2xla.stablehlo.loops.axes import Axis, NeedsLoop, Value, constant, elementwise, known
from relax2xla.stablehlo.loops.dependence import obstacle
from relax2xla.stablehlo.loops.evaluate import bound, evaluate
from relax2xla.stablehlo.loops.forms import difference_of, form_of
from relax2xla.stablehlo.loops.memory import allocate, fixed_size
from relax2xla.stablehlo.loops.private import give, own_scratch
from relax2xla.stablehlo.loops.races import mixed_of, race_of
from relax2xla.stablehlo.loops.scalars import NODES
from relax2xla.stablehlo.loops.state import Kernel, Memory, Scope
from relax2xla.tir import stmt as st
from relax2xla.tir.buffer import Buffer

_NOTHING = {"tir.tvm_storage_sync", "tir.assume", "tir.undef"}
_THREADS = re.compile(
    r"(threadIdx|blockIdx|clusterCtaIdx|preferredClusterCtaIdx)\.[xyz]|vthread(\.[xyz])?|cthread"
)
"""The names of threads that TVM knows."""


def run(kernel: Kernel, s: st.Stmt, scope: Scope) -> None:
    """Run a statement."""
    kernel.line = s.line or kernel.line
    match s:
        case st.SeqStmt():
            for part in s.seq:
                run(kernel, part, scope)
        case st.BufferStore():
            accumulate.store(kernel, s, scope)
        case st.For():
            _for(kernel, s, scope)
        case st.BlockRealize():
            _block(kernel, s, scope)
        case st.IfThenElse():
            _if(kernel, s, scope)
        case st.While():
            repeat.while_statement(kernel, s, scope)
        case st.LetStmt():
            run(kernel, s.body, scope.bind(s.var, bound(kernel, s.value, scope)))
        case st.AttrStmt():
            _attribute(kernel, s, scope)
        case st.Allocate():
            _allocate(kernel, s, scope)
        case st.AllocateConst():
            shape = tuple(fixed_size(kernel, e, scope) for e in s.extents)
            kernel.memory[s.buffer_var] = Memory(const(s.data.reshape(shape)), (), shape)
            run(kernel, s.body, scope)
        case st.DeclBuffer():
            if s.buffer.data not in kernel.memory:
                allocate(kernel, s.buffer, scope)
            run(kernel, s.body, scope)
        case st.AssertStmt():
            _assert(kernel, s, scope)
        case st.Evaluate():
            _evaluate(kernel, s)
        case st.Text():
            raise kernel.error(f"the body was not understood: {s.why}")
        case _:
            raise kernel.error(f"a statement of kind {type(s).__name__} cannot be lowered")


def _evaluate(kernel: Kernel, s: st.Evaluate) -> None:
    value = s.value
    if isinstance(value, tir.Call) and value.op not in _NOTHING:
        raise kernel.error(
            f"the call of {value.op} for its effect cannot be lowered to StableHLO; call the "
            "function from Relax (R.call_dps_packed)"
        )


def _assert(kernel: Kernel, s: st.AssertStmt, scope: Scope) -> None:
    truth = known(evaluate(kernel, s.condition, scope))
    if truth is None:
        raise kernel.error(
            f"`assert {s.condition}` depends on data; only assertions about sizes can be lowered"
        )
    if not truth:
        raise kernel.error(f"the assertion `{s.condition}` does not hold: {s.message.value}")
    run(kernel, s.body, scope)


def _allocate(kernel: Kernel, s: st.Allocate, scope: Scope) -> None:
    extents = tuple(fixed_size(kernel, e, scope) for e in s.extents)
    buffer = tir_buffer(s.buffer_var, extents, s.dtype, s.scope)
    allocate(kernel, buffer, scope, extents)
    run(kernel, s.body, scope)


def tir_buffer(data: tir.Var, shape: Sequence[int], dtype: str, scope: str) -> Buffer:
    """A buffer on memory that a variable points to."""

    return Buffer(data, tuple(shape), dtype, data.name, scope=scope)


# ---- conditions
def _if(kernel: Kernel, s: st.IfThenElse, scope: Scope) -> None:
    test = evaluate(kernel, s.condition, scope)
    truth = known(test)
    if truth is not None:
        branch = s.then_case if truth else s.else_case
        if branch is not None:
            run(kernel, branch, scope)
        return
    run(kernel, s.then_case, limited(kernel, s.condition, scope))
    if s.else_case is not None:
        run(kernel, s.else_case, scope.where(Value(hlo("not", test.expr), test.axes)))


def limited(kernel: Kernel, condition: tir.PrimExpr, scope: Scope) -> Scope:
    """``scope`` where ``condition`` holds: axes that it fixes are fixed, for the rest a mask."""
    masks: list[Value] = []
    stack = [condition]
    while stack:
        e = stack.pop()
        if isinstance(e, tir.And):
            stack += [e.b, e.a]
            continue
        place = _place(kernel, e, scope)
        if place is not None:
            axis, at = place
            scope = fixed_scope(scope, {axis: at})
            masks = [accumulate.fixed_at(m, {axis: at}) for m in masks]
            continue
        mask = evaluate(kernel, e, scope.but(guarded=scope.guarded or bool(masks)))
        if known(mask) is not True:
            masks.append(mask)
    for mask in masks:
        scope = scope.where(mask)
    return scope


def _place(kernel: Kernel, e: tir.PrimExpr, scope: Scope) -> tuple[Axis, int] | None:
    """The axis and the place that ``axis == place`` names."""
    if not isinstance(e, tir.EQ):
        return None
    difference = difference_of(kernel, e, scope)
    if difference is None or len(difference.terms) != 1:
        return None
    ((axis, step),) = difference.terms.items()
    if difference.const % step or axis not in scope.axes:
        return None
    at = -difference.const // step
    return (axis, at) if 0 <= at < axis.size else None


# ---- blocks
def _block(kernel: Kernel, s: st.BlockRealize, scope: Scope) -> None:
    block = s.block
    kernel.line = block.line or kernel.line
    outer = scope
    for axis, value in zip(block.iter_vars, s.iter_values, strict=True):
        scope = scope.bind(axis.var, bound(kernel, value, outer))
    if known(evaluate(kernel, s.predicate, scope)) is not True:
        scope = limited(kernel, s.predicate, scope)
    for buffer in block.alloc_buffers:
        allocate(kernel, buffer, scope)
    for match in block.match_buffers:
        kernel.views[match.buffer] = match.source
        _check_match(kernel, match, scope)
    if block.init is not None:
        _init(kernel, block, scope)
    found = body_of(block)
    if found is None:
        run(kernel, block.body, scope)
        return
    stores, together = found
    if together:
        assert block.init is not None
        starts = starts_of(block.init, stores)
        if starts and accumulate.select_together(kernel, stores, starts, scope):
            return
        run(kernel, block.body, scope)
        return
    for store in stores:
        accumulate.store(kernel, store, scope)


def _check_match(kernel: Kernel, match: st.MatchBufferRegion, scope: Scope) -> None:
    for d in match.buffer.shape:
        if isinstance(d, tir.Var) and d not in scope.env:
            raise kernel.error(
                f"T.match_buffer of a region with the symbolic size {d.name} cannot be lowered; "
                "write the size"
            )


def _init(kernel: Kernel, block: st.Block, scope: Scope) -> None:
    """Run the init where every reduction axis is at its first place."""
    assert block.init is not None
    where: dict[Axis, int] = {}
    masks: list[Value] = []
    spatial: set[Axis] = set()
    for axis in block.iter_vars:
        held = scope.env[axis.var]
        if axis.iter_type != "reduce":
            spatial |= set(held.terms if isinstance(held, Form) else held.axes)
    for axis in block.iter_vars:
        if axis.iter_type != "reduce":
            continue
        held = scope.env[axis.var]
        start = number(0) if axis.dom is None else _form(kernel, axis.dom.min, scope)
        if isinstance(held, Form) and held.scalar is None and start is not None:
            form = plus(held, start, -1)
            low, high = form.range()
            if form.scalar is None and (low > 0 or high < 0):
                return
            positive = all(k > 0 for k in form.terms.values())
            if form.scalar is None and low == 0 and positive and spatial.isdisjoint(form.terms):
                where.update(dict.fromkeys(form.terms, 0))
                continue
        place = value_of(held, axis.var.dtype) if isinstance(held, Form) else held
        first = constant(0, axis.var.dtype)
        if axis.dom is not None:
            first = evaluate(kernel, tir.as_prim_expr(axis.dom.min, axis.var.dtype), scope)
        masks.append(elementwise(NODES[tir.EQ], place, first))
    inner = fixed_scope(scope, where)
    for mask in masks:
        inner = inner.where(accumulate.fixed_at(mask, where))
    run(kernel, block.init, inner)


# ---- loops
def _attribute(kernel: Kernel, s: st.AttrStmt, scope: Scope) -> None:
    if s.attr_key in ("thread_extent", "virtual_thread") and isinstance(s.node, st.IterVar):
        loop = st.For(s.node.var, 0, s.value, "thread_binding", s.body, s.node, line=s.line)
        _for(kernel, loop, scope)
        return
    run(kernel, s.body, scope)


def _form(kernel: Kernel, e: tir.Dim, scope: Scope) -> Form | None:
    return number(e) if isinstance(e, int) else form_of(kernel, e, scope, scalars=False)


def _for(kernel: Kernel, s: st.For, scope: Scope) -> None:
    extent, low = _form(kernel, s.extent, scope), _form(kernel, s.min, scope)
    tag = s.thread_binding.thread_tag if s.thread_binding is not None else ""
    if s.thread_binding is not None and not _THREADS.fullmatch(tag):
        raise kernel.error(
            f"the loop {s.loop_var.name} is bound to the threads {tag!r}; there are threadIdx, "
            "blockIdx and clusterCtaIdx with .x, .y or .z, vthread and cthread"
        )
    if extent is None or low is None or extent.scalar is not None or low.scalar is not None:
        _unknown_extent(kernel, s, scope, extent, low)
        return
    count = extent.range()[1]
    if count <= 0:
        return
    if tag in scope.threads:
        _same_thread(kernel, s, scope, plus(scope.threads[tag], low), count)
        return
    if count == 1 and extent.is_number:
        inner = scope.bind(s.loop_var, low)
        if tag:
            inner = inner.but(threads={**scope.threads, tag: number(0)})
        run(kernel, s.body, inner)
        return
    race = race_of(kernel, s) if tag else None
    why = _vector(kernel, s, scope, extent, low, tag) if race is None else ""
    if why is None:
        return
    kernel.line = s.line or kernel.line
    if s.kind in ("parallel", "vectorized"):
        race = race_of(kernel, s)
    if race is not None:
        kernel.line = race.line or kernel.line
        raise kernel.error(
            f"the steps of the loop {s.loop_var.name}, which run at once ({s.kind}), write "
            f"different values to one element of {race.buffer.name}, so that any of them may stay; "
            "make the loop serial, or let each step write an element of its own"
        )
    if s.kind in ("parallel", "vectorized") and (mixed := mixed_of(kernel, s)) is not None:
        kernel.line = mixed.line or kernel.line
        raise kernel.error(
            f"the steps of the loop {s.loop_var.name}, which run at once ({s.kind}), read elements "
            f"of {mixed.buffer.name} that other steps write, before or after that; make the loop "
            "serial, or write to another buffer"
        )
    if tag and any(_synchronises(x) for x in statements(s.body)):
        raise kernel.error(
            f"the threads {tag} of the loop {s.loop_var.name} cannot run side by side ({why}), and "
            "one after the other they cannot share memory"
        )
    if tag.startswith("threadIdx"):
        _refuse_talk(kernel, s, scope, Axis(count, s.loop_var.name, tag), low, why)
    known_count = count if extent.is_number else None
    if known_count is not None:
        if repeat.running(kernel, s, scope, low, known_count):
            return
        if not tag and _without_edge(kernel, s, scope, low, known_count):
            return
    repeat.sequential(kernel, s, scope, low, known_count, why)


def _without_edge(kernel: Kernel, s: st.For, scope: Scope, low: Form, count: int) -> bool:
    """Run the first step (or the last one) alone, and the rest at once, where that is possible.

    ``if k == 0: x = 0`` before ``x = x + f(k)`` is an example. False: nothing has happened.
    """
    if count <= 2 or low.scalar is not None:
        return False
    axis = Axis(count, s.loop_var.name)
    edges = accesses_of(kernel, s.body, _with(scope, s, of_axis(axis), low, "")).edges
    for place in (0, -1):
        if (axis, place) not in edges:
            continue
        memory, loops, forms = dict(kernel.memory), len(kernel.loops), dict(kernel.forms)
        alone = plus(low, number(0 if place == 0 else count - 1))
        start = plus(low, number(1)) if place == 0 else low
        if place == 0:
            run(kernel, s.body, scope.bind(s.loop_var, alone))
        if repeat.running(kernel, s, scope, start, count - 1) or (
            _vector(kernel, s, scope, number(count - 1), start, "") is None
        ):
            if place == -1:
                run(kernel, s.body, scope.bind(s.loop_var, alone))
            return True
        kernel.memory, kernel.forms = memory, forms
        del kernel.loops[loops:]
    return False


def _refuse_talk(kernel: Kernel, s: st.For, scope: Scope, axis: Axis, low: Form, why: str) -> None:
    """LegalizeError where a thread reads what others write: one after the other they must not."""
    body = accesses_of(kernel, s.body, _with(scope, s, of_axis(axis), low, axis.thread))
    by_memory: dict[tir.Var, list[Access]] = {}
    for a in body.accesses:
        by_memory.setdefault(a.buffer.data, []).append(a)
    for accesses in by_memory.values():
        buffer = accesses[0].buffer
        kinds = {a.kind for a in accesses}
        own = buffer.data in body.private or buffer.scope.startswith("local")
        if own or "read" not in kinds or kinds == {"read"}:
            continue
        if obstacle([axis], Body(accesses, set(), {}), True) is not None:
            raise kernel.error(
                f"the threads of the loop {s.loop_var.name} cannot run side by side ({why}), and "
                f"one after the other they would read what others have written to {buffer.name}"
            )


def _synchronises(s: st.Stmt) -> bool:
    """Whether threads meet here: at a barrier, in shared memory, or to combine values."""
    if isinstance(s, st.Evaluate):
        return isinstance(s.value, tir.Call) and s.value.op == "tir.tvm_storage_sync"
    if isinstance(s, st.BufferStore):
        return s.buffer.scope.startswith("shared") or meets(s)
    return False


def _unknown_extent(
    kernel: Kernel, s: st.For, scope: Scope, extent: Form | None, low: Form | None
) -> None:
    if s.thread_binding is not None:
        raise kernel.error(
            f"the number of threads {s.extent} of {s.thread_binding.thread_tag} is not known when "
            "the kernel is compiled"
        )
    count = extent.const if extent is not None and extent.is_number else None
    if low is None:
        low = form_of(kernel, tir.as_prim_expr(s.min), scope)
    if low is not None and low.terms:
        low = None
    if count is not None and count <= 0:
        return
    repeat.sequential(kernel, s, scope, low, count, "its bounds are computed by the program")


def _same_thread(kernel: Kernel, s: st.For, scope: Scope, place: Form, count: int) -> None:
    """A thread axis that is bound again: the same threads."""
    size = place.range()[1] + 1
    inner = scope.bind(s.loop_var, place)
    if size > count:
        index = value_of(place, s.loop_var.dtype)
        inner = inner.where(elementwise(NODES[tir.LT], index, constant(count, s.loop_var.dtype)))
    elif size < count:
        raise kernel.error(f"the loop {s.loop_var.name} binds {count} threads of {size}")
    run(kernel, s.body, inner)


def _vector(
    kernel: Kernel, s: st.For, scope: Scope, extent: Form, low: Form, tag: str
) -> str | None:
    """Run the loop as a vector; else the reason why not, and nothing has happened."""
    axes, place, body = _digits(kernel, s, scope, extent.range()[1], low, tag)
    scratch = own_scratch(kernel, s, axes, body, tag)
    body.private |= set(scratch)
    if not tag:
        concurrent = s.kind in ("parallel", "vectorized")
        why = obstacle(axes, body, concurrent or _promises(s), concurrent)
        if why is not None:
            return why
    memory, loops, forms = dict(kernel.memory), len(kernel.loops), dict(kernel.forms)
    inner = scope.bind(s.loop_var, plus(place, low)).but(axes=(*scope.axes, *axes))
    if tag:
        inner = inner.but(threads={**scope.threads, tag: place})
    try:
        if not give(kernel, scratch, axes, inner):
            raise NeedsLoop(axes, "the memory that each step needs is too large")
        if not extent.is_number:
            dtype = s.loop_var.dtype
            inner = inner.where(
                elementwise(NODES[tir.LT], value_of(place, dtype), value_of(extent, dtype))
            )
        run(kernel, s.body, inner)
    except NeedsLoop as e:
        if e.axes and e.axes.isdisjoint(axes):
            raise
        kernel.memory, kernel.forms = memory, forms
        del kernel.loops[loops:]
        return e.why
    for data in scratch:
        kernel.memory[data] = memory[data]
    return None


def _promises(s: st.For) -> bool:
    """Whether all that the loop holds is a block with axes: they say which elements differ."""
    body = s.body
    while isinstance(body, st.For):
        body = body.body
    if not isinstance(body, st.BlockRealize) or not body.block.iter_vars:
        return False
    return all(a.iter_type in ("spatial", "reduce") for a in body.block.iter_vars)


def _digits(
    kernel: Kernel, s: st.For, scope: Scope, count: int, low: Form, tag: str
) -> tuple[list[Axis], Form, Body]:
    """The axes of a loop, its variable (less its start) as a form of them, and its body.

    Where the body divides the variable, it is split into digits.
    """
    whole = Axis(count, s.loop_var.name, tag)
    body = accesses_of(kernel, s.body, _with(scope, s, of_axis(whole), low, tag))
    chain: list[int] = []
    for by in sorted(body.divisors.get(whole, ())):
        if count % by == 0 and (not chain or by % chain[-1] == 0):
            chain.append(by)
    if not chain:
        return [whole], of_axis(whole), body
    axes: list[Axis] = []
    terms: dict[Axis, int] = {}
    above = count
    for by in [*reversed(chain), 1]:
        axis = Axis(above // by, f"{s.loop_var.name}_{by}", tag)
        axes.append(axis)
        terms[axis] = by
        above = by
    place = Form(terms)
    return axes, place, accesses_of(kernel, s.body, _with(scope, s, place, low, tag))


def _with(scope: Scope, s: st.For, place: Form, low: Form, tag: str) -> Scope:
    inner = scope.bind(s.loop_var, plus(place, low))
    return inner.but(threads={**scope.threads, tag: place}) if tag else inner
