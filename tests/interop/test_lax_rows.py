"""The lax column: every row has a rule or a reason, and rules do what XLA does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.experimental import io_callback
from jax.extend.core import Literal

import relax2xla as rx
from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import UnsupportedError
from relax2xla.interop.jax import extract_jax, from_jax, gaps
from relax2xla.interop.lax_rows import OPAQUE, RULES, Prepared, Site
from relax2xla.script import from_source
from relax2xla.stablehlo import parse, read
from relax2xla.stablehlo.table import TABLE

RNG = np.random.default_rng(0)
X = RNG.standard_normal((3, 8), "f")


def test_every_row_has_a_rule_or_a_reason() -> None:
    assert {*RULES} | {*OPAQUE} == {*TABLE}
    assert not {*RULES} & {*OPAQUE}
    assert all(OPAQUE.values())


def test_what_a_rule_reads_of_a_call_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at each trace: most of what a trace took beside JAX's own work was this."""
    sites: list[Site] = []
    plain = RULES["relax.stablehlo.reshape"]
    assert isinstance(plain, Prepared)

    def prepare(site: Site) -> Callable[..., Any]:
        sites.append(site)
        return plain.prepare(site)

    monkeypatch.setitem(RULES, "relax.stablehlo.reshape", Prepared(prepare))
    fn, params = extract_jax(from_jax(lambda x: (x + 1).reshape(8, 3), X))
    for _ in range(2):
        made = jax.make_jaxpr(lambda x: fn(params, x))(X)
        assert [e.primitive.name for e in made.jaxpr.eqns].count("reshape") == 1
    assert len(sites) == 1


def test_equal_numbers_of_a_program_are_bound_once() -> None:
    mod = from_source("""
@I.ir_module
class M:
    @R.function
    def main(x: R.Tensor((3, 8), "float32")):
        with R.dataflow():
            a = R.nn.relu(x)
            b = R.nn.relu(R.tanh(a))
            c = R.nn.relu(R.nn.gelu(b))
            R.output(c)
        return c
""")
    assert isinstance(mod, rx.IRModule)
    fn, params = extract_jax(mod)
    made = jax.make_jaxpr(fn)(params, X)
    found = [e.invars[0] for e in made.jaxpr.eqns if e.primitive.name == "broadcast_in_dim"]
    numbers = [x.val.item() for x in found if isinstance(x, Literal)]
    assert 0 in numbers
    assert len(numbers) == len(found) == len({*numbers})


def loop(x: Any) -> Any:
    return lax.fori_loop(0, 5, lambda i, c: jnp.sin(c) * x + i, x)


def nested_scan(x: Any) -> Any:
    return lax.scan(lambda c, r: (c * r + 1, jnp.tanh(c)), jnp.ones(8), x)


def odd_sort(x: Any) -> Any:
    """Two keys: no single comparison."""
    return lax.sort((jnp.round(x), x, x * 2), dimension=1, num_keys=2)


def any_reduce(x: Any) -> Any:
    return lax.reduce(x, np.float32(0), lambda a, b: a + b + a * b * 0.1, (1,))


def any_window(x: Any) -> Any:
    length = lax.reduce_window(
        x, np.float32(0), lambda a, b: jnp.sqrt(a * a + b * b), (1, 3), (1, 2), "VALID"
    )
    gaps = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2), (1, 1), "VALID", None, (1, 2))
    return length, gaps


def windows(x: Any) -> Any:
    one = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3), (1, 2), "SAME")
    return one, lax.reduce_window(x, 0.0, lax.add, (1, 3), (1, 1), "SAME")


def indexing(x: Any) -> Any:
    i = jnp.array([2, 0, 7, 2])
    return x[:, i], x.at[:, i].add(1.5), x.at[0, i].max(0.3), x.at[i % 3, i].set(9.0, mode="drop")


