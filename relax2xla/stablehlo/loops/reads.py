"""Reads of buffers: slices, pads, transposes, gathers.

An affine index takes a slice of its axis and splits it into the loops' axes; an index that is not
affine, or axes that occur twice, take a gather. An index that is out of range for certain is an
error where the statement always runs; where it is guarded, any value will do.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from relax2xla import tir
from relax2xla.ir.expr import Expr
from relax2xla.op.shared.lowering import (
    concatenate,
    convert,
    dtype_of,
    hlo,
    pad,
    reshape,
    scalar,
    shape_of,
    slice_axis,
    take_slice,
    tensor_info,
)
from relax2xla.stablehlo.loops.affine import (
    INDEX,
    Form,
    is_nested,
    of_axis,
    overlaps,
    plus,
    value_of,
)
from relax2xla.stablehlo.loops.axes import (
    Axis,
    NeedsLoop,
    Value,
    drop_axis,
    in_order,
    labelled,
    spread,
)
from relax2xla.stablehlo.loops.forms import form_of
from relax2xla.stablehlo.loops.memory import access
from relax2xla.stablehlo.loops.state import Kernel, Scope
from relax2xla.tir.buffer import Buffer, BufferLoad

WINDOW_GROWTH = 4
"""Windows that overlap are not copied into more than this many times their source."""
SMALL = 1 << 16
"""... unless the copy has no more elements than this."""


def read(kernel: Kernel, load: BufferLoad, scope: Scope) -> Value:
    """The elements that ``load`` reads in every lane."""
    buffer, indices, memory = access(kernel, load.buffer, load.indices, scope)
    x = memory.expr
    forms: list[Form | None] = [lane(a, scope) for a in memory.axes]
    forms += [form_of(kernel, i, scope) for i in indices]
    for form, index, n in zip(forms[len(memory.axes) :], indices, memory.shape, strict=True):
        if not scope.guarded and form is not None:
            check_range(kernel, buffer, form, index, n)
    values = _gathered(kernel, forms, indices, scope)
    # One slice for all places that are known when the program runs: so XLA reads and writes an
    # element of a buffer in a loop without copying the buffer.
    starts = {k: f for k, f in enumerate(forms) if f and f.scalar is not None and k not in values}
    x = _dynamic(x, starts) if starts else x
    # From the last axis to the first, so that what stands before keeps its place.
    labels: list[list[Axis | int]] = [[k] for k in range(len(forms))]
    for k in reversed(range(len(forms))):
        form = forms[k]
        if k in starts:
            x, labels[k] = drop_axis(x, k), []
        elif k not in values and form is not None:
            x, axes = _along(kernel, x, k, form)
            labels[k] = list(axes)
    flat = [a for part in labels for a in part]
    if values:
        return _take(kernel, x, flat, values)
    return labelled(x, [a for a in flat if isinstance(a, Axis)])


def lane(axis: Axis, scope: Scope) -> Form:
    """The index of an axis that memory has for lanes."""
    place = scope.fixed.get(axis)
    return of_axis(axis) if place is None else Form(const=place)


def check_range(kernel: Kernel, buffer: Buffer, form: Form, index: tir.PrimExpr, n: int) -> None:
    """Raise if an index that is known leaves ``0..n-1``."""
    low, high = form.range()
    if form.scalar is None and (low < 0 or high >= n):
        runs = f"is {low}" if low == high else f"runs from {low} to {high}"
        raise kernel.error(
            f"the index `{index}` of {buffer.name} {runs}, but the axis has {n} elements; put the "
            "access under a condition (if, T.where, T.if_then_else)"
        )


def _gathered(
    kernel: Kernel,
    forms: Sequence[Form | None],
    indices: Sequence[tir.PrimExpr],
    scope: Scope,
) -> dict[int, Value]:
    """Indices that take a gather, by axis of the memory."""
    first = len(forms) - len(indices)
    values: dict[int, Value] = {}
    for k, form in enumerate(forms):
        if form is None:
            values[k] = kernel.evaluate(indices[k - first], scope)
        elif form.scalar is not None and form.terms:
            values[k] = value_of(form, INDEX)
    counted = Counter(a for f in forms if f is not None for a in f.terms)
    taken = {a for a, n in counted.items() if n > 1}
    while True:
        taken |= {a for v in values.values() for a in v.axes}
        more = [
            k
            for k, f in enumerate(forms)
            if f is not None and k not in values and not taken.isdisjoint(f.terms)
        ]
        if not more:
            return values
        for k in more:
            form = forms[k]
            assert form is not None
            values[k] = value_of(form, INDEX)


def _along(kernel: Kernel, x: Expr, k: int, form: Form) -> tuple[Expr, list[Axis]]:
    """Axis ``k`` of ``x``, indexed by ``form``: the axes of the form take its place."""
    n = shape_of(x)[k]
    low, high = form.range()
    if not form.terms:
        at = min(max(form.const, 0), n - 1)
        return drop_axis(slice_axis(x, k, at, at + 1), k), []
    if low < 0 or high >= n:
        before, after = max(0, -low), max(0, high - n + 1)
        if before + after > 4 * n + 64:
            value = value_of(form, INDEX)
            return _take_axis(x, k, value), list(value.axes)
        lows, highs = [0] * len(shape_of(x)), [0] * len(shape_of(x))
        lows[k], highs[k] = before, after
        x = pad(x, lows, highs, scalar(0, dtype_of(x)))
        form = Form(form.terms, form.const + before)
    return split_axis(kernel, x, k, form)


def _dynamic(x: Expr, places: Mapping[int, Form]) -> Expr:
    """``x`` at one place of some axes, which are known when the program runs; they have size 1."""
    shape = list(shape_of(x))
    starts: list[Expr] = []
    for k in range(len(shape)):
        form = places.get(k)
        if form is None or form.scalar is None:
            starts.append(scalar(0, INDEX))
            continue
        add = form.const
        starts.append(hlo("add", form.scalar, scalar(add, INDEX)) if add else form.scalar)
        shape[k] = 1
    return hlo(
        "dynamic_slice",
        x,
        *starts,
        slice_sizes=tuple(shape),
        out=tensor_info(shape, dtype_of(x)),
    )


def split_axis(kernel: Kernel, x: Expr, k: int, form: Form) -> tuple[Expr, list[Axis]]:
    """:func:`_along` for a form of terms that stays in range."""
    terms = form.sorted_terms()
    n = shape_of(x)[k]
    if len(terms) == 1 and terms[0][1] == 1 and form.const == 0 and terms[0][0].size == n:
        return x, [terms[0][0]]
    start = form.const + sum(c * (a.size - 1) for a, c in terms if c < 0)
    forward = [(a, abs(c)) for a, c in terms]
    if is_nested(forward):
        step, count = forward[-1][1], math.prod(a.size for a, _ in forward)
        x = slice_axis(x, k, start, start + (count - 1) * step + 1, step)
        shape = shape_of(x)
        x = reshape(x, (*shape[:k], *(a.size for a, _ in forward), *shape[k + 1 :]))
        axes = [a for a, _ in forward]
    elif not overlaps(form) or min(a.size for a, _ in forward) > 16:
        value = value_of(Form(dict(forward), start), INDEX)
        x, axes = _take_axis(x, k, value), list(value.axes)
        kernel.count("gather")
    else:
        x, axes = _windows(kernel, x, k, start, forward)
    turned = [k + i for i, a in enumerate(axes) if form.terms[a] < 0]
    return (hlo("reverse", x, dimensions=tuple(turned)) if turned else x), axes


def _windows(
    kernel: Kernel, x: Expr, k: int, start: int, terms: Sequence[tuple[Axis, int]]
) -> tuple[Expr, list[Axis]]:
    """Windows that overlap: one slice for each place of the shortest axis, put side by side."""
    axis, step = min(terms, key=lambda t: t[0].size)
    shape = shape_of(x)
    copied = math.prod(shape) // shape[k] * math.prod(a.size for a, _ in terms)
    if copied > WINDOW_GROWTH * math.prod(shape) and copied > SMALL:
        raise NeedsLoop([axis], f"windows that overlap would be copied to {copied} elements")
    rest = {a: c for a, c in terms if a is not axis}
    parts: list[Expr] = []
    axes: list[Axis] = []
    for i in range(axis.size):
        part, axes = split_axis(kernel, x, k, Form(rest, start + step * i))
        made = shape_of(part)
        parts.append(reshape(part, (*made[:k], 1, *made[k:])))
    kernel.count("windows")
    return concatenate(parts, k), [axis, *axes]


def _take_axis(x: Expr, k: int, value: Value) -> Expr:
    """The elements ``value`` of axis ``k``; the axes of the value take its place."""
    shape = shape_of(x)
    rank, wide = len(shape), len(value.axes)
    return hlo(
        "gather",
        x,
        value.expr,
        dimension_numbers={
            "offset_dims": tuple(i if i < k else i + wide - 1 for i in range(rank) if i != k),
            "collapsed_slice_dims": (k,),
            "operand_batching_dims": (),
            "start_indices_batching_dims": (),
            "start_index_map": (k,),
            "index_vector_dim": wide,
        },
        slice_sizes=tuple(1 if i == k else n for i, n in enumerate(shape)),
    )


def _take(
    kernel: Kernel, x: Expr, labels: Sequence[Axis | int], values: Mapping[int, Value]
) -> Value:
    """A gather along every axis that has a number among ``labels``."""
    kernel.count("gather")
    places = [i for i, a in enumerate(labels) if not isinstance(a, Axis)]
    wanted = [values[a] for a in labels if not isinstance(a, Axis)]
    shape = shape_of(x)
    rest = [a for a in labels if isinstance(a, Axis)]
    axes = in_order({a for v in wanted for a in v.axes})
    if len(wanted) == 1:
        index, wide = spread(wanted[0], axes), len(axes)
    else:
        index, wide = index_vectors(wanted, axes), len(axes)
    made = hlo(
        "gather",
        x,
        index,
        dimension_numbers={
            "offset_dims": tuple(range(wide, wide + len(rest))),
            "collapsed_slice_dims": tuple(places),
            "operand_batching_dims": (),
            "start_indices_batching_dims": (),
            "start_index_map": tuple(places),
            "index_vector_dim": wide,
        },
        slice_sizes=tuple(1 if i in places else n for i, n in enumerate(shape)),
    )
    return labelled(made, [*axes, *rest])


def index_vectors(values: Sequence[Value], axes: Sequence[Axis]) -> Expr:
    """Several indices as the last axis of one tensor."""
    shape = [a.size for a in axes]
    columns = [reshape(convert(spread(v, axes), INDEX), (*shape, 1)) for v in values]
    return concatenate(columns, len(shape))


# ---- reads under a condition
def padded(
    kernel: Kernel, condition: tir.PrimExpr, yes: tir.PrimExpr, no: tir.PrimExpr, scope: Scope
) -> Value | None:
    """``X[i - lo, ...] where i is in range, else a number``: a pad. None if it is none."""
    if not isinstance(yes, BufferLoad) or not isinstance(no, tir.IntImm | tir.FloatImm):
        return None
    bounds = _bounds(kernel, condition, scope)
    if bounds is None:
        return None
    _, indices, memory = access(kernel, yes.buffer, yes.indices, scope)
    if memory.axes:
        return None
    cut: list[tuple[int, int]] = []
    around: list[tuple[int, int]] = []
    labels: list[Axis] = []
    for index, n in zip(indices, memory.shape, strict=True):
        form = form_of(kernel, index, scope, scalars=False)
        if form is None or form.scalar is not None or len(form.terms) > 1:
            return None
        if not form.terms:
            if not 0 <= form.const < n:
                return None
            cut.append((form.const, form.const + 1))
            around.append((0, 0))
            continue
        ((axis, step),) = form.terms.items()
        low, high = bounds.get(axis, (0, axis.size - 1))
        if step != 1 or axis in labels or high < low:
            return None
        if low + form.const < 0 or high + form.const >= n:
            return None
        labels.append(axis)
        cut.append((low + form.const, high + form.const + 1))
        around.append((low, axis.size - 1 - high))
    if not bounds.keys() <= set(labels):
        return None
    x = take_slice(memory.expr, [a for a, _ in cut], [b for _, b in cut])
    x = pad(x, [a for a, _ in around], [b for _, b in around], scalar(no.value, dtype_of(x)))
    kernel.count("pad")
    return labelled(reshape(x, [a.size for a in labels]), labels)


def _bounds(
    kernel: Kernel, condition: tir.PrimExpr, scope: Scope
) -> dict[Axis, tuple[int, int]] | None:
    """First and last place of each axis where ``condition``, a conjunction, holds."""
    bounds: dict[Axis, tuple[int, int]] = {}
    stack = [condition]
    while stack:
        e = stack.pop()
        if isinstance(e, tir.And):
            stack += [e.a, e.b]
            continue
        if isinstance(e, tir.Call) and e.op == "tir.likely":
            stack.append(e.args[0])
            continue
        if not isinstance(e, tir.LT | tir.LE | tir.GT | tir.GE):
            return None
        a = form_of(kernel, e.a, scope, scalars=False)
        b = form_of(kernel, e.b, scope, scalars=False)
        if a is None or b is None:
            return None
        # d <= 0
        d = plus(a, b, -1) if isinstance(e, tir.LT | tir.LE) else plus(b, a, -1)
        d = Form(d.terms, d.const + isinstance(e, tir.LT | tir.GT), d.scalar)
        if d.scalar is not None or len(d.terms) > 1:
            return None
        if not d.terms:
            if d.const > 0:
                return None
            continue
        ((axis, step),) = d.terms.items()
        low, high = bounds.get(axis, (0, axis.size - 1))
        if step == 1:
            high = min(high, -d.const)
        elif step == -1:
            low = max(low, d.const)
        else:
            return None
        bounds[axis] = (low, high)
    return bounds
