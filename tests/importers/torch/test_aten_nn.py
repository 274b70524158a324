"""Products, convolutions, pooling, norms, attention and resizing against eager torch."""

from __future__ import annotations

import math
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from .helpers import check, check_table  # noqa: E402

g = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Any:
    return torch.randn(*shape, generator=g)


def test_products() -> None:
    a, b, v = randn(3, 4), randn(4, 5), randn(4)
    check_table(
        {
            "matmul": (lambda a, b, v: (a @ b, a @ v, v @ b, v @ v), a, b, v),
            "mm": (lambda a, b, v: (a.mm(b), a.mv(v), v.dot(v)), a, b, v),
            "batched": (torch.matmul, randn(2, 1, 3, 4), randn(5, 4, 2)),
            "bmm": (torch.bmm, randn(2, 3, 4), randn(2, 4, 5)),
            "linear": (F.linear, randn(2, 3, 4), randn(5, 4), randn(5)),
            "linear without bias": (F.linear, randn(4), randn(5, 4)),
            "linear to a scalar": (F.linear, randn(3, 4), randn(4)),
            "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), randn(5), a, b),
            "addmm beta 0": (
                lambda c, a, b: c.addmm(a, b, beta=0),
                torch.full((3, 5), math.nan),
                a,
                b,
            ),
            "baddbmm": (torch.baddbmm, randn(2, 3, 5), randn(2, 3, 4), randn(2, 4, 5)),
            "addmv": (torch.addmv, randn(3), a, v),
            "outer": (torch.outer, randn(3), randn(4)),
            "einsum": (
                lambda a, b: torch.einsum("bij, bkj -> bik", a, b),
                randn(2, 3, 4),
                randn(2, 5, 4),
            ),
            "einsum of one": (lambda a: torch.einsum("ij->ji", a), a),
        }
    )


@pytest.mark.filterwarnings("ignore:Using padding='same':UserWarning")
def test_convolutions() -> None:
    x1, x2, x3 = randn(2, 4, 9), randn(2, 4, 9, 8), randn(1, 2, 5, 6, 7)
    w1, w2, w3 = randn(6, 4, 3), randn(6, 4, 3, 2), randn(4, 2, 2, 3, 2)
    check_table(
        {
            "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), x1, w1, randn(6)),
            "conv2d": (lambda x, w, b: F.conv2d(x, w, b, (2, 1), (1, 0)), x2, w2, randn(6)),
            "conv2d dilated": (lambda x, w: F.conv2d(x, w, dilation=(2, 3)), x2, w2),
            "conv2d grouped": (lambda x, w: F.conv2d(x, w, groups=2), x2, randn(6, 2, 3, 3)),
            "conv2d depthwise": (lambda x, w: F.conv2d(x, w, groups=4), x2, randn(8, 1, 3, 3)),
            "conv2d same": (lambda x, w: F.conv2d(x, w, padding="same"), x2, w2),
            "conv2d valid": (lambda x, w: F.conv2d(x, w, padding="valid"), x2, w2),
            "conv2d of one image": (F.conv2d, x2[0], w2),
            "conv3d": (lambda x, w: F.conv3d(x, w, stride=(1, 2, 1)), x3, w3),
            "conv_transpose1d": (
                lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
                x1,
                randn(4, 3, 3),
            ),
            "conv_transpose2d": (
                lambda x, w, b: F.conv_transpose2d(x, w, b, (2, 1), (1, 0), (1, 0), 2, (1, 2)),
                x2,
                randn(4, 3, 3, 2),
                randn(6),
            ),
            "conv_transpose3d": (lambda x, w: F.conv_transpose3d(x, w), x3, randn(2, 3, 2, 2, 2)),
        },
        scale=5,
    )


