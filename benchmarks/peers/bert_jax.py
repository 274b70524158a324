"""BERT-base in plain JAX, in the form that XLA:CPU runs fastest: the compiler's peer.

Tokens are columns: activations are (hidden, tokens), weights of linear layers (out, in) on the
left of the product, and scores are (keys, queries). XLA:CPU runs this about 8 % faster than the
usual (tokens, hidden) form, and attention needs no transposed copies. The parameters are
arguments (a pytree), never constants.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

if TYPE_CHECKING:
    from examples.models.bert_base import Bert

Params = dict[str, Any]
HEADS = 12
EPSILON = 1e-12


def from_torch(module: Bert) -> Params:
    """Weights of ``examples.models.bert_base``, as numpy arrays; matrices are (out, in)."""
    embeddings = module.embeddings
    return {
        "word": array(embeddings.word.weight),
        "position": array(embeddings.position.weight),
        "segment": array(embeddings.segment.weight),
        "norm": norm_params(embeddings.norm),
        "layers": [
            {
                "query": linear_params(layer.attention.query),
                "key": linear_params(layer.attention.key),
                "value": linear_params(layer.attention.value),
                "out": linear_params(layer.attention.out),
                "attention_norm": norm_params(layer.attention_norm),
                "up": linear_params(layer.up),
                "down": linear_params(layer.down),
                "output_norm": norm_params(layer.output_norm),
            }
            for layer in cast("Iterable[Any]", module.layers)
        ],
        "pooler": linear_params(module.pooler),
    }


def array(tensor: Any) -> np.ndarray:
    return tensor.detach().numpy()


def linear_params(layer: Any) -> Params:
    return {"w": array(layer.weight), "b": array(layer.bias)}


def norm_params(layer: Any) -> Params:
    return {"gain": array(layer.weight), "shift": array(layer.bias)}


def linear(x: jax.Array, p: Params) -> jax.Array:
    """(in, tokens) -> (out, tokens)"""
    return lax.dot(p["w"], x) + p["b"][:, None]


def norm(x: jax.Array, p: Params) -> jax.Array:
    """Layer norm of each column of (hidden, tokens)."""
    centred = x - x.mean(0, keepdims=True)
    variance = (centred * centred).mean(0, keepdims=True)
    return centred * lax.rsqrt(variance + EPSILON) * p["gain"][:, None] + p["shift"][:, None]


def gelu(x: jax.Array) -> jax.Array:
    return 0.5 * x * (1.0 + lax.erf(x * math.sqrt(0.5)))


def attention(x: jax.Array, p: Params, mask: jax.Array) -> jax.Array:
    """x: (hidden, batch * length); mask: (batch, length), added to the scores of its keys."""
    q, k, v = (
        linear(x, p[name]).reshape(HEADS, -1, *mask.shape) for name in ("query", "key", "value")
    )  # heads, depth, batch, length
    scores = lax.dot_general(k, q, (((1,), (1,)), ((0, 2), (0, 2))))  # heads, batch, keys, queries
    scores = scores / math.sqrt(q.shape[1]) + mask[None, :, :, None]
    powers = jnp.exp(scores - scores.max(2, keepdims=True))
    weights = powers / powers.sum(2, keepdims=True)
    mixed = lax.dot_general(v, weights, (((3,), (2,)), ((0, 2), (0, 1))))
    mixed = mixed.transpose(0, 2, 1, 3).reshape(x.shape)  # from heads, batch, depth, queries
    return linear(mixed, p["out"])


def apply(
    params: Params, input_ids: jax.Array, attention_mask: jax.Array, token_type_ids: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The arguments of the torch module, integers of any width -> (last hidden state, pooled)."""
    batch, length = input_ids.shape

    def rows(table: jax.Array, index: jax.Array) -> jax.Array:
        return table.at[index].get(mode="promise_in_bounds")

    x = rows(params["word"], input_ids) + rows(params["segment"], token_type_ids)
    x = x + params["position"][:length]
    x = norm(x.reshape(batch * length, -1).T, params["norm"])
    mask = (1.0 - attention_mask.astype(x.dtype)) * jnp.finfo(x.dtype).min
    for p in params["layers"]:
        x = norm(x + attention(x, p, mask), p["attention_norm"])
        x = norm(x + linear(gelu(linear(x, p["up"])), p["down"]), p["output_norm"])
    pooled = jnp.tanh(linear(x.reshape(-1, batch, length)[:, :, 0], params["pooler"]))
    return x.T.reshape(batch, length, -1), pooled.T
