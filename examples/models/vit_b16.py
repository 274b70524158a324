"""ViT-B/16: Dosovitskiy et al., "An Image is Worth 16x16 Words" (2020).

Attention goes through ``scaled_dot_product_attention``; the three projections are one matrix.
86,567,656 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ._common import materialise, random_images


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are the published network."""

    image: int = 224
    patch: int = 16
    layers: int = 12
    heads: int = 12
    hidden: int = 768
    mlp: int = 3072
    classes: int = 1000


SMALL = Config(image=32, patch=8, layers=2, heads=2, hidden=32, mlp=64, classes=10)


class Attention(nn.Module):
    """Multi-head self-attention, (batch, length, hidden) -> the same."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden)
        self.out = nn.Linear(config.hidden, config.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        split = self.qkv(x).unflatten(2, (3, self.heads, -1))  # batch, length, 3, heads, depth
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and perceptron, each on the normalised input (pre-norm) with a shortcut."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(config.hidden, eps=1e-6)
        self.attention = Attention(config)
        self.ln2 = nn.LayerNorm(config.hidden, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(config.hidden, config.mlp),
            nn.GELU(),
            nn.Linear(config.mlp, config.hidden),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class ViT(nn.Module):
    """(batch, 3, image, image) float32 -> (batch, classes) float32 logits."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.patches = nn.Conv2d(3, config.hidden, config.patch, stride=config.patch)
        length = (config.image // config.patch) ** 2 + 1
        self.class_token = nn.Parameter(torch.empty(1, 1, config.hidden))
        self.positions = nn.Parameter(torch.empty(1, length, config.hidden))
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.ln = nn.LayerNorm(config.hidden, eps=1e-6)
        self.head = nn.Linear(config.hidden, config.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        first = self.class_token.expand(x.shape[0], -1, -1)
        tokens = torch.cat([first, tokens], dim=1) + self.positions
        return self.head(self.ln(self.blocks(tokens))[:, 0])


def build(seed: int = 0, *, small: bool = False, **overrides: Any) -> ViT:
    """The network in eval mode; ``overrides`` replace fields of :class:`Config`."""
    config = replace(SMALL if small else Config(), **overrides)
    return materialise(lambda: ViT(config), seed)


def example_inputs(
    batch: int = 1, seed: int = 0, *, small: bool = False
) -> tuple[torch.Tensor, ...]:
    """One batch of random images."""
    return (random_images(batch, (SMALL if small else Config()).image, seed),)
