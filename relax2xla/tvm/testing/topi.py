"""``tvm.topi.testing``: results by numpy that tests compare with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt


def strided_slice_python(
    data: npt.NDArray[Any],
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int] | int,
    slice_mode: str = "end",
    axes: Sequence[int] | None = None,
) -> npt.NDArray[Any]:
    """``data[begin:end:strides]`` along ``axes`` (all of them, in order, otherwise).

    slice_mode: "end"; with "size" ``end`` counts elements (-1: all that are left), strides are 1
    """
    steps = [strides] * len(begin) if isinstance(strides, int) else list(strides)
    steps += [1] * (len(begin) - len(steps))
    places = [slice(None)] * data.ndim
    for axis, first, last, step in zip(axes or range(len(begin)), begin, end, steps, strict=True):
        if slice_mode == "size":
            places[axis] = slice(first, None if last == -1 else first + last)
        else:
            places[axis] = slice(first, last, step)
    return np.asarray(data[tuple(places)])
