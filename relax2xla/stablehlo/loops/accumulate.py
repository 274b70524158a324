"""Stores that accumulate: ``acc = acc + f(i)`` over loops that the element does not name.

Recognised are sums, products, minima, maxima and logical ones, and several accumulators at once
that select (argmax). Sums of products become contractions (contract.py), reductions over windows
become convolutions and ``reduce_window`` (windows.py), all else ``reduce``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import is_float
from relax2xla.ir.expr import Constant, Expr
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import children
from relax2xla.op.shared.lowering import (
    convert,
    full_like,
    hlo,
    identity_of,
    outputs,
    region,
    select,
    tensor_info,
)
from relax2xla.stablehlo.loops import contract, windows
from relax2xla.stablehlo.loops.affine import overlaps, tell_apart
from relax2xla.stablehlo.loops.axes import (
    Axis,
    NeedsLoop,
    Value,
    constant,
    elementwise,
    fixed_at,
    in_order,
    labelled,
    reduced,
    size_of,
    spread,
    union,
)
from relax2xla.stablehlo.loops.evaluate import evaluate
from relax2xla.stablehlo.loops.forms import form_of, settled
from relax2xla.stablehlo.loops.memory import access
from relax2xla.stablehlo.loops.reads import read
from relax2xla.stablehlo.loops.scalars import row
from relax2xla.stablehlo.loops.state import Kernel, Scope
from relax2xla.stablehlo.loops.writes import lanes_of, write
from relax2xla.tir.buffer import Buffer, BufferLoad, Let
from relax2xla.tir.functor import post_order
from relax2xla.tir.node import wrapped
from relax2xla.tir.stmt import BufferStore

_NODES: Final[dict[type[tir.PrimExpr], str]] = {
    tir.Add: "add",
    tir.Mul: "multiply",
    tir.Max: "maximum",
    tir.Min: "minimum",
    tir.And: "and",
    tir.Or: "or",
}
_CALLS: Final = {
    "tir.bitwise_or": "or",
    "tir.bitwise_and": "and",
    "tir.bitwise_xor": "xor",
}
UNROLLED_WINDOW: Final = 256
"""Windows of at most so many places are summed place by place where no row does it."""


def loads_of(*exprs: tir.PrimExpr) -> Iterator[BufferLoad]:
    """The reads of buffers in expressions."""
    for e in exprs:
        for node in post_order(e):
            if isinstance(node, BufferLoad):
                yield node


def reads_buffer(e: tir.PrimExpr, buffer: Buffer) -> bool:
    """Whether ``e`` reads the memory of ``buffer``."""
    return any(load.buffer.data is buffer.data for load in loads_of(e))


def accumulation(store: BufferStore) -> tuple[str, tir.PrimExpr] | None:
    """The row and the operand, where ``store`` combines its element with a value."""
    return _accumulated(store, store.value)


def _accumulated(store: BufferStore, value: tir.PrimExpr) -> tuple[str, tir.PrimExpr] | None:
    buffer = store.buffer

    def is_element(e: tir.PrimExpr) -> bool:
        return isinstance(e, BufferLoad) and e.buffer is buffer and e.indices == store.indices

    name = _NODES.get(type(value)) or (
        _CALLS.get(value.op) if isinstance(value, tir.Call) else None
    )
    if name is not None:
        one, two = value.children()
        for held, other in ((one, two), (two, one)):
            if is_element(held) and not reads_buffer(other, buffer):
                return name, other
        # (acc + a) + b
        if type(one) is type(value) and isinstance(one, tir.BinaryExpr):
            inner = _accumulated(store, one)
            if inner is not None and not reads_buffer(two, buffer):
                return name, value.rebuild((inner[1], two))
        return None
    if isinstance(value, tir.Sub) and is_element(value.a) and not reads_buffer(value.b, buffer):
        return "add", tir.Sub.make(tir.const(0, value.dtype), value.b)
    return _guarded(store, value, is_element)


def _guarded(
    store: BufferStore, value: tir.PrimExpr, is_element: Callable[[tir.PrimExpr], bool]
) -> tuple[str, tir.PrimExpr] | None:
    """``acc = where(c, acc + a, acc)`` adds ``where(c, a, 0)``."""
    if isinstance(value, tir.Select):
        condition, yes, no = value.children()
    elif isinstance(value, tir.Call) and value.op == "tir.if_then_else":
        condition, yes, no = value.args
    else:
        return None
    if reads_buffer(condition, store.buffer):
        return None
    for taken, left, turned in ((yes, no, False), (no, yes, True)):
        if is_element(left):
            inner = _accumulated(store, taken)
            if inner is not None:
                neutral = tir.const(identity_of_row(inner[0], value.dtype), value.dtype)
                sides = (neutral, inner[1]) if turned else (inner[1], neutral)
                call = tir.Call(value.dtype, "tir.if_then_else", (condition, *sides))
                return inner[0], call
    return None


def identity_of_row(name: str, dtype: str) -> float:
    """The neutral element of a row."""
    if dtype == "bool" and name in ("maximum", "minimum"):
        return name == "minimum"
    value: Any = identity_of(name, dtype)
    return value.item() if isinstance(value, np.generic) else value


def store(kernel: Kernel, s: BufferStore, scope: Scope) -> None:
    """Run one store in every lane."""
    kernel.line = s.line or kernel.line
    s = replace(s, value=settled(kernel, s.value, scope))
    used = lanes_of(kernel, s.buffer, s.indices, scope)
    lost = [a for a in scope.axes if a not in used and a not in scope.fixed and a.size > 1]
    found = accumulation(s)
    if found is not None:
        # Lanes may meet where the dependence test did not know an index: they are combined.
        forms = [form_of(kernel, i, scope) for i in s.indices]
        known = [f for f in forms if f is not None]
        apart = len(known) == len(forms) and tell_apart(known)
        if lost or not apart:
            _accumulate(kernel, s, *found, lost, apart, scope)
            return
    if lost and reads_buffer(s.value, s.buffer):
        raise NeedsLoop(lost, f"each step reads what the last one wrote to {s.buffer.name}")
    value = evaluate(kernel, s.value, scope)
    mask = scope.mask
    threads = [a for a in lost if a.thread and a in value.axes]
    if threads and (mask is None or set(threads).isdisjoint(mask.axes)):
        # Threads have no order: the value of one of them stays.
        value = fixed_at(value, {a: a.size - 1 for a in threads})
    if not set(lost).isdisjoint(value.axes):
        raise NeedsLoop(
            set(lost) & set(value.axes), f"steps write different values to {s.buffer.name}"
        )
    if mask is not None and not set(lost).isdisjoint(mask.axes):
        # One value from all lanes: it is written where one lane writes it.
        mask = reduced("or", mask, [a for a in mask.axes if a in lost])
    write(kernel, s.buffer, s.indices, value, scope.but(mask=mask))


def _accumulate(
    kernel: Kernel,
    s: BufferStore,
    name: str,
    term: tir.PrimExpr,
    lost: Sequence[Axis],
    apart: bool,
    scope: Scope,
) -> None:
    """``apart``: lanes that are left after the total write different elements."""
    if lost:
        # Lanes that do not run are left out of the total, if they meet others in it.
        masked = scope.mask is not None and not set(scope.mask.axes).isdisjoint(lost)
        total = _total(kernel, name, term, lost, scope, s.buffer.dtype, masked)
        scope = scope.but(axes=tuple(a for a in scope.axes if a not in lost))
        if masked:
            scope = scope.but(mask=None)
            if not apart or not in_range(kernel, s, scope):
                raise NeedsLoop(lost, "a condition on the loops of a reduction")
    else:
        total = evaluate(kernel, term, scope)
    _add_guarded(kernel, s, name, total, apart, scope)


def in_range(kernel: Kernel, s: BufferStore, scope: Scope) -> bool:
    """Whether the element exists in every lane, masked or not."""
    _, indices, memory = access(kernel, s.buffer, s.indices, scope)
    for index, n in zip(indices, memory.shape, strict=True):
        form = form_of(kernel, index, scope)
        if form is None or form.scalar is not None:
            return False
        low, high = form.range()
        if low < 0 or high >= n:
            return False
    return True


def everywhere(x: Expr) -> float | None:
    """The number that ``x`` holds in all of its elements, if it is a constant of one."""
    while is_op(x, "relax.stablehlo.reshape"):
        x = children(x)[0]
    if not isinstance(x, Constant) or not x.data.size:
        return None
    steps = zip(x.data.strides, x.data.shape, strict=True)
    return None if any(s for s, n in steps if n > 1) else x.data.flat[0].item()


def _add_guarded(
    kernel: Kernel, s: BufferStore, name: str, total: Value, apart: bool, scope: Scope
) -> None:
    if not apart:
        write(kernel, s.buffer, s.indices, total, scope, combine=name)
        return
    held = read(kernel, BufferLoad(s.buffer, s.indices), scope)
    total = Value(convert(total.expr, s.buffer.dtype), total.axes)
    if everywhere(held.expr) == identity_of_row(name, s.buffer.dtype):
        write(kernel, s.buffer, s.indices, total, scope)
        return
    write(kernel, s.buffer, s.indices, elementwise(row(name), held, total), scope)


def _total(
    kernel: Kernel,
    name: str,
    term: tir.PrimExpr,
    lost: Sequence[Axis],
    scope: Scope,
    dtype: str,
    masked: bool,
) -> Value:
    """``term`` combined over the axes ``lost``; ``masked``: where the scope's mask holds."""
    gone = set(lost)
    sliding = _sliding(kernel, term, gone, scope)
    if name == "add" and dtype != "bool":
        made = contract.contracted(kernel, term, gone, sliding, scope, dtype, masked)
        if made is not None:
            return made
    if sliding and not masked:
        made = windows.pooled(kernel, name, term, gone, sliding, scope, dtype)
        if made is not None:
            return made
    if sliding and size_of(sliding) <= UNROLLED_WINDOW:
        return _place_by_place(kernel, name, term, lost, in_order(sliding), scope, dtype, masked)
    value = evaluate(kernel, term, scope)
    if masked and scope.mask is not None:
        neutral = constant(identity_of_row(name, value.dtype), value.dtype)
        value = elementwise(select, scope.mask, value, neutral)
    axes = [a for a in value.axes if a in gone]
    if axes:
        kernel.count("reduce")
    return repeated(name, reduced(name, value, axes), value, lost)


