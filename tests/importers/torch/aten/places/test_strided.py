"""Views by strides, and parts at places, against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

from relax2xla.errors import OpNotImplemented, UnsupportedError

torch = pytest.importorskip("torch")

from tests.importers.torch.helpers import check, check_table, imported  # noqa: E402

X = torch.arange(24.0).reshape(2, 3, 4)
LINE = torch.arange(10)


def test_strides() -> None:
    check_table(
        {
            "as_strided": (
                lambda x: (x.as_strided((2, 5), (3, 2), 1), x.as_strided((3, 3), (0, 4))),
                X,
            ),
            "of one element": (
                lambda x: (
                    x.as_strided((), (), 3),
                    x.as_strided_scatter(torch.tensor(7.0), (), (), 3),
                ),
                torch.randn(3, 4),
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


def in_place(x: Any) -> Any:
    y = x * 2
    row = y[1]
    row.add_(1)
    return row.as_strided((2, 3), (3, 1), 10)


def test_strides_of_views() -> None:
    """Strides and offset count in the memory of what is viewed, not in the view."""
    check_table(
        {
            "transposed": (lambda x: x.mT.as_strided((3, 2), (1, 5)), X),
            "computed, transposed": (lambda x: (x.transpose(0, 2) * 2).as_strided((24,), (1,)), X),
            "a row": (lambda x: x[1].as_strided((2, 2), (4, 3)), X),
            "a row, from the start": (lambda x: x[1].as_strided((2, 2), (12, 1), 3), X),
            "a part with gaps": (lambda x: x[:, 1:, ::2].as_strided((3, 3), (5, 1)), X),
            "expanded": (lambda x: x[:, :1].expand(2, 3, 4).as_strided((4, 2), (6, 1), 2), X),
            "unbound": (lambda x: x.unbind(1)[1].as_strided((2, 7), (8, 1), 1), X),
            "twice": (lambda x: x.as_strided((3, 2), (1, 8), 2).as_strided((2,), (9,)), X),
            "an input": (lambda x: x.as_strided((2, 9), (11, 1)), X.permute(1, 2, 0)),
            "an input with an offset": (lambda x: x.as_strided((2, 3), (5, 2)), X[1]),
            "written before": (in_place, X),
            "scattered": (
                lambda x: x.mT.as_strided_scatter(torch.ones(2, 3), (2, 3), (7, 2), 3),
                X,
            ),
        }
    )


def test_strides_of_memory_that_is_not_at_hand() -> None:
    with pytest.raises(OpNotImplemented, match=r"strides of an input with gaps.*\n.*contiguous"):
        imported(lambda x: x.as_strided((2, 2), (1, 2)), [X[:, 1:]])
    with pytest.raises(OpNotImplemented, match=r"does not have as a tensor.*\n.*contiguous"):
        imported(lambda x: x.as_strided((2, 2), (1, 2), 0), [X[1]])


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


def test_writes_through_windows_are_refused() -> None:
    """torch's own functional form of them sets what lies between the windows to zero."""

    def between(x: Any) -> Any:
        y = x.clone()
        y.view(-1).unfold(0, 1, 2).add_(1)
        return y

    def read(x: Any) -> Any:
        y = x.clone()
        windows = y.unfold(0, 2, 2)
        y[1:].t()[..., 0].mul_(2)
        return y, windows

    with pytest.raises(UnsupportedError, match=r"add_, .*Tensor.unfold"):
        imported(between, [torch.randn(6, 4)])
    check(read, [torch.randn(6, 4)])
