"""image.resample against torch's interpolate and ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from onnx.reference.ops.op_resize import Resize
from torch.nn import functional as F

from relax2xla import op, tir
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir import TensorStructInfo
from tests.op.harness import Case, check, tensor

RNG = np.random.default_rng(3)
N = tir.Var("n", "int64")


def reference(x: Any, **given: Any) -> Any:
    form = {
        "antialias": 0,
        "axes": None,
        "coordinate_transformation_mode": "half_pixel",
        "cubic_coeff_a": -0.75,
        "exclude_outside": 0,
        "extrapolation_value": 0.0,
        "keep_aspect_ratio_policy": "stretch",
        "mode": "nearest",
        "nearest_mode": "round_prefer_floor",
        "roi": None,
        "scales": None,
        "sizes": None,
        **given,
    }
    inputs = [
        None if form[n] is None else np.array(form.pop(n)) for n in ("roi", "scales", "sizes")
    ]
    left = {n: v for n, v in form.items() if n not in ("roi", "scales", "sizes")}
    return Resize._run(None, x, *inputs, **left)[0]  # pyright: ignore


def test_as_torch() -> None:
    x = RNG.normal(size=(2, 3, 5, 7)).astype(np.float32)
    cases: list[Case] = []
    for method, theirs, align in (("linear", "bilinear", False), ("cubic", "bicubic", True)):
        want = F.interpolate(torch.from_numpy(x), (8, 3), mode=theirs, align_corners=align).numpy()
        mode = "align_corners" if align else "half_pixel"
        cases.append(
            Case(
                theirs,
                lambda a, m=method, c=mode: op.image.resample(
                    a, [2, 3], [8, 3], method=m, coordinate_transformation_mode=c
                ),
                [x],
                want,
                2e-4,
                2e-5,
            )
        )
    check(cases)


FORMS: list[dict[str, Any]] = [
    {"scales": [1.3, 0.7], "mode": "linear"},
    {"scales": [0.6, 2.0], "mode": "cubic", "antialias": 1},
    {"sizes": [4, 9], "mode": "linear", "exclude_outside": 1},
    {"sizes": [4, 9], "keep_aspect_ratio_policy": "not_larger"},
    {"sizes": [4, 9], "keep_aspect_ratio_policy": "not_smaller", "nearest_mode": "ceil"},
    {
        "sizes": [3, 4],
        "mode": "linear",
        "coordinate_transformation_mode": "tf_crop_and_resize",
        "roi": [0.4, -0.2, 0.6, 1.4],
        "extrapolation_value": 10.0,
    },
]


@pytest.mark.parametrize("at", range(len(FORMS)))
def test_as_onnx(at: int) -> None:
    x = RNG.normal(size=(2, 6, 5)).astype(np.float32)
    form = dict(FORMS[at])
    want = reference(x, axes=[1, 2], **form)
    method = {"nearest": "nearest_neighbor"}.get(form.get("mode", "nearest"), form.get("mode"))

    def make(a: Any) -> Any:
        return op.image.resample(
            a,
            [1, 2],
            form.get("sizes"),
            form.get("scales", ()),
            form.get("roi", ()),
            method=method,
            coordinate_transformation_mode=form.get("coordinate_transformation_mode", "half_pixel"),
            rounding_method=form.get("nearest_mode", "round_prefer_floor"),
            cubic_exclude=bool(form.get("exclude_outside", 0)),
            antialias=bool(form.get("antialias", 0)),
            extrapolation_value=form.get("extrapolation_value", 0.0),
            keep_aspect_ratio_policy=form.get("keep_aspect_ratio_policy", "stretch"),
        )

    check([Case(str(form), make, [x], want, 2e-4, 2e-5)])


def test_inference_and_errors() -> None:
    x = tensor((2, N, 5))
    assert op.image.resample(x, [2], [7]).struct_info == TensorStructInfo((2, N, 7), "float32")
    by_scale = op.image.resample(x, [1], scales=[2.0]).struct_info
    assert isinstance(by_scale, TensorStructInfo)
    assert by_scale.ndim == 3
    scale = tir.reinterpret("float64", tir.Var("m", "int64"))
    made = op.image.resample(tensor((2, 4)), [1], scales=[scale])
    assert str(made.struct_info) == 'Tensor(ndim=2, dtype="float32")'
    lower: Any = op.image.resample.lowering
    with pytest.raises(LegalizeError, match="known"):
        lower(tensor((2, 4)), [1], scales=[scale])
    for bad, match in (
        ({"scales": [-1.0]}, "the scale -1.0 of axis 1"),
        ({"scales": [float("nan")]}, "the scale nan of axis 1"),
        ({"sizes": [-3]}, "the size -3 of axis 1"),
        ({"sizes": [3, 4]}, "2 `sizes` for 1 axes"),
        ({"sizes": [3], "scales": [1.0]}, "not both"),
        ({"sizes": [3], "method": "best"}, "`method` must be one of"),
        ({"sizes": [3], "keep_aspect_ratio_policy": "any"}, "`keep_aspect_ratio_policy`"),
    ):
        with pytest.raises(OpError, match=match):
            op.image.resample(tensor((2, 4)), [1], **bad)
