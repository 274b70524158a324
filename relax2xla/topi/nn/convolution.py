"""Convolutions in any layout, with groups, and transposed ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.nn.padding import dilate, pad
from relax2xla.topi.shared import known, listed, shown, size

_SPATIAL = {1: "W", 2: "HW", 3: "DHW"}


def several(value: Any, dim: int, what: str) -> list[Any]:
    """One number for each spatial axis."""
    made = listed(value)
    made = made * dim if len(made) == 1 else made
    if len(made) != dim:
        raise ValueError(f"topi: {what} is one number or {dim}; got {value}")
    return made


def paddings(padding: Any, kernel: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Widths before and after each spatial axis.

    padding: one number, one an axis, one a side (all first sides come first), "SAME" or "VALID";
    kernel: sizes, dilated.
    """
    dim = len(kernel)
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise ValueError(f'topi: padding is numbers, "SAME" or "VALID"; got {padding!r}')
        if padding == "VALID":
            return [0] * dim, [0] * dim
        before = [size(k // 2) for k in kernel]
        return before, [size(k - 1 - b) for k, b in zip(kernel, before, strict=True)]
    sides = listed(padding)
    if len(sides) == 2 * dim:
        return sides[:dim], sides[dim:]
    return several(sides, dim, "padding"), several(sides, dim, "padding")


def _layout(layout: str, letters: str, dim: int) -> list[int]:
    """Where in a layout each of ``letters`` and then each spatial axis stands."""
    spatial = [n for n, c in enumerate(layout) if c not in letters]
    if sorted(layout) != sorted(letters + _SPATIAL[dim]):
        raise ValueError(f"topi: a layout of {letters + _SPATIAL[dim]} is needed; got {layout!r}")
    return [*(layout.index(c) for c in letters), *spatial]


def _arranged(values: Sequence[Any], order: Sequence[int]) -> list[Any]:
    """Values of N, C, H, W in a layout; ``order`` says where each stands."""
    made: list[Any] = [None] * len(order)
    for v, n in zip(values, order, strict=True):
        made[n] = v
    return made


def conv(
    inp: te.Tensor,
    filt: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """A convolution over one, two or three axes.

    data_layout: such as "NCHW", also that of the result; kernel_layout: such as "OIHW", by default
    "OIHW" where channels come first and "HWIO" where they come last. out_dtype: in which is
    computed.
    """
    dim = inp.ndim - 2
    dtype = out_dtype or inp.dtype
    order = _layout(data_layout, "NC", dim)
    spatial = "".join(data_layout[n] for n in order[2:])
    first = order[1] < order[2]
    kernel_layout = kernel_layout or (f"OI{spatial}" if first else f"{spatial}IO")
    kernel_order = _layout(kernel_layout, "OI", dim)
    strides = several(stride, dim, "strides")
    dilations = several(dilation, dim, "dilation")
    batch, channels, *sizes = (inp.shape[n] for n in order)
    filters, depth, *kernel = (filt.shape[n] for n in kernel_order)
    _check_groups(channels, filters, depth, groups)
    wide = [size((k - 1) * d + 1) for k, d in zip(kernel, dilations, strict=True)]
    before, after = paddings(padding, wide)
    data = pad(
        inp,
        _arranged([0, 0, *before], order),
        _arranged([0, 0, *after], order),
        name="pad_temp",
    )
    outer = [
        size((n + b + a - w) // s + 1)
        for n, b, a, w, s in zip(sizes, before, after, wide, strides, strict=True)
    ]
    rc = te.reduce_axis((0, depth), "rc")
    rs = [te.reduce_axis((0, k), f"r{c}") for k, c in zip(kernel, "yxz", strict=False)]

    def element(*index: Any) -> Any:
        n, f, *at = (index[o] for o in order)
        channel = rc.var if groups == 1 else f // (filters // groups) * depth + rc.var
        moved = [p * s + r.var * d for p, s, r, d in zip(at, strides, rs, dilations, strict=True)]
        left = data(*_arranged([n, channel, *moved], order))
        right = filt(*_arranged([f, rc, *rs], kernel_order))
        axes = [a for a in _arranged([None, rc, *rs], order) if a is not None]
        return te.sum(tir.cast(dtype, left) * tir.cast(dtype, right), axis=axes)

    name = f"{'group_' if groups > 1 else ''}conv{dim}d_{data_layout.lower()}"
    names = ["nn", "ff", "yy", "xx", "zz"][: dim + 2]
    return te.compute(
        _arranged([batch, filters, *outer], order),
        element,
        name,
        name,
        None,
        _arranged(names, order),
    )


def _check_groups(channels: Any, filters: Any, depth: Any, groups: int) -> None:
    c, f, d = map(known, (channels, filters, depth))
    if c is not None and d is not None and c != d * groups:
        raise ValueError(f"topi: {shown(channels)} channels, filters of {d}, {groups} groups")
    if f is not None and f % groups:
        raise ValueError(f"topi: {f} filters in {groups} groups")


def conv1d(
    data: te.Tensor,
    kernel: te.Tensor,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """A convolution over one axis; see :func:`conv`."""
    return conv(
        data, kernel, strides, padding, dilation, groups, data_layout, kernel_layout, out_dtype
    )


def conv2d(
    input: te.Tensor,
    filter: te.Tensor,
    strides: Any,
    padding: Any,
    dilation: Any,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: str | None = None,
) -> te.Tensor:
    """A convolution over two axes; see :func:`conv`."""
    return conv(input, filter, strides, padding, dilation, 1, data_layout, kernel_layout, out_dtype)


def _conv(layout: str, kernel_layout: str = "") -> Any:
    def function(
        Input: te.Tensor,
        Filter: te.Tensor,
        stride: Any,
        padding: Any,
        dilation: Any,
        out_dtype: str | None = None,
    ) -> te.Tensor:
        return conv(Input, Filter, stride, padding, dilation, 1, layout, kernel_layout, out_dtype)

    function.__name__ = f"conv_{layout.lower()}"
    function.__doc__ = f"A convolution in the layout {layout}; see :func:`conv`."
    return function


def _group_conv(layout: str) -> Any:
    def function(
        Input: te.Tensor,
        Filter: te.Tensor,
        stride: Any,
        padding: Any,
        dilation: Any,
        groups: int,
        out_dtype: str | None = None,
    ) -> te.Tensor:
        return conv(Input, Filter, stride, padding, dilation, groups, layout, "", out_dtype)

    function.__name__ = f"group_conv_{layout.lower()}"
    function.__doc__ = f"A grouped convolution in the layout {layout}; see :func:`conv`."
    return function


conv1d_ncw = _conv("NCW")
conv1d_nwc = _conv("NWC")
conv2d_nchw = _conv("NCHW")
conv2d_nhwc = _conv("NHWC")
conv2d_hwcn = _conv("HWCN", "HWIO")
group_conv1d_ncw = _group_conv("NCW")
group_conv1d_nwc = _group_conv("NWC")
group_conv2d_nchw = _group_conv("NCHW")
group_conv2d_nhwc = _group_conv("NHWC")
conv3d_ncdhw = _group_conv("NCDHW")
conv3d_ndhwc = _group_conv("NDHWC")


def _depthwise(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    order: Sequence[int],
    kernel_order: Sequence[int],
    out_dtype: str | None,
) -> te.Tensor:
    dtype = out_dtype or data.dtype
    strides, dilations = several(stride, 2, "stride"), several(dilation, 2, "dilation")
    batch, channels, *sizes = (data.shape[n] for n in order)
    _, times, *window = (kernel.shape[n] for n in kernel_order)
    wide = [size((k - 1) * d + 1) for k, d in zip(window, dilations, strict=True)]
    before, after = paddings(padding, wide)
    padded = pad(
        data,
        _arranged([0, 0, *before], order),
        _arranged([0, 0, *after], order),
        name="PaddedInput",
    )
    outer = [
        size((n + b + a - w) // s + 1)
        for n, b, a, w, s in zip(sizes, before, after, wide, strides, strict=True)
    ]
    rs = [te.reduce_axis((0, k), name) for k, name in zip(window, ("di", "dj"), strict=True)]

    def element(*index: Any) -> Any:
        n, c, *at = (index[o] for o in order)
        moved = [p * s + r.var * d for p, s, r, d in zip(at, strides, rs, dilations, strict=True)]
        left = padded(*_arranged([n, c // times, *moved], order))
        right = kernel(*_arranged([c // times, c % times, *rs], kernel_order))
        return te.sum(tir.cast(dtype, left) * tir.cast(dtype, right), axis=rs)

    shape = _arranged([batch, size(channels * times), *outer], order)
    tag = "depthwise_conv2d_nchw" if order[1] == 1 else "depthwise_conv2d_nhwc"
    names = _arranged(["b", "c", "i", "j"], order)
    return te.compute(shape, element, "DepthwiseConv2d", tag, None, names)


def depthwise_conv2d_nchw(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    out_dtype: str | None = None,
) -> te.Tensor:
    """Each channel with ``Filter.shape[1]`` filters of its own; (channels, filters, h, w)."""
    order = (0, 1, 2, 3)
    return _depthwise(Input, Filter, stride, padding, dilation, order, order, out_dtype)


def depthwise_conv2d_nhwc(
    Input: te.Tensor,
    Filter: te.Tensor,
    stride: Any,
    padding: Any,
    dilation: Any,
    kernel_layout: str = "HWOI",
    out_dtype: str | None = None,
) -> te.Tensor:
    """Each channel with filters of its own; the filter is (h, w, channels, filters)."""
    if kernel_layout not in ("HWOI", "HWIO"):
        raise ValueError(f"topi.nn: a depthwise kernel is HWOI or HWIO; got {kernel_layout!r}")
    kernel_order = (2, 3, 0, 1) if kernel_layout == "HWOI" else (3, 2, 0, 1)
    order = (0, 3, 1, 2)
    return _depthwise(Input, Filter, stride, padding, dilation, order, kernel_order, out_dtype)


# -- transposed ------------------------------------------------------------------------------------
def _transposed(
    data: te.Tensor,
    kernel: te.Tensor,
    stride: Any,
    padding: Any,
    out_dtype: str | None,
    output_padding: Any,
    groups: int = 1,
) -> te.Tensor:
    dim = data.ndim - 2
    dtype = out_dtype or data.dtype
    strides = several(stride, dim, "stride")
    extra = several(output_padding, dim, "output_padding")
    if any(e >= s for e, s in zip(extra, strides, strict=True)):
        raise ValueError(f"topi: output_padding {extra} must be below the strides {strides}")
    inputs, filters, *window = kernel.shape
    depth = inputs // groups
    before, after = paddings(padding, window)
    spread = dilate(data, [1, 1, *strides], name="data_dilate")
    padded = pad(
        spread,
        [0, 0, *(size(k - 1 - b) for k, b in zip(window, before, strict=True))],
        [0, 0, *(size(k - 1 - a + e) for k, a, e in zip(window, after, extra, strict=True))],
        name="data_pad",
    )
    letters = ("w",) if dim == 1 else ("h", "w") if dim == 2 else ("d", "h", "w")

    def turned(*i: Any) -> Any:
        o, c, *at = i
        return kernel(c, o, *(k - 1 - v for k, v in zip(window, at, strict=True)))

    back = te.compute(
        [filters, inputs, *window],
        turned,
        "kernel_transform",
        "",
        None,
        ["o", "i", *letters],
    )
    dc = te.reduce_axis((0, depth), "dc")
    rs = [te.reduce_axis((0, k), f"d{c}") for k, c in zip(window, letters, strict=True)]

    def element(*i: Any) -> Any:
        n, c, *at = i
        moved = [p + r.var for p, r in zip(at, rs, strict=True)]
        channel = dc.var if groups == 1 else c // filters * depth + dc.var
        out = c if groups == 1 else c % filters
        left, right = padded(n, channel, *moved), back(out, channel, *rs)
        return te.sum(tir.cast(dtype, left) * tir.cast(dtype, right), axis=[dc, *rs])

    outer = [size(n - k + 1) for n, k in zip(padded.shape[2:], window, strict=True)]
    return te.compute(
        [data.shape[0], size(filters * groups), *outer],
        element,
        "compute",
        f"conv{dim}d_transpose_nc{''.join(letters)}",
        None,
        ["b", "c", *letters],
    )


def _transpose(dim: int) -> Any:
    def function(
        Input: te.Tensor,
        Filter: te.Tensor,
        strides: Any,
        padding: Any,
        out_dtype: str | None,
        output_padding: Any,
    ) -> te.Tensor:
        return _transposed(Input, Filter, strides, padding, out_dtype, output_padding)

    function.__doc__ = (
        f"A transposed convolution over {dim} axes; the filter is (in, out, window...)."
    )
    return function


def _group_transpose(dim: int) -> Any:
    def function(
        data: te.Tensor,
        kernel: te.Tensor,
        stride: Any,
        padding: Any,
        out_dtype: str | None,
        output_padding: Any,
        groups: int,
    ) -> te.Tensor:
        return _transposed(data, kernel, stride, padding, out_dtype, output_padding, groups)

    function.__doc__ = (
        f"A grouped transposed convolution over {dim} axes; filter (in, out / groups, window...)."
    )
    return function


conv1d_transpose_ncw = _transpose(1)
conv2d_transpose_nchw = _transpose(2)
conv3d_transpose_ncdhw = _transpose(3)
group_conv1d_transpose_ncw = _group_transpose(1)
group_conv2d_transpose_nchw = _group_transpose(2)
group_conv3d_transpose_ncdhw = _group_transpose(3)
