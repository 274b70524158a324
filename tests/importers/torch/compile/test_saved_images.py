"""What a forward graph saves for the backward one: which images go over with channels last."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from relax2xla.importers.torch.compile import backend  # noqa: E402
from relax2xla.importers.torch.compile.graphs import placeholders_of, results_of  # noqa: E402

from .test_graphs import gradients  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore::DeprecationWarning"),
]
ATEN: Any = torch.ops.aten


class Net(nn.Module):
    """Convolutions, a batch norm, a pool, what follows them; then no images any more."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 12, 3, 2, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(12, 6, 2, 2)
        self.read = nn.Linear(6, 5)

    def forward(self, x: Any) -> Any:
        x = F.relu(self.norm(self.first(x)))
        x = F.max_pool2d(x, 3, 2, 1)
        x = F.silu(self.up(F.gelu(self.second(x))))
        x = torch.cat([x, x.sigmoid()], 1)[:, 3:9]
        return self.read(x.mean((2, 3)).tanh())


class Heads(nn.Module):
    """Values of four axes that are no images."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 48)

    def forward(self, x: Any) -> Any:
        q, k, v = self.project(x).unflatten(-1, (3, 4, 4)).permute(2, 0, 3, 1, 4)
        return (q @ k.transpose(-1, -2)).softmax(-1) @ v


class Patches(nn.Module):
    """An image of patches, of which a transformer makes rows."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.heads = nn.Conv2d(3, 16, 4, 4), Heads()

    def forward(self, x: Any) -> Any:
        return self.heads(self.patch(x).sin().flatten(2).transpose(1, 2))


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any, int]]:
    """Forward and backward graphs as they are compiled, and how many results are the user's."""
    found: list[tuple[Any, Any, int]] = []

    def note(forward: Any, backward: Any, results: int) -> None:
        in_order(forward, backward, results)
        found.append((forward, backward, results))

    in_order = backend.in_order
    monkeypatch.setattr(backend, "in_order", note)
    return found


def saved(forward: Any, results: int) -> list[Any]:
    """What is saved that has four axes and is no input."""
    found = [n for n in results_of(forward)[results:] if isinstance(n, torch.fx.Node)]
    values = [(n, n.meta["val"]) for n in found if n.op != "placeholder"]
    return [n for n, v in values if isinstance(v, torch.Tensor) and v.ndim == 4 and v.shape[3] > 1]


def check(module: Any, *calls: Any, dynamic: bool = False) -> None:
    compiled = torch.compile(module, backend="relax2xla", dynamic=dynamic)
    for x in calls:
        got, want = (gradients(f, module, x) for f in (compiled, module))
        torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_images_go_over_with_channels_last(graphs: list[Any], dynamic: bool) -> None:
    torch.manual_seed(0)
    module = Net()
    check(
        module, *(torch.randn(n, 3, 14, 12) for n in ((2, 3) if dynamic else (2,))), dynamic=dynamic
    )
    ((forward, backward, results),) = graphs
    images = saved(forward, results)
    assert len(images) >= 5
    assert all(n.target is ATEN.clone.default for n in images)
    assert {n.args[0].target for n in images} == {ATEN.permute.default}
    # The sizes of what goes over are those of what is taken, contiguous.
    values = [n.meta["val"] for n in placeholders_of(backward)]
    taken = {str(v.shape) for v in values if isinstance(v, torch.Tensor)}
    assert {str(n.meta["val"].shape) for n in images} <= taken
    assert all(n.meta["val"].is_contiguous() for n in images)


def test_what_are_no_images_stay(graphs: list[Any]) -> None:
    torch.manual_seed(0)
    check(Heads(), torch.randn(2, 5, 16))
    ((forward, _, results),) = graphs
    assert saved(forward, results)
    assert not any(n.target is ATEN.clone.default for n in saved(forward, results))


def test_operands_of_products_go_over_as_they_lie_there(graphs: list[Any]) -> None:
    """Not as the projection's result lies, of which they are views: both graphs would turn it."""
    torch.manual_seed(0)
    check(Heads(), torch.randn(2, 5, 16))
    ((forward, _, results),) = graphs
    nodes = [n for n in results_of(forward)[results:] if isinstance(n, torch.fx.Node)]
    cloned = [n for n in nodes if n.target is ATEN.clone.default]
    operands = {o for n in forward.graph.nodes if n.target is ATEN.bmm.default for o in n.args}
    shapes = {tuple(o.meta["val"].shape) for o in operands}
    assert cloned
    assert {tuple(n.meta["val"].shape) for n in cloned} <= shapes


def test_rows_of_patches_are_no_images(graphs: list[Any]) -> None:
    torch.manual_seed(0)
    check(Patches(), torch.randn(2, 3, 8, 12))
    ((forward, _, results),) = graphs
    moved = [n for n in saved(forward, results) if n.target is ATEN.clone.default]
    assert {tuple(n.meta["val"].shape) for n in moved} <= {(2, 2, 3, 16)}


def test_a_parameter_and_an_input_are_saved_as_they_are(graphs: list[Any]) -> None:
    """Of them there would be a second copy in memory."""
    torch.manual_seed(0)
    module = nn.Conv2d(3, 4, 3)
    check(module, torch.randn(1, 3, 6, 6))
    ((forward, _, results),) = graphs
    assert not saved(forward, results)


def test_parts_that_are_left_to_torch_take_them_too() -> None:
    """Random numbers are torch's: a graph is cut there, and values go over parts."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.Dropout(0.0), nn.Conv2d(6, 4, 3), nn.ReLU())
    check(module, torch.randn(2, 3, 9, 8))
    dropped = nn.Sequential(nn.Conv2d(3, 6, 3), nn.Dropout(0.5), nn.Conv2d(6, 4, 3), nn.ReLU())
    compiled = torch.compile(dropped, backend="relax2xla")
    x = torch.randn(2, 3, 9, 8)
    torch.manual_seed(5)
    got = gradients(compiled, dropped, x)
    torch.manual_seed(5)
    torch.testing.assert_close(got, gradients(dropped, dropped, x), rtol=1e-3, atol=1e-4)
