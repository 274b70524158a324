"""The bridge to torch: compiled modules whose results are torch tensors."""

from __future__ import annotations

from typing import Any

import torch

from relax2xla.frontend.nn import spec as _spec
from relax2xla.frontend.nn.compiled import CompiledModule


class TorchModule(CompiledModule):
    """A compiled module that takes torch tensors and gives them."""

    def taken(self, name: str, spec: Any, value: Any) -> Any:
        """An argument; TypeError for a tensor that is none of torch's."""
        if isinstance(spec, _spec.Tensor) and not isinstance(value, torch.Tensor):
            raise TypeError(
                f"the argument {name} is a torch.Tensor; got {type(value).__name__} "
                "(jit(out_format='jax') takes any array)"
            )
        return super().taken(name, spec, value)

    def array(self, value: Any) -> Any:
        """An array of a result as a torch tensor."""
        return to_torch(value)


def to_torch(value: Any) -> torch.Tensor:
    """An array as a torch tensor with memory of its own."""
    # torch may write into its tensors, and an array of jax never changes: hence the copy.
    return torch.from_dlpack(value).clone()
