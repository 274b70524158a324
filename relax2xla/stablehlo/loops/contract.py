"""Sums of products as contractions: ``dot_general``, and convolutions where windows slide."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla import tir
from relax2xla.ir.expr import Call, Constant, Expr
from relax2xla.ir.op import is_op
from relax2xla.ir.rewrite import children
from relax2xla.op.shared.lowering import (
    contraction_dtype,
    convert,
    dot_general,
    hlo,
    reduce,
    reshape,
    select,
    shape_of,
    tensor_info,
)
from relax2xla.stablehlo.loops.affine import Form, overlaps
from relax2xla.stablehlo.loops.axes import (
    Axis,
    Value,
    constant,
    elementwise,
    in_order,
    labelled,
    size_of,
    spread,
)
from relax2xla.stablehlo.loops.evaluate import evaluate
from relax2xla.stablehlo.loops.forms import form_of
from relax2xla.stablehlo.loops.memory import access
from relax2xla.stablehlo.loops.reads import read
from relax2xla.stablehlo.loops.scalars import row
from relax2xla.stablehlo.loops.state import Kernel, Scope
from relax2xla.tir.buffer import BufferLoad


def factors(term: tir.PrimExpr) -> list[tir.PrimExpr]:
    """The factors of a product."""
    found: list[tir.PrimExpr] = []
    stack = [term]
    while stack:
        e = stack.pop()
        if isinstance(e, tir.Mul):
            stack += [e.b, e.a]
        else:
            found.append(e)
    return found


def contracted(
    kernel: Kernel,
    term: tir.PrimExpr,
    gone: set[Axis],
    sliding: set[Axis],
    scope: Scope,
    dtype: str,
    masked: bool,
) -> Value | None:
    """The sum of a product over the axes ``gone``; None if it is no contraction."""
    parts = factors(term)
    if len(parts) < 2:
        return None
    if sliding:
        if masked or len(parts) != 2:
            return None
        return _convolution(kernel, parts[0], parts[1], gone, sliding, scope, dtype)
    values = [evaluate(kernel, p, scope) for p in parts]
    values = [Value(convert(v.expr, dtype), v.axes) for v in values]
    inner = [v for v in values if not gone.isdisjoint(v.axes)]
    outer = [v for v in values if gone.isdisjoint(v.axes)]
    if len(inner) < 2:
        return None
    if masked:
        mask = scope.mask
        if mask is None or any(not set(mask.axes) <= set(v.axes) for v in inner):
            return None
        inner = [elementwise(select, mask, v, constant(0, dtype)) for v in inner]
    while len(inner) > 2:
        inner.sort(key=lambda v: size_of(v.axes))
        inner = [elementwise(row("multiply"), inner[0], inner[1]), *inner[2:]]
    total = _dot(inner[0], inner[1], gone, dtype)
    kernel.count("dot_general")
    for value in outer:
        total = elementwise(row("multiply"), total, value)
    missing = size_of(a for a in gone if not any(a in v.axes for v in inner))
    if missing != 1:
        total = elementwise(row("multiply"), total, constant(missing, dtype))
    return total


def _dot(a: Value, b: Value, gone: set[Axis], dtype: str) -> Value:
    a, b = _alone(a, b, gone), _alone(b, a, gone)
    shared = set(a.axes) & set(b.axes)
    summed, batch = in_order(shared & gone), in_order(shared - gone)
    made = dot_general(
        a.expr,
        b.expr,
        ([a.axes.index(x) for x in summed], [b.axes.index(x) for x in summed]),
        ([a.axes.index(x) for x in batch], [b.axes.index(x) for x in batch]),
        contraction_dtype(dtype, dtype, dtype)[1],
    )
    free = [x for v in (a, b) for x in v.axes if x not in shared]
    return labelled(convert(made, dtype), [*batch, *free])


def _alone(a: Value, b: Value, gone: set[Axis]) -> Value:
    """``a`` summed over the axes that ``b`` has not."""
    alone = [x for x in a.axes if x in gone and x not in b.axes]
    if not alone:
        return a
    expr = reduce(a.expr, "add", [a.axes.index(x) for x in alone])
    return Value(expr, tuple(x for x in a.axes if x not in alone))


# ---- convolutions
def _bare(e: tir.PrimExpr) -> tir.PrimExpr:
    while isinstance(e, tir.Cast):
        e = e.value
    return e


class NotSliding(Exception):
    """The index is no window of one output axis and one tap."""


class Slide:
    """One axis of a buffer under a window: ``index = start + out * stride + tap * dilation``."""

    __slots__ = ("axis", "dilation", "out", "start", "stride", "tap", "whole")

    def __init__(self, axis: int, form: Form, gone: set[Axis]) -> None:
        terms = [(a, c) for a, c in form.sorted_terms() if a.size > 1]
        taps = [t for t in terms if t[0] in gone]
        outs = [t for t in terms if t[0] not in gone]
        if len(taps) != 1 or len(outs) != 1 or taps[0][1] < 0 or outs[0][1] < 0:
            raise NotSliding
        self.axis, self.start = axis, form.const
        ((self.tap, self.dilation),) = taps
        ((self.out, self.stride),) = outs
        self.whole = Axis(0)

    @property
    def end(self) -> int:
        """The place behind the last one that a window covers."""
        reach = (self.out.size - 1) * self.stride + (self.tap.size - 1) * self.dilation
        return self.start + reach + 1


def sliding_read(
    kernel: Kernel, load: BufferLoad, gone: set[Axis], scope: Scope
) -> tuple[Value, list[Slide], set[Axis]] | None:
    """``load`` with the part of each axis that windows cover; None for windows of another kind.

    Gives the value, the windows, and the loops' axes that the indices name.
    """
    _, indices, memory = access(kernel, load.buffer, load.indices, scope)
    if memory.axes or scope.guarded:
        return None
    slides: list[Slide] = []
    named: set[Axis] = set()
    changed: list[tir.PrimExpr] = []
    inner = scope
    for k, index in enumerate(indices):
        form = form_of(kernel, index, scope, scalars=False)
        if form is None or form.scalar is not None:
            return None
        named |= set(form.terms)
        if not overlaps(form):
            changed.append(index)
            continue
        try:
            slide = Slide(k, form, gone)
        except NotSliding:
            return None
        low, high = form.range()
        again = any(slide.tap is other.tap or slide.out is other.out for other in slides)
        if again or low < 0 or high >= memory.shape[k]:
            return None
        slide.whole = Axis(slide.end - slide.start, "whole")
        slides.append(slide)
        var = tir.Var("whole", "int64")
        inner = inner.bind(var, Form({slide.whole: 1}, slide.start))
        changed.append(var)
    load = BufferLoad(access(kernel, load.buffer, load.indices, scope)[0], changed)
    return read(kernel, load, inner), slides, named


def _convolution(
    kernel: Kernel,
    one: tir.PrimExpr,
    two: tir.PrimExpr,
    gone: set[Axis],
    sliding: set[Axis],
    scope: Scope,
    dtype: str,
) -> Value | None:
    data, weight = _bare(one), _bare(two)
    if not isinstance(data, BufferLoad) or not isinstance(weight, BufferLoad):
        return None
    if _slides(kernel, weight, scope):
        data, weight, one, two = weight, data, two, one
    if _slides(kernel, weight, scope):
        return None
    found = sliding_read(kernel, data, gone, scope)
    if found is None:
        return None
    x, slides, named = found
    w = evaluate(kernel, two, scope)
    in_weight = set(w.axes)
    taps = {s.tap for s in slides}
    if taps != sliding or any(s.tap not in in_weight or s.out in in_weight for s in slides):
        return None
    named = {a for a in named if a.size > 1 or a in x.axes or a in in_weight}
    summed = in_order(a for a in named & in_weight & gone if a not in taps)
    others = (named ^ in_weight) & gone
    if size_of(summed) < 2 or any(a.size > 1 for a in others):
        return None
    wholes = [s.whole for s in slides]
    groups = in_order(a for a in named & in_weight if a not in gone)
    batch = in_order(a for a in x.axes if a not in wholes and a not in groups and a not in summed)
    if any(a in gone for a in batch) or any(a in gone and a not in named for a in in_weight):
        return None
    outs = in_order(a for a in in_weight if a not in named)
    made = _convolve(x, w, (batch, groups, summed, outs), slides, dtype)
    kernel.count("convolution")
    labels = [*batch, *groups, *outs, *(s.out for s in slides)]
    return labelled(reshape(made, [a.size for a in labels]), labels)


def _slides(kernel: Kernel, load: BufferLoad, scope: Scope) -> bool:
    for index in load.indices:
        form = form_of(kernel, index, scope, scalars=False)
        if form is not None and overlaps(form):
            return True
    return False


def _unpadded(data: Expr, spatial: int) -> tuple[Expr, tuple[tuple[int, int], ...]]:
    """NC... data without the zeros around its last ``spatial`` axes, and how many there were."""
    none = ((0, 0),) * spatial
    shape, inner = shape_of(data), data
    while is_op(inner, "relax.stablehlo.reshape"):
        inner = children(inner)[0]
    if not isinstance(inner, Call) or not is_op(inner, "relax.stablehlo.pad"):
        return data, none
    x, value = inner.args
    low, high = inner.attrs["edge_padding_low"], inner.attrs["edge_padding_high"]
    leading = len(low) - spatial
    apart = shape_of(inner)[leading:] == shape[2:] and not any((*low[:leading], *high[:leading]))
    zero = isinstance(value, Constant) and not value.data.any()
    if not apart or not zero or any(inner.attrs["interior_padding"]):
        return data, none
    around = tuple(zip(low[leading:], high[leading:], strict=True))
    if any(n < 0 for pair in around for n in pair):
        return data, none
    return reshape(x, [*shape[:2], *shape_of(x)[leading:]]), around


def _convolve(
    x: Value,
    w: Value,
    axes: tuple[Sequence[Axis], Sequence[Axis], Sequence[Axis], Sequence[Axis]],
    slides: Sequence[Slide],
    dtype: str,
) -> Expr:
    """One ``convolution`` of NCHW data by OIHW weights."""
    batch, groups, summed, outs = axes
    wholes = [s.whole for s in slides]
    n, g, c, o = (size_of(a) for a in axes)
    data = convert(spread(x, [*batch, *groups, *summed, *wholes]), dtype)
    data, padding = _unpadded(reshape(data, [n, g * c, *(a.size for a in wholes)]), len(slides))
    taps = [s.tap for s in slides]
    weight = convert(spread(w, [*groups, *outs, *summed, *taps]), dtype)
    weight = reshape(weight, [g * o, c, *(a.size for a in taps)])
    spatial = tuple(range(2, 2 + len(slides)))
    result = contraction_dtype(dtype, dtype, dtype)[1]
    made = hlo(
        "convolution",
        data,
        weight,
        window_strides=tuple(s.stride for s in slides),
        padding=padding,
        rhs_dilation=tuple(s.dilation for s in slides),
        dimension_numbers={
            "input_batch_dimension": 0,
            "input_feature_dimension": 1,
            "input_spatial_dimensions": spatial,
            "kernel_output_feature_dimension": 0,
            "kernel_input_feature_dimension": 1,
            "kernel_spatial_dimensions": spatial,
            "output_batch_dimension": 0,
            "output_feature_dimension": 1,
            "output_spatial_dimensions": spatial,
        },
        feature_group_count=g,
        batch_group_count=1,
        out=tensor_info([n, g * o, *(s.out.size for s in slides)], result),
    )
    return convert(made, dtype)
