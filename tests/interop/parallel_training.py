"""A small Llama from torch, trained over eight devices as over one: losses and weights to 1e-5."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

import relax2xla
from relax2xla.interop.jax import shard
from tests.importers.zoo.transformers import WORDS, Llama

STEPS, BATCH, LENGTH, RATE, MOMENTUM = 6, 8, 12, 0.3, 0.9
# Each pair of products is cut along the axis between them.
_TENSOR = {
    **dict.fromkeys(["q.weight", "k.weight", "v.weight", "gate.weight", "up.weight"], P("model")),
    **dict.fromkeys(["o.weight", "down.weight"], P(None, "model")),
}
# Each weight lies in eight parts, along an axis that has so many.
_SHARDED = {
    **dict.fromkeys(["tokens.weight", "head.weight"], P(None, "data")),
    "*": P("data"),
}
#: By name the devices along (data, model), the rules of the weights, and what part of a weight a
#: device holds at least and at most.
WAYS: dict[str, tuple[tuple[int, int], dict[str, Any], tuple[float, float]]] = {
    "data parallel": ((8, 1), {}, (1, 1)),
    "tensor parallel": ((1, 8), _TENSOR, (1 / 8, 1)),
    "tensor and data parallel": ((2, 4), _TENSOR, (1 / 4, 1)),
    "fully sharded": ((8, 1), _SHARDED, (1 / 8, 1 / 8)),
}


@jax.jit
def cross_entropy(logits: Any, labels: Any) -> Any:
    chosen = jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1)
    return -chosen.mean()


def trained(way: str) -> tuple[list[float], Any, Any]:
    """Losses, weights and momenta after the steps; ``way`` "": on one device."""
    torch.manual_seed(0)
    model = Llama(width=32)
    generator = torch.Generator().manual_seed(1)
    batches = torch.randint(0, WORDS, (STEPS, BATCH, LENGTH + 1), generator=generator).int()
    fn, params = relax2xla.jax_function(model, (batches[0, :, :-1],))
    where = None
    if way:
        shape, rules, _ = WAYS[way]
        mesh = Mesh(np.array(jax.devices()).reshape(shape), ("data", "model"))
        params, where = shard(params, rules, mesh), NamedSharding(mesh, P("data"))

    @jax.jit
    def step(params: Any, momenta: Any, ids: Any, labels: Any) -> Any:
        loss, grad = jax.value_and_grad(lambda p: cross_entropy(fn(p, ids), labels))(params)
        momenta = jax.tree.map(lambda m, g: MOMENTUM * m + g, momenta, grad)
        return loss, jax.tree.map(lambda p, m: p - RATE * m, params, momenta), momenta

    momenta, losses = jax.tree.map(jnp.zeros_like, params), []
    for batch in batches.numpy():
        ids, labels = (jax.device_put(x, where) for x in (batch[:, :-1], batch[:, 1:]))
        loss, params, momenta = step(params, momenta, ids, labels)
        losses.append(float(loss))
    return losses, params, momenta


def close(value: Any, expected: Any) -> None:
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    expected, weights, _ = trained("")
    assert expected[-1] < expected[0]
    for name, (_, _, part) in WAYS.items():
        losses, found, momenta = trained(name)
        np.testing.assert_allclose(losses, expected, rtol=1e-5, err_msg=name)
        jax.tree.map(close, found, weights)
        # Weights and momenta lie as the rules say, also after the steps.
        leaves = jax.tree.leaves((found, momenta))
        parts = [x.addressable_shards[0].data.size / x.size for x in leaves]
        assert (min(parts), max(parts)) == part, name