def repeated(name: str, total: Value, value: Value, lost: Sequence[Axis]) -> Value:
    """``total`` of ``value``, once for each place of the axes that ``value`` has not."""
    times = size_of(a for a in lost if a not in value.axes)
    if times == 1 or name in ("maximum", "minimum", "and", "or"):
        return total
    x, dtype = total.expr, total.dtype
    if name == "xor":
        return total if times % 2 else Value(full_like(x, 0), total.axes)
    if name == "multiply":
        return Value(hlo("power", x, full_like(x, times)), total.axes)
    return Value(
        hlo("multiply", x, full_like(x, times if is_float(dtype) else wrapped(times, dtype))),
        total.axes,
    )


def _sliding(kernel: Kernel, term: tir.PrimExpr, gone: set[Axis], scope: Scope) -> set[Axis]:
    """The axes of ``gone`` that slide a window over an axis of a buffer."""
    found: set[Axis] = set()
    for load in loads_of(term):
        try:
            _, indices, _ = access(kernel, load.buffer, load.indices, scope)
            forms = [form_of(kernel, i, scope, scalars=False) for i in indices]
        except (KeyError, NeedsLoop):
            continue
        for form in forms:
            if form is not None and overlaps(form):
                found |= {a for a in form.terms if a in gone and a.size > 1}
    return found


