"""Images and volumes that are larger by a factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.image.resize import resize2d, resize3d
from relax2xla.topi.shared import FUNCTIONS, known, want_one_of


def _scaled(length: Any, scale: float) -> Any:
    """A size times a factor, rounded."""
    number = known(length)
    if number is not None:
        return round(number * scale)
    if float(scale).is_integer():
        return length * int(scale)
    wide = tir.cast("float32", length) * tir.const(scale, "float32")
    return tir.cast(length.dtype, FUNCTIONS["round"](wide))


def upsampling(
    data: te.Tensor,
    scale_h: float,
    scale_w: float,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Sequence[Any] | None = None,
) -> te.Tensor:
    """Larger by ``scale_h`` and ``scale_w``, by "nearest_neighbor", "bilinear" or "bicubic"."""
    want_one_of(method, ("nearest_neighbor", "bilinear", "bicubic"), "nn.upsampling: method")
    names = {"bilinear": "linear", "bicubic": "cubic"}
    if output_shape is not None:
        target = list(output_shape)
    else:
        target = [
            _scaled(data.shape[layout.index(c)], s)
            for c, s in zip("HW", (scale_h, scale_w), strict=True)
        ]
    mode = "align_corners" if align_corners else "asymmetric"
    return resize2d(data, (), target, layout, names.get(method, method), mode)


def upsampling3d(
    data: te.Tensor,
    scale_d: float,
    scale_h: float,
    scale_w: float,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
    output_shape: Sequence[Any] | None = None,
) -> te.Tensor:
    """As :func:`upsampling` along D, H and W, by "nearest_neighbor" or "trilinear"."""
    want_one_of(method, ("nearest_neighbor", "trilinear"), "nn.upsampling3d: method")
    if output_shape is not None:
        target = list(output_shape)
    else:
        target = [
            _scaled(data.shape[layout.index(c)], s)
            for c, s in zip("DHW", (scale_d, scale_h, scale_w), strict=True)
        ]
    linear = "linear" if method == "trilinear" else method
    return resize3d(data, (), target, layout, linear, coordinate_transformation_mode)
