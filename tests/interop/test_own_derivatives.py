"""Functions of JAX that have a derivative of their own keep it in a module of theirs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import relax2xla as rx
from relax2xla.errors import RunError, UnsupportedError
from relax2xla.frontend.stablehlo import from_stablehlo
from relax2xla.interop.jax import extract_jax, from_jax, gaps
from relax2xla.ir import Call, IRModule
from relax2xla.ir.rewrite import bindings_deep

X = jnp.array([0.0, -1.5, 0.3, 2.0, 0.0])


@jax.custom_vjp
def straight_through(x: Any) -> Any:
    return jnp.round(x)


straight_through.defvjp(lambda x: (straight_through(x), None), lambda _, g: (g,))


@jax.custom_vjp
def clipped(x: Any, bound: Any, times: Any) -> Any:
    """With an operand whose gradient is none, and one of integers."""
    return x * times


clipped.defvjp(
    lambda x, bound, times: (clipped(x, bound, times), (bound, times)),
    lambda kept, g: (jnp.clip(g, -kept[0], kept[0]), jnp.zeros_like(kept[0]), None),
)


@jax.custom_jvp
def two(x: Any, i: Any) -> Any:
    """Two results, one of integers."""
    return x * i, i + 1


@two.defjvp
def _(primals: Any, tangents: Any) -> Any:
    x, i = primals
    return two(x, i), (tangents[0] * 7 * x, np.zeros(i.shape, jax.dtypes.float0))


def looped(x: Any) -> Any:
    def step(carry: Any, _: Any) -> Any:
        return jax.nn.softplus(carry) * jax.nn.relu(carry + 1), None

    return lax.scan(step, x, None, length=3)[0]


def solved(x: Any) -> Any:
    return jnp.linalg.solve(jnp.diag(x + 3) + 0.1, x)


def closing_over(x: Any) -> Any:
    known = np.arange(5.0, dtype="float32")

    @jax.custom_vjp
    def f(x: Any) -> Any:
        return x * known

    f.defvjp(lambda x: (f(x), None), lambda _, g: (g * known * 3,))
    return f(x) + x


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "stop_gradient": lambda x: lax.stop_gradient(x) * x,
    "relu": jax.nn.relu,
    "softplus": jax.nn.softplus,
    "log_sigmoid": jax.nn.log_sigmoid,
    "logsumexp": lambda x: jax.nn.logsumexp(x) * x,
    "softmax": lambda x: jax.nn.softmax(x) * jnp.arange(5.0),
    "straight through": lambda x: straight_through(x) * x,
    "clipped": lambda x: clipped(x, 0.5, jnp.arange(5)) * 3,
    "two results": lambda x: two(x, jnp.arange(5))[0],
    "in a loop": looped,
    "in a branch": lambda x: lax.cond(x[3] > 1, jax.nn.relu, jnp.sin, x),
    "solved": solved,
    "closing over": closing_over,
    "complex": lambda x: jnp.abs(lax.stop_gradient(x + 1j) * (x - 2j)),
}


def one(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: (f(x) * jnp.cos(jnp.arange(5.0))).sum()


def again(mod: IRModule) -> Callable[[Any], Any]:
    fn, params = extract_jax(mod)
    return lambda x: fn(params, x)


def same(made: Any, want: Any) -> None:
    np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_are_those_of_the_function(name: str) -> None:
    f = FUNCTIONS[name]
    mod = from_jax(f, X)
    g = again(mod)
    same(g(X), f(X))
    want = jax.grad(one(f))(X)
    same(jax.grad(one(g))(X), want)
    same(jax.jit(jax.grad(one(g)))(X), want)
    both = jnp.stack([X, X + 1])
    same(jax.vmap(jax.grad(one(g)))(both), jax.vmap(jax.grad(one(f)))(both))
    # Of a module that a function of a module gives, and of one that was text between.
    same(jax.grad(one(again(from_jax(g, X))))(X), want)
    text = str(rx.to_stablehlo(mod))
    same(jax.grad(one(again(from_stablehlo(text, raise_ops=False))))(X), want)
    assert gaps(mod) == []


@pytest.mark.parametrize("name", ["softplus", "logsumexp", "two results"])
def test_derivatives_of_derivatives(name: str) -> None:
    f = FUNCTIONS[name]
    g = again(from_jax(f, X))
    same(jax.jvp(g, (X,), (X,))[1], jax.jvp(f, (X,), (X,))[1])
    for of in (jax.hessian, lambda h: jax.jacfwd(jax.jacfwd(h)), lambda h: jax.jacrev(jax.grad(h))):
        same(of(one(g))(X), of(one(f))(X))

    def third(h: Callable[[Any], Any]) -> Any:
        return jax.grad(lambda x: (jax.hessian(h)(x) ** 2).sum())(X)

    same(third(one(g)), third(one(f)))


def calls(mod: IRModule, name: str) -> int:
    values = [b.value for f in mod.relax_functions().values() for b in bindings_deep(f)]
    return sum(isinstance(v, Call) and str(v.op).endswith(name) for v in values)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_machine_computes_values_alone(name: str) -> None:
    f = FUNCTIONS[name]
    mod = from_jax(f, X)
    assert calls(mod, "composite")
    plain = rx.transform.DeadCodeElimination()(rx.transform.RemoveGradientMarks()(mod))
    assert not calls(plain, "composite")
    jitted = from_stablehlo(jax.jit(f).lower(X), raise_ops=False)
    assert calls(plain, "") <= calls(jitted, "")
    same(rx.VirtualMachine(rx.build(mod))["main"](X), f(X))


def test_operators_take_the_place_of_rows() -> None:
    mod = from_jax(lambda x: jax.nn.softmax(jax.nn.relu(x @ x)), jnp.eye(3), raise_ops=True)
    assert "R.nn.softmax" in mod.script()
    assert "R.nn.relu" in mod.script()
    assert len(mod.functions) == 1


def test_gaps_says_which_rules_cannot_be_traced() -> None:
    @jax.custom_vjp
    def f(x: Any) -> Any:
        return x * 2

    def backward(_: Any, g: Any) -> Any:
        raise NotImplementedError

    f.defvjp(lambda x: (f(x), None), backward)

    @jax.custom_jvp
    def g(x: Any) -> Any:
        return x * 2

    @g.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
        checked = lax.cond(
            primals[0].sum() > 0,
            lambda x: jax.pure_callback(lambda x: x, shape, x),
            lambda x: x,
            tangents[0],
        )
        return g(*primals), checked

    for name, h in (("f", f), ("g", g)):
        mod = from_jax(h, X)
        assert [gap.op for gap in gaps(mod)] == [name]
        same(jax.grad(one(again(mod)))(X), 2 * jnp.cos(jnp.arange(5.0)))


A = jnp.array([[2.0, 1.0], [0.5, 3.0]])
B = jnp.array([1.0, 2.0])


def with_more(a: Any) -> Any:
    """A solver that says more than the solution."""

    def solve(_: Any, b: Any) -> Any:
        return jnp.linalg.solve(a, b), {"first": b[0]}

    def transposed(_: Any, b: Any) -> Any:
        return jnp.linalg.solve(a.T, b), {"first": b[0]}

    made = lax.custom_linear_solve(lambda v: a @ v, B, solve, transposed, has_aux=True)
    return made[0] * made[1]["first"]


def nested(a: Any) -> Any:
    def solve(matvec: Any, b: Any) -> Any:
        return jax.scipy.sparse.linalg.cg(matvec, b)[0]

    return lax.custom_linear_solve(lambda v: (a @ a.T + jnp.eye(2)) @ v, B, solve, symmetric=True)


SOLVERS: dict[str, Callable[[Any], Any]] = {
    "solve": lambda a: jnp.linalg.solve(a, B),
    "inv": lambda a: jnp.linalg.inv(a) ** 2,
    "symmetric": lambda a: jax.scipy.sparse.linalg.cg(a @ a.T, B)[0],
    "with more": with_more,
    "nested": nested,
    "in a loop": lambda a: lax.scan(lambda x, _: (jnp.linalg.solve(a, x), None), B, None, 2)[0],
}


@pytest.mark.parametrize("name", SOLVERS)
def test_solvers_have_all_derivatives_in_all_modes(name: str) -> None:
    """They are by the map that is solved, whatever the solver does, and not by so many rules."""
    f = lambda a: SOLVERS[name](a).sum()  # noqa: E731
    mod = from_jax(f, A)
    assert gaps(mod) == []
    g = again(mod)
    close = functools.partial(np.testing.assert_allclose, rtol=2e-4, atol=2e-5)
    close(jax.jit(g)(A), f(A))
    close(jax.jit(jax.grad(g))(A), jax.grad(f)(A))
    if name != "with more":  # of which JAX has no second ones
        want = jax.jit(jax.hessian(f))(A)
        close(jax.jit(jax.hessian(g))(A), want)
        close(jax.jit(jax.jacrev(jax.grad(g)))(A), want)
    machine = rx.VirtualMachine(rx.build(mod))["main"]
    close(machine(A), f(A))
    if name == "solve":
        both = jnp.stack([A, A + 1])
        close(jax.jit(jax.vmap(jax.grad(g)))(both), jax.vmap(jax.grad(f))(both))
        along = lambda h: lambda t: h(A + t * jnp.ones(2))  # noqa: E731
        orders = [along(f), along(g)]
        for _ in range(5):
            orders = [jax.grad(h) for h in orders]
        close(*(jax.jit(h)(0.0) for h in orders[::-1]), rtol=1e-3)


SOLVER = """
func.func public @main(%b: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
  %0:3 = stablehlo.composite "relax2xla.linear_solve" %b, %b, %b {
    composite_attributes = {ATTRIBUTES}, decomposition = @f
  } : (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
    -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return %0#0, %0#1 : tensor<2xf32>, tensor<2xf32>
}
func.func private @f(%b: tensor<2xf32>, %v: tensor<2xf32>, %c: tensor<2xf32>)
    -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %half = stablehlo.constant dense<0.5> : tensor<2xf32>
  %x = stablehlo.multiply %b, %half : tensor<2xf32>
  %y = stablehlo.add %v, %v : tensor<2xf32>
  %z = stablehlo.multiply %c, %half : tensor<2xf32>
  return %x, %y, %z : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}
