"""Special functions against eager torch and SciPy."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check_table, imported, run  # noqa: E402

INF, NAN = float("inf"), float("nan")
EDGES = [0.0, -0.0, 1e-30, 1e-8, INF, -INF, NAN]
REAL = torch.tensor(
    [*EDGES, 0.3, -0.3, 1.0, -1.0, 2.5, -2.5, 7.9, 8.1, 24.9, 25.1, 60.0, -60.0, 300.0],
    dtype=torch.float64,
)
POSITIVE = REAL[~(REAL < 0)]
CHANCES = torch.tensor([0.0, 1e-30, 1e-9, 0.3, 0.5, 0.99, 1.0, 1.2, NAN], dtype=torch.float64)
NAMES = {
    "airy_ai": REAL[4:16],
    **{f"bessel_{kind}": REAL for kind in ("j0", "j1")},
    **{f"bessel_{kind}": POSITIVE for kind in ("y0", "y1")},
    **{kind: REAL for kind in ("i0", "i0e", "i1", "i1e")},
    **{f"modified_bessel_{kind}": REAL for kind in ("i0", "i1")},
    **{f"modified_bessel_{kind}": POSITIVE for kind in ("k0", "k1")},
    **{f"scaled_modified_bessel_{kind}": POSITIVE for kind in ("k0", "k1")},
    "spherical_bessel_j0": REAL,
    "erfcx": REAL,
    "log_ndtr": REAL,
    "ndtri": CHANCES,
    "digamma": torch.tensor([0.0, -0.0, -1.0, -2.5, 0.4, 30.0, INF, NAN], dtype=torch.float64),
}


def test_functions_of_one_argument() -> None:
    table = {name: (getattr(torch.special, name), x.float()) for name, x in NAMES.items()}
    check_table(table)


def test_double_precision() -> None:
    """Against SciPy: torch's own Bessel functions are right to eight digits only."""
    x = [1e-300, 1e-20, 1e-9, 0.3, 2.5, 7.9, 8.1, 24.9, 25.1, 60.0]
    x = torch.tensor(x, dtype=torch.float64)
    names = {
        **{f"bessel_{k}": getattr(scipy.special, k) for k in ("j0", "j1", "y0", "y1")},
        **{f"modified_bessel_{k}": getattr(scipy.special, k) for k in ("i0", "i1", "k0", "k1")},
        "scaled_modified_bessel_k0": scipy.special.k0e,
        "scaled_modified_bessel_k1": scipy.special.k1e,
        "airy_ai": lambda v: scipy.special.airy(v)[0],
        "erfcx": scipy.special.erfcx,
        "log_ndtr": scipy.special.log_ndtr,
    }
    made = run(imported(lambda x: [getattr(torch.special, n)(x) for n in names], [x]), [x])
    for (name, function), got in zip(names.items(), made, strict=True):
        np.testing.assert_allclose(got, function(x.numpy()), rtol=1e-10, atol=1e-15, err_msg=name)


def test_lgamma_about_its_zeros() -> None:
    """Near 1 and 2 an error of ulps of 1 would be all of the value."""
    near = torch.linspace(-1e-3, 1e-3, 101)
    x = torch.cat([1 + near, 2 + near, torch.tensor([0.0, -1.0, -1.5, 1e10, INF, -INF, NAN])])
    (made,) = run(imported(torch.lgamma, [x]), [x])
    np.testing.assert_allclose(made, torch.lgamma(x.double()).numpy(), rtol=1e-6)


def test_gamma_and_zeta() -> None:
    a = torch.tensor([0.3, 1.0, 4.5, 40.0], dtype=torch.float64)[:, None]
    x = torch.tensor([0.0, 0.2, 1.0, 5.0, 38.0, 200.0], dtype=torch.float64)
    check_table(
        {
            "gammainc": (torch.special.gammainc, a, x),
            "gammaincc": (torch.special.gammaincc, a, x),
            "zeta": (torch.special.zeta, a + 1.1, x + 0.5),
            "polygamma": (lambda x: [torch.special.polygamma(n, x) for n in range(4)], x + 0.25),
            "polygamma below zero": (lambda x: torch.special.polygamma(1, x), -x - 0.25),
            "multigammaln": (lambda x: torch.special.multigammaln(x, 3), x + 1.5),
        }
    )


def test_limits_of_gamma_and_zeta() -> None:
    edges = torch.tensor([INF, NAN, 0.0, 2.0])
    check_table(
        {
            "trigamma": (lambda x: torch.polygamma(1, x), edges),
            "zeta of one": (lambda x: torch.special.zeta(1.0, x), edges),
        }
    )
