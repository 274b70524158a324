"""Programs over the eight devices of a process, run by test_mesh.py."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relax2xla as rx
from relax2xla.errors import DeviceError, TransformError, TVMError, UnsupportedError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.interop.jax import extract_jax, from_jax
from relax2xla.ir import DeviceMesh
from relax2xla.script import from_source

GRID = Mesh(np.array(jax.devices()).reshape(2, 4), ("x", "y"))
A = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
B = np.random.default_rng(1).standard_normal((16, 32)).astype(np.float32)


def on(*axes: Any) -> NamedSharding:
    return NamedSharding(GRID, P(*axes))


def mapped(f: Callable[..., Any], spec: Any, out: Any, **kwargs: Any) -> Callable[..., Any]:
    return jax.shard_map(f, mesh=GRID, in_specs=spec, out_specs=out, **kwargs)


def ring(t: Any) -> Any:
    return jax.lax.ppermute(t, "y", [(i, (i + 1) % 4) for i in range(4)])


# Name: function, shardings of its arguments, arguments. JAX's own run is the truth.
PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[Any], Sequence[Any]]] = {
    "a product by rows and columns": (jnp.matmul, (on("x"), on(None, "y")), (A, B)),
    "a contraction that is cut": (jnp.matmul, (on(None, "y"), on("y")), (A, B)),
    "a constraint": (
        lambda a, b: jax.lax.with_sharding_constraint(a @ b, on("y", "x")).sum(0),
        (on("x"), on()),
        (A, B),
    ),
    "cut along two axes of the mesh": (jnp.sin, (on(("x", "y")),), (A,)),
    "psum and axis_index": (
        mapped(lambda t: jax.lax.psum(t, "y") + jax.lax.axis_index("x"), P("x", "y"), P("x")),
        (on("x", "y"),),
        (A,),
    ),
    "all_gather": (
        mapped(
            lambda t: jax.lax.all_gather(t, "y", axis=1, tiled=True),
            P("x", "y"),
            P("x"),
            check_vma=False,
        ),
        (on("x", "y"),),
        (A,),
    ),
    "psum_scatter": (
        mapped(lambda t: jax.lax.psum_scatter(t, "y", tiled=True), P(None, "y"), P("y")),
        (on(None, "y"),),
        (A,),
    ),
    "all_to_all": (
        mapped(lambda t: jax.lax.all_to_all(t, "y", 1, 0, tiled=True), P("y", None), P(None, "y")),
        (on("y"),),
        (A,),
    ),
    "ppermute": (mapped(ring, P("x", "y"), P("x", "y")), (on("x", "y"),), (A,)),
    "a step of training": (
        lambda w, x: w - 0.1 * jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w) ** 2))(w),
        (on(None, "y"), on("x")),
        (B, A),
    ),
}
DISTRIBUTED = """
from tvm.script import ir as I, relax as R
@I.ir_module
class M:
    I.module_global_infos({"mesh": [R.device_mesh((2, 4), I.Range(0, 8))]})
    @R.function
    def main(
        x: R.DTensor((8, 16), "float32", "mesh[0]", "S[0], R"),
        w: R.DTensor((16, 32), "float32", "mesh[0]", "R, S[1]"),
    ) -> R.DTensor((8, 32), "float32", "mesh[0]", "S[1], S[0]"):
        y: R.DTensor((8, 32), "float32", "mesh[0]", "S[0], S[1]") = R.matmul(x, w)
        z = R.dist.redistribute(y, R.device_mesh((2, 4), I.Range(0, 8)), "S[1], S[0]")
        return z
