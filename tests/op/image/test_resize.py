"""Resizing: values against torch and onnx's reference, struct info, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import tir
from relax2xla.errors import OpError
from relax2xla.ir import TensorStructInfo, Var
from relax2xla.op import image
from tests.op.nn.support import Batch

SIZES = [(8, 10), (3, 9), (7, 5), (4, 5), (1, 1), (5, 11)]


def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).to(dtype)


def test_against_torch() -> None:
    batch = Batch()
    x = random(2, 3, 4, 5)
    v, last = batch.var(x), batch.var(x.permute(0, 2, 3, 1).contiguous())
    for size in SIZES:
        want = F.interpolate(x, size, mode="nearest")
        keywords: dict[str, Any] = {"method": "nearest_neighbor", "rounding_method": "floor"}
        made = image.resize2d(v, size, coordinate_transformation_mode="asymmetric", **keywords)
        batch.add(f"nearest {size}", made, want, 0)
        want = F.interpolate(x, size, mode="nearest-exact")
        keywords = {"method": "nearest_neighbor", "rounding_method": "round_prefer_ceil"}
        batch.add(f"nearest-exact {size}", image.resize2d(v, size, **keywords), want, 0)
        for mode, method in (("bilinear", "linear"), ("bicubic", "cubic")):
            want = F.interpolate(x, size, mode=mode)
            batch.add(f"{mode} {size}", image.resize2d(v, size, method=method), want)
            made = image.resize2d(last, size, method=method, layout="NHWC")
            batch.add(f"NHWC {mode} {size}", made, want.permute(0, 2, 3, 1))
            want = F.interpolate(x, size, mode=mode, align_corners=True)
            keywords = {"coordinate_transformation_mode": "align_corners"}
            made = image.resize2d(v, size, method=method, **keywords)
            batch.add(f"corners {mode} {size}", made, want)
    y = random(1, 2, 3, 4, 5)
    want = F.interpolate(y, (5, 3, 7), mode="trilinear")
    batch.add("3d", image.resize3d(batch.var(y), (5, 3, 7)), want)
    batch.check()


ONNX_CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("half_pixel", {}, {}),
    ("asymmetric", {}, {}),
    ("align_corners", {}, {}),
    ("pytorch_half_pixel", {}, {}),
    (
        "tf_crop_and_resize",
        {"extrapolation_value": 9.0},
        {"roi": np.array([0.4, 0.6, 1.2, 0.7], np.float32)},
    ),
    ("half_pixel", {"exclude_outside": 1}, {}),
]
ROUNDINGS = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]


def resize_reference(x: Any, size: Any, roi: Any, **attributes: Any) -> Any:
    """ONNX's own Resize of all axes but the first two."""
    axes = list(range(2, x.ndim))
    if attributes["coordinate_transformation_mode"] == "pytorch_half_pixel":
        # A single point lies at 0, says ONNX's text, and ONNX Runtime does; the reference takes
        # -0.5 instead, which a cubic kernel sees. Where it is asymmetric, it is at 0 there, too.
        points = [a for a, s in zip(axes, size, strict=True) if s == 1]
        at_zero = {**attributes, "coordinate_transformation_mode": "asymmetric"}
        x = reference_along(points, x, [1] * len(points), roi, **at_zero)
        axes = [a for a in axes if a not in points]
        size = [s for s in size if s != 1]
    return reference_along(axes, x, size, roi, **attributes)


def reference_along(axes: list[int], x: Any, size: Any, roi: Any, **attributes: Any) -> Any:
    """ONNX's own Resize of some axes."""
    if not axes:
        return x
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    names = ["x", "roi", "", "size"]
    node = onnx.helper.make_node("Resize", names, ["y"], axes=axes, **attributes)
    infos = [
        onnx.helper.make_tensor_value_info(n, t, None)
        for n, t in (("x", 1), ("roi", 1), ("size", 7))
    ]
    out = onnx.helper.make_tensor_value_info("y", 1, None)
    graph = onnx.helper.make_graph([node], "g", infos, [out])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    feeds = {"x": x, "roi": roi, "size": np.array(size, np.int64)}
    return ReferenceEvaluator(model).run(None, feeds)[0]


