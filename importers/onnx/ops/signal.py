# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: spectra: DFT, STFT, the Mel filter bank, which are operators of Relax.

Windows are what their schemas define.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import dtype_info
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.converters import Floats, Ints, one, onnx_op
from relax2xla.importers.onnx.engine.known_values import info_of, ndim_of
from relax2xla.importers.onnx.read.tensors import dtype_of_code
from relax2xla.ir import Expr
from relax2xla.op.signal import mel_bank


def _one(values: Sequence[Any] | None, what: str) -> Any:
    return None if values is None else one(values, what)


@onnx_op("DFT", since=17, attributes="axis", axis=1)
@onnx_op("DFT", since=20)
def dft(
    ctx: Context,
    input: Expr,
    dft_length: Ints | None = None,
    axis: Ints | int | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
) -> Expr:
    at = -2 if axis is None else axis if isinstance(axis, int) else _one(axis, "axis")
    length = _one(dft_length, "dft_length")
    made = R.signal.dft(input, at, length, bool(inverse), bool(onesided))
    return made if info_of(made).dims is not None else ctx.pinned(made, [None] * ndim_of(input))


@onnx_op("STFT", since=17)
def stft(
    ctx: Context,
    signal: Expr,
    frame_step: Ints,
    window: Expr | None = None,
    frame_length: Ints | None = None,
    *,
    onesided: int = 1,
) -> Expr:
    step, length = _one(frame_step, "frame_step"), _one(frame_length, "frame_length")
    if window is not None:
        return R.signal.stft(signal, window, step, length, bool(onesided))
    return R.signal.stft(signal, frame_step=step, frame_length=length, onesided=bool(onesided))


@onnx_op("MelWeightMatrix", since=17)
def mel_weight_matrix(
    ctx: Context,
    num_mel_bins: Ints,
    dft_length: Ints,
    sample_rate: Ints,
    lower_edge_hertz: Floats,
    upper_edge_hertz: Floats,
    *,
    output_datatype: int = 1,
) -> Any:
    dtype = dtype_of_code(output_datatype, "MelWeightMatrix").name
    bins, length, rate, lower, upper = given = [
        _one(v, n)
        for v, n in (
            (num_mel_bins, "num_mel_bins"),
            (dft_length, "dft_length"),
            (sample_rate, "sample_rate"),
            (lower_edge_hertz, "lower_edge_hertz"),
            (upper_edge_hertz, "upper_edge_hertz"),
        )
    ]
    if all(isinstance(v, int | float) for v in given):
        return mel_bank(bins, length, rate, lower, upper).astype(dtype_info(dtype).numpy)
    return R.signal.mel_weight_matrix(bins, length, rate, lower, upper, dtype)
