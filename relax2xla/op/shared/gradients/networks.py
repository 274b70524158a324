"""Gradients of products, convolutions, pooling, activations over an axis, and losses."""

from __future__ import annotations

from collections.abc import Sequence

from relax2xla.ir.expr import Expr
from relax2xla.ir.make import const
from relax2xla.op.shared.gradients.table import (
    Backward,
    dims_of,
    fit,
    gradient,
    none,
    sizes_of,
    tensor_of,
)
from relax2xla.op.shared.lowering import relax


# ---- matmul
def _transposed(x: Expr) -> Expr:
    """``x`` with its last two axes exchanged."""
    rank = len(dims_of(x))
    return relax("permute_dims", x, [*range(rank - 2), rank - 1, rank - 2])


@gradient("relax.matmul")
def _(s: Backward) -> Sequence[Expr] | None:
    a, b = s.args
    if tensor_of(a).dtype != tensor_of(s.out).dtype:
        return None
    rank_a, rank_b = len(dims_of(a)), len(dims_of(b))
    if rank_a > 1 and rank_b > 1:
        by_a = relax("matmul", s.grad, _transposed(b))
        by_b = relax("matmul", _transposed(a), s.grad)
    elif rank_b > 1:
        row = relax("expand_dims", s.grad, -2)
        by_a = relax("matmul", row, _transposed(b))
        by_b = relax("matmul", relax("expand_dims", a, 1), row)
        # A vector is a row of every matrix: (..., 1, k) becomes (..., k).
        by_a = relax("squeeze", by_a, [-2])
    elif rank_a > 1:
        column = relax("expand_dims", s.grad, -1)
        by_a = relax("matmul", column, relax("expand_dims", b, 0))
        by_b = relax("squeeze", relax("matmul", _transposed(a), column), [-1])
    else:
        by_a, by_b = s.grad * b, s.grad * a
    return [fit(by_a, a), fit(by_b, b)]


# ---- convolution
@gradient("relax.nn.conv2d")
def _(s: Backward) -> Sequence[Expr] | None:
    """Of images and kernels in their usual order; others have no expression here."""
    attrs, (data, weight) = s.attrs, s.args
    layouts = attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or "NCHW"
    if layouts != ("NCHW", "OIHW", "NCHW") or tensor_of(data).dtype != tensor_of(s.out).dtype:
        return None
    (batch, channels, *size), (_, _, *kernel) = sizes_of(data), sizes_of(weight)
    count_out, inner = sizes_of(s.out)[1], sizes_of(s.out)[2:]
    top, left, bottom, right = attrs["padding"]
    pads, strides, dilation = (top + bottom, left + right), attrs["strides"], attrs["dilation"]
    groups, out_dtype = attrs["groups"], attrs["out_dtype"]
    reach = [
        (n - 1) * step - pad + (k - 1) * wide + 1
        for n, step, pad, k, wide in zip(inner, strides, pads, kernel, dilation, strict=True)
    ]
    by_data = relax(
        "nn.conv2d_transpose",
        s.grad,
        weight,
        strides,
        attrs["padding"],
        [a - b for a, b in zip(size, reach, strict=True)],
        dilation,
        groups,
        "NCHW",
        "IOHW",
        "NCHW",
        out_dtype,
    )
    # The batch takes the place of the channels: each filter's gradient is an image.
    part = channels // groups
    if groups != 1:
        data = relax("reshape", data, (batch, groups, part, *size))
        data = relax("permute_dims", data, [1, 0, 2, 3, 4])
        data = relax("reshape", data, (batch * groups, part, *size))
    by_weight = relax(
        "nn.conv2d",
        data,
        s.grad,
        strides=dilation,
        padding=attrs["padding"],
        dilation=strides,
        groups=groups,
        out_dtype=out_dtype,
        data_layout="CNHW",
        kernel_layout="IOHW",
        out_layout="CNHW",
    )
    if list(sizes_of(by_weight)[2:]) != list(kernel):
        end = (count_out, part, *kernel)
        by_weight = relax(
            "strided_slice", by_weight, axes=[0, 1, 2, 3], begin=[0, 0, 0, 0], end=end
        )
    return [by_data, by_weight]


# ---- pooling
@gradient("relax.nn.max_pool2d")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("grad.max_pool2d_backward", s.grad, s.x, **s.attrs)]


@gradient("relax.nn.avg_pool2d")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("grad.avg_pool2d_backward", s.grad, s.x, **s.attrs)]


# ---- over an axis
@gradient("relax.nn.softmax")
def _(s: Backward) -> Sequence[Expr]:
    mean = relax("sum", s.grad * s.out, s.attrs["axis"], keepdims=True)
    return [(s.grad - mean) * s.out]


@gradient("relax.nn.log_softmax")
def _(s: Backward) -> Sequence[Expr]:
    total = relax("sum", s.grad, s.attrs["axis"], keepdims=True)
    return [s.grad - total * relax("exp", s.out)]


# ---- losses
@gradient("relax.nn.cross_entropy_with_logits")
def _(s: Backward) -> Sequence[Expr]:
    x, y = s.args
    grad = s.grad
    if len(dims_of(x)) > 1:
        grad = grad / const(sizes_of(x)[0], tensor_of(grad).dtype)
    return [-grad * y, -grad * x]


@gradient("relax.nn.nll_loss")
def _(s: Backward) -> Sequence[Expr]:
    """TVM gives no gradient to the weights."""
    grad = relax("grad.nll_loss_backward", s.grad, *s.args, **s.attrs)
    return [grad, *map(none, s.args[1:])]
