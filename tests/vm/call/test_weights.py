"""Weights are once in memory, and can be replaced by name without compiling again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import relax2xla as rx
from relax2xla import op as R
from relax2xla.errors import CallError, FileFormatError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.frontend.torch import from_exported_program
from relax2xla.vm.pjrt import allocator, xla
from relax2xla.vm.pjrt.cache import DiskCache

T = rx.TensorStructInfo


def network(functions: tuple[str, ...] = ("main",)) -> rx.IRModule:
    """x @ w.T + b, with w and b as named weights; w.T is computed at load."""
    builder = rx.BlockBuilder()
    for name in functions:
        params = {
            "x": T((2, 16), "float32"),
            "w": T((32, 16), "float32"),
            "b": T((32 * 3,), "float32"),
        }
        variables = [rx.Var(n, i) for n, i in params.items()]
        x, w, b = variables
        with builder.function(name, variables):
            with builder.dataflow():
                turned = builder.emit(R.permute_dims(R.multiply(w, w)))
                y = builder.emit(R.matmul(x, turned))
                out = builder.emit_output(R.concat([R.concat([y, y, y], 1), R.reshape(b, (1, 96))]))
            builder.emit_func_output(out)
    return builder.get()


def values(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {
        "w": rng.standard_normal((32, 16)).astype(np.float32),
        "b": rng.standard_normal(96).astype(np.float32),
    }


def expected(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    y = x @ (w * w).T
    return np.concatenate([np.concatenate([y, y, y], 1), b[None]])


def test_weights_are_asked_to_be_in_large_pages(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[list[tuple[int, int]]]()
    monkeypatch.setattr(allocator, "to_large_pages", lambda spans: asked.append(list(spans)))
    vm = rx.VirtualMachine(rx.build(network(), params=values(rng)))
    x = rng.standard_normal((2, 16)).astype(np.float32)
    for _ in range(3):
        vm["main"](x)
    # Once, those that programs take.
    (spans,) = asked
    assert sum(n for _, n in spans) == sum(w.nbytes for w in vm["main"].weights()) > 0


def test_set_params_by_name(rng: np.random.Generator, store: DiskCache) -> None:
    first, second = values(rng), values(rng)
    executable = rx.build(network(), params=first, relax_pipeline="zero")
    assert executable["main"].lifted.transform is not None
    vm, other = rx.VirtualMachine(executable), rx.VirtualMachine(executable)
    x = rng.standard_normal((2, 16)).astype(np.float32)
    assert {n: i.dims for n, i in vm.params().items()} == {"w": (32, 16), "b": (96,)}
    np.testing.assert_allclose(vm["main"](x), expected(x, **first), rtol=1e-5, atol=1e-5)
    compiled = store.writes
    main = vm["main"]
    vm.set_params(second)
    np.testing.assert_allclose(main(x), expected(x, **second), rtol=1e-5, atol=1e-5)
    # One weight alone; the other stays as it was set before.
    vm.set_params({"b": torch.from_numpy(first["b"])})
    np.testing.assert_allclose(main(x), expected(x, second["w"], first["b"]), rtol=1e-5, atol=1e-5)
    # Another machine keeps its own, and nothing was compiled anew.
    np.testing.assert_allclose(other["main"](x), expected(x, **first), rtol=1e-5, atol=1e-5)
    assert store.writes == compiled


def test_what_is_set_may_be_changed_afterwards(rng: np.random.Generator) -> None:
    first, second = values(rng), values(rng)
    vm = rx.VirtualMachine(rx.build(network(), params=first))
    given = {n: v.copy() for n, v in second.items()}
    vm.set_params(given)
    for v in given.values():
        v[:] = 0
    x = rng.standard_normal((2, 16)).astype(np.float32)
    np.testing.assert_allclose(vm["main"](x), expected(x, **second), rtol=1e-5, atol=1e-5)


def test_wrong_weights_change_nothing(rng: np.random.Generator) -> None:
    first = values(rng)
    vm = rx.VirtualMachine(rx.build(network(), params=first))
    x = rng.standard_normal((2, 16)).astype(np.float32)
    vm["main"](x)
    with pytest.raises(CallError, match=r"weight w is .*float32\(16, 32\)"):
        vm.set_params({"b": first["b"] * 2, "w": first["w"].T})
    with pytest.raises(CallError, match="float64"):
        vm.set_params({"w": first["w"].astype(np.float64)})
    with pytest.raises(CallError, match=r"no weight 'v'.*strict=False"):
        vm.set_params({"v": first["b"]})
    np.testing.assert_allclose(vm["main"](x), expected(x, **first), rtol=1e-5, atol=1e-5)
    vm.set_params({"v": first["b"], "b": first["b"] * 2}, strict=False)
    assert np.asarray(vm["main"](x))[-1] == pytest.approx(first["b"] * 2)


def test_functions_and_machines_share_memory(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = values(rng)
    params = {n: [given["w"], given["b"]] for n in ("prefill", "decode")}
    executable = rx.build(network(("prefill", "decode")), params=params, relax_pipeline="zero")
    put: list[tuple[int, ...]] = []
    real = xla.device_put

    def counted(array: np.ndarray, *args: Any, **kw: Any) -> Any:
        put.append(array.shape)
        return real(array, *args, **kw)

    monkeypatch.setattr(xla, "device_put", counted)
    machines = [rx.VirtualMachine(executable) for _ in range(2)]
    placed = [m[name].weights() for m in machines for name in executable]
    # The raw weight once, for the program that squares and turns it, and the other once.
    assert sorted(put) == [(32, 16), (96,)]
    for weights in placed[1:]:
        assert all(a is b for a, b in zip(weights, placed[0], strict=True))


def test_weights_are_the_callers_memory(rng: np.random.Generator) -> None:
    big = np.zeros(1024 * 1024 + 16, np.float32)
    start = (-big.ctypes.data % 64) // 4
    aligned = big[start : start + 1024 * 1024]
    builder = rx.BlockBuilder()
    x = rx.Var("x", T((1,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(R.add(x, rx.const(aligned)))
        builder.emit_func_output(out)
    vm = rx.VirtualMachine(rx.build(builder.get()))
    (weight,) = vm["main"].weights()
    assert weight.unsafe_buffer_pointer() == aligned.ctypes.data


def test_torch_weights_have_their_names() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 64))
    x = torch.randn(3, 64)
    vm = rx.VirtualMachine(rx.build(from_exported_program(torch.export.export(net, (x,)))))
    vm["main"](x)
    torch.manual_seed(1)
    for p in net.parameters():
        torch.nn.init.normal_(p)
    assert set(vm.params()) == set(net.state_dict())
    vm.set_params(net.state_dict())
    np.testing.assert_allclose(vm["main"](x)[0], net(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_tied_torch_weights_have_all_their_names(tmp_path: Path) -> None:
    class Tied(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = torch.nn.Linear(16, 16)
            self.second = torch.nn.Linear(16, 16, bias=False)
            self.third = torch.nn.Linear(16, 16, bias=False)
            self.second.weight = self.third.weight = self.first.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.third(torch.relu(self.second(torch.relu(self.first(x)))))

    net, other, x = Tied(), Tied(), torch.randn(3, 16)
    executable = rx.build(from_exported_program(torch.export.export(net, (x,))))
    executable.export_library(tmp_path / "m.r2x", weights="raw")
    state = {n: v.detach() for n, v in other.state_dict().items()}
    one = {n: v for n, v in state.items() if n in ("second.weight", "first.bias")}
    for ex, given in (
        (executable, state),
        (executable, one),
        (rx.load_module(tmp_path / "m.r2x"), one),
    ):
        vm = rx.VirtualMachine(ex)
        assert set(vm.params()) == set(state)
        vm.set_params(given)
        np.testing.assert_allclose(vm["main"](x)[0], other(x).detach(), rtol=1e-4, atol=1e-5)
        assert len({a.unsafe_buffer_pointer() for a in vm["main"].weights()}) == 2
        with pytest.raises(CallError, match="are one weight; given are two values"):
            vm.set_params({**state, "third.weight": torch.zeros(16, 16)})
        np.testing.assert_allclose(vm["main"](x)[0], other(x).detach(), rtol=1e-4, atol=1e-5)


def test_weights_of_a_checkpoint(tmp_path: Path) -> None:
    from relax2xla.importers.torch import load_state_dict

    net = torch.nn.Linear(4, 3).to(torch.bfloat16)
    torch.save(net.state_dict(), tmp_path / "w.pt")
    found = load_state_dict(tmp_path / "w.pt")
    assert set(found) == {"weight", "bias"}
    np.testing.assert_array_equal(found["weight"].astype("f"), net.weight.detach().float().numpy())
    torch.save(net, tmp_path / "code.pt")
    (tmp_path / "cut.pt").write_bytes((tmp_path / "w.pt").read_bytes()[:100])
    torch.save([1, 2], tmp_path / "list.pt")
    for name in ("code.pt", "cut.pt", "list.pt"):
        with pytest.raises(
            FileFormatError, match=rf"{name} .*torch.save\(model.state_dict\(\)"
        ) as e:
            load_state_dict(tmp_path / name)
        # Torch colours its texts, and proposes to run the code in the file.
        assert "\x1b" not in str(e.value)
        assert "weights_only" not in str(e.value)
    with pytest.raises(FileFormatError, match=r"gone\.pt: No such file"):
        load_state_dict(tmp_path / "gone.pt")


def test_bounds_of_slices_are_no_weights(store: DiskCache) -> None:
    """Small arrays with the name of their layer: sizes depend on them, so they stay constants."""
    bounds = "tensor<2xi64>, tensor<2xi64>, tensor<2xi64>"
    text = f"""
