"""A PyTorch transformer over eight devices: tensor and data parallel in JAX, beside one device.

    python examples/tensor_parallel.py

needs torch (in a clone: pip install '.[torch]'). The eight devices are parts of this machine's CPU.
"""

from __future__ import annotations

import os
from typing import Any

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=8"
)

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from torch import nn

import relax2xla

WIDTH, HEADS, LAYERS, STEPS, RATE = 64, 4, 2, 5, 0.05
# Each product of two layers is cut along the axis between them: one sum a pair, no other exchange.
RULES = {
    "*.qkv.weight": P("model", None),
    "*.qkv.bias": P("model"),
    "*.out.weight": P(None, "model"),
    "*.up.weight": P("model", None),
    "*.up.bias": P("model"),
    "*.down.weight": P(None, "model"),
}


class Layer(nn.Module):
    """Causal attention and a two-layer perceptron over (batch, length, WIDTH)."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        # The heads are the outer axis, so that cutting the rows of the weight cuts heads.
        parts = self.qkv(self.before(x)).reshape(batch, length, HEADS, 3, WIDTH // HEADS)
        q, k, v = (t.transpose(1, 2) for t in parts.unbind(3))
        seen = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


def main() -> None:
    """Train the same network on one device and on eight; the losses agree."""
    torch.manual_seed(0)
    model = nn.Sequential(*(Layer() for _ in range(LAYERS)))
    x, y = torch.randn(4, 16, WIDTH), torch.randn(4, 16, WIDTH).numpy()
    fn, params = relax2xla.jax_function(model, (x,))

    @jax.jit
    def step(params: Any, x: Any, y: Any) -> Any:
        value, grad = jax.value_and_grad(lambda p: jnp.mean((fn(p, x) - y) ** 2))(params)
        return value, jax.tree.map(lambda p, g: p - RATE * g, params, grad)

    mesh = Mesh(np.array(jax.devices()).reshape(2, 4), ("data", "model"))
    spread = relax2xla.interop.jax.shard(params, RULES, mesh)
    batches = NamedSharding(mesh, P("data"))
    xs, ys = jax.device_put(x.numpy(), batches), jax.device_put(y, batches)
    for n in range(STEPS):
        one, params = step(params, x.numpy(), y)
        eight, spread = step(spread, xs, ys)
        np.testing.assert_allclose(eight, one, rtol=1e-5)
        print(f"step {n}: {float(one):.6f} on one device, {float(eight):.6f} on eight")
    weight = spread["0"]["up"]["weight"]
    part = weight.addressable_shards[0].data.shape
    print(f"the same losses for {STEPS} steps; a device holds {part} of a weight {weight.shape}")


if __name__ == "__main__":
    main()
