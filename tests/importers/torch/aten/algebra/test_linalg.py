"""Factorisations, and solving linear equations, against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check_table  # noqa: E402

g = torch.Generator().manual_seed(5)


def randn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(*shape, generator=g, dtype=dtype)


A = randn(2, 4, 4) + 4 * torch.eye(4)
B = randn(2, 4, 3)
TALL = randn(2, 5, 3)
P = A @ A.mT
Z = randn(3, 3, dtype=torch.complex128) + 3 * torch.eye(3)
LU, PIVOTS = torch.linalg.lu_factor(A)
L = torch.linalg.cholesky(P)


def test_lu() -> None:
    la = torch.linalg
    check_table(
        {
            "lu_factor": (la.lu_factor, A),
            "lu": (lambda a, t: (*la.lu(a), *la.lu(t), *la.lu(t.mT)), A, TALL),
            "lu_unpack": (torch.lu_unpack, LU, PIVOTS),
            "lu_solve": (
                lambda f, p, b: (
                    la.lu_solve(f, p, b),
                    la.lu_solve(f, p, b, adjoint=True),
                    la.lu_solve(f, p, b.mT, left=False),
                ),
                LU,
                PIVOTS,
                B,
            ),
            "det": (lambda a, z: (la.det(a), *la.slogdet(a), la.det(z), *la.slogdet(z)), A, Z),
            "inv": (lambda a, z: (la.inv(a), *la.inv_ex(a), la.inv(z)), A, Z),
            "solve": (
                lambda a, b: (
                    la.solve(a, b),
                    la.solve(a, b[..., 0]),
                    la.solve(a, b.mT, left=False),
                ),
                A,
                B,
            ),
            "tensorinv": (lambda a: la.tensorinv(a.reshape(4, 2, 2), ind=1), A[0]),
            "tensorsolve": (
                lambda a, b: la.tensorsolve(a.reshape(2, 2, 4), b),
                A[0],
                B[0, :, 0].view(2, 2),
            ),
        },
        scale=5,
    )


@pytest.mark.filterwarnings("ignore:torch.triangular_solve is deprecated")
def test_triangles() -> None:
    la = torch.linalg
    check_table(
        {
            "solve_triangular": (
                lambda a, b: (
                    la.solve_triangular(a, b, upper=False),
                    la.solve_triangular(a, b, upper=True, unitriangular=True),
                    la.solve_triangular(a, b.mT, upper=True, left=False),
                ),
                L,
                B,
            ),
            "triangular_solve": (lambda a, b: torch.triangular_solve(b, a, upper=False)[0], L, B),
            "cholesky": (lambda p: (la.cholesky(p), la.cholesky(p, upper=True)), P),
            "cholesky_ex": (la.cholesky_ex, P),
            "cholesky_solve": (lambda b, f: torch.cholesky_solve(b, f), B, L),
            "cholesky_inverse": (torch.cholesky_inverse, L),
        },
        scale=20,
    )


def test_qr() -> None:
    la = torch.linalg
    check_table(
        {
            "reduced": (la.qr, TALL),
            "complete": (lambda a: (*la.qr(a, "complete"), *la.qr(a.mT)), TALL),
            "only R": (lambda a: la.qr(a, "r")[1], TALL),
            "geqrf": (torch.geqrf, TALL),
            "householder_product": (la.householder_product, *torch.geqrf(TALL)),
            "ormqr": (
                lambda a, tau, b: (
                    torch.ormqr(a, tau, b),
                    torch.ormqr(a, tau, b, transpose=True),
                    torch.ormqr(a, tau, b.mT, left=False),
                ),
                *torch.geqrf(TALL),
                randn(2, 5, 2),
            ),
            "complex": (la.qr, Z),
        },
        scale=5,
    )
