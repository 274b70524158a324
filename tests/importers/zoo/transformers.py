"""Transformers: encoders, decoders with and without a cache, both together, windows, experts."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .network import BATCH, SEQUENCES, Network, attention, exporting, images, tokens

WORDS = 61


class RMSNorm(nn.Module):
    """Scaled to a root mean square of one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def split(x: torch.Tensor, heads: int) -> torch.Tensor:
    """(batch, length, width) -> (batch, heads, length, depth)"""
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def merge(x: torch.Tensor) -> torch.Tensor:
    """(batch, heads, length, depth) -> (batch, length, width)"""
    return x.transpose(1, 2).flatten(2)


class Encoder(nn.Module):
    """torch's own encoder with a mask of what is padding; the mean of what is not."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16, padding_idx=0)
        layer = nn.TransformerEncoderLayer(
            16, 4, 32, activation="gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        padding = ids == 0
        x = self.body(self.embed(ids), src_key_padding_mask=padding)
        kept = (~padding).unsqueeze(-1).to(x.dtype)
        return (x * kept).sum(1) / kept.sum(1).clamp(min=1e-9)


class Translator(nn.Module):
    """torch's own encoder and decoder with sinusoidal positions and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.body = nn.Transformer(16, 2, 1, 1, 32, batch_first=True, dropout=0.0)
        self.last = nn.Linear(16, WORDS)
        at = torch.arange(32)[:, None] / 100.0 ** (torch.arange(0, 16, 2) / 16)
        self.register_buffer("positions", torch.stack([at.sin(), at.cos()], -1).flatten(1))

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        x = self.embed(source) * 4.0 + self.positions[: source.shape[1]]
        y = self.embed(target) * 4.0 + self.positions[: target.shape[1]]
        size = target.shape[1]
        mask = torch.full((size, size), -torch.inf, device=y.device).triu(1)
        return self.last(self.body(x, y, tgt_mask=mask, tgt_is_causal=True))


class CachedAttention(nn.Module):
    """Causal attention of new tokens to themselves and to a cache, which grows."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(
        self, x: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        q, k, v = (split(p, self.heads) for p in self.qkv(x).chunk(3, -1))
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        new, whole = q.shape[2], k.shape[2]
        rows = torch.arange(new, device=x.device)[:, None] + (whole - new)
        mask = torch.arange(whole, device=x.device)[None, :] <= rows
        return self.out(merge(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))), k, v


class GPTWithCache(nn.Module):
    """One step of a decoder: logits of the last token and the grown caches."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(WORDS, width), nn.Embedding(64, width)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = CachedAttention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(
        self, ids: torch.Tensor, past_k: torch.Tensor, past_v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        at = torch.arange(ids.shape[1], device=ids.device) + past_k.shape[2]
        x = self.tokens(ids) + self.positions(at)
        y, k, v = self.attention(self.norm1(x), past_k, past_v)
        x = x + y
        x = x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))
        return F.linear(x[:, -1], self.tokens.weight), k, v


class T5Attention(nn.Module):
    """Attention with a bias added to unscaled scores."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width, bias=False) for _ in range(4))

    def forward(
        self, x: torch.Tensor, memory: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        q, k, v = (
            split(f(y), self.heads) for f, y in ((self.q, x), (self.k, memory), (self.v, memory))
        )
        scores = q @ k.transpose(-1, -2)
        if bias is not None:
            scores = scores + bias
        return self.o(merge(scores.float().softmax(-1) @ v))


class RelativeBias(nn.Module):
    """T5's learned bias by logarithmic buckets of distance."""

    def __init__(self, heads: int, both_ways: bool, buckets: int = 8, far: int = 16) -> None:
        super().__init__()
        self.both_ways, self.buckets, self.far = both_ways, buckets, far
        self.table = nn.Embedding(buckets, heads)

    def forward(self, length: int, like: torch.Tensor) -> torch.Tensor:
        at = torch.arange(length, device=like.device)
        distance = at[None, :] - at[:, None]
        buckets = self.buckets
        first = torch.zeros_like(distance)
        if self.both_ways:
            buckets //= 2
            first = (distance > 0).long() * buckets
            distance = distance.abs()
        else:
            distance = -torch.minimum(distance, torch.zeros_like(distance))
        exact = buckets // 2
        spread = torch.log(distance.float() / exact) / math.log(self.far / exact)
        large = exact + (spread * (buckets - exact)).long()
        large = torch.minimum(large, torch.full_like(large, buckets - 1))
        bucket = first + torch.where(distance < exact, distance, large)
        return self.table(bucket).permute(2, 0, 1)[None]


