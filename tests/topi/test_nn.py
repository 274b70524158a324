"""Functions of neural networks, images and products of tensors against torch and numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import te, topi
from tests.topi.harness import Case, check

RNG = np.random.default_rng(0)


def random(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def by_torch(func: Callable[..., Any], *args: np.ndarray) -> Any:
    """What torch computes of arrays."""
    return func(*map(torch.from_numpy, args)).numpy()


X, W, BIAS = random(4, 7), random(5, 7), random(5)
V, U = random(2, 4, 7), random(2, 5, 7)
ROWS, ONE, SQUARE = random(4, 3), random(1, 4, 5), random(2, 3, 3)
HALF = X.astype(np.float16)
SCALE, SHIFT = random(7), random(7)
CHANNELS = random(2, 6, 4, 7)
BY, TO = random(6), random(6)
MEAN, VARIANCE = random(6), random(6) ** 2 + 0.5
STATS = [BY, TO, MEAN, VARIANCE]


def rms(x: np.ndarray) -> np.ndarray:
    wide = x.astype(np.float32)
    root = np.sqrt((wide * wide).mean(1, keepdims=True) + np.float32(1e-5))
    return (wide / root * SCALE).astype(x.dtype)


def batch(training: bool) -> list[np.ndarray]:
    mean, variance = (torch.from_numpy(a.copy()) for a in (MEAN, VARIANCE))
    by, to = torch.from_numpy(BY), torch.from_numpy(TO)
    out = F.batch_norm(torch.from_numpy(CHANNELS), mean, variance, by, to, training, 0.1)
    moved = [MEAN, VARIANCE]
    if training:  # torch moves to the unbiased variance, Relax to the biased one
        kept = [0.9 * a for a in moved]
        over = (0, 2, 3)
        moved = [kept[0] + 0.1 * CHANNELS.mean(over), kept[1] + 0.1 * CHANNELS.var(over)]
    return [out.numpy(), *(m.astype("f4") for m in moved)]


def pooled(kind: str, **options: bool) -> tuple[np.ndarray, np.ndarray]:
    """Some gradient of windows of PLANE, and what torch makes of it."""
    x = torch.from_numpy(PLANE).requires_grad_()
    pool = F.max_pool2d if kind == "max" else F.avg_pool2d
    made = pool(x, 3, 2, (1, 0), **options)
    grad = torch.linspace(-1, 1, made.numel()).reshape(made.shape)
    made.backward(grad)
    assert x.grad is not None
    return grad.numpy(), x.grad.numpy()


def mirrored(mode: str) -> np.ndarray:
    widths = [(2, 1), (0, 3)]
    return np.pad(X, widths, "symmetric" if mode == "SYMMETRIC" else "reflect")


LABELS = np.array([2, 0, 1, 2])
SCORES, LOSSES = random(4, 3), random(3) ** 2
NORMS = [
    Case("relu", topi.nn.relu, [X], np.maximum(X, 0)),
    Case(
        "leaky", lambda x: topi.nn.leaky_relu(x, 0.1), [X], np.where(X > 0, X, X * np.float32(0.1))
    ),
    Case("prelu", topi.nn.prelu, [X, SCALE], np.where(X > 0, X, X * SCALE)),
    Case("softplus", topi.nn.softplus, [X], by_torch(F.softplus, X)),
    Case("softmax", topi.nn.softmax, [V], by_torch(lambda v: F.softmax(v, -1), V)),
    Case(
        "softmax_middle",
        lambda v: topi.nn.softmax(v, 1),
        [V],
        by_torch(lambda v: F.softmax(v, 1), V),
    ),
    Case(
        "fast_softmax",
        lambda v: topi.nn.fast_softmax(v, 1),
        [V],
        by_torch(lambda v: F.softmax(v, 1), V),
    ),
    Case("log_softmax", topi.nn.log_softmax, [V], by_torch(lambda v: F.log_softmax(v, -1), V)),
    Case(
        "pad",
        lambda x: topi.nn.pad(x, (1, 0), (0, 2), 3.0),
        [X],
        np.pad(X, [(1, 0), (0, 2)], constant_values=3),
    ),
    *(
        Case(
            f"pad_{m}",
            lambda x, m=m: topi.nn.mirror_pad(x, (2, 0), (1, 3), m),
            [X],
            mirrored(m),
        )
        for m in ("SYMMETRIC", "REFLECT")
    ),
    Case(
        "layer_norm",
        lambda x, g, b: topi.nn.layer_norm(x, g, b, [1]),
        [X, SCALE, SHIFT],
        by_torch(lambda x, g, b: F.layer_norm(x, (7,), g, b), X, SCALE, SHIFT),
    ),
    Case(
        "layer_norm_two",
        lambda v, g: topi.nn.layer_norm(v, g, None, [1, 2]),
        [V, X],
        by_torch(lambda v, g: F.layer_norm(v, (4, 7), g), V, X),
    ),
    Case(
        "layer_norm_half",
        lambda x: topi.nn.layer_norm(x, None, None, -1),
        [HALF],
        by_torch(lambda x: F.layer_norm(x, (7,)), X).astype("f2"),
        2e-3,
    ),
    Case(
        "instance_norm",
        lambda v, g, b: topi.nn.instance_norm(v, g, b, [1, 2]),
        [V, X, X],
        by_torch(lambda v, g: F.layer_norm(v, (4, 7), g, g), V, X),
    ),
    Case("rms_norm", lambda x, w: topi.nn.rms_norm(x, w, [1]), [X, SCALE], rms(X)),
    Case(
        "rms_norm_half",
        lambda x, w: topi.nn.rms_norm(x, w, [1]),
        [HALF, SCALE.astype("f2")],
        rms(HALF),
        2e-3,
    ),
    Case(
        "group_norm",
        lambda x, g, b: topi.nn.group_norm(x, g, b, 3, 1, [2, 3]),
        [CHANNELS, BY, TO],
        by_torch(lambda x, g, b: F.group_norm(x, 3, g, b), CHANNELS, BY, TO),
    ),
    Case(
        "lrn",
        lambda x: topi.nn.lrn(x, 5, 1, 0.5, 0.6, 1.5),
        [CHANNELS],
        by_torch(lambda x: F.local_response_norm(x, 5, 0.5, 0.6, 1.5), CHANNELS),
    ),
    Case(
        "lrn_channels_last",
        lambda x: topi.nn.lrn(x, 3, 3),
        [CHANNELS],
        by_torch(
            lambda x: F.local_response_norm(x.permute(0, 3, 1, 2), 3, 1e-4, 0.75, 2).permute(
                0, 2, 3, 1
            ),
            CHANNELS,
        ),
    ),
    Case("batch_norm", topi.nn.batch_norm, [CHANNELS, *STATS], batch(False)),
    Case(
        "batch_norm_training",
        lambda *a: topi.nn.batch_norm(*a, training=True),
        [CHANNELS, *STATS],
        batch(True),
        1e-4,
    ),
    *(
        Case(
            f"nll_{r}",
            lambda p, t, w, r=r: topi.nn.nll_loss(p, t, w, r, 1),
            [SCORES, LABELS, LOSSES],
            by_torch(
                lambda p, t, w, r=r: F.nll_loss(p, t, w, reduction=r, ignore_index=1),
                SCORES,
                LABELS,
                LOSSES,
            ),
        )
        for r in ("none", "sum", "mean")
    ),
]

PRODUCTS = [
    Case("matmul", lambda x, w: topi.matmul(x, w, False, True), [X, W], X @ W.T),
    Case("matmul_front", lambda x, w: topi.matmul(x, w, True, False), [X, ROWS], X.T @ ROWS),
    Case(
        "tensordot",
        lambda v, x: topi.tensordot(v, x, 2),
        [V, X.reshape(4, 7)],
        np.tensordot(V, X, 2),
    ),
    Case(
        "tensordot_axes",
        lambda v, w: topi.tensordot(v, w, ([2], [1])),
        [V, W],
        np.tensordot(V, W, ([2], [1])),
    ),
    Case(
        "einsum",
        lambda v, u: topi.einsum("bik,bjk->bij", v, u),
        [V, U],
        np.einsum("bik,bjk->bij", V, U),
    ),
    Case("einsum_diagonal", lambda v: topi.einsum("bii", v), [SQUARE], np.einsum("bii", SQUARE)),
    Case("dense", topi.nn.dense, [X, W, BIAS], X @ W.T + BIAS),
    Case("nn_matmul", lambda v, w: topi.nn.matmul(v, w, None, None, False, True), [V, W], V @ W.T),
    Case(
        "nn_matmul_wide",
        lambda x, w: topi.nn.dense(x, w, None, "float32"),
        [HALF, W.astype("f2")],
        HALF.astype("f4") @ W.T.astype("f2").astype("f4"),
    ),
    Case("batch_matmul", topi.nn.batch_matmul, [V, U], V @ U.transpose(0, 2, 1)),
    Case(
        "batch_matmul_one",
        lambda v, u: topi.nn.batch_matmul(v, u, None, None, True, False),
        [V, ONE],
        V.transpose(0, 2, 1) @ ONE,
    ),
]
LINE, PLANE, SPACE = random(2, 4, 7), random(2, 4, 7, 6), random(1, 2, 5, 4, 7)
K1, K2, K3 = random(6, 4, 3), random(6, 4, 3, 2), random(3, 2, 2, 3, 2)
GROUPED, EACH = random(6, 2, 3, 3), random(4, 2, 3, 3)
T1, T2, T3 = random(4, 3, 3), random(4, 3, 3, 2), random(2, 3, 2, 2, 2)


def last(x: np.ndarray) -> np.ndarray:
    """Channels last."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1))


