"""Convolution nets that classify, and one that works on video."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional as F

from .network import Network, images

CLASSES = 10


def conv(cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    layer = nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(cout), nn.ReLU(inplace=True))


def head(channels: int) -> nn.Sequential:
    """Global pooling and one linear layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


class BasicBlock(nn.Module):
    """ResNet-18's block: two convolutions beside a shortcut (He et al. 2015)."""

    def __init__(self, cin: int, cout: int, stride: int = 1) -> None:
        super().__init__()
        self.first = conv(cin, cout, stride=stride)
        self.second = nn.Sequential(
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout)
        )
        self.down = None if stride == 1 and cin == cout else nn.Conv2d(cin, cout, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        short = x if self.down is None else self.down(x)
        x = self.second(self.first(x))
        x += short
        return F.relu(x)


def resnet18() -> nn.Module:
    return nn.Sequential(
        conv(3, 8, 7, 2),
        nn.MaxPool2d(3, 2, 1),
        BasicBlock(8, 8),
        BasicBlock(8, 16, 2),
        head(16),
    )


class InvertedResidual(nn.Module):
    """MobileNetV2's block: expand, depthwise, project, with ReLU6 (Sandler et al. 2018)."""

    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        wide = 4 * cin
        self.short = stride == 1 and cin == cout
        self.layers = nn.Sequential(
            nn.Conv2d(cin, wide, 1, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide),
            nn.ReLU6(),
            nn.Conv2d(wide, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.short else self.layers(x)


def mobilenet_v2() -> nn.Module:
    blocks = (InvertedResidual(8, 8, 1), InvertedResidual(8, 16, 2), InvertedResidual(16, 16, 1))
    return nn.Sequential(conv(3, 8, stride=2), *blocks, nn.Dropout(0.2), head(16))


class DenseBlock(nn.Module):
    """Each layer sees all before it (Huang et al. 2016)."""

    def __init__(self, cin: int, growth: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(cin + i * growth),
                nn.ReLU(),
                nn.Conv2d(cin + i * growth, growth, 3, padding=1),
            )
            for i in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [x]
        for layer in self.layers:
            found.append(layer(torch.cat(found, 1)))
        return torch.cat(found, 1)


def densenet() -> nn.Module:
    return nn.Sequential(
        conv(3, 8),
        DenseBlock(8, 4, 3),
        nn.BatchNorm2d(20),
        nn.ReLU(),
        nn.Conv2d(20, 10, 1),
        nn.AvgPool2d(2),
        DenseBlock(10, 4, 2),
        head(18),
    )


class SqueezeExcite(nn.Module):
    """Channels weighed by what is global."""

    def __init__(self, channels: int, reduction: int = 4) -> None:
        super().__init__()
        self.down = nn.Conv2d(channels, channels // reduction, 1)
        self.up = nn.Conv2d(channels // reduction, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        s = F.silu(self.down(x.mean((2, 3), keepdim=True)))
        return x * torch.sigmoid(self.up(s))


class MBConv(nn.Module):
    """EfficientNet's block: depthwise, squeeze and excite, SiLU (Tan and Le 2019)."""

    def __init__(self, cin: int, cout: int, kernel: int, stride: int) -> None:
        super().__init__()
        wide = 4 * cin
        self.short = stride == 1 and cin == cout
        self.layers = nn.Sequential(
            nn.Conv2d(cin, wide, 1, bias=False),
            nn.BatchNorm2d(wide, eps=1e-3),
            nn.SiLU(),
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide, eps=1e-3),
            nn.SiLU(),
            SqueezeExcite(wide),
            nn.Conv2d(wide, cout, 1, bias=False),
            nn.BatchNorm2d(cout, eps=1e-3),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x) if self.short else self.layers(x)


def efficientnet() -> nn.Module:
    return nn.Sequential(conv(3, 8, stride=2), MBConv(8, 8, 3, 1), MBConv(8, 12, 5, 2), head(12))


class Inception(nn.Module):
    """Branches of several kernels, asymmetric ones among them (Szegedy et al. 2015)."""

    def __init__(self, cin: int) -> None:
        super().__init__()
        self.one = conv(cin, 4, 1)
        self.five = nn.Sequential(conv(cin, 4, 1), conv(4, 6, 5))
        self.seven = nn.Sequential(
            nn.Conv2d(cin, 4, (1, 7), padding=(0, 3)),
            nn.ReLU(),
            nn.Conv2d(4, 6, (7, 1), padding=(3, 0)),
            nn.ReLU(),
        )
        self.pooled = conv(cin, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
        branches = [self.one(x), self.five(x), self.seven(x), self.pooled(pooled)]
        return torch.cat(branches, 1)


def inception() -> nn.Module:
    ceil = nn.MaxPool2d(3, 2, ceil_mode=True)
    return nn.Sequential(conv(3, 8, stride=2), ceil, Inception(8), Inception(20), head(20))


class ConvNeXtBlock(nn.Module):
    """Depthwise 7x7, layer norm over channels, a perceptron, a scale (Liu et al. 2022)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), 0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    stem = (nn.Conv2d(3, 12, 4, 4), ConvNeXtBlock(12), ConvNeXtBlock(12))
    return nn.Sequential(*stem, nn.GroupNorm(1, 12), nn.Conv2d(12, 16, 2, 2), head(16))


class ShuffleUnit(nn.Module):
    """Half of the channels pass, and all are shuffled (Ma et al. 2018)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(conv(half, half, 1), conv(half, half, groups=half))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, used = x.chunk(2, dim=1)
        x = torch.cat((kept, self.branch(used)), 1)
        batch, channels, height, width = x.shape
        x = x.view(batch, 2, channels // 2, height, width).transpose(1, 2)
        return x.reshape(batch, channels, height, width)


def shufflenet() -> nn.Module:
    return nn.Sequential(conv(3, 8, stride=2), ShuffleUnit(8), ShuffleUnit(8), head(8))


def alexnet() -> nn.Module:
    """Local response norm, grouped convolution, pools that overlap, dropout."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 11, 4, 2),
        nn.ReLU(),
        nn.LocalResponseNorm(5),
        nn.MaxPool2d(3, 2),
        nn.Conv2d(8, 12, 5, padding=2, groups=2),
        nn.ReLU(),
        nn.AvgPool2d(3, 2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(108, 20),
        nn.ReLU(),
        nn.Linear(20, CLASSES),
        nn.LogSoftmax(dim=1),
    )


class ResNeXt(nn.Module):
    """Grouped bottlenecks (Xie et al. 2016), blur pooling, pooling of both kinds."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = conv(3, 16)
        self.block = nn.Sequential(conv(16, 16, 1), conv(16, 16, groups=4), conv(16, 16, 1))
        blur = torch.tensor([1.0, 2.0, 1.0])
        kernel = (blur[:, None] * blur / 16).repeat(16, 1, 1, 1)
        self.register_buffer("blur", kernel)
        self.last = nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = F.hardswish(x + self.block(x))
        x = F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), self.blur, stride=2, groups=16)
        pooled = F.adaptive_max_pool2d(x, 1), F.adaptive_avg_pool2d(x, 1)
        return self.last(torch.cat(pooled, 1).flatten(1))


def video() -> nn.Module:
    """3-D convolutions over (channels, time, height, width), factored as in R(2+1)D."""
    return nn.Sequential(
        nn.Conv3d(3, 8, (1, 3, 3), (1, 2, 2), (0, 1, 1)),
        nn.BatchNorm3d(8),
        nn.ReLU(),
        nn.Conv3d(8, 8, (3, 1, 1), padding=(1, 0, 0)),
        nn.ELU(),
        nn.MaxPool3d(2),
        nn.Conv3d(8, 12, 3, padding=1),
        nn.LeakyReLU(0.1),
        nn.AdaptiveAvgPool3d((1, 2, 2)),
        nn.Flatten(),
        nn.Linear(48, CLASSES),
    )


class MLPMixer(nn.Module):
    """Perceptrons over patches and over channels in turn (Tolstikhin et al. 2021)."""

    def __init__(self, patches: int = 16, width: int = 12) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(patches, 24), nn.GELU(), nn.Linear(24, patches))
        self.channels = nn.Sequential(nn.Linear(width, 24), nn.GELU(), nn.Linear(24, width))
        self.last = nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patch(x).flatten(2).transpose(-1, -2)
        x = x + self.tokens(self.norms[0](x).transpose(-1, -2)).transpose(-1, -2)
        x = x + self.channels(self.norms[1](x))
        return self.last(x.mean(1))


def _sided(make: object, sides: Sequence[int]) -> Network:
    """A network for images of any height and width."""
    return Network(
        make,  # pyright: ignore[reportArgumentType]
        lambda draw, batch, height, width: (draw.normal(batch, 3, height, width),),
        ({0: "batch", 2: "height", 3: "width"},),
        {"batch": (2, 3, 1), "height": tuple(sides), "width": tuple(reversed(sides))},
    )


NETWORKS = {
    "resnet18": _sided(resnet18, (32, 40, 33)),
    "mobilenet_v2": Network(mobilenet_v2, images(3, 32)),
    "densenet": Network(densenet, images(3, 16)),
    "efficientnet": _sided(efficientnet, (32, 24, 30)),
    "inception": Network(inception, images(3, 32)),
    "convnext": Network(convnext, images(3, 32)),
    "shufflenet": Network(shufflenet, images(3, 32)),
    "alexnet": Network(alexnet, images(3, 63)),
    "resnext": Network(ResNeXt, images(3, 16)),
    "video_cnn": Network(video, lambda d, batch: (d.normal(batch, 3, 4, 16, 16),)),
    "mlp_mixer": Network(MLPMixer, images(3, 16)),
}
