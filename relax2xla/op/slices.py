"""Slices with strides: strided_slice, dynamic_strided_slice.

Source: TVM Relax v0.20 for names and inference, Python's slices for values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from relax2xla import tir
from relax2xla.errors import CallError, LegalizeError, OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Rule, constant_value, op
from relax2xla.ir.struct_info import StructInfo, show
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import INTEGER, fold, norm_axes, seen_dims, tensor, want_tensor
from relax2xla.op.shared.lowering import (
    dtype_of,
    hlo,
    known,
    shape_of,
    symbolic,
    take_slice,
    tensor_info,
)
from relax2xla.op.shared.scalars import PrimsLike, dims_operand, integer
from relax2xla.tir import Dim

# Ends that mean "to the end", whatever the size.
TO_END: Final = 2**31 - 1


def canonical(index: Dim, size: Dim, backwards: bool) -> Dim:
    """A slice position within the axis, negative ones counted from the end."""
    if isinstance(index, int) and isinstance(size, int):
        index += size if index < 0 else 0
        low, high = (-1, size - 1) if backwards else (0, size)
        return max(low, min(high, index))
    if isinstance(index, int) and index < 0:
        # Before the first element is -1 backwards, and 0 forwards.
        return tir.max(size + index, -1 if backwards else 0)
    high: Dim = size - 1 if backwards else size
    if isinstance(index, int):
        return index if index == 0 and not backwards else tir.min(index, high)
    if not isinstance(size, int) and tir.can_prove_equal(index, size):
        return high
    wrapped = tir.if_then_else(index < 0, index + size, index)
    return tir.min(tir.max(wrapped, -1 if backwards else 0), high)


def slice_length(begin: Dim, end: Dim, stride: int, size: Dim, inbound: bool) -> Dim:
    """Number of elements of ``begin:end:stride`` on an axis of ``size``."""
    if isinstance(begin, int) and isinstance(end, int) and isinstance(size, int) and not inbound:
        return len(range(*slice(begin, end, stride).indices(size)))
    step = abs(stride)
    if not inbound:
        to_end = stride > 0 and (
            end >= TO_END if isinstance(end, int) else tir.can_prove_equal(end, size)
        )
        if to_end and isinstance(begin, int):
            # Kept simple, because this is what most slices of symbolic axes are.
            left = (
                tir.min(size, -begin) if begin < 0 else tir.max(size - begin, 0) if begin else size
            )
            return fold((left + (step - 1)) // step)
        ordered = _ordered(begin, end) if stride > 0 else _ordered(end, begin)
        begin, end = (canonical(v, size, stride < 0) for v in (begin, end))
        span = end - begin if stride > 0 else begin - end
        if not ordered and not isinstance(span, int) and not _never_negative(span):
            span = tir.max(span, 0)
    else:
        span = end - begin if stride > 0 else begin - end
    length = fold((span + (step - 1)) // step)
    return max(length, 0) if isinstance(length, int) else length


def _ordered(low: Dim, high: Dim) -> bool:
    """Whether two positions of one sign are in order, and so stay in order within any axis."""
    if isinstance(low, int) and isinstance(high, int):
        return low <= high and (low < 0) == (high < 0)
    return low == 0 and not isinstance(high, int) and _never_negative(high)


def _never_negative(value: Dim) -> bool:
    return tir.Analyzer(tir.free_vars(value)).can_prove_greater_equal(value, 0)


def _slices(
    ndim: int, axes: Expr, begin: Expr, end: Expr, strides: Expr | None
) -> list[tuple[int, Dim | None, Dim | None, Dim | None]] | None:
    """(axis, begin, end, stride) of each slice; None where their number is not known.

    Where the rank is not known (-1), axes are as they were given.
    """
    given = [("axes", axes), ("begin", begin), ("end", end)]
    columns = [dims_operand(x, name) for name, x in given]
    if strides is not None:
        columns.append(dims_operand(strides, "strides"))
    if any(c is None for c in columns):
        return None
    known = [c for c in columns if c is not None]
    if strides is None:
        known.append((1,) * len(known[0]))
    if len({len(c) for c in known}) > 1:
        text = ", ".join(str(len(c)) for c in known)
        raise OpError(f"axes, begin, end and strides must be as many; got {text}")
    numbers = [a for a in known[0] if isinstance(a, int)]
    if len(numbers) != len(known[0]):
        raise OpError("`axes` must be numbers known where the program is built")
    at = numbers if ndim == -1 else norm_axes(numbers, ndim, "axes")
    made = list(zip(at, *known[1:], strict=True))
    if any(isinstance(s, int) and s == 0 for *_, s in made):
        raise OpError("a stride must not be 0")
    return made


@op("relax.strided_slice", Opaque())
def strided_slice(
    x: Expr,
    axes: PrimsLike,
    begin: PrimsLike,
    end: PrimsLike,
    strides: PrimsLike = None,
    assume_inbound: bool = False,
) -> Rule:
    """``x[begin:end:stride]`` on each of ``axes``, as Python slices.

    Negative positions count from the end, those beyond the ends are cut. ``assume_inbound``
    promises that none is either, which makes symbolic sizes simpler.

    x: (*s), any dtype; axes, begin, end, strides (1 if left out): as many integers each
    result: the sizes of the slices on ``axes``, dtype of ``x``
    """
    info = want_tensor(x, "x")
    slices = _slices(info.ndim, axes, begin, end, strides)

    def lower() -> Expr:
        shape = shape_of(x)
        if slices is None:
            raise LegalizeError("strided_slice: begin, end and strides must be known to lower it")
        if symbolic(*shape, *(d for s in slices for d in s[1:3])):
            return _symbolic_slice(x, slices, assume_inbound)
        parts = [(0, d, 1) for d in shape]
        for axis, start, stop, stride in slices:
            first, last, step = (integer(v, "a bound") for v in (start, stop, stride))
            parts[axis] = slice(first, last, step).indices(shape[axis])
            promised = slice_length(first, last, step, shape[axis], assume_inbound)
            if promised != len(range(*parts[axis])):
                raise CallError(
                    f"strided_slice: {start}:{stop} lies outside of axis {axis}, which has "
                    f"{shape[axis]} elements. Check bounds that are read from data before the "
                    "call, or clamp them"
                )
        return sliced(x, parts)

    open_ = tensor(None, info.dtype, info.ndim, info), lower
    seen = seen_dims(info)
    if slices is None or seen is None:
        return (info, lower) if slices == [] else open_
    dims = list(seen)
    for axis, start, stop, stride in slices:
        if start is None or stop is None or not isinstance(stride, int):
            return open_
        dims[axis] = slice_length(start, stop, stride, dims[axis], assume_inbound)
    return tensor(tuple(dims), info.dtype, like=info), lower


def _symbolic_slice(x: Expr, slices: Sequence[tuple[int, Any, Any, Any]], inbound: bool) -> Expr:
    """Slices of which a bound, or the size of the axis, is symbolic; strides are numbers."""
    shape: list[Any] = list(shape_of(x))
    out, limit, steps = [*shape], [*shape], [1] * len(shape)
    start: list[Any] = [0] * len(shape)
    backwards: list[int] = []
    for axis, begin, end, stride in slices:
        if begin is None or end is None or not isinstance(stride, int):
            raise LegalizeError("strided_slice: begin, end and strides must be known to lower it")
        size = shape[axis]
        out[axis] = slice_length(begin, end, stride, size, inbound)
        a, b = (canonical(v, size, stride < 0) for v in (begin, end))
        if stride < 0:
            backwards.append(axis)
            a, b = size - 1 - a, size - 1 - b
        start[axis], steps[axis] = fold(a), abs(stride)
        limit[axis] = max(a, b) if known(a, b) else fold(tir.max(a, b))
    if backwards:
        x = hlo("reverse", x, dimensions=tuple(backwards))
    return hlo(
        "slice",
        x,
        out=tensor_info(out, dtype_of(x)),
        start_indices=tuple(start),
        limit_indices=tuple(limit),
        strides=tuple(steps),
    )


def sliced(x: Expr, parts: Sequence[tuple[int, int, int]]) -> Expr:
    """``x`` cut by a range (start, stop, step) an axis; steps may be negative."""
    shape = shape_of(x)
    ranges = [range(*p) for p in parts]
    backwards = [i for i, r in enumerate(ranges) if r.step < 0 and len(r) > 0]
    for i in backwards:
        # The same elements counted from the other end.
        first, n = shape[i] - 1 - ranges[i].start, len(ranges[i])
        ranges[i] = range(first, first + (n - 1) * -ranges[i].step + 1, -ranges[i].step)
    if backwards:
        x = hlo("reverse", x, dimensions=tuple(backwards))
    empty = [len(r) == 0 for r in ranges]
    return take_slice(
        x,
        [0 if e else r.start for r, e in zip(ranges, empty, strict=True)],
        [0 if e else r[-1] + 1 for r, e in zip(ranges, empty, strict=True)],
        [1 if e else r.step for r, e in zip(ranges, empty, strict=True)],
    )


@op("relax.dynamic_strided_slice", Opaque())
def dynamic_strided_slice(x: Expr, begin: Expr, end: Expr, strides: Expr) -> StructInfo:
    """:func:`strided_slice` on every axis, with bounds that are tensors.

    The result's sizes depend on data, unless bounds are constants and those of ``x`` are known; it
    runs on the virtual machine.

    x: (*s) of rank r, any dtype; begin, end, strides: (r,), int64
    result: a tensor of rank r, dtype of ``x``
    """
    info = want_tensor(x, "x")
    for name, bound in (("begin", begin), ("end", end), ("strides", strides)):
        known = want_tensor(bound, name, INTEGER, ndim=1)
        size = known.dims[0] if known.dims else None
        if isinstance(size, int) and info.ndim not in (-1, size):
            raise OpError(f"`{name}` must have one entry an axis of `x`; got {show(known)}")
    dims = None
    if info.dims is not None and all(isinstance(d, int) for d in info.dims):
        places = _constant_places(info.dims, begin, end, strides)
        dims = None if places is None else tuple(len(range(*place)) for place in places)
    return tensor(dims, info.dtype, info.ndim, info)


def _constant_places(
    shape: Sequence[Any], begin: Expr, end: Expr, strides: Expr
) -> list[tuple[int, int, int]] | None:
    """Where slices begin and end on each axis, and their steps; None if that is not constant."""
    bounds = [constant_value(b) for b in (begin, end, strides)]
    if any(b is None for b in bounds):
        return None
    columns = zip(*bounds, shape, strict=True)
    if any(int(s) == 0 for s in bounds[2]):
        raise OpError("a stride of dynamic_strided_slice must not be 0")
    return [slice(int(b), int(e), int(s)).indices(d) for b, e, s, d in columns]


@dynamic_strided_slice.legalize
def _(x: Expr, begin: Expr, end: Expr, strides: Expr) -> Expr:
    places = _constant_places(shape_of(x), begin, end, strides)
    if places is None:
        raise LegalizeError(
            "dynamic_strided_slice with computed bounds has a result whose size depends on data; "
            "it runs on the virtual machine"
        )
    return sliced(x, places)
