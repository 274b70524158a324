"""torch.compile with this backend, against eager torch."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from relax2xla import transform as T  # noqa: E402
from relax2xla.frontend.torch import relax_dynamo  # noqa: E402
from relax2xla.importers.torch.compile import backend as backend  # noqa: E402
from relax2xla.importers.torch.compile.xla_part import Part  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings(
        "ignore:.*LeafSpec.*", "ignore::DeprecationWarning", "ignore:Converting mask:UserWarning"
    ),
]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> list[Part]:
    """Every part that is compiled for XLA."""
    made: list[Part] = []

    class Noted(Part):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            made.append(self)

    monkeypatch.setattr(backend, "Part", Noted)
    return made


def same(a: Any, b: Any, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def check(f: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Compiled and eager results, their strides, and what was written to the arguments."""
    ours = [copy.deepcopy(a) for a in args]
    theirs = [copy.deepcopy(a) for a in args]
    compiled = torch.compile(f, backend=relax_dynamo(**options))
    with torch.no_grad():
        got, want = compiled(*ours), f(*theirs)
    same(got, want)
    same(ours, theirs)
    leaves = torch.utils._pytree.tree_leaves
    for g, w in zip(leaves(got), leaves(want), strict=True):
        if isinstance(w, torch.Tensor):
            assert g.stride() == w.stride()
    return compiled


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.embed = nn.Embedding(10, 8)
        self.qkv = nn.Linear(8, 24)
        self.norm2 = nn.LayerNorm(8)
        self.drop = nn.Dropout(0.3)
        self.out = nn.Linear(8, 5)

    def forward(self, x: Any, ids: Any) -> Any:
        y = F.max_pool2d(F.relu(self.norm(self.conv(x))), 2)
        y = y.flatten(2).transpose(1, 2) + self.embed(ids)[:, None]
        q, k, v = self.qkv(y).unflatten(-1, (3, 2, 4)).permute(2, 0, 3, 1, 4).unbind(0)
        p = 0.1 if self.training else 0.0
        z = F.scaled_dot_product_attention(q, k, v, dropout_p=p)
        y = self.norm2(y + z.transpose(1, 2).flatten(2))
        return self.out(self.drop(y.mean(1)))


def batch(n: int) -> tuple[Any, Any, Any]:
    return torch.randn(n, 3, 4, 4), torch.randint(10, (n,)), torch.randint(5, (n,))


# -- training ------------------------------------------------------------------------------------
def test_a_training_loop_follows_eager_dropout_and_statistics_included(parts: list[Part]) -> None:
    eager = Network()
    ours = copy.deepcopy(eager)
    losses: dict[str, list[float]] = {"eager": [], "ours": []}
    data = [batch(n) for n in (6, 6, 4, 4, 6, 6, 4, 6)]
    for name, model in (("eager", eager), ("ours", ours)):
        torch.manual_seed(7)
        run = torch.compile(model, backend="relax2xla") if name == "ours" else model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for x, ids, label in [*data, *data]:
            optimizer.zero_grad()
            loss = F.cross_entropy(run(x, ids), label)
            loss.backward()
            optimizer.step()
            losses[name].append(loss.item())
    assert losses["ours"] == pytest.approx(losses["eager"], rel=2e-2)
    assert sum(losses["ours"][-8:]) < sum(losses["ours"][:8])
    same(ours.norm.running_var, eager.norm.running_var, 1e-2)
    assert ours.norm.num_batches_tracked == 16
    # Forward and backward, for the first shape and then for any batch.
    assert len(parts) == 4


WORDS, STARTS = torch.tensor([1, 2, 2, 6, 0, 3]), torch.tensor([0, 2, 2, 5])
BAGS: list[dict[str, Any]] = [
    *({"mode": mode} for mode in ("sum", "mean", "max")),
    *({"mode": mode, "padding_idx": 2} for mode in ("sum", "mean", "max")),
    {"mode": "mean", "include_last_offset": True, "offsets": torch.tensor([0, 4, 6])},
]


def _gradients(f: Callable[..., Any], *args: Any) -> list[Any]:
    leaves = [a.clone().requires_grad_() for a in args]
    # Each element counts by another weight.
    parts = [(r * torch.arange(1.0, r.numel() + 1).reshape(r.shape)).sum() for r in f(*leaves)]
    total: Any = torch.stack(parts).sum()
    return list(torch.autograd.grad(total, leaves))


