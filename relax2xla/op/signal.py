"""``relax.signal``: spectra: DFT, STFT, the Mel filter bank. Source: the operators of ONNX.

Complex numbers are pairs along the last axis. Transforms are ``stablehlo.fft``, in float32 for
narrower dtypes. Axes, lengths and steps may be symbolic: they are known when a program is lowered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from relax2xla import tir
from relax2xla.dtypes import dtype_info
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Constant, Expr
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import DTypeLike
from relax2xla.ir.struct_info import TensorStructInfo
from relax2xla.ir.traits import Opaque
from relax2xla.op.shared.checks import FLOAT, fold, norm_axis, tensor, want_tensor
from relax2xla.op.shared.lowering import convert, dtype_of, hlo, known, relax, scalar, shape_of
from relax2xla.tir import Dim

# Entries of a filter bank.
BANK_LIMIT = 1 << 24


def _is_number(*values: object) -> bool:
    return all(isinstance(v, int | float) for v in values)


def _parts(info: TensorStructInfo, name: str) -> None:
    """OpError for a last axis that holds no real or complex numbers."""
    if info.ndim != -1 and info.ndim < 2:
        raise OpError(f"`{name}` has rank {info.ndim}; its last axis holds the parts of a number")
    last = info.dims[-1] if info.dims else None
    if isinstance(last, int) and last not in (1, 2):
        raise OpError(f"the last dimension of `{name}` is {last}; it must be 1 (real) or 2")


def _lengths(size: Any, length: Any, inverse: bool, onesided: bool) -> tuple[Any, Any]:
    """Of a transform: its length, and how many values the result has."""
    if length is None:
        length = 2 * (size - 1) if inverse and onesided else size
    if isinstance(length, int) and length < 1:
        raise OpError(f"the transform has the length {length}; it must be positive")
    return length, length // 2 + 1 if onesided and not inverse else length


# ---- DFT
@op("relax.signal.dft", Opaque())
def dft(
    data: Expr,
    axis: int = 1,
    length: int | None = None,
    inverse: bool = False,
    onesided: bool = False,
) -> Rule:
    """The discrete Fourier transform along an axis, which is cut or padded with zeros to a length.

    data:   (*s, 1 or 2), floats: real numbers, or pairs of real and imaginary part
    axis:   one but the last; ``length``: by default that of the axis (with ``inverse`` and
            ``onesided`` 2 * (it - 1))
    onesided: only the first half of the result, or with ``inverse`` (a real result) of the input
    result: (*s, 2) with the transform along the axis, or (*s, 1) if it is real; dtype of ``data``
    Raises ``OpError`` for an axis that is none, and lengths that are not positive.
    Source: DFT of ONNX.
    """
    x = want_tensor(data, "data", FLOAT)
    _parts(x, "data")

    def lower() -> Expr:
        shape = shape_of(data)
        if not _is_number(axis, 0 if length is None else length, shape[-1]):
            raise LegalizeError("the axis, length and parts of a transform must be known")
        return _transformed(data, norm_axis(axis, len(shape)), length, inverse, onesided)

    if x.ndim == -1:
        return tensor(None, x.dtype, like=x), lower
    if not isinstance(axis, int):
        return tensor(None, x.dtype, x.ndim, x), lower
    at = norm_axis(axis, x.ndim)
    if at == x.ndim - 1:
        raise OpError("`axis` is the last one, which holds the parts of complex numbers")
    if x.dims is None:
        return tensor(None, x.dtype, x.ndim, x), lower
    dims = list(x.dims)
    dims[at] = fold(_lengths(dims[at], length, inverse, onesided)[1])
    dims[-1] = 1 if inverse and onesided else 2
    return tensor(tuple(dims), x.dtype, like=x), lower


def _transformed(x: Expr, at: int, length: int | None, inverse: bool, onesided: bool) -> Expr:
    shape, dtype = shape_of(x), dtype_of(x)
    parts, last = shape[-1], len(shape) - 1
    if not known(shape[at]):
        raise LegalizeError("the length of a signal must be known to transform it")
    size, _ = _lengths(shape[at], length, inverse, onesided)
    back = inverse and onesided
    x = convert(x, "float64" if dtype == "float64" else "float32")
    x = _fitted(x, at, size // 2 + 1 if back else size)
    # The axis becomes the last one of the complex tensor.
    order = [i for i in range(last) if i != at] + [at]
    planes = [_plane(x, i, order) for i in range(parts)]
    imag = planes[1] if parts == 2 else relax("zeros_like", planes[0])
    if back:
        made = hlo("fft", hlo("complex", planes[0], imag), fft_type="IRFFT", fft_length=[size])
        result: Expr = relax("expand_dims", made, axis=[last])
    else:
        if parts == 1 and not inverse:
            spectrum = _of_real(planes[0], size, onesided)
        else:
            spectrum = _of_complex(planes[0], imag, size, inverse, onesided)
        result = relax("stack", list(spectrum), axis=last)
    restored = [order.index(i) for i in range(last)] + [last]
    return convert(relax("permute_dims", result, axes=restored), dtype)


def _plane(x: Expr, part: int, order: Sequence[int]) -> Expr:
    last = len(order)
    plane = relax("strided_slice", x, axes=[last], begin=[part], end=[part + 1])
    return relax("permute_dims", relax("squeeze", plane, axis=[last]), axes=list(order))


def _fitted(x: Expr, axis: int, size: int) -> Expr:
    """``x`` cut or padded with zeros to ``size`` along ``axis``."""
    shape = shape_of(x)
    have = shape[axis]
    if have > size:
        return relax("strided_slice", x, axes=[axis], begin=[0], end=[size])
    if have < size:
        widths = [0] * (2 * len(shape))
        widths[2 * axis + 1] = size - have
        return relax("nn.pad", x, pad_width=widths)
    return x


def _of_real(x: Expr, length: int, onesided: bool) -> tuple[Expr, Expr]:
    """Real and imaginary part; the second half mirrors the first."""
    half = hlo("fft", x, fft_type="RFFT", fft_length=[length])
    real, imag = hlo("real", half), hlo("imag", half)
    rest = length - (length // 2 + 1)
    if onesided or not rest:
        return real, imag
    last = len(shape_of(x)) - 1
    mirrored = [
        relax("flip", relax("strided_slice", p, axes=[last], begin=[1], end=[rest + 1]), axis=last)
        for p in (real, imag)
    ]
    return (
        relax("concat", [real, mirrored[0]], axis=last),
        relax("concat", [imag, hlo("negate", mirrored[1])], axis=last),
    )


def _of_complex(
    real: Expr, imag: Expr, length: int, inverse: bool, onesided: bool
) -> tuple[Expr, Expr]:
    whole = hlo("complex", real, imag)
    made = hlo("fft", whole, fft_type="IFFT" if inverse else "FFT", fft_length=[length])
    parts = hlo("real", made), hlo("imag", made)
    if not onesided:
        return parts
    last = len(shape_of(real)) - 1
    end = length // 2 + 1
    first, second = (relax("strided_slice", p, axes=[last], begin=[0], end=[end]) for p in parts)
    return first, second


# ---- STFT
@op("relax.signal.stft", Opaque())
def stft(
    signal: Expr,
    window: Expr | None = None,
    frame_step: int = 1,
    frame_length: int | None = None,
    onesided: bool = True,
) -> Rule:
    """Transforms of frames of a signal, one after each ``frame_step`` values.

    signal: (n, size, 1 or 2), floats; window: (w,), what frames are multiplied with
    frame_length: of the transform, by default that of the window or else of the signal
    result: (n, frames, values of a transform, 2), dtype of ``signal``
    Raises ``OpError`` for a step or length that does not fit the signal.
    Source: STFT of ONNX.
    """
    x = want_tensor(signal, "signal", FLOAT, ndim=3)
    _parts(x, "signal")
    w = None if window is None else want_tensor(window, "window", FLOAT, ndim=1)

    def lower() -> Expr:
        size = shape_of(signal)[1]
        width = None if window is None else shape_of(window)[0]
        length = _frames(size, width, frame_step, frame_length)
        wide = length if width is None else width
        if not (_is_number(wide, length, frame_step) and known(wide, length)):
            raise LegalizeError("the step and the length of frames must be known")
        count = fold((size - length) // frame_step + 1)
        last = (count - 1) * frame_step + wide
        if wide > length and not (_is_number(size, last) and last <= size):
            raise OpError(f"a window of {wide} that is longer than the frames of {length}")
        starts = relax("multiply", relax("arange", 0, count, 1, dtype="int64"), _int(frame_step))
        positions = relax("add", relax("expand_dims", starts, axis=[1]), Constant(np.arange(wide)))
        frames: Expr = relax("take", signal, positions, axis=1)
        if window is not None:
            shaped = relax("reshape", convert(window, dtype_of(signal)), (1, 1, wide, 1))
            frames = relax("multiply", frames, shaped)
        return _transformed(frames, 2, length, False, onesided)

    if x.dims is None or (w is not None and w.dims is None):
        return tensor(None, x.dtype, 4, x), lower
    wide = None if w is None or w.dims is None else w.dims[0]
    length = _frames(x.dims[1], wide, frame_step, frame_length)
    count = fold((x.dims[1] - length) // frame_step + 1)
    values = fold(_lengths(length, length, False, onesided)[1])
    return tensor((x.dims[0], count, values, 2), x.dtype, like=x), lower


def _frames(size: Any, wide: Any, step: Any, length: Any) -> Any:
    """The length of frames. OpError for values that do not fit."""
    if length is None:
        length = size if wide is None else wide
    too_small = any(isinstance(v, int) and v < 1 for v in (step, length))
    if too_small or (_is_number(size, length) and length > size):
        raise OpError(f"frames of {length} with the step {step} in a signal of {size}")
    return length


def _int(value: int) -> Expr:
    return scalar(value, "int64")


# ---- the Mel filter bank
@op("relax.signal.mel_weight_matrix", Opaque())
def mel_weight_matrix(
    num_mel_bins: int,
    dft_length: int,
    sample_rate: int,
    lower_edge_hertz: float,
    upper_edge_hertz: float,
    dtype: DTypeLike = "float32",
) -> Rule:
    """Triangles between points that are equally far apart on the Mel scale, one a column.

    num_mel_bins: columns; dft_length: of the transforms that the matrix is applied to
    lower_edge_hertz, upper_edge_hertz: between which the points lie
    result: (dft_length // 2 + 1, num_mel_bins), ``dtype``
    Raises ``OpError`` for counts that are not positive and edges outside of the spectrum.
    Source: MelWeightMatrix of ONNX.
    """
    for name, value in (("num_mel_bins", num_mel_bins), ("dft_length", dft_length)):
        if isinstance(value, int) and value < 1:
            raise OpError(f"`{name}` must be positive; got {value}")
    rows: Dim = fold(tir.as_dim(dft_length) // 2 + 1)

    def lower() -> Expr:
        given = (num_mel_bins, dft_length, sample_rate, lower_edge_hertz, upper_edge_hertz)
        if not _is_number(*given):
            raise LegalizeError("the numbers of a filter bank must be known")
        return Constant(mel_bank(*given).astype(dtype_info(dtype or "float32").numpy))

    return TensorStructInfo((rows, tir.as_dim(num_mel_bins)), dtype or "float32"), lower


def mel_bank(
    bins: int, length: int, rate: int, lower: float, upper: float
) -> npt.NDArray[np.float64]:
    """The matrix of ``R.signal.mel_weight_matrix`` for numbers that are known; see there."""
    rows = length // 2 + 1
    if bins < 1 or length < 1 or rate < 1:
        raise OpError(
            "the number of Mel bins, the length of the transform and the sample rate must be "
            f"positive; got {bins}, {length} and {rate}"
        )
    if bins * rows > BANK_LIMIT:
        raise OpError(f"a filter bank of {rows} by {bins}; at most {BANK_LIMIT:,} in all")
    if not all(np.isfinite(e) and e > -700 for e in (lower, upper)):
        raise OpError(f"the edges {lower} and {upper} Hz are no frequencies")
    low, high = (2595 * np.log10(1 + e / 700) for e in (lower, upper))
    # The points lie one step of (bins + 2) apart, so that the last is below the upper edge.
    points = np.arange(bins + 2) * ((high - low) / (bins + 2)) + low
    hertz = 700 * (np.power(10, points / 2595) - 1)
    at = np.floor((length + 1) * hertz / rate)
    if at.min() < 0 or at.max() > rows:
        raise OpError(
            f"the edges {lower} and {upper} Hz lie outside a spectrum of {rows} bins at {rate} Hz"
        )
    at = at.astype(np.int64)
    left, centre, right = at[:-2], at[1:-1], at[2:]
    line = np.arange(rows)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        rising = (line - left) / (centre - left)
        falling = (right - line) / (right - centre)
    bank = np.where((line >= left) & (line <= centre) & (centre > left), rising, 0.0)
    bank = np.where((line == centre) & (centre == left), 1.0, bank)
    return np.where((line >= centre) & (line < right), falling, bank)
