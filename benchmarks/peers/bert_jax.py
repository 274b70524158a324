"""BERT-base in plain JAX, in the form that XLA:CPU runs fastest: the compiler's peer.

Weights of linear layers are (in, out), tokens of all sequences are the rows of one matrix, and
attention is two batched products over (batch, heads). The parameters are arguments (a pytree),
never constants.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

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
    """Weights of ``examples.models.bert_base``, as numpy arrays; matrices are (in, out)."""
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
            for layer in module.layers
        ],
        "pooler": linear_params(module.pooler),
    }


def array(tensor: Any) -> np.ndarray:
    return tensor.detach().numpy()


def linear_params(layer: Any) -> Params:
    return {"w": np.ascontiguousarray(array(layer.weight).T), "b": array(layer.bias)}


def norm_params(layer: Any) -> Params:
    return {"gain": array(layer.weight), "shift": array(layer.bias)}


def linear(x: jax.Array, p: Params) -> jax.Array:
    return lax.dot(x, p["w"]) + p["b"]


def norm(x: jax.Array, p: Params) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    variance = (centred * centred).mean(-1, keepdims=True)
    return centred * lax.rsqrt(variance + EPSILON) * p["gain"] + p["shift"]


def gelu(x: jax.Array) -> jax.Array:
    return 0.5 * x * (1.0 + lax.erf(x * math.sqrt(0.5)))


def softmax(x: jax.Array) -> jax.Array:
    powers = jnp.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(x: jax.Array, p: Params, mask: jax.Array) -> jax.Array:
    """x: (batch * length, hidden), mask: (batch, 1, 1, length), added to the scores."""
    batch, _, _, length = mask.shape

    def heads(y: jax.Array) -> jax.Array:
        return y.reshape(batch, length, HEADS, -1).transpose(0, 2, 1, 3)

    q, k, v = (heads(linear(x, p[name])) for name in ("query", "key", "value"))
    scores = jnp.matmul(q, k.transpose(0, 1, 3, 2)) / math.sqrt(q.shape[-1]) + mask
    mixed = jnp.matmul(softmax(scores), v).transpose(0, 2, 1, 3)
    return linear(mixed.reshape(x.shape), p["out"])


def apply(
    params: Params, input_ids: jax.Array, attention_mask: jax.Array, token_type_ids: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """The arguments of the torch module, integers of any width -> (last hidden state, pooled)."""
    batch, length = input_ids.shape

    def rows(table: jax.Array, index: jax.Array) -> jax.Array:
        return table.at[index].get(mode="promise_in_bounds")

    x = rows(params["word"], input_ids) + rows(params["segment"], token_type_ids)
    x = norm(x + params["position"][:length], params["norm"]).reshape(batch * length, -1)
    hidden = 1.0 - attention_mask.astype(x.dtype)
    mask = (hidden * jnp.finfo(x.dtype).min)[:, None, None, :]
    for p in params["layers"]:
        x = norm(x + attention(x, p, mask), p["attention_norm"])
        x = norm(x + linear(gelu(linear(x, p["up"])), p["down"]), p["output_norm"])
    x = x.reshape(batch, length, -1)
    return x, jnp.tanh(linear(x[:, 0], params["pooler"]))
