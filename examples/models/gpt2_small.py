"""GPT-2 small: Radford et al., "Language Models are Unsupervised Multitask Learners" (2019).

The head is the token embedding itself; positions are learned. 124,439,808 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ._common import materialise, random_tokens


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are the published network. ``length`` is that of the example inputs."""

    vocabulary: int = 50257
    positions: int = 1024
    layers: int = 12
    heads: int = 12
    hidden: int = 768
    length: int = 64


SMALL = Config(vocabulary=101, positions=32, layers=2, heads=2, hidden=32, length=16)
DROPOUT = 0.1


class Attention(nn.Module):
    """Causal multi-head self-attention, (batch, length, hidden) -> the same."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.hidden, 3 * config.hidden)
        self.out = nn.Linear(config.hidden, config.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=2)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """Attention and perceptron, each on the normalised input (pre-norm) with a shortcut."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(config.hidden)
        self.attention = Attention(config)
        self.ln2 = nn.LayerNorm(config.hidden)
        self.up = nn.Linear(config.hidden, 4 * config.hidden)
        self.activation = nn.GELU(approximate="tanh")
        self.down = nn.Linear(4 * config.hidden, config.hidden)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.ln1(x)))
        return x + self.dropout(self.down(self.activation(self.up(self.ln2(x)))))


class GPT2(nn.Module):
    """(batch, length) int64 token ids -> (batch, length, vocabulary) float32 logits."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.tokens = nn.Embedding(config.vocabulary, config.hidden)
        self.positions = nn.Embedding(config.positions, config.hidden)
        self.dropout = nn.Dropout(DROPOUT)
        self.blocks = nn.Sequential(*(Block(config) for _ in range(config.layers)))
        self.ln = nn.LayerNorm(config.hidden)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.dropout(self.tokens(input_ids) + self.positions(positions))
        return F.linear(self.ln(self.blocks(x)), self.tokens.weight)


def build(seed: int = 0, *, small: bool = False, **overrides: Any) -> GPT2:
    """The network in eval mode; ``overrides`` replace fields of :class:`Config`."""
    config = replace(SMALL if small else Config(), **overrides)
    return materialise(lambda: GPT2(config), seed)


def example_inputs(
    batch: int = 1, seed: int = 0, *, small: bool = False
) -> tuple[torch.Tensor, ...]:
    """One batch of random token ids."""
    config = SMALL if small else Config()
    return (random_tokens(batch, config.length, config.vocabulary, seed),)
