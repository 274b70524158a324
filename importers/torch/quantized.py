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


def _scaled(x: Tensor, scales: Tensor, zero_points: Tensor | None, dtype: torch.dtype) -> Tensor:
    """Numbers of steps as values."""
    gap = x if zero_points is None else x - zero_points
    return (gap * scales).to(dtype)


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


def _as_bfloat16(x: Tensor) -> Tensor:
    """float32 rounded to what bfloat16 holds, by its bits: XLA leaves out conversions to bfloat16
    that are followed by one back.
    """
    bits = x.view(torch.int32)
    nearest = (bits + (0x7FFF + ((bits >> 16) & 1))) & -0x10000
    return torch.where(x.isnan(), x, nearest.view(torch.float32))


def _choose(symmetric: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    def choose(
        x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """The range of the data with 0 in it, on ``low`` to ``high``."""
        least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
        smallest = torch.full([1], eps, dtype=torch.float32, device=x.device)
        rounded: Callable[[Tensor], Tensor] = Tensor.clone
        if x.dtype == torch.bfloat16:
            least, most, rounded = least.float(), most.float(), _as_bfloat16
        if symmetric:
            share = rounded(torch.maximum(-least, most) / ((high - low) / 2))
            scale = torch.maximum(share, smallest)
            middle = 128 if dtype == torch.uint8 else 0
            zero_point = torch.full([1], middle, dtype=torch.int64, device=x.device)
        else:
            share = rounded(rounded(most - least) / float(high - low))
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


def _choose_per_token_asymmetric(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """On -128 to 127, whatever ``dtype`` is, as in torch."""
    low, high = -128, 127
    least, most = x.amin(-1, keepdim=True).clamp(max=0), x.amax(-1, keepdim=True).clamp(min=0)
    scale = ((most - least) / float(high - low)).clamp(min=torch.finfo(torch.float32).eps)
    below, above = least / scale, most / scale
    at = torch.where((low + below) + (high + above) > 0, low - below, high - above)
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
    "choose_qparams_per_token_asymmetric.default": _choose_per_token_asymmetric,
    "_choose_qparams_per_token_asymmetric_impl.default": _choose_per_token_asymmetric,
    "quantize_per_channel_group.default": _quantize_per_group,
    "dequantize_per_channel_group.default": _dequantize_per_group,
    "convert_element_type.no_fuse": _converted,
}

#: By the operators' names: torch registers them when torch.ao's file is imported.
QUANTIZED = {f"quantized_decomposed.{name}": function for name, function in _BY_NAME.items()}
