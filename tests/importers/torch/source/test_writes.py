"""Programs that write in place: to what they made, to inputs, to buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import relax2xla  # noqa: E402
from relax2xla import TVMError  # noqa: E402
from relax2xla.errors import UnsupportedError  # noqa: E402
from relax2xla.frontend.torch import from_exported_program  # noqa: E402
from relax2xla.importers.shared.gaps import Unsupported  # noqa: E402
from relax2xla.importers.torch.engine import converters  # noqa: E402
from relax2xla.importers.torch.engine.converters import CONVERTERS, Converter  # noqa: E402
from relax2xla.tvm.frontend import torch as tvm_s_face  # noqa: E402
from tests.importers.torch.helpers import Fn, check, imported, not_traced_anew, run  # noqa: E402

X = torch.randn(128, 10, generator=torch.Generator().manual_seed(0))


@not_traced_anew()
def test_writes_that_nobody_else_sees_need_no_rewriting() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        z = y + 1
        y.add_(z).clamp_(min=0)
        w = x + 3
        # The mask takes the shape of what is written, and none of its memory.
        w.masked_fill_((x[:1] > 0).expand_as(w), -1)
        # Through views in other shapes, and by another name.
        v = x * 5
        v.view(2, 6)[:, 1].unsqueeze(0).add_(1)
        v[...].pow_(2).floor_divide_(x.abs() + 1)
        return y.sum(), z.relu_(), y, w, v

    check(f, [torch.randn(3, 4)])
    block = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Hardswish(inplace=True))
    check(block, [torch.randn(3, 4)])


def test_writes_through_views() -> None:
    def f(x: Any) -> Any:
        y = x.clone()
        row = y[0]
        y.mul_(2)
        row[1:] = 5.0
        y[:, 0] += 1
        z = torch.zeros_like(x)
        z[1] = row
        return y, z, row

    check(f, [torch.randn(3, 4)])


def test_a_view_taken_after_a_write() -> None:
    def f(x: Any) -> Any:
        y = x + 1
        y.mul_(3)
        v = y.view(-1)
        return v * 2, y

    check(f, [torch.randn(3, 4)])


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.steps += 1
        return x * self.steps


def test_a_changed_buffer_is_a_parameter_and_a_result() -> None:
    module = Counter()
    mod = from_exported_program(torch.export.export(module, (X,)))
    main = mod["main"]
    assert main.attrs["state"] == {"steps": (1, 1)}
    np.testing.assert_array_equal(main.attrs["state_values"][0], 0)
    got = run(mod, [X, torch.tensor(4.0)])
    np.testing.assert_allclose(got[0], X.numpy() * 5)
    assert got[1] == 5


@pytest.mark.parametrize("registered", [False, True])
def test_a_write_to_what_torch_takes_for_a_constant(registered: bool) -> None:
    class Cache(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = [torch.zeros(1, 4, 3)]
            if registered:  # torch sees through the list with strict=True alone
                self.register_buffer("cache", self.held[0])

        def forward(self, x: Any, at: Any) -> Any:
            self.held[0].transpose(0, 1).index_copy_(0, at, x)
            return self.held[0].sum(1)

    inputs = torch.ones(1, 1, 3), torch.tensor([2])
    program = torch.export.export(Cache(), inputs, strict=False)
    with pytest.raises(TVMError, match=r"index_copy_.*test_writes.py:\d+ writes to .*strict=True"):
        from_exported_program(program)
    if registered:
        mod = from_exported_program(torch.export.export(Cache(), inputs, strict=True))
        assert mod["main"].attrs["state"] == {"cache": (2, 1)}
        got = run(mod, [*inputs, torch.full((1, 4, 3), 5.0)])
        np.testing.assert_array_equal(got[0], [[16.0] * 3])


def test_a_write_to_a_buffer_of_two_names() -> None:
    """As layers that share a rotary embedding, which keeps what it has computed."""

    class Angles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("kept", torch.zeros(4, 2))

        def forward(self, x: Any) -> Any:
            with torch.autocast("cpu", enabled=False):  # torch rewrites what is in a region
                made = x.sin()
                self.get_buffer("kept")[: len(x)] = made
            return made

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.angles = Angles()
            self.inner = nn.Sequential(self.angles)

        def forward(self, x: Any) -> Any:
            before = self.inner[0].get_buffer("kept") * 2
            return self.inner(x), before, self.angles.kept + 1

    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    program = torch.export.export(Both(), (x,))
    graph = str(program.graph)
    mod = from_exported_program(program)
    assert str(program.graph) == graph
    assert mod["main"].attrs["state"] == {"angles.kept": (1, 3)}
    machine = relax2xla.VirtualMachine(relax2xla.build(mod))
    main, eager = machine.bind_state("main"), Both()
    for factor in (1, 2):
        for got, want in zip(main((x * factor).numpy()), eager(x * factor), strict=True):
            np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)


def test_writes_that_torch_cannot_take_out_are_named() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("whole", torch.zeros(3))
            self.register_buffer("part", self.get_buffer("whole")[:1])

        def forward(self, x: Any) -> Any:
            self.get_buffer("part").add_(x.mean())
            return self.get_buffer("whole") * x

    program = torch.export.export(Shared(), (torch.ones(3),))
    with pytest.raises(UnsupportedError, match=r"aten.add_.Tensor at .*test_writes.py:"):
        from_exported_program(program)


def test_a_changed_input_is_a_result() -> None:
    class Twice(nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            y.mul_(2)
            return x + y

    program = torch.export.export(Twice(), (torch.ones(3), torch.ones(3)))
    mod = from_exported_program(program, unwrap_unit_return_tuple=True)
    assert mod["main"].attrs["mutated_inputs"] == {"y": 1}
    got = run(mod, [torch.ones(3), torch.full((3,), 5.0)])
    np.testing.assert_array_equal(got, [[11.0] * 3, [10.0] * 3])
    # As programs for TVM unpack it: the results are the model's own, and nothing else is told.
    for convert in (
        lambda: from_exported_program(
            program, unwrap_unit_return_tuple=True, keep_input_writes=False
        ),
        lambda: tvm_s_face.from_exported_program(program, unwrap_unit_return_tuple=True),
    ):
        mod = convert()
        assert "mutated_inputs" not in mod["main"].attrs
        assert isinstance(mod["main"].ret_struct_info, relax2xla.TensorStructInfo)
        (result,) = run(mod, [torch.ones(3), torch.full((3,), 5.0)])
        np.testing.assert_array_equal(result, [11.0] * 3)


def test_batch_norm_in_training_keeps_its_statistics_on_the_device() -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).train()
    x = torch.randn(2, 3, 4, 4)
    mod = from_exported_program(module, (x,))
    stateful = relax2xla.VirtualMachine(relax2xla.build(mod)).bind_state("main")
    assert set(stateful.names) == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    for _ in range(3):
        got = stateful(x)
        np.testing.assert_allclose(np.asarray(got), module(x).detach(), rtol=1e-4, atol=1e-5)
    for name, value in stateful.state.items():
        np.testing.assert_allclose(np.asarray(value), module.state_dict()[name], rtol=1e-5)
    stateful.reset()
    assert int(stateful.read("1.num_batches_tracked")) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@not_traced_anew()
def test_batch_norms_in_training_without_torch_tracing_them(dtype: Any) -> None:
    """One layer twice, one without scale, one of rows; for any batch."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False, momentum=0.7)
            self.c = nn.BatchNorm1d(3)

        def forward(self, x: Any) -> Any:
            statistics: Any = self.a.running_mean
            y = self.b(self.a(self.a(x).relu() + x)) - statistics[0]
            return self.c(y.mean((2, 3)) * 3)

    module = Net().train().to(dtype)
    batch = {0: torch.export.Dim("n", min=2)}
    program = torch.export.export(
        module, (torch.ones(4, 3, 5, 5, dtype=dtype),), dynamic_shapes=(batch,)
    )
    machine = relax2xla.VirtualMachine(relax2xla.build(from_exported_program(program)))
    stateful = machine.bind_state("main")
    tolerance = 1e-5 if dtype == torch.float32 else 0.03
    torch.manual_seed(0)  # Two rows of one mean leave no digits to a bfloat16.
    for n in (4, 7, 2):
        x = torch.randn(n, 3, 5, 5, dtype=dtype)
        got = np.asarray(stateful(x), np.float32)
        np.testing.assert_allclose(got, module(x).detach().float(), tolerance, tolerance)
    for name, value in stateful.state.items():
        mine, his = np.asarray(value, np.float32), module.state_dict()[name].float()
        np.testing.assert_allclose(mine, his, tolerance, tolerance)


