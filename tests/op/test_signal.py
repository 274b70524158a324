"""Spectra against numpy's, and against ONNX's reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from relax2xla import op, tir
from relax2xla.errors import OpError
from tests.op.harness import Case, check, tensor

RNG = np.random.default_rng(5)
N = tir.Var("n", "int64")


def pairs(x: Any, real: bool = False) -> Any:
    parts = [x.real] if real else [x.real, x.imag]
    return np.stack(parts, -1).astype(np.float32)


def case(x: Any, want: Any, *given: Any) -> Case:
    return Case(str(given), lambda a: op.signal.dft(a, *given), [x], want, 1e-4, 1e-4)


def test_dft_as_numpy() -> None:
    z = (RNG.normal(size=(3, 6, 5)) + 1j * RNG.normal(size=(3, 6, 5))).astype(np.complex64)
    real = z.real
    one = real[..., None]
    check(
        [
            case(pairs(z), pairs(np.fft.fft(z, axis=1)), 1),
            case(pairs(z), pairs(np.fft.fft(z, 8, axis=-1)), -2, 8),
            case(pairs(z), pairs(np.fft.ifft(z, 4, axis=0)), 0, 4, True),
            case(one, pairs(np.fft.fft(real, axis=2)), 2),
            case(one, pairs(np.fft.rfft(real, axis=1)), 1, None, False, True),
            case(pairs(z), pairs(np.fft.irfft(z, axis=1), True), 1, None, True, True),
            case(pairs(z), pairs(np.fft.irfft(z, 7, axis=1), True), 1, 7, True, True),
        ]
    )


def onnx(op_type: str, arrays: list[Any], **attributes: Any) -> Any:
    names = [f"x{i}" if a is not None else "" for i, a in enumerate(arrays)]
    node = helper.make_node(op_type, names, ["y"], **attributes)
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in zip(names, arrays, strict=True)
        if a is not None
    ]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    given = {n: a for n, a in zip(names, arrays, strict=True) if a is not None}
    return ReferenceEvaluator(model).run(None, given)[0]


@pytest.mark.parametrize("windowed", [False, True])
def test_stft_as_onnx(windowed: bool) -> None:
    x = RNG.normal(size=(2, 32, 1)).astype(np.float32)
    window = np.hanning(8).astype(np.float32)
    step, length = np.array(4), np.array(8)
    want = onnx("STFT", [x, step, window if windowed else None, length], onesided=1)
    if windowed:
        check([Case("w", lambda a, w: op.signal.stft(a, w, 4, 8), [x, window], want, 1e-4, 1e-4)])
    else:
        make = lambda a: op.signal.stft(a, frame_step=4, frame_length=8)  # noqa: E731
        check([Case("plain", make, [x], want, 1e-4, 1e-4)])


def test_mel_weight_matrix_as_onnx() -> None:
    given = [np.array(v) for v in (8, 16, 8192)] + [np.float32(0), np.float32(4096)]
    want = onnx("MelWeightMatrix", given)
    zero = np.zeros((9, 8), np.float32)

    def make(a: Any) -> Any:
        return op.add(a, op.signal.mel_weight_matrix(8, 16, 8192, 0.0, 4096.0))

    check([Case("mel", make, [zero], want, 1e-6, 1e-6)])


def test_inference_and_errors() -> None:
    x = tensor((2, 8, 1))
    axis = op.signal.dft(x, N).struct_info
    assert str(axis) == 'Tensor(ndim=3, dtype="float32")'
    assert str(op.signal.dft(x, 1, N).struct_info) == 'Tensor((2, n, 2), dtype="float32")'
    frames = op.signal.stft(x, frame_step=N, frame_length=4).struct_info
    assert str(frames) == 'Tensor((2, 4 // n + 1, 3, 2), dtype="float32")'
    bank = op.signal.mel_weight_matrix(N, 16, 8, 0.0, 1.0).struct_info
    assert str(bank) == 'Tensor((9, n), dtype="float32")'
    for wrong, match in (
        (lambda: op.signal.dft(x, 2), "`axis` is the last one"),
        (lambda: op.signal.dft(x, 5), "axis 5 is out of range"),
        (lambda: op.signal.dft(x, 1, 0), "the length 0"),
        (lambda: op.signal.dft(tensor((2, 8, 3)), 1), "the last dimension of `data` is 3"),
        (lambda: op.signal.stft(x, frame_step=0), "the step 0"),
        (lambda: op.signal.stft(x, frame_step=1, frame_length=9), "frames of 9"),
        (lambda: op.signal.mel_weight_matrix(0, 16, 8, 0.0, 1.0), "`num_mel_bins`"),
    ):
        with pytest.raises(OpError, match=match):
            wrong()
