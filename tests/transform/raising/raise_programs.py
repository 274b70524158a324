"""JAX programs for tests of RaiseStableHLO: (name, function, arguments)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_RNG = np.random.default_rng(0)


def _f(*shape: int, dtype: str = "float32") -> Any:
    return _RNG.standard_normal(shape).astype(dtype)


X, Y, V = _f(4, 8), _f(4, 8), _f(8)
W1, W2 = _f(8, 16), _f(16, 3)
IMAGE, KERNEL = _f(2, 8, 8, 3), _f(3, 3, 3, 4)
Q = _f(2, 5, 4, 8)
BATCH = _f(2, 4, 5)
INTS = _RNG.integers(-9, 9, (4, 8)).astype(np.int32)
IDS = np.array([1, 3, 0], np.int32)
NHWC = ("NHWC", "HWIO", "NHWC")


def layer_norm(x: Any, g: Any, b: Any) -> Any:
    """The usual layer norm."""
    mean = x.mean(-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5) * g + b


def rms_norm(x: Any, g: Any) -> Any:
    """The usual rms norm."""
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * g


def attention(q: Any, k: Any, v: Any) -> Any:
    """Attention with the heads first."""
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k) / np.sqrt(q.shape[-1])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), v)


def block(x: Any, g: Any, w1: Any, w2: Any) -> Any:
    """A block of a transformer without its attention."""
    return x + jax.nn.gelu(layer_norm(x, g, g) @ w1) @ w2


def batch_norm(x: Any, g: Any, b: Any, m: Any, v: Any) -> Any:
    """Inference by channel."""
    return (x - m) * lax.rsqrt(v + 1e-5) * g + b


def conv(x: Any, k: Any, *args: Any, **kwargs: Any) -> Any:
    """A convolution in NHWC."""
    return lax.conv_general_dilated(x, k, *args, dimension_numbers=NHWC, **kwargs)


def mlp(x: Any, w1: Any, w2: Any) -> Any:
    """Two layers."""
    return jax.nn.log_softmax(jax.nn.relu(x @ w1 + 1.0) @ w2)


def network(x: Any, k: Any) -> Any:
    """Convolution, normalisation, pooling and a softmax."""
    x = jax.nn.relu(conv(x, k, (1, 1), "SAME"))
    x = (x - x.mean((0, 1, 2))) * lax.rsqrt(x.var((0, 1, 2)) + 1e-5)
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jax.nn.softmax(x.mean((1, 2)))


def lstm(x: Any, w: Any) -> Any:
    """A loop of gates."""

    def step(c: Any, row: Any) -> Any:
        a, b = jnp.split(row @ w, 2)
        c = jax.nn.sigmoid(a) * c + jnp.tanh(b)
        return c, jax.nn.softmax(c)

    return lax.scan(step, jnp.zeros(8, "float32"), x)


Program = tuple[str, Callable[..., Any], tuple[Any, ...]]
_WINDOW = ((1, 2, 2, 1), (1, 2, 2, 1))
PROGRAMS: list[Program] = [
    ("softmax", jax.nn.softmax, (X,)),
    ("softmax axis", lambda x: jax.nn.softmax(x, 0), (X,)),
    ("softmax half", jax.nn.softmax, (X.astype("float16"),)),
    ("log_softmax", jax.nn.log_softmax, (X,)),
    ("logsumexp", lambda x: jax.nn.logsumexp(x, -1), (X,)),
    ("gelu", jax.nn.gelu, (X,)),
    ("gelu erf", lambda x: jax.nn.gelu(x, approximate=False), (X,)),
    ("silu", jax.nn.silu, (X,)),
    ("relu", jax.nn.relu, (X,)),
    ("relu6", jax.nn.relu6, (X * 5,)),
    ("leaky_relu", jax.nn.leaky_relu, (X,)),
    ("sigmoid", jax.nn.sigmoid, (X,)),
    ("softplus", jax.nn.softplus, (X,)),
    ("elu", jax.nn.elu, (X,)),
    ("hard_swish", jax.nn.hard_swish, (X,)),
    ("layer_norm", layer_norm, (X, V, V)),
    ("rms_norm", rms_norm, (X, V)),
    ("batch_norm", batch_norm, (IMAGE, *(abs(_f(3)) for _ in range(4)))),
    ("standardize", jax.nn.standardize, (X,)),
    ("block", block, (X, V, W1, _f(16, 8))),
    ("mlp", mlp, (X, W1, W2)),
    ("mlp grad", jax.grad(lambda w, x, u: mlp(x, w, u).sum()), (W1, X, W2)),
    ("network", network, (IMAGE, KERNEL)),
    ("network grad", jax.grad(lambda k, x: network(x, k)[0, 0]), (KERNEL, IMAGE)),
    ("attention", attention, (Q, Q + 1, Q * 2)),
    ("attention grad", jax.grad(lambda q: attention(q, q, q).sum()), (Q,)),
    ("dot_product_attention", lambda q: jax.nn.dot_product_attention(q, q, q), (Q,)),
    (
        "dot_product_attention with bias",
        lambda q, b: jax.nn.dot_product_attention(q, q, q, bias=b, is_causal=True),
        (Q, _f(2, Q.shape[2], Q.shape[1], Q.shape[1])),
    ),
    ("causal", lambda q: jax.nn.dot_product_attention(q, q, q, is_causal=True), (Q,)),
    ("lstm", lstm, (X, _f(8, 16))),
    ("einsum", lambda a, b: jnp.einsum("bij,bkj->bik", a, b), (BATCH, BATCH)),
    ("einsum outer", lambda a, b: jnp.einsum("bij,kj->kbi", a, b), (BATCH, _f(3, 5))),
    ("matmul batch", jnp.matmul, (BATCH, _f(2, 5, 3))),
    ("matmul vector", jnp.matmul, (X, V)),
    ("matmul ints", jnp.matmul, (INTS, INTS.T)),
    ("matmul bfloat16", jnp.matmul, (X.astype(jnp.bfloat16), W1.astype(jnp.bfloat16))),
    ("outer", jnp.outer, (V, V)),
    ("conv", lambda x, k: conv(x, k, (2, 2), "SAME"), (IMAGE, KERNEL)),
    (
        "conv groups",
        lambda x, k: conv(x, k, (1, 1), "SAME", feature_group_count=3),
        (IMAGE, _f(3, 3, 1, 6)),
    ),
    ("conv dilated", lambda x, k: conv(x, k, (1, 1), "VALID", None, (2, 2)), (IMAGE, KERNEL)),
    ("conv transpose", lambda x, k: lax.conv_transpose(x, k, (2, 2), "SAME"), (IMAGE, KERNEL)),
    (
        "conv transpose kernel",
        lambda x, k: lax.conv_transpose(x, k, (2, 2), "VALID", transpose_kernel=True),
        (IMAGE, _f(3, 3, 4, 3)),
    ),
    ("conv nchw", lambda x, k: lax.conv(x, k, (1, 1), "VALID"), (_f(1, 3, 6, 6), _f(2, 3, 3, 3))),
    ("conv 1d", lambda x, k: lax.conv(x, k, (2,), "SAME"), (_f(1, 3, 9), _f(2, 3, 3))),
    (
        "conv 3d",
        lambda x, k: lax.conv(x, k, (1, 1, 1), "SAME"),
        (_f(1, 2, 4, 4, 4), _f(2, 2, 2, 2, 2)),
    ),
    ("conv grad", jax.grad(lambda k, x: (conv(x, k, (2, 2), "SAME") ** 2).sum()), (KERNEL, IMAGE)),
    ("max_pool", lambda x: lax.reduce_window(x, -jnp.inf, lax.max, *_WINDOW, "SAME"), (IMAGE,)),
    (
        "max_pool overlap",
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), "SAME"),
        (IMAGE,),
    ),
    ("avg_pool", lambda x: lax.reduce_window(x, 0.0, lax.add, *_WINDOW, "VALID") / 4, (IMAGE,)),
    ("argmax", lambda x: (jnp.argmax(x, 1), jnp.argmin(x, 0), jnp.argmax(x)), (X,)),
    ("argmax nan", lambda x: jnp.argmax(x * np.float32(np.nan), 1), (X,)),
    ("argmax ints", lambda x: jnp.argmax(x, 1, keepdims=True), (INTS,)),
    ("sort", lambda x: (jnp.sort(x), jnp.sort(x, 0), jnp.argsort(x)), (X,)),
    ("sort descending", lambda x: (jnp.sort(x, descending=True), jnp.argsort(-x)), (X,)),
    ("sort ints", lambda x: (jnp.sort(x), jnp.argsort(x, 0)), (INTS,)),
    ("top_k", lambda x: lax.top_k(x, 3), (X,)),
    ("top_k ints", lambda x: lax.top_k(x, 3), (INTS,)),
    ("cumsum", lambda x: (jnp.cumsum(x, 1), jnp.cumprod(x, 0), lax.cummax(x, 1)), (X,)),
    ("cumsum reverse", lambda x: lax.cumsum(x, 1, reverse=True), (X,)),
    ("take", lambda x, i: jnp.take(x, i, axis=0), (X, IDS)),
    ("take outside", lambda x, i: jnp.take(x, i + 3, axis=1), (X, np.array([[1], [7]], "int32"))),
    ("take clip", lambda x, i: jnp.take(x, i, axis=1, mode="clip"), (X, IDS)),
    ("embedding", lambda x, i: x[i], (X, IDS)),
    ("embedding grad", jax.grad(lambda x, i: (x[i] ** 2).sum()), (X, IDS)),
    ("index one", lambda x, i: x[i], (X, np.int32(2))),
    ("take_along_axis", lambda x, i: jnp.take_along_axis(x, i, 1), (X, abs(INTS) % 8)),
    ("one_hot", lambda i: jax.nn.one_hot(i, 5), (IDS,)),
    ("where", lambda x, y: jnp.where(x > y, x, 2.0), (X, Y)),
    ("where column", lambda x, c: jnp.where(c > 0, x, -x), (X, _f(4, 1))),
    ("clip", lambda x: (jnp.clip(x, -0.5, 0.25), jnp.clip(x, None, 0.5)), (X,)),
    ("reductions", lambda x: (x.sum(), x.sum(0), x.max(1), x.min((0, 1)), x.prod(1)), (X,)),
    ("keepdims", lambda x: (x.sum(0, keepdims=True), x.max((0, 1), keepdims=True)), (X,)),
    ("mean var", lambda x: (x.mean(), x.mean(1), x.var(0), x.std(1)), (X,)),
    ("mean half", lambda x: (x.mean(0), x.sum(1)), (X.astype("float16"),)),
    ("any all", lambda x: ((x > 0).any(0), (x > 0).all(1), (x > 0).any()), (X,)),
    ("sum ints", lambda x: (x.sum(0), x.max(), x.min(1)), (INTS,)),
    ("iota", lambda x: x + jnp.arange(8) + jnp.arange(4)[:, None], (X,)),
    ("eye", lambda x: x[:, :4] * jnp.eye(4) + jnp.tri(4), (X,)),
    ("tril", lambda x: (jnp.tril(x), jnp.triu(x, 1), jnp.tril(x, -1)), (X,)),
    ("shapes", lambda x: (x.reshape(2, 2, 8), x.T, x[::-1], x[1:3, ::2], x[:, None]), (X,)),
    ("concat", lambda x, y: (jnp.concatenate([x, y]), jnp.stack([x, y], 1)), (X, Y)),
    ("split", lambda x: jnp.split(x, 2, 1), (X,)),
    ("pad", lambda x: (jnp.pad(x, 1), lax.pad(x, 0.0, [(1, 0, 1), (0, 2, 0)])), (X,)),
    ("pad modes", lambda x: (jnp.pad(x, 1, "edge"), jnp.pad(x, 1, "reflect")), (X,)),
    ("roll", lambda x: (jnp.roll(x, 1, 1), jnp.flip(x, 0), jnp.rot90(x)), (X,)),
    ("repeat", lambda x: (jnp.repeat(x, 2, 1), jnp.tile(x, (2, 1))), (X,)),
    (
        "broadcast",
        lambda x: (jnp.broadcast_to(x[0], (3, 8)), lax.broadcast_in_dim(x, (8, 2, 4), (2, 0))),
        (X,),
    ),
    ("converts", lambda x: (x.astype("int32"), x.astype(bool), x.astype("float16")), (X,)),
    ("comparisons", lambda x, y: (x == y, x != y, x < y, x <= 0.5, x > y, x >= y), (X, Y)),
    ("bits", lambda x: (x & 3, x | 5, x ^ 1, ~x, x << 1, x >> 1), (INTS,)),
    ("integers", lambda x: (x // 3, x % 3, -x, abs(x), jnp.sign(x), x**2), (INTS,)),
    (
        "unary",
        lambda x: (
            jnp.exp(x),
            jnp.log(abs(x)),
            jnp.sqrt(abs(x)),
            lax.rsqrt(abs(x)),
            jnp.sin(x),
            jnp.cos(x),
            jnp.tan(x),
            jnp.tanh(x),
            jnp.floor(x),
            jnp.ceil(x),
        ),
        (X,),
    ),
    (
        "unary more",
        lambda x: (
            jnp.sinh(x),
            jnp.cosh(x),
            jnp.arcsin(x),
            jnp.arctan(x),
            lax.erf(x),
            jnp.round(x),
            jnp.trunc(x),
            jnp.cbrt(x),
            jnp.expm1(x),
            jnp.log1p(abs(x)),
        ),
        (X,),
    ),
    (
        "floats",
        lambda x, y: (
            x // y,
            x % y,
            x**y,
            jnp.arctan2(x, y),
            jnp.hypot(x, y),
            jnp.isnan(x),
            jnp.isinf(x),
            jnp.isfinite(x),
            jnp.logaddexp(x, y),
        ),
        (X, abs(Y)),
    ),
    ("complex", lambda x, y: (x + 1j * y, jnp.abs(x + 1j * y), (x * 1j).real), (X, Y)),
    (
        "while",
        lambda x: lax.while_loop(lambda c: c.sum() < 99, lambda c: jax.nn.relu(c) + 1, x),
        (X,),
    ),
    (
        "cond",
        lambda p, x: lax.cond(p > 0, jax.nn.softmax, lambda v: v * x.mean(), x),
        (np.float32(1), X),
    ),
    ("fft", lambda x: jnp.abs(jnp.fft.fft(x)), (X,)),
    ("scatter", lambda x: (x.at[1].set(0.0), x.at[:, jnp.array([1, 2])].add(1.0)), (X,)),
    (
        "dynamic",
        lambda x, i: (
            lax.dynamic_slice(x, (i, i), (2, 2)),
            lax.dynamic_update_slice(x, x[:2, :2], (i, i)),
        ),
        (X, np.int32(1)),
    ),
    ("segment_sum", lambda x: jax.ops.segment_sum(x, jnp.array([0, 1, 0, 2]), 3), (X,)),
    ("normalise", lambda x: x / jnp.linalg.norm(x, axis=1, keepdims=True), (X,)),
    (
        "cross entropy",
        lambda x, i: -jnp.take_along_axis(jax.nn.log_softmax(x), i, 1).mean(),
        (X, abs(INTS[:, :1])),
    ),
    ("vmap", jax.vmap(lambda x, w: jax.nn.softmax(x @ w)), (X, _f(4, 8, 3))),
    ("hessian", jax.hessian(lambda v: (jnp.tanh(v) ** 2).sum()), (V,)),
]
