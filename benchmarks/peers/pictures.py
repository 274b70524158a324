"""Published networks of pictures in plain torch, at full size: for ``python -m benchmarks peers``.

Each is written from its paper, and has as many parameters as are published for it. Weights are
random.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence

import torch
from torch import nn
from torch.nn import functional as F

from examples.models._common import observe
from examples.models.mobilenet_v3_small import divisible

Layer = Callable[[], nn.Module]


def _convolved(
    inputs: int,
    outputs: int,
    taps: int = 3,
    step: int = 1,
    groups: int = 1,
    act: Layer | None = nn.ReLU,
    eps: float = 1e-5,
) -> nn.Sequential:
    """A convolution that keeps the size up to the step, batch norm, activation."""
    made: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, taps, step, taps // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=eps),
    ]
    return nn.Sequential(*made, *([act()] if act else []))


class _Excited(nn.Module):
    """Squeeze and excitation: each channel scaled by a gate made of all channels' means."""

    def __init__(self, channels: int, squeezed: int, act: Layer, gate: Layer) -> None:
        super().__init__()
        self.mean = nn.AdaptiveAvgPool2d(1)
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)
        self.act, self.gate = act(), gate()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(self.up(self.act(self.down(self.mean(x)))))


class _Residual(nn.Module):
    """``x + block(x)``; with a ``shortcut`` that is a layer, of what that makes of ``x``."""

    def __init__(
        self, block: nn.Module, shortcut: nn.Module | None = None, act: Layer | None = None
    ) -> None:
        super().__init__()
        self.block, self.shortcut = block, shortcut or nn.Identity()
        self.act = act() if act else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self.shortcut(x) + self.block(x))


def _head(channels: int, *more: nn.Module) -> nn.Sequential:
    """Means over the picture, layers, and 1000 classes."""
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), *(more or [nn.Linear(channels, 1000)])
    )


# taps, expanded channels, channels, squeeze and excitation, hard-swish, steps
_MOBILE = (
    *((3, 16, 16, 0, 0, 1), (3, 64, 24, 0, 0, 2), (3, 72, 24, 0, 0, 1), (5, 72, 40, 1, 0, 2)),
    *((5, 120, 40, 1, 0, 1), (5, 120, 40, 1, 0, 1), (3, 240, 80, 0, 1, 2), (3, 200, 80, 0, 1, 1)),
    *((3, 184, 80, 0, 1, 1), (3, 184, 80, 0, 1, 1), (3, 480, 112, 1, 1, 1)),
    *((3, 672, 112, 1, 1, 1), (5, 672, 160, 1, 1, 2), (5, 960, 160, 1, 1, 1)),
    (5, 960, 160, 1, 1, 1),
)


def mobilenet_v3_large() -> nn.Module:
    """Howard et al., "Searching for MobileNetV3" (2019): 5,483,032 parameters."""
    made: list[nn.Module] = [_convolved(3, 16, 3, 2, act=nn.Hardswish, eps=1e-3)]
    channels = 16
    for taps, expanded, outputs, excited, swish, step in _MOBILE:
        act = nn.Hardswish if swish else nn.ReLU
        parts: list[nn.Module] = []
        if expanded != channels:
            parts.append(_convolved(channels, expanded, 1, act=act, eps=1e-3))
        parts.append(_convolved(expanded, expanded, taps, step, expanded, act, 1e-3))
        if excited:
            parts.append(_Excited(expanded, divisible(expanded / 4), nn.ReLU, nn.Hardsigmoid))
        parts.append(_convolved(expanded, outputs, 1, act=None, eps=1e-3))
        block = nn.Sequential(*parts)
        made.append(_Residual(block) if step == 1 and channels == outputs else block)
        channels = outputs
    made.append(_convolved(channels, 960, 1, act=nn.Hardswish, eps=1e-3))
    hidden = (nn.Linear(960, 1280), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(1280, 1000))
    return nn.Sequential(*made, _head(960, *hidden))


# factor of the expansion, channels, layers, steps, taps
_EFFICIENT = (
    *((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3)),
    *((6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3)),
)