def test_against_onnx() -> None:
    batch = Batch()
    x = random(1, 1, 4, 5).numpy()
    v = batch.var(x)
    for size in ((8, 10), (3, 9)):
        for mode, extra, inputs in ONNX_CASES:
            roi = inputs.get("roi", np.zeros(0, np.float32))
            keywords: dict[str, Any] = {
                "coordinate_transformation_mode": mode,
                "roi": roi.tolist() or None,
                "extrapolation_value": extra.get("extrapolation_value", 0.0),
            }
            for method in ("linear", "cubic"):
                if extra.get("exclude_outside") and method == "linear":
                    continue
                want = resize_reference(
                    *(x, size, roi), mode=method, coordinate_transformation_mode=mode, **extra
                )
                exclude = extra.get("exclude_outside", 0)
                made = image.resize2d(v, size, method=method, cubic_exclude=exclude, **keywords)
                batch.add(f"{method} {mode} {size} {extra}", made, np.float32(want))
            for rounding in ROUNDINGS:
                want = resize_reference(
                    *(x, size, roi),
                    mode="nearest",
                    coordinate_transformation_mode=mode,
                    nearest_mode=rounding,
                    **{k: a for k, a in extra.items() if k == "extrapolation_value"},
                )
                keywords.update(method="nearest_neighbor", rounding_method=rounding)
                made = image.resize2d(v, size, **keywords)
                batch.add(f"{rounding} {mode} {size}", made, np.float32(want), 0)
                keywords.pop("method")
    batch.check()


def test_dtypes() -> None:
    batch = Batch()
    x = random(1, 1, 4, 4, dtype=torch.float16)
    want = F.interpolate(x.float(), (7, 7), mode="bilinear").half()
    batch.add("half", image.resize2d(batch.var(x), (7, 7)), want, 2e-3)
    made = image.resize2d(batch.var(x), 7, out_dtype="float32")
    batch.add("out_dtype", made, F.interpolate(x.float(), (7, 7), mode="bilinear"), 1e-5)
    i = np.arange(16, dtype=np.uint8).reshape(1, 1, 4, 4)
    made = image.resize2d(batch.var(i), 8, None, "NCHW", "nearest_neighbor", "asymmetric", "floor")
    batch.add("uint8", made, i.repeat(2, 2).repeat(2, 3))
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


def test_struct_info() -> None:
    n = tir.Var("n", "int64")
    assert image.resize2d(tensor(n, 3, 8, 8), (n, 4)).struct_info.dims == (n, 3, n, 4)
    made = image.resize2d(tensor(n, 8, 8, 3), 4, layout="NHWC", out_dtype="float16")
    assert made.struct_info == TensorStructInfo((n, 4, 4, 3), "float16")
    unknown = image.resize3d(Var("x", TensorStructInfo()), (2, 3, 4))
    assert unknown.struct_info == TensorStructInfo(ndim=5)


X = tensor(1, 3, 8, 8)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: image.resize2d(tensor(3, 8, 8), 4), "`data` must have rank 4"),
        (lambda: image.resize2d(X, (4, 4, 4)), "`size` must have 1 or 2 dimensions"),
        (lambda: image.resize2d(X, X), "`size` must be a shape"),
        (lambda: image.resize2d(X, 4, method="area"), "`method` must be one of 'nearest_neighbor'"),
        (lambda: image.resize2d(X, 4, rounding_method="up"), "`rounding_method` must be one of"),
        (lambda: image.resize2d(X, 4, layout="NCHW4c"), "must have rank 5"),
        (lambda: image.resize2d(X, 4, roi=(0.0, 1.0, 2.0)), "`roi` must have 4 numbers"),
        (
            lambda: image.resize2d(X, 4, coordinate_transformation_mode="center"),
            "`coordinate_transformation_mode` must be one of",
        ),
        (
            lambda: image.resize2d(X, 4, coordinate_transformation_mode="tf_crop_and_resize"),
            "needs a `roi`",
        ),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        call()