"""


# Name: attributes of the module, what makes %y of %x, the error. XLA ends the process on some.
WRONG = {
    "replicas": (
        "attributes {mhlo.num_replicas = 8 : i32}",
        "%y = stablehlo.sine %x : tensor<8xf32>",
        "8 replicas",
    ),
    "no channel": (
        "",
        '%y = "stablehlo.collective_permute"(%x) <{source_target_pairs = dense<[[0, 1], [1, 0]]> : '
        "tensor<2x2xi64>}> : (tensor<8xf32>) -> tensor<8xf32>",
        "between replicas",
    ),
    "one device of the mesh": (
        "",
        '%y = stablehlo.custom_call @Sharding(%x) {mhlo.sharding = "{maximal device=3}"} : '
        "(tensor<8xf32>) -> tensor<8xf32>",
        "no form in JAX",
    ),
    "a smaller mesh": (
        "",
        '%y = sdy.sharding_constraint %x <mesh<["a"=4]>, [{"a"}]> : tensor<8xf32>',
        "Invalid sharding",
    ),
}


def run(mod: Any, *args: Any, mesh: Any = GRID) -> Any:
    return rx.VirtualMachine(rx.build(mod, mesh=mesh))["main"](*args)


def against_jax() -> None:
    for name, (f, shardings, args) in PROGRAMS.items():
        jitted = jax.jit(f, in_shardings=tuple(shardings))
        mod = from_stablehlo(jitted.lower(*args).as_text())
        want = jitted(*args)
        vm = rx.VirtualMachine(rx.build(mod, mesh=GRID))
        spread = [jax.device_put(a, s) for a, s in zip(args, shardings, strict=True)]
        elsewhere = [jax.device_put(a, jax.devices()[3]) for a in args]
        for given in (args, spread, elsewhere, spread):
            got = vm["main"](*given)
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5, err_msg=name)
            assert got.sharding.is_equivalent_to(want.sharding, got.ndim), (name, got.sharding)
        # A mesh whose axes are not the program's.
        np.testing.assert_allclose(run(mod, *args, mesh=8), want, rtol=1e-5, atol=1e-5)


def results_as_stated() -> None:
    """By XLA's own annotations, too, where a copy on each device is stated for a result."""
    for shardy in (True, False):
        jax.config.update("jax_use_shardy_partitioner", shardy)
        for where in (on(), on("y", "x")):
            f = jax.jit(jnp.matmul, in_shardings=(on("x", "y"), on("y")), out_shardings=where)
            got = run(from_stablehlo(f.lower(A, B).as_text()), A, B)
            np.testing.assert_allclose(got, A @ B, rtol=1e-5, atol=1e-5)
            assert got.sharding.is_equivalent_to(where, 2), (shardy, got.sharding)
    jax.config.update("jax_use_shardy_partitioner", True)