def efficientnet_b0() -> nn.Module:
    """Tan and Le, "EfficientNet" (2019): 5,288,548 parameters."""
    made: list[nn.Module] = [_convolved(3, 32, 3, 2, act=nn.SiLU)]
    channels = 32
    for factor, outputs, layers, step, taps in _EFFICIENT:
        for at in range(layers):
            expanded, stride = factor * channels, 1 if at else step
            parts: list[nn.Module] = []
            if factor != 1:
                parts.append(_convolved(channels, expanded, 1, act=nn.SiLU))
            parts += [
                _convolved(expanded, expanded, taps, stride, expanded, nn.SiLU),
                _Excited(expanded, channels // 4, nn.SiLU, nn.Sigmoid),
                _convolved(expanded, outputs, 1, act=None),
            ]
            block = nn.Sequential(*parts)
            made.append(_Residual(block) if at else block)
            channels = outputs
    made.append(_convolved(channels, 1280, 1, act=nn.SiLU))
    return nn.Sequential(*made, _head(1280, nn.Dropout(0.2), nn.Linear(1280, 1000)))


class _ChannelsNorm(nn.LayerNorm):
    """Layer norm over the channels of a picture in NCHW."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:  # the name is torch's
        return super().forward(input.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNeXtBlock(nn.Module):
    """7x7 depthwise, and a perceptron on each pixel with its channels last, scaled."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.spread = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(torch.empty(width, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.spread(x).permute(0, 2, 3, 1))
        y = self.down(F.gelu(self.up(y)))
        return x + self.scale * y.permute(0, 3, 1, 2)


def convnext_tiny() -> nn.Module:
    """Liu et al., "A ConvNet for the 2020s" (2022): 28,589,128 parameters."""
    widths, made = (96, 192, 384, 768), list[nn.Module]()
    for i, (width, depth) in enumerate(zip(widths, (3, 3, 9, 3), strict=True)):
        if i:
            made += [_ChannelsNorm(widths[i - 1], 1e-6), nn.Conv2d(widths[i - 1], width, 2, 2)]
        else:
            made += [nn.Conv2d(3, width, 4, 4), _ChannelsNorm(width, 1e-6)]
        made += [_ConvNeXtBlock(width) for _ in range(depth)]
    mean = nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*made, mean, _ChannelsNorm(768, 1e-6), nn.Flatten(), nn.Linear(768, 1000))


