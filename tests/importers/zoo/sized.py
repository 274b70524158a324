"""Nets that compute with sizes: paddings, shifts, chunks and groups that depend on the input's."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from .network import BATCH, Network
from .pictures import UNet


class PaddedUNet(UNet):
    """Odd sizes are met by padding what was enlarged, as many tutorials have it."""

    def __init__(self) -> None:
        super().__init__(True)

    def grown(self, x: torch.Tensor, layer: nn.Module, like: torch.Tensor) -> torch.Tensor:
        x = layer(x)
        down, across = like.shape[2] - x.shape[2], like.shape[3] - x.shape[3]
        return F.pad(x, [across // 2, across - across // 2, down // 2, down - down // 2])


class StyleGAN(nn.Module):
    """Weights modulated by a style: a group of channels for each picture (Karras et al. 2019)."""

    kernel: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.style = nn.Sequential(nn.Linear(8, 8), nn.LeakyReLU(0.2))
        self.start = nn.Parameter(torch.randn(1, 8, 4, 4))
        self.weight = nn.Parameter(torch.randn(6, 8, 3, 3))
        self.register_buffer("kernel", torch.outer(*[torch.tensor([1.0, 3.0, 3.0, 1.0]) / 4] * 2))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        style = self.style(z * torch.rsqrt(z.square().mean(1, keepdim=True) + 1e-8))
        weight = self.weight * style[:, None, :, None, None]
        weight = weight * torch.rsqrt(weight.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        batch = z.shape[0]
        x = self.start.expand(batch, -1, -1, -1).reshape(1, -1, 4, 4)
        x = F.conv2d(x, weight.flatten(0, 1), padding=1, groups=batch)
        x = F.pad(x.reshape(-1, 1, 4, 4), (1, 1, 1, 1))
        x = F.conv_transpose2d(x, self.kernel[None, None], stride=2, padding=3)
        return F.leaky_relu(x.reshape(batch, 6, 8, 8), 0.2)


class Reformer(nn.Module):
    """Tokens sorted by bucket, attention within chunks and the one before (Kitaev et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.value = nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
        self.register_buffer("rotation", torch.randn(8, 2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        keys = self.key(x)
        turned = keys @ self.rotation
        bucket = torch.cat([turned, -turned], -1).argmax(-1)
        order = (bucket * length + torch.arange(length)).argsort(-1)
        at = order[..., None].expand_as(x)
        q, v = (t.gather(1, at).unflatten(1, (-1, 4)) for t in (keys, self.value(x)))

        def around(t: torch.Tensor) -> torch.Tensor:
            return torch.cat([t, torch.cat([t[:, -1:], t[:, :-1]], 1)], 2)

        scores = q @ around(F.normalize(q, dim=-1)).transpose(-1, -2)
        y = (scores.softmax(-1) @ around(v)).flatten(1, 2)
        return y.gather(1, order.argsort(-1)[..., None].expand_as(y))


class TransformerXL(nn.Module):
    """A memory of the segment before, and relative positions by a shift (Dai et al. 2019)."""

    def __init__(self, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.q, self.kv, self.r = (nn.Linear(width, n * width) for n in (1, 2, 1))
        self.u, self.w = (nn.Parameter(torch.randn(heads, width // heads)) for _ in range(2))

    def forward(self, x: torch.Tensor, memory: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch, length, _ = x.shape
        seen = torch.cat([memory, x], 1)
        total = seen.shape[1]
        place = torch.arange(total - 1, -1, -1)
        angle = place[:, None] / 10000 ** (torch.arange(0, self.width, 2) / self.width)
        position = self.r(torch.cat([angle.sin(), angle.cos()], -1)).view(total, self.heads, -1)
        q = self.q(x).view(batch, length, self.heads, -1)
        k, v = (t.view(batch, total, self.heads, -1) for t in self.kv(seen).chunk(2, -1))
        shifted = F.pad(torch.einsum("blhe,the->bhlt", q + self.w, position), (1, 0))
        shifted = shifted.view(batch, self.heads, total + 1, length)[:, :, 1:]
        scores = torch.einsum("blhe,bthe->bhlt", q + self.u, k)
        scores = scores + shifted.reshape(batch, self.heads, length, total)
        later = torch.ones(length, total, dtype=torch.bool).triu(1 + total - length)
        weights = scores.masked_fill(later, float("-inf")).softmax(-1)
        return torch.einsum("bhlt,bthe->blhe", weights, v).flatten(2), seen[:, -length:]


NETWORKS = {
    "unet_padded": Network(
        PaddedUNet,
        lambda d, batch, height, width: (d.normal(batch, 3, height, width),),
        ({0: "batch", 2: "height", 3: "width"},),
        {"batch": BATCH, "height": (16, 21, 13), "width": (20, 12, 17)},
    ),
    "stylegan": Network(StyleGAN, lambda d, batch: (d.normal(batch, 8),)),
    "reformer": Network(
        Reformer,
        lambda d, batch, chunks: (d.normal(batch, 4 * chunks, 8),),
        ({0: "batch", 1: "4*chunks"},),
        {"batch": BATCH, "chunks": (3, 4, 5)},
    ),
    "transformer_xl": Network(
        TransformerXL,
        lambda d, batch, length, past: (d.normal(batch, length, 8), d.normal(batch, past, 8)),
        ({0: "batch", 1: "length"}, {0: "batch", 1: "past"}),
        {"batch": BATCH, "length": (6, 5, 8), "past": (7, 9, 10)},
    ),
}