class T5(nn.Module):
    """Encoder and decoder with relative biases, RMS norms and gated perceptrons."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, width)
        self.bias, self.causal_bias = RelativeBias(heads, True), RelativeBias(heads, False)
        self.own, self.causal, self.cross = (T5Attention(width, heads) for _ in range(3))
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(6))
        self.gate, self.up = nn.Linear(width, 32, bias=False), nn.Linear(width, 32, bias=False)
        self.down = nn.Linear(32, width, bias=False)

    def perceptron(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.gate(x), approximate="tanh") * self.up(x))

    def forward(
        self, source: torch.Tensor, mask: torch.Tensor, target: torch.Tensor
    ) -> torch.Tensor:
        x = self.tokens(source)
        hidden = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        y = self.norms[0](x)
        x = x + self.own(y, y, self.bias(x.shape[1], x) + hidden)
        memory = x + self.perceptron(self.norms[1](x))
        x = self.tokens(target)
        length = x.shape[1]
        future = torch.triu(torch.ones(length, length, dtype=torch.bool, device=x.device), 1)
        bias = self.causal_bias(length, x).masked_fill(future, torch.finfo(torch.float32).min)
        y = self.norms[2](x)
        x = x + self.causal(y, y, bias)
        x = x + self.cross(self.norms[3](x), memory, hidden)
        x = x + self.perceptron(self.norms[4](x))
        return F.linear(self.norms[5](x) / 4.0, self.tokens.weight)


class SwinBlock(nn.Module):
    """Attention in windows that a roll may shift, with a relative bias (Liu et al. 2021)."""

    def __init__(self, width: int, side: int, window: int, shift: int) -> None:
        super().__init__()
        self.window, self.shift, self.heads = window, shift, 2
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.table = nn.Parameter(torch.randn((2 * window - 1) ** 2, self.heads))
        at = torch.stack(torch.meshgrid(torch.arange(window), torch.arange(window), indexing="ij"))
        apart = at.flatten(1)[:, :, None] - at.flatten(1)[:, None, :] + window - 1
        self.register_buffer("index", apart[0] * (2 * window - 1) + apart[1])
        region = torch.zeros(1, side, side, 1)
        if shift:
            cuts = (slice(0, -window), slice(-window, -shift), slice(-shift, None))
            for i, rows in enumerate(cuts):
                for j, columns in enumerate(cuts):
                    region[:, rows, columns] = 3 * i + j
        parts = self.windows(region).squeeze(-1)
        apart = parts[:, None, :] != parts[:, :, None]
        self.register_buffer("mask", apart.float().masked_fill(apart, -100.0))

    def windows(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, height, width, channels) -> (batch * windows, window * window, channels)"""
        b, h, w, c = x.shape
        n = self.window
        x = x.view(b, h // n, n, w // n, n, c).permute(0, 1, 3, 2, 4, 5)
        return x.reshape(-1, n * n, c)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, h, w, c = x.shape
        n = self.window
        y = self.norm1(x)
        if self.shift:
            y = torch.roll(y, (-self.shift, -self.shift), (1, 2))
        y = self.windows(y)
        q, k, v = self.qkv(y).reshape(-1, n * n, 3, self.heads, c // self.heads).unbind(2)
        q, k, v = (p.transpose(1, 2) for p in (q, k, v))
        bias = self.table[self.index.view(-1)].view(n * n, n * n, -1).permute(2, 0, 1)
        scores = q * (c // self.heads) ** -0.5 @ k.transpose(-1, -2) + bias
        count = self.mask.shape[0]
        scores = scores.view(-1, count, self.heads, n * n, n * n) + self.mask[None, :, None]
        y = self.out(merge(scores.view(-1, self.heads, n * n, n * n).softmax(-1) @ v))
        y = y.view(b, h // n, w // n, n, n, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        if self.shift:
            y = torch.roll(y, (self.shift, self.shift), (1, 2))
        x = x + y
        return x + self.mlp(self.norm2(x))


class Swin(nn.Module):
    """Two blocks, one of them shifted, and a merge of patches."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 12, 2, 2)
        self.blocks = nn.Sequential(SwinBlock(12, 8, 4, 0), SwinBlock(12, 8, 4, 2))
        self.norm, self.reduce = nn.LayerNorm(48), nn.Linear(48, 10, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.patch(x).permute(0, 2, 3, 1))
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, -1))).mean((1, 2))


class Llama(nn.Module):
    """RoPE, RMS norm, grouped queries, SwiGLU."""

    def __init__(self, width: int = 16, heads: int = 4, groups: int = 2) -> None:
        super().__init__()
        self.heads, self.groups, self.depth = heads, groups, width // heads
        self.tokens = nn.Embedding(WORDS, width)
        self.q, self.o = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(width, groups * self.depth, bias=False) for _ in range(2))
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(3))
        self.gate, self.up = (nn.Linear(width, 40, bias=False) for _ in range(2))
        self.down = nn.Linear(40, width, bias=False)
        self.head = nn.Linear(width, WORDS, bias=False)
        rates = 10000.0 ** (-torch.arange(0, self.depth, 2) / self.depth)
        self.register_buffer("rates", rates)

    def rotated(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def attention(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        angles = torch.arange(length, device=x.device)[:, None] * self.rates
        angles = torch.cat([angles, angles], -1)
        q = self.rotated(split(self.q(x), self.heads), angles.cos(), angles.sin())
        k = self.rotated(split(self.k(x), self.groups), angles.cos(), angles.sin())
        v = split(self.v(x), self.groups)
        k, v = (y.repeat_interleave(self.heads // self.groups, dim=1) for y in (k, v))
        return self.o(merge(F.scaled_dot_product_attention(q, k, v, is_causal=True)))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids)
        x = x + self.attention(self.norms[0](x))
        y = self.norms[1](x)
        x = x + self.down(F.silu(self.gate(y)) * self.up(y))
        return self.head(self.norms[2](x))


class Experts(nn.Module):
    """Each token goes to the two experts that a router prefers; unused ones weigh nothing."""

    def __init__(self, width: int = 12, experts: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(WORDS, width)
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 24) / 4)
        self.down = nn.Parameter(torch.randn(experts, 24, width) / 5)

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.tokens(ids)
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros(*x.shape[:-1], self.up.shape[0], device=x.device)
        gates = gates.scatter(-1, chosen, weights)
        hidden = F.silu(torch.einsum("bld,edh->bleh", x, self.up))
        made = torch.einsum("bleh,ehd,ble->bld", hidden, self.down, gates)
        used = F.one_hot(chosen, self.up.shape[0]).sum((0, 1, 2))
        return x + made, used


class GatheredExperts(nn.Module):
    """The weights of the chosen expert are gathered for each token (switch routing)."""

    def __init__(self, width: int = 12, experts: int = 4) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.up = nn.Parameter(torch.randn(experts, width, 16) / 4)
        self.down = nn.Parameter(torch.randn(experts, 16, width) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.router(x).softmax(-1)
        best = scores.argmax(-1)
        gate = scores.gather(-1, best[:, None])
        y = torch.bmm(x[:, None], self.up[best]).relu()
        return x + gate * torch.bmm(y, self.down[best]).squeeze(1)


class ALiBi(nn.Module):
    """A decoder whose scores fall with distance, parallel perceptron, multi-query attention."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.tokens, self.norm = nn.Embedding(WORDS, width), nn.LayerNorm(width)
        self.q, self.kv = nn.Linear(width, width), nn.Linear(width, 2 * width // heads)
        self.out = nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 32), nn.GELU(), nn.Linear(32, width))
        self.register_buffer("slopes", 2.0 ** -torch.arange(1.0, heads + 1))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.tokens(ids))
        q = split(self.q(x), self.heads)
        k, v = (y[:, None] for y in self.kv(x).chunk(2, -1))
        at = torch.arange(x.shape[1], device=x.device)
        bias = (at[None, :] - at[:, None]) * self.slopes[:, None, None]
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + bias
        scores = scores.masked_fill(at[None, :] > at[:, None], float("-inf"))
        return x + self.out(merge(scores.softmax(-1) @ v)) + self.mlp(x)


class DETR(nn.Module):
    """Queries attend to the features of a convolution net (Carion et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1))
        self.queries = nn.Parameter(torch.randn(5, 16))
        self.row, self.column = (nn.Parameter(torch.randn(20, 8)) for _ in range(2))
        self.cross = nn.MultiheadAttention(16, 2, batch_first=True)
        self.norm = nn.LayerNorm(16)
        self.classes, self.boxes = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x = self.body(x)
        batch, _, height, width = x.shape
        rows = self.row[:height, None].expand(-1, width, -1)
        columns = self.column[None, :width].expand(height, -1, -1)
        places = torch.cat([rows, columns], -1).flatten(0, 1)
        memory = x.flatten(2).transpose(-1, -2)
        queries = self.queries.expand(batch, -1, -1)
        mixed, weights = self.cross(queries, memory + places, memory)
        y = self.norm(queries + mixed)
        return self.classes(y), self.boxes(y).sigmoid(), weights


class CLIP(nn.Module):
    """Pictures and texts in one space; a text is read off at its largest token."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.first = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.randn(16))
        self.words, self.places = nn.Embedding(WORDS, 16), nn.Parameter(torch.randn(32, 16))
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.see = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.read = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, picture: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        x = self.patch(picture).flatten(2).transpose(-1, -2)
        x = torch.cat([self.first.expand(x.shape[0], 1, -1), x], 1)
        seen = self.see(x)[:, 0]
        length = ids.shape[1]
        y = self.words(ids) + self.places[:length]
        future = torch.triu(torch.ones(length, length, dtype=torch.bool, device=y.device), 1)
        y = self.read(y, mask=future, is_causal=True)
        read = y[torch.arange(y.shape[0], device=y.device), ids.argmax(-1)]
        return self.scale.exp() * F.normalize(seen, dim=-1) @ F.normalize(read, dim=-1).T


class Perceiver(nn.Module):
    """A few latent vectors read a long input (Jaegle et al. 2021); linear attention among them."""

    def __init__(self) -> None:
        super().__init__()
        self.latents = nn.Parameter(torch.randn(6, 16))
        self.q, self.kv = nn.Linear(16, 16), nn.Linear(5, 32)
        self.own, self.last = nn.Linear(16, 48), nn.Linear(16, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        k, v = self.kv(x).chunk(2, -1)
        y = torch.einsum("nd,bld->bnl", self.q(self.latents), k).softmax(-1) @ v
        q, k, v = self.own(y).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        weight = 1 / (torch.einsum("bnd,bd->bn", q, k.sum(1)) + 1e-6)
        y = torch.einsum("bnd,bde,bn->bne", q, torch.einsum("bnd,bne->bde", k, v), weight)
        return self.last(y.mean(1))


def kept(batch: int, length: int) -> torch.Tensor:
    """(batch, length) int64: 1, but 0 in the last third of each second row."""
    limit = torch.where(torch.arange(batch) % 2 == 1, length - length // 3, length)
    return (torch.arange(length) < limit[:, None]).long()


NETWORKS = {
    "encoder_padding_mask": Network(
        Encoder,
        lambda d, batch, length: (d.tokens(WORDS - 1, batch, length).add(1) * kept(batch, length),),
        **SEQUENCES,
        fixed=attention("batch", "length"),
    ),
    "translator": Network(
        Translator,
        lambda d, batch, source, target: (
            d.tokens(WORDS, batch, source),
            d.tokens(WORDS, batch, target),
        ),
        ({0: "batch", 1: "source"}, {0: "batch", 1: "target"}),
        {"batch": BATCH, "source": (9, 5, 12), "target": (7, 6, 10)},
        attention("batch", "source", "target"),
    ),
    "gpt_kv_cache": Network(
        GPTWithCache,
        lambda d, batch, new, past: (
            d.tokens(WORDS, batch, new),
            d.normal(batch, 2, past, 8),
            d.normal(batch, 2, past, 8),
        ),
        ({0: "batch", 1: "new"}, {0: "batch", 2: "past"}, {0: "batch", 2: "past"}),
        {"batch": BATCH, "new": (3, 1, 2), "past": (6, 9, 4)},
        {"onnx-torchscript": frozenset({"new"})},
    ),
    "t5": Network(
        T5,
        lambda d, batch, source, target: (
            d.tokens(WORDS, batch, source),
            kept(batch, source),
            d.tokens(WORDS, batch, target),
        ),
        ({0: "batch", 1: "source"}, {0: "batch", 1: "source"}, {0: "batch", 1: "target"}),
        {"batch": BATCH, "source": (9, 5, 12), "target": (7, 6, 10)},
    ),
    "swin": Network(Swin, images(3, 16)),
    "llama": Network(Llama, tokens(WORDS), **SEQUENCES),
    "moe_dense": Network(Experts, tokens(WORDS), **SEQUENCES),
    "moe_gathered": Network(GatheredExperts, lambda d, batch: (d.normal(batch, 12),)),
    "alibi_decoder": Network(ALiBi, tokens(WORDS), **SEQUENCES),
    "detr": Network(
        DETR,
        lambda d, batch, height, width: (d.normal(batch, 3, height, width),),
        ({0: "batch", 2: "height", 3: "width"},),
        {"batch": BATCH, "height": (16, 20, 13), "width": (20, 12, 16)},
        attention("batch", "height", "width"),
    ),
    "clip": Network(
        CLIP,
        lambda d, pictures, texts, length: (
            d.normal(pictures, 3, 16, 16),
            d.tokens(WORDS, texts, length),
        ),
        ({0: "pictures"}, {0: "texts", 1: "length"}),
        {"pictures": (2, 4, 3), "texts": (3, 2, 5), "length": (8, 6, 11)},
        attention("pictures", "texts", "length"),
    ),
    "perceiver": Network(
        Perceiver,
        lambda d, batch, length: (d.normal(batch, length, 5),),
        **SEQUENCES,
        # einsum compares the sizes of its operands.
        fixed=exporting("batch"),
    ),
}