def _on_xla_alone(f: Callable[..., Any], *args: Any) -> None:
    ours = torch.compile(f, backend=relax_dynamo(fallback=False))
    same(_gradients(ours, *args), _gradients(f, *args))


def test_gradients_of_bags_of_embeddings() -> None:
    def f(table: Any, weights: Any) -> list[Any]:
        made = [F.embedding_bag(WORDS, table, **{"offsets": STARTS, **kw}) for kw in BAGS]
        padded = F.embedding_bag(
            WORDS, table, STARTS, mode="sum", per_sample_weights=weights, padding_idx=0
        )
        return [*made, padded]

    _on_xla_alone(f, torch.randn(7, 3), torch.randn(6))


def test_gradients_of_distances() -> None:
    orders = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, float("inf"))

    def f(x: Any, y: Any) -> list[Any]:
        flat = [F.pdist(x[0], p) for p in orders]
        return [*(torch.cdist(x, y, p) for p in orders), *flat]

    x, y = torch.randn(2, 4, 3), torch.randn(1, 5, 3)
    y[0, 0] = x[1, 2]  # no distance
    y[0, 1, 0] = x[0, 1, 0]  # no difference along one axis
    _on_xla_alone(f, x, y)


class Counted(nn.Module):
    """The first bias has no gradient but rounding, which Adam makes steps of: hence float64."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        self.calls += 1
        return self.layers(x) / self.calls


@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_ten_steps_of_an_optimiser_with_a_schedule(name: str) -> None:
    eager = Counted().double()
    ours = copy.deepcopy(eager)
    data = [(torch.randn(8, 6).double(), torch.randint(4, (8,))) for _ in range(10)]
    for model in (eager, ours):
        run = model if model is eager else torch.compile(model, backend="relax2xla")
        optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
        for x, label in data:
            optimizer.zero_grad()
            F.cross_entropy(run(x), label).backward()
            optimizer.step()
            schedule.step()
    assert ours.calls == 10
    same(ours.state_dict(), eager.state_dict(), 1e-8)


def test_gradients_of_inputs_and_of_views() -> None:
    def f(x: Any, y: Any) -> Any:
        z = (x.t() @ y)[1:]
        return z.relu(), x[:, 0], (z * z).sum()

    x, y = torch.randn(4, 3, requires_grad=True), torch.randn(4, 5, requires_grad=True)
    compiled = torch.compile(f, backend="relax2xla")
    for g in (compiled, f):
        sum(v.sum() for v in g(x, y)).backward()
    (a, b) = (x.grad.clone(), y.grad.clone())
    x.grad = y.grad = None
    sum(v.sum() for v in f(x, y)).backward()
    same((a, b), (2 * x.grad, 2 * y.grad))


# -- inference -----------------------------------------------------------------------------------
def test_any_batch_with_one_recompile(parts: list[Part]) -> None:
    model = Network().eval()
    compiled = torch.compile(model, backend="relax2xla")
    with torch.no_grad():
        for n in (3, 4, 5, 3, 4, 1):
            x, ids, _ = batch(n)
            same(compiled(x, ids), model(x, ids))
    # Torch itself makes a graph for the first size, for any (here in two ranges), and for one.
    assert len(parts) <= 4


class Cached(nn.Module):
    """Attention to the tokens before; the cache grows, or is written to where it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Any, cache: Any, at: Any = None) -> Any:
        if at is None:
            cache = torch.cat([cache, self.k(x)], 1)
            return F.softmax(self.q(x) @ cache.mT, -1) @ cache, cache
        cache.index_copy_(1, at, self.k(x))
        seen = torch.arange(cache.shape[1]) <= at
        return F.softmax((self.q(x) @ cache.mT).where(seen, -torch.inf), -1) @ cache, cache


def test_caches_of_generation_that_grow_and_that_are_written_to(parts: list[Part]) -> None:
    model = Cached()
    compiled = torch.compile(model, backend="relax2xla")
    for size, most in ((0, 3), (6, 1)):
        ours = theirs = torch.zeros(1, size, 4)
        if size:
            ours = theirs.clone()
        x = torch.randn(1, 1, 4)
        parts.clear()
        with torch.no_grad():
            for step in range(5):
                at = (torch.tensor([step]),) if size else ()
                (x, ours), (y, theirs) = compiled(x, ours, *at), model(x, theirs, *at)
                same((x, ours), (y, theirs))
        # Not a graph for each step.
        assert len(parts) <= most


