"""Forms that a decomposition leaves out are refused with the operator, its place and the reason."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from relax2xla import OpNotImplemented  # noqa: E402
from relax2xla.importers.torch.source.decompositions import OWN  # noqa: E402
from tests.importers.torch.helpers import check, imported  # noqa: E402

ATEN = torch.ops.aten


def _attention(x: Any, weight: Any, bias: Any, out: Any, out_bias: Any) -> Any:
    weights = (weight, bias, out, out_bias)
    return ATEN._native_multi_head_attention(x, x, x, 4, 2, *weights, None, True)


REFUSED: dict[str, tuple[Any, ...]] = {
    "attention with weights as a result": (
        _attention,
        torch.ones(1, 3, 4),
        torch.ones(12, 4),
        torch.ones(12),
        torch.ones(4, 4),
        torch.ones(4),
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_form_that_is_left_out(reason: str) -> None:
    function, *inputs = REFUSED[reason]
    with pytest.raises(OpNotImplemented, match=rf"aten\.\w+.*\(at .*\n.*{reason}"):
        imported(function, inputs)


def test_sizes_that_are_not_known() -> None:
    """Converters that need sizes leave symbolic ones to decompositions."""

    def function(x: Any) -> tuple[Any, ...]:
        return (
            *F.max_pool2d(x, 2, 2, 1, ceil_mode=True, return_indices=True),
            F.interpolate(x, scale_factor=1.5, mode="bilinear"),
            F.interpolate(x[:, :, ::2], size=x.shape[-2:], mode="nearest"),
            F.pad(x, (0, -x.shape[3] % 4, 1 - x.shape[2] // 2, 2)),
        )

    auto = torch.export.Dim.AUTO
    images = [[torch.randn(1, 2, *size)] for size in ((8, 7), (6, 9))]
    check(function, images[0], [{2: auto, 3: auto}], images[1:])


def test_a_scale_that_rounds_symbolic_sizes() -> None:
    with pytest.raises(OpNotImplemented, match=r"upsample_nearest2d\.vec.*it is height"):
        imported(
            lambda x: F.interpolate(x, scale_factor=1.7),
            [torch.ones(1, 2, 8, 8)],
            [{2: torch.export.Dim("height", min=4, max=20)}],
        )


@pytest.mark.filterwarnings("ignore:linear_cross_entropy")
def test_a_loss_in_chunks() -> None:
    """Chunks of rows only save memory; the operators are torch's own from 2.13 on."""
    options = pytest.importorskip("torch.nn.modules.linear_cross_entropy_options")
    g = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(n, 3, generator=g) for n in (5, 4))
    target = torch.tensor([0, 3, -100, 1, 2])
    chunks = options.LinearCrossEntropyOptions(allow_retain_graph=True, batch_chunk_size=2)

    def losses(x: Any, w: Any, t: Any) -> list[Any]:
        return [
            F.linear_cross_entropy(x, w, t, reduction=r, label_smoothing=s, options=chunks)
            for r in ("mean", "none")
            for s in (0.0, 0.3)  # smoothing goes another way in torch, without chunks
        ]

    check(losses, (x, weight, target))
    kernel = torch.ops.torch_nn._linear_cross_entropy_batch_chunked
    args = (None, None, "mean", -100, 0.3, 2, "compact", torch.float32, True, False, False, False)
    with pytest.raises(NotImplementedError, match="does not support label smoothing"):
        kernel(x, weight, target, *args)
    with pytest.raises(OpNotImplemented, match="_linear_cross_entropy_batch_chunked"):
        imported(lambda x, w, t: kernel(x, w, t, *args), (x, weight, target))


REDUCTIONS = ("none", "mean", "sum")
LABELS = torch.tensor([[0, 1, -1, 0], [3, -1, -1, -1], [0, 1, 2, 3], [-1, 1, 2, 0], [2, 0, 1, -1]])


def test_losses_and_looked_up_rows_are_those_of_torchs_kernels() -> None:
    x = torch.randn(5, 4)
    loss = ATEN.multilabel_margin_loss_forward.default
    for own, labels in ((x, LABELS), (x[0], LABELS[0])):
        for reduction in range(3):
            want = loss(own, labels, reduction)
            torch.testing.assert_close(OWN[loss](own, labels, reduction), want)
            check(partial(F.multilabel_margin_loss, reduction=REDUCTIONS[reduction]), [own, labels])
    renorm = ATEN.embedding_renorm.default
    for order in (1.0, 2.0, 3.0):
        args = (x, torch.tensor([[1, 1], [3, 0]]), 1.0, order)
        torch.testing.assert_close(OWN[renorm](*args), renorm(*args))
