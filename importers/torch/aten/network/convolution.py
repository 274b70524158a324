"""Convolutions over one, two and three axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla import tir
from relax2xla.importers.shared.tensors import row
from relax2xla.importers.shared.windows import CONV, CONV_TRANSPOSE, biased, halves
from relax2xla.importers.torch.aten.network.pool import batched, unbatched
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    dims_of,
    ndim_of,
    stated_dtype,
    static,
)
from relax2xla.importers.torch.engine.converters import Function, aten, register_converter
from relax2xla.ir import Expr

Ints = Sequence[int]


def _per_axis(values: Any, ndim: int) -> list[int]:
    given = [values] if isinstance(values, int) else list(values)
    return given * ndim if len(given) == 1 else given


def _padding(padding: Any, weight: Expr, dilation: list[int], ndim: int) -> list[int]:
    """Befores then afters; "same" puts the odd one after."""
    if padding == "valid":
        return [0] * (2 * ndim)
    if padding == "same":
        window = [static(d, "a kernel's size") for d in dims_of(weight)[2:]]
        total = [d * (w - 1) for d, w in zip(dilation, window, strict=True)]
        return halves(total)
    return _per_axis(padding, ndim)


def _conv(ndim: int) -> Function:
    def convert(
        ctx: Context,
        input: Expr,
        weight: Expr,
        bias: Expr | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: Dim = 1,
    ) -> Expr:
        x, alone = batched(input, ndim)
        spread = _per_axis(dilation, ndim)
        pads = _padding(padding, weight, spread, ndim)
        form = _per_axis(stride, ndim), pads, spread, groups
        if isinstance(groups, int):
            y = CONV[ndim](x, weight, *form, out_dtype=stated_dtype(x))
        else:
            sizes = ctx.dims()[1:] if alone else ctx.dims()[2:]
            y = _conv_of_groups(ctx, x, weight, *form, sizes)
        return unbatched(biased(y, bias), alone)

    return convert


def _conv_of_groups(
    ctx: Context,
    x: Expr,
    weight: Expr,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    groups: Dim,
    sizes: Sequence[Dim],
) -> Expr:
    """A convolution with symbolic groups: a product for each place of the window.

    So are the weights of StyleGAN, which differ from picture to picture.
    """
    ndim = len(sizes)
    kernel = [static(d, "a kernel's size") for d in dims_of(weight)[2:]]
    batch, (total, inner) = dims_of(x)[0], dims_of(weight)[:2]
    outer = tir.as_dim(tir.simplify(total // groups))
    befores, afters = padding[:ndim], padding[-ndim:]
    flat = [w for pair in zip(befores, afters, strict=True) for w in pair]
    x = ctx.emit(R.nn.pad(x, [0] * 4 + flat)) if any(flat) else x
    x = ctx.emit(R.reshape(x, (batch, groups, inner, *dims_of(x)[2:])))
    weight = ctx.emit(R.reshape(weight, (groups, outer, inner, *kernel)))
    axes = list(range(3, 3 + ndim))
    products: list[Expr] = []
    for place in itertools.product(*map(range, kernel)):
        starts = [p * d for p, d in zip(place, dilation, strict=True)]
        ends = [a + (n - 1) * s + 1 for a, n, s in zip(starts, sizes, stride, strict=True)]
        part = R.strided_slice(x, axes, starts, ends, stride, assume_inbound=True)
        part = R.reshape(part, (batch, groups, inner, math.prod(sizes)))
        factor = R.strided_slice(weight, axes, list(place), [p + 1 for p in place])
        products.append(R.matmul(R.reshape(factor, (groups, outer, inner)), part))
    made = ctx.emit(products[0])
    for product in products[1:]:
        made = ctx.emit(R.add(made, product))
    return R.reshape(made, (batch, total, *sizes))


def _conv_transpose(ndim: int) -> Function:
    def convert(
        ctx: Context,
        input: Expr,
        weight: Expr,
        bias: Expr | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Expr:
        x, alone = batched(input, ndim)
        steps, spread = _per_axis(stride, ndim), _per_axis(dilation, ndim)
        extra = _per_axis(output_padding, ndim)
        # One that depends on sizes, as in the gradient of a strided convolution, is less than this.
        known = [
            e if isinstance(e, int) else max(s, d) - 1
            for e, s, d in zip(extra, steps, spread, strict=True)
        ]
        y = CONV_TRANSPOSE[ndim](
            x,
            weight,
            steps,
            _per_axis(padding, ndim),
            known,
            spread,
            static(groups, "the number of groups"),
            out_dtype=stated_dtype(x),
        )
        if known != extra:
            axes, sizes = list(range(2, 2 + ndim)), list(ctx.dims()[-ndim:])
            starts, ones = [0] * ndim, [1] * ndim
            y = R.strided_slice(ctx.emit(y), axes, starts, sizes, ones, assume_inbound=True)
        return unbatched(biased(y, bias), alone)

    return convert


conv = {n: _conv(n) for n in CONV}
conv_transpose = {n: _conv_transpose(n) for n in CONV}
for _n in CONV:
    aten(f"conv{_n}d", f"conv{_n}d.padding")(conv[_n])
    _full = f"conv_transpose{_n}d" if _n == 1 else f"conv_transpose{_n}d.input"
    aten(_full, wide=True)(conv_transpose[_n])


@aten("convolution _convolution", ignored="benchmark deterministic cudnn_enabled allow_tf32")
def convolution(
    ctx: Context,
    input: Expr,
    weight: Expr,
    bias: Expr | None,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    transposed: bool,
    output_padding: Ints,
    groups: int,
) -> Expr:
    n = ndim_of(weight) - 2
    if transposed:
        return conv_transpose[n](
            ctx, input, weight, bias, stride, padding, output_padding, groups, dilation
        )
    return conv[n](ctx, input, weight, bias, stride, padding, dilation, groups)


@register_converter("relax2xla_gradients::weight")
def weight_gradient(
    ctx: Context,
    x: Expr,
    grad: Expr,
    weight: Expr,
    stride: Ints,
    padding: Ints,
    dilation: Ints,
    groups: int,
) -> Expr:
    """The gradient of a weight over planes (``source/window_gradients.py``).

    Batch and channels change places, and so do strides and dilation.
    """
    sizes = [[static(d, "a size") for d in dims_of(v)[2:]] for v in (x, grad, weight)]
    pads = [
        (p, (taps - 1) * d + (many - 1) * s + 1 - size - p)
        for size, many, taps, s, p, d in zip(*sizes, stride, padding, dilation, strict=True)
    ]
    numbers = {
        "input_batch_dimension": 1,
        "input_feature_dimension": 0,
        "input_spatial_dimensions": (2, 3),
        "kernel_input_feature_dimension": 0,
        "kernel_output_feature_dimension": 1,
        "kernel_spatial_dimensions": (2, 3),
        "output_batch_dimension": 1,
        "output_feature_dimension": 0,
        "output_spatial_dimensions": (2, 3),
    }
    return row(
        "convolution",
        x,
        grad,
        window_strides=tuple(dilation),
        padding=tuple(pads),
        lhs_dilation=(1, 1),
        rhs_dilation=tuple(stride),
        window_reversal=(False, False),
        dimension_numbers=numbers,
        feature_group_count=1,
        batch_group_count=groups,
    )


@aten("conv_tbc")
def conv_tbc(ctx: Context, self: Expr, weight: Expr, bias: Expr, pad: int) -> Expr:
    """Steps, batch, channels; the filter has its length, channels in, channels out."""
    x = R.permute_dims(self, [1, 2, 0])
    filters = R.permute_dims(weight, [2, 1, 0])
    return R.permute_dims(conv[1](ctx, x, filters, bias, [1], [pad], [1], 1), [2, 0, 1])