def last_kernel(x: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(x, (0, 1), (-1, -2)))


CONV2 = by_torch(lambda x, k: F.conv2d(x, k, None, 2, 1, (1, 2)), PLANE, K2)
GROUP2 = by_torch(lambda x, k: F.conv2d(x, k, None, 1, 1, 1, 2), PLANE, GROUPED)
DEPTH2 = by_torch(lambda x, k: F.conv2d(x, k.reshape(8, 1, 3, 3), None, 1, 1, 1, 4), PLANE, EACH)
CONVOLUTIONS = [
    Case(
        "conv1d",
        lambda x, k: topi.nn.conv1d(x, k, 2, 1),
        [LINE, K1],
        by_torch(lambda x, k: F.conv1d(x, k, None, 2, 1), LINE, K1),
    ),
    Case(
        "conv1d_last",
        lambda x, k: topi.nn.conv1d(x, k, 1, 1, 2, data_layout="NWC"),
        [last(LINE), last_kernel(K1)],
        last(by_torch(lambda x, k: F.conv1d(x, k, None, 1, 1, 2), LINE, K1)),
    ),
    Case("conv2d", lambda x, k: topi.nn.conv2d(x, k, 2, 1, (1, 2)), [PLANE, K2], CONV2),
    Case(
        "conv2d_nchw",
        lambda x, k: topi.nn.conv2d_nchw(x, k, 2, (1, 1, 1, 1), (1, 2)),
        [PLANE, K2],
        CONV2,
    ),
    Case(
        "conv2d_last",
        lambda x, k: topi.nn.conv2d(x, k, 2, 1, (1, 2), "NHWC", "OHWI"),
        [last(PLANE), last(K2)],
        last(CONV2),
    ),
    Case(
        "conv2d_nhwc",
        lambda x, k: topi.nn.conv2d_nhwc(x, k, 2, 1, (1, 2)),
        [last(PLANE), last_kernel(K2)],
        last(CONV2),
    ),
    Case(
        "conv2d_same",
        lambda x, k: topi.nn.conv2d(x, k, 1, "SAME", 1),
        [PLANE, GROUPED.repeat(2, 1)],
        by_torch(lambda x, k: F.conv2d(x, k, None, 1, 1), PLANE, GROUPED.repeat(2, 1)),
    ),
    Case(
        "group_conv2d",
        lambda x, k: topi.nn.group_conv2d_nchw(x, k, 1, 1, 1, 2),
        [PLANE, GROUPED],
        GROUP2,
    ),
    Case(
        "group_conv2d_last",
        lambda x, k: topi.nn.group_conv2d_nhwc(x, k, 1, 1, 1, 2),
        [last(PLANE), last_kernel(GROUPED)],
        last(GROUP2),
    ),
    Case(
        "conv3d",
        lambda x, k: topi.nn.conv3d_ncdhw(x, k, 1, 1, 1, 1),
        [SPACE, K3],
        by_torch(lambda x, k: F.conv3d(x, k, None, 1, 1), SPACE, K3),
    ),
    Case(
        "conv3d_last",
        lambda x, k: topi.nn.conv3d_ndhwc(x, k, 1, 1, 1, 1),
        [last(SPACE), last_kernel(K3)],
        last(by_torch(lambda x, k: F.conv3d(x, k, None, 1, 1), SPACE, K3)),
    ),
    Case(
        "depthwise",
        lambda x, k: topi.nn.depthwise_conv2d_nchw(x, k, 1, 1, 1),
        [PLANE, EACH],
        DEPTH2,
    ),
    Case(
        "depthwise_last",
        lambda x, k: topi.nn.depthwise_conv2d_nhwc(x, k, 1, 1, 1),
        [last(PLANE), np.ascontiguousarray(EACH.transpose(2, 3, 0, 1))],
        last(DEPTH2),
    ),
    Case(
        "transpose1d",
        lambda x, k: topi.nn.conv1d_transpose_ncw(x, k, 2, 1, None, 1),
        [LINE, T1],
        by_torch(lambda x, k: F.conv_transpose1d(x, k, None, 2, 1, 1), LINE, T1),
    ),
    Case(
        "transpose2d",
        lambda x, k: topi.nn.conv2d_transpose_nchw(x, k, (2, 3), (1, 0), "float32", (1, 2)),
        [PLANE, T2],
        by_torch(lambda x, k: F.conv_transpose2d(x, k, None, (2, 3), (1, 0), (1, 2)), PLANE, T2),
    ),
    Case(
        "transpose2d_groups",
        lambda x, k: topi.nn.group_conv2d_transpose_nchw(x, k, 2, 1, "float32", 0, 2),
        [PLANE, T2],
        by_torch(lambda x, k: F.conv_transpose2d(x, k, None, 2, 1, 0, 2), PLANE, T2),
    ),
    Case(
        "transpose3d",
        lambda x, k: topi.nn.conv3d_transpose_ncdhw(x, k, 2, 0, "float32", 0),
        [SPACE, T3],
        by_torch(lambda x, k: F.conv_transpose3d(x, k, None, 2), SPACE, T3),
    ),
    Case(
        "dilate",
        lambda x: topi.nn.dilate(x, [1, 1, 3]),
        [LINE],
        np.stack([LINE, 0 * LINE, 0 * LINE], -1).reshape(2, 4, 21)[..., :19],
    ),
]

