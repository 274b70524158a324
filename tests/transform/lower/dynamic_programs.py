"""JAX functions of symbolic shapes: name, shapes and dtypes of the arguments, and the function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import jax
import jax.numpy as jnp
from jax import lax

Shapes = tuple[str, ...]


def scan(x: Any) -> Any:
    def step(carry: Any, row: Any) -> Any:
        carry = lax.cond(row[0] > 0, lambda: carry + row, lambda: carry * 0.5)
        return carry, carry.sum()

    return lax.scan(step, jnp.zeros(4), x)


def captured(x: Any, flag: Any) -> Any:
    """Branches over dynamic values from outside."""
    total = jnp.broadcast_to(jnp.sum(x, 0), x.shape)
    return lax.cond(flag, lambda: x * total, lambda: total - jnp.arange(x.shape[1]))


def loop(x: Any) -> Any:
    total = jnp.sum(x, 0)
    step = lambda c: (c[0] + jnp.broadcast_to(total, x.shape), c[1] + 1)  # noqa: E731
    return lax.while_loop(lambda c: c[1] < 3, step, (x, 0))


def random(x: Any) -> Any:
    return jax.random.normal(jax.random.key(0), x.shape) + x


def grad(x: Any, w: Any) -> Any:
    return jax.grad(lambda w: jnp.mean(jax.nn.softmax(x @ w) ** 2))(w)


def shapes(x: Any) -> Any:
    return (
        x.reshape(-1),
        x.T.reshape((x.shape[1], 1, -1)),
        jnp.concatenate([x, x], 0),
        jnp.pad(x, ((1, 2), (0, 0))),
        x[x.shape[0] // 2 :],
        x[::2],
        x[-1],
        jnp.arange(x.shape[0]) * 2,
    )


def pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2), (1, 2, 2), "SAME")


PROGRAMS: Final[dict[str, tuple[Shapes, Callable[..., Any]]]] = {
    "gather": (("n, m", "k i"), lambda x, i: jnp.take(x, i, axis=1, mode="clip")),
    "scatter": (("n, 4", "k i", "k, 4"), lambda x, i, u: x.at[i].add(u)),
    "scan": (("n, 4",), scan),
    "captured": (("n, m", " b"), captured),
    "loop": (("n, m",), loop),
    "switch": (
        ("n", " i"),
        lambda x, i: lax.switch(i, [lambda: x * 2, lambda: x + 1, lambda: jnp.flip(x)]),
    ),
    "random": (("n, 4",), random),
    "svd": (("n, 3, 2",), lambda x: jnp.linalg.svd(x, full_matrices=False)[1]),
    "sort": (("n, m",), lambda x: (jnp.sort(x, 0), jnp.argsort(x, -1))),
    "top_k": (("n, 8",), lambda x: lax.top_k(x, 3)),
    "update": (("n, 4", "k, 4"), lambda x, y: lax.dynamic_update_slice(x, y[:1], (1, 0))),
    "grad": (("n, 4", "4, 3"), grad),
    "fft": (("n, 8",), lambda x: jnp.fft.irfft(jnp.fft.fft(x)[:, :5])),
    "conv": (
        ("n, 3, h, w", "4, 3, 3, 3"),
        lambda x, w: lax.conv(x, w, (2, 2), "SAME"),
    ),
    "pool": (("n, h, w",), pool),
    "cumsum": (("n, 4",), lambda x: jnp.cumsum(x, 0)),
    "einsum": (("b, n, d", "b, m, d"), lambda q, k: jnp.einsum("bnd,bmd->bnm", q, k)),
    "shapes": (("n, m",), shapes),
    "solved": (("2*n + 1, m",), lambda x: (x[1:], jnp.sum(x))),
    "special": (("n",), lambda x: (jax.nn.gelu(x), lax.erf(x), jnp.sinh(x))),
}
