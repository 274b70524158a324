"""The bridge to torch: compiled modules whose results are torch tensors."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

from relax2xla.frontend.nn import spec as _spec
from relax2xla.frontend.nn.jit import CompiledModule


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


def method_spec_from_torch(args: Sequence[Any], method: Callable[..., Any]) -> _spec.MethodSpec:
    """The specification that torch tensors and ints make as arguments of ``method``."""
    names = list(inspect.signature(method).parameters)
    if len(names) != len(args):
        raise TypeError(f"{len(names)} arguments are needed, {names}; got {len(args)}")
    return _spec.MethodSpec(method, names, [_as_spec(a) for a in args], "plain", "plain")


def _as_spec(value: Any) -> _spec.SpecAny:
    if isinstance(value, torch.Tensor):
        return _spec.Tensor(list(value.shape), str(value.dtype).removeprefix("torch."))
    if isinstance(value, int) and not isinstance(value, bool):
        return _spec.Int()
    raise TypeError(f"an argument must be a torch.Tensor or an int; got {type(value).__name__}")