BOX = [1, 1, 1, 1]
WINDOWS = [
    Case(
        "max1d",
        lambda x: topi.nn.pool1d(x, 3, 2, 1, (1, 1), "max"),
        [LINE],
        by_torch(lambda x: F.max_pool1d(x, 3, 2, 1), LINE),
    ),
    Case(
        "max2d",
        lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max"),
        [PLANE],
        by_torch(lambda x: F.max_pool2d(x, 2), PLANE),
    ),
    Case(
        "max2d_dilated",
        lambda x: topi.nn.pool2d(x, (2, 2), (2, 1), (2, 2), BOX, "max"),
        [PLANE],
        by_torch(lambda x: F.max_pool2d(x, 2, (2, 1), 1, 2), PLANE),
    ),
    Case(
        "max2d_ceil",
        lambda x: topi.nn.pool2d(x, 3, 2, 1, BOX, "max", True),
        [PLANE],
        by_torch(lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), PLANE),
    ),
    Case(
        "max2d_last",
        lambda x: topi.nn.pool2d(x, 2, 2, 1, (0, 0, 0, 0), "max", layout="NHWC"),
        [last(PLANE)],
        last(by_torch(lambda x: F.max_pool2d(x, 2), PLANE)),
    ),
    Case(
        "max3d",
        lambda x: topi.nn.pool3d(x, 2, 2, 1, [0] * 6, "max"),
        [SPACE],
        by_torch(lambda x: F.max_pool3d(x, 2), SPACE),
    ),
    Case(
        "avg2d",
        lambda x: topi.nn.pool2d(x, 3, 2, 1, BOX, "avg"),
        [PLANE],
        by_torch(lambda x: F.avg_pool2d(x, 3, 2, 1), PLANE),
    ),
    Case(
        "avg2d_inside",
        lambda x: topi.nn.pool2d(x, 3, 2, 1, BOX, "avg", count_include_pad=False),
        [PLANE],
        by_torch(lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), PLANE),
    ),
    Case(
        "avg2d_ceil",
        lambda x: topi.nn.pool2d(x, 3, 2, 1, BOX, "avg", True),
        [PLANE],
        by_torch(lambda x: F.avg_pool2d(x, 3, 2, 1, True), PLANE),
    ),
    Case(
        "avg1d",
        lambda x: topi.nn.pool1d(x, 2, 2, 1, (0, 0), "avg"),
        [LINE],
        by_torch(lambda x: F.avg_pool1d(x, 2), LINE),
    ),
    *(
        Case(
            f"grad_{kind}_{name}",
            lambda g, x, kind=kind, kwargs=kwargs: topi.nn.pool_grad(
                g, x, 3, 2, (1, 0, 1, 0), kind, **kwargs
            ),
            [pooled(kind, **kwargs)[0], PLANE],
            pooled(kind, **kwargs)[1],
        )
        for kind, name, kwargs in (
            ("max", "plain", {}),
            ("max", "ceil", {"ceil_mode": True}),
            ("avg", "padded", {}),
            ("avg", "own", {"count_include_pad": False}),
        )
    ),
    Case(
        "adaptive_even",
        lambda x: topi.nn.adaptive_pool(x, (1, 3), "avg"),
        [PLANE],
        by_torch(lambda x: F.adaptive_avg_pool2d(x, (1, 3)), PLANE),
    ),
    Case(
        "adaptive_avg",
        lambda x: topi.nn.adaptive_pool(x, (3, 4), "avg"),
        [PLANE],
        by_torch(lambda x: F.adaptive_avg_pool2d(x, (3, 4)), PLANE),
    ),
    Case(
        "adaptive_max",
        lambda x: topi.nn.adaptive_pool(x, (3, 4), "max"),
        [PLANE],
        by_torch(lambda x: F.adaptive_max_pool2d(x, (3, 4)), PLANE),
    ),
    Case(
        "adaptive1d",
        lambda x: topi.nn.adaptive_pool1d(x, 2, "avg"),
        [LINE],
        by_torch(lambda x: F.adaptive_avg_pool1d(x, 2), LINE),
    ),
    Case(
        "adaptive3d",
        lambda x: topi.nn.adaptive_pool3d(x, (2, 2, 1), "avg"),
        [SPACE],
        by_torch(lambda x: F.adaptive_avg_pool3d(x, (2, 2, 1)), SPACE),
    ),
    Case(
        "global",
        lambda x: topi.nn.global_pool(x, "avg"),
        [PLANE],
        PLANE.mean((2, 3), keepdims=True),
    ),
]

