"""More JAX functions: kinds of random numbers, modes of indexing, vmap, types, collectives.

As in jax_programs.py: (name, function, arguments). ``X64`` are lowered with 64-bit types on,
``SHARDED`` take a mesh of eight devices, which need not exist.
"""

# ruff: noqa: E501 (a program a line)
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import PartitionSpec as P

A = np.ones((4, 8), np.float32)
KEY = np.zeros((2,), np.uint32)
Program = tuple[str, Callable[..., Any], tuple[Any, ...]]

RANDOM = {
    "bernoulli": lambda k: jax.random.bernoulli(k, 0.3, (4,)),
    "beta": lambda k: jax.random.beta(k, 2.0, 3.0, (4,)),
    "binomial": lambda k: jax.random.binomial(k, 5, 0.3, (4,)),
    "categorical": lambda k: jax.random.categorical(k, jnp.zeros(5), shape=(4,)),
    "dirichlet": lambda k: jax.random.dirichlet(k, jnp.ones(3), (4,)),
    "exponential": lambda k: jax.random.exponential(k, (4,)),
    "gamma": lambda k: jax.random.gamma(k, 2.0, (4,)),
    "gumbel": lambda k: jax.random.gumbel(k, (4,)),
    "laplace": lambda k: jax.random.laplace(k, (4,)),
    "multivariate_normal": lambda k: jax.random.multivariate_normal(k, jnp.zeros(2), jnp.eye(2)),
    "orthogonal": lambda k: jax.random.orthogonal(k, 3),
    "poisson": lambda k: jax.random.poisson(k, 3.0, (4,)),
    "randint": lambda k: jax.random.randint(k, (4,), 0, 10),
    "split": lambda k: jax.random.split(k, 3),
    "truncated_normal": lambda k: jax.random.truncated_normal(k, -1, 1, (4,)),
    "uniform_bfloat16": lambda k: jax.random.uniform(k, (4,), jnp.bfloat16),
    "rbg": lambda k: jax.random.normal(jax.random.key(0, impl="rbg"), (4,)) + k[0],
}
MODES = ("clip", "fill", "promise_in_bounds")
INDEX = np.array([1, 9, -1], np.int32)


def _index(mode: str) -> Any:
    """Positions outside of the four rows too, where the mode does not promise otherwise."""
    return INDEX % 4 if mode == "promise_in_bounds" else INDEX


def _scatters(mode: str) -> Callable[..., Any]:
    def scatter(a: Any, i: Any) -> Any:
        at = a.at[i]
        how = {"mode": mode} if mode != "fill" else {"mode": "drop"}
        return at.set(2, **how), at.add(1, **how), at.mul(3, **how), at.min(0, **how)

    return scatter


def _attention(q: Any, k: Any, v: Any) -> Any:
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / np.sqrt(q.shape[-1])
    mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    return jnp.einsum("bhqk,bhkd->bhqd", jax.nn.softmax(jnp.where(mask, scores, -1e9)), v)


Q = np.ones((2, 3, 5, 4), np.float32)
SQUARE = np.eye(4, dtype=np.float32)[None] * np.ones((3, 1, 1), np.float32)


def _dilated(x: Any, w: Any) -> Any:
    return lax.conv_general_dilated(
        x, w, (1, 2), ((1, 2), (0, 1)), (2, 1), (1, 2), ("NCHW", "OIHW", "NCHW"), 2
    ).sum()