def test_writes_that_nobody_else_reads_need_no_rewriting() -> None:
    def f(x: Any) -> Any:
        y = (x * 2).flatten(1)
        y.add_(1)  # a view, whose base nobody reads again
        torch.nn.functional.dropout(y, 0.5, training=False, inplace=True)
        z = y.view(-1)
        z.relu_()
        return z - 1

    with not_traced_anew():
        check(f, [torch.randn(3, 2, 2)])

    def both(x: Any) -> Any:
        y = x * 2
        first, second = y[0], y.view(-1)
        first.add_(1)
        return second * 1, y.sum()

    check(both, [torch.randn(3, 2)])


def test_writes_to_parts_need_no_rewriting() -> None:
    def f(x: Any) -> Any:
        y = torch.zeros(4, 5)
        y[:-2, 1:3] = 1.0
        y[-9:2, -1] = x[:2]  # starts before the first row
        y[2] += x[0]
        y[1:, ::2] *= 3.0
        before = y * 1
        y[7:] = 4.0  # no row at all
        y.select(0, 3)[1:].fill_(2.0).neg_()
        values, places = x.topk(2)
        values /= values.sum(-1, keepdim=True)
        return y.sum(0), before, values, places

    with not_traced_anew():
        check(f, [torch.arange(1.0, 5.0)])

    def seen(x: Any) -> Any:
        y = x * 2
        row = y[1]
        y[:, 0] = 7.0  # another view of it is read afterwards
        y[0, :] += row
        return row + 1, y

    check(seen, [torch.randn(3, 2)])


