"""A PyTorch module becomes Relax, and runs on XLA.

    python examples/from_pytorch.py

needs torch (in a clone: pip install '.[torch]').
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import relax2xla
from relax2xla.frontend import detach_params
from relax2xla.frontend.torch import from_exported_program


class Classifier(nn.Module):
    """Images (n, 1, 8, 8) to logits of ten classes (n, 10)."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(images).flatten(1))


def main() -> None:
    """Import, look, run with two batch sizes, and run again with the weights as arguments."""
    model = Classifier().eval()
    images = torch.randn(4, 1, 8, 8)

    # The first dimension may be any batch size: it becomes a symbolic variable.
    batch = torch.export.Dim("batch", min=1, max=256)
    program = torch.export.export(model, (images,), dynamic_shapes=({0: batch},))
    mod = from_exported_program(program)

    # Each binding knows the module and the line that it comes from.
    function = mod["main"]
    print(f"main{tuple(p.name_hint for p in function.params)} -> {function.ret_struct_info}")
    for block in function.body.blocks:
        for binding in block.bindings:
            print(f"  {binding.var.name_hint:12} {binding.var.struct_info}  # {binding.span}")

    # Two batch sizes: XLA compiles for each of them once.
    machine = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    for size in (4, 32):
        images = torch.randn(size, 1, 8, 8)
        (logits,) = machine["main"](images)
        with torch.no_grad():
            difference = np.abs(np.asarray(logits) - model(images).numpy()).max()
        print(f"batch {size:3}: largest difference from eager torch {difference:.1e}")
        assert difference < 1e-4

    # The weights can stay outside of the program, as further arguments.
    mod = from_exported_program(program, keep_params_as_input=True)
    mod, params = detach_params(mod)
    machine = relax2xla.VirtualMachine(relax2xla.build(mod), relax2xla.cpu())
    (again,) = machine["main"](images, *params["main"])
    print(f"weights as arguments: {np.abs(np.asarray(again) - np.asarray(logits)).max():.1e}")


if __name__ == "__main__":
    main()
