"""Non-maximum suppression against ONNX Runtime, and against the loops of TVM's semantics."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import Constant
from tests.op.harness import Case, calling, check, tensor

RNG = np.random.default_rng(3)


def boxes_of(*shape: int) -> Any:
    corner = RNG.uniform(0, 1, (*shape, 2))
    size = RNG.uniform(0.1, 0.8, (*shape, 2))
    return np.concatenate([corner, corner + size], -1).astype(np.float32)


def onnx_nms(boxes: Any, scores: Any, most: int, iou: float, score: float) -> Any:
    names = ["boxes", "scores", "most", "iou", "score"]
    values = [boxes, scores, np.int64([most]), np.float32([iou]), np.float32([score])]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(v.dtype) for v in values]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("NonMaxSuppression", names, ["y"])],
        "g",
        [info(n, k, v.shape) for n, k, v in zip(names, kinds, values, strict=True)],
        [info("y", onnx.TensorProto.INT64, (None, 3))],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 11)], ir_version=8
    )
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, dict(zip(names, values, strict=True)))[0]


def all_class(case: tuple[Any, ...], output_format: str = "onnx") -> Case:
    boxes, scores, most, iou, score = case
    found = onnx_nms(*case)
    batch, classes, count = scores.shape

    def make(b: Any, s: Any, m: Any) -> Any:
        t = Constant(np.float32(iou)), Constant(np.float32([score]))
        return op.vision.all_class_non_max_suppression(b, s, m, *t, output_format=output_format)

    inputs = [boxes, scores, np.int64(most)]
    if output_format == "onnx":
        want = np.full((batch * classes * count, 3), -1, np.int64)
        want[: len(found)] = found
        return Case(f"{case[2:]}", make, inputs, (want, np.int64([len(found)])))
    index = np.zeros((batch, classes * count, 2), np.int64)
    best = np.zeros((batch, classes * count), np.float32)
    total = np.zeros(batch, np.int64)
    for b, c, k in found:
        index[b, total[b]] = c, k
        best[b, total[b]] = scores[b, c, k]
        total[b] += 1
    return Case("tensorflow", make, inputs, (index, best, total))


def test_all_classes_as_onnx():
    def inputs(batch: int, classes: int, count: int) -> tuple[Any, Any]:
        return boxes_of(batch, count), RNG.uniform(0, 1, (batch, classes, count)).astype("f4")

    plain = inputs(2, 3, 12)
    turned = plain[0][..., [2, 3, 0, 1]]
    cases = [
        all_class((*plain, 3, 0.5, 0.2)),
        all_class((*plain, 100, 0.0, 0.0)),
        all_class((*plain, 12, 1.0, 0.9)),
        all_class((turned, plain[1], 4, 0.3, 0.4)),
        all_class((*plain, 0, 0.5, 0.0)),
        all_class((*inputs(1, 1, 1), 2, 0.5, 0.0)),
        all_class((*plain, 3, 0.5, 0.2), "tensorflow"),
    ]
    tied = np.full((1, 1, 5), 0.5, np.float32)
    cases.append(all_class((boxes_of(1, 5), tied, 5, 0.4, 0.1)))
    check(cases)


def overlap(a: Any, b: Any) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    inner = np.prod(np.maximum(high - low, 0))
    union = np.prod(a[2:] - a[:2]) + np.prod(b[2:] - b[:2]) - inner
    return 0.0 if union <= 0 else inner / union


def valid_counts(data: Any, threshold: float, id_index: int, score_index: int) -> Any:
    out, where = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    counts = np.zeros(len(data), np.int32)
    for b, rows in enumerate(data):
        for j, row in enumerate(rows):
            if row[score_index] > threshold and (id_index < 0 or row[id_index] >= 0):
                out[b, counts[b]], where[b, counts[b]] = row, j
                counts[b] += 1
    return counts, out, where


def nms(data: Any, valid: Any, indices: Any, **o: Any) -> Any:
    """TVM's rules, one box after the other."""
    o = {"max_output_size": -1, "iou_threshold": 0.5, "force_suppress": False, "top_k": -1} | o
    o = {"soft_nms_sigma": 0.0, "score_threshold": 0.0, "id_index": 0, "bottom": False} | o
    out, found = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    counts = np.zeros((len(data), 1), np.int32)
    for b in range(len(data)):
        order = np.argsort(-data[b, : valid[b], 1], kind="stable")
        order = order[: o["top_k"]] if o["top_k"] > 0 else order
        rows, left = data[b, order].copy(), list(range(len(order)))
        taken: list[int] = []
        place: list[int] = []
        while left and (o["max_output_size"] <= 0 or len(taken) < o["max_output_size"]):
            soft = o["soft_nms_sigma"] > 0
            bar = o["score_threshold"] if soft else 0.0
            left = [k for k in left if rows[k, 1] > bar]
            if not left:
                break
            best = max(left, key=lambda k: rows[k, 1]) if soft else left[0]
            place.append(best)
            taken.append(best)
            left.remove(best)
            for k in list(left):
                same = o["force_suppress"] or o["id_index"] < 0 or rows[k, 0] == rows[best, 0]
                iou = overlap(rows[best, 2:6], rows[k, 2:6])
                if same and iou >= o["iou_threshold"]:
                    left.remove(k)
                elif same and soft:
                    rows[k, 1] *= np.exp(-0.5 / o["soft_nms_sigma"] * iou * iou)
        for n, k in enumerate(taken):
            at = n if soft or o["bottom"] else k
            out[b, at] = rows[k]
            found[b, n] = indices[b, order[k]]
        counts[b] = len(taken)
    return out, found, counts