def test_new_shapes_in_place_need_no_rewriting() -> None:
    def f(x: Any) -> Any:
        y = x * 2
        y.unsqueeze_(1).unsqueeze_(0)
        y.squeeze_(0).transpose_(0, 2)
        whole = x + 1
        row = whole[1]
        row.unsqueeze_(0)  # of this name of the row alone
        flat = row.flatten()
        return y, y.shape[0] * x, whole, row, flat, (x @ x.mT).t_().add_(1)

    with not_traced_anew():
        check(f, [torch.randn(3, 2)])

    def written(x: Any) -> Any:
        y = x * 2
        flat = y.view(-1)
        y.unsqueeze_(0)
        flat.add_(1)
        y[0, 0] = 5.0
        return y * 2, flat

    check(written, [torch.randn(3, 2)])


@pytest.mark.parametrize(
    "same",
    [
        lambda x: nn.functional.dropout(x, 0.5, training=False),
        lambda x: x[1:].type_as(x),
    ],
)
def test_writes_to_what_is_its_argument_itself(same: Any) -> None:
    """What torch loses when it makes the graph functional, since no schema says it."""

    def f(x: Any) -> Any:
        y = x * 2
        same(y).add_(1)
        return y

    def rewritten(x: Any) -> Any:
        y = x * 2
        same(y).transpose(0, -1).add_(1)
        same(y).add_(1)
        return y

    check(f, [torch.randn(3, 2, 4)])
    check(rewritten, [torch.randn(3, 2, 4)])


