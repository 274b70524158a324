"""Indexing, gathering, scattering, and making tensors, against eager torch."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check_table  # noqa: E402

g = torch.Generator().manual_seed(0)


def randn(*shape: int) -> Any:
    return torch.randn(*shape, generator=g)


X = randn(4, 3, 5)
ROWS = torch.tensor([2, 0, -1])
COLUMNS = torch.tensor([[1, -1, 0]])
PICK = torch.tensor([[[0, 2], [1, 0]], [[-1, 1], [2, 2]]])


def put(x: Any, i: Any, v: Any) -> Any:
    y = x.clone()
    y[i] = v
    return y


def test_reading() -> None:
    at = torch.randint(0, 3, (2, 3, 5), generator=g)
    check_table(
        {
            "index_select": (lambda x, i: x.index_select(0, i + 1), X, ROWS.abs()),
            "one index": (lambda x, i: (x[i], x[:, i], x[..., i]), X, ROWS),
            "two indices": (lambda x, i, j: (x[i, j], x[:, i, j]), X, ROWS, COLUMNS),
            "indices apart": (lambda x, i, j: (x[i, :, j], x[i, 1:, j]), X, ROWS, COLUMNS),
            "three indices": (lambda x, i, j: x[i, j, i], X, ROWS, COLUMNS),
            "gather": (lambda x, i: x.gather(1, i), X, at),
            "gather along another axis": (lambda x, i: x.gather(0, i), X, at),
            "take": (lambda x, i: x.take(i), X, torch.tensor([[0, 59], [-1, 7]])),
            "indices of two dtypes": (
                lambda x, i, j: (x[i, j], torch.ops.aten.index_put(x, [i, None, j], x[0, 0, 0])),
                X,
                ROWS,
                ROWS.int(),
            ),
            "a number and boundaries": (
                lambda x: (torch.bucketize(2, x), torch.bucketize(2.0, x, right=True)),
                torch.arange(4.0),
            ),
            "one_hot": (lambda i: F.one_hot(i, 5), torch.tensor([[0, 4], [2, 2]])),
        }
    )


def test_writing() -> None:
    at = torch.tensor([[0, 2, 1], [2, 0, 0]])
    src = randn(2, 3)
    base = randn(4, 3)
    check_table(
        {
            "scatter": (lambda x, i, s: x.scatter(0, i, s), base, at, src),
            "scatter a value": (lambda x, i: x.scatter(1, i, 2.0), base, at),
            "scatter, longer source": (lambda x, i, s: x.scatter(0, i[:, :2], s), base, at, src),
            "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), base, at, src),
            "scatter_reduce": (
                lambda x, i, s: [
                    x.scatter_reduce(0, i, s, r) for r in ("sum", "prod", "amax", "amin")
                ],
                base,
                at,
                src,
            ),
            "index_put": (lambda x, i: x.index_put((i,), torch.tensor(1.0)), base, ROWS),
            "index_put rows": (lambda x, i, v: x.index_put((i,), v), base, ROWS, randn(3, 3)),
            "index_put adds": (
                lambda x, i, v: x.index_put((i, i), v, accumulate=True),
                base,
                torch.tensor([1, 1, 0]),
                randn(3),
            ),
            "a mask": (lambda x: put(x, x > 0, 0.5), base),
            "a row": (lambda x, v: put(x, 1, v), base, randn(3)),
            "a part": (lambda x, v: put(x, (slice(None), slice(1, 3)), v), base, randn(4, 2)),
            "every other": (lambda x, v: put(x, slice(None, None, 2), v), base, randn(2, 3)),
            "index_add": (lambda x, i, s: x.index_add(0, i, s, alpha=2), base, at[0], randn(3, 3)),
            "index_copy": (lambda x, i, s: x.index_copy(0, i, s), base, at[0], randn(3, 3)),
            "index_fill": (lambda x, i: x.index_fill(1, i, -1), base, torch.tensor([0, 2])),
            "select_scatter": (lambda x, s: x.select_scatter(s, 0, -1), base, randn(3)),
            "slice_scatter": (lambda x, s: x.slice_scatter(s, 0, 1, 3), base, randn(2, 3)),
            "diagonal is cleared": (lambda x: x - torch.diag_embed(x.diagonal()), randn(3, 3)),
        }
    )


def test_writing_by_a_mask() -> None:
    """Where it is the first index and where it is not; one value, one a place, and parts of it."""
    rows, columns = torch.tensor([True, False, True, True]), torch.tensor([True, False, True])
    block = X > 0.2
    block[:, 0] = False
    inner = torch.randn(3, 5, generator=g) > 0
    many = int(inner.sum())

    def added(x: Any, m: Any, v: Any) -> Any:
        return torch.ops.aten.index_put(x, [None, m], v, accumulate=True)

    every = slice(None)
    check_table(
        {
            "first": (lambda x, m, v: put(x, m, v), X, rows, randn(3, 3, 5)),
            "first, one row": (lambda x, m, v: put(x, m, v), X, rows, randn(5)),
            "second, a number": (lambda x, m: put(x, (every, m), 2.0), X, columns),
            "second, a scalar": (
                lambda x, m, v: put(x, (every, m), v),
                X,
                columns,
                torch.tensor(1.5),
            ),
            "second": (lambda x, m, v: put(x, (every, m), v), X, columns, randn(4, 2, 5)),
            "second, broadcast": (lambda x, m, v: put(x, (every, m), v), X, columns, randn(2, 1)),
            "second, one place": (
                lambda x, m, v: put(x, (every, m), v),
                X,
                columns,
                randn(4, 1, 5),
            ),
            "second, the last axis only": (
                lambda x, m, v: put(x, (every, m), v),
                X,
                columns,
                randn(5),
            ),
            "second, none": (
                lambda x, m, v: put(x, (every, m), v),
                X,
                torch.zeros(3, dtype=torch.bool),
                randn(4, 0, 5),
            ),
            "last": (
                lambda x, m, v: put(x, (..., m), v),
                X,
                torch.tensor([True, False, True, False, True]),
                randn(4, 1, 3),
            ),
            "two axes": (lambda x, m, v: put(x, (every, m), v), X, inner, randn(4, many)),
            "two axes, broadcast": (
                lambda x, m, v: put(x, (every, m), v),
                X,
                inner,
                randn(many),
            ),
            "added": (added, X, columns, randn(4, 2, 5)),
            "added, a scalar": (added, X, columns, torch.tensor(1.5)),
            "added of booleans": (
                added,
                block,
                columns,
                torch.tensor([True, False, True, True, False]),
            ),
        }
    )


def test_making() -> None:
    check_table(
        {
            "fills": (lambda x: (torch.zeros(2, 3), torch.ones(2), torch.full((2,), 7), x), X),
            "like": (lambda x: (torch.zeros_like(x), torch.ones_like(x), torch.full_like(x, 2)), X),
            "new": (lambda x: (x.new_zeros(2), x.new_ones(3), x.new_full((2,), 3.5)), X),
            "dtypes": (
                lambda x: (torch.zeros_like(x, dtype=torch.int32), x.new_ones(2, dtype=torch.bool)),
                X,
            ),
            "arange": (
                lambda x: (torch.arange(5), torch.arange(2, 9, 3), torch.arange(0, 1, 0.3), x),
                X,
            ),
            "arange of floats": (lambda x: (torch.arange(3, dtype=torch.float32), x), X),
            "linspace": (lambda x: (torch.linspace(0, 1, 7), x), X),
            "eye": (lambda x: (torch.eye(3), torch.eye(2, 4, dtype=torch.int64), x), X),
            "a constant": (lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]), X),
        }
    )
