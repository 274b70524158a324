"""Core ATen: every overload that torch tags as core has a way through the importer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from relax2xla.importers.torch import converters  # noqa: E402
from relax2xla.importers.torch.data_dependent import ITEMS  # noqa: E402
from relax2xla.importers.torch.decompositions import decompositions  # noqa: E402
from relax2xla.importers.torch.registry import CONVERTERS, operator_name  # noqa: E402

from .helpers import check  # noqa: E402

#: Overloads without a converter or a decomposition of ours or torch's, and why that is enough.
OTHERS = {
    "_local_scalar_dense": "a number of a tensor is one of data_dependent.ITEMS",
    "sym_storage_offset": "the export settles it: where a tensor lies is no part of a program",
}


def core() -> Iterator[Any]:
    aten = torch.ops.aten
    for name in dir(aten):
        packet = getattr(aten, name)
        for overload in getattr(packet, "overloads", list)():
            op = getattr(packet, overload)
            if torch.Tag.core in op.tags:
                yield op


def test_every_core_overload_has_a_way() -> None:
    converters.load()
    ops = {operator_name(op): op for op in core()}
    assert len(ops) > 180
    without = {n: op for n, op in ops.items() if n not in CONVERTERS}
    decomposed = {operator_name(op) for op in decompositions(set(without.values()))}
    assert set(without) - decomposed == set(OTHERS)
    assert "_local_scalar_dense" in ITEMS


@pytest.mark.parametrize("size", [(7, 5), (3, 5), (9, 2)])
def test_the_gradient_of_adaptive_average_pooling(size: tuple[int, int]) -> None:
    """An element has a share of each window that covers it, of no other one anything."""
    g = torch.Generator().manual_seed(0)
    x, grad = torch.randn(2, 3, 7, 5, generator=g), torch.randn(2, 3, *size, generator=g)
    grad[0, 0, 0, 0] = float("nan")
    backward = torch.ops.aten._adaptive_avg_pool2d_backward
    check(backward, [grad, x])
    check(backward, [grad[0], x[0]])