def linear_algebra(x: Any) -> Any:
    a = x[:, :3] @ x[:, :3].T + 3 * jnp.eye(3)
    return (
        jnp.linalg.cholesky(a),
        jnp.linalg.qr(x.T),
        jnp.linalg.solve(a, x),
        jnp.linalg.eigvalsh(a),
        jnp.linalg.svd(x, compute_uv=False),
        jnp.linalg.det(a),
    )


def convolution(x: Any) -> Any:
    image = x.reshape(1, 1, 4, 6)
    w = jnp.sin(jnp.arange(18.0)).reshape(2, 1, 3, 3)
    return lax.conv_general_dilated(image, w, (1, 2), "SAME", rhs_dilation=(2, 1))


def branches(x: Any) -> Any:
    picked = lax.switch(jnp.int32(1), [jnp.sin, jnp.cos, jnp.tan], x)
    return lax.cond(x.sum() > 100, lambda: x, lambda: picked * 2)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: jax.nn.softmax(jnp.tanh(x) @ x.T),
    "loop": loop,
    "scan": nested_scan,
    "sort": lambda x: (jnp.sort(x, 1), jnp.sort(-x, 1, descending=True)),
    "odd sort": odd_sort,
    "reduce": any_reduce,
    "windows": windows,
    "index": indexing,
    "linear algebra": linear_algebra,
    "convolution": convolution,
    "branches": branches,
    "extremes": lambda x: (x.max(1), x.min(0), x.prod(1), jnp.cumsum(x, 1), jnp.cumprod(x, 1)),
    "top": lambda x: (lax.top_k(x, 3)[0], lax.approx_max_k(x, 2)[0]),
    "special": lambda x: (lax.erf(x), lax.lgamma(jnp.abs(x) + 1), jnp.arctan2(x, x[::-1])),
    "fourier": lambda x: jnp.abs(jnp.fft.rfft(x)),
    "complex": lambda x: jnp.real(jnp.exp(1j * x) * lax.complex(x, x)),
    "map": lambda x: lax.map(lambda r: r / (1 + r.sum() ** 2), x),
}


