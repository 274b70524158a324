"""Operators of layers: products, convolutions, norms, attention, images, embeddings of time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from relax2xla import op, tir
from relax2xla.errors import UnsupportedError
from relax2xla.frontend.nn.eager import eager
from relax2xla.frontend.nn.values import Tensor, expr_of, get_default_dtype, wrap_nested
from relax2xla.ir import Expr, const

Sizes = int | Sequence[int]
Padding = int | Sequence[int] | str


@eager
def matmul(a: Tensor, b: Tensor, out_dtype: str | None = None, name: str = "matmul") -> Tensor:
    """The product of matrices as the array API has it, batches broadcast, single axes included.

    out_dtype: of the result and of its sums; None: that of the operands.
    """
    return wrap_nested(op.matmul(expr_of(a), expr_of(b), out_dtype=out_dtype), name)


# -- convolutions ----------------------------------------------------------------------------------
def _with_bias(out: Expr, bias: Tensor | None, layout: str, name: str) -> Tensor:
    if bias is not None:
        shape = [-1 if axis == "C" else 1 for axis in layout]
        out = op.add(out, op.reshape(expr_of(bias), shape))
    return wrap_nested(out, name)


def _padding(padding: Padding, weight: Tensor, dilation: Sizes, stride: Sizes, rank: int) -> Any:
    """torch's "valid" and "same" as numbers."""
    if not isinstance(padding, str):
        return padding
    if padding == "valid":
        return 0
    if padding != "same":
        raise ValueError(f"padding is a number, numbers, 'valid' or 'same'; got {padding!r}")
    if any(s != 1 for s in _each(stride, rank)):
        raise ValueError("padding 'same' needs strides of 1")
    around = [d * (k - 1) for k, d in zip(weight.shape[-rank:], _each(dilation, rank), strict=True)]
    return [n // 2 for n in around] + [n - n // 2 for n in around]


def _each(value: Sizes, rank: int) -> Sequence[int]:
    return [value] * rank if isinstance(value, int) else value


def _conv(
    build: Callable[..., Expr],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Sizes,
    padding: Padding,
    dilation: Sizes,
    groups: int,
    layout: str,
    name: str,
) -> Tensor:
    rank = len(layout) - 2
    if layout not in _LAYOUTS[rank]:
        raise UnsupportedError(f"data_layout is one of {_LAYOUTS[rank]}; got {layout!r}")
    out = build(
        expr_of(x),
        expr_of(weight),
        strides=stride,
        padding=_padding(padding, weight, dilation, stride, rank),
        dilation=dilation,
        groups=groups,
        data_layout=layout,
    )
    return _with_bias(out, bias, layout, name)


_LAYOUTS = {1: ("NCW",), 2: ("NCHW", "NHWC"), 3: ("NCDHW", "NDHWC")}


@eager
def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    name: str = "conv1d",
) -> Tensor:
    """Convolution of ``(N, C, W)`` with ``(O, C / groups, K)``, plus ``bias`` ``(O,)``.

    padding: for both sides, for each, "valid" or "same".
    """
    return _conv(op.nn.conv1d, x, weight, bias, stride, padding, dilation, groups, "NCW", name)


@eager
def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    name: str = "conv2d",
) -> Tensor:
    """Convolution of ``(N, C, H, W)`` with ``(O, C / groups, KH, KW)``, plus ``bias`` ``(O,)``.

    padding: as of ``conv1d``, two or four numbers. data_layout: of ``x`` and the result, "NCHW" or
    "NHWC".
    """
    return _conv(
        op.nn.conv2d, x, weight, bias, stride, padding, dilation, groups, data_layout, name
    )


@eager
def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Padding = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    data_layout: str = "NCDHW",
    name: str = "conv3d",
) -> Tensor:
    """Convolution of ``(N, C, D, H, W)`` with ``(O, C / groups, KD, KH, KW)``, plus ``bias``.

    data_layout: of ``x`` and the result, "NCDHW" or "NDHWC".
    """
    return _conv(
        op.nn.conv3d, x, weight, bias, stride, padding, dilation, groups, data_layout, name
    )


