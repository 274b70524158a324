"""Singular values, eigenvalues and matrix exponentials against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check, check_table, imported, run  # noqa: E402

g = torch.Generator().manual_seed(9)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


A = randn(2, 4, 3)
_HALF = randn(3, 4, 4)
S = _HALF + _HALF.mT
Z = randn(3, 3, dtype=torch.complex64)


def _svd(x: Any) -> Any:
    """Signs of the vectors are open, their product is not."""
    u, s, vh = torch.linalg.svd(x, full_matrices=False)
    return s, (u * s.unsqueeze(-2)) @ vh


def _eigh(x: Any) -> Any:
    values, vectors = torch.linalg.eigh(x)
    return values, (vectors * values.unsqueeze(-2)) @ vectors.mH


def test_decompositions() -> None:
    la = torch.linalg
    check_table(
        {
            "svd": (_svd, A),
            "svd of complex matrices": (_svd, Z),
            "whole svd": (lambda x: [v.abs() for v in la.svd(x)], A[:, :, :2]),
            "singular values": (la.svdvals, A),
            "eigh": (_eigh, S),
            "eigh of complex matrices": (_eigh, Z + Z.mH),
            "eigvalsh": (lambda x: (la.eigvalsh(x), la.eigvalsh(x, UPLO="U")), S),
            "eigenvalues": (lambda x: la.eigvals(x).abs().sort()[0], Z),
            "eig": (lambda x: (lambda w, v: x @ v - v * w)(*la.eig(x)), Z),
        },
        scale=10,
    )


def test_functions() -> None:
    la = torch.linalg
    check_table(
        {
            "pinv": (lambda x: (la.pinv(x), la.pinv(x, rtol=0.3)), A),
            "pinv of Hermitian matrices": (lambda x: la.pinv(x, hermitian=True), S),
            "exp": (lambda x: (la.matrix_exp(x), la.matrix_exp(x * 0.01)), S),
            "exp of complex matrices": (la.matrix_exp, Z),
            "rank": (lambda x: la.matrix_rank(x), A[:, :, :2] @ A[:, :2]),
            "norms": (
                lambda x: [la.matrix_norm(x, p) for p in ("fro", "nuc", 2, -2, 1, float("inf"))],
                A,
            ),
            "cond": (lambda x: la.cond(x), A),
        },
        scale=10,
    )


@pytest.mark.skipif(torch.__version__ < "2.14", reason="torch has no such functions")
def test_functions_of_torch_2_14() -> None:
    la = torch.linalg
    positive = Z @ Z.mH
    check_table(
        {
            "polar": (la.polar, A[:, :, :2]),
            "polar of complex matrices": (la.polar, Z),
            "root": (la.matrix_sqrth, A.mT @ A),
            "root of complex matrices": (la.matrix_sqrth, positive),
            "root below 0": (la.matrix_sqrth, S),
        },
        scale=10,
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_exponentials_are_rounded_once(dtype: Any) -> None:
    """Eager torch computes them in these dtypes, and gets infinities in bfloat16."""
    x = (S / 4).to(dtype)
    (got,) = run(imported(torch.linalg.matrix_exp, [x]), [x])
    want = torch.linalg.matrix_exp(x.double()).to(dtype)
    assert str(got.dtype) == str(dtype).removeprefix("torch.")
    assert (got.astype("float32") == want.float().numpy()).all()


def test_matrices_without_rows_and_of_symbolic_columns() -> None:
    """LAPACK takes no empty matrices, so it must not be called."""
    sizes = {1: torch.export.Dim("columns", min=2)}
    check(torch.linalg.svd, (torch.ones(0, 3),), [sizes], [(torch.ones(0, 5),)])