#layer = loc("rnn"("m.py":3:0))
func.func public @main(%x: tensor<?x4xf32> loc("x")) -> tensor<?x2xf32> {{
  %w = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32> loc("rnn.bias")
  %start = stablehlo.constant dense<[0, 1]> : tensor<2xi64> loc(#layer)
  %step = stablehlo.constant dense<1> : tensor<2xi64> loc(#layer)
  %end = stablehlo.constant dense<3> : tensor<1xi64> loc(#layer)
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?x4xf32>) -> tensor<i32>
  %m = stablehlo.convert %n : (tensor<i32>) -> tensor<i64>
  %rows = stablehlo.reshape %m : (tensor<i64>) -> tensor<1xi64>
  %limit = stablehlo.concatenate %rows, %end, dim = 0
    : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %y = stablehlo.real_dynamic_slice %x, %start, %limit, %step
    : (tensor<?x4xf32>, {bounds}) -> tensor<?x2xf32> loc(#layer)
  %two = stablehlo.constant dense<2> : tensor<1xi64> loc(#layer)
  %size = stablehlo.concatenate %rows, %two, dim = 0
    : (tensor<1xi64>, tensor<1xi64>) -> tensor<2xi64>
  %b = stablehlo.dynamic_broadcast_in_dim %w, %size, dims = [1]
    : (tensor<2xf32>, tensor<2xi64>) -> tensor<?x2xf32>
  %z = stablehlo.add %y, %b : tensor<?x2xf32> loc(#layer)
  return %z : tensor<?x2xf32>
}}"""
    machine = rx.VirtualMachine(rx.build(from_stablehlo(text, raise_ops=False)), rx.cpu())
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert list(machine.params()) == ["rnn.bias"]
    np.testing.assert_array_equal(machine["main"](x), x[:, 1:3] + [1, 2])
