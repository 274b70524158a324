"""Networks of sequences in plain torch that ``examples/models`` has not: a Llama, and an LSTM."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


class _RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """The two halves of each head turned against each other, by position."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


class _Decoder(nn.Module):
    """Causal attention with rotary positions, and a gated perceptron."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = _RMSNorm(width), _RMSNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width, bias=False) for _ in range(4))
        self.gate, self.up = (nn.Linear(width, hidden, bias=False) for _ in range(2))
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        q, k, v = (
            layer(y).unflatten(2, (self.heads, -1)).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        q, k = _turned(q, cos, sin), _turned(k, cos, sin)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """(batch, length) int64 to (batch, length, vocabulary): 4 layers of width 1024 by default."""

    def __init__(
        self, layers: int = 4, width: int = 1024, hidden: int = 2816, vocabulary: int = 16000
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(_Decoder(width, width // 64, hidden) for _ in range(layers))
        self.norm, self.head = _RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(ids.shape[1], dtype=torch.float32, device=ids.device)
        speeds = 10000.0 ** (-torch.arange(0, 64, 2, device=ids.device) / 64)
        angles = (places[:, None] * speeds).repeat(1, 2)
        cos, sin = angles.cos(), angles.sin()
        x = self.tokens(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))


class LSTM(nn.Module):
    """(batch, steps, width) to the same: two layers of 256 by default."""

    def __init__(self, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.cells = nn.LSTM(width, width, layers, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cells(x)[0]
