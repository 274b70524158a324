"""Sorted elements and running sums against numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relax2xla import topi
from tests.topi.harness import Case, check

RNG = np.random.default_rng(0)
X = RNG.integers(-4, 4, (3, 7)).astype(np.float32)
Y = RNG.uniform(0.5, 1.5, (3, 7)).astype(np.float32)
GAPS = np.array([2, np.nan, -1, np.inf, np.nan, -0.5, 2], np.float32)
ORDER = np.sort(RNG.uniform(0, 1, 5)).astype(np.float32)


def best(x: Any, k: int) -> list[Any]:
    at = np.argsort(-x, 1, kind="stable")[:, :k]
    return [np.take_along_axis(x, at, 1), at]


SORTED = [
    Case("sort", topi.sort, [X], np.sort(X, 1)),
    Case("sort_nan", topi.sort, [GAPS], np.sort(GAPS)),
    Case("sort_columns", lambda x: topi.sort(x, 0, False), [X], -np.sort(-X, 0)),
    Case("argsort", lambda x: topi.argsort(x, dtype="int64"), [X], np.argsort(X, 1, kind="stable")),
    Case("argsort_float", topi.argsort, [X], np.argsort(X, 1, kind="stable").astype("f4")),
    Case("topk", lambda x: topi.topk(x, 2), [X], best(X, 2)),
    Case("topk_values", lambda x: topi.topk(x, 2, ret_type="values"), [X], best(X, 2)[0]),
    Case("topk_all", lambda x: topi.topk(x, 0, 1, "indices"), [X], best(X, 7)[1]),
    Case(
        "searchsorted",
        lambda s, x: topi.searchsorted(s, x, True),
        [ORDER, Y],
        np.searchsorted(ORDER, Y, "right"),
    ),
]
SHIFTED = np.concatenate([np.ones((3, 1), "f4"), np.cumprod(Y, 1)[:, :-1]], 1)
RUNNING = [
    Case("cumsum", lambda x: topi.cumsum(x, 1), [X], np.cumsum(X, 1)),
    Case("cumsum_rows", lambda x: topi.cumsum(x, 0, "int32"), [X], np.cumsum(X, 0).astype("i4")),
    Case("cumsum_all", topi.cumsum, [X], np.cumsum(X)),
    Case("cumprod", lambda x: topi.cumprod(x, -1), [Y], np.cumprod(Y, 1)),
    Case("exclusive", lambda x: topi.cumprod(x, 1, None, True), [Y], SHIFTED),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("cases", [SORTED, RUNNING])
def test_values(cases: list[Case], symbolic: bool) -> None:
    check(cases, symbolic)
