"""Floats as integers with scale and zero point, and back."""

from __future__ import annotations

from typing import Any

from relax2xla import te, tir
from relax2xla.ir import Expr
from relax2xla.topi.shared import FUNCTIONS
from relax2xla.transform.lower.te_forms.table import Form, Site, form, scalar


def _clipped(value: Any, dtype: str) -> Any:
    """``value`` in ``dtype``, whose limits it does not go beyond."""
    low, high = FUNCTIONS["min_value"](dtype), FUNCTIONS["max_value"](dtype)
    return tir.cast(dtype, tir.max(tir.min(value, high), low))


def _at(x: Any, index: Any) -> Any:
    """The value for a place along the axis: of a vector, or the one that there is."""
    if not isinstance(x, te.Tensor):
        return x
    return x(index) if x.ndim else x()


def quantize(data: te.Tensor, scale: Any, zero: Any, axis: int, dtype: str) -> te.Tensor:
    """clip(round(data / scale) + zero)."""

    def element(*i: Any) -> Any:
        made = data(*i) / _at(scale, i[axis])
        made = FUNCTIONS["round"](made) if "int" in dtype else made
        return _clipped(made + _at(zero, i[axis]), dtype)

    return te.compute(data.shape, element, name="quantized")


def dequantize(data: te.Tensor, scale: Any, zero: Any, axis: int, dtype: str) -> te.Tensor:
    """(data - zero) * scale, in float32."""
    wide = "float32" if "float" in data.dtype else "int32"

    def element(*i: Any) -> Any:
        off = tir.cast(wide, data(*i)) - _at(zero, i[axis])
        made = off * tir.cast("float32", _at(scale, i[axis]))
        return made if dtype == "float32" else _clipped(made, dtype)

    return te.compute(data.shape, element, name="dequantized")


def _form(func: Any) -> Form:
    def rule(s: Site) -> Expr:
        given = scalar(s.args[1]), scalar(s.args[2])
        return s.te(func, s.x, *given, s.attrs["axis"], s.attrs["out_dtype"])

    return rule


for _func in (quantize, dequantize):
    form(f"relax.{_func.__name__}")(_form(_func))