def _place_by_place(
    kernel: Kernel,
    name: str,
    term: tir.PrimExpr,
    lost: Sequence[Axis],
    sliding: Sequence[Axis],
    scope: Scope,
    dtype: str,
    masked: bool,
) -> Value:
    """The total over windows, one place of the window after the other."""
    kernel.count("window_unroll")
    rest = [a for a in lost if a not in sliding]
    total: Value | None = None
    for place in itertools.product(*(range(a.size) for a in sliding)):
        here = at_places(scope, sliding, place)
        part = _total(kernel, name, term, rest, here, dtype, masked)
        total = part if total is None else elementwise(row(name), total, part)
    assert total is not None
    return total


def at_places(scope: Scope, axes: Sequence[Axis], place: Sequence[int]) -> Scope:
    """``scope`` with axes at one place."""
    return fixed_scope(scope, dict(zip(axes, place, strict=True)))


def fixed_scope(scope: Scope, where: Mapping[Axis, int]) -> Scope:
    """``scope`` with axes at one place."""
    mask = None if scope.mask is None else fixed_at(scope.mask, where)
    rest = tuple(a for a in scope.axes if a not in where)
    return scope.but(fixed={**scope.fixed, **where}, mask=mask, axes=rest)


# ---- several accumulators at once
def selections(
    stores: Sequence[BufferStore],
) -> tuple[list[tir.PrimExpr], list[tir.PrimExpr]] | None:
    """What argmax and its like combine: (new elements, new values over placeholders).

    Each store is ``acc_k = where(c, acc_k, x_k)`` (or the other way round), where ``c`` compares
    accumulators with new elements. The placeholders are variables ``l0, r0, l1, r1, ...``; None if
    the stores are not of that form.
    """
    accumulators = [BufferLoad(s.buffer, s.indices) for s in stores]
    written = {s.buffer.data for s in stores}
    elements: list[tir.PrimExpr] = []
    for s, held in zip(stores, accumulators, strict=True):
        if isinstance(s.value, tir.Select):
            yes, no = s.value.true_value, s.value.false_value
        elif isinstance(s.value, tir.Call) and s.value.op == "tir.if_then_else":
            _, yes, no = s.value.args
        else:
            return None
        element = no if yes == held else yes if no == held else None
        if element is None or any(load.buffer.data in written for load in loads_of(element)):
            return None
        elements.append(element)
    names: dict[tir.PrimExpr, tir.PrimExpr] = {}
    for s, held, element in zip(stores, accumulators, elements, strict=True):
        names.setdefault(held, tir.Var("l", s.buffer.dtype))
        names.setdefault(element, tir.Var("r", s.buffer.dtype))
    if len(names) != 2 * len(stores):
        return None
    values = [replaced(s.value, names) for s in stores]
    placeholders = set(names.values())
    for value in values:
        for node in post_order(value):
            if isinstance(node, BufferLoad | Let) or (
                isinstance(node, tir.Var) and node not in placeholders
            ):
                return None
    variables = [names[e] for pair in zip(accumulators, elements, strict=True) for e in pair]
    return elements, [*variables, *values]


