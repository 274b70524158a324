"""Networks of volumes in plain torch: of videos, and of images in three dimensions."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn


def _convolved(inputs: int, outputs: int, step: int = 1, act: bool = True) -> nn.Sequential:
    """A convolution that keeps the size up to the step, batch norm, activation."""
    made: list[nn.Module] = [
        nn.Conv3d(inputs, outputs, 3, step, 1, bias=False),
        nn.BatchNorm3d(outputs),
    ]
    return nn.Sequential(*made, *([nn.ReLU()] if act else []))


class _Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, step: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            _convolved(inputs, outputs, step), _convolved(outputs, outputs, act=False)
        )
        self.shortcut = nn.Sequential()
        if step > 1 or inputs != outputs:
            convolution = nn.Conv3d(inputs, outputs, 1, step, bias=False)
            self.shortcut = nn.Sequential(convolution, nn.BatchNorm3d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In the image's size, or half of it."""
        return (self.body(x) + self.shortcut(x)).relu()


def resnet3d_18() -> nn.Module:
    """Tran et al., "A Closer Look at Spatiotemporal Convolutions" (2018), R3D: 33,371,472
    parameters, for videos of 400 kinds.
    """
    stem = nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3), bias=False)
    made: list[nn.Module] = [stem, nn.BatchNorm3d(64), nn.ReLU()]
    inputs = 64
    for stage, outputs in enumerate((64, 128, 256, 512)):
        for step in (1 + (stage > 0), 1):
            made.append(_Residual(inputs, outputs, step))
            inputs = outputs
    return nn.Sequential(*made, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(512, 400))


class _Level(nn.Module):
    """A level of a U-Net: convolutions, the levels below, and convolutions of both."""

    def __init__(self, inputs: int, channels: int, below: nn.Module | None) -> None:
        super().__init__()
        self.down = nn.Sequential(_convolved(inputs, channels), _convolved(channels, channels))
        self.below = below
        if below is not None:
            self.pool = nn.MaxPool3d(2)
            self.larger = nn.ConvTranspose3d(2 * channels, channels, 2, 2)
            self.up = nn.Sequential(
                _convolved(2 * channels, channels), _convolved(channels, channels)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """In the size of the image."""
        x = self.down(x)
        if self.below is None:
            return x
        return self.up(torch.cat((x, self.larger(self.below(self.pool(x)))), 1))


def unet3d(width: int = 16, levels: int = 4) -> nn.Module:
    """As in Çiçek et al., "3D U-Net" (2016), of fewer channels: one channel to two kinds."""
    below: nn.Module | None = None
    for level in reversed(range(levels)):
        inputs = width << (level - 1) if level else 1
        below = _Level(inputs, width << level, below)
    assert below is not None
    return nn.Sequential(OrderedDict(body=below, read=nn.Conv3d(width, 2, 1)))
