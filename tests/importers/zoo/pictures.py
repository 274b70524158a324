"""Nets whose results are pictures, maps or boxes: segmentation, generation, detection."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional as F

from .convolution import BasicBlock, conv
from .network import Network, images


class UNet(nn.Module):
    """Down and up with skips (Ronneberger et al. 2015); odd sizes are met by interpolation."""

    def __init__(self, transposed: bool) -> None:
        super().__init__()
        self.transposed = transposed
        self.down1, self.down2, self.bottom = conv(3, 8), conv(8, 12), conv(12, 16)
        self.up2, self.up1 = nn.ConvTranspose2d(16, 12, 2, 2), nn.ConvTranspose2d(12, 8, 2, 2)
        self.join2 = conv(24 if transposed else 28, 12)
        self.join1 = conv(16 if transposed else 20, 8)
        self.last = nn.Conv2d(8, 2, 1)

    def grown(self, x: torch.Tensor, layer: nn.Module, like: torch.Tensor) -> torch.Tensor:
        if self.transposed:
            return layer(x)
        return F.interpolate(x, size=like.shape[-2:], mode="bilinear", align_corners=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        x = self.bottom(F.max_pool2d(b, 2))
        x = self.join2(torch.cat([self.grown(x, self.up2, b), b], 1))
        x = self.join1(torch.cat([self.grown(x, self.up1, a), a], 1))
        return self.last(x)


class DeepLab(nn.Module):
    """Dilated convolutions of several rates beside global pooling (Chen et al. 2017)."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(conv(3, 8, stride=2), BasicBlock(8, 8))
        self.rates = nn.ModuleList(
            nn.Conv2d(8, 6, 3, padding=rate, dilation=rate) for rate in (1, 2, 4)
        )
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(8, 6, 1), nn.ReLU())
        self.last = nn.Conv2d(24, 5, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.body(x)
        size = y.shape[-2:]
        whole = F.interpolate(self.whole(y), size=size, mode="bilinear", align_corners=False)
        y = self.last(torch.cat([*(layer(y) for layer in self.rates), whole], 1))
        y = F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return y, y.argmax(1)


class SuperResolution(nn.Module):
    """Sub-pixel convolution (Shi et al. 2016) on top of a bicubic enlargement."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 5, padding=2), nn.PReLU(8), nn.Conv2d(8, 4, 3, padding=1)
        )
        self.shuffle = nn.PixelShuffle(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        large = F.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=False)
        return (large + self.shuffle(self.body(x))).clamp(0.0, 1.0)


class Style(nn.Module):
    """Instance norm, reflection padding, nearest upsampling (Johnson et al. 2016)."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(3, 8, 3, 2),
            nn.InstanceNorm2d(8, affine=True),
            nn.ReLU(),
        )
        self.body = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.Mish())
        self.last = nn.Sequential(nn.ReplicationPad2d(1), nn.Conv2d(8, 3, 3), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x)
        x = x + self.body(x)
        return self.last(F.interpolate(x, scale_factor=2, mode="nearest"))


def autoencoder() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, 2, 1),
        nn.ReLU(),
        nn.Conv2d(8, 12, 3, 2, 1),
        nn.Softplus(),
        nn.ConvTranspose2d(12, 8, 3, 2, 1, output_padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 1, 3, 2, 1, output_padding=1, dilation=1),
        nn.Sigmoid(),
    )


class VAE(nn.Module):
    """Reparameterised with a noise that is an input; gives the loss too."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 8))
        self.decode = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 64), nn.Sigmoid())

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encode(x).chunk(2, dim=-1)
        made = self.decode(mean + noise * torch.exp(0.5 * log_variance)).view(x.shape)
        divergence = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum(-1)
        return made, F.mse_loss(made, x.sigmoid()) + divergence.mean()


def generator() -> nn.Module:
    """DCGAN's generator (Radford et al. 2015)."""
    return nn.Sequential(
        nn.Unflatten(1, (16, 1, 1)),
        nn.ConvTranspose2d(16, 12, 4, bias=False),
        nn.BatchNorm2d(12),
        nn.ReLU(),
        nn.ConvTranspose2d(12, 8, 4, 2, 1, groups=2, bias=False),
        nn.BatchNorm2d(8),
        nn.LeakyReLU(0.2),
        nn.ConvTranspose2d(8, 3, 4, 2, 1),
        nn.Tanh(),
    )