def regnet_y_1_6gf() -> nn.Module:
    """Radosavovic et al., "Designing Network Design Spaces" (2020): 11,202,430 parameters."""
    made: list[nn.Module] = [_convolved(3, 32, 3, 2)]
    channels = 32
    for width, depth in zip((48, 120, 336, 888), (2, 6, 17, 2), strict=True):
        for at in range(depth):
            step = 1 if at else 2
            block = nn.Sequential(
                _convolved(channels, width, 1),
                _convolved(width, width, 3, step, width // 24),
                _Excited(width, round(channels / 4), nn.ReLU, nn.Sigmoid),
                _convolved(width, width, 1, act=None),
            )
            shortcut = None if at else _convolved(channels, width, 1, step, act=None)
            made.append(_Residual(block, shortcut, nn.ReLU))
            channels = width
    return nn.Sequential(*made, _head(888))


class _WindowAttention(nn.Module):
    """Attention in windows of 7x7 tokens, moved by ``shift``, with a learned bias by distance."""

    def __init__(self, width: int, heads: int, side: int, shift: int) -> None:
        super().__init__()
        self.heads, self.side, self.shift = heads, side, shift if side > 7 else 0
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.bias = nn.Parameter(torch.empty(13 * 13, heads))
        at = torch.stack(torch.meshgrid(*[torch.arange(7, device="cpu")] * 2, indexing="ij"))
        apart = at.flatten(1)[:, :, None] - at.flatten(1)[:, None, :] + 6
        self.places = (13 * apart[0] + apart[1]).flatten()
        # What the shift has brought together from both ends of the picture sees nothing of it.
        part = torch.zeros(side, device="cpu")
        if self.shift:
            part[-7 : -self.shift], part[-self.shift :] = 1, 2
        own = self.windows((3 * part[:, None] + part)[None, :, :, None]).squeeze(2)
        self.mask = -100.0 * (own[:, None, :] != own[:, :, None]).float()

    def windows(self, x: torch.Tensor) -> torch.Tensor:
        """[B, H, W, C] to [windows, 49, C]."""
        split = x.unflatten(2, (-1, 7)).unflatten(1, (-1, 7)).transpose(2, 3)
        return split.flatten(0, 2).flatten(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, H, W, C] to the same."""
        count = self.side // 7
        if self.shift:
            x = x.roll((-self.shift, -self.shift), (1, 2))
        qkv = self.qkv(self.windows(x)).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-2, -1)
        scores = scores + self.bias[self.places].view(49, 49, -1).permute(2, 0, 1)
        if self.shift:
            masked = scores.unflatten(0, (-1, count * count)) + self.mask[:, None]
            scores = masked.flatten(0, 1)
        y = self.out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        y = y.unflatten(0, (-1, count, count)).unflatten(3, (7, 7)).transpose(2, 3)
        y = y.flatten(3, 4).flatten(1, 2)
        return y.roll((self.shift, self.shift), (1, 2)) if self.shift else y


class _Merging(nn.Module):
    """Four tokens side by side to one of twice the width."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.down = nn.LayerNorm(4 * width), nn.Linear(4 * width, 2 * width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        corners = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.down(self.norm(torch.cat(corners, -1)))


class _ToChannelsLast(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.permute(0, 2, 3, 1)


class _Mean(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean((1, 2))


def swin_t() -> nn.Module:
    """Liu et al., "Swin Transformer" (2021): 28,288,354 parameters."""
    made: list[nn.Module] = [nn.Conv2d(3, 96, 4, 4), _ToChannelsLast(), nn.LayerNorm(96)]
    for i, depth in enumerate((2, 2, 6, 2)):
        width, side = 96 * 2**i, 56 // 2**i
        if i:
            made.append(_Merging(width // 2))
        for at in range(depth):
            attention = _WindowAttention(width, 3 * 2**i, side, 3 * (at % 2))
            made.append(_Residual(nn.Sequential(nn.LayerNorm(width), attention)))
            parts = (nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            made.append(_Residual(nn.Sequential(nn.LayerNorm(width), *parts)))
    return nn.Sequential(*made, nn.LayerNorm(768), _Mean(), nn.Linear(768, 1000))


def vgg11() -> nn.Module:
    """Simonyan and Zisserman, "Very Deep Convolutional Networks" (2014): 132,863,336 parameters."""
    made, channels = list[nn.Module](), 3
    for width in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        if width:
            made += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
        else:
            made.append(nn.MaxPool2d(2, 2))
    hidden = (nn.Linear(25088, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU())
    return nn.Sequential(*made, nn.Flatten(), *hidden, nn.Dropout(), nn.Linear(4096, 1000))


class _Dense(nn.Module):
    """A layer whose result stands behind its input: norm first, 1x1 and 3x3."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        named = (
            ("norm1", nn.BatchNorm2d(channels)),
            ("relu1", nn.ReLU()),
            ("conv1", nn.Conv2d(channels, 128, 1, bias=False)),
            ("norm2", nn.BatchNorm2d(128)),
            ("relu2", nn.ReLU()),
            ("conv2", nn.Conv2d(128, 32, 3, padding=1, bias=False)),
        )
        self.layers = nn.Sequential(OrderedDict(named))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.layers(x)], 1)


def densenet121() -> nn.Module:
    """Huang et al., "Densely Connected Convolutional Networks" (2017): 7,978,856 parameters."""
    made: list[nn.Module] = [_convolved(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for i, depth in enumerate((6, 12, 24, 16)):
        if i:
            made += [nn.BatchNorm2d(channels), nn.ReLU()]
            made += [nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2, 2)]
            channels //= 2
        made += [_Dense(channels + 32 * at) for at in range(depth)]
        channels += 32 * depth
    return nn.Sequential(*made, nn.BatchNorm2d(channels), nn.ReLU(), _head(channels))


def group_norms(depth: int = 6, width: int = 32) -> nn.Module:
    """3x3 convolutions, each with group norm and silu, as networks of diffusion have them."""
    made: list[nn.Module] = []
    for _ in range(depth):
        made += [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.SiLU()]
    return nn.Sequential(*made)


def settled(network: nn.Module, sample: torch.Tensor) -> nn.Module:
    """Weights of a size that keeps values near one, and batch norms as ``sample`` leaves them."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in network.modules():
            own: Sequence[nn.Parameter] = list(layer.parameters(recurse=False))
            norm = isinstance(layer, nn.BatchNorm2d | nn.LayerNorm | nn.GroupNorm)
            for p in own:
                matrix = p.dim() > 1 and isinstance(layer, nn.Conv2d | nn.Linear)
                size = math.sqrt(1.5 / p[0].numel()) if matrix else 0.1
                p.normal_(float(norm and p is own[0]), size, generator=generator)
        if any(isinstance(layer, nn.BatchNorm2d) for layer in network.modules()):
            observe(network.eval(), sample)
    return network.eval()
