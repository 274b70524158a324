"""Regions of interest against ONNX Runtime, predicted boxes against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from relax2xla import op
from relax2xla.errors import OpError
from tests.op.harness import Case, check, tensor

RNG = np.random.default_rng(5)


def run_onnx(name: str, version: int, values: list[Any], **attrs: Any) -> Any:
    names = [f"x{i}" for i in range(len(values))]
    kinds = [onnx.helper.np_dtype_to_tensor_dtype(v.dtype) for v in values]
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(name, names, ["y"], **attrs)],
        "g",
        [info(n, k, v.shape) for n, k, v in zip(names, kinds, values, strict=True)],
        [info("y", onnx.TensorProto.FLOAT, None)],
    )
    opsets = [onnx.helper.make_opsetid("", version)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # MaxRoiPool is of opset 1, about which it warns
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return session.run(None, dict(zip(names, values, strict=True)))[0]


DATA = RNG.normal(size=(2, 3, 9, 11)).astype(np.float32)
ROIS = np.float32(
    [
        [0, 1, 1, 7, 6],
        [1, 0, 0, 10, 8],
        [1, -2, -3, 4, 4],
        [0, 5, 5, 5.2, 5.1],
        [0, 6, 2, 20, 30],
    ]
)


def test_roi_align_as_onnx():
    cases: list[Case] = []
    for ratio, scale, size in ((2, 1.0, (2, 3)), (-1, 0.5, (3, 3)), (-1, 1.0, (2, 2)), (1, 2.0, 4)):
        pooled = (size, size) if isinstance(size, int) else size
        want = run_onnx(
            "RoiAlign",
            16,
            [DATA, ROIS[:, 1:], ROIS[:, 0].astype(np.int64)],
            output_height=pooled[0],
            output_width=pooled[1],
            sampling_ratio=max(ratio, 0),
            spatial_scale=scale,
            coordinate_transformation_mode="output_half_pixel",
        )

        def make(x: Any, r: Any, size: Any = size, scale: float = scale, n: int = ratio) -> Any:
            return op.vision.roi_align(x, r, size, scale, n)

        cases.append(Case(f"{ratio} {scale}", make, [DATA, ROIS], want, 1e-4, 1e-5))

        def last(x: Any, r: Any, size: Any = size, scale: float = scale, n: int = ratio) -> Any:
            return op.vision.roi_align(x, r, size, scale, n, layout="NHWC")

        turned = np.ascontiguousarray(DATA.transpose(0, 2, 3, 1))
        cases.append(Case("NHWC", last, [turned, ROIS], want.transpose(0, 2, 3, 1), 1e-4, 1e-5))
    check(cases)


def test_roi_align_takes_the_maximum_of_the_points():
    inside = ROIS[:2]
    ramp = np.broadcast_to(np.arange(11, dtype=np.float32), (2, 1, 9, 11))
    # On a ramp the largest point of a cell is its rightmost one, at three quarters of the cell.
    width = inside[:, 3] - inside[:, 1]
    left = inside[:, 1][:, None] + width[:, None] / 3 * (np.arange(3) + 0.75)
    want = np.broadcast_to(left[:, None, None, :], (2, 1, 3, 3)).astype(np.float32)
    check(
        [
            Case(
                "max",
                lambda x, r: op.vision.roi_align(x, r, 3, 1.0, 2, mode="max"),
                [ramp, inside],
                want,
                1e-5,
            )
        ]
    )


def test_roi_pool_as_onnx():
    cases: list[Case] = []
    for scale, size in ((1.0, (2, 3)), (0.5, (3, 3)), (2.0, (1, 1))):
        want = run_onnx("MaxRoiPool", 1, [DATA, ROIS[:3]], pooled_shape=size, spatial_scale=scale)

        def make(x: Any, r: Any, size: Any = size, scale: float = scale) -> Any:
            return op.vision.roi_pool(x, r, size, scale)

        cases.append(Case(f"{scale} {size}", make, [DATA, ROIS[:3]], want))
    check(cases)


def test_multibox_as_numpy():
    logits = RNG.normal(size=(2, 3, 5)).astype(np.float32)
    loc = RNG.normal(size=(2, 20)).astype(np.float32)
    corner = RNG.uniform(0, 0.5, (1, 5, 2))
    anchor = np.concatenate([corner, corner + 0.3], -1).astype(np.float32)
    variances = (0.1, 0.1, 0.2, 0.2)
    shift = loc.reshape(2, 5, 4) * np.float32(variances)
    size, middle = anchor[..., 2:] - anchor[..., :2], (anchor[..., 2:] + anchor[..., :2]) / 2
    center, half = shift[..., :2] * size + middle, np.exp(shift[..., 2:]) * size / 2
    low, high = center - half, center + half
    boxes = np.concatenate([low[..., ::-1], high[..., ::-1]], -1)
    odds = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    kept = np.where(odds >= np.float32(0.3), odds, 0)
    kept[:, 0] = 0
    make = op.vision.multibox_transform_loc
    check(
        [
            Case(
                "plain",
                make,
                [logits, loc, anchor],
                (
                    np.concatenate(
                        [
                            *(
                                (
                                    loc.reshape(2, 5, 4)[..., [1, 0]] * size[..., ::-1]
                                    + middle[..., ::-1]
                                )
                                + s
                                * np.exp(loc.reshape(2, 5, 4)[..., [3, 2]])
                                * size[..., ::-1]
                                / 2
                                for s in (-1, 1)
                            ),
                        ],
                        -1,
                    ),
                    odds,
                ),
                1e-4,
                1e-5,
            ),
            Case(
                "cut",
                lambda *a: make(*a, True, 0.3, variances, False),
                [logits, loc, anchor],
                (np.clip(boxes, 0, 1), kept),
                1e-4,
                1e-5,
            ),
            Case(
                "scores",
                lambda *a: make(*a, variances=variances, apply_softmax=False),
                [odds, loc, anchor],
                (boxes, odds),
                1e-4,
                1e-5,
            ),
        ]
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: op.vision.roi_align(tensor((1, 3, 5)), tensor((2, 5)), 2, 1.0), "rank 4"),
        (lambda: op.vision.roi_align(tensor((1, 3, 5, 5)), tensor((2, 4)), 2, 1.0), "`rois`"),
        (lambda: op.vision.roi_align(tensor((1, 3, 5, 5)), tensor((2, 5)), 0, 1.0), "pooled_size"),
        (
            lambda: op.vision.roi_align(tensor((1, 3, 5, 5)), tensor((2, 5)), 2, 1.0, mode="sum"),
            "`mode`",
        ),
        (
            lambda: op.vision.roi_pool(tensor((1, 3, 5, 5)), tensor((2, 5)), 2, 1.0, "NHWC"),
            "`layout`",
        ),
        (
            lambda: op.vision.multibox_transform_loc(
                tensor((1, 3, 5)), tensor((1, 18)), tensor((1, 5, 4))
            ),
            "4 numbers",
        ),
        (
            lambda: op.vision.multibox_transform_loc(
                tensor((1, 3, 5)), tensor((1, 24)), tensor((1, 5, 4))
            ),
            "`loc_pred`",
        ),
    ],
)
def test_errors(call: Any, message: str):
    with pytest.raises(OpError, match=message):
        call()
