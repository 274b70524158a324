"""Extrema and means of windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.nn.convolution import several
from relax2xla.topi.nn.padding import pad
from relax2xla.topi.reduction import arg_reducer
from relax2xla.topi.shared import FUNCTIONS, compute, known, ravel, size, want_one_of

_KINDS = ("max", "avg")


def _axes(layout: str, letters: str) -> list[int]:
    """The spatial axes of a layout, of which none is split."""
    order = [c for c in layout if c.isalpha()]
    if any(order.count(c) != 1 or c.lower() in order for c in letters):
        raise ValueError(f"topi.nn: the layout {layout!r} has not each of {letters} once")
    return [order.index(c) for c in letters]


def _pool(
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool,
    layout: str,
    count_include_pad: bool,
    letters: str,
) -> te.Tensor:
    want_one_of(pool_type, _KINDS, "nn.pool: pool_type")
    dim = len(letters)
    axes = _axes(layout, letters)
    kernel, strides = several(kernel, dim, "kernel"), several(stride, dim, "stride")
    steps, sides = several(dilation, dim, "dilation"), list(padding)
    if len(sides) != 2 * dim:
        raise ValueError(f"topi.nn.pool: padding has {2 * dim} numbers; got {sides}")
    before, after = sides[:dim], sides[dim:]
    # What ceil_mode adds is not counted as padding.
    extra = [s - 1 if ceil_mode else 0 for s in strides]
    first: list[Any] = [0] * data.ndim
    last: list[Any] = [0] * data.ndim
    shape = list(data.shape)
    for n, a in enumerate(axes):
        first[a], last[a] = before[n], after[n] + extra[n]
        span = data.shape[a] + first[a] + last[a] - ((kernel[n] - 1) * steps[n] + 1)
        shape[a] = size(span // strides[n] + 1)
    fill = FUNCTIONS["min_value"](data.dtype) if pool_type == "max" else 0
    padded = any(known(w) != 0 for w in (*first, *last))
    temp = pad(data, first, last, fill, "pad_temp") if padded else data
    loops = [te.reduce_axis((0, k), f"rv{n}") for n, k in enumerate(kernel)]

    def place(i: Sequence[Any]) -> list[Any]:
        at = list(i)
        for n, a in enumerate(axes):
            at[a] = i[a] * strides[n] + loops[n].var * steps[n]
        return at

    attrs = {"schedule_rule": f"meta_schedule.pool_{pool_type}"}
    if pool_type == "max":
        return compute(
            shape, lambda *i: te.max(temp(*place(i)), axis=loops), "pool_max", "pool_max", attrs
        )
    added = compute(shape, lambda *i: te.sum(temp(*place(i)), axis=loops), "pool_sum", "pool_sum")

    def element(*i: Any) -> Any:
        count: Any = tir.const(1, "int32")
        for n, a in enumerate(axes):
            begin = i[a] * strides[n] - before[n]
            end = begin + (kernel[n] - 1) * steps[n]
            if count_include_pad:
                end = tir.min(end, data.shape[a] + (after[n] - 1))
            else:
                skipped = tir.max((steps[n] - 1 - begin) // steps[n], 0)
                begin = begin + skipped * steps[n]
                end = tir.min(end, data.shape[a] - 1)
            count = count * ((end - begin) // steps[n] + 1)
        if not count_include_pad:
            count = tir.max(count, 1)
        return added(*i) / tir.cast(data.dtype, count)

    return compute(shape, element, "pool_avg", "elemwise", attrs)


def pool1d(
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """The maximum ("max") or the mean ("avg") of windows along W; padding: before and after.

    ceil_mode: the last window may go beyond the padding; count_include_pad: padding counts for the
    mean.
    """
    return _pool(
        *(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout),
        *(count_include_pad, "W"),
    )


def pool2d(
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCHW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """As :func:`pool1d` along H and W; padding: top, left, bottom, right."""
    return _pool(
        *(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout),
        *(count_include_pad, "HW"),
    )


def pool3d(
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    dilation: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    layout: str = "NCDHW",
    count_include_pad: bool = True,
) -> te.Tensor:
    """As :func:`pool1d` along D, H and W; padding: front, top, left, back, bottom, right."""
    return _pool(
        *(data, kernel, stride, dilation, padding, pool_type, ceil_mode, layout),
        *(count_include_pad, "DHW"),
    )


def _adaptive(
    data: te.Tensor, output_size: Any, pool_type: str, layout: str, letters: str
) -> te.Tensor:
    """Windows that share an axis out; where they differ in length, the longest one is looped."""
    want_one_of(pool_type, _KINDS, "nn.adaptive_pool: pool_type")
    axes = _axes(layout, letters)
    outs = several(output_size, len(axes), "output_size")
    shape = list(data.shape)
    for a, n in zip(axes, outs, strict=True):
        shape[a] = n
    even: list[bool] = []
    extents: list[Any] = []
    for a, n in zip(axes, outs, strict=True):
        whole, parts = known(data.shape[a]), known(n)
        even.append(parts == 1 or (whole is not None and parts is not None and whole % parts == 0))
        longest = (data.shape[a] + (n - 1)) // n
        extents.append(size(data.shape[a] // n if even[-1] else longest + 1))
    loops = [te.reduce_axis((0, e), f"rv{n}") for n, e in enumerate(extents)]

    def span(i: Sequence[Any], n: int) -> tuple[Any, Any]:
        """Where a window begins and how long it is."""
        a, out = axes[n], outs[n]
        if even[n]:
            return i[a] * extents[n], extents[n]
        begin = i[a] * data.shape[a] // out
        end = ((i[a] + 1) * data.shape[a] + (out - 1)) // out
        return begin, end - begin

    def reduced(i: Sequence[Any], reducer: Any) -> Any:
        at, inside = list(i), []
        for n, a in enumerate(axes):
            begin, length = span(i, n)
            at[a] = begin + loops[n].var
            if not even[n]:
                inside.append(loops[n].var < length)
                at[a] = tir.min(at[a], data.shape[a] - 1)
        return reducer(data(*at), axis=loops, where=tir.all(*inside) if inside else None)

    attrs = {"schedule_rule": f"meta_schedule.adaptive_pool_{pool_type}"}
    if pool_type == "max":
        name = "adaptive_pool_max"
        return compute(shape, lambda *i: reduced(i, te.max), name, name, attrs)
    added = compute(shape, lambda *i: reduced(i, te.sum), "adaptive_pool_sum", "adaptive_pool_sum")

    def element(*i: Any) -> Any:
        count: Any = tir.const(1, data.dtype)
        for n in range(len(axes)):
            count = count * tir.cast(data.dtype, size(span(i, n)[1]))
        return added(*i) / count

    return compute(shape, element, "adaptive_pool_avg", "elemwise", attrs)


def adaptive_pool1d(
    data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCW"
) -> te.Tensor:
    """The maximum or the mean of ``output_size`` windows that share W out."""
    return _adaptive(data, output_size, pool_type, layout, "W")


def adaptive_pool(
    data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCHW"
) -> te.Tensor:
    """The maximum or the mean of windows that share H and W out."""
    return _adaptive(data, output_size, pool_type, layout, "HW")


def adaptive_pool3d(
    data: te.Tensor, output_size: Any, pool_type: str, layout: str = "NCDHW"
) -> te.Tensor:
    """The maximum or the mean of windows that share D, H and W out."""
    return _adaptive(data, output_size, pool_type, layout, "DHW")


def global_pool(data: te.Tensor, pool_type: str, layout: str = "NCHW") -> te.Tensor:
    """The maximum or the mean over H and W, which stay as axes of size 1."""
    return adaptive_pool(data, (1, 1), pool_type, layout)


def pool_grad(
    grads: te.Tensor,
    data: te.Tensor,
    kernel: Any,
    stride: Any,
    padding: Any,
    pool_type: str,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    layout: str = "NCHW",
) -> te.Tensor:
    """The gradient of :func:`pool2d` for ``data``; grads: that of what it gave.

    Of a maximum it goes to the first of the largest elements of a window.
    """
    want_one_of(pool_type, _KINDS, "nn.pool_grad: pool_type")
    axes = _axes(layout, "HW")
    windows, strides = several(kernel, 2, "kernel"), several(stride, 2, "stride")
    sides = list(padding)
    if len(sides) != 4:
        raise ValueError(f"topi.nn.pool_grad: padding has 4 numbers; got {sides}")
    before = sides[:2]
    # The windows in which an element is: so many before the last one.
    counts = [size((k - 1) // s + 1) for k, s in zip(windows, strides, strict=True)]
    back = [te.reduce_axis((0, n), f"w{c}") for n, c in zip(counts, "hw", strict=True)]

    def window(i: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Where a window's result is, and the conditions that the element is in it."""
        at, inside = list(i), []
        for n, a in enumerate(axes):
            place = i[a] + before[n]
            at[a] = tir.truncdiv(place, strides[n]) - back[n].var
            first = tir.truncdiv(place - windows[n], strides[n]) + 1
            lowest = tir.Select(place < windows[n], tir.const(0, place.dtype), first)
            inside += [lowest <= at[a], at[a] < grads.shape[a]]
        return at, inside

    if pool_type == "max":
        return _max_grad(grads, data, windows, strides, sides, ceil_mode, axes, back, window)

    def element(*i: Any) -> Any:
        at, inside = window(i)
        count: Any = tir.const(1, "int32")
        for n, a in enumerate(axes):
            begin = at[a] * strides[n] - before[n]
            end = tir.min(begin + windows[n], data.shape[a])
            count = count * (windows[n] if count_include_pad else end - tir.max(begin, 0))
        count = count if count_include_pad else tir.max(count, 1)
        share = grads(*at) / tir.cast(data.dtype, count)
        zero = tir.const(0, data.dtype)
        return te.sum(tir.if_then_else(tir.all(*inside), share, zero), axis=back)

    return compute(data.shape, element, "T_pool_grad", "pool_grad_avg")


