"""Functions that several workers run, and saved programs of eight devices; see test_mesh.py."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

import relax2xla as rx
from relax2xla.errors import LegalizeError, TransformError, TVMError, UnsupportedError
from relax2xla.frontend import nn
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.interop.jax import extract_jax
from relax2xla.op import ccl
from relax2xla.script import from_source
from tests.vm.pjrt.mesh_programs import GRID, PROGRAMS

X = np.random.default_rng(0).standard_normal((8, 8, 4)).astype(np.float32)
T = np.tanh(X)
W = np.arange(16, dtype=np.float32).reshape(4, 4) / 8
ALL = P(("x", "y"))

# Name: what is done to a worker's values, and what all workers' values become.
EXCHANGES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "sum": (lambda v: ccl.allreduce(v, "sum"), T.sum(0)),
    "product": (lambda v: ccl.allreduce(v, "prod"), T.prod(0)),
    "largest": (lambda v: ccl.allreduce(v, "max"), T.max(0)),
    "smallest": (lambda v: ccl.allreduce(v, "min"), T.min(0)),
    "average": (lambda v: ccl.allreduce(v, "avg"), T.mean(0)),
    "gathered": (lambda v: ccl.allgather(v, 8), T.reshape(64, 4)),
    "from the first": (ccl.broadcast_from_worker0, T[0]),
    "parts of the first": (lambda v: ccl.scatter_from_worker0(v, 8, 0), T[0].reshape(8, 1, 4)),
    "own part": (
        lambda v: rx.op.distributed.redistribute_replica_to_shard(v, 8, 0),
        T[range(8), range(8)][:, None],
    ),
    "own and sum": (lambda v: rx.op.add(v, ccl.allreduce(v)), T + T.sum(0)),
}


def module(exchange: Callable[[Any], Any], rows: Any = 8, **attrs: Any) -> Any:
    """``exchange(tanh(x)) @ W``."""
    bb = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorStructInfo((rows, 4), "float32"))
    with bb.function("main", [x]):
        v = bb.emit(exchange(bb.emit(rx.op.tanh(x))))
        bb.emit_func_output(bb.emit(rx.op.matmul(v, rx.const(W))))
    mod = bb.get()
    mod["main"] = mod["main"].with_attrs(attrs)
    return mod


def close(got: Any, want: Any, what: object = "") -> None:
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=str(what))


def on_a_mesh() -> None:
    n = rx.tir.Var("n", "int64")
    for name, (exchange, want) in EXCHANGES.items():
        rows = n if name in ("sum", "gathered", "own and sum") else 8
        mod = module(exchange, rows, per_worker=["x"])
        got = rx.VirtualMachine(rx.build(mod, mesh=GRID))["main"](X)
        close(got, want @ W, name)
        # What differs between workers stays where it is.
        parts = {shard.data.shape[0] for shard in got.addressable_shards}
        assert parts == ({1} if got.ndim == 3 else {got.shape[0]}), name
    # Without a word all workers have the same.
    vm = rx.VirtualMachine(rx.build(module(EXCHANGES["sum"][0]), mesh=8))
    close(vm["main"](X[0]), 8 * T[0] @ W)
    # One device is one worker.
    vm = rx.VirtualMachine(rx.build(module(EXCHANGES["average"][0])))
    close(vm["main"](X[0]), T[0] @ W)


def called_functions() -> None:
    mod = from_source("""
from tvm.script import ir as I, relax as R
@I.ir_module
class M:
    @R.function(private=True)
    def mean(x: R.Tensor((8, 4), "float32")) -> R.Tensor((8, 4), "float32"):
        y = R.ccl.allreduce(x, "avg")
        return y
    @R.function
    def main(x: R.Tensor((8, 4), "float32"), n: R.Tensor((), "float32")):
        R.func_attr({"per_worker": ["x"]})
        y = M.mean(x)
        z = R.subtract(x, y)
        return (y, z, n)
    @R.function
    def other(x: R.Tensor((8, 4), "float32")):
        y = R.tanh(x)
        return y
""")
    vm = rx.VirtualMachine(rx.build(mod, mesh=GRID))
    mean, rest, number = vm["main"](X, np.float32(3))
    close(mean, X.mean(0))
    close(rest, X - X.mean(0))
    close(number, 3)
    close(vm["other"](X[0]), T[0])


def models_of_nn() -> None:
    """A product whose inner axis is cut: each worker has rows of the weight, the sum is whole."""

    class Cut(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter((4, 2), "float32")

        def forward(self, x: nn.Tensor) -> nn.Tensor:
            x = nn.op.ccl_broadcast_from_worker0(x)
            return nn.op.ccl_allreduce(nn.op.matmul(x, self.weight), "sum")

    mod, _ = Cut().export_tvm({"forward": {"x": nn.spec.Tensor((3, 4), "float32")}})
    name = mod["forward"].params[-1].name_hint
    mod["forward"] = mod["forward"].with_attr("per_worker", [name])
    weights = X[:, :4, :2]
    vm = rx.VirtualMachine(rx.build(mod, mesh=8))
    close(vm["forward"](X[0, :3], weights), X[0, :3] @ weights.sum(0))


def as_functions_of_jax() -> None:
    """Inside ``jax.shard_map``, with derivatives: of JAX's own collectives."""
    for name, (exchange, want) in EXCHANGES.items():
        fn, params = extract_jax(module(exchange))
        mapped = jax.shard_map(
            lambda t, f=fn, p=params: f(p, t[0])[None], mesh=GRID, in_specs=ALL, out_specs=ALL
        )
        whole = np.broadcast_to(want @ W, (8, *np.shape(want)[-2:]))
        value, slope = jax.jit(jax.value_and_grad(lambda t, m=mapped: (m(t) ** 2).sum()))(X)
        close(value, (whole**2).sum(), name)
        # Along a direction, by differences in double precision.
        step = np.cos(np.arange(X.size)).reshape(X.shape)
        ends = [_total(name, X.astype(np.float64) + e * step) for e in (1e-6, -1e-6)]
        np.testing.assert_allclose((slope * step).sum(), (ends[0] - ends[1]) / 2e-6, rtol=2e-3)
    fn, params = extract_jax(module(EXCHANGES["gathered"][0]))
    with pytest.raises(LegalizeError, match=re.escape("build(mod, mesh=8), or a call of the JAX")):
        fn(params, X[0])
    two = Mesh(np.array(jax.devices()[:2]), ("x",))
    few = jax.shard_map(lambda t: fn(params, t), mesh=two, in_specs=P(), out_specs=P())
    with pytest.raises(LegalizeError, match="written for 8 workers, and the program runs on 2"):
        jax.jit(few)(X[0])


