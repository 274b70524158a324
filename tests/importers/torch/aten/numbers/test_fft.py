"""Fourier transforms against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check_table  # noqa: E402

g = torch.Generator().manual_seed(3)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


X = randn(3, 4, 6)
Z = randn(3, 4, 6, dtype=torch.complex64)


def test_transforms() -> None:
    fft = torch.fft
    norms = ("forward", "backward", "ortho")
    check_table(
        {
            "fft": (lambda z: [fft.fft(z, norm=n) for n in norms], Z),
            "ifft": (lambda z: [fft.ifft(z, norm=n, dim=1) for n in norms], Z),
            "rfft": (lambda x: [fft.rfft(x, norm=n) for n in norms], X),
            "irfft": (lambda z: [fft.irfft(z, norm=n) for n in norms], Z),
            "sizes": (lambda x: (fft.rfft(x, n=5), fft.rfft(x, n=9, dim=0), fft.fft(x, n=3)), X),
            "odd": (lambda z: (fft.irfft(z, n=7), fft.irfft(z, n=5, dim=1)), Z),
            "several axes": (lambda z: (fft.fftn(z), fft.ifft2(z), fft.fftn(z, dim=(0, 2))), Z),
            "several real axes": (lambda x: (fft.rfftn(x), fft.rfft2(x, dim=(2, 0))), X),
            "real results of several axes": (lambda z: (fft.irfftn(z), fft.irfft2(z)), Z),
            "Hermitian": (lambda z, x: (fft.hfft(z), fft.ihfft(x)), Z, X),
            "shifts": (lambda x: (fft.fftshift(x), fft.ifftshift(x, dim=1)), X),
        },
        scale=5,
    )


def test_windows() -> None:
    window = torch.hann_window(8)
    check_table(
        {
            "stft": (
                lambda x, w: torch.stft(x, 8, 3, window=w, return_complex=True),
                randn(2, 30),
                window,
            ),
            "istft": (
                lambda z, w: torch.istft(z, 8, 3, window=w, length=30),
                torch.stft(randn(2, 30), 8, 3, window=window, return_complex=True),
                window,
            ),
        },
        scale=5,
    )