"""
SOLVES = {"matvec": 0, "solve": 0, "transpose_solve": 0, "unknowns": 1, "aux": 0, "symmetric": 1}


def solver(**changed: int) -> IRModule:
    said = ", ".join(f"{k} = {v} : i64" for k, v in (SOLVES | changed).items())
    return from_stablehlo(SOLVER.replace("ATTRIBUTES", said), raise_ops=False)


def test_a_program_may_read_what_the_functions_of_a_solver_give() -> None:
    fn, params = extract_jax(solver())
    same(jnp.stack(fn(params, B)), jnp.stack([B / 2, 2 * B]))
    same(jax.grad(lambda b: fn(params, b)[0].sum())(B), jnp.full(2, 0.5))


@pytest.mark.parametrize(
    "changed", [{"unknowns": 2}, {"unknowns": 0}, {"aux": 1}, {"matvec": 1}, {"solve": -3},
                {"transpose_solve": -1}, {"unknowns": 2**40}],
)  # fmt: skip
def test_a_solver_whose_counts_do_not_fit_is_an_error(changed: dict[str, int]) -> None:
    fn, params = extract_jax(solver(**changed))
    with pytest.raises(UnsupportedError, match="needs the attributes matvec, solve"):
        fn(params, B)


def test_rules_are_written_out_for_some_derivatives() -> None:
    f = again(from_jax(lambda x: jax.nn.softplus(x), jnp.float32(1)))
    for _ in range(3):
        f = jax.grad(f)
    f(jnp.float32(1))
    with pytest.raises(UnsupportedError, match="such rules for 3 derivatives"):
        jax.grad(f)(jnp.float32(1))


def test_what_computes_elements_has_its_own_derivative() -> None:
    f = lambda x: lax.cumlogsumexp(x, 0)  # noqa: E731
    g = again(from_jax(f, X))
    same(jax.jvp(g, (X,), (X,))[1], jax.jvp(f, (X,), (X,))[1])
    same(jax.grad(one(g))(X), jax.grad(one(f))(X))


def test_of_symbolic_shapes_gaps_says_what_is_lost() -> None:
    (n,) = jax.export.symbolic_shape("n")
    shape = jax.ShapeDtypeStruct((n,), "float32")
    mod = from_jax(lambda x: jax.nn.softplus(x), shape)
    assert [gap.op for gap in gaps(mod) if "its rows" in gap.reason] == ["logaddexp"]
    # This one is kept, by way of bits, which a build leaves out.
    mod = from_jax(FUNCTIONS["stop_gradient"], shape)
    assert "its rows" not in str(gaps(mod))
    same(jax.grad(one(again(mod)))(X), X * jnp.cos(jnp.arange(5.0)))
    assert calls(mod, "bitcast_convert") == 2  # there and back; a cast of sizes reads the first
    assert calls(rx.transform.RemoveGradientMarks()(mod), "bitcast_convert") == 1


TEXT = """
func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %0:3 = stablehlo.composite "relax2xla.custom_jvp" %x, %x {
    composite_attributes = {ATTRIBUTES}, decomposition = @NAME
  } : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return %0#0 : tensor<2xf32>
}
func.func private @f(%x: tensor<2xf32>, %t: tensor<2xf32>)
    -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %y = stablehlo.add %x, %x : tensor<2xf32>
  return %y, %y, %t : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}