def test_pooling() -> None:
    x1, x2, x3 = randn(2, 3, 9), randn(2, 3, 9, 8), randn(1, 2, 6, 6, 7)
    check_table(
        {
            "max_pool1d": (lambda x: F.max_pool1d(x, 3, 2, 1), x1),
            "max_pool2d": (lambda x: F.max_pool2d(x, 3, 2, 1), x2),
            "max_pool2d by default": (lambda x: F.max_pool2d(x, 2), x2),
            "max_pool2d with everything": (
                lambda x: F.max_pool2d(x, (3, 2), (2, 1), (1, 0), (1, 2), ceil_mode=True),
                x2,
            ),
            "max_pool2d of one image": (lambda x: F.max_pool2d(x, 2), x2[0]),
            "max_pool2d of integers": (lambda x: F.max_pool2d(x, 2), (x2 * 9).int()),
            "max_pool3d": (lambda x: F.max_pool3d(x, 2), x3),
            "avg_pool1d": (lambda x: F.avg_pool1d(x, 3, 2, 1), x1),
            "avg_pool2d": (lambda x: F.avg_pool2d(x, 3, 2, 1), x2),
            "avg_pool2d without padding": (
                lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False, ceil_mode=True),
                x2,
            ),
            "avg_pool2d with a divisor": (
                lambda x: F.avg_pool2d(x, 3, 2, 1, divisor_override=5),
                x2,
            ),
            "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), x3),
            "adaptive_avg_pool1d": (lambda x: F.adaptive_avg_pool1d(x, 4), x1),
            "adaptive_avg_pool2d": (lambda x: F.adaptive_avg_pool2d(x, (1, 1)), x2),
            "adaptive_avg_pool2d uneven": (lambda x: F.adaptive_avg_pool2d(x, (4, None)), x2),
            "adaptive_avg_pool3d": (lambda x: F.adaptive_avg_pool3d(x, 3), x3),
            "adaptive_max_pool2d": (lambda x: F.adaptive_max_pool2d(x, (3, 4)), x2),
        }
    )


def test_norms() -> None:
    x, c = randn(2, 6, 4, 3), randn(6)
    table: dict[str, tuple[Any, ...]] = {
        "batch_norm": (
            lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, eps=1e-3),
            *(x, c, c.abs() + 0.1, randn(6), randn(6)),
        ),
        "batch_norm plain": (lambda x, m, v: F.batch_norm(x, m, v), x, c, c.abs() + 0.1),
        "batch_norm of its own": (
            lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True, eps=1e-3),
            x,
            c,
            c,
        ),
        "batch_norm of rows": (lambda x: F.batch_norm(x, None, None, training=True), randn(5, 3)),
        "layer_norm": (lambda x, w, b: F.layer_norm(x, (4, 3), w, b), x, randn(4, 3), randn(4, 3)),
        "layer_norm plain": (lambda x: F.layer_norm(x, (3,), eps=1e-3), x),
        "layer_norm without bias": (lambda x, w: F.layer_norm(x, (3,), w), x, randn(3)),
        "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), x, randn(6), randn(6)),
        "group_norm plain": (lambda x: F.group_norm(x, 2), x),
        "instance_norm": (lambda x, w, b: F.instance_norm(x, weight=w, bias=b), x, c, c),
        "rms_norm": (lambda x, w: F.rms_norm(x, (3,), w), x, randn(3)),
        "rms_norm with epsilon": (lambda x: F.rms_norm(x, (4, 3), eps=1e-2), x),
        "local_response_norm": (lambda x: F.local_response_norm(x, 3), x),
        "softmax": (lambda x: (x.softmax(1), F.softmax(x, -1, dtype=torch.float64)), x),
        "log_softmax": (lambda x: (x.log_softmax(1), F.softmin(x, 0)), x),
        "softmax of a scalar": (lambda x: x.softmax(0), torch.tensor(1.5)),
    }
    check_table(table)