@eager
def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sizes = 1,
    padding: Sizes = 0,
    output_padding: Sizes = 0,
    dilation: Sizes = 1,
    groups: int = 1,
    name: str = "conv1d_transpose",
) -> Tensor:
    """The gradient of ``conv1d``: ``(N, C, W)`` with ``(C, O / groups, K)``, plus ``bias``.

    The result is ``(W - 1) * stride - 2 * padding + dilation * (K - 1) + output_padding + 1`` wide
    (TVM's documentation leaves the dilation out).
    """
    out = op.nn.conv1d_transpose(
        expr_of(x),
        expr_of(weight),
        strides=stride,
        padding=padding,
        output_padding=output_padding,
        dilation=dilation,
        groups=groups,
    )
    return _with_bias(out, bias, "NCW", name)


# -- norms -----------------------------------------------------------------------------------------
@eager
def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` over the last axes.

    normalized_shape: their sizes; an int: that of the last. weight, bias: of these sizes; None: 1
    and 0.
    """
    sizes = [normalized_shape] if isinstance(normalized_shape, int) else list(normalized_shape)
    gamma = const(np.ones(sizes), x.dtype) if weight is None else expr_of(weight)
    beta = const(np.zeros(sizes), x.dtype) if bias is None else expr_of(bias)
    axes = list(range(-len(sizes), 0))
    return wrap_nested(op.nn.layer_norm(expr_of(x), gamma, beta, axes=axes, epsilon=eps), name)


@eager
def rms_norm(
    x: Tensor,
    weight: Tensor,
    axes: int | Sequence[int],
    epsilon: float = 1e-5,
    name: str = "rms_norm",
) -> Tensor:
    """``x / sqrt(mean(x * x) + epsilon) * weight`` over ``axes``.

    (The formula in TVM's documentation lacks the square.)
    """
    return wrap_nested(op.nn.rms_norm(expr_of(x), expr_of(weight), axes, epsilon), name)


@eager
def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Sequence[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """``(x - mean) / sqrt(variance + eps) * weight + bias``, for each group of channels.

    axes: what is averaged beside the channels; None: all from the third on. weight, bias: one
    number a channel; None: 1 and 0.
    """
    channels = x.shape[channel_axis]
    if (weight is None or bias is None) and not isinstance(channels, int):
        raise UnsupportedError("group_norm needs weight and bias where channels are symbolic")
    gamma = const(np.ones(channels), x.dtype) if weight is None else expr_of(weight)
    beta = const(np.zeros(channels), x.dtype) if bias is None else expr_of(bias)
    out = op.nn.group_norm(
        expr_of(x),
        gamma,
        beta,
        num_groups,
        channel_axis=channel_axis,
        axes=list(range(2, x.ndim)) if axes is None else axes,
        epsilon=eps,
    )
    return wrap_nested(out, name)


# -- attention, images, time -----------------------------------------------------------------------
@eager
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool | None = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
) -> Tensor:
    """``softmax(query @ key * scale) @ value`` for each head.

    query: ``(batch, length, heads, size)``: heads come after the length, unlike in torch; key and
    value: of other length, of a divisor of the heads (each serves several of the query; where heads
    are symbolic, as many), value of another size. is_causal: position ``i`` sees the first
    ``i + 1`` keys. scale None: ``1 / sqrt(size)``. Raises UnsupportedError for an ``attn_mask``.
    """
    if attn_mask is not None:
        raise UnsupportedError(
            "scaled_dot_product_attention: attn_mask is not supported; use is_causal, or matmul, "
            "where and softmax"
        )
    q, k, v = expr_of(query), expr_of(key), expr_of(value)
    heads, shared = query.shape[2], key.shape[2]
    if isinstance(heads, int) and isinstance(shared, int) and shared < heads:
        if heads % shared:
            raise ValueError(f"{heads} heads of the query, {shared} of the key: no divisor")
        k, v = (op.repeat(t, heads // shared, 2) for t in (k, v))
    mask = "TopLeft" if is_causal else None
    return wrap_nested(op.nn.attention(q, k, v, scale=scale, causal_mask=mask), name)


@eager
def interpolate(
    x: Tensor,
    size: int | Sequence[int] | None = None,
    scale_factor: float | Sequence[float] | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Images in another size: ``size``, or their own times ``scale_factor``; not both.

    mode: "bilinear", "bicubic" (or "linear", "cubic"), "nearest", "nearest-floor". "nearest" rounds
    positions, halves to even, as TVM does, and so differs from torch's "nearest", which takes the
    pixel before: that is "nearest-floor" here. align_corners: the corners of both images are the
    same points. recompute_scale_factor and antialias must not be set.
    """
    if recompute_scale_factor or antialias:
        raise UnsupportedError(
            "interpolate: recompute_scale_factor and antialias are not supported"
        )
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: give one of size and scale_factor")
    places = [i for i, axis in enumerate(data_layout) if axis not in "NC"]
    if size is None:
        factors = (
            [float(scale_factor)] * len(places)
            if isinstance(scale_factor, int | float)
            else list(scale_factor or ())
        )
        if len(factors) != len(places):
            raise ValueError(f"interpolate: {len(factors)} factors for {len(places)} axes")
        size = [_scaled(x.shape[i], f) for i, f in zip(places, factors, strict=True)]
    elif isinstance(size, int):
        size = [size] * len(places)
    if mode not in _MODES:
        raise ValueError(f"interpolate: mode is one of {', '.join(_MODES)}; got {mode!r}")
    method, rounding = _MODES[mode]
    if method == "nearest_neighbor":
        positions = "asymmetric"
    else:
        positions = "align_corners" if align_corners else "half_pixel"
    out = op.image.resize2d(
        expr_of(x),
        list(size),
        layout=data_layout,
        method=method,
        coordinate_transformation_mode=positions,
        rounding_method=rounding,
    )
    return wrap_nested(out, name)


# The method of resize2d, and how positions become pixels.
_MODES = {
    "nearest": ("nearest_neighbor", "round"),
    "nearest-floor": ("nearest_neighbor", "floor"),
    "linear": ("linear", "round"),
    "bilinear": ("linear", "round"),
    "cubic": ("cubic", "round"),
    "bicubic": ("cubic", "round"),
}


def _scaled(size: Any, factor: float) -> Any:
    if isinstance(size, int):
        return int(size * factor)
    if factor != int(factor):
        raise UnsupportedError(
            f"interpolate: the symbolic size {size} times {factor}; use a whole factor, or size="
        )
    return tir.simplify(size * int(factor))


@eager
def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Sines and cosines of ``x`` ``(n,)`` at frequencies from 1 down: ``(n, embedding_dim)``.

    The default dtype, computed in float32. flip_sin_to_cos: cosines first. downscale_freq_shift:
    how far the lowest frequency is from ``1 / max_period``. scale: of the angles. An odd width ends
    with a column of zeros (TVM pads the wrong axis).
    """
    half = embedding_dim // 2
    steps = op.astype(expr_of(x), "float32")
    exponent = op.multiply(
        const(-math.log(max_period), "float32"), op.arange(0, half, dtype="float32")
    )
    frequencies = op.exp(op.divide(exponent, const(half - downscale_freq_shift, "float32")))
    angles: Expr = op.multiply(op.expand_dims(steps, 1), op.expand_dims(frequencies, 0))
    if scale != 1:
        angles = op.multiply(const(scale, "float32"), angles)
    waves = [op.sin(angles), op.cos(angles)]
    out: Expr = op.concat(waves[::-1] if flip_sin_to_cos else waves, axis=-1)
    if embedding_dim % 2:
        out = op.nn.pad(out, [0, 0, 0, 1])
    return wrap_nested(op.astype(out, get_default_dtype()), name)
