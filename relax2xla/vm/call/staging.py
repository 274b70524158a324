"""Numpy arguments without JAX's conversion: copied into arrays that lie on the device already.

JAX needs several microseconds to make an array of numpy's memory, and the program may still read
that memory after the call has returned. Copying a small argument into memory that an array on the
device shares costs a tenth of that. Such memory is used again only when the program that reads it
has ended; else the next call gets new memory, so calls stay asynchronous.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from relax2xla.runtime.device import Device
from relax2xla.vm.pjrt import xla

# Bytes of all arguments together; above this the copy is no longer what a call costs.
LIMIT: Final = 1 << 20
# What XLA:CPU wants an argument's address to be a multiple of, to share its memory.
ALIGNMENT: Final = 64

# What a staged function gives where the arguments are not those that it was made for.
OTHER: Final = object()

Array = np.ndarray[Any, Any]


def staged(
    args: Sequence[Any], device: Device | None, call: Callable[..., Any]
) -> Callable[[Sequence[Any]], Any] | None:
    """``call`` for numpy arguments of the shapes and dtypes of ``args``; OTHER for any others.

    ``call``: a function of arrays on the device, which keeps none of them. None where memory cannot
    be shared with the device, or where there is too much to copy.
    """
    if not args or not all(
        type(a) is np.ndarray and a.size and a.dtype.isnative and a.dtype.kind not in "OSUV"
        for a in args
    ):
        return None
    if sum(a.nbytes for a in args) > LIMIT:
        return None
    memory, array = shared(args[0].shape, args[0].dtype, device)
    if xla.address(array) != memory.ctypes.data:
        return None
    specs = [(a.shape, a.dtype) for a in args]
    return _one(*specs[0], device, call) if len(specs) == 1 else _several(specs, device, call)


def _one(
    shape: tuple[int, ...], dtype: np.dtype[Any], device: Device | None, call: Callable[..., Any]
) -> Callable[[Sequence[Any]], Any]:
    """As :func:`_several`, without its loops; whatever a call reads is a name of this function."""
    free: list[tuple[Array, Any]] = []
    pop, push, numpy, result_type = free.pop, free.append, np.ndarray, xla.ARRAY

    def run(args: Sequence[Any]) -> Any:
        if len(args) != 1:
            return OTHER
        value = args[0]
        if type(value) is not numpy or value.shape != shape:
            return OTHER
        # The identity is the faster test; numpy has several objects for one dtype.
        if value.dtype is not dtype and value.dtype != dtype:
            return OTHER
        try:
            memory, array = pop()
        except IndexError:
            memory, array = shared(shape, dtype, device)
        memory[...] = value
        result = call(array)
        if type(result) is result_type:
            if result.is_ready():
                push((memory, array))
        elif _is_done(result):
            push((memory, array))
        return result

    return run


def _several(
    specs: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
    device: Device | None,
    call: Callable[..., Any],
) -> Callable[[Sequence[Any]], Any]:
    free: list[tuple[list[Array], list[Any]]] = []
    count = len(specs)

    def run(args: Sequence[Any]) -> Any:
        if len(args) != count:
            return OTHER
        for value, (shape, dtype) in zip(args, specs):  # noqa: B905 - the hot path
            if type(value) is not np.ndarray or value.shape != shape or value.dtype != dtype:
                return OTHER
        try:
            pair = free.pop()
        except IndexError:
            made = [shared(shape, dtype, device) for shape, dtype in specs]
            pair = [memory for memory, _ in made], [array for _, array in made]
        for memory, value in zip(pair[0], args):  # noqa: B905 - the hot path
            memory[...] = value
        result = call(*pair[1])
        if _is_done(result):
            free.append(pair)
        return result

    return run


def shared(shape: tuple[int, ...], dtype: np.dtype[Any], device: Device | None) -> Any:
    """Memory of the host, and the array on the device that (where it can) shares it.

    The memory may be written to when all programs that read the array have ended.
    """
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = np.zeros(size + ALIGNMENT, np.uint8)
    start = -raw.ctypes.data % ALIGNMENT
    memory = raw[start : start + size].view(dtype).reshape(shape)
    return memory, xla.device_put(memory, device, copy=False)


def _is_done(result: Any) -> bool:
    """Whether the program has ended that gives ``result``: its arrays are ready all at once."""
    while type(result) is tuple and result:
        result = result[-1]
    last: Any = result
    return type(last) is xla.ARRAY and last.is_ready()
