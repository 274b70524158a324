"""What the five model files share: deterministic random weights, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import nn

M = TypeVar("M", bound=nn.Module)


def materialise(make: Callable[[], M], seed: int, sample: torch.Tensor | None = None) -> M:
    """Build a module, fill it with weights that depend on ``seed`` alone, and set eval mode.

    The module is made on the meta device first, so the default initialisation of torch costs
    nothing and the global random state is neither read nor changed.

    Weights keep the scale of activations near one, so that comparisons with a tolerance mean
    something at the last layer too. Norm layers get gains and shifts that are not trivial. The
    running statistics of batch norms are those of ``sample``, as training would leave them: this
    keeps the signal alive through deep networks, and folding them wrongly shows.
    """
    with torch.device("meta"):
        module = make()
    module.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(seed)

    def normal(tensor: torch.Tensor | None, std: float, mean: float = 0.0) -> None:
        if tensor is not None:
            tensor.normal_(mean, std, generator=generator)

    with torch.no_grad():
        for layer in module.modules():
            match layer:
                case nn.Conv2d() | nn.Linear():
                    normal(layer.weight, math.sqrt(1.5 / layer.weight[0].numel()))
                    normal(layer.bias, 0.02)
                case nn.BatchNorm2d():
                    layer.weight.uniform_(0.5, 1.2, generator=generator)
                    normal(layer.bias, 0.1)
                    layer.reset_running_stats()
                case nn.LayerNorm():
                    normal(layer.weight, 0.1, mean=1.0)
                    normal(layer.bias, 0.1)
                case _:  # embeddings, and parameters that a container holds itself
                    for parameter in layer.parameters(recurse=False):
                        normal(parameter, 0.02)
        module.eval()
        if sample is not None:
            observe(module, sample)
    return module


def observe(module: nn.Module, sample: torch.Tensor) -> None:
    """Set the running statistics of all batch norms to those that ``sample`` causes."""
    norms = [layer for layer in module.modules() if isinstance(layer, nn.BatchNorm2d)]
    momenta = [layer.momentum for layer in norms]
    for layer in norms:
        layer.momentum = 1.0
        layer.train()
    module(sample)
    for layer, momentum in zip(norms, momenta, strict=True):
        layer.momentum = momentum
        layer.eval()


def random_images(batch: int, size: int, seed: int) -> torch.Tensor:
    """(batch, 3, size, size) float32: noise around a colour, so that images differ as a whole."""
    generator = torch.Generator().manual_seed(seed)
    colour = torch.randn(batch, 3, 1, 1, generator=generator)
    return colour + torch.randn(batch, 3, size, size, generator=generator)


def random_tokens(batch: int, length: int, vocabulary: int, seed: int) -> torch.Tensor:
    """(batch, length) int64 token ids, uniform over the vocabulary."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (batch, length), generator=generator)
