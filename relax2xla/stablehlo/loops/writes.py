"""Writes to buffers: the whole, a slice that is put in place, or a scatter."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from relax2xla import tir
from relax2xla.ir.expr import Constant, Expr
from relax2xla.op.shared.loops import int32
from relax2xla.op.shared.lowering import (
    broadcast_to,
    compare,
    convert,
    dtype_of,
    hlo,
    pad,
    region,
    reshape,
    scalar,
    select,
    shape_of,
    slice_axis,
    tensor_info,
)
from relax2xla.stablehlo.loops.affine import INDEX, Form, is_nested, value_of
from relax2xla.stablehlo.loops.axes import Axis, NeedsLoop, Value, size_of, spread, union
from relax2xla.stablehlo.loops.evaluate import evaluate
from relax2xla.stablehlo.loops.forms import form_of
from relax2xla.stablehlo.loops.memory import access
from relax2xla.stablehlo.loops.reads import check_range, index_vectors, lane
from relax2xla.stablehlo.loops.state import Kernel, Memory, Scope
from relax2xla.tir.buffer import Buffer


def write(
    kernel: Kernel,
    buffer: Buffer,
    indices: Sequence[tir.PrimExpr],
    value: Value,
    scope: Scope,
    combine: str | None = None,
) -> None:
    """Put ``value`` where ``indices`` say, in every lane that the mask lets through.

    With ``combine``, a row's name, lanes that meet in one element are combined by it, and with
    what is there.
    """
    buffer, indices, memory = access(kernel, buffer, indices, scope)
    value = Value(convert(value.expr, buffer.dtype), value.axes)
    forms: list[Form | None] = [lane(a, scope) for a in memory.axes]
    forms += [form_of(kernel, i, scope) for i in indices]
    if scope.mask is None:
        for form, index, n in zip(forms[len(memory.axes) :], indices, memory.shape, strict=True):
            if form is not None:
                check_range(kernel, buffer, form, index, n)
    known = [f for f in forms if f is not None]
    new: Expr | None = None
    if combine is None and len(known) == len(forms) and _is_box(known, scope):
        new = _put(kernel, memory.expr, known, value, scope)
    if new is None:
        new = _scatter(kernel, memory, forms, indices, value, scope, combine)
    kernel.memory[buffer.data] = Memory(new, memory.axes, memory.shape)


def _is_box(forms: Sequence[Form], scope: Scope) -> bool:
    """Whether the elements are a box with steps, each written by one lane."""
    seen: set[Axis] = set()
    for form in forms:
        terms = form.sorted_terms()
        if any(a in seen or c < 0 for a, c in terms) or not is_nested(terms):
            return False
        if form.scalar is not None and terms:
            # A block that sticks out would be moved by a dynamic slice.
            if scope.mask is not None or terms[-1][1] != 1:
                return False
        seen |= {a for a, _ in terms}
    return True


def _put(kernel: Kernel, x: Expr, forms: Sequence[Form], value: Value, scope: Scope) -> Expr | None:
    """``x`` with a box replaced; None if the box is larger than it."""
    order = [a for f in forms for a, _ in f.sorted_terms()]
    _check_lanes(value, scope.mask, order)
    shape = shape_of(x)
    counts = [size_of(f.terms) for f in forms]
    steps = [f.sorted_terms()[-1][1] if f.terms else 1 for f in forms]
    new = reshape(spread(value, order), counts)
    mask = None if scope.mask is None else reshape(spread(scope.mask, order), counts)
    starts: list[int | Expr] = []
    for k, form in enumerate(forms):
        if form.scalar is not None:
            if counts[k] > shape[k]:
                return None
            at = form.scalar
            if form.const:
                at = hlo("add", at, scalar(form.const, INDEX))
            if mask is not None:
                mask = hlo("and", mask, broadcast_to(_in_range(at, shape[k]), counts))
            starts.append(at)
            continue
        first = max(0, -(form.const // steps[k]))
        last = min(counts[k], (shape[k] - 1 - form.const) // steps[k] + 1)
        if last <= first:
            return x
        new = slice_axis(new, k, first, last)
        mask = None if mask is None else slice_axis(mask, k, first, last)
        counts[k] = last - first
        starts.append(form.const + first * steps[k])
    fixed = [s for s in starts if isinstance(s, int)]
    if len(fixed) == len(starts):
        return _put_at(x, new, mask, fixed, steps)
    if any(s != 1 for s in steps):
        return None
    kernel.count("dynamic_update_slice")
    at = [scalar(s, INDEX) if isinstance(s, int) else s for s in starts]
    if mask is not None:
        info = tensor_info(counts, dtype_of(x))
        old = hlo("dynamic_slice", x, *at, slice_sizes=tuple(counts), out=info)
        new = select(mask, new, old)
    return hlo("dynamic_update_slice", x, new, *at)


def _in_range(at: Expr, size: int) -> Expr:
    above = compare(at, scalar(0, INDEX), "GE")
    return hlo("and", above, compare(at, scalar(size, INDEX), "LT"))


def _put_at(
    x: Expr, new: Expr, mask: Expr | None, starts: Sequence[int], steps: Sequence[int]
) -> Expr:
    """``x`` with ``new`` at places that are known, where ``mask`` holds."""
    shape, counts = shape_of(x), shape_of(new)
    if counts == shape:
        return new if mask is None else select(mask, new, x)
    if all(s == 1 for s in steps) and mask is None:
        return hlo("dynamic_update_slice", x, new, *(int32(s) for s in starts))
    ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, counts, steps, strict=True)]
    around = [n - e for n, e in zip(shape, ends, strict=True)]
    inner = [s - 1 for s in steps]
    wide = pad(new, starts, around, scalar(0, dtype_of(x)), inner)
    if mask is not None:
        return select(pad(mask, starts, around, scalar(False, "bool"), inner), wide, x)
    there = np.zeros(shape, np.bool_)
    there[tuple(slice(a, e, s) for a, e, s in zip(starts, ends, steps, strict=True))] = True
    return select(_separable(there, shape, starts, ends, steps), wide, x)


def _separable(
    there: np.ndarray,
    shape: Sequence[int],
    starts: Sequence[int],
    ends: Sequence[int],
    steps: Sequence[int],
) -> Expr:
    """A box with steps as a mask: from one vector an axis, so that it takes no memory."""
    if math.prod(shape) <= 1 << 12:
        return Constant(there)
    mask: Expr | None = None
    for k, (a, e, s) in enumerate(zip(starts, ends, steps, strict=True)):
        if (a, e, s) == (0, shape[k], 1):
            continue
        line = np.zeros(shape[k], np.bool_)
        line[a:e:s] = True
        wide = hlo(
            "broadcast_in_dim",
            Constant(line),
            broadcast_dimensions=(k,),
            out=tensor_info(shape, "bool"),
        )
        mask = wide if mask is None else hlo("and", mask, wide)
    assert mask is not None
    return mask


def _check_lanes(value: Value, mask: Value | None, order: Sequence[Axis]) -> None:
    extra = set(value.axes) | set(() if mask is None else mask.axes)
    if not extra <= set(order):
        raise NeedsLoop(extra.difference(order), "lanes write different values to one element")


def _scatter(
    kernel: Kernel,
    memory: Memory,
    forms: Sequence[Form | None],
    indices: Sequence[tir.PrimExpr],
    value: Value,
    scope: Scope,
    combine: str | None,
) -> Expr:
    """``x`` with elements or whole rows replaced; indices out of range are dropped."""
    kernel.count("scatter")
    first = len(forms) - len(indices)
    places = [
        evaluate(kernel, indices[k - first], scope) if f is None else value_of(f, INDEX)
        for k, f in enumerate(forms)
    ]
    _check_lanes(value, scope.mask, union(*places))
    if not places:
        raise kernel.error("internal error: a scatter into a buffer without axes")
    shape = shape_of(memory.expr)
    windows = _windows(forms, places, shape, scope)
    scattered = [k for k in range(len(places)) if k not in windows]
    axes = union(*(places[k] for k in scattered))
    vectors = index_vectors([places[k] for k in scattered], axes)
    if scope.mask is not None:
        keep = broadcast_to(
            reshape(spread(scope.mask, axes), (*(a.size for a in axes), 1)), shape_of(vectors)
        )
        vectors = select(keep, vectors, scalar(-1, INDEX))
    dtype = dtype_of(memory.expr)
    info = tensor_info((), dtype)
    body = region(
        [("old", info), ("new", info)],
        lambda old, new: new if combine is None else hlo(combine, old, new),
    )
    order = [*axes, *(a for k in sorted(windows) for a in windows[k])]
    sizes = [*(a.size for a in axes), *(shape[k] for k in sorted(windows))]
    return hlo(
        "scatter",
        memory.expr,
        vectors,
        reshape(spread(value, order), sizes),
        body,
        scatter_dimension_numbers={
            "update_window_dims": tuple(range(len(axes), len(sizes))),
            "inserted_window_dims": tuple(scattered),
            "scattered_dims_to_operand_dims": tuple(scattered),
            "index_vector_dim": len(axes),
        },
        out=tensor_info(shape, dtype),
    )


def _windows(
    forms: Sequence[Form | None], places: Sequence[Value], shape: Sequence[int], scope: Scope
) -> dict[int, list[Axis]]:
    """Axes of the memory that are written whole at each place of the others, by loops' axes.

    One write of a row is many times as fast as one of each of its elements.
    """
    counts = Counter(a for v in places for a in set(v.axes))
    masked: set[Axis] = set() if scope.mask is None else set(scope.mask.axes)
    found: dict[int, list[Axis]] = {}
    for k, form in enumerate(forms):
        if form is None or form.scalar is not None or form.const or not form.terms:
            continue
        terms = form.sorted_terms()
        axes = [a for a, _ in terms]
        alone = all(counts[a] == 1 for a in axes) and masked.isdisjoint(axes)
        whole = terms[-1][1] == 1 and is_nested(terms) and size_of(axes) == shape[k]
        if alone and whole:
            found[k] = axes
    # Where nothing is left to scatter, elements are written one by one.
    return found if len(found) < len(places) else {}


def lanes_of(
    kernel: Kernel, buffer: Buffer, indices: Sequence[tir.PrimExpr], scope: Scope
) -> set[Axis]:
    """The axes that tell the elements apart which ``indices`` name."""
    _, indices, memory = access(kernel, buffer, indices, scope)
    axes = {a for a in memory.axes if a not in scope.fixed}
    for index in indices:
        form = form_of(kernel, index, scope)
        axes |= set(evaluate(kernel, index, scope).axes if form is None else form.terms)
    return axes
