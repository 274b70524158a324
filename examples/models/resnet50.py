"""ResNet-50 v1.5: He et al., "Deep Residual Learning for Image Recognition" (2015).

As in the usual torch version, the stride sits on the 3x3 convolution of a bottleneck (v1.5), not
on its first 1x1 convolution. 25,557,032 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ._common import materialise, random_images

EXPANSION = 4


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are the published network."""

    blocks: tuple[int, ...] = (3, 4, 6, 3)
    width: int = 64
    image: int = 224
    classes: int = 1000


SMALL = Config(blocks=(2, 1, 1, 1), width=8, image=64, classes=10)


class Bottleneck(nn.Module):
    """1x1 reduce, 3x3, 1x1 expand, each with batch norm; then the shortcut is added."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * EXPANSION
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.downsample: nn.Sequential | None = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        return F.relu(self.bn3(self.conv3(x)) + shortcut)


class ResNet50(nn.Module):
    """(batch, 3, image, image) float32 -> (batch, classes) float32 logits."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.conv1 = nn.Conv2d(3, config.width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(config.width)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        channels = config.width
        stages: list[nn.Module] = []
        for stage, count in enumerate(config.blocks):
            width = config.width * 2**stage
            blocks: list[nn.Module] = []
            for block in range(count):
                blocks.append(Bottleneck(channels, width, 2 if stage and block == 0 else 1))
                channels = width * EXPANSION
            stages.append(nn.Sequential(*blocks))
        self.layers = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, config.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(F.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.layers(x))
        return self.fc(torch.flatten(x, 1))


def build(seed: int = 0, *, small: bool = False, **overrides: Any) -> ResNet50:
    """The network in eval mode; ``overrides`` replace fields of :class:`Config`."""
    config = replace(SMALL if small else Config(), **overrides)
    return materialise(lambda: ResNet50(config), seed, random_images(2, config.image, seed))


def example_inputs(
    batch: int = 1, seed: int = 0, *, small: bool = False
) -> tuple[torch.Tensor, ...]:
    """One batch of random images."""
    return (random_images(batch, (SMALL if small else Config()).image, seed),)
