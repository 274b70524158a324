"""A PyTorch module is trained in JAX, beside torch: the same losses, step by step.

    python examples/finetune_in_jax.py

needs torch (in a clone: pip install '.[torch]').
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

import relax2xla

STEPS, RATE = 20, 0.1


class Classifier(nn.Module):
    """Images (n, 1, 8, 8) to logits of ten classes (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.GELU(), nn.MaxPool2d(2))
        self.norm = nn.LayerNorm(8 * 4 * 4)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.features(images).flatten(1)))


def main() -> None:
    """Take the function and its weights, train both, compare, and give the weights back."""
    torch.manual_seed(0)
    model = Classifier()
    images, labels = torch.randn(16, 1, 8, 8), torch.randint(10, (16,))

    # A pure function and a dictionary of weights by torch's names.
    fn, params = relax2xla.jax_function(model, (images,))
    x, y = images.numpy(), labels.numpy()

    def loss(params: Any) -> Any:
        scores = jax.nn.log_softmax(fn(params, x))
        return -jnp.take_along_axis(scores, y[:, None], axis=1).mean()

    @jax.jit
    def step(params: Any) -> Any:
        value, grad = jax.value_and_grad(loss)(params)
        return value, jax.tree.map(lambda p, g: p - RATE * g, params, grad)

    optimiser = torch.optim.SGD(model.parameters(), lr=RATE)
    for n in range(STEPS):
        value, params = step(params)
        optimiser.zero_grad()
        there = nn.functional.cross_entropy(model(images), labels)
        there.backward()
        optimiser.step()
        np.testing.assert_allclose(value, there.item(), rtol=1e-4)
        if n % 5 == 0:
            print(f"step {n:2}: {float(value):.6f} in JAX, {there.item():.6f} in torch")

    np.testing.assert_allclose(params["head"]["weight"], model.head.weight.detach(), atol=1e-4)
    print(f"the same losses for {STEPS} steps, and the same weights after them")


if __name__ == "__main__":
    main()
