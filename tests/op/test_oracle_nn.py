"""Random attention, losses with their gradients, and quantisation against torch and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from torch.nn import functional as F

from tests.op.draws import (
    ANY,
    FLOATS,
    RNG,
    WIDE,
    Draw,
    array,
    axis_of,
    call_of,
    case,
    exact,
    examples,
    number,
    one_of,
    one_of_each,
    same,
    shape_of,
)
from tests.op.harness import Case, check
from tests.op.nn.test_attention import reference, seen_by
from tests.op.test_quantize import quantized


def attended(q: Any, k: Any, v: Any, bias: Any, *rule: Any) -> Any:
    """torch's attention; queries that see nothing give 0."""
    scale, mask, window = rule
    seen = seen_by(q.shape[1], k.shape[1], mask, window)
    wide = None if bias is None else exact(bias)
    want = reference(exact(q), exact(k), exact(v), wide, scale, seen)
    if seen is not None:
        want[:, ~seen.any(axis=1)] = 0
    return want.numpy()


def rule_of(draw: Any) -> tuple[Any, ...]:
    """Scale, causal mask, window."""
    return (
        one_of(draw, None, 0.3),
        one_of(draw, None, "TopLeft", "BottomRight"),
        one_of(draw, None, 1, 2, 3),
    )


def attention(draw: Any, name: str) -> Case:
    dtype, rule = one_of(draw, *FLOATS), rule_of(draw)
    batch, heads = number(draw, 1, 2), number(draw, 1, 3)
    rows, columns, depth = (number(draw, 1, 6) for _ in range(3))
    q = array(draw, (batch, rows, heads, depth), dtype)
    k = array(draw, (batch, columns, heads, depth), dtype)
    v = array(draw, (batch, columns, heads, number(draw, 1, 4)), dtype)
    inputs = [q, k, v]
    bias = None
    if name.endswith("bias"):
        shape = [one_of(draw, 1, d) for d in (batch, heads, rows)]
        inputs.append(bias := array(draw, (*shape, columns), dtype))
    want = attended(q, k, v, bias, *rule)
    return case(f"{name} {rule}", call_of(name, *rule), inputs, want, dtype)


def attention_var_len(draw: Any, name: str) -> Case:
    dtype, rule = one_of(draw, *WIDE), rule_of(draw)
    count, heads, depth = number(draw, 1, 3), number(draw, 1, 2), number(draw, 1, 4)
    rows, columns = ([number(draw, 1, 4) for _ in range(count)] for _ in range(2))
    q = array(draw, (1, sum(rows), heads, depth), dtype)
    k = array(draw, (1, sum(columns), heads, depth), dtype)
    v = array(draw, (1, sum(columns), heads, 3), dtype)
    starts = [np.cumsum([0, *sizes]).astype(np.int32) for sizes in (rows, columns)]
    cuts = [start[1:-1] for start in starts]
    parts = zip(np.split(q, cuts[0], 1), *(np.split(x, cuts[1], 1) for x in (k, v)), strict=True)
    want = np.concatenate([attended(*part, None, *rule) for part in parts], 1)
    inputs = [q, k, v, starts[0], starts[1], np.int32(max(rows)), np.int32(max(columns))]
    return case(f"{name} {rule}", call_of(name, *rule), inputs, want, dtype)


# ---- losses
def cross_entropy(draw: Any, name: str) -> Case:
    dtype, shape = one_of(draw, *WIDE), shape_of(draw, 1, 3, 1)
    p, y = array(draw, shape, dtype), array(draw, shape, dtype)
    want = -(p.astype("float64") * y).sum() / (shape[0] if len(shape) > 1 else 1)
    return case(name, call_of(name), [p, y], want, dtype)


def nll_loss(draw: Any, name: str) -> Case:
    dtype, classes = one_of(draw, *WIDE), number(draw, 1, 4)
    shape = shape_of(draw, 1, 3, 1)
    p = array(draw, (shape[0], classes, *shape[1:]), dtype)
    t = draw(RNG).integers(0, classes, shape)
    w = np.abs(array(draw, classes, dtype)) + np.asarray(0.5, dtype)
    reduction = one_of(draw, "none", "sum", "mean")
    ignored = one_of(draw, -100, int(t.flat[0])) if np.ptp(t) else -100
    leaf = exact(p).requires_grad_()
    out = F.nll_loss(leaf, torch.from_numpy(t), exact(w), None, ignored, None, reduction)
    label, make = f"{name} {reduction} {ignored}", call_of(name, reduction, ignored)
    if name == "nn.nll_loss":
        return case(label, make, [p, t, w], out.detach().numpy(), dtype)
    g = array(draw, tuple(out.shape), dtype)
    (want,) = torch.autograd.grad(out, leaf, exact(g))
    return case(label, make, [g, p, t, w], want.numpy(), dtype)


