"""Random images, grids, boxes and regions against torch, ONNX and the loops of TVM's semantics."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hypothesis import given
from torch.nn import functional as F

from tests.op.draws import (
    RNG,
    SPACE,
    WIDE,
    Draw,
    array,
    call_of,
    case,
    examples,
    moved,
    number,
    one_of,
    one_of_each,
)
from tests.op.harness import Case, check
from tests.op.image.test_resize import resize_reference
from tests.op.vision.test_nms import all_class, nms, valid_counts
from tests.op.vision.test_roi import run_onnx

MODES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize(draw: Any, name: str) -> Case:
    """Every mode that ONNX has too."""
    n = int(name[-2])
    layout = one_of(draw, f"NC{SPACE[n]}", f"N{SPACE[n]}C")
    x = array(draw, (1, 2, *(number(draw, 1, 5 - n // 3) for _ in range(n))), "float32")
    size = tuple(number(draw, 1, 6 - n) for _ in range(n))
    method, mode = one_of(draw, "nearest", "linear", "cubic"), one_of(draw, *MODES)
    attrs: dict[str, Any] = {"coordinate_transformation_mode": mode}
    onnx_attrs = {**attrs, "mode": method}
    roi: list[float] = []
    if mode == "tf_crop_and_resize":
        start = [number(draw, -2, 6) / 8 for _ in range(n)]
        roi = [*start, *(s + number(draw, 1, 6) / 8 for s in start)]
        attrs["extrapolation_value"] = onnx_attrs["extrapolation_value"] = 9.0
    if method == "nearest":
        rounding = one_of(draw, *ROUNDINGS)
        attrs["rounding_method"] = onnx_attrs["nearest_mode"] = rounding
    elif method == "cubic":
        attrs["cubic_exclude"] = onnx_attrs["exclude_outside"] = number(draw, 0, 1)
    want = resize_reference(x, size, np.array(roi, np.float32), **onnx_attrs)
    attrs["method"] = "nearest_neighbor" if method == "nearest" else method
    make = call_of(name, size, roi or None, layout, **attrs)
    source = f"NC{SPACE[n]}"
    inputs, want = [moved(x, source, layout)], moved(want, source, layout)
    return case(f"{name} {x.shape} {size} {roi} {attrs}", make, inputs, want, "float32")


def grid_sample(draw: Any, name: str) -> Case:
    method = one_of(draw, "nearest", "bilinear", "bicubic")
    n = 2 if method == "bicubic" else number(draw, 2, 3)
    x = array(draw, (2, 2, *(number(draw, 1, 4) for _ in range(n))), "float32")
    grid = draw(RNG).uniform(-1.6, 1.6, (2, *(number(draw, 1, 3) for _ in range(n)), n))
    grid = grid.astype(np.float32)
    padding, align = one_of(draw, "zeros", "border", "reflection"), one_of(draw, False, True)
    tensors = torch.from_numpy(x), torch.from_numpy(grid)
    want = F.grid_sample(*tensors, method, padding, align).numpy()
    make = call_of(name, method, f"NC{SPACE[n]}", padding, align)
    first = np.ascontiguousarray(np.moveaxis(grid, -1, 1))
    return case(f"{name} {method} {padding} {align}", make, [x, first], want, "float32")


def affine_grid(draw: Any, name: str) -> Case:
    n, align = number(draw, 2, 3), one_of(draw, False, True)
    dtype = one_of(draw, *WIDE)
    theta, size = array(draw, (2, n, n + 1), dtype), [number(draw, 2, 4) for _ in range(n)]
    want = F.affine_grid(torch.from_numpy(theta), [2, 1, *size], align_corners=align).numpy()
    return case(
        f"{name} {size}", call_of(name, size, align), [theta], np.moveaxis(want, -1, 1), dtype
    )


def boxes(draw: Any, *shape: int) -> Any:
    """Corners, the lower one first."""
    rng = draw(RNG)
    corner = rng.uniform(0, 1, (*shape, 2))
    return np.concatenate([corner, corner + rng.uniform(0.1, 0.8, (*shape, 2))], -1).astype("f4")


def all_class_nms(draw: Any, name: str) -> Case:
    batch, classes, count = (number(draw, 1, k) for k in (2, 3, 6))
    scores = draw(RNG).uniform(0, 1, (batch, classes, count)).astype("f4")
    bars = number(draw, 0, 4), number(draw, 0, 8) / 8, number(draw, 0, 6) / 8
    form = one_of(draw, "onnx", "tensorflow")
    return all_class((boxes(draw, batch, count), scores, *bars), form)


def detections(draw: Any) -> Any:
    """Rows of a class (-1: none), a score and a box."""
    rng, shape = draw(RNG), (number(draw, 1, 2), number(draw, 1, 7))
    kind, score = rng.integers(-1, 3, (*shape, 1)), rng.uniform(-0.1, 1, (*shape, 1))
    return np.concatenate([kind, score, boxes(draw, *shape)], -1).astype(np.float32)


def get_valid_counts(draw: Any, name: str) -> Case:
    data, bar, column = detections(draw), number(draw, 0, 4) / 4, number(draw, -1, 0)
    want = valid_counts(data, bar, column, 1)
    return Case(f"{name} {bar} {column}", call_of(name, bar, column, 1), [data], want, 0)


def classic_nms(draw: Any, name: str) -> Case:
    data = detections(draw)
    rng = draw(RNG)
    indices = np.stack([rng.permutation(data.shape[1]) for _ in data]).astype(np.int32)
    valid = rng.integers(0, data.shape[1] + 1, len(data)).astype(np.int32)
    options: dict[str, Any] = {
        "max_output_size": one_of(draw, -1, 1, 3),
        "iou_threshold": number(draw, 1, 9) / 10,
        "force_suppress": one_of(draw, False, True),
        "top_k": one_of(draw, -1, 2, 4),
        "id_index": one_of(draw, -1, 0),
    }
    if one_of(draw, False, True):
        options |= {"soft_nms_sigma": 0.4, "score_threshold": 0.3}
    out, found, counts = nms(data, valid, indices, **options)
    want = (out, found, counts) if "soft_nms_sigma" in options else (found, counts)
    return Case(f"{name} {options}", call_of(name, **options), [data, valid, indices], want, 1e-5)


def regions(draw: Any, x: Any, inside: bool) -> Any:
    """Rows of an image's number and two corners."""
    rng, count = draw(RNG), number(draw, 1, 3)
    height, width = x.shape[2:]
    low = rng.uniform(0 if inside else -2, 3, (count, 2))
    high = low + rng.uniform(0.5, (width - 4, height - 4), (count, 2))
    image = rng.integers(0, len(x), (count, 1))
    return np.concatenate([image, low, high], 1).astype(np.float32)


