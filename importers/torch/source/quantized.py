"""Decompositions of ``quantized_decomposed``: what PT2E leaves in a graph for quantised networks.

The arithmetic is that of torch's own implementations, in their dtypes; those read scales given as
tensors as numbers, which a graph cannot, so here they stay tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

HALVES = (torch.float16, torch.bfloat16)


def _wide(x: Tensor) -> Tensor:
    """In float32 at least, which is what torch rounds in."""
    return x.to(torch.float32) if x.dtype in HALVES else x


def _as_bfloat16(x: Tensor) -> Tensor:
    """float32 rounded to what bfloat16 holds, by its bits: XLA leaves out conversions to bfloat16
    that are followed by one back.
    """
    bits = x.view(torch.int32)
    nearest = (bits + (0x7FFF + ((bits >> 16) & 1))) & -0x10000
    return torch.where(x.isnan(), x, nearest.view(torch.float32))


#: What rounds float32 to what a dtype holds after each step, as torch does.
_ROUNDED: dict[torch.dtype, Callable[[Tensor], Tensor]] = {
    torch.bfloat16: _as_bfloat16,
    torch.float16: lambda x: x.half().float(),
}


def _steps(x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """``x`` in float32 at least, and what rounds a step of a computation to its own dtype."""
    return _wide(x), _ROUNDED.get(x.dtype, lambda x: x)


def _share(x: Tensor, count: float) -> Tensor:
    """A quotient to the last digit of float32: XLA multiplies by the inverse of a constant."""
    return (x.to(torch.float64) / count).to(x.dtype)


def _scaled(x: Tensor, scales: Tensor, zero_points: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Numbers of steps as values."""
    gap = x if zero_points is None else x - zero_points
    made = gap * scales
    if made.dtype in HALVES:
        made = _ROUNDED[made.dtype](gap.to(torch.float32) * scales.to(torch.float32))
    return made.to(dtype)


# -- one scale for all ---------------------------------------------------------------------------
def _single(value: Any, dtype: torch.dtype) -> Any:
    """A number, also where it is in a tensor of one element."""
    return value.to(dtype).reshape(()) if isinstance(value, Tensor) else value


def _quantize_per_tensor(
    x: Tensor, scale: Any, zero_point: Any, low: Any, high: Any, dtype: torch.dtype
) -> Tensor:
    wide = _wide(x)
    inverse = _single(1.0 / _single(scale, torch.float64), torch.float32)
    shifted = torch.round(wide * inverse) + _single(zero_point, torch.float32)
    return torch.clamp(shifted, _single(low, wide.dtype), _single(high, wide.dtype)).to(dtype)


