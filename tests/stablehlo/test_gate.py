"""What a program may not ask of its process (``stablehlo.gate``); values are held against JAX."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jaxlib.cpu import _lapack

import relax2xla
from relax2xla.errors import TVMError, UnsupportedError
from relax2xla.importers.stablehlo import from_stablehlo
from relax2xla.interop.jax import extract_jax, from_jax
from relax2xla.script import from_source
from relax2xla.stablehlo import parse
from relax2xla.stablehlo.untrusted import lapack
from relax2xla.stablehlo.untrusted.gate_mlir import check_mlir
from relax2xla.stablehlo.untrusted.targets import GROUPS, SAFE
from relax2xla.vm.pjrt import compiler

X = np.arange(4, dtype=np.float32)
ONE = "mhlo.num_replicas = 1 : i32, mhlo.num_partitions = 1 : i32"
TWO = '"sdy.mesh"() <{sym_name = "mesh", mesh = #sdy.mesh<["x"=2]>}> : () -> ()'


def call(target: str, ins: Sequence[str], outs: Sequence[str], attrs: str = "") -> str:
    """A program of one custom call."""
    params = ", ".join(f"%a{i}: tensor<{t}>" for i, t in enumerate(ins))
    operands = ", ".join(f"%a{i}" for i in range(len(ins)))
    types, made = (", ".join(f"tensor<{t}>" for t in ts) for ts in (ins, outs))
    names = [f"%0#{i}" for i in range(len(outs))] if len(outs) > 1 else ["%0"] * len(outs)
    head = {0: "", 1: "%0 = "}.get(len(outs), f"%0:{len(outs)} = ")
    last = f"return {', '.join(names)}" + (f" : {made}" if outs else "")
    return f"""
