"""Training steps by ``torch.compile`` on one core: XLA beside TorchInductor and eager torch.

A step is a call, and the gradients of all weights (and of an image that is no first layer's). The
variants take turns; times are of the CPU, which other work on the machine changes less.

In one process eager torch, too, has memory that stays (``relax2xla/vm/pjrt/allocator.py``): glibc
is asked for all. What it takes as its users have it, in a process without this library, is "alone".
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

# One core for everybody: the process before any runtime starts its threads.
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})

import torch
from torch import nn

from benchmarks.chosen import chosen
from benchmarks.peers import pictures
from benchmarks.timing import interleaved, ratio
from examples.models import MODELS

IMAGE = (8, 64, 28, 28)
#: Layers and networks, and the shapes of what they are called with.
CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1x1, 64 to 256 channels": (lambda: nn.Conv2d(64, 256, 1), IMAGE),
    "3x3, 64 channels": (lambda: nn.Conv2d(64, 64, 3, padding=1), IMAGE),
    "3x3, 8 groups": (lambda: nn.Conv2d(64, 64, 3, padding=1, groups=8), IMAGE),
    "3x3 depthwise": (lambda: nn.Conv2d(64, 64, 3, padding=1, groups=64), IMAGE),
    "5x5 depthwise, steps of 2": (lambda: nn.Conv2d(64, 64, 5, 2, 2, groups=64), IMAGE),
    "7x7 depthwise": (lambda: nn.Conv2d(64, 64, 7, padding=3, groups=64), IMAGE),
    "3x3x3, 64 channels": (lambda: nn.Conv3d(64, 64, 3, padding=1), (1, 64, 8, 28, 28)),
    "2x2x2 transposed": (lambda: nn.ConvTranspose3d(64, 32, 2, 2), (1, 64, 8, 14, 14)),
    "max pool 3x3": (lambda: nn.MaxPool2d(3, 2, 1), (8, 64, 56, 56)),
    "reflecting pad": (lambda: nn.ReflectionPad2d(2), IMAGE),
    "batch norm": (lambda: nn.BatchNorm2d(64), IMAGE),
    "LSTM": (lambda: nn.LSTM(256, 128, batch_first=True), (8, 128, 256)),
    "transformer layer": (
        lambda: nn.TransformerEncoderLayer(256, 4, 1024, 0.0, batch_first=True),
        (8, 128, 256),
    ),
    "ResNet-50, 8 of 112x112": (lambda: MODELS["resnet50"].build(), (8, 3, 112, 112)),
    "MobileNetV3-large, 8 of 112x112": (pictures.mobilenet_v3_large, (8, 3, 112, 112)),
    "EfficientNet-B0, 4 of 112x112": (pictures.efficientnet_b0, (4, 3, 112, 112)),
    "ConvNeXt-T, 2 of 112x112": (pictures.convnext_tiny, (2, 3, 112, 112)),
    "RegNet-Y-1.6GF, 4 of 112x112": (pictures.regnet_y_1_6gf, (4, 3, 112, 112)),
    "VGG11, 2 of 224x224": (pictures.vgg11, (2, 3, 224, 224)),
}
PEERS = ("eager", "inductor")


def _step(call: Callable[..., Any], x: torch.Tensor) -> None:
    made = call(x)
    (made[0] if isinstance(made, tuple) else made).square().mean().backward()


def _case(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A layer or a network in training mode, and what it is called with."""
    build, shape = CASES[name]
    torch.manual_seed(0)
    layer = build().train()
    for part in layer.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0  # random numbers are torch's in all variants
    return layer, torch.randn(shape, requires_grad=shape[1] > 3)


def measure(name: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of a step of each variant, in turn."""
    layer, x = _case(name)
    variants: dict[str, Callable[[], None]] = {"eager": lambda: _step(layer, x)}
    for backend in ("relax2xla", "inductor"):
        compiled: Any = torch.compile(copy.deepcopy(layer), backend=backend)
        try:
            _step(compiled, x)
        except Exception as e:  # Inductor needs a compiler of C++
            print(f"{name}: {backend} does not run: {str(e).splitlines()[0]}", file=sys.stderr)
            continue
        variants[backend] = lambda compiled=compiled: _step(compiled, x)
    return interleaved(variants, rounds, warmup=2, untimed=1, clock=time.process_time)


def measure_alone(name: str, rounds: int) -> list[float]:
    """Seconds of a step of eager torch, in a process of its own."""
    command = [sys.executable, "-W", "ignore", "-m", __spec__.name, name, str(rounds)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"eager torch alone does not run {name}: {made.stderr[-1000:]}")
    return json.loads(made.stdout.splitlines()[-1])


def _alone(name: str, rounds: int) -> None:
    torch.set_num_threads(1)
    layer, x = _case(name)
    times = interleaved(
        {"eager": lambda: _step(layer, x)}, rounds, warmup=2, untimed=1, clock=time.process_time
    )
    sys.stdout.write(f"{json.dumps(times['eager'])}\n")


def main(quick: bool = False, only: Sequence[str] = ()) -> None:
    """Print the table; ``only`` are patterns of the names of steps."""
    names = chosen(CASES, only)
    if not names:
        sys.exit(f"no step is called {' or '.join(only)}; there are: {', '.join(CASES)}")
    torch.set_num_threads(1)
    titles = ["step", "relax2xla ms", *PEERS, "eager alone", *(f"ratio to {v}" for v in PEERS)]
    print(f"| {' | '.join((*titles, 'to eager alone'))} |")
    print("|---" * (len(titles) + 1) + "|")
    for name in names:
        torch.compiler.reset()
        rounds = 3 if quick else 20
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            times, alone = measure(name, rounds), measure_alone(name, rounds)
        own = times["relax2xla"]
        cells = [f"{1e3 * min(times[v]):.2f}" if v in times else "" for v in ("relax2xla", *PEERS)]
        cells.append(f"{1e3 * min(alone):.2f}")
        cells += [f"{ratio(times, 'relax2xla', v):.2f}" if v in times else "" for v in PEERS]
        cells.append(f"{statistics.median(own) / statistics.median(alone):.2f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    _alone(sys.argv[1], int(sys.argv[2]))
