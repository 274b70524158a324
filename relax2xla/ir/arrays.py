"""Constants compared and hashed as values: bit for bit, NaN equal to NaN, splats not expanded."""

from __future__ import annotations

import numpy as np

from relax2xla.dtypes import Array

CHUNK = 1 << 20
SAMPLES = 64


def arrays_equal(a: Array, b: Array) -> bool:
    """Whether two arrays have the same dtype, shape and values.

    Zeros of different sign differ and every NaN equals every NaN. Axes of stride 0 in both (splat
    constants) are looked at once, and what is compared at a time is at most a megabyte or so.
    """
    if a is b:
        return True
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.size == 0:
        return True
    once = tuple(
        slice(0, 1) if x == 0 == y else slice(None)
        for x, y in zip(a.strides, b.strides, strict=True)
    )
    stack = [(a[once], b[once])] if a.ndim else [(a.reshape(1), b.reshape(1))]
    while stack:
        x, y = stack.pop()
        if x.size > CHUNK:
            axis = int(np.argmax(x.shape))
            half = x.shape[axis] // 2
            for part in (slice(half, None), slice(0, half)):
                index = (*(slice(None),) * axis, part)
                stack.append((x[index], y[index]))
        elif not _chunk_equal(np.ascontiguousarray(x), np.ascontiguousarray(y)):
            return False
    return True


def _chunk_equal(x: Array, y: Array) -> bool:
    different = (_bits(x) != _bits(y)).reshape(x.size, -1).any(axis=1)
    if not different.any():
        return True
    p, q = x.reshape(-1)[different], y.reshape(-1)[different]
    return bool(((p != p) & (q != q)).all())


def _bits(x: Array) -> Array:
    return x.reshape(-1).view(np.uint8 if x.itemsize % 8 else np.uint64)


def array_hash(a: Array) -> int:
    """A hash of dtype, shape and some of the values; the same for equal arrays."""
    if a.size == 0:
        return hash((a.dtype.str, a.shape))
    count = min(a.size, SAMPLES)
    flat = [i * (a.size - 1) // max(count - 1, 1) for i in range(count)]
    picked = np.ascontiguousarray(a[np.unravel_index(flat, a.shape)] if a.ndim else a.reshape(1))
    nan = picked != picked
    values = picked.view(np.uint8).reshape(picked.size, -1).copy()
    values[nan] = 0
    return hash((a.dtype.str, a.shape, values.tobytes()))
