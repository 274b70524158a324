"""BERT-base (uncased), the encoder and its pooler: Devlin et al., "BERT" (2018).

Attention is spelled out (matmul, mask, softmax, matmul), as in the published code.
109,482,240 parameters.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ._common import materialise, random_tokens


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are the published network. ``length`` is that of the example inputs."""

    vocabulary: int = 30522
    positions: int = 512
    types: int = 2
    layers: int = 12
    heads: int = 12
    hidden: int = 768
    mlp: int = 3072
    length: int = 128


SMALL = Config(vocabulary=101, positions=32, layers=2, heads=2, hidden=32, mlp=64, length=16)
EPSILON = 1e-12
DROPOUT = 0.1


class Embeddings(nn.Module):
    """The sum of word, position and type embeddings, normalised."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.word = nn.Embedding(config.vocabulary, config.hidden, padding_idx=0)
        self.position = nn.Embedding(config.positions, config.hidden)
        self.segment = nn.Embedding(config.types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=EPSILON)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, input_ids: torch.Tensor, token_type_ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(input_ids.shape[1], device=input_ids.device)
        summed = self.word(input_ids) + self.segment(token_type_ids) + self.position(positions)
        return self.dropout(self.norm(summed))


class Attention(nn.Module):
    """Multi-head self-attention; ``mask`` is added to the scores, (batch, 1, 1, length)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads = config.heads
        self.scale = 1.0 / math.sqrt(config.hidden // config.heads)
        self.query = nn.Linear(config.hidden, config.hidden)
        self.key = nn.Linear(config.hidden, config.hidden)
        self.value = nn.Linear(config.hidden, config.hidden)
        self.dropout = nn.Dropout(DROPOUT)
        self.out = nn.Linear(config.hidden, config.hidden)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, length, hidden) -> (batch, heads, length, depth)"""
        return x.unflatten(2, (self.heads, -1)).transpose(1, 2)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = torch.matmul(q, k.transpose(-1, -2)) * self.scale + mask
        mixed = torch.matmul(self.dropout(torch.softmax(scores, dim=-1)), v)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Attention and perceptron, each with a shortcut and a norm after it (post-norm)."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.attention = Attention(config)
        self.attention_norm = nn.LayerNorm(config.hidden, eps=EPSILON)
        self.up = nn.Linear(config.hidden, config.mlp)
        self.activation = nn.GELU()
        self.down = nn.Linear(config.mlp, config.hidden)
        self.output_norm = nn.LayerNorm(config.hidden, eps=EPSILON)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x, mask)))
        return self.output_norm(x + self.dropout(self.down(self.activation(self.up(x)))))


class Bert(nn.Module):
    """Encoder of token ids.

    input_ids, attention_mask (1 keeps a token, 0 hides it), token_type_ids: (batch, length) int64
    result: last hidden state (batch, length, hidden) and pooled first token (batch, hidden),
    both float32
    """

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.pooler = nn.Linear(config.hidden, config.hidden)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        token_type_ids: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.embeddings(input_ids, token_type_ids)
        hidden = 1.0 - attention_mask[:, None, None, :].to(x.dtype)
        mask = hidden * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


def build(seed: int = 0, *, small: bool = False, **overrides: Any) -> Bert:
    """The network in eval mode; ``overrides`` replace fields of :class:`Config`."""
    config = replace(SMALL if small else Config(), **overrides)
    return materialise(lambda: Bert(config), seed)


def example_inputs(
    batch: int = 1, seed: int = 0, *, small: bool = False
) -> tuple[torch.Tensor, ...]:
    """Token ids, a mask that hides the last quarter of each second sequence, and two segments."""
    config = SMALL if small else Config()
    tokens = random_tokens(batch, config.length, config.vocabulary, seed)
    column = torch.arange(config.length)
    lengths = torch.where(torch.arange(batch) % 2 == 1, config.length * 3 // 4, config.length)
    mask = (column < lengths[:, None]).long()
    types = (column >= config.length // 2).long().repeat(batch, 1)
    return tokens, mask, types