PROGRAMS: list[Program] = [
    *((f"random_{name}", fn, (KEY,)) for name, fn in RANDOM.items()),
    *((f"gather_{m}", lambda a, i, m=m: a.at[i].get(mode=m), (A, _index(m))) for m in MODES),
    *((f"scatter_{m}", _scatters(m), (A, _index(m))) for m in MODES),
    ("gather_batched", jax.vmap(lambda a, i: a[i]), (A, np.zeros((4, 2), np.int32))),
    ("sort_keys", lambda a: lax.sort((a, -a, a * 2), num_keys=2, is_stable=False), (A,)),
    ("lexsort", lambda a: jnp.lexsort((a[:, 0], a[:, 1])), (A,)),
    ("unique", lambda a: jnp.unique(a, size=3, return_counts=True), (A,)),
    ("searchsorted", lambda a: jnp.searchsorted(a[0], a[1]), (A,)),
    ("histogram", lambda a: jnp.histogram(a, 4), (A,)),
    ("attention_grad", jax.grad(lambda q: _attention(q, q, q).sum()), (Q,)),
    ("conv_grad", jax.grad(_dilated, (0, 1)), (np.ones((1, 4, 6, 6), "f"), np.ones((6, 2, 3, 3), "f"))),
    ("vmap_scan", jax.vmap(lambda a: lax.scan(lambda c, x: (c + x, c), 0.0, a)), (A,)),
    ("vmap_while", jax.vmap(lambda a: lax.while_loop(lambda c: c < 9, lambda c: c * 2 + 1, a)), (A[0],)),
    ("vmap_cond", jax.vmap(lambda a: lax.cond(a > 0, jnp.sin, jnp.cos, a)), (A[0],)),
    ("vmap_solve", jax.vmap(jnp.linalg.solve), (SQUARE, np.ones((3, 4), "f"))),
    ("vmap_fft", jax.vmap(jnp.fft.fft), (A,)),
    ("vmap_sort", jax.vmap(lambda a: (jnp.sort(a), jnp.argsort(a))), (A,)),
    ("vmap_conv", jax.vmap(_dilated, (0, None)), (np.ones((2, 1, 4, 6, 6), "f"), np.ones((6, 2, 3, 3), "f"))),
    ("jvp", lambda a: jax.jvp(jnp.tanh, (a,), (a,)), (A,)),
    ("hessian", jax.hessian(lambda a: jnp.sum(jnp.sin(a) * a)), (A[0],)),
    ("associative_scan", lambda a: lax.associative_scan(jnp.multiply, a), (A,)),
    ("narrow", lambda a: a.astype(jnp.int4).astype(jnp.int8) + a.astype(jnp.uint2).astype(jnp.int8), (A,)),
    ("float8_dot", lambda a: lax.dot(a.astype(jnp.float8_e5m2), a.T.astype(jnp.float8_e5m2), preferred_element_type=jnp.float32), (A,)),
    ("complex_linalg", lambda a: jnp.linalg.eigh(lax.complex(a[:, :4], a[:, :4])), (A,)),
    ("remat_scan", jax.grad(lambda a: lax.scan(jax.checkpoint(lambda c, x: (jnp.sin(c) * x, None)), a[0], a)[0].sum()), (A,)),
    ("custom_jvp", jax.grad(lambda a: jax.nn.relu(a).sum() + jax.nn.logsumexp(a)), (A,)),
    ("reduce_precision", lambda a: jnp.float16(a) * jnp.bfloat16(2), (A,)),
    ("image_resize", lambda a: jax.image.resize(a, (8, 8), "bicubic"), (A,)),
    ("debug_print", lambda a: (jax.debug.print("{}", a), a)[1], (A,)),
    ("tridiagonal", lambda a: lax.linalg.tridiagonal_solve(a[0], a[1], a[2], a.T[:, :2]), (A,)),
]  # fmt: skip

X64: list[Program] = [
    ("float64", lambda a: jnp.sin(a).sum(), (A.astype("float64"),)),
    ("int64", lambda a: (a << 40) // 3 % 7, (np.arange(4),)),
    ("complex128", lambda a: jnp.fft.fft(a), (A.astype("complex128"),)),
    ("uint64_random", lambda k: jax.random.bits(k, (4,), "uint64"), (KEY,)),
    ("cumsum", lambda a: jnp.cumsum(a), (np.arange(4),)),
]


def _mapped(body: Callable[[Any], Any]) -> Callable[[Any], Callable[..., Any]]:
    def on(mesh: Any) -> Callable[..., Any]:
        return jax.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)

    return on


ROUND = [(i, (i + 1) % 8) for i in range(8)]
SHARDED: list[tuple[str, Callable[[Any], Callable[..., Any]], Any]] = [
    ("psum", _mapped(lambda a: lax.psum(a, "x")), np.ones((16, 4), "f")),
    ("pmean_pmax", _mapped(lambda a: lax.pmean(a, "x") + lax.pmax(a, "x")), np.ones((16, 4), "f")),
    ("psum_scatter", _mapped(lambda a: lax.psum_scatter(a, "x", tiled=True)), np.ones((64, 4), "f")),
    ("all_gather", _mapped(lambda a: lax.all_gather(a, "x", axis=1, tiled=True)), np.ones((16, 4), "f")),
    ("all_to_all", _mapped(lambda a: lax.all_to_all(a, "x", 1, 0, tiled=True)), np.ones((16, 8), "f")),
    ("ppermute", _mapped(lambda a: lax.ppermute(a, "x", ROUND)), np.ones((16, 4), "f")),
    ("axis_index", _mapped(lambda a: a + lax.axis_index("x")), np.ones((16, 4), "f")),
]  # fmt: skip