def replaced(e: tir.PrimExpr, by: Mapping[tir.PrimExpr, tir.PrimExpr]) -> tir.PrimExpr:
    """``e`` with sub-expressions replaced, the largest first."""
    found = by.get(e)
    if found is not None:
        return found
    old = e.children()
    new = [replaced(c, by) for c in old]
    return e.rebuild(new) if any(a is not b for a, b in zip(old, new, strict=True)) else e


def select_together(
    kernel: Kernel, stores: Sequence[BufferStore], starts: Sequence[tir.PrimExpr], scope: Scope
) -> bool:
    """Reduce several accumulators as one row; False if nothing is reduced here."""
    found = selections(stores)
    used: set[Axis] = set()
    for s in stores:
        used |= lanes_of(kernel, s.buffer, s.indices, scope)
    lost = [a for a in scope.axes if a not in used and a not in scope.fixed]
    if found is None or not lost:
        return False
    mask = scope.mask
    free = scope.but(axes=tuple(a for a in scope.axes if a not in lost), mask=None)
    if mask is not None and not all(in_range(kernel, s, free) for s in stores):
        return False
    elements, made = found
    names, results = made[: 2 * len(stores)], made[2 * len(stores) :]
    values = [evaluate(kernel, e, scope) for e in elements]
    axes = in_order({*union(*values, *([] if mask is None else [mask])), *lost})
    operands = [
        convert(spread(v, axes), s.buffer.dtype) for v, s in zip(values, stores, strict=True)
    ]
    inits = [evaluate(kernel, e, scope).expr for e in starts]
    infos = [tensor_info((), s.buffer.dtype) for s in stores]
    if mask is not None:
        # Lanes that do not run are told apart by one more value.
        operands.append(spread(mask, axes))
        inits.append(constant(True, "bool").expr)
        infos.append(tensor_info((), "bool"))

    def combine(*params: Expr) -> list[Expr]:
        left, right = params[: len(infos)], params[len(infos) :]
        both = combined(left[: len(stores)], right[: len(stores)])
        if mask is None:
            return both
        here, there = left[-1], right[-1]
        kept = [
            select(there, select(here, new, r), old)
            for new, old, r in zip(both, left[: len(stores)], right[: len(stores)], strict=True)
        ]
        return [*kept, hlo("or", here, there)]

    def combined(left: Sequence[Expr], right: Sequence[Expr]) -> list[Expr]:
        env = {
            name: Value(x)
            for pair, both in zip(_pairs(names), zip(left, right, strict=True), strict=True)
            for name, x in zip(pair, both, strict=True)
        }
        inner = Scope(env=env)  # pyright: ignore[reportArgumentType]
        return [evaluate(kernel, e, inner).expr for e in results]

    params = [(f"{side}{i}", info) for side in "lr" for i, info in enumerate(infos)]
    reduced_ = hlo(
        "reduce",
        *operands,
        *inits,
        region(params, combine),
        dimensions=tuple(axes.index(a) for a in in_order(lost)),
    )
    kernel.count("reduce")
    rest = [a for a in axes if a not in lost]
    for s, x in zip(stores, outputs(reduced_), strict=False):
        write(kernel, s.buffer, s.indices, labelled(x, rest), free)
    return True


def _pairs(names: Sequence[tir.PrimExpr]) -> list[tuple[tir.PrimExpr, tir.PrimExpr]]:
    return list(zip(names[::2], names[1::2], strict=True))