class SpatialTransformer(nn.Module):
    """An affine map of the picture that the net itself chooses (Jaderberg et al. 2015)."""

    def __init__(self) -> None:
        super().__init__()
        self.where = nn.Sequential(
            nn.Conv2d(1, 4, 5, 2), nn.ReLU(), nn.Flatten(), nn.Linear(144, 6), nn.Tanh()
        )
        self.register_buffer("identity", torch.tensor([1.0, 0, 0, 0, 1, 0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        theta = (self.identity + 0.3 * self.where(x)).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, padding_mode="border", align_corners=False)


class DiffusionBlock(nn.Module):
    """A residual block told the time."""

    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(4, cin), nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2, self.conv2 = nn.GroupNorm(4, cout), nn.Conv2d(cout, cout, 3, padding=1)
        self.time = nn.Linear(16, cout)
        self.short = nn.Conv2d(cin, cout, 1) if cin != cout else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.short(x)


class Diffusion(nn.Module):
    """U-Net with attention that predicts noise at a time step (Ho et al. 2020)."""

    def __init__(self) -> None:
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.down, self.middle = DiffusionBlock(8, 8), DiffusionBlock(8, 16)
        self.norm, self.qkv, self.out = nn.GroupNorm(4, 16), nn.Conv2d(16, 48, 1), nn.Linear(16, 16)
        self.up = DiffusionBlock(24, 8)
        self.last = nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        rates = torch.exp(-math.log(10000.0) * torch.arange(4, device=x.device) / 4)
        angles = step[:, None].float() * rates
        time = self.time(torch.cat([angles.sin(), angles.cos()], -1))
        kept = self.down(self.first(x), time)
        y = self.middle(F.avg_pool2d(kept, 2), time)
        q, k, v = self.qkv(self.norm(y)).flatten(2).transpose(-1, -2).chunk(3, -1)
        mixed = self.out(F.scaled_dot_product_attention(q, k, v))
        y = y + mixed.transpose(-1, -2).reshape(y.shape)
        y = F.interpolate(y, scale_factor=2.0, mode="nearest")
        return self.last(F.silu(self.up(torch.cat([y, kept], 1), time)))


class Pyramid(nn.Module):
    """Features of three scales, summed downwards, and dense predictions (RetinaNet, 2017)."""

    def __init__(self) -> None:
        super().__init__()
        widths = (8, 12, 16)
        self.stages = nn.ModuleList(
            conv(cin, cout, stride=2) for cin, cout in zip((3, *widths), widths, strict=False)
        )
        self.lateral = nn.ModuleList(nn.Conv2d(c, 8, 1) for c in widths)
        self.classes, self.boxes = nn.Conv2d(8, 6, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        top: torch.Tensor | None = None
        levels = []
        for features, lateral in zip(reversed(found), reversed(self.lateral), strict=True):
            y = lateral(features)
            if top is not None:
                y = y + F.interpolate(top, size=y.shape[-2:], mode="nearest")
            top = y
            levels.append(y)

        def flat(layer: nn.Module, width: int) -> torch.Tensor:
            maps = (layer(y).permute(0, 2, 3, 1) for y in levels)
            return torch.cat([m.reshape(m.shape[0], -1, width) for m in maps], 1)

        return flat(self.classes, 3).sigmoid(), flat(self.boxes, 4)


class YOLO(nn.Module):
    """Space to depth, spatial pyramid pooling, boxes decoded on a grid, the best taken by TopK."""

    def __init__(self, kept: int = 10) -> None:
        super().__init__()
        self.kept = kept
        self.stem = nn.Sequential(nn.Conv2d(12, 8, 3, padding=1), nn.SiLU())
        self.body = nn.Sequential(nn.Conv2d(32, 16, 1), nn.Hardswish(), nn.Conv2d(16, 21, 1))
        self.register_buffer("anchors", torch.tensor([[4.0, 6], [8, 4], [10, 12]]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        corners = [x[..., i::2, j::2] for i in (0, 1) for j in (0, 1)]
        x = self.stem(torch.cat(corners, 1))
        pools = [x]
        for _ in range(3):
            pools.append(F.max_pool2d(pools[-1], 5, 1, 2))
        x = self.body(torch.cat(pools, 1))
        batch, _, height, width = x.shape
        x = x.view(batch, 3, 7, height, width).permute(0, 1, 3, 4, 2)
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        cells = torch.stack([columns, rows], -1).float()
        centres = (x[..., :2].sigmoid() * 2 - 0.5 + cells) * 2
        sides = (x[..., 2:4].sigmoid() * 2) ** 2 * self.anchors[None, :, None, None]
        boxes = torch.cat([centres - sides / 2, centres + sides / 2], -1).view(batch, -1, 4)
        scores, labels = (x[..., 4:5].sigmoid() * x[..., 5:].softmax(-1)).max(-1)
        best, at = scores.flatten(1).topk(self.kept, dim=1)
        boxes = boxes.gather(1, at[..., None].expand(-1, -1, 4))
        return boxes, best, labels.flatten(1).gather(1, at)


def overlaps(boxes: torch.Tensor) -> torch.Tensor:
    """Intersection over union of (n, 4) boxes with each other."""
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    first = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    last = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    common = (last - first).clamp(min=0).prod(-1)
    return common / (area[:, None] + area[None] - common)


class Detector(nn.Module):
    """Boxes of one picture in order of score, of which those that a better one overlaps are cut.

    Greedy suppression over a fixed number of candidates, written in plain torch; how many boxes
    come out depends on the data.
    """

    def __init__(self, candidates: int = 12) -> None:
        super().__init__()
        self.candidates = candidates
        self.body = nn.Sequential(conv(3, 8, stride=2), nn.Conv2d(8, 5, 3, 2, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.body(x)[0].flatten(1).transpose(-1, -2)
        scores, order = found[:, 4].sigmoid().topk(self.candidates)
        chosen = found[order]
        centres, sides = chosen[:, :2], chosen[:, 2:4].exp()
        boxes = torch.cat([centres - sides, centres + sides], -1)
        over = torch.triu(overlaps(boxes) > 0.5, diagonal=1)
        keep = scores > 0.0
        for i in range(self.candidates):
            keep = keep & ~(over[i] & keep[i])
        at = keep.nonzero().squeeze(1)
        return boxes[at], scores[at]


def _sided(make: object, *, factor: int = 1, channels: int = 3) -> Network:
    side = f"{factor}*" if factor > 1 else ""
    sizes = tuple(n // factor for n in (16, 20, 12)) if factor > 1 else (16, 21, 13)
    return Network(
        make,  # pyright: ignore[reportArgumentType]
        lambda d, batch, height, width: (
            d.normal(batch, channels, factor * height, factor * width),
        ),
        ({0: "batch", 2: f"{side}height", 3: f"{side}width"},),
        {"batch": (2, 3, 1), "height": sizes, "width": sizes[::-1]},
    )


NETWORKS = {
    "unet_transposed": _sided(lambda: UNet(True), factor=4),
    "unet_bilinear": _sided(lambda: UNet(False)),
    "deeplab": _sided(DeepLab),
    "super_resolution": _sided(SuperResolution, channels=1),
    "style_transfer": _sided(Style, factor=2),
    "autoencoder": Network(autoencoder, images(1, 16)),
    "vae": Network(
        VAE,
        lambda d, batch: (d.normal(batch, 1, 8, 8), d.normal(batch, 4)),
        ({0: "batch"}, {0: "batch"}),
    ),
    "gan_generator": Network(generator, lambda d, batch: (d.normal(batch, 16),)),
    "spatial_transformer": Network(SpatialTransformer, images(1, 16)),
    "diffusion_unet": Network(
        Diffusion,
        lambda d, batch: (d.normal(batch, 3, 8, 8), d.tokens(1000, batch)),
        ({0: "batch"}, {0: "batch"}),
    ),
    "retinanet_pyramid": _sided(Pyramid),
    "yolo_head": _sided(YOLO, factor=2),
    "detector_nms": Network(
        Detector,
        lambda d, height: (d.normal(1, 3, height, 24),),
        ({2: "height"},),
        {"height": (24, 32, 27)},
    ),
}