def weighted(made: Any) -> Any:
    """One number of a result, by which it can be differentiated."""
    floats = [y for y in jax.tree.leaves(made) if jnp.issubdtype(y.dtype, jnp.floating)]
    weights = [jnp.cos(jnp.arange(y.size, dtype=y.dtype).reshape(y.shape)) for y in floats]
    return sum((y * w).sum() for y, w in zip(floats, weights, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_jax_is_the_same_function(name: str) -> None:
    """Values, reverse and forward derivatives, and vmap, of a program that came by StableHLO."""
    program = PROGRAMS[name]
    fn, params = extract_jax(from_jax(program, X))

    direction = np.sin(np.arange(24, dtype="f")).reshape(3, 8)

    def everything(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """A value, its gradient, the derivative in a direction, and two values by vmap."""

        def made(x: Any) -> Any:
            loss = lambda x: weighted(f(x))  # noqa: E731
            tangent = jax.jvp(loss, (x,), (direction,))[1]
            return f(x), jax.grad(loss)(x), tangent, jax.vmap(loss)(jnp.stack([x, x / 2]))

        return jax.jit(made)

    made = everything(lambda x: fn(params, x))(X)
    want = everything(program)(X)
    assert jax.tree.structure(made) == jax.tree.structure(want)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-4), made, want)
    grad, tangent = np.asarray(made[1]), np.asarray(made[2])
    np.testing.assert_allclose((grad * direction).sum(), tangent, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(
    "name", ["F16_F16_F16", "F32_F32_F32", "BF16_BF16_F32", "BF16_BF16_F32_X3", "BF16_BF16_F32_X6"]
)
def test_algorithms_of_products_are_those_that_jax_takes_by_name(name: str) -> None:
    """Spelled out, JAX refuses them on CPUs."""
    draw = np.random.default_rng(0)
    x, y = (draw.standard_normal((4, 4)).astype("f") for _ in "xy")

    def product(x: Any, y: Any) -> Any:
        return jnp.dot(x, y, precision=lax.DotAlgorithmPreset[name])

    fn, params = extract_jax(from_jax(product, x, y))
    np.testing.assert_array_equal(jax.jit(fn)(params, x, y), jax.jit(product)(x, y))
    got = jax.grad(lambda x: (fn(params, x, y) ** 2).sum())(x)
    np.testing.assert_array_equal(got, jax.grad(lambda x: (product(x, y) ** 2).sum())(x))


def test_windows_with_any_body() -> None:
    """JAX itself does not turn round the derivatives of these."""
    fn, params = extract_jax(from_jax(any_window, X))

    def wanted(x: Any) -> Any:
        parts = jnp.stack([x[:, i : i + 5 : 2] for i in range(3)])
        return jnp.sqrt((parts * parts).sum(0)), jnp.maximum(x[:, :-2], x[:, 2:])

    for made, want in zip(fn(params, X), wanted(X), strict=True):
        np.testing.assert_allclose(made, want, rtol=1e-5)
    grad = jax.grad(lambda x: weighted(fn(params, x)))(X)
    np.testing.assert_allclose(grad, jax.grad(lambda x: weighted(wanted(x)))(X), rtol=1e-4)


def run_text(text: str, *args: Any) -> tuple[Any, Any, Any]:
    """What the machine gives, what the rules give, and the derivative of their sum."""
    mod = read(parse(text))
    fn, params = extract_jax(mod)
    machine = rx.VirtualMachine(rx.build(mod))["main"](*args)
    return machine, fn(params, *args), jax.grad(lambda *a: weighted(fn(params, *a)))(*args)


SELECT_AND_SCATTER = """
func.func public @main(%x: tensor<4x5xf32>, %s: tensor<2x2xf32>, %i: tensor<f32>)
    -> tensor<4x5xf32> {{
  %r = "stablehlo.select_and_scatter"(%x, %s, %i) ({{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.compare {direction}, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %c : tensor<i1>
  }}, {{
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.{combine} %a, %b : tensor<f32>
      stablehlo.return %c : tensor<f32>
  }}) {{window_dimensions = array<i64: 3, 2>, window_strides = array<i64: 2, 3>,
       padding = dense<[[0, 1], [0, 0]]> : tensor<2x2xi64>}}
    : (tensor<4x5xf32>, tensor<2x2xf32>, tensor<f32>) -> tensor<4x5xf32>
  return %r : tensor<4x5xf32>
}}
"""


@pytest.mark.parametrize("direction", ["GE", "GT", "LE"])
@pytest.mark.parametrize("combine", ["add", "maximum"])
def test_select_and_scatter_with_any_bodies(direction: str, combine: str) -> None:
    x = RNG.integers(-3, 3, (4, 5)).astype("f")
    source, init = RNG.standard_normal((2, 2), "f"), np.float32(0.5)
    text = SELECT_AND_SCATTER.format(direction=direction, combine=combine)
    machine, made, _ = run_text(text, x, source, init)
    np.testing.assert_allclose(made, machine, rtol=1e-6)


SCATTER = """
func.func public @main(%x: tensor<6xf32>, %u: tensor<4xf32>) -> tensor<6xf32> {
  %i = stablehlo.constant dense<[[1], [4], [1], [9]]> : tensor<4x1xi64>
  %r = "stablehlo.scatter"(%x, %i, %u) ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %c = stablehlo.multiply %a, %b : tensor<f32>
      %d = stablehlo.add %c, %b : tensor<f32>
      stablehlo.return %d : tensor<f32>
  }) {scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0],
      scatter_dims_to_operand_dims = [0], index_vector_dim = 1>}
    : (tensor<6xf32>, tensor<4x1xi64>, tensor<4xf32>) -> tensor<6xf32>
  return %r : tensor<6xf32>
}
"""


def test_scatter_with_any_body() -> None:
    x, u = np.arange(6, dtype="f"), np.array([2, 3, 5, 7], "f")
    machine, made, grad = run_text(SCATTER, x, u)
    np.testing.assert_allclose(made, machine)
    # Twice at place 1: ((x u0 + u0) u2 + u2); what is out of bounds is dropped.
    weight = np.cos(np.arange(6, dtype="f"))
    np.testing.assert_allclose(grad, weight * [1, 10, 1, 1, 3, 1], rtol=1e-6)


UNKNOWN = """
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %s = stablehlo.constant dense<4> : tensor<1xi64>
  %a = stablehlo.constant dense<0.0> : tensor<f32>
  %b = stablehlo.constant dense<1.0> : tensor<f32>
  %n = stablehlo.rng %a, %b, %s, distribution = NORMAL
    : (tensor<f32>, tensor<f32>, tensor<1xi64>) -> tensor<4xf32>
  %r = stablehlo.uniform_quantize %x
    : (tensor<4xf32>) -> tensor<4x!quant.uniform<i8:f32, 0.5:0>> loc("model/quantise")
  %d = stablehlo.uniform_dequantize %r
    : (tensor<4x!quant.uniform<i8:f32, 0.5:0>>) -> tensor<4xf32>
  return %d : tensor<4xf32>
}
"""


def test_rows_without_a_rule_are_named_before_tracing() -> None:
    found = gaps(read(parse(UNKNOWN)))
    assert {g.op for g in found} == {
        "relax.stablehlo.uniform_quantize",
        "relax.stablehlo.uniform_dequantize",
    }
    assert any("model/quantise" in n for g in found for n in g.nodes)


def called_back(x: Any) -> Any:
    """Two calls of Python, one of them in a loop."""
    jax.debug.callback(print, x)
    like = jax.ShapeDtypeStruct((), "float32")

    def step(carry: Any, y: Any) -> Any:
        return carry + jax.pure_callback(np.sin, like, y), None

    return lax.scan(step, jnp.float32(0), x)[0]


def test_callbacks_are_all_named_before_tracing() -> None:
    mod = from_jax(called_back, X[0])
    (gap,) = gaps(mod)
    assert gap.op == "relax.stablehlo.custom_call"
    assert "calls back into Python" in gap.reason
    assert ["pure_callback" in n for n in sorted(gap.nodes)] == [False, True]
    with pytest.raises(UnsupportedError, match="calls back into Python"):
        extract_jax(mod)


@pytest.mark.parametrize("kind", ["print", "io_callback"])
def test_ordered_effects_are_refused_where_the_function_is_read(kind: str) -> None:
    def printing(x: Any) -> Any:
        jax.debug.print("{}", x, ordered=True)
        return x * 2

    def calling(x: Any) -> Any:
        return io_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x, ordered=True)

    program = printing if kind == "print" else calling
    name = "debug_print" if kind == "print" else "io_callback"
    with pytest.raises(UnsupportedError, match=rf"ordered effects(.|\n)*Python(.|\n)*{name}"):
        from_jax(program, X)


NORMAL = """
func.func public @main(%m: tensor<{dtype}>, %d: tensor<{dtype}>) -> tensor<4096x{dtype}> {{
  %s = stablehlo.constant dense<4096> : tensor<1xi64>
  %r = stablehlo.rng %m, %d, %s, distribution = NORMAL
    : (tensor<{dtype}>, tensor<{dtype}>, tensor<1xi64>) -> tensor<4096x{dtype}>
  return %r : tensor<4096x{dtype}>
}}
"""


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16", "f64"])
def test_normal_numbers_have_derivatives_of_their_mean_and_deviation(dtype: str) -> None:
    mod = read(parse(NORMAL.format(dtype=dtype)))
    assert not gaps(mod)
    fn, params = extract_jax(mod)
    mean, deviation = (
        np.asarray(x, numpy_dtype(mod["main"].params[0].struct_info.dtype)) for x in (3, 0.5)
    )
    made = np.asarray(jax.jit(lambda m, d: fn(params, m, d))(mean, deviation), "d")
    assert abs(made.mean() - 3) < 0.05
    assert abs(made.std() - 0.5) < 0.05
    assert abs(((made - 3) ** 4).mean() / 0.5**4 - 3) < 0.5

    def loss(m: Any, d: Any) -> Any:
        return ((fn(params, m, d).astype("f") - 3) ** 2).mean()

    # The mean of squares is the deviation's square.
    with jax.enable_x64(dtype == "f64"):
        slopes = jax.grad(loss, (0, 1))(mean, deviation)
    np.testing.assert_allclose(np.asarray(slopes, "d"), [0, 1], atol=0.1)


def test_calls_that_a_rule_does_not_know_are_gaps() -> None:
    (gap,) = gaps(from_jax(lambda x: lax.linalg.schur(x @ x.T), X))
    assert "lapack_sgees_ffi" in gap.reason
    assert not gaps(from_jax(lambda x: jnp.linalg.cholesky(x @ x.T), X))


HOSTED = """
from relax2xla.script import ir as I
from relax2xla.script import relax as R

@I.ir_module
class Hosted:
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor(ndim=1, dtype="float32"):
        y = R.call_pure_packed("mine.f", x, sinfo_args=R.Tensor((4,), "float32"))
        _ = R.print(y, format="{}")
        return R.unique(y)
"""


def test_what_makes_a_function_no_single_program_is_named_at_once() -> None:
    mod = from_source(HOSTED)
    assert isinstance(mod, rx.IRModule)
    found = [g.op for g in gaps(mod)]
    assert found == ["relax.call_pure_packed of 'mine.f'", "relax.print", "relax.unique"]
    with pytest.raises(UnsupportedError, match=r"mine\.f(.|\n)*relax\.unique"):
        extract_jax(mod)


# The middle diagonal is the largest; the ends of the others are outside of the matrix.
DIAGONALS = np.stack([X[0], 4 + np.abs(X[1]), X[2]])


@pytest.mark.parametrize("perturbed", [False, True])
def test_tridiagonal_systems_have_derivatives(perturbed: bool) -> None:
    def program(d: Any, b: Any) -> Any:
        return lax.linalg.tridiagonal_solve(d[0], d[1], d[2], b, perturb_singular=perturbed)

    fn, params = extract_jax(from_jax(program, DIAGONALS, X.T))
    imported = functools.partial(fn, params)
    for transformed in (
        lambda f: jax.jit(f),
        lambda f: jax.grad(lambda d, b: jnp.sin(f(d, b)).sum(), (0, 1)),
        lambda f: lambda d, b: jax.vmap(f)(jnp.stack([d, 2 * d]), jnp.stack([b, b])),
    ):
        got, want = transformed(imported)(DIAGONALS, X.T), transformed(program)(DIAGONALS, X.T)
        for g, w in zip(jax.tree.leaves(got), jax.tree.leaves(want), strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-6)


ASIN = """
func.func public @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %c = stablehlo.complex %x, %x : tensor<4xcomplex<f32>>
  %k = chlo._asin_acos_kernel %c
    : tensor<4xcomplex<f32>> -> tensor<4xcomplex<f32>> loc("deep/layer")
  %r = stablehlo.real %k : (tensor<4xcomplex<f32>>) -> tensor<4xf32>
  return %r : tensor<4xf32>
}
"""


def test_a_row_without_a_rule_runs_forward_and_its_derivative_names_it() -> None:
    mod = read(parse(ASIN))
    fn, params = extract_jax(mod)
    x = np.array([0.1, 0.2, 0.3, 0.4], "f")
    machine = rx.VirtualMachine(rx.build(mod))["main"](x)
    np.testing.assert_allclose(jax.jit(lambda x: fn(params, x))(x), machine, rtol=1e-6)
    rows = jax.vmap(lambda x: fn(params, x), 1)(np.stack([x, x / 2], 1))
    np.testing.assert_allclose(rows, [machine, fn(params, x / 2)], rtol=1e-6)
    with pytest.raises(UnsupportedError, match=r"_asin_acos_kernel.*deep/layer"):
        jax.grad(lambda x: fn(params, x).sum())(x)