def test_the_kernels_of_transformer_layers() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True).eval()
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    padding = torch.tensor([[False, False, True], [False, False, False]])

    def f(x: Any) -> Any:
        y = layer(x, src_key_padding_mask=padding)
        return y, attention(y, y, y, need_weights=False)[0]

    check(f, torch.randn(2, 3, 8))


def test_weights_that_change_are_seen(parts: list[Part]) -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 3))
    model.eval()
    compiled = torch.compile(model, backend="relax2xla")
    x = torch.randn(2, 3, 4, 4)

    def in_place() -> None:
        for p in model.parameters():
            p.mul_(1.5)

    def by_data() -> None:
        for p in model.parameters():
            p.data.mul_(0.5)

    def replaced() -> None:
        model[0].weight.data = torch.randn_like(model[0].weight)

    def loaded() -> None:
        model.load_state_dict({k: v * 1.25 for k, v in model.state_dict().items()})

    with torch.no_grad():
        same(compiled(x), model(x))
        for change in (in_place, by_data, replaced, loaded, in_place):
            change()
            same(compiled(x), model(x))
            same(compiled(x + 1), model(x + 1))
    assert parts[0]._built is not None
    assert parts[0]._built.frozen == ()


def test_weights_share_memory(parts: list[Part]) -> None:
    model = nn.Linear(64, 64)
    for freeze in (True, False):
        torch._dynamo.reset()
        parts.clear()
        compiled = torch.compile(model, backend=relax_dynamo(freeze=freeze))
        with torch.no_grad():
            compiled(torch.randn(2, 64))
        held = {a.unsafe_buffer_pointer() for _, a in parts[0]._held.values()}
        if not freeze:
            assert model.weight.data_ptr() in held


def test_dtypes_and_kinds_of_results() -> None:
    def f(i: Any, d: Any, b: Any, h: Any) -> Any:
        return {
            "int": (i + 2**40, i.argmax()),
            "double": d * 1e-300,
            "bool": (b & (d > 0), None, 3),
            "half": [h.relu(), h.float().to(torch.float16)],
            "complex": torch.complex(d, d),
            "size": i.shape[0] * 2,
            "same": i,
        }

    args = (
        torch.arange(4) * 2**33,
        torch.randn(4, dtype=torch.float64),
        torch.tensor([True, False, True, True]),
        torch.randn(4).bfloat16(),
    )
    check(f, *args)


def test_memory_layouts() -> None:
    def f(x: Any, y: Any) -> Any:
        return (
            x * 2,
            y + 1,
            y.transpose(1, 2).clone(memory_format=torch.preserve_format),
            x[::2] + 1,
        )

    image = torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last)
    check(f, torch.randn(4, 6).t(), image)
    check(f, torch.randn(8, 8)[::2, 1:], torch.randn(1, 4, 5)[0:1].expand(3, 4, 5))


def test_arguments_that_are_written_to() -> None:
    def f(x: Any, y: Any) -> Any:
        x.add_(1)
        y[1:] = x[1:] * 2
        return x.sum(), y.view(-1)

    check(f, torch.randn(3, 2), torch.randn(3, 2))


def test_results_that_alias() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        return x[0], y, y.t(), y[1:], x.detach()

    check(f, torch.randn(3, 2))


def _complex(x: Any) -> Any:
    y = torch.complex(x, x + 1)
    return y, y.real, y.conj()


def _through_torch(x: Any) -> Any:
    y = torch.ops.relax2xla_test.halves(x)
    return y, y.t(), (y + 1).t()


def _image(x: Any) -> Any:
    y = F.conv2d(x[None, None].to(memory_format=torch.channels_last), torch.ones(2, 1, 1, 1))
    return y, y[:, 0], y.permute(0, 2, 3, 1)


