"""Normalisations over axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.broadcast import add, divide, multiply, subtract
from relax2xla.topi.math import cast, identity, sqrt
from relax2xla.topi.nn.padding import pad
from relax2xla.topi.reduction import over_axes, sum
from relax2xla.topi.shared import (
    FUNCTIONS,
    compute,
    known,
    of_dtype,
    one_axis,
    product,
    shown,
    some_axes,
    want_int,
)
from relax2xla.topi.transform import reshape


def _wide(dtype: str) -> str:
    """In which sums are taken."""
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _normal(
    data: te.Tensor, axis: Any, epsilon: float, what: str
) -> tuple[list[int], Callable[[Sequence[Any]], Any]]:
    """The axes, and the elements with mean 0 and variance 1 over them."""
    dtype = _wide(data.dtype)
    kept, axes, loops, place = over_axes(data, axis, False, what)
    count = tir.cast(dtype, product([data.shape[a] for a in axes]))

    def total(*i: Any) -> Any:
        return te.sum(tir.cast(dtype, data(*place(i))), axis=loops)

    added = compute(kept, total, f"{data.name}_sum", "comm_reduce")
    mean = compute(kept, lambda *i: added(*i) / count, f"{data.name}_mean", "elemwise")
    again, _, others, where = over_axes(data, axis, False, what)

    def square(*i: Any) -> Any:
        off = tir.cast(dtype, data(*where(i))) - mean(*i)
        return te.sum(off * off, axis=others)

    spread = compute(again, square, f"{data.name}_var_sum", "comm_reduce")
    eps = of_dtype(epsilon, dtype)

    def element(i: Sequence[Any]) -> Any:
        rest = [v for n, v in enumerate(i) if n not in axes]
        off = tir.cast(dtype, data(*i)) - mean(*rest)
        return off * FUNCTIONS["rsqrt"](spread(*rest) / count + eps)

    return axes, element


def _scaled(
    data: te.Tensor,
    gamma: te.Tensor | None,
    beta: te.Tensor | None,
    axis: Any,
    epsilon: float,
    name: str,
) -> te.Tensor:
    axes, normal = _normal(data, axis, epsilon, name)
    dtype = _wide(data.dtype)

    def element(*i: Any) -> Any:
        own = [i[a] for a in axes]
        made = normal(i)
        made = made if gamma is None else made * tir.cast(dtype, gamma(*own))
        made = made if beta is None else made + tir.cast(dtype, beta(*own))
        return tir.cast(data.dtype, made)

    return compute(data.shape, element, f"T_{name}")


def layer_norm(
    data: te.Tensor,
    gamma: te.Tensor | None,
    beta: te.Tensor | None,
    axis: Any,
    epsilon: float = 1e-5,
) -> te.Tensor:
    """Mean 0 and variance 1 over ``axis``; then times ``gamma`` plus ``beta``, of those axes."""
    return _scaled(data, gamma, beta, axis, epsilon, "layer_norm")


def instance_norm(
    data: te.Tensor, gamma: te.Tensor, beta: te.Tensor, axis: Any, epsilon: float = 1e-5
) -> te.Tensor:
    """:func:`layer_norm` under another name, as in TVM."""
    return _scaled(data, gamma, beta, axis, epsilon, "instance_norm")


def group_norm(
    data: te.Tensor,
    gamma: te.Tensor | None,
    beta: te.Tensor | None,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float = 1e-5,
) -> te.Tensor:
    """Mean 0 and variance 1 over ``axes`` and each of ``num_groups`` parts of the channels."""
    at = one_axis(channel_axis, data.ndim, "nn.group_norm")
    groups = want_int(num_groups, "nn.group_norm: num_groups")
    channels = data.shape[at]
    if known(channels) is not None and want_int(channels, "channels") % groups:
        raise ValueError(f"topi.nn.group_norm: {shown(channels)} channels in {groups} groups")
    width = channels // groups
    parts = reshape(data, [*data.shape[:at], groups, width, *data.shape[at + 1 :]])
    inner = [a + (a > at) for a in some_axes(axes, data.ndim, "nn.group_norm") if a != at]
    _, normal = _normal(parts, [at + 1, *inner], epsilon, "group_norm")
    dtype = _wide(data.dtype)

    def element(*i: Any) -> Any:
        made = normal([*i[:at], i[at] // width, i[at] % width, *i[at + 1 :]])
        made = made if gamma is None else made * tir.cast(dtype, gamma(i[at]))
        made = made if beta is None else made + tir.cast(dtype, beta(i[at]))
        return tir.cast(data.dtype, made)

    return compute(data.shape, element, "T_group_norm")


def rms_norm(data: te.Tensor, weight: te.Tensor, axis: Any, epsilon: float = 1e-5) -> te.Tensor:
    """``data`` over the root of its mean square over ``axis``, times ``weight``; in float32."""
    axes = some_axes(axis, data.ndim, "nn.rms_norm")
    wide = compute(data.shape, lambda *i: tir.cast("float32", data(*i)), "T_cast", "elemwise")
    total = sum(multiply(wide, wide), axes)
    count = tir.cast("float32", product([data.shape[a] for a in axes]))
    eps = of_dtype(epsilon, "float32")
    root = compute(
        total.shape, lambda *i: FUNCTIONS["rsqrt"](total(*i) / count + eps), "rsqrt", "elemwise"
    )
    scale = compute(weight.shape, lambda *i: tir.cast("float32", weight(*i)), "T_cast", "elemwise")

    def element(*i: Any) -> Any:
        rest = [v for n, v in enumerate(i) if n not in axes]
        return root(*rest) * wide(*i) * scale(*(i[a] for a in axes))

    made = compute(data.shape, element, "T_rms_norm")
    return compute(data.shape, lambda *i: tir.cast(data.dtype, made(*i)), "T_cast", "elemwise")


def batch_norm(
    data: te.Tensor,
    gamma: te.Tensor,
    beta: te.Tensor,
    moving_mean: te.Tensor,
    moving_var: te.Tensor,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> list[te.Tensor]:
    """Normalised by channel (``axis``, 1 by default), and the two moving statistics.

    As in ``relax.nn.batch_norm``: with ``training`` by mean and variance of ``data``, which enter
    the moving ones with weight ``momentum`` (0.1); otherwise by the moving ones, which stay.
    """
    at = one_axis(1 if axis is None else axis, data.ndim, "nn.batch_norm")
    eps = of_dtype(1e-5 if epsilon is None else epsilon, data.dtype)
    shape: list[Any] = [1] * data.ndim
    shape[at] = data.shape[at]
    others = [a for a in range(data.ndim) if a != at]
    means = [moving_mean, identity(moving_mean)]
    variances = [moving_var, identity(moving_var)]
    if training:
        count = tir.cast(data.dtype, product([data.shape[a] for a in others]))
        mean = divide(sum(data, others), count)
        off = subtract(data, reshape(mean, shape))
        variance = divide(sum(multiply(off, off), others), count)
        part = of_dtype(0.1 if momentum is None else momentum, data.dtype)
        rest = of_dtype(1, data.dtype) - part
        means = [mean, add(multiply(rest, moving_mean), multiply(part, mean))]
        variances = [variance, add(multiply(rest, moving_var), multiply(part, variance))]
    root = sqrt(add(reshape(variances[0], shape), eps))
    out = divide(subtract(data, reshape(means[0], shape)), root)
    out = out if scale is False else multiply(out, reshape(gamma, shape))
    out = out if center is False else add(out, reshape(beta, shape))
    return [cast(out, data.dtype), means[-1], variances[-1]]


def lrn(
    data: te.Tensor,
    size: int,
    axis: int = 1,
    alpha: float = 0.0001,
    beta: float = 0.75,
    bias: float = 2,
) -> te.Tensor:
    """Each element over (bias + alpha / size * squares) to the power of beta.

    The squares are summed over ``size`` channels, an odd number, with the element's in their
    middle. ``axis`` is where ``data`` of four axes has its channels, 1 or 3.
    """
    if data.ndim != 4 or axis not in (1, 3):
        raise ValueError(
            "topi.nn.lrn takes a tensor of four axes, and axis 1 or 3 of them; got the shape "
            f"{shown(data.shape)} and axis {axis}"
        )
    if size % 2 != 1:
        raise ValueError(f"topi.nn.lrn: size must be odd, for one channel is in the middle; {size}")
    if "float" not in data.dtype:
        raise TypeError(f"topi.nn.lrn is for floats; got {data.dtype}")
    around = [size // 2 if n == axis else 0 for n in range(4)]
    padded = pad(data, around, around, 0.0, "pad_data")
    k = te.reduce_axis((0, size), "rxs")

    def squares(*i: Any) -> Any:
        element = padded(*i[:axis], i[axis] + k, *i[axis + 1 :])
        return te.sum(element * element, axis=k)

    added = te.compute(data.shape, squares, "tensor", "sqr_sum")
    by, power, more = (of_dtype(v, data.dtype) for v in (alpha, beta, bias))
    count = of_dtype(size, data.dtype)
    below = te.compute(
        data.shape,
        lambda *i: FUNCTIONS["pow"](more + by * added(*i) / count, power),
        "tensor",
        "elemwise",
    )
    return divide(data, below)
