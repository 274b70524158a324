"""What a network of the zoo is: a module, inputs of any size, and the dimensions that may vary."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

#: The batch of the example inputs, and the others that a program with any batch is tried on.
BATCH = (2, 3, 5)


class Draw:
    """Random tensors from one seed."""

    def __init__(self, seed: int = 0) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int) -> torch.Tensor:
        """Standard normal float32."""
        return torch.randn(shape, generator=self.generator)

    def uniform(self, *shape: int) -> torch.Tensor:
        """float32 in [0, 1)."""
        return torch.rand(shape, generator=self.generator)

    def tokens(self, below: int, *shape: int) -> torch.Tensor:
        """int64 in [0, below)."""
        return torch.randint(below, shape, generator=self.generator)


@dataclass(frozen=True)
class Network:
    """One architecture, small.

    make:      the module with torch's default weights, drawn from the global generator
    inputs:    ``(draw, **sizes) -> positional arguments``, all of them tensors
    dims:      for each argument its variable dimensions: axis -> "name", or "4*name" for multiples
    sizes:     for each name the size of the example, then two others
    fixed:     by route the names of sizes that torch's exporter writes down as constants
    tolerance: largest error beside values of size one (sums of float32 in another order)
    """

    make: Callable[[], nn.Module]
    inputs: Callable[..., tuple[torch.Tensor, ...]]
    dims: Sequence[Mapping[int, str]] = ({0: "batch"},)
    sizes: Mapping[str, tuple[int, int, int]] = field(default_factory=lambda: {"batch": BATCH})
    fixed: Mapping[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])
    tolerance: float = 1e-4

    def build(self, seed: int = 0) -> nn.Module:
        """The module in eval mode; the global generator is left as it was."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            module = self.make()
        draw = Draw(seed)
        with torch.no_grad():
            for layer in module.modules():
                if isinstance(layer, NORMS) and layer.weight is not None:
                    layer.weight.copy_(0.5 + draw.uniform(*layer.weight.shape))
                    layer.bias.copy_(0.1 * draw.normal(*layer.bias.shape))
                if isinstance(layer, BATCH_NORMS):
                    layer.running_mean.copy_(0.1 * draw.normal(*layer.running_mean.shape))
                    layer.running_var.copy_(0.5 + draw.uniform(*layer.running_var.shape))
        return module.eval()

    def arguments(self, variant: int = 0, route: str = "") -> tuple[torch.Tensor, ...]:
        """The example inputs (0), or those of other sizes (1, 2) as far as ``route`` takes them."""
        fixed = self.fixed.get(route, ())
        sizes = {name: of[0 if name in fixed else variant] for name, of in self.sizes.items()}
        return self.inputs(Draw(variant), **sizes)


BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
NORMS = (*BATCH_NORMS, nn.LayerNorm, nn.GroupNorm, nn.InstanceNorm2d)


def export_dims(network: Network, route: str) -> tuple[dict[int, Any], ...]:
    """``dynamic_shapes`` of ``torch.export.export`` for the variable dimensions of a route."""
    fixed = network.fixed.get(route, ())
    made: dict[str, Any] = {}

    def dim(text: str) -> Any:
        factor, name = re.fullmatch(r"(?:(\d+)\*)?(\w+)", text).groups()
        sizes = network.sizes[name]
        one = made.setdefault(name, torch.export.Dim(name, min=min(sizes), max=2 * max(sizes)))
        return one if factor is None else int(factor) * one

    return tuple(
        {axis: dim(text) for axis, text in of.items() if text not in fixed} for of in network.dims
    )


def images(channels: int, side: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A batch of square images."""
    return lambda draw, batch: (draw.normal(batch, channels, side, side),)


def tokens(vocabulary: int) -> Callable[..., tuple[torch.Tensor, ...]]:
    """A batch of sequences of token ids."""
    return lambda draw, batch, length: (draw.tokens(vocabulary, batch, length),)


#: Dimensions and sizes of (batch, length) inputs.
SEQUENCES: dict[str, Any] = {
    "dims": ({0: "batch", 1: "length"},),
    "sizes": {"batch": BATCH, "length": (8, 5, 11)},
}


def exporting(*names: str) -> dict[str, frozenset[str]]:
    """What torch.export writes down: the length of recurrent layers, for one."""
    return dict.fromkeys(("onnx-dynamo", "export"), frozenset(names))


def attention(*names: str) -> dict[str, frozenset[str]]:
    """What tracing fixes in ``nn.MultiheadAttention``: ONNX Runtime too takes no other size."""
    return {"onnx-torchscript": frozenset(names)}


#: Recurrent layers over (batch, length) inputs. Exporters that fix the length write its steps out,
#: so the example is short.
RECURRENT: dict[str, Any] = {
    **SEQUENCES,
    "sizes": {"batch": BATCH, "length": (4, 5, 11)},
    "fixed": exporting("length"),
}