def _dequantize_per_tensor(
    x: Tensor,
    scale: Any,
    zero_point: Any,
    low: Any,
    high: Any,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    """Rounded to ``out_dtype`` after each step; numbers count with all their digits."""
    made = out_dtype or torch.float32
    wide = torch.float32 if made in HALVES else made
    gap = (x.to(made).to(wide) - _single(zero_point, wide)).to(made)
    return (gap.to(wide) * _single(scale, wide)).to(made)


def _choose(symmetric: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    def choose(
        x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The range of the data with 0 in it, on ``low`` to ``high``."""
        x, rounded = _steps(x)
        least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
        smallest = torch.full([1], eps, dtype=torch.float32, device=x.device)
        if symmetric:
            share = rounded(_share(torch.maximum(-least, most), (high - low) / 2))
            scale = torch.maximum(share, smallest)
            middle = 128 if dtype == torch.uint8 else 0
            zero_point = torch.full([1], middle, dtype=torch.int64, device=x.device)
        else:
            share = rounded(_share(rounded(most - least), float(high - low)))
            scale = torch.maximum(share, smallest)
            steps = torch.round(least / scale).to(torch.int32)
            zero_point = torch.clamp(low - steps, low, high).to(torch.int64)
        return scale.to(torch.float64), zero_point

    return choose


# -- one scale a channel -------------------------------------------------------------------------
def _along(values: Tensor, x: Tensor, axis: int) -> Tensor:
    shape = [1] * x.ndim
    shape[axis] = -1
    return values.reshape(shape)


def _quantize_per_channel(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
) -> Tensor:
    shifted = torch.round(_wide(x) * (1.0 / _along(scales, x, axis))) + _along(zero_points, x, axis)
    return torch.clamp(shifted, low, high).to(dtype)


def _dequantize_per_channel(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    axis: int,
    low: int,
    high: int,
    dtype: torch.dtype,
    *,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    zeros = None if zero_points is None else _along(zero_points, x, axis)
    return _scaled(x, _along(scales, x, axis), zeros, out_dtype or torch.float32)


# -- one scale a row, or a part of a row ---------------------------------------------------------
def _quantize_per_token(
    x: Tensor, scales: Tensor, zero_points: Tensor, low: int, high: int, dtype: torch.dtype
) -> Tensor:
    return torch.clamp(torch.round(x * (1.0 / scales) + zero_points), low, high).to(dtype)


def _dequantize_per_token(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    output_dtype: torch.dtype,
) -> Tensor:
    return _scaled(x, scales, zero_points, output_dtype)


def _choose_per_token(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """By the largest absolute value; in float32, or bfloat16 where ``x`` is."""
    if dtype != torch.int8:
        raise ValueError(
            f"choose_qparams_per_token chooses for torch.int8 alone, as in torch; got {dtype}"
        )
    made = torch.float32 if x.dtype == torch.float16 else x.dtype
    most = x.abs().amax(-1, keepdim=True).to(made).clamp(min=1e-5)
    scale = _share(_wide(most), 127).to(made)
    return scale, torch.zeros_like(scale)


def _choose_per_token_asymmetric(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """On -128 to 127, whatever ``dtype`` is, as in torch."""
    low, high = -128, 127
    x, rounded = _steps(x)
    least, most = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    share = rounded(_share(rounded(most - least), float(high - low)))
    scale = share.clamp(min=torch.finfo(torch.float32).eps)
    below, above = rounded(least / scale), rounded(most / scale)
    gaps = rounded(rounded(low + below) + rounded(high + above))
    at = torch.where(gaps > 0, rounded(low - below), rounded(high - above))
    return scale.to(torch.float64), torch.clamp(at, low, high).round().to(torch.int64)


def _groups(x: Tensor, scales: Tensor, size: int) -> Tensor:
    """Rows of ``size`` elements; all of a row of ``x`` where it is shorter and has one scale."""
    if size > x.shape[-1] and scales.shape[-1] == 1:
        size = x.shape[-1]
    return x.reshape(-1, size)


def _quantize_per_group(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor,
    low: int,
    high: int,
    dtype: torch.dtype,
    group_size: int = 128,
) -> Tensor:
    """Torch looks for NaN in ``x`` first; here it is not looked for."""
    rows, zeros = _groups(x, scales, group_size), zero_points.reshape(-1, 1)
    made = _quantize_per_token(rows, scales.reshape(-1, 1), zeros, low, high, dtype)
    return made.reshape(x.shape)


def _dequantize_per_group(
    x: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    low: int,
    high: int,
    dtype: torch.dtype,
    group_size: int = 128,
    output_dtype: torch.dtype = torch.float32,
) -> Tensor:
    rows = _groups(x, scales, group_size)
    zeros = None if zero_points is None else zero_points.reshape(-1, 1)
    return _scaled(rows, scales.reshape(-1, 1), zeros, output_dtype).reshape(x.shape)


def _converted(x: Tensor, dtype: torch.dtype) -> Tensor:
    return x.to(dtype)


# -- ATen -----------------------------------------------------------------------------------------
def _weight_int8pack_mm(x: Tensor, weight: Tensor, scales: Tensor) -> Tensor:
    """``x (m, k)`` by int8 rows ``weight (n, k)`` of one scale each."""
    made = x.to(torch.float32) @ weight.to(torch.float32).T
    return (made * scales.to(torch.float32)).to(x.dtype)


_OF_ATEN: dict[str, Callable[..., Any]] = {
    "_weight_int8pack_mm.default": _weight_int8pack_mm,
}


_BY_NAME: dict[str, Callable[..., Any]] = {
    "quantize_per_tensor.default": _quantize_per_tensor,
    "quantize_per_tensor.tensor": _quantize_per_tensor,
    "quantize_per_tensor.tensor2": _quantize_per_tensor,
    "dequantize_per_tensor.default": _dequantize_per_tensor,
    "dequantize_per_tensor.tensor": _dequantize_per_tensor,
    "dequantize_per_tensor.tensor2": _dequantize_per_tensor,
    "choose_qparams.tensor": _choose(symmetric=False),
    "choose_qparams_symmetric.tensor": _choose(symmetric=True),
    "quantize_per_channel.default": _quantize_per_channel,
    "dequantize_per_channel.default": _dequantize_per_channel,
    "quantize_per_token.default": _quantize_per_token,
    "dequantize_per_token.default": _dequantize_per_token,
    "choose_qparams_per_token.default": _choose_per_token,
    "choose_qparams_per_token_asymmetric.default": _choose_per_token_asymmetric,
    "_choose_qparams_per_token_asymmetric_impl.default": _choose_per_token_asymmetric,
    "quantize_per_channel_group.default": _quantize_per_group,
    "dequantize_per_channel_group.default": _dequantize_per_group,
    "convert_element_type.no_fuse": _converted,
}

#: By the operators' names: torch registers them when torch.ao's file is imported.
QUANTIZED = {
    **{f"quantized_decomposed.{name}": function for name, function in _BY_NAME.items()},
    **{f"aten.{name}": function for name, function in _OF_ATEN.items()},
}