func.func private @f(%a: tensor<f32>) -> tensor<f32> {{ return %a : tensor<f32> }}
func.func public @main({params}) -> ({made}) {{
  {head}stablehlo.custom_call @{target}({operands}) {{{attrs}}} : ({types}) -> ({made})
  {last}
}}
"""


def program(body: str, attrs: str = "", prelude: str = "", out: str = "4xf32") -> str:
    """A program over ``%a``, a vector of four numbers, that gives ``%0``."""
    return f"""module attributes {{{attrs}}} {{
{prelude}
func.func public @main(%a: tensor<4xf32>) -> tensor<{out}> {{
  {body}
  return %0 : tensor<{out}>
}} }}"""


def reason(text: str, **options: Any) -> str:
    """Why a program is refused, by ``build`` and by the last look before XLA."""
    mod = from_stablehlo(text, raise_ops=False)
    with pytest.raises(UnsupportedError) as found:
        relax2xla.build(mod, **options)
    with pytest.raises(UnsupportedError):
        check_mlir(parse(text), options.get("allow_custom_calls", ()))
    return str(found.value)


def run(text: str, *args: Any, **options: Any) -> Any:
    made = relax2xla.build(from_stablehlo(text, **options))
    return relax2xla.VirtualMachine(made)["main"](*args)


# ---- targets
@pytest.mark.parametrize(
    "target",
    [
        *("foo", "check.expect_eq", "__onednn$matmul", "SliceToDynamic", "PadToStatic", "LAPACK"),
        *("lapack_spotrf", "lapack_xpotrf_ffi", "tpu_custom_call", "triton_kernel_call", ""),
    ],
)
def test_unknown_targets_are_refused(target: str) -> None:
    text = call(f'"{target}"', ["4xf32"], ["4xf32"])
    told = reason(text)
    assert f"main: the custom call {target} cannot run (at -:4:8)" in told
    assert f"allow_custom_calls=[{target!r}]" in told


@pytest.mark.parametrize(
    "target",
    [f"xla_{kind}_python_{p}_callback" for kind in ("ffi", "buffer") for p in ("cpu", "gpu")]
    + ["xla_ffi_partitioned_python_cpu_callback", "CustomSPMDPartitioning", "inspect_sharding"],
)
def test_callbacks_are_refused_whoever_allows_them(target: str) -> None:
    text = call(target, ["4xf32"], ["4xf32"], "mhlo.backend_config = {index = 0 : ui64}")
    assert "calls back into Python" in reason(text)
    assert "calls back into Python" in reason(text, allow_custom_calls=[target])


def test_jax_programs_with_callbacks_are_refused() -> None:
    def pure(x: Any) -> Any:
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    def prints(x: Any) -> Any:
        jax.debug.print("{}", x)
        return x + 1

    for fn in (pure, prints):
        with pytest.raises(UnsupportedError, match=r"test_gate.py.*calls back into Python"):
            relax2xla.build(from_jax(fn, X))


def test_what_reads_relax_cannot_allow() -> None:
    text = call("foo", ["4xf32"], ["4xf32"])
    mod = from_stablehlo(text, allow_custom_calls=["foo"])
    relax2xla.build(mod)
    read = from_source(mod.script())
    with pytest.raises(UnsupportedError, match=r"call foo cannot run \(at .+:\d+:\d+\)"):
        relax2xla.build(read)
    marked = call("foo", ["4xf32"], ["4xf32"], 'allow_custom_calls = ["foo"]')
    assert "call foo cannot run" in reason(marked)
    several: Any = ("foo", [1])
    for wrong in several:
        with pytest.raises(TypeError, match="a list of targets"):
            relax2xla.build(mod, allow_custom_calls=wrong)


def test_allowed_targets_run(tmp_path: Path) -> None:
    jax.ffi.register_ffi_target(
        "test_gate_potrf", _lapack.registrations()["lapack_spotrf_ffi"], platform="cpu"
    )
    _lapack.initialize()
    flags = "api_version = 4 : i32, backend_config = {uplo = 76 : ui8}"
    text = call("test_gate_potrf", ["2x2xf32"], ["2x2xf32", "i32"], flags)
    x = np.array([[4, 0], [0, 9]], np.float32)
    with pytest.raises(UnsupportedError, match="test_gate_potrf"):
        relax2xla.build(from_stablehlo(text))
    ways = [
        relax2xla.build(from_stablehlo(text), allow_custom_calls=["test_gate_potrf"]),
        relax2xla.build(from_stablehlo(text, allow_custom_calls=["test_gate_potrf"])),
    ]
    for ex in ways:
        found, info = relax2xla.VirtualMachine(ex)["main"](x)
        np.testing.assert_array_equal(found, np.linalg.cholesky(x))
        assert info == 0
    # What allowed it does not go with the file, whether it holds machine code or not.
    for compiled in (True, False):
        path = tmp_path / "m.r2x"
        ways[0].export_library(path, compiled=compiled)
        with pytest.raises(UnsupportedError, match=r"m\.r2x makes custom calls.*test_gate_potrf"):
            relax2xla.load_module(path)
        ex = relax2xla.load_module(path, allow_custom_calls=["test_gate_potrf"])
        np.testing.assert_array_equal(relax2xla.VirtualMachine(ex)["main"](x)[0], [[2, 0], [0, 3]])


def test_calls_inlined_into_jax_are_looked_at() -> None:
    ex = relax2xla.build(
        from_stablehlo(call("foo", ["4xf32"], ["4xf32"], ""), allow_custom_calls=["foo"])
    )
    vm = relax2xla.VirtualMachine(replace(ex, allowed=frozenset()))
    with pytest.raises(UnsupportedError, match="call foo"):
        jax.jit(vm["main"])(X)
    with pytest.raises(UnsupportedError, match="call foo"):
        vm["main"](X)


def test_callbacks_in_machine_code_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"compiled program.*calls back into Python"):
        compiler.Loaded(b"... xla_ffi_python_cpu_callback ...", [], None)


def test_the_table_says_why() -> None:
    assert all(group.why and group.targets for group in GROUPS)
    assert len(SAFE) == sum(len(group.targets) for group in GROUPS)
    registered = {n for n in _lapack.registrations() if n.startswith("lapack_")}
    assert registered == lapack.TARGETS


# ---- forms
V = "4xf32"
LARGE = "300x300xf32"
POTRF = "api_version = 4 : i32, backend_config = {uplo = 76 : ui8}"
WRONG = {
    "no operand": ("Sharding", [], [V], ""),
    "two operands": ("SPMDFullToShardShape", [V, V], [V], ""),
    "two results": ("LayoutConstraint", [V], [V, V], ""),
    "another dtype": ("annotate_device_placement", [V], ["4xi32"], ""),
    "top-k as one result": ("TopK", [V], [V], ""),
    "more than there are": ("TopK", ["2x16xf32"], ["2x40xf32", "2x40xi32"], ""),
    "another batch": ("TopK", ["2x16xf32"], ["3x4xf32", "3x4xi32"], ""),
    "rank 3": ("TopK", ["2x2x16xf32"], ["2x2x4xf32", "2x2x4xi32"], ""),
    "rank 0": ("TopK", ["f32"], ["f32", "i32"], ""),
    "int64 places": ("TopK", ["2x16xf32"], ["2x4xf32", "2x4xi64"], ""),
    "top-k of nothing": ("TopK", [], ["2x4xf32", "2x4xi32"], ""),
    "result too small": ("lapack_spotrf_ffi", [LARGE], ["3x3xf32", "i32"], POTRF),
    "JAX's spelling": (
        "lapack_spotrf_ffi",
        [LARGE],
        ["3x3xf32", "i32"],
        "mhlo.backend_config = {uplo = 76 : ui8}",
    ),
    "info too small": ("lapack_spotrf_ffi", ["9x3x3xf32"], ["9x3x3xf32", "2xi32"], POTRF),
    "not square": ("lapack_spotrf_ffi", ["3x2xf32"], ["3x2xf32", "i32"], POTRF),
    "flag": ("lapack_spotrf_ffi", ["3x3xf32"], ["3x3xf32", "i32"], POTRF.replace("76", "88")),
    "no flags": ("lapack_spotrf_ffi", ["3x3xf32"], ["3x3xf32", "i32"], "api_version = 4 : i32"),
    "untyped": ("lapack_spotrf_ffi", ["3x3xf32"], ["3x3xf32", "i32"], "api_version = 2 : i32"),
    "float64": ("lapack_spotrf_ffi", ["3x3xf64"], ["3x3xf64", "i32"], POTRF),
    "range": (
        "lapack_sgehrd_ffi",
        ["3x3xf32"],
        ["3x3xf32", "2xf32", "i32"],
        "api_version = 4 : i32, backend_config = {low = -5 : i32, high = 900 : i32}",
    ),
    "reflectors": (
        "lapack_sorgqr_ffi",
        ["3x3xf32", "900xf32"],
        ["3x3xf32"],
        "api_version = 4 : i32, backend_config = {}",
    ),
    "mode": (
        "lapack_sgesdd_ffi",
        ["3x2xf32"],
        ["3x2xf32", "2xf32", "3x2xf32", "2x2xf32", "i32"],
        "api_version = 4 : i32, backend_config = {mode = 65 : ui8}",
    ),
    "memory that nobody wrote": ("dce_sink", [V], [V], "api_version = 4 : i32"),
    "random bits": ("cu_threefry2x32_ffi", ["4xui32"] * 4, ["4xui32", "400xui32"], ""),
}


@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_wrong_forms_are_refused(case: tuple[str, list[str], list[str], str]) -> None:
    assert f"the custom call {case[0]} cannot run (at -:4:" in (told := reason(call(*case)))
    assert "its form is wrong" in told


def test_functions_that_a_call_names() -> None:
    named = "called_computations = [@main], "
    assert "calls no function" in reason(
        call("lapack_spotrf_ffi", ["3x3xf32"], ["3x3xf32", "i32"], named + POTRF)
    )
    assert "it calls nope" in reason(call("ApproxTopK", [V], [V], "called_computations = [@nope]"))
    assert "1 function" in reason(call("ApproxTopK", [V], [V]))


def test_right_forms_run() -> None:
    np.testing.assert_array_equal(run(call("Sharding", [V], [V]), X), X)
    np.testing.assert_array_equal(run(call("LayoutConstraint", [V], [V]), X), X)
    values, places = run(call("TopK", ["2x4xf32"], ["2x2xf32", "2x2xi32"]), np.stack([X, -X]))
    np.testing.assert_array_equal(values, [[3, 2], [0, -1]])
    np.testing.assert_array_equal(places, [[3, 2], [0, 1]])
    # Older versions wrote operations of CHLO in this way.
    text = call("mhlo.erf", [V], [V], "mhlo.attributes = {}, mhlo.version = 1 : i64")
    np.testing.assert_allclose(run(text, X), jax.scipy.special.erf(X), rtol=1e-6)


A = np.array([[4, 1, 0], [1, 3, 2], [0, 2, 5]], np.float32)
LINALG: dict[str, Callable[..., Any]] = {
    "potrf": jnp.linalg.cholesky,
    "gesdd": jnp.linalg.svd,
    "gesdd, values": lambda a: jnp.linalg.svd(a[:2], compute_uv=False),
    "gesdd, thin": lambda a: jnp.linalg.svd(a[:, :2], full_matrices=False),
    "gesvd": lambda a: jax.lax.linalg.svd(a, algorithm=jax.lax.linalg.SvdAlgorithm.QR),
    "geqrf, orgqr": lambda a: jnp.linalg.qr(a[:, :2]),
    "geqp3": lambda a: jax.scipy.linalg.qr(a, pivoting=True),
    "syevd": jnp.linalg.eigh,
    "geev": jnp.linalg.eig,
    "getrf, trsm": lambda a: jnp.linalg.solve(a, a[:, :2]),
    "trsm, right": lambda a: jax.lax.linalg.triangular_solve(a, a[:2], left_side=False),
    "gees": jax.scipy.linalg.schur,
    "gehrd": jax.lax.linalg.hessenberg,
    "sytrd": jax.lax.linalg.tridiagonal,
    "gtsv": lambda a: jax.lax.linalg.tridiagonal_solve(a[0], a[1], a[2], a),
    "batch": lambda a: jnp.linalg.eigh(jnp.stack([a, 2 * a])),
}


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
@pytest.mark.parametrize("name", LINALG)
def test_linear_algebra_of_jax(name: str, dtype: str) -> None:
    fn, x = LINALG[name], A.astype(dtype)
    found = relax2xla.VirtualMachine(relax2xla.build(from_jax(fn, x)))["main"](x)
    for ours, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(fn)(x)), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_shapes_that_are_known_later() -> None:
    from jax import export

    (n,) = export.symbolic_shape("n")
    mod = from_jax(jnp.linalg.cholesky, jax.ShapeDtypeStruct((n, 3, 3), np.float32))
    found = relax2xla.VirtualMachine(relax2xla.build(mod))["main"](np.stack([A, A]))
    np.testing.assert_allclose(found, np.linalg.cholesky(np.stack([A, A])), rtol=1e-6)


def test_comparison_of_a_top_k_stays(tmp_path: Path) -> None:
    x = np.random.default_rng(0).permutation(64).astype(np.float32)
    mod = from_jax(lambda v: jax.lax.approx_max_k(v, 4)[1], x, raise_ops=True)
    ex = relax2xla.build(mod)
    expected = np.argsort(-x)[:4]
    np.testing.assert_array_equal(
        np.sort(relax2xla.VirtualMachine(ex)["main"](x)), np.sort(expected)
    )
    ex.export_library(tmp_path / "m.r2x", compiled=False)
    loaded = relax2xla.load_module(tmp_path / "m.r2x")
    assert sorted(relax2xla.VirtualMachine(loaded)["main"](x).tolist()) == sorted(expected)


# ---- waiting, and several devices
TOKEN = "%t = stablehlo.create_token : !stablehlo.token\n"
SUM = "%0 = stablehlo.add %a, %a : tensor<4xf32>"
CHANNEL = (
    "channel_handle = #stablehlo.channel_handle<handle = 1, type = 3>, is_host_transfer = true"
)
WAITS = {
    "infeed": '%0, %u = "stablehlo.infeed"(%t) {infeed_config = "", layout = [[0]]} '
    ": (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)",
    "outfeed": '%u = "stablehlo.outfeed"(%a, %t) {outfeed_config = ""} '
    f": (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token\n{SUM}",
    "send": f'%u = "stablehlo.send"(%a, %t) {{{CHANNEL.replace("type = 3", "type = 2")}}} '
    f": (tensor<4xf32>, !stablehlo.token) -> !stablehlo.token\n{SUM}",
    "recv": f'%0, %u = "stablehlo.recv"(%t) {{{CHANNEL}}} '
    ": (!stablehlo.token) -> (tensor<4xf32>, !stablehlo.token)",
}


@pytest.mark.parametrize("name", WAITS)
def test_what_waits_is_refused(name: str) -> None:
    told = reason(program(TOKEN + WAITS[name]))
    assert f"main: stablehlo.{name} cannot run (at -:" in told
    assert "would wait for ever" in told


@pytest.mark.parametrize(
    ("attrs", "count"),
    [
        ("mhlo.num_replicas = 2 : i32", 2),
        ("mhlo.num_partitions = 4 : i32", 4),
        ("mhlo.num_replicas = 2 : i32, mhlo.num_partitions = 4 : i32", 8),
    ],
)
def test_programs_for_several_devices_are_refused(attrs: str, count: int) -> None:
    text = program("%0 = stablehlo.add %a, %a : tensor<4xf32>", attrs)
    assert f"asks for {count} devices" in reason(text)


def reduced(name: str, groups: str, result: str = "4", more: str = "") -> str:
    """A collective that adds."""
    return (
        f'%0 = "stablehlo.{name}"(%a) ({{^bb0(%x: tensor<f32>, %y: tensor<f32>):\n'
        "%s = stablehlo.add %x, %y : tensor<f32>\nstablehlo.return %s : tensor<f32>}) "
        f"{{replica_groups = {groups}{more}}} : (tensor<4xf32>) -> tensor<{result}xf32>"
    )


def exchanged(name: str, attrs: str, result: str = "4") -> str:
    return f'%0 = "stablehlo.{name}"(%a) {{{attrs}}} : (tensor<4xf32>) -> tensor<{result}xf32>'


PAIR, SELF, ALL = (
    "dense<[[0, 1]]> : tensor<1x2xi64>",
    "dense<0> : tensor<1x1xi64>",
    "dense<> : tensor<0x0xi64>",
)
HALF = ", scatter_dimension = 0 : i64"
GATHER = "all_gather_dim = 0 : i64, replica_groups = "
SWAP = "split_dimension = 0 : i64, concat_dimension = 0 : i64, split_count = "
SEVERAL = {
    "all_reduce": (reduced("all_reduce", PAIR), "4"),
    "all_reduce, two groups": (reduced("all_reduce", "dense<[[0], [1]]> : tensor<2x1xi64>"), "4"),
    "reduce_scatter": (reduced("reduce_scatter", PAIR, "2", HALF), "2"),
    "reduce_scatter of all": (reduced("reduce_scatter", ALL, "2", HALF), "2"),
    "all_gather": (exchanged("all_gather", GATHER + PAIR, "8"), "8"),
    "all_gather of all": (exchanged("all_gather", GATHER + ALL, "8"), "8"),
    "all_to_all": (exchanged("all_to_all", f"{SWAP}2 : i64, replica_groups = {PAIR}"), "4"),
    "collective_permute": (exchanged("collective_permute", f"source_target_pairs = {PAIR}"), "4"),
    "collective_broadcast": (exchanged("collective_broadcast", f"replica_groups = {PAIR}"), "4"),
    "cross-replica-sum": (exchanged("cross-replica-sum", f"replica_groups = {PAIR}"), "4"),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_collectives_of_several_devices_are_refused(name: str) -> None:
    body, size = SEVERAL[name]
    for attrs in ("", ONE):
        told = reason(program(body, attrs, out=f"{size}xf32"))
        assert f"stablehlo.{name.split(',')[0].split(' ')[0]} cannot run (at -:4:8)" in told
        assert "it is over 2 devices" in told


ALONE = {
    "all_reduce": reduced("all_reduce", SELF),
    "reduce_scatter": reduced("reduce_scatter", SELF, more=HALF),
    "all_gather": exchanged("all_gather", GATHER + SELF),
    "all_to_all": exchanged("all_to_all", f"{SWAP}1 : i64, replica_groups = {SELF}"),
    "collective_permute": exchanged(
        "collective_permute", "source_target_pairs = dense<0> : tensor<1x2xi64>"
    ),
    "collective_broadcast": exchanged("collective_broadcast", f"replica_groups = {SELF}"),
    "cross-replica-sum": exchanged("cross-replica-sum", f"replica_groups = {SELF}"),
}


@pytest.mark.parametrize("name", ALONE)
@pytest.mark.parametrize("raised", [True, False])
def test_collectives_of_one_device_run(name: str, raised: bool) -> None:
    for attrs in ("", ONE):
        np.testing.assert_array_equal(run(program(ALONE[name], attrs), X, raise_ops=raised), X)


@pytest.mark.parametrize("name", ["replica_id", "partition_id"])
def test_place_among_devices(name: str) -> None:
    body = f"%0 = stablehlo.{name} : tensor<ui32>"
    assert run(program(body, ONE, out="ui32"), X) == 0
    with pytest.raises(UnsupportedError, match=r"does not say how many.*num_partitions = 1"):
        run(program(body, out="ui32"), X)
    with pytest.raises(UnsupportedError, match="does not say how many"):
        run(program(reduced("all_reduce", ALL)), X)
    np.testing.assert_array_equal(run(program(reduced("all_reduce", ALL), ONE), X), X)


MANUAL = """%0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{{"x"}}]>]
  out_shardings=[<@mesh, [{{"x"}}]>] manual_axes={{"x"}} (%b: tensor<{0}xf32>) {{
  %c = stablehlo.add %b, %b : tensor<{0}xf32>
  sdy.return %c : tensor<{0}xf32> }} : (tensor<4xf32>) -> tensor<4xf32>"""


def test_manual_computations() -> None:
    one = TWO.replace("=2", "=1")
    np.testing.assert_array_equal(run(program(MANUAL.format(4), prelude=one), X), 2 * X)
    told = reason(program(MANUAL.format(2), prelude=TWO))
    assert "sdy.manual_computation cannot run" in told
    assert "it is over 2 devices" in told
    wide = call("SPMDFullToShardShape", ["8x2xf32"], ["2x2xf32"])
    assert "takes 4 devices" in reason(wide)


SPREAD = 'mhlo.sharding = "{devices=[2]<=[2]}"'


@pytest.mark.parametrize(
    "text",
    [
        call("Sharding", [V], [V], SPREAD),
        call("Sharding", [V], [V], "").replace(
            "%a0: tensor<4xf32>", f"%a0: tensor<4xf32> {{{SPREAD}}}"
        ),
        program("%0 = stablehlo.add %a, %z : tensor<4xf32>", prelude=TWO)
        .replace("%0 =", "%z = stablehlo.constant dense<0.0> : tensor<4xf32>\n%0 =")
        .replace(
            "%a: tensor<4xf32>", '%a: tensor<4xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"x"}]>}'
        ),
    ],
    ids=["custom call", "parameter", "Shardy"],
)
def test_shardings_are_without_effect_and_said_once(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "relax2xla.vm"):
        np.testing.assert_array_equal(run(text, X), X)
    (told,) = [r.getMessage() for r in caplog.records]
    assert "spreads values over 2 devices" in told


def test_shardings_over_one_device_are_silent(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "relax2xla.vm"):
        for sharding in ("{replicated}", "{maximal device=0}", "{devices=[1]<=[1]}"):
            run(call("Sharding", [V], [V], f'mhlo.sharding = "{sharding}"'), X)
    assert not caplog.records


def test_many_errors_are_one_message() -> None:
    calls = "\n".join(
        f"%{i} = stablehlo.custom_call @t{i}(%a) : (tensor<4xf32>) -> tensor<4xf32>"
        for i in range(9)
    )
    told = reason(program(calls))
    assert told.count("cannot run") == 5
    assert "... and 4 more" in told


def test_relax_collectives_over_several_workers_are_refused() -> None:
    mod = from_source(
        """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((8,), "float32"):
        y: R.Tensor((8,), "float32") = R.ccl.allgather(x, num_workers=2)
        return y
