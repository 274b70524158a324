"""Weights as constants that share torch's memory."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from relax2xla.dtypes import dtype_info
from relax2xla.errors import FileFormatError, UnsupportedError
from relax2xla.importers.torch.source.torch_internals import is_traceable_wrapper_subclass
from relax2xla.ir import Constant, Span
from relax2xla.ir.source_names import names_of

# torch cannot hand these to numpy; integers of the same width carry the bits.
CARRIERS = {8: torch.uint8, 16: torch.int16}


def as_numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    """``tensor`` as a numpy array, without a copy if it lies contiguously in host memory.

    bfloat16 and float8 kinds become the dtypes of ml_dtypes. Raises ``UnsupportedError`` for
    tensors without data (meta, fake), for sparse, quantised and nested ones, and subclasses that
    are made of several tensors.
    """
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_nested:
        raise UnsupportedError(
            f"only dense tensors can be weights; got a {tensor.layout} {tensor.dtype} tensor. "
            "Densify or dequantise it before the export"
        )
    if is_traceable_wrapper_subclass(tensor):
        raise UnsupportedError(
            f"only plain tensors can be weights; got a {type(tensor).__name__}. Take such a model "
            "apart before the export (torchao.utils.unwrap_tensor_subclass(model)), or run it by "
            "torch.compile(model, backend='relax2xla')"
        )
    if tensor.device.type == "meta":
        raise UnsupportedError(
            "a weight lies on the meta device and so has no values; load the weights first"
        )
    host = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    info = dtype_info(host.dtype)
    try:
        return host.numpy()
    except TypeError:
        return host.view(CARRIERS[info.bits]).numpy().view(info.numpy)


def from_numpy(array: npt.NDArray[Any]) -> torch.Tensor:
    """A copy of ``array`` as a tensor; the inverse of :func:`as_numpy`."""
    host = np.array(array)
    if host.dtype.isbuiltin == 1:
        return torch.from_numpy(host)
    carried = host.view(f"i{host.dtype.itemsize}")
    return torch.from_numpy(carried).view(getattr(torch, host.dtype.name))


class Weights:
    """Constants of tensors, one for each piece of memory: tied weights are shared."""

    def __init__(self) -> None:
        self._made: dict[tuple[Any, ...], Constant] = {}

    def constant(self, tensor: torch.Tensor, name: str = "", kind: str = "") -> Constant:
        """The constant of ``tensor``; its span has all names of the memory, the first one first.

        ``kind``: what torch calls it ("parameter", "buffer", "constant"), the span's metadata.
        """
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        # Tensors without elements have no memory of their own to be told apart by.
        if tensor.numel() == 0:
            span = Span(name, metadata=kind) if name and kind == "parameter" else None
            return Constant(
                np.empty(tuple(tensor.shape), dtype_info(tensor.dtype).numpy), span=span
            )
        if key not in self._made:
            span = Span(name, metadata=kind) if name else None
            self._made[key] = Constant(as_numpy(tensor), span=span)
        made = self._made[key]
        if name:
            made.span = with_name(made.span, name)
        return made


def with_name(span: Span | None, name: str) -> Span:
    """``span``, a chain of names of one thing, with ``name`` at its end."""
    names = names_of(span)
    made: Span | None = None
    kind = span.metadata if span is not None else ""
    for n in reversed(names if name in names else (*names, name)):
        made = Span(n, children=() if made is None else (made,), metadata=kind)
    assert made is not None
    return made


_SAVE = "In torch: torch.save(model.state_dict(), path)"


def load_state_dict(path: str | Path) -> dict[str, npt.NDArray[Any]]:
    """The tensors of a torch checkpoint (``torch.save`` of a state dict) by name, for set_params.

    Only tensors are read: a checkpoint that needs code of its own is refused. Raises
    FileFormatError for that, and for files that are damaged or hold something else.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch proposes readers that run code
            found = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as e:
        raise FileFormatError(f"{path}: {e.strerror or e}") from None
    except Exception as e:  # torch raises whatever its readers do
        # What torch goes on to propose is to run the code in it.
        reason = (str(e).strip() or type(e).__name__).splitlines()[0].split(". ")[0]
        raise FileFormatError(
            f"{path} cannot be read safely: {reason}. Is it complete, and does it hold tensors "
            f"alone? {_SAVE}"
        ) from None
    if not isinstance(found, dict) or not all(isinstance(t, torch.Tensor) for t in found.values()):
        raise FileFormatError(f"{path} holds no state dict: expected tensors by name. {_SAVE}")
    return {str(name): as_numpy(tensor) for name, tensor in found.items()}
