"""Decompositions of single nodes: torch does not trace the whole program anew for them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.nn import functional as F  # noqa: E402

from tests.importers.torch.helpers import check, imported, not_traced_anew  # noqa: E402

AUTO = torch.export.Dim.AUTO
g = torch.Generator().manual_seed(3)
X = torch.randn(4, 3, 6, generator=g)


def _several(x: Any) -> tuple[Any, ...]:
    y = torch.renorm(x, 2, 1, 1.0).relu_()
    spectrum = torch.stft(y[:, 0], 4, window=torch.hann_window(4), return_complex=True)
    return y, spectrum, *torch.aminmax(x), F.huber_loss(x, y)


def _with_lists(x: Any) -> tuple[Any, ...]:
    """Lists that a decomposition changes; as results operands, and ones that nobody reads."""
    left, _ = torch.ops.aten.unsafe_split_with_sizes(x, [1, 2], 1)
    at = [None, torch.tensor([1, 0, 7]), None]
    chosen = torch.ops.aten._unsafe_masked_index(x, x > 0, at, 0.5)
    return left, torch.gradient(x, dim=1)[0], torch.diag_embed(x), chosen


@not_traced_anew()
@pytest.mark.filterwarnings("ignore:.*stft")
def test_single_nodes() -> None:
    check(_several, [X])
    check(_several, [X], [{0: AUTO}], [[torch.randn(7, 3, 6, generator=g)]])
    check(_with_lists, [X])


def test_places_in_the_source_are_kept() -> None:
    class Inner(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.renorm(x, 2, 0, 1.0)

    class Outer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Any) -> Any:
            return self.inner(x) + 1

    blocks = imported(Outer(), [X])["main"].body.blocks
    inside = [b.span for block in blocks for b in block.bindings if b.span.name == "inner"]
    assert len(inside) > 3
    assert all(s.file.endswith("test_splicing.py") for s in inside)


def test_sizes_of_what_is_decomposed() -> None:
    """A number that could not be had for want of its tensor is had then."""
    rows = [[torch.randn(3, n, generator=g) for _ in range(2)] for n in (4, 5)]
    inputs = [[x, y.sigmoid(), y[0].exp()] for x, y in rows]

    def loss(x: Any, y: Any, weight: Any) -> Any:
        return F.binary_cross_entropy_with_logits(x, y, pos_weight=weight)

    check(loss, inputs[0], [{1: AUTO}, {1: AUTO}, {0: AUTO}], inputs[1:])


def test_sizes_that_depend_on_data() -> None:
    """Torch knows under which name the rest of the program has them."""

    def function(x: Any) -> Any:
        each = torch.combinations(x, 1)
        return each.sum(), each * 2

    check(function, [X[0, 0]], [{0: AUTO}])


def test_within_branches_too() -> None:
    """Torch decomposes those in branches with the rest."""

    def function(x: Any) -> Any:
        y = torch.renorm(x, 2, 0, 1.0)
        return torch.cond(x.sum() > 0, lambda y: torch.renorm(y, 1, 0, 0.5), lambda y: y + 1, (y,))

    check(function, [X], None, [[-X.abs()]])


@pytest.mark.filterwarnings("ignore:linear_cross_entropy")
def test_losses_of_one_row_and_symbolic_classes() -> None:
    """Torch, when it traces them anew, takes their shape to be ()."""

    def loss(x: Any, target: Any) -> Any:
        each = F.cross_entropy(x.unsqueeze(0), target.unsqueeze(0), reduction="none")
        return torch.renorm(x.unsqueeze(0), 2, 0, 1.0), each

    rows = [[torch.randn(n, generator=g), torch.tensor(2)] for n in (4, 6)]
    check(loss, rows[0], [{0: AUTO}, None], rows[1:])
    options = pytest.importorskip("torch.nn.modules.linear_cross_entropy_options")
    chunks = options.LinearCrossEntropyOptions(allow_retain_graph=False, batch_chunk_size=2)

    def chunked(x: Any, w: Any, t: Any) -> Any:
        return F.linear_cross_entropy(x, w, t, reduction="none", options=chunks)

    weights = [
        [torch.randn(3, generator=g), torch.randn(n, 3, generator=g), rows[0][1]] for n in (4, 6)
    ]
    check(chunked, weights[0], [None, {0: AUTO}, None], weights[1:])