SMALL, DEEP, FOUR = random(1, 2, 7, 5), random(2, 8, 2, 3), random(2, 4, 3, 2)


def resized(size: Any, method: str, mode: str, want: Callable[..., Any], **kwargs: Any) -> Case:
    return Case(
        f"resize_{method}_{mode}_{len(kwargs)}",
        lambda x: topi.image.resize2d(x, (), size, "NCHW", method, mode, **kwargs),
        [SMALL],
        by_torch(want, SMALL),
        1e-4,
    )


def interpolated(size: Any, mode: str, corners: bool | None = False) -> Callable[..., Any]:
    return lambda x: F.interpolate(x, size, mode=mode, align_corners=corners)


BLOCKS = DEEP.reshape(2, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 4, 6)
IMAGES = [
    resized((9, 4), "linear", "half_pixel", interpolated((9, 4), "bilinear")),
    resized((9, 4), "linear", "align_corners", interpolated((9, 4), "bilinear", True)),
    resized((9, 10), "cubic", "half_pixel", interpolated((9, 10), "bicubic"), bicubic_alpha=-0.75),
    resized(
        (14, 10),
        "nearest_neighbor",
        "asymmetric",
        interpolated((14, 10), "nearest", None),
        rounding_method="floor",
    ),
    Case(
        "resize1d",
        lambda x: topi.image.resize1d(x, (), (9,)),
        [LINE],
        by_torch(interpolated(9, "linear"), LINE),
        1e-4,
    ),
    Case(
        "resize3d",
        lambda x: topi.image.resize3d(x, (), (4, 6, 8)),
        [SPACE],
        by_torch(interpolated((4, 6, 8), "trilinear"), SPACE),
        1e-4,
    ),
    Case(
        "upsampling",
        lambda x: topi.nn.upsampling(x, 2, 3),
        [SMALL],
        by_torch(interpolated((14, 15), "nearest", None), SMALL),
    ),
    Case(
        "upsampling_linear",
        lambda x: topi.nn.upsampling(x, 2, 2, method="bilinear", align_corners=True),
        [SMALL],
        by_torch(interpolated((14, 10), "bilinear", True), SMALL),
        1e-4,
    ),
    Case("depth_to_space", lambda x: topi.nn.depth_to_space(x, 2), [DEEP], BLOCKS),
    Case(
        "depth_to_space_crd",
        lambda x: topi.nn.depth_to_space(x, 2, "NCHW", "CDR"),
        [DEEP],
        by_torch(lambda x: F.pixel_shuffle(x, 2), DEEP),
    ),
    Case(
        "space_to_depth",
        lambda x: topi.nn.space_to_depth(topi.nn.depth_to_space(x, 2), 2),
        [DEEP],
        DEEP,
    ),
    Case(
        "batches",
        lambda x: topi.nn.batch_to_space_nd(
            topi.nn.space_to_batch_nd(x, [2, 2], [1, 0], [1, 1]), [2, 2], [1, 0], [1, 1]
        ),
        [FOUR],
        FOUR,
    ),
    Case(
        "to_batches",
        lambda x: topi.nn.space_to_batch_nd(x, [2], [0], [1]),
        [np.arange(6, dtype="f4").reshape(2, 3)],
        np.array([[0, 2], [3, 5], [1, 0], [4, 0]], "f4"),
    ),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("cases", [NORMS, PRODUCTS, CONVOLUTIONS, WINDOWS, IMAGES])
def test_values(cases: list[Case], symbolic: bool) -> None:
    check(cases, symbolic)


def test_mistakes() -> None:
    x, k = te.placeholder((1, 4, 6, 6)), te.placeholder((8, 3, 3, 3))
    with pytest.raises(ValueError, match="4 channels, filters of 3, 1 groups"):
        topi.nn.conv2d(x, k, 1, 1, 1)
    with pytest.raises(ValueError, match='padding is numbers, "SAME" or "VALID"'):
        topi.nn.conv2d(x, x, 1, "FULL", 1)
    channels = te.placeholder((2, 6, 4, 7))
    with pytest.raises(ValueError, match=r"axis 1 or 3 of them; got the shape .* and axis 2"):
        topi.nn.lrn(channels, 3, 2)
    with pytest.raises(ValueError, match="size must be odd"):
        topi.nn.lrn(channels, 4)
    with pytest.raises(TypeError, match="is for floats; got int32"):
        topi.nn.lrn(te.placeholder((2, 6, 4, 7), "int32"), 3)
    with pytest.raises(ValueError, match="the inner sizes are 6 and 3"):
        topi.nn.matmul(x, k)
    with pytest.raises(ValueError, match="pool_type is one of"):
        topi.nn.pool2d(x, 2, 2, 1, (0, 0, 0, 0), "min")
    with pytest.raises(ValueError, match="has not each of HW once"):
        topi.nn.global_pool(x, "max", "NCHW4h")


def test_an_axis_too_many_names_the_function() -> None:
    x = te.placeholder((4, 4), "float32", "x")
    with pytest.raises(ValueError, match=r"topi\.nn\.softmax: axis 7"):
        topi.nn.softmax(x, 7)
    with pytest.raises(ValueError, match=r"topi\.nn\.fast_softmax: axis 7"):
        topi.nn.fast_softmax(x, 7)