SHARING: list[tuple[str, Callable[[Any], Any]]] = [
    ("one is the base", lambda x: (y := x * 2, y.view(-1), y.t())),
    ("none is the base", lambda x: ((y := x * 2).view(-1), y[1:], y.t()[0])),
    ("parts", lambda x: (*(y := x * 2).split(1), *y.unbind(1), y)),
    ("the same one twice, and equal ones", lambda x: (y := x * 2, y, x * 2, y.detach())),
    (
        "views by sizes",
        lambda x: (y := x * 2, y.view(x.shape[1] * x.shape[0]), y.unflatten(0, (1, -1))),
    ),
    ("copies", lambda x: (y := x * 2, y.clone(), y.t().contiguous(), y + 0)),
    ("overlapping", lambda x: (y := x * 2, y.as_strided((2, 2), (1, 1), 1), y[0].expand(4, -1))),
    ("other dtypes", _complex),
    ("int of the same width", lambda x: (y := x * 2, y.view(torch.int32))),
    ("of an argument", lambda x: (x.t(), x[0], x * 2)),
    ("in parts of the graph", _through_torch),
    ("channels_last", _image),
]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(("name", "f"), SHARING, ids=[n for n, _ in SHARING])
@pytest.mark.filterwarnings("ignore:relax2xla leaves")
def test_results_share_memory_as_they_do_in_torch(name: str, f: Any, dynamic: bool) -> None:
    compiled = torch.compile(f, backend="relax2xla", dynamic=dynamic)
    for shape in ((3, 2), (5, 4)):
        data = torch.randn(shape)
        for at in range(len(f(data))):
            x, y = data.clone(), data.clone()
            got, want = compiled(x), f(y)
            for changed in (got, want):
                changed[at].zero_()
            assert [g.stride() for g in got] == [w.stride() for w in want]
            same((x, got), (y, want))


def test_results_of_training_that_share_memory() -> None:
    def f(x: Any, w: Any) -> Any:
        y = x @ w.t()
        return y, y.view(-1), y.t()

    compiled = torch.compile(f, backend="relax2xla")
    grads: list[Any] = []
    for g in (compiled, f):
        x, w = torch.ones(3, 2, requires_grad=True), torch.ones(4, 2, requires_grad=True)
        y, flat, turned = g(x, w)
        y.mul_(3)
        (flat * turned.reshape(-1)).sum().backward()
        grads.append((x.grad, w.grad))
    same(*grads)


def test_the_result_can_be_written_to() -> None:
    compiled = torch.compile(lambda x: (x + 1, x * 2), backend="relax2xla")
    x = torch.randn(5)
    a, b = compiled(x)
    a.add_(5)
    same((a, b), (x + 6, x * 2))
    same(compiled(x)[0], x + 1)


def test_python_around_the_graphs_and_numbers(parts: list[Part]) -> None:
    def f(x: Any, n: int, s: float) -> Any:
        y = x * n + s
        if y.sum() > 0:
            return y - 1
        return y + 1

    compiled = check(f, torch.randn(3), 2, 0.5)
    with torch.no_grad():
        for n in range(3, 12):
            x = torch.randn(n)
            same(compiled(x, n, n / 3), f(x, n, n / 3))
    assert len(parts) < 16


def test_numbers_that_become_negative(parts: list[Part]) -> None:
    def f(x: Any, n: int, m: int) -> Any:
        return x * n, x + n // 2 + n % 3, x - n * m, torch.full_like(x, n + 1), x * abs(m)

    compiled = torch.compile(f, backend="relax2xla", dynamic=True)
    x = torch.randn(3)
    for n, m in ((5, 7), (-5, 4), (-3, -2), (0, 3), (7, -6)):
        same(compiled(x, n, m), f(x, n, m))
    assert len(parts) <= 4


def test_constants_of_the_program() -> None:
    table = torch.tensor([1.0, 2.0, 4.0])

    def f(x: Any) -> Any:
        return x * torch.tensor(3.0) + table + torch.tensor([1, 2, 3]), torch.full_like(x, 2.5)

    check(f, torch.randn(2, 3))


def test_control_flow_stays_in_the_graph() -> None:
    def f(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x - 1, (x,))

    check(f, torch.ones(3))
    check(f, -torch.ones(3))


# -- what XLA does not run -----------------------------------------------------------------------
@torch.library.custom_op("relax2xla_test::halves", mutates_args=())
def halves(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.numpy() / 2)


@halves.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_operators_without_converter_are_torchs(parts: list[Part]) -> None:
    def f(x: Any) -> Any:
        y = torch.ops.relax2xla_test.halves(x * 2 + 1)
        return y.exp() + x, torch.ops.relax2xla_test.halves(y)

    with pytest.warns(UserWarning, match=r"relax2xla_test\.halves.*test_backend\.py") as caught:
        check(f, torch.randn(4))
    assert len([w for w in caught if "leaves" in str(w.message)]) == 1
    assert len(parts) == 2
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"relax2xla_test\.halves"):
        check(f, torch.randn(4), fallback=False)