def test_writes_through_windows_are_refused_behind_another_name() -> None:
    def f(x: Any) -> Any:
        y = x.clone()
        y.unfold(0, 2, 3).type_as(x).add_(1)
        return y

    with pytest.raises(UnsupportedError, match="through the windows of Tensor"):
        imported(f, [torch.ones(8)])


def test_a_write_that_has_no_converter_is_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(ctx: Any, self: Any, *_: Any, **__: Any) -> Any:
        raise Unsupported("slice_scatter, for the test")

    converters.load()
    known = CONVERTERS["slice_scatter"]
    monkeypatch.setitem(CONVERTERS, "slice_scatter", Converter(refused, known.params))

    def f(x: Any, at: Any) -> Any:
        y = x.clone()
        y[at, 0:2, -1] = 1.0
        return y

    check(f, [torch.zeros(3, 5, 6), torch.tensor([[-3], [1]])])


class Cache(nn.Module):
    """Keys by position, as a decoder keeps them."""

    keys: Any
    length: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.zeros(6, 4))
        self.register_buffer("length", torch.zeros((), dtype=torch.int64))

    def forward(self, x: Any) -> Any:
        at = torch.arange(x.shape[0]) + self.length
        self.length.to(torch.int64).add_(x.shape[0])
        self.keys.index_copy_(0, at, x)
        return x @ self.keys.T


@not_traced_anew()
def test_state_needs_no_rewriting() -> None:
    module, steps = Cache(), torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    program = torch.export.export(Cache(), (steps[0],))
    mod = from_exported_program(program)
    assert set(mod["main"].attrs["state"]) == {"keys", "length"}
    step = relax2xla.VirtualMachine(relax2xla.build(mod)).bind_state("main")
    for x in steps:
        torch.testing.assert_close(torch.from_dlpack(step(x)), module(x))


class Copies(nn.Module):
    """Writes values of another dtype and shape to buffers, and reads them."""

    narrow: Any
    wide: Any
    count: Any

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("narrow", torch.ones(3, dtype=torch.bfloat16))
        self.register_buffer("wide", torch.ones(2, 3))
        self.register_buffer("count", torch.ones(3, dtype=torch.int32))

    def forward(self, x: Any) -> Any:
        self.narrow.copy_(x * self.narrow)
        self.wide.copy_(torch.ones(()) * 3)
        self.count.copy_(x * 2.7)
        return x + self.narrow, self.count + self.wide


def test_copies_into_buffers_convert_and_broadcast() -> None:
    module, x = Copies(), torch.tensor([1.3, -2.7, 0.4])
    program = torch.export.export(module, (x,))
    before = str(program.graph)
    mod = from_exported_program(program)
    assert str(program.graph) == before
    values = [np.array(v) for v in mod["main"].attrs["state_values"]]
    vm = relax2xla.VirtualMachine(relax2xla.build(mod))
    found = vm["main"](x.numpy(), *values)
    wanted = [*module(x), *dict(module.named_buffers()).values()]
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(torch.from_dlpack(ours), theirs, rtol=0, atol=0)


def test_copies_into_inputs_convert_and_broadcast() -> None:
    def f(x: Any, y: Any) -> Any:
        y.copy_(x)
        return y + 1

    x, y = torch.randn(1, 3, generator=torch.Generator().manual_seed(0)), torch.zeros(4, 3).half()
    mod = from_exported_program(Fn(f), (x, y.clone()))
    found = relax2xla.VirtualMachine(relax2xla.build(mod))["main"](x.numpy(), y.numpy())
    for ours, theirs in zip(found, (f(x, y), y), strict=True):
        torch.testing.assert_close(torch.from_dlpack(ours), theirs, rtol=0, atol=0)
