"""MobileNetV3-small: Howard et al., "Searching for MobileNetV3" (2019), table 2.

2,542,856 parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from ._common import materialise, random_images

#: kernel, expanded channels, output channels, squeeze-and-excitation, hard-swish, stride
BLOCKS = (
    (3, 16, 16, True, False, 2),
    (3, 72, 24, False, False, 2),
    (3, 88, 24, False, False, 1),
    (5, 96, 40, True, True, 2),
    (5, 240, 40, True, True, 1),
    (5, 240, 40, True, True, 1),
    (5, 120, 48, True, True, 1),
    (5, 144, 48, True, True, 1),
    (5, 288, 96, True, True, 2),
    (5, 576, 96, True, True, 1),
    (5, 576, 96, True, True, 1),
)
STEM = 16
HIDDEN = 1024


@dataclass(frozen=True)
class Config:
    """Sizes; the defaults are the published network."""

    multiplier: float = 1.0
    image: int = 224
    classes: int = 1000


SMALL = Config(multiplier=0.25, image=64, classes=10)


def divisible(channels: float, divisor: int = 8) -> int:
    """The nearest multiple of ``divisor`` that is at least 90 % of ``channels`` (section 5)."""
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded + divisor if rounded < 0.9 * channels else rounded


def conv_norm(
    inputs: int,
    outputs: int,
    kernel: int,
    activation: type[nn.Module] | None,
    stride: int = 1,
    groups: int = 1,
) -> nn.Sequential:
    """Convolution that keeps the size (up to the stride), batch norm, activation."""
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs, eps=0.001),
    ]
    if activation is not None:
        layers.append(activation())
    return nn.Sequential(*layers)


class SqueezeExcitation(nn.Module):
    """Scale each channel by a gate computed from the channels' means."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        squeezed = divisible(channels / 4)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc1 = nn.Conv2d(channels, squeezed, 1)
        self.activation = nn.ReLU()
        self.fc2 = nn.Conv2d(squeezed, channels, 1)
        self.gate = nn.Hardsigmoid()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.gate(self.fc2(self.activation(self.fc1(self.avgpool(x)))))


class InvertedResidual(nn.Module):
    """1x1 expand, depthwise convolution, squeeze and excitation, 1x1 project, shortcut."""

    def __init__(
        self,
        inputs: int,
        kernel: int,
        expanded: int,
        outputs: int,
        excite: bool,
        swish: bool,
        stride: int,
    ) -> None:
        super().__init__()
        activation = nn.Hardswish if swish else nn.ReLU
        layers: list[nn.Module] = []
        if expanded != inputs:
            layers.append(conv_norm(inputs, expanded, 1, activation))
        layers.append(conv_norm(expanded, expanded, kernel, activation, stride, groups=expanded))
        if excite:
            layers.append(SqueezeExcitation(expanded))
        layers.append(conv_norm(expanded, outputs, 1, None))
        self.block = nn.Sequential(*layers)
        self.shortcut = stride == 1 and inputs == outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.block(x) if self.shortcut else self.block(x)


class MobileNetV3Small(nn.Module):
    """(batch, 3, image, image) float32 -> (batch, classes) float32 logits."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config

        def scaled(channels: int) -> int:
            return divisible(channels * config.multiplier)

        channels = scaled(STEM)
        layers: list[nn.Module] = [conv_norm(3, channels, 3, nn.Hardswish, stride=2)]
        for kernel, expanded, outputs, excite, swish, stride in BLOCKS:
            layers.append(
                InvertedResidual(
                    channels, kernel, scaled(expanded), scaled(outputs), excite, swish, stride
                )
            )
            channels = scaled(outputs)
        layers.append(conv_norm(channels, 6 * channels, 1, nn.Hardswish))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        hidden = scaled(HIDDEN)
        self.classifier = nn.Sequential(
            nn.Linear(6 * channels, hidden),
            nn.Hardswish(),
            nn.Dropout(0.2),
            nn.Linear(hidden, config.classes),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def build(seed: int = 0, *, small: bool = False, **overrides: Any) -> MobileNetV3Small:
    """The network in eval mode; ``overrides`` replace fields of :class:`Config`."""
    config = replace(SMALL if small else Config(), **overrides)
    return materialise(lambda: MobileNetV3Small(config), seed, random_images(2, config.image, seed))


def example_inputs(
    batch: int = 1, seed: int = 0, *, small: bool = False
) -> tuple[torch.Tensor, ...]:
    """One batch of random images."""
    return (random_images(batch, (SMALL if small else Config()).image, seed),)