func.func private @again(%x: tensor<2xf32>, %t: tensor<2xf32>)
    -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>) {
  %0:3 = stablehlo.composite "relax2xla.custom_jvp" %x, %t {
    composite_attributes = {ATTRIBUTES}, decomposition = @again
  } : (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>, tensor<2xf32>)
  return %0#0, %0#1, %0#2 : tensor<2xf32>, tensor<2xf32>, tensor<2xf32>
}
"""
GOOD = "operands = 1 : i64, more = 1 : i64, results = 1 : i64"


def text(attributes: str, name: str = "f") -> IRModule:
    given = TEXT.replace("ATTRIBUTES", attributes).replace("NAME", name)
    return from_stablehlo(given, raise_ops=False)


def test_files_have_them() -> None:
    x = X[1:3]
    fn, params = extract_jax(text(GOOD))
    same(fn(params, x), 2 * x)
    same(jax.grad(lambda x: fn(params, x).sum())(x), jnp.ones(2))


@pytest.mark.parametrize(
    "attributes", ["", GOOD.replace("1 :", "2 :"), GOOD.replace("1 :", "-1 :", 1)]
)
def test_counts_that_do_not_fit_are_an_error(attributes: str) -> None:
    fn, params = extract_jax(text(attributes))
    with pytest.raises(UnsupportedError, match="needs the attributes operands, more and results"):
        jax.grad(lambda x: fn(params, x).sum())(X[:2])


def test_a_rule_that_calls_itself_is_an_error() -> None:
    mod = text(GOOD, "again")
    with pytest.raises(RunError, match="recurses"):
        rx.VirtualMachine(rx.build(mod))["main"](X[:2])
    rx.transform.RaiseStableHLO()(mod)
