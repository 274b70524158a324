"""Converters under symbolic sizes: one import, run for the sizes of the export and two others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from .helpers import check  # noqa: E402

AUTO = torch.export.Dim.AUTO


def same_at(
    functions: Sequence[Callable[..., Any]], make: Callable[..., Any], *sizes: Sequence[int]
) -> None:
    """Eager torch's results of all functions, as one program, for inputs of the sizes.

    ``make`` gives the inputs for a tuple of sizes; the export is for the first of them.
    """
    torch.manual_seed(0)
    first, *others = ([*make(*s)] for s in sizes)
    symbolic = [{i: AUTO for i, n in enumerate(x.shape) if n > 1} for x in first]
    check(lambda *xs: [f(*xs) for f in functions], first, symbolic, others, scale=5)


def matrices(batch: int, n: int, m: int) -> list[Any]:
    """Well-conditioned square matrices, and right-hand sides."""
    x = torch.randn(batch, n, n)
    return [x @ x.mT + 3 * torch.eye(n), torch.randn(batch, n, m)]


def test_square_matrices() -> None:
    linalg = torch.linalg
    same_at(
        [
            lambda a, b: linalg.slogdet(a),
            lambda a, b: linalg.inv(a),
            lambda a, b: linalg.solve(a, b),
            lambda a, b: torch.cholesky_solve(b, linalg.cholesky(a)),
            lambda a, b: linalg.solve_triangular(a, b, upper=True),
            lambda a, b: linalg.eigh(a)[0],
            lambda a, b: torch.matrix_exp(a / 4),
        ],
        matrices,
        (3, 4, 2),
        (2, 5, 3),
        (4, 2, 6),
    )


def test_rectangular_matrices() -> None:
    """Of the factors that are unique but for signs the sizes of their elements."""
    linalg = torch.linalg
    same_at(
        [
            lambda x: linalg.lu(x),
            lambda x: [f.abs() for mode in ("reduced", "r") for f in linalg.qr(x, mode=mode)],
            lambda x: linalg.qr(x, mode="complete")[1].abs(),
            lambda x: [f.abs() for f in linalg.svd(x, full_matrices=False)],
            lambda x: linalg.pinv(x),
        ],
        lambda *s: [torch.randn(s)],
        (3, 4, 5),
        (2, 5, 4),
        (4, 3, 3),
    )


def test_transforms() -> None:
    fft = torch.fft
    same_at(
        [
            lambda x: [fft.fft(x, norm=norm) for norm in ("forward", "backward", "ortho")],
            lambda x: fft.ifft2(x),
            lambda x: fft.rfft2(x),
            lambda x: fft.fftn(x),
            lambda x: fft.irfft(fft.rfft(x), n=x.shape[-1]),
            lambda x: fft.hfft(torch.complex(x, 2 * x)),
        ],
        lambda *s: [torch.randn(s)],
        (3, 4, 5),
        (2, 5, 6),
        (4, 2, 2),
    )
