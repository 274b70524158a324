"""Derivatives of functions that compute in float64 while JAX's x64 flag is off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from relax2xla.interop.jax import extract_jax, from_jax

X = np.random.default_rng(0).standard_normal((4, 6)).astype("f")
Derivative = Callable[[Callable[[Any], Any]], Callable[[Any], Any]]


def program(x: Any) -> Any:
    """Float32 outside, float64 inside; windows pad their gradients, a loop carries them."""
    y = lax.convert_element_type(x, np.float64)
    pooled = lax.reduce_window(y, np.float64(-np.inf), lax.max, (1, 2), (1, 2), "VALID")
    total, _ = lax.scan(lambda c, r: (jnp.sin(c) * r + r, None), y[0], y)
    made = jax.nn.logsumexp(y, 1).sum() + (pooled**2).sum() + total.sum() / 3
    return made.astype("float32")


def extracted() -> Callable[[Any], Any]:
    with jax.enable_x64(True):
        fn, params = extract_jax(from_jax(program, X))
    return lambda x: fn(params, x)


@pytest.mark.parametrize(
    "derivative",
    [
        jax.grad,
        lambda f: lambda x: jax.jvp(f, (x,), (jnp.ones_like(x),))[1],
        lambda f: jax.grad(jax.checkpoint(f)),
        lambda f: lambda x: jax.vmap(jax.grad(f))(jnp.stack([x, x / 2])),
        lambda f: lambda x: lax.map(jax.grad(f), jnp.stack([x, x / 2])),
        jax.hessian,
        lambda f: jax.jacrev(jax.grad(f)),
        lambda f: jax.jacrev(jax.jacfwd(f)),
    ],
    ids=["grad", "jvp", "remat", "vmap", "loop", "hessian", "reverse twice", "mixed"],
)
def test_derivatives_are_those_with_the_flag_on(derivative: Derivative) -> None:
    got = jax.jit(derivative(extracted()))(X)
    with jax.enable_x64(True):
        want = jax.jit(derivative(program))(X)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_a_gradient_operation_by_operation() -> None:
    with jax.enable_x64(True):
        fn, params = extract_jax(from_jax(lambda x: jnp.sin(x) ** 2, np.zeros(3)))
    got = jax.grad(lambda x: fn(params, x).astype("float32").sum())(X[0, :3])
    np.testing.assert_allclose(got, np.sin(2 * X[0, :3]), rtol=1e-6)


def test_weights_of_64_bits_have_gradients_of_64_bits() -> None:
    torch = pytest.importorskip("torch")
    import relax2xla

    module = torch.nn.Linear(3, 2).double()
    x = torch.arange(6.0, dtype=torch.float64).reshape(2, 3) / 7
    fn, params = relax2xla.jax_function(module, (x,))
    grads = jax.jit(jax.grad(lambda p: fn(p, x.numpy())[0, 1].astype("float32")))(params)
    module(x)[0, 1].backward()
    assert grads["weight"].dtype == np.float64
    np.testing.assert_allclose(grads["weight"], module.weight.grad.numpy(), rtol=1e-15)


def test_a_gradient_is_exported() -> None:
    grad = jax.grad(extracted())
    data = jax.export.export(jax.jit(grad))(X).serialize()
    np.testing.assert_allclose(jax.export.deserialize(data).call(X), grad(X), rtol=1e-6)