def test_numbers_go_from_part_to_part() -> None:
    def f(x: Any) -> Any:
        scale, large = 1 / (x.shape[0] / 3), torch.sym_not(x.shape[0] > 4)
        y = torch.ops.relax2xla_test.halves(x)
        return y * scale + x.shape[0], torch.where(y > scale, large, y) + large

    compiled = torch.compile(f, backend="relax2xla", dynamic=True)
    for n in (3, 5, 6):
        x = torch.randn(n, 4)
        with pytest.warns(UserWarning, match="halves") if n == 3 else contextlib.nullcontext():
            same(compiled(x), f(x))


def test_one_that_torch_cannot_decompose_leaves_the_others_to_us() -> None:
    def f(x: Any, weight: Any, out: Any, kernel: Any) -> Any:
        # There is no decomposition for weights as a result.
        y, _ = torch.ops.aten._native_multi_head_attention(
            x, x, x, 4, 2, weight, weight[:, 0], out, out[0], None, True
        )
        window = ([1], [0], [1], False, [0], 1)
        return torch.ops.aten.convolution_backward(y, x, kernel, None, *window, [True, True, False])

    args = (torch.randn(1, 3, 4), torch.randn(12, 4), torch.randn(4, 4), torch.randn(3, 3, 1))
    with pytest.warns(UserWarning, match="leaves these operators") as caught:
        check(f, *args)
    (message,) = (str(w.message) for w in caught if "leaves" in str(w.message))
    assert "_native_multi_head_attention" in message
    assert "convolution_backward" not in message


def test_random_numbers_are_torchs() -> None:
    def f(x: Any) -> Any:
        return F.dropout(x.exp(), 0.5), torch.rand_like(x) + x, torch.randn(x.shape[0], 2)

    compiled = torch.compile(f, backend="relax2xla")
    for n in (3, 5, 6):
        x = torch.randn(n, 4)
        torch.manual_seed(3)
        got, again = compiled(x), compiled(x)
        torch.manual_seed(3)
        same(got, f(x))
        assert not torch.equal(got[1], again[1])


@pytest.mark.parametrize("dynamic", [False, True])
def test_random_numbers_lie_in_memory_as_eagers_do(dynamic: bool) -> None:
    """Eager fills memory in its order, which is not that of the axes where those were moved."""

    def f(x: Any) -> Any:
        y = x.permute(2, 0, 1)
        return F.dropout(y * 2, 0.5), torch.rand_like(y) + y, F.dropout(x[:, ::2], 0.3)

    compiled = torch.compile(f, backend="relax2xla", dynamic=dynamic)
    x = torch.randn(4, 6, 5)
    torch.manual_seed(3)
    got = compiled(x)
    torch.manual_seed(3)
    same(got, f(x))


class Shortened(nn.Module):
    """Dropout between parts whose sizes are computed from those of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)
        self.layer, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x: Any) -> Any:
        y = self.drop(F.relu(self.norm(self.conv(x)))).flatten(2).transpose(1, 2)
        return self.layer(self.drop(self.layer(y[:, 1:])))


def test_sizes_of_parts_that_are_computed_from_those_of_arguments() -> None:
    eager, ours = Shortened(), Shortened()
    ours.load_state_dict(eager.state_dict())
    compiled = torch.compile(ours, backend="relax2xla", dynamic=True)
    for shape in ((2, 2, 5, 5), (3, 2, 6, 7), (4, 2, 9, 5)):
        x = torch.randn(shape)
        for model in (eager, compiled):
            torch.manual_seed(3)
            model(x).square().sum().backward()
        for a, b in zip(ours.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-3, atol=1e-3)


def test_a_pipeline_of_ones_own() -> None:
    seen: list[str] = []

    @T.module_pass(opt_level=0)
    def note(mod: Any, ctx: Any) -> Any:
        seen.append(str(mod["main"].params))
        return mod

    check(lambda x: x + 1, torch.randn(3), pipeline=T.Sequential([note, T.LegalizeOps()]))
    assert seen
    check(lambda x: x + 2, torch.randn(3), pipeline="default")
    with pytest.raises(TypeError, match="pipeline is None, a Pass"):
        relax_dynamo(pipeline=3)


def test_by_name_with_options() -> None:
    (found,) = entry_points(group="torch_dynamo_backends", name="relax2xla")
    assert found.load() is backend.relax2xla_backend
    compiled = torch.compile(lambda x: x + 1, backend="relax2xla", options={"freeze": False})
    same(compiled(torch.ones(2)), torch.full((2,), 2.0))
    wrong = torch.compile(lambda x: x + 2, backend="relax2xla", options={"frieze": 1})
    with pytest.raises(Exception, match="no option 'frieze'; it has freeze, fallback, pipeline"):
        wrong(torch.ones(2))
