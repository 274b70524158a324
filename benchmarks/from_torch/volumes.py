"""Convolutions of volumes by ``torch.compile`` on one core, beside eager torch: calls and steps.

A call is without gradients, in eval mode. A step is a call in training mode, and the gradients of
all weights (and of an image that is no first layer's). The variants take turns; times are of the
CPU. "first": seconds of the CPU of the first step, in which all is compiled.
"""

from __future__ import annotations

import copy
import os
import time
import warnings
from collections.abc import Callable

# One core for everybody: the process before any runtime starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import torch
from torch import nn

from benchmarks.peers import volumetric
from benchmarks.timing import interleaved, ratio

IMAGE = (2, 32, 8, 28, 28)
#: Layers and networks, and the shapes of what they are called with.
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "3x3x3, 16 to 32 channels": (lambda: nn.Conv3d(16, 32, 3, padding=1), (2, 16, 8, 28, 28)),
    "3x3x3, 64 channels": (lambda: nn.Conv3d(64, 64, 3, padding=1), (2, 64, 8, 14, 14)),
    "3x3x3, steps of 2": (lambda: nn.Conv3d(32, 64, 3, (1, 2, 2), 1), IMAGE),
    "3x3x3, 4 groups": (lambda: nn.Conv3d(32, 32, 3, padding=1, groups=4), IMAGE),
    "3x3x3 depthwise": (lambda: nn.Conv3d(32, 32, 3, padding=1, groups=32), IMAGE),
    "1x3x3": (lambda: nn.Conv3d(32, 32, (1, 3, 3), padding=(0, 1, 1)), IMAGE),
    "3x1x1": (lambda: nn.Conv3d(32, 32, (3, 1, 1), padding=(1, 0, 0)), IMAGE),
    "3x7x7 of 3 channels": (
        lambda: nn.Conv3d(3, 64, (3, 7, 7), (1, 2, 2), (1, 3, 3)),
        (1, 3, 8, 64, 64),
    ),
    "3x3x3 transposed, steps of 2": (
        lambda: nn.ConvTranspose3d(64, 32, 3, 2, 1, 1),
        (1, 64, 8, 14, 14),
    ),
    "3-D ResNet-18, 8 of 64x64": (volumetric.resnet3d_18, (1, 3, 8, 64, 64)),
    "3-D U-Net, 32x32x32": (volumetric.unet3d, (1, 1, 32, 32, 32)),
}
BACKEND, PEER = "relax2xla", "eager"


def _measured(name: str, rounds: int) -> list[float]:
    """Milliseconds of a call by both, and their ratio; of a step; seconds of the first step."""
    build, shape = CASES[name]
    torch.manual_seed(0)
    network = build().eval()
    trained = copy.deepcopy(network).train()
    x = torch.randn(shape, requires_grad=shape[1] > 3)
    calls = {BACKEND: torch.compile(network, backend=BACKEND), PEER: network}
    steps = {
        BACKEND: torch.compile(copy.deepcopy(trained), backend=BACKEND),
        PEER: trained,
    }

    def step(which: str) -> None:
        steps[which](x).square().mean().backward()

    def call(which: str) -> None:
        with torch.no_grad():
            calls[which](x)

    start = time.process_time()
    step(BACKEND)
    first = time.process_time() - start
    found: list[float] = []
    for run in (call, step):
        variants = {which: (lambda run=run, which=which: run(which)) for which in calls}
        times = interleaved(variants, rounds, warmup=2, untimed=1, clock=time.process_time)
        found += [1e3 * min(times[BACKEND]), 1e3 * min(times[PEER]), ratio(times, BACKEND, PEER)]
    return [*found, first]


def main(quick: bool = False) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    titles = ("", "call ms", "eager", "ratio", "step ms", "eager", "ratio", "first s")
    print(f"| {' | '.join(titles)} |")
    print("|---" * len(titles) + "|")
    torch.compile(lambda x: x + 1, backend=BACKEND)(torch.ones(3))
    for name in CASES:
        torch.compiler.reset()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            cells = _measured(name, 3 if quick else 15)
        print(f"| {name} | {' | '.join(f'{cell:.2f}' for cell in cells)} |", flush=True)
