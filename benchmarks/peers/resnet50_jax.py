"""ResNet-50 in plain JAX, in the form that XLA:CPU runs fastest: the compiler's peer.

Activations are NHWC and convolution weights HWIO; batch norm is folded into the weights once, in
:func:`from_torch`. A 1x1 convolution is a matrix product over pixels, which XLA:CPU runs faster
than the convolution. The parameters are arguments (a pytree), never constants.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

if TYPE_CHECKING:
    from examples.models.resnet50 import ResNet50

Params = dict[str, Any]
LAYOUT = ("NHWC", "HWIO", "NHWC")


def from_torch(module: ResNet50) -> Params:
    """Folded weights of ``examples.models.resnet50``, as numpy arrays.

    A convolution is ``{"w": HWIO, "b": (O,)}``, a 1x1 convolution ``{"w": (O, I), "b": (O,)}``.
    """
    blocks: list[list[Params]] = []
    for stage in module.layers:
        blocks.append([])
        for block in cast("Iterable[Any]", stage):
            convs = {
                "conv1": folded(block.conv1, block.bn1),
                "conv2": folded(block.conv2, block.bn2),
                "conv3": folded(block.conv3, block.bn3),
            }
            if block.downsample is not None:
                convs["downsample"] = folded(*block.downsample)
            blocks[-1].append(convs)
    return {
        "stem": folded(module.conv1, module.bn1),
        "stages": blocks,
        "head": {
            "w": np.ascontiguousarray(module.fc.weight.detach().numpy().T),
            "b": module.fc.bias.detach().numpy(),
        },
    }


def folded(conv: Any, norm: Any) -> Params:
    """A torch convolution and the batch norm behind it as one weight and bias.

    The factors are computed in float64, so that folding adds no error of its own.
    """
    gain, shift, mean, variance = (
        t.detach().double().numpy()
        for t in (norm.weight, norm.bias, norm.running_mean, norm.running_var)
    )
    scale = gain / np.sqrt(variance + norm.eps)
    weight = conv.weight.detach().double().numpy().transpose(2, 3, 1, 0) * scale
    if weight.shape[:2] == (1, 1):
        weight = weight[0, 0].T
    return {
        "w": np.ascontiguousarray(weight, dtype=np.float32),
        "b": (shift - mean * scale).astype(np.float32),
    }


def conv(x: jax.Array, p: Params, stride: int = 1) -> jax.Array:
    """Convolution whose padding keeps the size, and bias. (n, h, w, i) -> (n, h', w', o)"""
    pad = (p["w"].shape[0] - 1) // 2
    y = lax.conv_general_dilated(
        x, p["w"], (stride, stride), [(pad, pad), (pad, pad)], dimension_numbers=LAYOUT
    )
    return y + p["b"]


def pointwise(x: jax.Array, p: Params, stride: int = 1) -> jax.Array:
    """1x1 convolution and bias as a product of (pixels, i) and (o, i)."""
    if stride > 1:
        x = x[:, ::stride, ::stride]
    pixels = x.reshape(-1, x.shape[-1])
    y = lax.dot_general(pixels, p["w"], (((1,), (1,)), ((), ())))
    return (y + p["b"]).reshape(*x.shape[:-1], -1)


def maxpool(x: jax.Array) -> jax.Array:
    """3x3 maximum with stride 2 and padding 1, one axis after the other: a third of the work."""
    x = lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 3, 1, 1), (1, 2, 1, 1), ((0, 0), (1, 1), (0, 0), (0, 0))
    )
    return lax.reduce_window(
        x, -jnp.inf, lax.max, (1, 1, 3, 1), (1, 1, 2, 1), ((0, 0), (0, 0), (1, 1), (0, 0))
    )


def relu(x: jax.Array) -> jax.Array:
    return jnp.maximum(x, 0.0)


def bottleneck(x: jax.Array, p: Params, stride: int) -> jax.Array:
    y = relu(pointwise(x, p["conv1"]))
    y = relu(conv(y, p["conv2"], stride))
    y = pointwise(y, p["conv3"])
    shortcut = pointwise(x, p["downsample"], stride) if "downsample" in p else x
    return relu(y + shortcut)


def apply(params: Params, x: jax.Array) -> jax.Array:
    """x: (n, 3, h, w) float32, as the torch module takes it -> (n, classes) float32"""
    x = x.transpose(0, 2, 3, 1)
    x = maxpool(relu(conv(x, params["stem"], stride=2)))
    for number, blocks in enumerate(params["stages"]):
        for index, p in enumerate(blocks):
            x = bottleneck(x, p, stride=2 if number and index == 0 else 1)
    return lax.dot(x.mean((1, 2)), params["head"]["w"]) + params["head"]["b"]
