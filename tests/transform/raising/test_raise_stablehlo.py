"""RaiseStableHLO: what it gives computes the same, is the operator that was lowered, is stable."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import tree_leaves

import relax2xla as rx
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.ir import Call, Expr, Function, IRModule
from relax2xla.ir.rewrite import bindings_of
from relax2xla.stablehlo import parse, read
from relax2xla.transform import LegalizeOps, RaiseStableHLO
from tests.transform.raising.operators import OPERATORS
from tests.transform.raising.support import (
    lowered,
    names,
    param,
    same_values,
)

from .raise_programs import PROGRAMS


# ---- (b) what our own lowering makes becomes the operator again
@pytest.mark.parametrize(
    ("make", "params"), [c[1:] for c in OPERATORS], ids=[c[0] for c in OPERATORS]
)
def test_the_operator_that_was_lowered(make: Callable[..., Expr], params: tuple[Any, ...]) -> None:
    variables = [param(i, p) for i, p in enumerate(params)]
    builder = rx.BlockBuilder()
    with builder.function("main", variables):
        builder.emit_func_output(builder.emit(make(*variables)))
    mod = builder.get()
    rows = LegalizeOps()(mod)
    assert all(
        ".stablehlo." in f"relax.{n}" or ".chlo." in f"relax.{n}" for n in names(rows["main"])
    )
    again = RaiseStableHLO()(rows)
    want = Function(variables, mod["main"].body, attrs=mod["main"].attrs)
    rx.ir.assert_structural_equal(again["main"], want)
    assert rx.analysis.well_formed(again)


# ---- (a) a raised module computes the same, (c) is stable, (d) is well-formed and prints
@pytest.mark.parametrize("part", range(3))
def test_jax_programs_compute_the_same(part: int) -> None:
    programs = [
        (name, lowered(fn, args), tree_leaves(args)) for name, fn, args in PROGRAMS[part::3]
    ]
    assert same_values(programs, False, True) > 100


TESTDATA = Path(__file__).parents[3] / "shared" / "stablehlo_testdata" / "testdata"


def samples() -> list[Path]:
    """A fixed sample of the test programs of openxla/stablehlo."""
    files = sorted(TESTDATA.glob("*.mlir")) if TESTDATA.exists() else []
    return files[7 :: max(1, len(files) // 105)]


@pytest.mark.skipif(
    not samples(), reason="no folder ../shared/stablehlo_testdata beside the checkout"
)
def test_testdata_computes_the_same() -> None:
    programs: list[tuple[str, IRModule, list[Any]]] = []
    for path in samples():
        text = path.read_text()
        if any(word in text for word in ("?x", "x?", "complex", "custom_call @Sharding")):
            continue
        lines = [line for line in text.splitlines() if "@check." not in line]
        programs.append((path.name, read(parse("\n".join(lines))), []))
    assert len(programs) > 60
    assert same_values(programs, False) > 100


def test_names_spans_and_dead_bindings() -> None:
    text = """func.func @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %0 = stablehlo.tanh %a : tensor<4x8xf32> loc("layer.act")
  %1 = stablehlo.exponential %0 : tensor<4x8xf32>
  return %0 : tensor<4x8xf32> }"""
    before = read(parse(text))
    func = RaiseStableHLO()(before)["main"]
    (binding,) = bindings_of(func.body)
    assert binding.var is next(bindings_of(before["main"].body)).var
    assert binding.span == rx.Span("layer.act")
    assert binding.value.span == binding.span


def test_helpers_are_inlined_unless_they_are_to_stay() -> None:
    mod = lowered(lambda x: jax.nn.silu(jax.nn.relu(x)), (np.ones((4, 8), "f"),))
    assert len(RaiseStableHLO(inline=False)(mod)) > 1
    inlined = RaiseStableHLO()(mod)
    assert len(inlined) == 1
    assert names(inlined["main"]) == ["nn.relu", "nn.silu"]


def test_helpers_are_inlined_in_loops_and_from_other_helpers() -> None:
    @jax.jit
    def pair(x: Any) -> Any:
        return jax.nn.relu(x), x

    def fn(x: Any) -> Any:
        step = lambda i, c: jnp.where(i > 1, pair(c)[0], jax.nn.silu(pair(c)[1]))  # noqa: E731
        return jax.lax.fori_loop(0, 3, step, x)

    x = np.linspace(-2, 2, 32, dtype="f").reshape(4, 8)
    made = RaiseStableHLO()(lowered(fn, (x,)))
    assert len(made) == 1
    assert "R.nn.silu" in made.script()
    np.testing.assert_allclose(rx.VirtualMachine(rx.build(made))["main"](x), fn(x), rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "options", "name", "scale"),
    [
        ((2, 5, 4, 8), {}, "nn.attention", None),
        ((2, 5, 4, 8), {"is_causal": True}, "nn.attention", None),
        ((2, 5, 4, 8), {"scale": 0.3}, "nn.attention", 0.3),
        ((2, 5, 4, 8), {"bias": (2, 4, 5, 6)}, "nn.attention_bias", None),
        ((2, 5, 4, 8), {"bias": (1, 1, 5, 6), "is_causal": True}, "nn.attention_bias", None),
        ((1, 7, 3, 16), {"is_causal": True}, "nn.attention", None),
    ],
)
def test_attention_of_jax(shape: Any, options: Any, name: str, scale: Any) -> None:
    rng = np.random.default_rng(0)
    batch, _, heads, depth = shape
    q = rng.standard_normal(shape, np.float32)
    k, v = rng.standard_normal((2, batch, 6, heads, depth), np.float32)
    if "bias" in options:
        options = {**options, "bias": rng.standard_normal(options["bias"], np.float32)}

    def fn(q: Any, k: Any, v: Any) -> Any:
        return jax.nn.dot_product_attention(q, k, v, **options)

    made = RaiseStableHLO()(lowered(fn, (q, k, v)))
    assert [n for n in names(made["main"]) if n.startswith("nn.")] == [name]
    (call,) = (b.value for b in bindings_of(made["main"].body) if isinstance(b.value, Call))
    assert call.attrs["scale"] == scale
    assert call.attrs["causal_mask"] == ("TopLeft" if "is_causal" in options else None)
    found = rx.VirtualMachine(rx.build(made))["main"](q, k, v)
    np.testing.assert_allclose(found, fn(q, k, v), rtol=2e-5, atol=2e-6)


def test_products_of_symbolic_shapes() -> None:
    (n,) = jax.export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((n, 5, 2, 8), np.float32)
    for fn in (
        lambda q: jax.nn.dot_product_attention(q, q, q),
        lambda x: x[:, :, 0] @ x[0, :, 0].T,
    ):
        text = jax.export.export(jax.jit(fn))(shape).mlir_module()
        mod = from_stablehlo(text)
        assert rx.to_stablehlo(mod) == str(parse(text))


def test_insides_of_loops_are_raised() -> None:
    fn = lambda x: jax.lax.fori_loop(0, 3, lambda i, c: jax.nn.softmax(c), x)  # noqa: E731
    text = RaiseStableHLO()(lowered(fn, (np.ones((4, 8), "f"),))).script()
    assert "R.nn.softmax" in text
    assert "R.stablehlo.while_" in text


# ---- nothing that is put in place of rows reads what is not there
@pytest.mark.parametrize("size", [8, 16, 33])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"])
def test_running_results_of_long_axes(name: str, size: int) -> None:
    x = np.linspace(0.5, 1.5, 3 * size, dtype="f").reshape(3, size)
    for reverse in (False, True):
        fn = lambda x: getattr(jax.lax, name)(x, axis=1, reverse=reverse)  # noqa: B023, E731
        for inline in (False, True):
            made = RaiseStableHLO(inline=inline)(lowered(fn, (x,)))
            assert rx.analysis.well_formed(made)
            if name in ("cumsum", "cumprod") and not reverse:
                assert any(name in names(f) for f in made.relax_functions().values())
            found = rx.VirtualMachine(rx.build(made))["main"](x)
            np.testing.assert_allclose(found, fn(x), rtol=1e-5)


@pytest.mark.parametrize("inline", [False, True])
def test_functions_that_count_with_running_sums(inline: bool) -> None:
    x = np.arange(40, dtype="i4") % 7
    p = np.full(40, 1 / 40, "f")
    for fn in (
        lambda x: jnp.unique(x, size=9),
        lambda x: jnp.nonzero(x, size=30)[0],
        lambda x: jax.random.choice(jax.random.PRNGKey(0), x, (5,), p=p),
    ):
        made = RaiseStableHLO(inline=inline)(lowered(fn, (x,)))
        assert rx.analysis.well_formed(made)
        found = rx.VirtualMachine(rx.build(made))["main"](x)
        np.testing.assert_array_equal(found, fn(x))


def test_a_sort_that_says_no_dimension_sorts_the_last() -> None:
    text = """func.func public @main(%a: tensor<4x8xf32>) -> tensor<4x8xf32> {
      %0 = "stablehlo.sort"(%a) ({
      ^bb0(%x: tensor<f32>, %y: tensor<f32>):
        %1 = stablehlo.compare LT, %x, %y, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
        stablehlo.return %1 : tensor<i1>
      }) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      return %0 : tensor<4x8xf32>
    }"""
    raised = RaiseStableHLO()(from_stablehlo(text))
    x = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    machine = rx.VirtualMachine(rx.build(raised))
    np.testing.assert_array_equal(np.asarray(machine["main"](x)), np.sort(x))
