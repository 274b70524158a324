"""Random convolutions, pools, their gradients, and norms against torch.

Hypothesis draws layouts, groups, strides, dilations and paddings; the truth is computed in float64
and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import given
from torch.nn import functional as F

from relax2xla import op
from tests.op.draws import (
    FLOATS,
    SPACE,
    WIDE,
    Draw,
    array,
    axis_of,
    call_of,
    case,
    exact,
    examples,
    moved,
    number,
    one_of,
    one_of_each,
    shuffled,
)
from tests.op.harness import Case, check

# dtype of the operands and of the result; narrow integers would wrap, so they are summed in int32.
CONVOLVED = (
    ("float32", None), ("float64", None), ("bfloat16", None), ("int32", None), ("int8", "int32"),
    ("uint8", "int32"),
)  # fmt: skip


def convolution(draw: Any, name: str) -> Case:
    """conv and conv_transpose in one to three dimensions, in any layout."""
    n, back = int(name[7]), name.endswith("transpose")
    space = SPACE[n]
    groups, inner, outer, count = (number(draw, 1, k) for k in (3, 2, 2, 2))

    def each(low: int, high: int) -> list[int]:
        return [number(draw, low, high) for _ in range(n)]

    kernel, strides, dilation = each(1, 3), each(1, 3), each(1, 2)
    before, after = each(0, 1), each(0, 1)
    least = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    sizes = [e + more for e, more in zip(least, each(2, 4), strict=True)]
    dtype, out_dtype = one_of(draw, *CONVOLVED)
    data = shuffled(draw, f"NC{space}")
    out = shuffled(draw, f"NC{space}")
    x = array(draw, (count, groups * inner, *sizes), dtype)
    attrs: dict[str, Any] = {
        "strides": strides, "padding": before + after, "dilation": dilation, "groups": groups,
        "data_layout": data, "out_layout": out, "out_dtype": out_dtype,
    }  # fmt: skip
    if back:
        plain = f"IO{space}"
        w = array(draw, (groups * inner, outer, *kernel), dtype)
        extra = [number(draw, 0, s - 1) for s in strides]
        attrs["output_padding"] = extra
        full = getattr(F, f"conv_transpose{n}d")(
            exact(x), exact(w), None, strides, 0, 0, groups, dilation
        )
        # Padding crops the whole result; what is asked for behind it is zero.
        full = F.pad(full, [v for e in reversed(extra) for v in (0, e)])
        cut = [slice(b, size - a) for b, a, size in zip(before, after, full.shape[2:], strict=True)]
        want = full[(slice(None), slice(None), *cut)]
    else:
        plain = f"OI{space}"
        w = array(draw, (groups * outer, inner, *kernel), dtype)
        pads = [v for b, a in zip(reversed(before), reversed(after), strict=True) for v in (b, a)]
        want = getattr(F, f"conv{n}d")(
            F.pad(exact(x), pads), exact(w), None, strides, 0, dilation, groups
        )
    attrs["kernel_layout"] = shuffled(draw, plain)
    inputs = [moved(x, f"NC{space}", data), moved(w, plain, attrs["kernel_layout"])]
    want = moved(want.numpy(), f"NC{space}", out)
    return case(f"{name} {attrs}", call_of(name, **attrs), inputs, want, out_dtype or dtype)


def winograd(draw: Any, name: str) -> Case:
    dtype = one_of(draw, *WIDE)
    count, inner, outer = (number(draw, 1, k) for k in (2, 4, 4))
    padding = [number(draw, 0, 2) for _ in range(4)]
    x = array(draw, (count, number(draw, 3, 6), number(draw, 3, 6), inner), dtype)
    w = array(draw, (3, 3, inner, outer), dtype)
    top, left, bottom, right = padding
    padded = F.pad(exact(moved(x, "NHWC", "NCHW")), (left, right, top, bottom))
    want = moved(F.conv2d(padded, exact(moved(w, "HWIO", "OIHW"))).numpy(), "NCHW", "NHWC")
    made = call_of(name, padding=padding)
    return case(name, lambda x, w: made(x, op.nn.winograd_weight(w)), [x, w], want, dtype)


def windows(draw: Any, n: int, dilated: bool) -> tuple[dict[str, Any], list[int]]:
    """Attributes of a pool that torch has too, and the sizes of an image."""
    kernel = [number(draw, 1, 3) for _ in range(n)]
    padding = [number(draw, 0, k // 2) for k in kernel]
    ceil = not any(padding) and one_of(draw, False, True)
    dilation = [number(draw, 1, 2) if dilated and not ceil else 1 for _ in range(n)]
    attrs = {
        "pool_size": kernel, "strides": [number(draw, 1, k) for k in kernel],
        "padding": padding * 2, "dilation": dilation, "ceil_mode": ceil,
    }  # fmt: skip
    sizes = zip(kernel, dilation, strict=True)
    return attrs, [(k - 1) * d + 1 + number(draw, 0, 3) for k, d in sizes]


def torch_pool(name: str, attrs: dict[str, Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    kernel, strides = attrs["pool_size"], attrs["strides"]
    padding, ceil = attrs["padding"][: len(kernel)], attrs["ceil_mode"]
    made = getattr(F, name)
    if name.startswith("max"):
        return lambda x: made(x, kernel, strides, padding, attrs["dilation"], ceil)
    return lambda x: made(x, kernel, strides, padding, ceil, attrs["count_include_pad"])


def pool(draw: Any, name: str) -> Case:
    """Maximum and average pools, with what torch can say: padding alike on both sides."""
    n, most = int(name[-2]), "max" in name
    attrs, sizes = windows(draw, n, most)
    dtype = one_of(draw, *FLOATS)
    layout = shuffled(draw, f"NC{SPACE[n]}")
    x = array(draw, (2, 2, *sizes), dtype)
    if not most:
        attrs["count_include_pad"] = one_of(draw, False, True)
    want = torch_pool(name.removeprefix("nn."), attrs)(exact(x))
    inputs = [moved(x, f"NC{SPACE[n]}", layout)]
    want = moved(want.numpy(), f"NC{SPACE[n]}", layout)
    return case(f"{name} {attrs}", call_of(name, **attrs, layout=layout), inputs, want, dtype)


def pool_backward(draw: Any, name: str) -> Case:
    forward = name.removeprefix("grad.").removesuffix("_backward")
    attrs, sizes = windows(draw, 2, "max" in name)
    dtype, layout = one_of(draw, *WIDE), shuffled(draw, "NCHW")
    if "avg" in name:
        attrs["count_include_pad"] = one_of(draw, False, True)
    x = array(draw, (2, 2, *sizes), dtype)
    leaf = exact(x).requires_grad_()
    out = torch_pool(forward, attrs)(leaf)
    g = array(draw, out.shape, dtype)
    (want,) = torch.autograd.grad(out, leaf, exact(g))
    inputs = [moved(v, "NCHW", layout) for v in (g, x)]
    want = moved(want.numpy(), "NCHW", layout)
    return case(f"{name} {attrs}", call_of(name, **attrs, layout=layout), inputs, want, dtype)


def adaptive_pool(draw: Any, name: str) -> Case:
    n = int(name[-2])
    dtype, layout = one_of(draw, *FLOATS), shuffled(draw, f"NC{SPACE[n]}")
    x = array(draw, (2, 2, *(number(draw, 1, 6) for _ in range(n))), dtype)
    size = [number(draw, 1, 7) for _ in range(n)]
    want = getattr(F, name.removeprefix("nn."))(exact(x), size).numpy()
    inputs, want = [moved(x, f"NC{SPACE[n]}", layout)], moved(want, f"NC{SPACE[n]}", layout)
    return case(f"{name} {size}", call_of(name, size, layout), inputs, want, dtype)


def norm(draw: Any, name: str) -> Case:
    """Layer, group, instance and RMS norms."""
    dtype, eps = one_of(draw, *WIDE), one_of(draw, 1e-5, 1e-3)
    shape = (2, 4, *(number(draw, 2, 4) for _ in range(number(draw, 1, 2))))
    x = array(draw, shape, dtype)
    space = list(range(2, len(shape)))
    if name in ("nn.layer_norm", "nn.rms_norm"):
        axes = one_of(draw, [-1], list(range(1, len(shape))))
        inner = [shape[a] for a in axes]
        g, b = array(draw, inner, dtype), array(draw, inner, dtype)
        if name == "nn.rms_norm":
            want = F.rms_norm(exact(x), inner, exact(g), eps).numpy()
            return case(f"{name} {axes}", call_of(name, axes, eps), [x, g], want, dtype)
        want = F.layer_norm(exact(x), inner, exact(g), exact(b), eps).numpy()
        return case(f"{name} {axes}", call_of(name, axes, eps), [x, g, b], want, dtype)
    g, b = array(draw, (4,), dtype), array(draw, (4,), dtype)
    if name == "nn.instance_norm":
        want = F.instance_norm(exact(x), weight=exact(g), bias=exact(b), eps=eps)
        make = call_of(name, 1, space, eps)
    else:
        groups = one_of(draw, 1, 2, 4)
        want = F.group_norm(exact(x), groups, exact(g), exact(b), eps)
        make = call_of(name, groups, 1, space, eps)
    return case(name, make, [x, g, b], want.numpy(), dtype)


def batch_norm(draw: Any, name: str) -> Case:
    dtype, training = one_of(draw, *WIDE), one_of(draw, False, True)
    x = array(draw, (3, *(number(draw, 2, 4) for _ in range(number(draw, 1, 3)))), dtype)
    axis, momentum = axis_of(draw, x), one_of(draw, 0.1, 0.3)
    gamma, beta, mean, var = (array(draw, x.shape[axis], dtype) for _ in range(4))
    var = np.abs(var) + np.asarray(0.5, dtype)
    first = exact(np.moveaxis(x, axis, 1 if x.ndim > 1 else 0))
    moving = exact(mean), exact(var)
    y = F.batch_norm(first, *moving, exact(gamma), exact(beta), training, eps=1e-3).numpy()
    if training:  # torch keeps the unbiased variance, Relax the biased one
        rest = tuple(i for i in range(x.ndim) if i != axis % x.ndim)
        wide = x.astype("float64")
        old = (mean, var)
        new = (wide.mean(rest), wide.var(rest))
        stats = [(1 - momentum) * o + momentum * v for o, v in zip(old, new, strict=True)]
    else:
        stats = [mean, var]
    want = tuple(v.astype(dtype) for v in (np.moveaxis(y, 1, axis), *stats))
    make = call_of(name, axis, 1e-3, momentum=momentum, training=training)
    tol = 2e-4 if dtype == "float32" else 1e-10
    return Case(f"{name} {axis} {training}", make, [x, gamma, beta, mean, var], want, tol, tol)


CONVOLUTIONS: dict[str, Draw] = {
    **{f"nn.conv{n}d{back}": convolution for n in SPACE for back in ("", "_transpose")},
    "nn.winograd_conv2d": winograd,
}
POOLS: dict[str, Draw] = {
    **{f"nn.{kind}_pool{n}d": pool for n in SPACE for kind in ("max", "avg")},
    **{f"nn.adaptive_avg_pool{n}d": adaptive_pool for n in SPACE},
    **{f"grad.{kind}_pool2d_backward": pool_backward for kind in ("max", "avg")},
}
NORMS: dict[str, Draw] = {
    **{f"nn.{kind}_norm": norm for kind in ("layer", "rms", "group", "instance")},
    "nn.batch_norm": batch_norm,
}


@examples(3)
@given(one_of_each(CONVOLUTIONS, 2))
def test_convolutions(drawn: list[Case]) -> None:
    check(drawn)


@examples(3)
@given(one_of_each(POOLS))
def test_pools(drawn: list[Case]) -> None:
    check(drawn)


@examples(2)
@given(one_of_each(NORMS, 2))
def test_norms(drawn: list[Case]) -> None:
    check(drawn)