def _max_grad(
    grads: te.Tensor,
    data: te.Tensor,
    windows: Sequence[Any],
    strides: Sequence[Any],
    sides: Sequence[Any],
    ceil_mode: bool,
    axes: Sequence[int],
    back: Sequence[Any],
    window: Callable[[Sequence[Any]], tuple[list[Any], list[Any]]],
) -> te.Tensor:
    """The gradient of a maximum, by the place of the largest element of each window."""
    first: list[Any] = [0] * data.ndim
    last: list[Any] = [0] * data.ndim
    for n, a in enumerate(axes):
        first[a], last[a] = sides[n], sides[2 + n] + (strides[n] - 1 if ceil_mode else 0)
    padded = any(known(w) != 0 for w in (*first, *last))
    lowest = FUNCTIONS["min_value"](data.dtype)
    temp = pad(data, first, last, lowest, "pad_temp") if padded else data
    loops = [te.reduce_axis((0, k), f"d{c}") for k, c in zip(windows, "hw", strict=True)]
    best = arg_reducer("maxpool_grad_argmax", tir.GT.make, "min_value")

    def largest(*i: Any) -> Any:
        at = list(i)
        for n, a in enumerate(axes):
            at[a] = i[a] * strides[n] + loops[n].var
        return best((ravel(at, temp.shape), temp(*at)), axis=loops)

    found: Any = compute(grads.shape, largest, "maxpool_grad_argmax", "comm_reduce_idx")

    def element(*i: Any) -> Any:
        at, inside = window(i)
        here = list(i)
        for n, a in enumerate(axes):
            here[a] = i[a] + sides[n]
        same = tir.EQ.make(found[0](*at), ravel(here, temp.shape))
        value = tir.if_then_else(tir.all(*inside, same), grads(*at), tir.const(0, data.dtype))
        return te.sum(value, axis=back)

    return compute(data.shape, element, "T_pool_grad", "pool_grad_max")