def _total(name: str, x: Any) -> float:
    """What ``as_functions_of_jax`` differentiates, with numpy."""
    t = np.tanh(x)
    made = {
        "sum": lambda: t.sum(0),
        "product": lambda: t.prod(0),
        "largest": lambda: t.max(0),
        "smallest": lambda: t.min(0),
        "average": lambda: t.mean(0),
        "gathered": lambda: t.reshape(64, 4),
        "from the first": lambda: t[0],
        "parts of the first": lambda: t[0].reshape(8, 1, 4),
        "own part": lambda: t[range(8), range(8)][:, None],
        "own and sum": lambda: t + t.sum(0),
    }[name]()
    return float(((made @ W) ** 2).sum() * (1 if made.ndim == 3 else 8))


def programs_of_jax() -> None:
    """Programs that JAX wrote for eight devices, as functions of JAX: values and gradients."""
    for name, (f, shardings, args) in PROGRAMS.items():
        jitted = jax.jit(f, in_shardings=tuple(shardings))
        fn, params = extract_jax(from_stablehlo(jitted.lower(*args).as_text()))

        def both(g: Any, args: Any = args) -> Any:
            return jax.jit(jax.value_and_grad(lambda *a: jnp.sin(g(*a)).sum()))(*args)

        got, want = both(lambda *a, f=fn, p=params: f(p, *a)), both(jitted)
        jax.tree.map(lambda a, b, name=name: close(a, b, name), got, want)


def saved(folder: Path) -> None:
    path = folder / "workers.r2x"
    exchange, want = EXCHANGES["own and sum"]
    rx.build(module(exchange, per_worker=["x"]), mesh=GRID).export_library(path)
    loaded = rx.load_module(path)
    assert str(loaded.device) == "cpu:mesh(x=2, y=4)"
    close(rx.VirtualMachine(loaded)["main"](X), want @ W)
    for name in ("a contraction that is cut", "psum and axis_index"):
        f, shardings, args = PROGRAMS[name]
        jitted = jax.jit(f, in_shardings=tuple(shardings))
        mod = from_stablehlo(jitted.lower(*args).as_text())
        rx.build(mod, mesh=GRID).export_library(path)
        got, known = rx.VirtualMachine(rx.load_module(path))["main"](*args), jitted(*args)
        close(got, known, name)
        assert got.sharding.is_equivalent_to(known.sharding, got.ndim), name


def errors() -> None:
    exchange, _ = EXCHANGES["gathered"]
    for kind, text, mod, mesh in (
        (LegalizeError, "written for 8 workers", module(exchange), 4),
        (TransformError, "'w', which is no parameter", module(exchange, per_worker=["w"]), 8),
        (
            TransformError,
            "states how arrays are spread",
            module(exchange, arg_attrs={"x": {"mhlo.sharding": "{replicated}"}}),
            8,
        ),
    ):
        with pytest.raises(kind, match=re.escape(text)):
            rx.build(mod, mesh=mesh)
    mod = from_source("""
from tvm.script import ir as I, relax as R
@I.ir_module
class M:
    @R.function(pure=False)
    def main(x: R.Tensor((8, 4), "float32")):
        y = R.ccl.allreduce(x, "avg")
        z = R.call_packed("tests.none", y, sinfo_args=R.Tensor((8, 4), "float32"))
        return z
""")
    with pytest.raises(TVMError, match="has to be one XLA program over the mesh"):
        rx.build(mod, mesh=8)
    f, shardings, args = PROGRAMS["psum and axis_index"]
    text = jax.jit(f, in_shardings=tuple(shardings)).lower(*args).as_text()
    for old, new in (('"y"=4]', '"y"=4, "z"=2]'), ("partitions = 8", "partitions = 16")):
        text = text.replace(old, new)
    fn, params = extract_jax(from_stablehlo(text))
    with pytest.raises(UnsupportedError, match="is over 16 devices, and JAX has 8"):
        fn(params, *args)


def main(folder: str) -> None:
    on_a_mesh()
    called_functions()
    models_of_nn()
    as_functions_of_jax()
    programs_of_jax()
    saved(Path(folder))
    errors()


if __name__ == "__main__":
    main(sys.argv[1])
    sys.stdout.write("done\n")