# ---- the small ones
def dropout(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw), one_of(draw, *FLOATS))
    return same(name, call_of(name, one_of(draw, 0.0, 0.5, 1.0)), [x], (x, np.ones_like(x)))


def pixel_shuffle(draw: Any, name: str) -> Case:
    factor = number(draw, 1, 3)
    shape = (*shape_of(draw, 0, 2, 1), factor**2 * number(draw, 1, 2), number(draw, 1, 3), 2)
    x = array(draw, shape, one_of(draw, *ANY))
    want = F.pixel_shuffle(torch.from_numpy(x), factor).numpy()
    return same(f"{name} {factor}", call_of(name, factor), [x], want)


def prelu(draw: Any, name: str) -> Case:
    dtype = one_of(draw, *WIDE)
    x = array(draw, shape_of(draw, 1, 3, 1), dtype)
    axis = axis_of(draw, x)
    slopes = array(draw, one_of(draw, 1, x.shape[axis]), dtype)
    first = exact(np.moveaxis(x, axis, -1).reshape(-1, x.shape[axis]))
    want = F.prelu(first, exact(slopes)).numpy()
    want = np.moveaxis(want.reshape(np.moveaxis(x, axis, -1).shape), -1, axis)
    return case(f"{name} {axis}", call_of(name, axis), [x, slopes], want, dtype)


# ---- integers for floats
def scales(draw: Any, shape: Any, axis: int, dtype: str) -> tuple[Any, Any, Any]:
    """A scale and a zero point, one or along an axis; and the shape that broadcasts them."""
    spread = [1] * len(shape)
    size: Any = ()
    if one_of(draw, False, True):
        size = spread[axis] = shape[axis]
    # Powers of two, so that no quotient is between two integers by rounding alone.
    scale = np.exp2(draw(RNG).integers(-3, 2, size)).astype(np.float32)
    return np.asarray(scale), np.asarray(array(draw, size, dtype)), spread


def quantize(draw: Any, name: str) -> Case:
    x = array(draw, shape_of(draw, 1, 3, 1), "float32") * np.float32(one_of(draw, 1, 50))
    axis, dtype = axis_of(draw, x), one_of(draw, "int8", "uint8", "int16", "int32")
    scale, zero, spread = scales(draw, x.shape, axis, dtype)
    want = quantized(x, scale.reshape(spread), zero.reshape(spread), dtype)
    return same(f"{name} {axis} {dtype}", call_of(name, axis, dtype), [x, scale, zero], want)


def dequantize(draw: Any, name: str) -> Case:
    dtype = one_of(draw, "int8", "uint8", "int16", "int32")
    x = array(draw, shape_of(draw, 1, 3, 1), dtype)
    axis, target = axis_of(draw, x), one_of(draw, "float32", "float16", "float64")
    scale, zero, spread = scales(draw, x.shape, axis, dtype)
    steps = x.astype(np.float64) - zero.reshape(spread)
    want = (steps * scale.reshape(spread)).astype(target)
    return same(f"{name} {axis} {target}", call_of(name, axis, target), [x, scale, zero], want)


NN: dict[str, Draw] = {
    "nn.attention": attention,
    "nn.attention_bias": attention,
    "nn.attention_var_len": attention_var_len,
    "nn.cross_entropy_with_logits": cross_entropy,
    "nn.nll_loss": nll_loss,
    "grad.nll_loss_backward": nll_loss,
    "nn.dropout": dropout,
    "nn.pixel_shuffle": pixel_shuffle,
    "nn.prelu": prelu,
    "quantize": quantize,
    "dequantize": dequantize,
}


@examples(3)
@given(one_of_each(NN))
def test_attention_losses_and_quantisation(drawn: list[Case]) -> None:
    check(drawn)
