"""Core ATen: every overload that torch tags as core has a way through the importer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from relax2xla.importers.torch.aten.places.data_dependent import ITEMS  # noqa: E402
from relax2xla.importers.torch.engine import converters  # noqa: E402
from relax2xla.importers.torch.engine.converters import CONVERTERS, operator_name  # noqa: E402
from relax2xla.importers.torch.source.decompositions import decompositions  # noqa: E402
from relax2xla.importers.torch.source.inplace import NEW_VALUES  # noqa: E402
from tests.importers.torch.helpers import check, check_table  # noqa: E402

#: Overloads without a converter or a decomposition of ours or torch's, and why that is enough.
OTHERS = {
    "_local_scalar_dense": "a number of a tensor is one of data_dependent.ITEMS",
    "resize_": "one of inplace.NEW_VALUES: the operator without the write has a converter",
    "sym_storage_offset": "the export settles it: where a tensor lies is no part of a program",
}


def core() -> Iterator[Any]:
    """``dir(torch.ops.aten)`` has only what this process has asked for, so the dispatcher is."""
    for full in torch._C._dispatch_get_all_op_names():
        space, _, name = full.partition("::")
        packet, _, overload = name.partition(".")
        if space == "aten":
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
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
    assert "resize_" in NEW_VALUES
    assert "resize" in CONVERTERS


def test_prims() -> None:
    """Torch's own decompositions end in some of them."""
    p = torch.ops.prims
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(2, 3, generator=g), torch.rand(2, 3, generator=g)
    names = "abs acos asinh bessel_i0 cbrt ceil digamma erf_inv exp2 lgamma log10 neg reciprocal"
    more = "round rsqrt sign sin spherical_bessel_j0 sqrt tanh trunc"
    two = "add atan2 div eq fmax fmod ge hypot maximum mul ne pow remainder sub zeta"
    check_table(
        {
            "one operand": (lambda a: [getattr(p, n)(a) for n in (names + " " + more).split()], x),
            "two operands": (lambda a, b: [getattr(p, n)(a, b) for n in two.split()], x, y),
            "shapes": (
                lambda a: (
                    p.broadcast_in_dim(a, [2, 4, 3], [0, 2]),
                    p.transpose(a, [1, 0]),
                    p.squeeze(a.unsqueeze(1), [1]),
                    p.rev(a, [1]),
                    p.split_dim(a, 1, 3),
                    p.collapse(a, 0, 1),
                    p.reshape(a, [3, 2]),
                    p.cat([a, a], 1),
                    p.where(a > 0.5, a, a * 2),
                ),
                x,
            ),
            "reductions": (
                lambda a: (p.amax(a, [0]), p.sum(a, [0, 1]), p.prod(a, [1]), p.var(a, [1], 1.0)),
                x,
            ),
            "new": (
                lambda a: (
                    p.iota(4, start=1, step=2, dtype=torch.int64, device="cpu", requires_grad=False)
                    + a.sum(),
                    p.scalar_tensor(2.5, dtype=torch.float32, device="cpu") * a,
                    p.convert_element_type(a, torch.int32),
                ),
                x,
            ),
            "of numbers": (lambda a: (torch.xlogy(a, 2), torch.xlogy(3, a)), x),
        }
    )


@pytest.mark.parametrize("size", [(7, 5), (3, 5), (9, 2)])
def test_the_gradient_of_adaptive_average_pooling(size: tuple[int, int]) -> None:
    """An element has a share of each window that covers it, of no other one anything."""
    g = torch.Generator().manual_seed(0)
    x, grad = torch.randn(2, 3, 7, 5, generator=g), torch.randn(2, 3, *size, generator=g)
    grad[0, 0, 0, 0] = float("nan")
    backward = torch.ops.aten._adaptive_avg_pool2d_backward
    check(backward, [grad, x])
    check(backward, [grad[0], x[0]])