"""
    )
    with pytest.raises(TVMError, match="2 workers"):
        relax2xla.VirtualMachine(relax2xla.build(mod))["main"](X)


# ---- functions
@pytest.mark.parametrize("attrs", ["callee", "composite"])
def test_functions_that_call_each_other_in_a_circle_never_reach_xla(attrs: str) -> None:
    again = {
        "callee": "func.call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>",
        "composite": (
            'stablehlo.composite "a.b" %a {decomposition = @f} : (tensor<4xf32>) -> tensor<4xf32>'
        ),
    }[attrs]
    text = f"""
func.func private @f(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = func.call @"g h"(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}
func.func private @"g h"(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = {again}
  return %0 : tensor<4xf32>
}}
func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> {{
  %0 = func.call @f(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}}
"""
    with pytest.raises(UnsupportedError, match=r"in a circle .*(f > g h > f|g h > f > g h)"):
        check_mlir(parse(text))
    with pytest.raises(UnsupportedError, match="in a circle"):
        compiler.Loaded(parse(text), [], None)


# ---- computations of elements
# Of a reduction and of what is like it: `{}` makes %v of %a.
OF_ELEMENTS = {
    "map": (
        '"stablehlo.map"(%x, %x) ({}) {{dimensions = array<i64: 0>}} '
        ": (tensor<4xf32>, tensor<4xf32>)"
    ),
    "reduce": (
        '"stablehlo.reduce"(%x, %z) ({}) {{dimensions = array<i64: 0>}} '
        ": (tensor<4xf32>, tensor<f32>)"
    ),
    "reduce_window": (
        '"stablehlo.reduce_window"(%x, %z) ({}) {{window_dimensions = array<i64: 1>}} '
        ": (tensor<4xf32>, tensor<f32>)"
    ),
    "sort": '"stablehlo.sort"(%x) ({}) {{dimension = 0 : i64}} : (tensor<4xf32>)',
}
NO_ELEMENTS = {
    "case": """
      %i = stablehlo.constant dense<0> : tensor<i32>
      %v = "stablehlo.case"(%i) ({ stablehlo.return %a : tensor<f32> })
        : (tensor<i32>) -> tensor<f32>""",
    "while": """
      %v = stablehlo.while(%p = %a) : tensor<f32>
        cond { %t = stablehlo.compare LT, %p, %p : (tensor<f32>, tensor<f32>) -> tensor<i1>
               stablehlo.return %t : tensor<i1> }
        do { stablehlo.return %p : tensor<f32> }""",
    "rng": """
      %s = stablehlo.constant dense<> : tensor<0xi64>
      %v = stablehlo.rng %a, %a, %s, distribution = UNIFORM
        : (tensor<f32>, tensor<f32>, tensor<0xi64>) -> tensor<f32>""",
    "select_and_scatter": """
      %l = stablehlo.reshape %a : (tensor<f32>) -> tensor<1xf32>
      %m = "stablehlo.select_and_scatter"(%l, %l, %a) ({^bb0(%d: tensor<f32>, %e: tensor<f32>):
        %t = stablehlo.compare GE, %d, %e : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %t : tensor<i1>}, {^bb0(%d: tensor<f32>, %e: tensor<f32>):
        stablehlo.return %d : tensor<f32>}) {window_dimensions = array<i64: 1>}
        : (tensor<1xf32>, tensor<1xf32>, tensor<f32>) -> tensor<1xf32>
      %v = stablehlo.reshape %m : (tensor<1xf32>) -> tensor<f32>""",
    "cholesky": """
      %l = stablehlo.reshape %a : (tensor<f32>) -> tensor<1x1xf32>
      %m = stablehlo.cholesky %l, lower = true : tensor<1x1xf32>
      %v = stablehlo.reshape %m : (tensor<1x1xf32>) -> tensor<f32>""",
    "triangular_solve": """
      %l = stablehlo.reshape %a : (tensor<f32>) -> tensor<1x1xf32>
      %m = "stablehlo.triangular_solve"(%l, %l) {left_side = true, lower = true,
        unit_diagonal = false, transpose_a = #stablehlo<transpose NO_TRANSPOSE>}
        : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>
      %v = stablehlo.reshape %m : (tensor<1x1xf32>) -> tensor<f32>""",
    "scatter": """
      %l = stablehlo.reshape %a : (tensor<f32>) -> tensor<1xf32>
      %i = stablehlo.constant dense<0> : tensor<1x1xi32>
      %m = "stablehlo.scatter"(%l, %i, %l) ({^bb0(%d: tensor<f32>, %e: tensor<f32>):
        stablehlo.return %e : tensor<f32>}) {scatter_dimension_numbers = #stablehlo.scatter<
        inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
        : (tensor<1xf32>, tensor<1x1xi32>, tensor<1xf32>) -> tensor<1xf32>
      %v = stablehlo.reshape %m : (tensor<1xf32>) -> tensor<f32>""",
    "einsum": """
      %l = stablehlo.reshape %a : (tensor<f32>) -> tensor<1x1xf32>
      %m = stablehlo.einsum %l, %l, config = "ab,bc->ac"
        : (tensor<1x1xf32>, tensor<1x1xf32>) -> tensor<1x1xf32>
      %v = stablehlo.reshape %m : (tensor<1x1xf32>) -> tensor<f32>""",
    "all_reduce": """
      %v = "stablehlo.all_reduce"(%a) ({^bb0(%d: tensor<f32>, %e: tensor<f32>):
        stablehlo.return %d : tensor<f32>}) {replica_groups = dense<[[0]]> : tensor<1x1xi64>}
        : (tensor<f32>) -> tensor<f32>""",
}


def of_elements(outer: str, body: str, functions: str = "") -> str:
    """A program whose operation ``outer`` computes %v by ``body`` for each element."""
    last = "%c = stablehlo.add %v, %b : tensor<f32>", "f32"
    if outer == "sort":
        last = "%c = stablehlo.compare LT, %v, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>", "i1"
    region = (
        f"{{^bb0(%a: tensor<f32>, %b: tensor<f32>): {body}\n {last[0]}\n"
        f" stablehlo.return %c : tensor<{last[1]}>}}"
    )
    out = "tensor<f32>" if outer == "reduce" else "tensor<4xf32>"
    return f"""
{functions}
func.func public @main(%x: tensor<4xf32>) -> {out} {{
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = {OF_ELEMENTS[outer].format(region)} -> {out}
  return %r : {out}
}}
"""


@pytest.mark.parametrize("outer", OF_ELEMENTS)
@pytest.mark.parametrize("inner", NO_ELEMENTS)
def test_what_xla_has_no_code_for_in_the_computation_of_an_element_is_refused(
    outer: str, inner: str
) -> None:
    wanted = f"main: stablehlo.{inner} cannot run .*computation of a stablehlo.{outer}, "
    with pytest.raises(UnsupportedError, match=wanted) as told:
        check_mlir(parse(of_elements(outer, NO_ELEMENTS[inner])))
    assert ("extract_jax" in str(told.value)) == (inner not in ("rng", "all_reduce"))


def product(lhs: str, rhs: str, out: str, batch: str = "") -> str:
    """A product of matrices of %a and %b, whose first number is %v."""
    rank = out.count("x")
    one, first = "1x" * rank + "f32", ", ".join(["0:1"] * rank)
    return f"""
      %l = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<{lhs}>
      %k = stablehlo.broadcast_in_dim %b, dims = [] : (tensor<f32>) -> tensor<{rhs}>
      %m = stablehlo.dot_general %l, %k, {batch}contracting_dims = [{rank - 1}] x [{rank - 2}]
        : (tensor<{lhs}>, tensor<{rhs}>) -> tensor<{out}>
      %h = stablehlo.slice %m [{first}] : (tensor<{out}>) -> tensor<{one}>
      %v = stablehlo.reshape %h : (tensor<{one}>) -> tensor<f32>"""


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        (("1x500xf32", "500x500xf32", "1x500xf32"), True),
        (("3x3xf32", "3x3xf32", "3x3xf32"), False),
        (("64x64xf32", "64x64xf32", "64x64xf32"), False),
        (("2x99x99xf32", "2x99x99xf32", "2x99x99xf32", "batching_dims = [0] x [0], "), False),
    ],
)
def test_products_of_matrices_are_for_no_element(sizes: tuple[str, ...], runs: bool) -> None:
    module = parse(of_elements("map", product(*sizes)))
    if runs:
        check_mlir(module)
        return
    with pytest.raises(UnsupportedError, match=r"dot_general cannot run .*as a function of JAX"):
        check_mlir(module)


def test_functions_of_jax_compute_products_for_all_elements() -> None:
    text = of_elements("map", product("64x64xf32", "64x64xf32", "64x64xf32"))
    fn, params = extract_jax(from_stablehlo(text, raise_ops=False))
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_allclose(jax.jit(fn)(params, x), 64 * x * x + x, rtol=1e-6)


WINDOW = """
      %l = stablehlo.reshape %a : (tensor<f32>) -> tensor<1xf32>
      %m = "stablehlo.reduce_window"(%l, %a) ({^bb0(%d: tensor<f32>, %e: tensor<f32>):
        stablehlo.return %d : tensor<f32>}) {window_dimensions = array<i64: 1>}
        : (tensor<1xf32>, tensor<f32>) -> tensor<1xf32>
      %v = stablehlo.reshape %m : (tensor<1xf32>) -> tensor<f32>"""


def test_windows_are_for_no_comparison_of_a_sort() -> None:
    """At any depth, and in functions that it calls beside others that may."""
    functions = f"""
func.func private @f(%a: tensor<f32>) -> tensor<f32> {{ {WINDOW}
  return %v : tensor<f32> }}
func.func private @g(%a: tensor<f32>) -> tensor<f32> {{
  %v = func.call @f(%a) : (tensor<f32>) -> tensor<f32>
  return %v : tensor<f32> }}
"""
    call = "%v = func.call @g(%a) : (tensor<f32>) -> tensor<f32>"
    inner = re.sub(r"%(\w+)", r"%\g<1>1", WINDOW)
    mapped = f"""%v = "stablehlo.map"(%a) ({{^bb0(%a1: tensor<f32>): {inner}
      stablehlo.return %v1 : tensor<f32>}}) {{dimensions = array<i64>}}
      : (tensor<f32>) -> tensor<f32>"""
    for body in (WINDOW, call, mapped):
        check_mlir(parse(of_elements("reduce", body, functions)))
        with pytest.raises(UnsupportedError, match=r"reduce_window cannot run .* stablehlo.sort,"):
            check_mlir(parse(of_elements("sort", body, functions)))


def test_functions_that_computations_of_elements_call_are_looked_at_as_well() -> None:
    functions = f"""
func.func private @f(%a: tensor<f32>) -> tensor<f32> {{
  {NO_ELEMENTS["while"]}
  return %v : tensor<f32>
}}
func.func private @g(%a: tensor<f32>) -> tensor<f32> {{
  %v = func.call @f(%a) : (tensor<f32>) -> tensor<f32>
  return %v : tensor<f32>
}}
"""
    body = "%v = func.call @g(%a) : (tensor<f32>) -> tensor<f32>"
    with pytest.raises(UnsupportedError, match=r"f: stablehlo.while cannot run"):
        compiler.Loaded(parse(of_elements("reduce", body, functions)), [], None)
    # The same is nothing bad where a whole value is computed by it.
    plain = f"""
{functions}
func.func public @main(%a: tensor<f32>) -> tensor<f32> {{
  %v = func.call @g(%a) : (tensor<f32>) -> tensor<f32>
  return %v : tensor<f32>
}}
"""
    check_mlir(parse(plain))
    check_mlir(parse(of_elements("sort", "%v = stablehlo.sine %a : tensor<f32>", functions)))


def test_a_program_without_main_is_refused() -> None:
    text = "func.func public @other(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }"
    with pytest.raises(UnsupportedError, match="no function main"):
        check_mlir(parse(text))
