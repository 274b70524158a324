"""torch.compile at its edges: threads, devices, checkpoints, wrong options; against eager torch."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from relax2xla.frontend.torch import relax_dynamo  # noqa: E402
from relax2xla.importers.torch.compile import xla_part as runtime  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("fresh_dynamo"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*", "ignore::DeprecationWarning"),
]


def test_a_thread_waits_while_another_compiles_new_weights_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is computed of weights alone is computed when they are compiled in.
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)).eval()
    compiled = torch.compile(model, backend="relax2xla")
    x = torch.randn(2, 4)
    with torch.no_grad():
        compiled(x)
        for weight in model.parameters():
            weight.add_(1)
        want = model(x)
    building, go = threading.Event(), threading.Event()
    builds: list[Any] = []
    build = runtime.build

    def slowly(*args: Any, **kwargs: Any) -> Any:
        builds.append(args)
        building.set()
        assert go.wait(60)
        return build(*args, **kwargs)

    monkeypatch.setattr(runtime, "build", slowly)
    got: list[Any] = []

    def call() -> None:
        with torch.no_grad():
            got.append(compiled(x))

    threads = [threading.Thread(target=call) for _ in range(2)]
    threads[0].start()
    assert building.wait(60)
    threads[1].start()
    threads[1].join(0.3)
    go.set()
    for thread in threads:
        thread.join()
    assert len(got) == 2
    assert len(builds) == 1
    for value in got:
        torch.testing.assert_close(value, want)


def test_statistics_that_change_under_a_checkpoint() -> None:
    ours = nn.Sequential(nn.Linear(4, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU())
    theirs = copy.deepcopy(ours)
    x = torch.randn(6, 4)
    values: list[Any] = []
    for model, backend in ((ours, "relax2xla"), (theirs, "aot_eager")):
        run: Callable[..., Any] = torch.compile(
            lambda x, model=model: checkpoint(model, x, use_reentrant=False), backend=backend
        )
        result = run(x)
        result.square().sum().backward()
        values.append((result, dict(model.state_dict()), [p.grad for p in model.parameters()]))
        torch._dynamo.reset()
    torch.testing.assert_close(*values, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x + 1)[:, ::2],
        lambda x: (x + 1)[1:, 1:],
        lambda x: (x + 1)[:, None].expand(3, 5, 4),
        lambda x: (x * 2).t()[::2],
        lambda x: ((x + 1).expand(2, 3, 4), x - 1),
    ],
)
def test_results_with_gaps_have_the_strides_of_eager(function: Callable[..., Any]) -> None:
    compiled = torch.compile(function, backend="relax2xla", dynamic=True)
    leaves = torch.utils._pytree.tree_leaves
    for grad in (False, True):
        x = torch.randn(3, 4, requires_grad=grad)
        for got, want in zip(leaves(compiled(x)), leaves(function(x)), strict=True):
            assert got.stride() == want.stride()
            torch.testing.assert_close(got, want)


@pytest.mark.filterwarnings("ignore:relax2xla leaves")
def test_tensors_on_other_devices_are_torchs() -> None:
    def mixed(x: Any, y: Any) -> Any:
        return x * 2, y.sin() + 1, torch.ones(3, device="meta"), y.to("meta")

    compiled = torch.compile(mixed, backend="relax2xla")
    x, y = torch.ones(3, device="meta"), torch.randn(4)
    got, want = compiled(x, y), mixed(x, y)
    assert [(v.device, v.shape) for v in got] == [(v.device, v.shape) for v in want]
    torch.testing.assert_close(got[1], want[1])
    strict = torch.compile(lambda x: x * 2, backend=relax_dynamo(fallback=False))
    with pytest.raises(Exception, match=r"mul\.Tensor.*on the device meta.*test_edges"):
        strict(x)


def test_checks_of_factors_and_negative_views_need_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="relax2xla leaves")
        inverse = torch.compile(torch.linalg.inv, backend="relax2xla")
        torch.testing.assert_close(inverse(torch.eye(3) * 2), torch.eye(3) / 2)
        with pytest.raises(RuntimeError, match="singular"):
            inverse(torch.zeros(3, 3))
        z = torch.tensor([1 + 2j, 3 - 4j])
        part = torch.compile(lambda z: z.imag * 2, backend="relax2xla")
        torch.testing.assert_close(part(z.conj()), z.conj().imag * 2)


def test_a_step_of_an_optimiser_on_lists_of_tensors() -> None:
    weights = [[nn.Parameter(torch.arange(n) / n) for n in (3, 4)] for _ in range(2)]
    ours, theirs = (torch.optim.AdamW(w, 0.1, foreach=True, amsgrad=True) for w in weights)
    step = torch.compile(ours.step, backend="relax2xla")
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="relax2xla leaves")
        for k in range(3):
            for p, q in zip(*weights, strict=True):
                p.grad = torch.full_like(p, k - 0.5)
                q.grad = torch.full_like(q, k - 0.5)
            step()
            theirs.step()
    torch.testing.assert_close(weights[0], weights[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "fast"}, "no mode 'fast'; torch has default, reduce-overhead"),
        ({"options": {"bogus": 1}}, "no option 'bogus'; it has freeze"),
        ({"options": {"freeze": "no"}}, "freeze is True or False; got 'no'"),
        ({"options": {"pipeline": 3}}, "pipeline is None, a Pass or the name of a pipeline"),
        ({"options": {"pipeline": "nope"}}, "unknown pipeline 'nope'"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    compiled = torch.compile(torch.sin, backend="relax2xla", **options)
    with pytest.raises(Exception, match=message):
        compiled(torch.ones(2))
    if "options" in options and "bogus" not in options["options"]:
        with pytest.raises((TypeError, ValueError), match=message):
            relax_dynamo(**options["options"])


def test_modes_of_torch_are_one() -> None:
    for mode in ("default", "reduce-overhead", "max-autotune"):
        compiled = torch.compile(torch.sin, backend="relax2xla", mode=mode)
        assert compiled(torch.zeros(2)).tolist() == [0, 0]


@pytest.mark.parametrize("name", ["det", "slogdet", "logdet"])
@pytest.mark.parametrize("lies", ["rows", "columns", "batch", "computed", "complex"])
def test_gradients_of_determinants(name: str, lies: str) -> None:
    """Torch differentiates with the factors that its operator gives beside the value."""
    shape = (3, 4, 4) if lies == "batch" else (4, 4)
    dtype = torch.complex64 if lies == "complex" else torch.float32
    start = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    start = start + 4 * torch.eye(4)
    start = start.mT if lies == "columns" else start

    def function(a: torch.Tensor) -> torch.Tensor:
        made = getattr(torch, name)(a @ a + a if lies == "computed" else a)
        made = made[1] if name == "slogdet" else made
        return made.abs().square().sum()

    slopes: list[torch.Tensor] = []
    for call in (function, torch.compile(function, backend="relax2xla")):
        a = start.clone(memory_format=torch.preserve_format).requires_grad_()
        call(a).backward()
        assert a.grad is not None
        slopes.append(a.grad)
    torch.testing.assert_close(*slopes, rtol=1e-3, atol=1e-3)