def test_attention() -> None:
    q, k, v = randn(2, 4, 5, 8), randn(2, 4, 6, 8), randn(2, 4, 6, 8)
    seen = torch.rand(2, 1, 5, 6, generator=g) > 0.4
    hidden = seen.clone()
    hidden[0, 0, 2] = False
    attend = F.scaled_dot_product_attention
    few = randn(2, 2, 6, 8)
    check_table(
        {
            "plain": (attend, q, k, v),
            "causal": (lambda q, k, v: attend(q, k, v, is_causal=True), k, k, v),
            "causal, not square": (lambda q, k, v: attend(q, k, v, is_causal=True), q, k, v),
            "scaled": (lambda q, k, v: attend(q, k, v, scale=0.3), q, k, v),
            "float mask": (lambda q, k, v, m: attend(q, k, v, m), q, k, v, randn(5, 6)),
            "bool mask": (lambda q, k, v, m: attend(q, k, v, m), q, k, v, seen),
            "a row that sees nothing": (lambda q, k, v, m: attend(q, k, v, m), q, k, v, hidden),
            "one head": (attend, q[:, 0], k[:, 0], v[:, 0]),
            "five axes": (attend, *(x.unflatten(1, (2, 2)) for x in (q, k, v))),
            "one key for all heads": (attend, q, k[:, :1], v[:, :1]),
            "grouped": (lambda q, k, v: attend(q, k, v, enable_gqa=True), q, few, few),
        }
    )


def test_layers_that_torch_composes() -> None:
    encoder = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    check(encoder, [randn(2, 5, 16)])
    heads = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    check(heads, [randn(2, 5, 16), randn(2, 6, 16), randn(2, 6, 16)])


def test_weight_norm() -> None:
    weight_norm = torch.nn.utils.parametrizations.weight_norm
    check(weight_norm(torch.nn.Conv1d(4, 2, 3), dim=2), [randn(2, 4, 5)])
    check(weight_norm(torch.nn.Linear(4, 2), dim=-1), [randn(2, 4)])


def test_embedding() -> None:
    ids = torch.tensor([[0, 2], [4, 1]])
    check_table({"embedding": (lambda i, w: F.embedding(i, w, 2), ids, randn(5, 3))})


def test_losses() -> None:
    x, y = randn(4, 5), randn(4, 5)
    labels = torch.tensor([0, 4, 2, 1])
    check_table(
        {
            "mse": (
                lambda x, y: [F.mse_loss(x, y, reduction=r) for r in ("none", "mean", "sum")],
                x,
                y,
            ),
            "l1": (lambda x, y: F.l1_loss(x, y), x, y),
            "cosine_similarity": (lambda x, y: F.cosine_similarity(x, y, -1), x, y),
            "cross_entropy": (F.cross_entropy, x, labels),
            "bce": (F.binary_cross_entropy_with_logits, x, torch.sigmoid(y)),
            "huber": (F.huber_loss, x, y),
            "smooth_l1": (F.smooth_l1_loss, x, y),
        }
    )


def test_symbolic_batch() -> None:
    n = torch.export.Dim("n", min=2, max=20)
    conv = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.GroupNorm(2, 4),
        torch.nn.ReLU(inplace=True),
        torch.nn.MaxPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 4 * 4, 5),
    )
    check(conv, [randn(3, 3, 8, 8)], ({0: n},), [[randn(5, 3, 8, 8)]])


def test_statistics_of_ones_own_need_no_rewriting(monkeypatch: pytest.MonkeyPatch) -> None:
    from relax2xla.importers.torch.engine import export

    def never(*args: Any) -> Any:
        raise AssertionError("torch rewrote the program")

    monkeypatch.setattr(export, "_functional", never)
    check(lambda x: F.batch_norm(x, None, None, training=True), [randn(2, 3, 5)])
    check(lambda x: F.instance_norm(x), [randn(2, 3, 5)])


def test_safe_softmax_keeps_nan() -> None:
    rows = [[-math.inf, -math.inf], [math.nan, 1.0], [math.inf, 1.0], [-math.inf, 1.0]]
    check(lambda x: torch.ops.aten._safe_softmax(x, -1), [torch.tensor(rows)])
