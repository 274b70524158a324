"""Training graphs: what the backward graph is given, and what torch's own kernels are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch.nn.attention.flex_attention import flex_attention  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from relax2xla.frontend.torch import relax_dynamo  # noqa: E402
from relax2xla.importers.torch.engine import converters  # noqa: E402
from relax2xla.importers.torch.engine.converters import CONVERTERS  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore::DeprecationWarning"),
]


def gradients(f: Callable[..., Any], module: Any, *args: Any) -> dict[str, Any]:
    """Of a sum with different weights, for the module's weights and the arguments."""
    module.zero_grad()
    inputs = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
    results = torch.utils._pytree.tree_leaves(f(*inputs))
    result = torch.cat([r.flatten() for r in results])
    (result * torch.linspace(-1, 2, result.numel())).sum().backward()
    found = {name: p.grad.clone() for name, p in module.named_parameters()}
    return found | {f"argument {i}": x.grad for i, x in enumerate(inputs) if x.requires_grad}


def check(module: Any, *calls: tuple[Any, ...], dynamic: bool | None = None) -> None:
    """Gradients of compiled and of eager calls."""
    compiled = torch.compile(module, backend="relax2xla", dynamic=dynamic)
    for args in calls:
        got, want = (gradients(f, module, *args) for f in (compiled, module))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


class Pooled(nn.Module):
    """The largest value of each group gets the gradient: those that equal the maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.GRUCell(8, 4)
        self.read = nn.Linear(4, 3)

    def forward(self, x: Any, group: Any) -> Any:
        for _ in range(2):
            x = self.cell(torch.cat([x, x.flip(0)], -1), x)
        index = group[:, None].expand(-1, 4)
        return self.read(torch.zeros(2, 4).scatter_reduce(0, index, x, "amax", include_self=False))


def test_what_is_compared_is_not_computed_again() -> None:
    calls = [(torch.randn(n, 4), torch.arange(n) % 2) for n in (9, 12, 30)]
    check(Pooled(), *calls)


def test_torchs_kernels_get_torchs_strides(monkeypatch: pytest.MonkeyPatch) -> None:
    # This one reads memory without a look at the strides, and the gradient of the convolution is
    # a transpose where it is decomposed.
    converters.load()
    monkeypatch.delitem(CONVERTERS, "_weight_norm_interface_backward")
    with pytest.warns(UserWarning, match="_weight_norm_interface_backward"):
        check(parametrizations.weight_norm(nn.Conv1d(8, 6, 1)), (torch.randn(3, 8, 1),))


@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim: int | None, recwarn: pytest.WarningsRecorder) -> None:
    check(parametrizations.weight_norm(nn.Conv1d(8, 6, 3), dim=dim), (torch.randn(3, 8, 7),))
    assert not [w for w in recwarn if "relax2xla" in str(w.message)]


def test_checkpointed_regions_draw_the_same_numbers_again() -> None:
    block = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.3), nn.Linear(8, 4))

    def run(x: Any) -> Any:
        return checkpoint(block, x, use_reentrant=False)

    x = torch.randn(5, 4)
    found: list[Any] = []
    for f in (torch.compile(run, backend="relax2xla"), run):
        torch.manual_seed(3)
        found.append(gradients(f, block, x))
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:flex_attention")
def test_operators_with_graphs_of_their_own_are_left_to_torch() -> None:
    def attend(*qkv: Any) -> Any:
        return flex_attention(*qkv, score_mod=lambda s, b, h, i, j: s - 0.1 * (i - j).abs())

    x = torch.randn(1, 2, 8, 4)
    with torch.no_grad(), pytest.warns(UserWarning, match="flex_attention"):
        got = torch.compile(attend, backend="relax2xla")(x, x + 1, x)
    torch.testing.assert_close(got, attend(x, x + 1, x), rtol=1e-4, atol=1e-5)


# -- on XLA alone --------------------------------------------------------------------------------
IMAGE, VOLUME = (2, 3, 7, 5), (1, 2, 5, 7, 6)
WITHOUT_TORCH: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "averages with windows over the edge": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
        IMAGE,
    ),
    "averages of volumes": (lambda x: F.avg_pool3d(x, 2, 2, ceil_mode=True), VOLUME),
    "adaptive averages of volumes": (lambda x: F.adaptive_avg_pool3d(x, (2, 4, 3)), VOLUME),
    "adaptive maxima": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), IMAGE),
    "adaptive maxima of volumes": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 2)), VOLUME),
    "copies of the edges": (lambda x: F.pad(x, (1, -1, 2, 3), mode="replicate"), IMAGE),
    "smoothed linear resizing": (
        lambda x: F.interpolate(x, (3, 9), mode="bilinear", antialias=True),
        IMAGE,
    ),
    "smoothed cubic resizing": (
        lambda x: F.interpolate(x, scale_factor=0.6, mode="bicubic", antialias=True),
        IMAGE,
    ),
    "masked scatter": (lambda x: x.masked_scatter(x[:, :1] > 0, x.flip(0) * 2), IMAGE),
    "labels after the first -1": (
        lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, 1, -1, 0], [3, -1, -1, -1]])),
        (2, 4),
    ),
    "rows that are too long": (
        lambda x: F.embedding(torch.tensor([0, 2, 2]), x.clone(), max_norm=1.0),
        (3, 4),
    ),
}


def test_gradients_that_need_no_kernels_of_torch() -> None:
    inputs = [torch.randn(shape) for _, shape in WITHOUT_TORCH.values()]

    def f(*xs: Any) -> Any:
        calls = zip(WITHOUT_TORCH.values(), xs, strict=True)
        return torch.cat([function(x).flatten() for (function, _), x in calls])

    ours = torch.compile(f, backend=relax_dynamo(fallback=False))
    with torch.no_grad():
        torch.testing.assert_close(ours(*inputs), f(*inputs))
    got, want = (gradients(g, nn.Identity(), *inputs) for g in (ours, f))
    for name, g, w in zip(WITHOUT_TORCH, got.values(), want.values(), strict=True):
        torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("network", [nn.Conv1d, nn.ConvTranspose1d])
def test_strided_convolutions_of_symbolic_size(network: Any) -> None:
    """How many rows the stride left over depends on the size."""
    module = network(2, 3, 4, stride=3, padding=1)
    check(module, *((torch.randn(2, 2, size),) for size in (8, 9, 10)), dynamic=True)


class Halved(nn.Module):
    """Sizes that are told by sums of several roundings, and by their negatives."""

    def forward(self, x: Any) -> Any:
        wide = F.pad(x, (0, 0, x.shape[2] // 2, 0))
        return wide.flatten(1).chunk(2, 1)[1], x.chunk(2, 3)[1]


@pytest.mark.parametrize(
    "network",
    [
        nn.PixelShuffle(2),
        nn.ChannelShuffle(2),
        nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(4, 4, 2, bias=False), nn.Flatten()),
        Halved(),
    ],
    ids=["channels // 4", "channels // 2", "rows // 2 - 1", "columns - (columns + 1) // 2"],
)
def test_sizes_that_cannot_be_solved(network: Any) -> None:
    """The backward graph is given tensors of n // 2 rows, and never n."""
    check(network, *((torch.randn(2, 4, size, size + 2),) for size in (5, 6, 8)), dynamic=True)
