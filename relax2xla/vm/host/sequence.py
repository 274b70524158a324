"""How the host runs ``relax.sequence``: sequences as tuples of arrays, None for what is not there.

Arrays are passed on where they lie; only joining and cutting read them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import CallError
from relax2xla.vm.host.operators import Array, host

Items = tuple[Any, ...]


def _items(sequence: Any) -> Items:
    if not isinstance(sequence, tuple | list):
        raise CallError(f"expected a sequence of tensors; got {type(sequence).__name__}")
    return tuple(sequence)


def _place(position: Any, count: int, places: int) -> int:
    """A position in a sequence of ``count`` that has ``places`` from the front."""
    index = int(np.asarray(position).reshape(()))
    if not -count <= index < places:
        raise CallError(f"the position {index} of a sequence of {count}")
    return index + count if index < 0 else index


def _checked(value: Any, dtype: str, ndim: int) -> Any:
    if not dtype:
        return value
    shape = getattr(value, "shape", None)
    if shape is None:
        raise CallError(f"expected a tensor of {dtype}; got {type(value).__name__}")
    if value.dtype != numpy_dtype(dtype):
        raise CallError(f"expected a tensor of {dtype}; got one of {value.dtype.name}")
    if ndim not in (-1, len(shape)):
        raise CallError(f"expected a tensor of rank {ndim}; got the shape {tuple(shape)}")
    return value


@host("relax.sequence.construct", arrays=False)
def construct(*tensors: Any) -> Items:
    """A tuple."""
    return tensors


@host("relax.sequence.at", arrays=False)
def at(sequence: Any, position: Any, dtype: str = "", ndim: int = -1) -> Any:
    """One of them."""
    items = _items(sequence)
    return _checked(items[_place(position, len(items), len(items))], dtype, ndim)


@host("relax.sequence.insert", arrays=False)
def insert(sequence: Any, tensor: Any, position: Any) -> Items:
    """One more."""
    items = _items(sequence)
    place = _place(position, len(items), len(items) + 1)
    return (*items[:place], tensor, *items[place:])


@host("relax.sequence.erase", arrays=False)
def erase(sequence: Any, position: Any) -> Items:
    """One less."""
    items = _items(sequence)
    place = _place(position, len(items), len(items))
    return (*items[:place], *items[place + 1 :])


@host("relax.sequence.length", arrays=False)
def length(sequence: Any) -> Array:
    """Their number."""
    return np.array(len(_items(sequence)), np.int64)


@host("relax.sequence.concat")
def concat(
    sequence: Any, axis: int = 0, new_axis: int = 0, dtype: str = "", ndim: int = -1
) -> Array:
    """numpy's concatenate or stack."""
    items = _items(sequence)
    if not items:
        raise CallError("the sequence that is joined is empty")
    try:
        made = np.stack(items, axis) if new_axis else np.concatenate(items, axis)
    except ValueError as e:
        raise CallError(f"the tensors of the sequence cannot be joined: {e}") from None
    return _checked(made, dtype, ndim)


@host("relax.sequence.stack")
def stack(sequence: Any, shape: Sequence[int] = (), dtype: str = "float32") -> Array:
    """numpy's stack, which takes at least one."""
    if not _items(sequence):
        return np.empty((0, *shape), numpy_dtype(dtype))
    return concat(sequence, 0, 1, dtype, len(shape) + 1)


@host("relax.sequence.split")
def split(x: Array, lengths: Array, axis: int = 0, keepdims: int = 1) -> Items:
    """Views of ``x``."""
    size = x.shape[axis]
    if lengths.ndim == 0:
        each = int(lengths)
        if each < 1:
            raise CallError(f"a tensor is split into parts of the length {each}")
        ends = [*range(each, size, each), size] if size else []
    else:
        if (lengths < 0).any() or int(lengths.sum()) != size:
            raise CallError(f"parts of the lengths {lengths.tolist()} of a tensor of {size}")
        ends = np.cumsum(lengths).tolist()
    parts = [
        x[(slice(None),) * (axis % x.ndim) + (slice(a, b),)]
        for a, b in zip([0, *ends], ends, strict=False)
    ]
    return tuple(parts if keepdims else (np.squeeze(p, axis) for p in parts))


@host("relax.sequence.has_element", arrays=False)
def has_element(optional: Any) -> Array:
    """Whether it is not None."""
    return np.array(optional is not None)


@host("relax.sequence.get", arrays=False)
def get(optional: Any, dtype: str = "", ndim: int = -1) -> Any:
    """Itself."""
    if optional is None:
        raise CallError("the element of an optional value is read, which is not there")
    return _checked(optional, dtype, ndim)
