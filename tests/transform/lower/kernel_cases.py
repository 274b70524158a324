"""A call or several of each operator that has a loop-level form, with arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from relax2xla import op
from relax2xla.ir import const
from relax2xla.op import grad, image, nn
from relax2xla.transform.lower.te_forms.elementwise import BINARY, UNARY
from relax2xla.transform.lower.te_forms.reductions import OVER_AXES

SYMBOLIC: Final = 7
"""The size that is symbolic in the second run; cases without it run once."""

RNG = np.random.default_rng(0)


class Case(NamedTuple):
    """``call`` of variables for ``arrays``; several calls of an operator are told apart by text."""

    call: Callable[..., Any]
    arrays: Sequence[Any]
    tolerance: float = 2e-6


def f(*shape: int, dtype: str = "float32") -> Any:
    return RNG.uniform(-1, 1, shape).astype(dtype)


def i(high: int, *shape: int, dtype: str = "int64") -> Any:
    return RNG.integers(0, high, shape).astype(dtype)


# What some operators of one tensor take: numbers for which they are defined.
_ABOVE_ONE = ("acosh", "log", "rsqrt", "sqrt")
_BITS = ("bitwise_not",)
_TESTS = ("isfinite", "isinf", "isnan")
_TRUTH = ("logical_and", "logical_or", "logical_xor")
_INTS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")


def _unary() -> dict[str, list[Case]]:
    made: dict[str, list[Case]] = {}
    for name in UNARY:
        x = f(7, 3) + (2 if name in _ABOVE_ONE else 0)
        if name in _BITS:
            x = i(9, 7, 3)
        if name in _TESTS:
            x[0] = np.nan, np.inf, -np.inf
        if name == "logical_not":
            x = i(2, 7, 3).astype(bool)
        call = getattr(op, name)
        made[name] = [Case((lambda a: op.clip(a, -0.5, 0.25)) if name == "clip" else call, [x])]
    made["abs"].append(Case(op.abs, [i(9, 4, dtype="int32") - 4]))
    made["round"].append(Case(op.round, [np.array([-1.5, -0.5, 0.5, 1.5, 2.5], "float32")]))
    made["exp"].append(Case(op.exp, [f(5, dtype="float64")]))
    return made


def _binary() -> dict[str, list[Case]]:
    made: dict[str, list[Case]] = {}
    for name in BINARY:
        call = getattr(op, name)
        x, y = f(7, 3) + 2, f(3) + 2
        if name in _INTS:
            x, y = i(9, 7, 3), i(9, 3)
        if name in _TRUTH:
            x, y = i(2, 7, 3).astype(bool), i(2, 3).astype(bool)
        number = const(y[0])
        made[name] = [
            Case(call, [x, y]),
            Case(lambda a, call=call, n=number: call(a, n), [x]),
            Case(lambda a, call=call, n=number: call(n, a), [x]),
        ]
    for name in ("divide", "floor_divide", "floor_mod", "mod"):
        made[name].append(
            Case(getattr(op, name), [i(99, 9, dtype="int32") - 50, i(9, 9, dtype="int32") + 1])
        )
    return made


def _reductions() -> dict[str, list[Case]]:
    made: dict[str, list[Case]] = {}
    for name in OVER_AXES:
        call = getattr(op, name)
        axis: Any = 1 if name.startswith("arg") else [0, 2]
        made[name] = [
            Case(lambda a, call=call: call(a), [f(2, 7, 3)]),
            Case(lambda a, call=call, axis=axis: call(a, axis, True), [f(2, 7, 3)]),
        ]
    return made


X, W = f(2, 4, 6, 7), f(6, 4, 3, 3)
GAMMA, BETA = f(4), f(4)
STATS = [X, GAMMA, BETA, f(4), f(4) ** 2 + 0.5]
HEADS = [f(2, 5, 3, 4), f(2, 7, 3, 4), f(2, 7, 3, 6)]
PREDICTIONS, TARGETS = f(2, 3, 7), i(3, 2, 7)
POOLED: dict[str, Any] = {"pool_size": [3, 3], "strides": [2, 2], "padding": [1, 1]}

CASES: Final[dict[str, list[Case]]] = {
    **_unary(),
    **_binary(),
    **_reductions(),
    "erf": [Case(op.erf, [f(7, 3)]), Case(op.erf, [f(7, dtype="float16")], 1e-3)],
    "where": [Case(op.where, [i(2, 7, 1).astype(bool), f(3), f(7, 3)])],
    "astype": [
        Case(lambda x: op.astype(x, "int32"), [9 * f(7)]),
        Case(lambda x: op.add(x, op.astype(const(2, "int32"), "float32")), [f(7)]),
    ],
    # activations
    "nn.relu": [Case(nn.relu, [f(7, 3)])],
    "nn.leakyrelu": [Case(lambda x: nn.leakyrelu(x, 0.1), [f(7, 3)])],
    "nn.prelu": [Case(nn.prelu, [f(2, 7, 3), f(7)])],
    "nn.softplus": [Case(lambda x: nn.softplus(x, 2.0, 1.0), [f(7, 3)])],
    "nn.softmax": [Case(lambda x: nn.softmax(x, 0), [f(7, 3)])],
    "nn.log_softmax": [Case(lambda x: nn.log_softmax(x, -1), [f(3, 7)])],
    "nn.gelu": [Case(nn.gelu, [f(7, 3)]), Case(nn.gelu, [f(7, dtype="float16")], 2e-3)],
    "nn.gelu_tanh": [Case(nn.gelu_tanh, [f(7, 3)])],
    "nn.selu": [Case(nn.selu, [f(7, 3)])],
    "nn.silu": [Case(nn.silu, [f(7, 3)])],
    # made of nothing
    "full": [
        Case(lambda x: op.full(x.struct_info.shape, const(3.5, "float32"), "int32"), [f(7, 2)]),
        Case(lambda x, v: op.full(x.struct_info.shape, v), [f(7, 2), f()]),
    ],
    "full_like": [Case(lambda x: op.full_like(x, const(2.0, "float32")), [f(7, 2)])],
    "ones": [Case(lambda x: op.ones(x.struct_info.shape, "float32"), [f(7, 2)])],
    "ones_like": [Case(op.ones_like, [i(9, 7, 2)])],
    "zeros": [Case(lambda x: op.zeros(x.struct_info.shape, "int8"), [f(7, 2)])],
    "zeros_like": [Case(op.zeros_like, [f(7, 2)])],
    "eye": [
        Case(lambda x: op.add(x, op.eye(4, dtype="float32")), [f(4, 4)]),
        Case(lambda x: op.add(x, op.eye(3, 4, -1, dtype="float32")), [f(3, 4)]),
    ],
    "eye_like": [Case(lambda x: op.eye_like(x, 1), [f(7, 4)])],
    "arange": [
        Case(lambda x: op.add(x, op.arange(1, 9, 2, "float32")), [f(4)]),
        Case(lambda x: op.arange(0, x.struct_info.shape.values[0], 1, "int64"), [f(7)]),
    ],
    "tril": [Case(lambda x: op.tril(x, 1), [f(2, 7, 4)])],
    "triu": [Case(lambda x: op.triu(x, -1), [f(2, 7, 4)])],
    # losses, gradients
    "nn.cross_entropy_with_logits": [
        Case(nn.cross_entropy_with_logits, [f(7, 3), f(7, 3)]),
        Case(nn.cross_entropy_with_logits, [f(3), f(3)]),
    ],
    "nn.nll_loss": [
        Case(lambda p, t, w: nn.nll_loss(p, t, w, "mean", 1), [PREDICTIONS, TARGETS, f(3) + 2]),
        Case(lambda p, t: nn.nll_loss(p, t, reduction="none"), [PREDICTIONS, TARGETS]),
        Case(lambda p, t: nn.nll_loss(p, t, reduction="sum"), [f(3), i(3)]),
    ],
    "grad.nll_loss_backward": [
        Case(
            lambda g, p, t, w: grad.nll_loss_backward(g, p, t, w, "mean", 1),
            [f(), PREDICTIONS, TARGETS, f(3) + 2],
        ),
        Case(
            lambda g, p, t: grad.nll_loss_backward(g, p, t, reduction="none", ignore_index=-1),
            [f(2, 7), PREDICTIONS, TARGETS - 1],
        ),
        Case(lambda g, p, t: grad.nll_loss_backward(g, p, t), [f(), f(3), i(3)]),
    ],
    "grad.max_pool2d_backward": [
        Case(lambda g, x: grad.max_pool2d_backward(g, x, **POOLED), [f(2, 4, 3, 4), X]),
        Case(
            lambda g, x: grad.max_pool2d_backward(g, x, [3, 2], [2, 1], layout="NHWC"),
            [f(2, 2, 6, 3), f(2, 6, 7, 3)],
        ),
    ],
    "grad.avg_pool2d_backward": [
        Case(lambda g, x: grad.avg_pool2d_backward(g, x, **POOLED), [f(2, 4, 3, 4), X]),
        Case(
            lambda g, x: grad.avg_pool2d_backward(g, x, count_include_pad=True, **POOLED),
            [f(2, 4, 3, 4), X],
        ),
    ],
    "grad.take_backward": [
        Case(
            lambda g, x, n: grad.take_backward(g, x, n, 1),
            [f(7, 5, 2), f(7, 3, 2), i(3, 5, dtype="int32")],
        ),
        Case(grad.take_backward, [f(5), f(7), i(7, 5)]),
    ],
    "grad.no_grad": [Case(grad.no_grad, [f(7)])],
    "grad.start_checkpoint": [Case(grad.start_checkpoint, [f(7)])],
    "grad.end_checkpoint": [Case(grad.end_checkpoint, [f(7)])],
    # images
    "image.resize2d": [
        Case(lambda x: image.resize2d(x, (5, 9)), [f(1, 2, 4, 6)]),
        Case(
            lambda x: image.resize2d(
                x, (3, 8), method="nearest_neighbor", coordinate_transformation_mode="asymmetric"
            ),
            [f(7, 2, 4, 6)],
        ),
        Case(
            lambda x: image.resize2d(
                x,
                (3, 8),
                layout="NHWC",
                method="cubic",
                coordinate_transformation_mode="align_corners",
            ),
            [f(1, 4, 6, 2)],
            1e-5,
        ),
    ],
    "image.resize3d": [Case(lambda x: image.resize3d(x, (3, 4, 5)), [f(1, 2, 2, 3, 4)])],
    # places
    "take": [
        Case(lambda x, n: op.take(x, n, 1), [f(7, 4, 2), i(4, 3)]),
        Case(lambda x, n: op.take(x, n, 0, mode="clip"), [f(4, 7), i(9, 3) - 2]),
    ],
    "gather_elements": [Case(lambda x, n: op.gather_elements(x, n, 1), [f(7, 4), i(4, 7, 2)])],
    "gather_nd": [
        Case(op.gather_nd, [f(4, 3, 7), i(3, 5, 2)]),
        Case(lambda x, n: op.gather_nd(x, n, 1), [f(7, 3, 2), i(3, 7, 1)]),
    ],
    "scatter_elements": [
        Case(
            lambda x, n, u: op.scatter_elements(x, n, u, 1, "add"), [f(7, 4), i(4, 7, 3), f(7, 3)]
        ),
        Case(op.scatter_elements, [f(4, 2), np.array([[3, 0], [1, 2]]), f(2, 2)]),
    ],
    "scatter_nd": [
        Case(op.scatter_nd, [f(7, 3), np.array([[3], [1]]), f(2, 3)]),
        Case(lambda x, n, u: op.scatter_nd(x, n, u, "max"), [f(4, 3), i(3, 7, 2), f(7)]),
    ],
    "one_hot": [Case(lambda n: op.one_hot(n, 2, -1, 5, 0), [i(5, 7)])],
    "strided_slice": [
        Case(lambda x: op.strided_slice(x, [0, 1], [1, 7], [9, 0], [2, -3]), [f(5, 8)]),
        Case(lambda x: op.strided_slice(x, [1], [1], [3]), [f(7, 4)]),
    ],
    "index_tensor": [
        Case(lambda x, a, b: op.index_tensor(x, [a, b]), [f(3, 4, 7), i(3, 2, 1), i(4, 5)])
    ],
    # the same elements
    "layout_transform": [
        Case(
            lambda x: op.layout_transform(x, lambda a, b, c: (a, c, b // 3, b % 3), pad_value=2.0),
            [f(2, 8, 4)],
        ),
        Case(lambda x: op.layout_transform(x, lambda a, b: (b // 4, a, b % 4)), [f(7, 8)]),
    ],
    "broadcast_to": [Case(lambda x: op.broadcast_to(x, [2, *_dims(x)[:1], 3]), [f(7, 1)])],
    "collapse_sum_to": [Case(lambda x: op.collapse_sum_to(x, [_dims(x)[1], 1]), [f(2, 7, 3)])],
    "collapse_sum_like": [Case(op.collapse_sum_like, [f(2, 7, 3), f(7, 1)])],
    "reshape": [Case(lambda x: op.reshape(x, [2, 6, _dims(x)[0]]), [f(7, 12)])],
    "flatten": [Case(op.flatten, [f(7, 3, 2)])],
    "concat": [Case(lambda *xs: op.concat(xs, 1), [f(2, 7), f(2, 3), f(2, 1)])],
    "stack": [Case(lambda *xs: op.stack(xs, 1), [f(2, 7), f(2, 7)])],
    "expand_dims": [Case(lambda x: op.expand_dims(x, [-1, 0]), [f(7, 3)])],
    "permute_dims": [
        Case(lambda x: op.permute_dims(x, [1, 2, 0]), [f(7, 3, 2)]),
        Case(op.permute_dims, [f(7, 3)]),
    ],
    "squeeze": [Case(lambda x: op.squeeze(x, [-1]), [f(7, 1)]), Case(op.squeeze, [f(1, 3, 1)])],
    "split": [
        Case(lambda x: op.split(x, 3, 1), [f(7, 6)]),
        Case(lambda x: op.split(x, [2, 3], 1), [f(7, 6)]),
    ],
    "repeat": [
        Case(lambda x: op.repeat(x, 2, 1), [f(7, 3)]),
        Case(lambda x: op.repeat(x, 3), [f(2, 3)]),
    ],
    "tile": [Case(lambda x: op.tile(x, [2, 1, 3]), [f(7, 3)])],
    "flip": [Case(lambda x: op.flip(x, 1), [f(2, 7)])],
    # norms
    "nn.batch_norm": [
        Case(lambda *a: nn.batch_norm(*a, axis=1, training=False), STATS),
        Case(lambda *a: nn.batch_norm(*a, axis=1, training=True, momentum=0.25), STATS),
    ],
    "nn.layer_norm": [Case(lambda *a: nn.layer_norm(*a, axes=[-1]), [f(7, 2, 4), GAMMA, BETA])],
    "nn.group_norm": [
        Case(
            lambda *a: nn.group_norm(*a, num_groups=2, channel_axis=1, axes=[2, 3]),
            [X, GAMMA, BETA],
        )
    ],
    "nn.rms_norm": [Case(lambda x, w: nn.rms_norm(x, w, axes=[-1]), [f(7, 4), GAMMA])],
    "nn.attention": [
        Case(nn.attention, HEADS),
        Case(lambda *a: nn.attention(*a, scale=0.5, causal_mask="TopLeft"), HEADS),
        Case(lambda *a: nn.attention(*a, causal_mask="BottomRight"), HEADS),
        Case(
            lambda *a: nn.attention(*a, causal_mask="BottomRight"),
            [f(1, 7, 2, 4), f(1, 5, 2, 4), f(1, 5, 2, 4)],
        ),
    ],
    "nn.attention_bias": [Case(nn.attention, [*HEADS, f(2, 3, 5, 7)])],
    # products
    "matmul": [
        Case(op.matmul, [f(7, 1, 2, 3), f(4, 3, 5)]),
        Case(op.matmul, [f(3), f(2, 3, 7)]),
        Case(op.matmul, [f(7, 3), f(3)]),
        Case(op.matmul, [f(3), f(3)]),
        Case(
            lambda a, b: op.matmul(a, b, "float32"),
            [f(7, 3, dtype="float16"), f(3, 2, dtype="float16")],
        ),
    ],
    "einsum": [Case(lambda a, b: op.einsum([a, b], "ij,jk->ki"), [f(7, 3), f(3, 4)])],
    # integers of 8 bits
    "quantize": [
        Case(
            lambda x, s, z: op.quantize(x, s, z, axis=1),
            [50 * f(7, 3), f(3) + 2, i(5, 3, dtype="int8")],
        ),
        Case(
            lambda x: op.quantize(x, const(0.5, "float32"), const(3, "int8"), 0, "uint8"),
            [99 * f(7, 3)],
        ),
    ],
    "dequantize": [
        Case(
            lambda x, s, z: op.dequantize(x, s, z, axis=1),
            [i(99, 7, 3, dtype="int8"), f(3), i(5, 3, dtype="int8")],
        ),
    ],
    # windows
    "nn.conv1d": [
        Case(lambda x, w: nn.conv1d(x, w, 2, 1), [f(2, 4, 7), f(6, 4, 3)]),
        Case(
            lambda x, w: nn.conv1d(x, w, data_layout="NWC", groups=2, kernel_layout="WIO"),
            [f(2, 7, 4), f(3, 2, 6)],
        ),
    ],
    "nn.conv2d": [
        Case(lambda x, w: nn.conv2d(x, w, [2, 1], [1, 0, 2, 1], [1, 2]), [X, W]),
        Case(lambda x, w: nn.conv2d(x, w, groups=2), [X, f(6, 2, 3, 3)]),
        Case(
            lambda x, w: nn.conv2d(x, w, data_layout="NHWC", kernel_layout="HWIO"),
            [f(2, 7, 6, 4), f(3, 3, 4, 5)],
        ),
    ],
    "nn.conv3d": [
        Case(lambda x, w: nn.conv3d(x, w, padding=1), [f(1, 2, 3, 4, 7), f(3, 2, 2, 3, 1)])
    ],
    "nn.conv1d_transpose": [
        Case(lambda x, w: nn.conv1d_transpose(x, w, 2, 1, 1, groups=2), [f(2, 4, 7), f(4, 3, 3)])
    ],
    "nn.conv2d_transpose": [
        Case(lambda x, w: nn.conv2d_transpose(x, w, [2, 3], [1, 0]), [f(1, 2, 3, 7), f(2, 3, 3, 2)])
    ],
    "nn.conv3d_transpose": [
        Case(
            lambda x, w: nn.conv3d_transpose(x, w, [1, 2, 1]), [f(1, 2, 3, 3, 4), f(2, 3, 2, 2, 2)]
        )
    ],
    "nn.max_pool1d": [Case(lambda x: nn.max_pool1d(x, 3, 2, 1), [f(2, 4, 7)])],
    "nn.avg_pool1d": [Case(lambda x: nn.avg_pool1d(x, 3, 2, 1), [f(2, 4, 7)])],
    "nn.max_pool2d": [
        Case(lambda x: nn.max_pool2d(x, **POOLED, ceil_mode=True), [X]),
        Case(lambda x: nn.max_pool2d(x, [2, 2], dilation=[2, 2], layout="NHWC"), [f(7, 5, 6, 2)]),
    ],
    "nn.avg_pool2d": [
        Case(lambda x: nn.avg_pool2d(x, **POOLED), [X]),
        Case(lambda x: nn.avg_pool2d(x, **POOLED, count_include_pad=True, ceil_mode=True), [X]),
    ],
    "nn.max_pool3d": [Case(lambda x: nn.max_pool3d(x, 2, 2), [f(1, 2, 4, 4, 7)])],
    "nn.avg_pool3d": [Case(lambda x: nn.avg_pool3d(x, 2, 2, 1), [f(1, 2, 4, 4, 7)])],
    "nn.adaptive_avg_pool1d": [Case(lambda x: nn.adaptive_avg_pool1d(x, 3), [f(2, 4, 7)])],
    "nn.adaptive_avg_pool2d": [
        Case(lambda x: nn.adaptive_avg_pool2d(x, [3, 4]), [X]),
        Case(nn.adaptive_avg_pool2d, [X]),
        Case(lambda x: nn.adaptive_avg_pool2d(x, [1, 1]), [X]),
    ],
    "nn.adaptive_avg_pool3d": [
        Case(lambda x: nn.adaptive_avg_pool3d(x, [2, 2, 3]), [f(1, 2, 4, 5, 7)])
    ],
    "nn.pad": [
        Case(lambda x: nn.pad(x, [1, 2, 0, 3], pad_value=2.5), [f(7, 3)]),
        Case(lambda x: nn.pad(x, [1, 2, 0, 1], "reflect"), [f(5, 3)]),
    ],
}


def _dims(x: Any) -> Any:
    return x.struct_info.shape.values
