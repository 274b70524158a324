"""Operators of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from relax2xla import te, topi
from relax2xla.ir import Expr
from relax2xla.transform.lower.te_forms.table import Form, Site, form, value_of_shape

_RESIZE: Final[dict[str, Callable[..., te.Tensor]]] = {
    "resize2d": topi.image.resize2d,
    "resize3d": topi.image.resize3d,
}


def _resize(name: str) -> Form:
    def rule(s: Site) -> Expr:
        attrs: dict[str, Any] = dict(s.attrs)
        roi = attrs["roi"]
        return s.te(
            _RESIZE[name],
            s.x,
            roi=None if roi is None else list(roi),
            size=value_of_shape(s.args[1]),
            layout=attrs["layout"],
            method=attrs["method"],
            coordinate_transformation_mode=attrs["coordinate_transformation_mode"],
            rounding_method=attrs["rounding_method"],
            bicubic_alpha=attrs["cubic_alpha"],
            bicubic_exclude=attrs["cubic_exclude"],
            extrapolation_value=attrs["extrapolation_value"],
            out_dtype=attrs["out_dtype"],
        )

    return rule


for _name in _RESIZE:
    form(f"relax.image.{_name}")(_resize(_name))
