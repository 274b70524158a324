"""A detection head whose suppression is ONNX's NonMaxSuppression, by both of torch's exporters."""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest

from .support import ours

torch = pytest.importorskip("torch")
onnxscript = pytest.importorskip("onnxscript")

from tests.importers.zoo.pictures import overlaps  # noqa: E402

KEPT, OVERLAP, LEAST = 5, 0.4, 0.3


@torch.library.custom_op("relax2xla_zoo::nms", mutates_args=())
def nms(boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    """ONNX's rows (batch, class, box): greedy, class by class, the best scores first."""
    rows: list[list[int]] = []
    for b in range(scores.shape[0]):
        over = overlaps(boxes[b]) > OVERLAP
        for c in range(scores.shape[1]):
            kept: list[int] = []
            for i in scores[b, c].argsort(descending=True).tolist():
                if len(kept) < KEPT and scores[b, c, i] > LEAST and not over[i][kept].any():
                    kept.append(i)
            rows += [[b, c, i] for i in kept]
    return torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)


@nms.register_fake
def _(boxes: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
    count = torch.library.get_ctx().new_dynamic_size()
    return boxes.new_empty((count, 3), dtype=torch.int64)


class Head(torch.nn.Module):
    """Boxes and scores of a feature map, suppressed; then the boxes that are left."""

    def __init__(self) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            self.body = torch.nn.Conv2d(3, 7, 3, 2, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.body(x).flatten(2).transpose(1, 2)
        centres, sides = y[..., :2], y[..., 2:4].exp()
        boxes = torch.cat([centres - sides, centres + sides], -1)
        scores = y[..., 4:].softmax(-1).transpose(1, 2)
        rows = nms(boxes, scores)
        at, kind, place = rows.unbind(1)
        return boxes[at, place], scores[at, kind, place], rows


def _translated(boxes: Any, scores: Any) -> Any:
    op = onnxscript.opset18
    limits = (np.array([v]) for v in (OVERLAP, LEAST))
    overlap, least = (op.Constant(value_floats=v.astype(np.float32).tolist()) for v in limits)
    return op.NonMaxSuppression(boxes, scores, op.Constant(value_ints=[KEPT]), overlap, least)


def _symbolic(g: Any, boxes: Any, scores: Any) -> Any:
    kept, *limits = (g.op("Constant", value_t=torch.tensor([v])) for v in (KEPT, OVERLAP, LEAST))
    return g.op("NonMaxSuppression", boxes, scores, kept, *limits)


def exported(exporter: str, x: torch.Tensor) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the exporters warn of their own deprecations
        if exporter == "dynamo":
            batch = torch.export.Dim("batch", min=1, max=8)
            table = {torch.ops.relax2xla_zoo.nms.default: _translated}
            program = torch.onnx.export(
                Head(),
                (x,),
                dynamo=True,
                dynamic_shapes=({0: batch},),
                custom_translation_table=table,
                verbose=False,
            )
            assert program is not None
            return program.model_proto.SerializeToString()
        torch.onnx.register_custom_op_symbolic("relax2xla_zoo::nms", _symbolic, 11)
        target = io.BytesIO()
        torch.onnx.export(
            Head(), (x,), target, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "batch"}}
        )
    return target.getvalue()


@pytest.mark.parametrize("exporter", ["dynamo", "torchscript"])
def test_detection_head_agrees_with_torch(exporter: str) -> None:
    draw = torch.Generator().manual_seed(1)
    contents = exported(exporter, torch.randn(2, 3, 8, 8, generator=draw))
    x = torch.randn(3, 3, 8, 8, generator=draw)
    got = ours(contents, [x.numpy()])
    with torch.no_grad():
        want = Head()(x)
    assert len(want[0]) > 10
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(g, w.numpy(), rtol=1e-5, atol=1e-5)
