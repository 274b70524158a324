"""Normalisation against eager torch, and networks of several such layers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check, check_table  # noqa: E402

g = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Any:
    return torch.randn(*shape, generator=g)


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


def test_layers_that_torch_composes() -> None:
    encoder = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    check(encoder, [randn(2, 5, 16)])
    heads = torch.nn.MultiheadAttention(16, 4, batch_first=True)
    check(heads, [randn(2, 5, 16), randn(2, 6, 16), randn(2, 6, 16)])


def test_weight_norm() -> None:
    weight_norm = torch.nn.utils.parametrizations.weight_norm
    check(weight_norm(torch.nn.Conv1d(4, 2, 3), dim=2), [randn(2, 4, 5)])
    check(weight_norm(torch.nn.Linear(4, 2), dim=-1), [randn(2, 4)])


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