def mapped_in_part() -> None:
    """Over some axes of a mesh: JAX counts all devices of it, and those of the others take part."""

    def f(t: Any, axis: str) -> Any:
        size = jax.lax.axis_size(axis)
        turned = jax.lax.ppermute(t, axis, [(i, (i + 1) % size) for i in range(size)])
        some = jax.lax.ppermute(t, axis, [(0, 1)])
        total = jax.lax.psum(t, axis) * (1 + jax.lax.axis_index(axis))
        return turned + some + total + jax.lax.all_gather(t, axis).sum(0)

    for axis, spec in (("x", P("x")), ("y", P(None, "y")), ("x", P(("x",), None))):
        g = jax.jit(
            jax.shard_map(
                lambda t, axis=axis: jnp.sin(f(t, axis)), mesh=GRID, in_specs=spec,
                out_specs=spec, axis_names={axis}, check_vma=False,
            )
        )  # fmt: skip
        mod = from_jax(g, A)
        fn, params = extract_jax(mod)
        np.testing.assert_allclose(jax.jit(fn)(params, A), g(A), rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(run(mod, A), g(A), rtol=1e-4, atol=1e-4)
        got = jax.jit(jax.grad(lambda t, fn=fn, p=params: (fn(p, t) ** 2).sum()))(A)
        want = jax.grad(lambda t, g=g: (g(t) ** 2).sum())(A)
        np.testing.assert_allclose(got, want, rtol=1e-3, atol=1e-3)


def distributed_tensors() -> None:
    mod = from_source(DISTRIBUTED)
    got = run(mod, A, B, mesh=DeviceMesh((2, 4), range(8)))
    np.testing.assert_allclose(got, A @ B, rtol=1e-5, atol=1e-5)
    assert got.sharding.is_equivalent_to(on("y", "x"), 2), got.sharding
    refused(TransformError, "is spread over 8 devices, and the program runs on one", mod, None)


SHARDY = """
sdy.mesh @mesh = <["x"=2, "y"=4]>
func.func @main(%x: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> (tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"y"}]>}) {
  %c = sdy.constant dense<2.0> : tensor<8x16xf32>
  %a = stablehlo.multiply %x, %c : tensor<8x16xf32>
  %b = sdy.reshard %a <@mesh, [{"x"}, {"y"}]> : tensor<8x16xf32>
  %d = sdy.all_gather [{"x"}, {}] %b out_sharding=<@mesh, [{}, {"y"}]> : tensor<8x16xf32>
  return %d : tensor<8x16xf32>
}
"""


def moves_of_shardy() -> None:
    """What Shardy's own passes write: XLA itself does not know these operations."""
    mod = from_stablehlo(SHARDY)
    got = run(mod, A)
    np.testing.assert_allclose(got, A * 2)
    assert got.sharding.is_equivalent_to(on(None, "y"), 2), got.sharding
    fn, params = extract_jax(mod)
    np.testing.assert_allclose(fn(params, A), A * 2)


PARTIAL = """
sdy.mesh @mesh = <["x"=8]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"x"}]>},
    %b: tensor<16x32xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}, {}]>})
    -> tensor<8x32xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
      : (tensor<8x16xf32>, tensor<16x32xf32>) -> tensor<8x32xf32>
  %1 = SUM : tensor<8x32xf32>
  return %1 : tensor<8x32xf32>
}
"""
COPIES = """
sdy.mesh @mesh = <["x"=8]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {}]>})
    -> tensor<8x16xf32> {
  %0 = sdy.all_reduce {"x"} %a out_sharding=<@mesh, [{}, {}]> : tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}
"""


def sums_of_shardy() -> None:
    """A product that is cut along what it contracts is whole; that of copies is refused."""
    for sum_, spec in (
        ('sdy.all_reduce {"x"} %0 out_sharding=<@mesh, [{}, {}]>', P()),
        ('sdy.reduce_scatter [{"x"}, {}] %0 out_sharding=<@mesh, [{"x"}, {}]>', P("x")),
    ):
        got = run(from_stablehlo(PARTIAL.replace("SUM", sum_)), A, B, mesh=8)
        np.testing.assert_allclose(got, A @ B, rtol=1e-5, atol=1e-5)
        line = Mesh(np.array(jax.devices()), ("x",))
        assert got.sharding.is_equivalent_to(NamedSharding(line, spec), 2), got.sharding
    with pytest.raises(DeviceError, match="sums up copies of a whole value"):
        run(from_stablehlo(COPIES), A, mesh=8)


TURNED = """
sdy.mesh @mesh = <["x"=8]>
sdy.mesh @turned = <["y"=2, "x"=4], device_ids=[3, 2, 1, 0, 7, 6, 5, 4]>
func.func @main(%a: tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@ONE, [{"x"}, {}]>})
    -> (tensor<8x16xf32> {sdy.sharding = #sdy.sharding<@TWO, [{"x"}, {}]>}) {
  %0 = sdy.reshard %a <@TWO, [{"x"}, {}]> : tensor<8x16xf32>
  %1 = stablehlo.sine %0 : tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}
"""


def devices_in_another_order() -> None:
    for one, two in (("mesh", "turned"), ("turned", "mesh"), ("turned", "turned")):
        mod = from_stablehlo(TURNED.replace("@ONE", f"@{one}").replace("@TWO", f"@{two}"))
        vm = rx.VirtualMachine(rx.build(mod, mesh=8))
        got = vm["main"](A)
        np.testing.assert_allclose(got, np.sin(A), rtol=1e-5, atol=1e-6)
        # What lies so already is taken as it lies.
        np.testing.assert_allclose(vm["main"](got), np.sin(np.sin(A)), rtol=1e-5, atol=1e-6)
        held = {shard.device.id: shard.index[0].start for shard in got.addressable_shards}
        assert held == {n: n if two == "mesh" else 2 * (3 - n % 4) for n in range(8)}, held


def weights_and_symbols() -> None:
    """Weights are copied to each device once; call shapes have programs of their own."""
    bb = rx.BlockBuilder()
    n = rx.tir.Var("n", "int64")
    x = rx.Var("x", rx.TensorStructInfo((n, 16), "float32"))
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(rx.op.matmul(x, rx.const(B))))
    mod = bb.get()
    mod["main"] = mod["main"].with_attr(
        "arg_attrs", {"x": {"sdy.sharding": {"mlir": '#sdy.sharding<mesh<["x"=8]>, [{"x"}, {}]>'}}}
    )
    vm = rx.VirtualMachine(rx.build(mod, mesh=8))
    for rows in (8, 16, 8):
        a = np.ones((rows, 16), np.float32)
        got = vm["main"](a)
        np.testing.assert_allclose(got, a @ B, rtol=1e-5, atol=1e-5)
        assert len(got.sharding.device_set) == 8
        assert got.addressable_shards[0].data.shape == (rows // 8, 32)


def refused(kind: type[Exception], text: str, mod: Any, mesh: Any) -> None:
    with pytest.raises(kind, match=re.escape(text)):
        rx.build(mod, mesh=mesh)


def errors() -> None:
    f, shardings, args = PROGRAMS["psum and axis_index"]
    mod = from_stablehlo(jax.jit(f, in_shardings=tuple(shardings)).lower(*args).as_text())
    refused(UnsupportedError, "asks for 8 devices", mod, None)
    refused(UnsupportedError, "build(mod, mesh=8)", mod, 4)
    refused(DeviceError, "JAX has 8", mod, 9)
    refused(TypeError, "got str", mod, "all")
    for attributes, body, text in WRONG.values():
        program = from_stablehlo(
            f"module {attributes} {{ func.func @main(%x: tensor<8xf32>) -> tensor<8xf32> {{ {body} "
            "return %y : tensor<8xf32> } }"
        )
        with pytest.raises(TVMError, match=text):
            run(program, A[0, :8], mesh=8)


def main() -> None:
    against_jax()
    results_as_stated()
    mapped_in_part()
    distributed_tensors()
    moves_of_shardy()
    sums_of_shardy()
    devices_in_another_order()
    weights_and_symbols()
    errors()


if __name__ == "__main__":
    main()
    sys.stdout.write("done\n")
