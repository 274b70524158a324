"""Views by strides, and parts at places, against eager torch."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from .helpers import check, check_table  # noqa: E402

X = torch.arange(24.0).reshape(2, 3, 4)
LINE = torch.arange(10)


def test_strides() -> None:
    check_table(
        {
            "as_strided": (
                lambda x: (x.as_strided((2, 5), (3, 2), 1), x.as_strided((3, 3), (0, 4))),
                X,
            ),
            "as_strided_scatter": (
                lambda x: x.as_strided_scatter(torch.ones(2, 2), (2, 2), (5, 2), 3),
                X,
            ),
            "diagonal_scatter": (lambda x: x.diagonal_scatter(torch.zeros(3, 2), 1, 0, 2), X),
            "diagonal": (lambda x: torch.linalg.diagonal(x, offset=-1), X),
            "resize": (lambda x: x.clone().resize_(3, 2), X),
            "unfold": (lambda x: (x.unfold(2, 2, 1), x.unfold(1, 3, 2)), X),
        }
    )


def test_parts() -> None:
    check_table(
        {
            "hsplit": (lambda x: (*x.hsplit(3), *x.hsplit([1]), *x[0, 0].hsplit(2)), X),
            "vsplit": (lambda x: (*x.vsplit(2), *x.vsplit([1, 1])), X),
            "dsplit": (lambda x: x.dsplit([1, 3]), X),
            "tensor_split": (lambda x: (*x.tensor_split(3, 2), *x.tensor_split([2, -1, 9], 2)), X),
            "cartesian_prod": (lambda x: torch.cartesian_prod(x[:3], x[3:5], x[5:6]), LINE),
        }
    )


@pytest.mark.parametrize("places", [(2, 5), (-3, 4), (0, 99)])
def test_parts_at_computed_places(places: tuple[int, int]) -> None:
    """Their sizes are known when the data are there; they may be empty, and overlap."""
    check(lambda x, at: x.tensor_split(at * 1), (LINE, torch.tensor(places)))
