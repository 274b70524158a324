"""JAX functions whose StableHLO exercises most rows: (name, function, arguments)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

A = np.ones((4, 8), np.float32)
B = np.ones((8, 5), np.float32)
S = np.ones((6, 6), np.float32)
I4 = np.ones((4, 8), np.int32)
IMAGE = np.ones((2, 8, 8, 3), np.float32)
KERNEL = np.ones((3, 3, 3, 4), np.float32)
IDX = np.zeros((3, 1), np.int32)
KEY = np.zeros((2,), np.uint32)
GATHER = lax.GatherDimensionNumbers((1,), (0,), (0,))
NHWC = ("NHWC", "HWIO", "NHWC")


def mlp_step(params: Any, x: Any, y: Any) -> Any:
    """One step of gradient descent on a two-layer perceptron."""

    def loss(p: Any) -> Any:
        hidden = jax.nn.relu(x @ p["w1"] + p["b1"])
        logits = hidden @ p["w2"] + p["b2"]
        return -jnp.mean(jnp.sum(jax.nn.log_softmax(logits) * y, axis=-1))

    value, grads = jax.value_and_grad(loss)(params)
    return value, jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def conv_net(params: Any, x: Any) -> Any:
    """Two convolutions with batch normalisation, pooling and a dense layer."""
    for w in params["convs"]:
        x = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=NHWC)
        x = jax.nn.standardize(x, axis=(0, 1, 2))
        x = jax.nn.gelu(x)
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jax.nn.softmax(x.reshape(x.shape[0], -1) @ params["dense"])


MLP = {
    "w1": np.ones((8, 16), np.float32),
    "b1": np.ones((16,), np.float32),
    "w2": np.ones((16, 3), np.float32),
    "b2": np.ones((3,), np.float32),
}
CONV = {
    "convs": [KERNEL, np.ones((3, 3, 4, 6), np.float32)],
    "dense": np.ones((24, 10), np.float32),
}


def _scan(a: Any) -> Any:
    return lax.scan(lambda c, x: (c + x, c * x), jnp.zeros((8,), jnp.float32), a)


def _nested(a: Any) -> Any:
    def body(_: Any, c: Any) -> Any:
        return lax.cond(
            c.sum() > 0, lambda v: lax.fori_loop(0, 3, lambda i, w: w + i, v), jnp.sin, c
        )

    return lax.fori_loop(0, 4, body, a)


@jax.custom_vjp
def _custom(x: Any) -> Any:
    return jnp.sin(x)


_custom.defvjp(lambda x: (jnp.sin(x), x), lambda x, g: (g * jnp.cos(x),))


def _composite(x: Any) -> Any:
    return lax.composite(lambda v, *, scale: v * scale, name="my.scale", version=2)(x, scale=2.0)


PROGRAMS: list[tuple[str, Callable[..., Any], tuple[Any, ...]]] = [
    ("mlp_step", mlp_step, (MLP, A, np.ones((4, 3), np.float32))),
    ("conv_net", conv_net, (CONV, IMAGE)),
    ("conv_net_grad", jax.grad(lambda p, x: conv_net(p, x)[0, 0]), (CONV, IMAGE)),
    (
        "while",
        lambda a: lax.while_loop(lambda c: c[0] < 9, lambda c: (c[0] + 1, c[1] * 2), (0, a)),
        (A,),
    ),
    ("fori", lambda a: lax.fori_loop(0, 10, lambda i, c: c * 2 + i, a), (A,)),
    ("scan", _scan, (A,)),
    ("scan_grad", jax.grad(lambda a: _scan(a)[1].sum()), (A,)),
    (
        "cond",
        lambda p, a: lax.cond(p > 0, lambda v: v + 1, lambda v: v * a.sum(), a),
        (np.float32(1), A),
    ),
    (
        "switch",
        lambda i, a: lax.switch(i, [jnp.sin, jnp.cos, lambda v: v * a[0, 0]], a),
        (np.int32(1), A),
    ),
    ("nested", _nested, (A,)),
    ("sort", lambda a: lax.sort((a, a * 2), num_keys=1), (A,)),
    ("argsort", lambda a: jnp.argsort(a, axis=0, descending=True), (A,)),
    ("top_k", lambda a: lax.top_k(a, 3), (A,)),
    ("approx_max_k", lambda a: lax.approx_max_k(a, 3), (A,)),
    ("gather", lambda a, i: lax.gather(a, i, GATHER, (1, 8), mode="clip"), (A, IDX)),
    ("take", lambda a, i: jnp.take_along_axis(a, i, axis=0), (A, np.zeros((2, 8), np.int32))),
    ("scatter_add", lambda a: a.at[jnp.array([1, 2])].add(1.0), (A,)),
    ("scatter_set", lambda a: a.at[1:3, ::2].set(0.0, unique_indices=True), (A,)),
    ("scatter_max", lambda a: a.at[jnp.array([0, 0])].max(3.0, mode="drop"), (A,)),
    ("slices", lambda a: jnp.concatenate([a[1:3, ::2][::-1], jnp.pad(a, 1)[:2, :4]]), (A,)),
    ("dynamic_slice", lambda a, i: lax.dynamic_slice(a, (i, i), (2, 2)), (A, np.int32(1))),
    (
        "dynamic_update",
        lambda a, i: lax.dynamic_update_slice(a, a[:2, :2], (i, i)),
        (A, np.int32(1)),
    ),
    ("fft", lambda a: jnp.fft.irfft(jnp.fft.rfft(a) * 2j), (A,)),
    ("fft2", lambda a: jnp.fft.fft2(a), (A,)),
    ("cholesky", lambda s: jnp.linalg.cholesky(s), (S,)),
    ("cholesky_grad", jax.grad(lambda s: jnp.linalg.cholesky(s).sum()), (S,)),
    ("triangular_solve", lambda s: jax.scipy.linalg.solve_triangular(s, s, lower=True), (S,)),
    ("qr", lambda s: jnp.linalg.qr(s), (S,)),
    ("svd", lambda s: jnp.linalg.svd(s), (S,)),
    ("eigh", lambda s: jnp.linalg.eigh(s), (S,)),
    ("lu", lambda s: jax.scipy.linalg.lu(s), (S,)),
    ("inv", lambda s: jnp.linalg.inv(s), (S,)),
    ("expm", lambda s: jax.scipy.linalg.expm(s), (S,)),
    ("random_normal", lambda k: jax.random.normal(k, (4,)), (KEY,)),
    ("random_bits", lambda k: lax.rng_bit_generator(jnp.tile(k, 2), (4,)), (KEY,)),
    ("random_choice", lambda k: jax.random.permutation(k, 10), (KEY,)),
    ("erf", lambda a: (lax.erf(a), lax.erf_inv(a), lax.lgamma(a), lax.digamma(a)), (A,)),
    ("special", lambda a: (jax.scipy.special.i1e(a), lax.polygamma(a, a), lax.zeta(a, a)), (A,)),
    ("trigonometry", lambda a: (jnp.arcsin(a), jnp.arccosh(a), jnp.tan(a), jnp.sinh(a)), (A,)),
    ("accuracy", lambda a: (lax.exp(a, accuracy=lax.Tolerance(1e-3, 1e-3, 2)), lax.rsqrt(a)), (A,)),
    (
        "cumulative",
        lambda a: (jnp.cumsum(a, 0), jnp.cumprod(a, 1), lax.cummax(a), lax.cumlogsumexp(a)),
        (A,),
    ),
    ("segment_sum", lambda a: jax.ops.segment_sum(a, jnp.array([0, 1, 0, 2]), 3), (A,)),
    ("argmax", lambda a: (jnp.argmax(a, 1), jnp.argmin(a)), (A,)),
    (
        "reductions",
        lambda a: (a.sum(), a.prod(0), a.max(), a.min(1), (a > 0).all(), (a > 0).any(0)),
        (A,),
    ),
    (
        "bits",
        lambda a: (a & 1, a | 2, ~a, a ^ 3, a << 1, a >> 1, lax.population_count(a), lax.clz(a)),
        (I4,),
    ),
    (
        "complex",
        lambda a: (lax.complex(a, a).real, jnp.abs(lax.complex(a, a)), jnp.conj(a * 1j)),
        (A,),
    ),
    (
        "convert",
        lambda a: (a.astype(jnp.bfloat16), a.astype(jnp.float8_e4m3fn), a.astype(jnp.int4)),
        (A,),
    ),
    (
        "bitcast",
        lambda a: (lax.bitcast_convert_type(a, jnp.int32), lax.reduce_precision(a, 5, 10)),
        (A,),
    ),
    (
        "select_clamp",
        lambda a: (jnp.where(a > 0, a, 1), jnp.clip(a, 0, 1), lax.nextafter(a, a)),
        (A,),
    ),
    ("dot_precision", lambda a, b: jnp.dot(a, b, precision="highest"), (A, B)),
    (
        "dot_algorithm",
        lambda a, b: jnp.dot(a, b, precision=lax.DotAlgorithmPreset.F32_F32_F32),
        (A, B),
    ),
    (
        "dot_types",
        lambda a, b: lax.dot(a, b, preferred_element_type=jnp.int32),
        (I4.astype("int8"), B.astype("int8")),
    ),
    (
        "einsum",
        lambda a, b: jnp.einsum("bij,bjk->bik", a, b),
        (np.ones((2, 3, 4), "f"), np.ones((2, 4, 5), "f")),
    ),
    (
        "conv_groups",
        lambda x, k: lax.conv_general_dilated(
            x, k, (2, 2), [(1, 0), (2, 1)], (1, 2), (2, 1), NHWC, 3
        ),
        (IMAGE, np.ones((3, 3, 1, 6), "f")),
    ),
    ("conv_transpose", lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), (IMAGE, KERNEL)),
    (
        "pool_grad",
        jax.grad(
            lambda x: lax.reduce_window(
                x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"
            ).sum()
        ),
        (IMAGE,),
    ),
    (
        "avg_pool",
        lambda x: lax.reduce_window(
            x, 0.0, lax.add, (1, 2, 2, 1), (1, 1, 1, 1), "SAME", (1, 2, 1, 1), (1, 1, 2, 1)
        ),
        (IMAGE,),
    ),
    (
        "vmap",
        jax.vmap(lambda a, i: lax.dynamic_slice(a, (i,), (2,))),
        (A, np.zeros((4,), np.int32)),
    ),
    ("checkpoint", jax.grad(jax.checkpoint(lambda a: jnp.sin(jnp.sin(a)).sum())), (A,)),
    ("custom_vjp", jax.grad(lambda a: _custom(a).sum()), (A,)),
    ("composite", _composite, (A,)),
    ("barrier", lambda a: lax.optimization_barrier((a, a + 1)), (A,)),
    (
        "attention",
        lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True),
        (np.ones((2, 5, 4, 8), "f"),),
    ),
    (
        "callback",
        lambda a: jax.pure_callback(lambda v: v, jax.ShapeDtypeStruct((4, 8), "float32"), a),
        (A,),
    ),
    ("named_scope", jax.named_scope("layer")(lambda a: jnp.tanh(a)), (A,)),
    (
        "iota",
        lambda a: (jnp.arange(10), lax.broadcasted_iota(jnp.int32, (2, 3), 1), jnp.eye(3)),
        (A,),
    ),
    ("map", lambda a: lax.map(jnp.cumsum, a), (A,)),
    (
        "reduce_pair",
        lambda a: lax.reduce((a, a), (0.0, 1.0), lambda p, q: (p[0] + q[0], p[1] * q[1]), (0,)),
        (A,),
    ),
    (
        "ragged",
        lambda a, b, g: lax.ragged_dot(a, b, g),
        (A, np.ones((2, 8, 5), "f"), np.array([2, 2], np.int32)),
    ),
    (
        "constants",
        lambda a: a + np.arange(32, dtype=np.float32).reshape(4, 8) * np.float32(np.nan),
        (A,),
    ),
    (
        "exotic_constants",
        lambda: (np.arange(9).astype(jnp.bfloat16), np.arange(4) * 1j, np.zeros((0, 3), "f")),
        (),
    ),
]
