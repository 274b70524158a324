# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: spectra: DFT, STFT, the Mel filter bank. Windows are what their schemas define.

Complex numbers are pairs along the last axis. Transforms are ``stablehlo.fft``, in float32 for
narrower dtypes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import dtype_info
from relax2xla.importers._gaps import Unsupported
from relax2xla.importers.onnx import reader
from relax2xla.importers.onnx.context import Context, fold_dim, row
from relax2xla.importers.onnx.registry import Known, as_int, onnx_op
from relax2xla.importers.onnx.values import (
    Array,
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
    static,
)
from relax2xla.ir import Constant, Expr

# Entries of a filter bank that is made at import.
BANK_LIMIT = 1 << 24


def _fitted(x: Expr, axis: int, size: int) -> Expr:
    """``x`` cut or padded with zeros to ``size`` along ``axis``."""
    have = static(dims_of(x)[axis], "the length of the signal")
    if have > size:
        return R.strided_slice(x, [axis], [0], [size])
    if have < size:
        widths = [0] * (2 * ndim_of(x))
        widths[2 * axis + 1] = size - have
        return R.nn.pad(x, widths)
    return x


def _transform(
    ctx: Context, x: Expr, length: int | None, axis: int, inverse: bool, onesided: bool
) -> Expr:
    """The transform of ``x`` (..., 1 or 2) along ``axis``."""
    ndim = ndim_of(x)
    at = axis_of(axis, ndim)
    if at == ndim - 1:
        raise ValueError("the last axis holds the parts of complex numbers")
    parts = static(dims_of(x)[-1], "the last dimension")
    if parts not in (1, 2):
        raise ValueError(f"the last dimension is {parts}; it must be 1 (real) or 2 (complex)")
    dtype = dtype_of(x)
    kind = "float64" if dtype == "float64" else "float32"
    size = static(dims_of(x)[at], "the length of the signal")
    if length is None:
        length = 2 * (size - 1) if inverse and onesided else size
    if length < 1:
        raise ValueError(f"dft_length={length}")
    back = inverse and onesided
    x = _fitted(ctx.cast(x, kind), at, length // 2 + 1 if back else length)
    last = ndim - 1
    # The axis becomes the last one of the complex tensor.
    order = [i for i in range(last) if i != at] + [at]
    planes = [
        ctx.emit(R.permute_dims(R.squeeze(R.strided_slice(x, [last], [i], [i + 1]), [last]), order))
        for i in range(parts)
    ]
    if back:
        imag = planes[1] if parts == 2 else R.zeros_like(planes[0])
        made = row("fft", row("complex", planes[0], imag), fft_type="IRFFT", fft_length=[length])
        result = R.expand_dims(made, [last])
    else:
        if parts == 1 and not inverse:
            spectrum = _of_real(ctx, planes[0], length, onesided)
        else:
            spectrum = _of_complex(ctx, planes, length, inverse, onesided)
        result = R.stack(list(spectrum), last)
    restored = [order.index(i) for i in range(last)] + [last]
    return ctx.cast(R.permute_dims(result, restored), dtype)


def _of_real(ctx: Context, x: Expr, length: int, onesided: bool) -> tuple[Expr, Expr]:
    """Real and imaginary part; the second half mirrors the first."""
    half = ctx.emit(row("fft", x, fft_type="RFFT", fft_length=[length]))
    real, imag = ctx.emit(row("real", half)), ctx.emit(row("imag", half))
    rest = length - (length // 2 + 1)
    if onesided or not rest:
        return real, imag
    last = ndim_of(x) - 1
    mirrored = [R.flip(R.strided_slice(p, [last], [1], [rest + 1]), last) for p in (real, imag)]
    return (
        R.concat([real, mirrored[0]], last),
        R.concat([imag, R.negative(mirrored[1])], last),
    )


def _of_complex(
    ctx: Context, planes: Sequence[Expr], length: int, inverse: bool, onesided: bool
) -> tuple[Expr, Expr]:
    imag = planes[1] if len(planes) == 2 else R.zeros_like(planes[0])
    whole = row("complex", planes[0], imag)
    made = row("fft", whole, fft_type="IFFT" if inverse else "FFT", fft_length=[length])
    made = ctx.emit(made)
    parts = row("real", made), row("imag", made)
    if not onesided:
        return parts
    last = ndim_of(planes[0]) - 1
    real, imag = (R.strided_slice(p, [last], [0], [length // 2 + 1]) for p in parts)
    return real, imag


def _number(value: Array | None, what: str) -> int | None:
    return None if value is None else as_int(value, what)


@onnx_op("DFT", since=17)
def dft_attribute(
    ctx: Context,
    input: Expr,
    dft_length: Known | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    length = _number(dft_length, "dft_length")
    return _transform(ctx, input, length, axis, bool(inverse), bool(onesided))


@onnx_op("DFT", since=20)
def dft(
    ctx: Context,
    input: Expr,
    dft_length: Known | None = None,
    axis: Known | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    at = _number(axis, "axis")
    length = _number(dft_length, "dft_length")
    return _transform(ctx, input, length, -2 if at is None else at, bool(inverse), bool(onesided))


@onnx_op("STFT", since=17)
def stft(
    ctx: Context,
    signal: Expr,
    frame_step: Known,
    window: Expr | None = None,
    frame_length: Known | None = None,
    *,
    onesided: int = 1,
) -> Expr:
    """Frames of the window's length (or ``frame_length``), transformed at ``frame_length``."""
    step = as_int(frame_step, "frame_step")
    size = dims_of(signal)[1]
    width = None if window is None else static(dims_of(window)[0], "the length of the window")
    length = _number(frame_length, "frame_length")
    if length is None:
        length = static(size, "the length of the signal") if width is None else width
    if step < 1 or length < 1 or (isinstance(size, int) and length > size):
        raise ValueError(f"frames of {length} with the step {step} in a signal of {size}")
    wide = length if width is None else width
    count = fold_dim((size - length) // step + 1)
    last = (count - 1) * step + wide
    if wide > length and not (isinstance(size, int) and isinstance(last, int) and last <= size):
        raise Unsupported(f"a window of {wide} that is longer than the frames of {length}")
    starts = R.multiply(R.arange(0, count, 1, "int64"), scalar(step, "int64"))
    positions = R.add(R.expand_dims(starts, [1]), Constant(np.arange(wide)))
    frames = R.take(signal, positions, 1)
    if window is not None:
        shaped = R.reshape(ctx.cast(window, dtype_of(signal)), (1, 1, wide, 1))
        frames = R.multiply(frames, shaped)
    return _transform(ctx, ctx.emit(frames), length, 2, False, bool(onesided))


@onnx_op("MelWeightMatrix", since=17)
def mel_weight_matrix(
    ctx: Context,
    num_mel_bins: Known,
    dft_length: Known,
    sample_rate: Known,
    lower_edge_hertz: Known,
    upper_edge_hertz: Known,
    *,
    output_datatype: int = 1,
) -> Any:
    """Triangles between points that are equally far apart on the Mel scale, made at import."""
    bins, length = as_int(num_mel_bins, "num_mel_bins"), as_int(dft_length, "dft_length")
    rate = as_int(sample_rate, "sample_rate")
    rows = length // 2 + 1
    if bins < 1 or length < 1 or rate < 1:
        raise ValueError("num_mel_bins, dft_length and sample_rate must be positive")
    if bins * rows > BANK_LIMIT:
        raise Unsupported(f"a filter bank of {rows} by {bins}")
    low, high = (
        2595 * np.log10(1 + float(e.reshape(())) / 700)
        for e in (lower_edge_hertz, upper_edge_hertz)
    )
    # The points lie one step of (bins + 2) apart, so that the last is below the upper edge.
    points = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    hertz = 700 * (np.power(10, points / 2595) - 1)
    at = np.floor((length + 1) * hertz / rate).astype(np.int64)
    if at.min() < 0 or at.max() > rows:
        raise ValueError(f"the edges lie outside a spectrum of {rows} bins at {rate} Hz")
    left, centre, right = at[:-2], at[1:-1], at[2:]
    line = np.arange(rows)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = (line - left) / (centre - left)
        falling = (right - line) / (right - centre)
    bank = np.where((line >= left) & (line <= centre) & (centre > left), rising, 0.0)
    bank = np.where((line == centre) & (centre == left), 1.0, bank)
    bank = np.where((line >= centre) & (line < right), falling, bank)
    dtype = reader.dtype_of_code(output_datatype, "MelWeightMatrix").name
    return bank.astype(dtype_info(dtype).numpy)