def roi_align(draw: Any, name: str) -> Case:
    x = array(draw, (2, 2, number(draw, 5, 8), number(draw, 5, 8)), "float32")
    rois, size = regions(draw, x, False), [number(draw, 1, 3), number(draw, 1, 3)]
    ratio, scale, aligned = number(draw, -1, 2), one_of(draw, 0.5, 1.0), one_of(draw, False, True)
    # ONNX moves the corners of what it calls aligned by half a pixel, which TVM does not.
    corners = rois[:, 1:] + np.float32(0.5 / scale if aligned else 0)
    want = run_onnx(
        "RoiAlign", 16, [x, corners, rois[:, 0].astype(np.int64)],
        output_height=size[0], output_width=size[1], sampling_ratio=max(ratio, 0),
        spatial_scale=scale,
        coordinate_transformation_mode="half_pixel" if aligned else "output_half_pixel",
    )  # fmt: skip
    make = call_of(name, size, scale, ratio or -1, aligned)
    return case(f"{name} {size} {scale} {ratio} {aligned}", make, [x, rois], want, "float32")


def roi_pool(draw: Any, name: str) -> Case:
    x = array(draw, (2, 2, number(draw, 5, 8), number(draw, 5, 8)), "float32")
    rois, size = regions(draw, x, True), [number(draw, 1, 3), number(draw, 1, 3)]
    rois = np.round(rois)  # a half rounds as the C library does
    scale = one_of(draw, 1.0, 2.0)
    want = run_onnx("MaxRoiPool", 1, [x, rois], pooled_shape=size, spatial_scale=scale)
    return case(f"{name} {size} {scale}", call_of(name, size, scale), [x, rois], want, "float32")


def multibox(draw: Any, name: str) -> Case:
    batch, classes, count = (number(draw, 1, k) for k in (2, 3, 5))
    logits, loc = (
        array(draw, (batch, classes, count), "float32"),
        array(draw, (batch, count * 4), "float32"),
    )
    anchor, variances = boxes(draw, 1, count), np.array((0.1, 0.1, 0.2, 0.2), np.float32)
    bar, cut, kept = (
        number(draw, 0, 2) / 4 + 0.1,
        one_of(draw, False, True),
        one_of(draw, False, True),
    )
    shift = loc.reshape(batch, count, 4) * variances
    size, middle = anchor[..., 2:] - anchor[..., :2], (anchor[..., 2:] + anchor[..., :2]) / 2
    center, half = shift[..., :2] * size + middle, np.exp(shift[..., 2:]) * size / 2
    want = np.concatenate([(center - half)[..., ::-1], (center + half)[..., ::-1]], -1)
    odds = torch.softmax(torch.from_numpy(logits), 1).numpy()
    odds = np.where(odds >= np.float32(bar), odds, 0)
    odds[:, 0] *= kept
    results = (np.clip(want, 0, 1) if cut else want, odds)
    make = call_of(name, cut, bar, tuple(variances.tolist()), kept)
    return Case(f"{name} {bar} {cut} {kept}", make, [logits, loc, anchor], results, 1e-4, 1e-5)


IMAGES: dict[str, Draw] = {
    "image.resize2d": resize,
    "image.resize3d": resize,
    "image.grid_sample": grid_sample,
    "image.affine_grid": affine_grid,
}
BOXES: dict[str, Draw] = {
    "vision.all_class_non_max_suppression": all_class_nms,
    "vision.get_valid_counts": get_valid_counts,
    "vision.non_max_suppression": classic_nms,
    "vision.roi_align": roi_align,
    "vision.roi_pool": roi_pool,
    "vision.multibox_transform_loc": multibox,
}


@examples(2)
@given(one_of_each(IMAGES, 3))
def test_images(drawn: list[Case]) -> None:
    check(drawn)


@examples(2)
@given(one_of_each(BOXES))
def test_boxes_and_regions(drawn: list[Case]) -> None:
    check(drawn)