def test_classic_as_tvm():
    score = RNG.uniform(-0.1, 1, (2, 15, 1))
    kind = RNG.integers(-1, 3, (2, 15, 1))
    data = np.concatenate([kind, score, boxes_of(2, 15)], -1).astype(np.float32)
    indices = np.stack([RNG.permutation(15), RNG.permutation(15)]).astype(np.int32)
    valid = np.int32([15, 9])
    cases: list[Case] = []
    for threshold, id_index in ((0.3, 0), (0.0, -1), (2.0, 0)):
        cases.append(
            Case(
                f"get_valid_counts {threshold}",
                lambda d, t=threshold, i=id_index: op.vision.get_valid_counts(d, t, i, 1),
                [data],
                valid_counts(data, threshold, id_index, 1),
            )
        )
    options: list[dict[str, Any]] = [
        {},
        {"force_suppress": True, "iou_threshold": 0.2},
        {"id_index": -1, "max_output_size": 3},
        {"top_k": 5},
        {"soft_nms_sigma": 0.4, "score_threshold": 0.3, "force_suppress": True},
        {"soft_nms_sigma": 0.2, "max_output_size": 4, "iou_threshold": 0.7},
    ]
    for o in options:
        out, found, counts = nms(data, valid, indices, **o)
        want = (out, found, counts) if "soft_nms_sigma" in o else (found, counts)
        inputs = [data, valid, indices]
        nms_op = op.vision.non_max_suppression
        cases.append(Case(f"{o}", calling(nms_op, **o), inputs, want, 1e-5))
        plain = {**o, "return_indices": False}
        cases.append(Case(f"{plain}", calling(nms_op, **plain), inputs, out, 1e-5))
    moved = {"return_indices": False, "invalid_to_bottom": True}
    out = nms(data, valid, indices, bottom=True)[0]
    make = op.vision.non_max_suppression
    cases.append(Case("bottom", lambda *a: make(*a, **moved), [data, valid, indices], out))
    check(cases)


def test_unknown_shapes():
    data = tensor(None)
    info = op.vision.get_valid_counts(tensor((tir.Var("n", "int64"), 5, 6))).struct_info
    assert [f.ndim for f in info.fields] == [1, 3, 2]
    info = op.vision.get_valid_counts(data).struct_info
    assert [f.ndim for f in info.fields] == [1, 3, 2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.vision.get_valid_counts(tensor((5, 6))), "rank 3"),
        (lambda: op.vision.get_valid_counts(tensor((1, 5, 6)), 0, 0, 6), "`score_index`"),
        (
            lambda: op.vision.non_max_suppression(
                tensor((1, 5, 6)), tensor((1,), "int32"), tensor((1, 5), "int32"), coord_start=3
            ),
            "`coord_start`",
        ),
        (
            lambda: op.vision.non_max_suppression(
                tensor((1, 5, 6)), tensor((2,), "int32"), tensor((1, 5), "int32")
            ),
            "batch",
        ),
        (
            lambda: op.vision.all_class_non_max_suppression(
                tensor((1, 5, 4)), tensor((1, 2, 6)), 1, 0.5, 0.5
            ),
            "numbers of boxes",
        ),
        (
            lambda: op.vision.all_class_non_max_suppression(
                tensor((1, 5, 4)), tensor((1, 2, 5)), 1, 0.5, 0.5, "onyx"
            ),
            "output_format",
        ),
    ],
)
def test_errors(call: Any, message: str):
    with pytest.raises(OpError, match=message):
        call()
