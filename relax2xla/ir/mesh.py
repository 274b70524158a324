"""Device meshes and placements: how a tensor is spread over devices.

A range of devices and the list of the same numbers are different meshes, as in TVM.

Source: TVM's ``relax.distributed``.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from relax2xla.errors import TVMError


@dataclass(frozen=True, slots=True)
class DeviceMesh:
    """Devices in a grid: ``device_ids`` in row-major order of ``shape``.

    ``device_range``: the range by which they were given, None for a list.
    """

    shape: tuple[int, ...]
    device_ids: tuple[int, ...]
    device_range: range | None

    def __init__(self, shape: Sequence[int], device_ids: Any) -> None:
        """``device_ids``: a list, or a range (Python's, or one with ``min`` and ``extent``).

        Raises TVMError unless there are as many as the mesh has places.
        """
        if hasattr(device_ids, "extent"):
            first = _number(device_ids.min)
            device_ids = range(first, first + _number(device_ids.extent))
        for given in (shape, device_ids):
            if not isinstance(given, Sequence | np.ndarray) or isinstance(given, str | bytes):
                raise TVMError(
                    "a mesh takes a shape and a list or range of devices; got a "
                    f"{type(given).__name__}"
                )
        object.__setattr__(self, "shape", tuple(map(_number, shape)))
        object.__setattr__(self, "device_range", device_ids if type(device_ids) is range else None)
        # Compared before a tuple is made: a range may be of any length.
        count = prod(self.shape)
        if min(self.shape, default=1) < 1 or count != len(device_ids):
            raise TVMError(
                f"a mesh of shape {self.shape} has {count} devices; got {len(device_ids)}"
            )
        object.__setattr__(self, "device_ids", tuple(map(_number, device_ids)))


def _number(value: Any) -> int:
    value = getattr(value, "value", value)
    try:
        return operator.index(value)
    except TypeError:
        raise TVMError(
            f"the shape and the devices of a mesh are integers; got {value!r}, of type "
            f"{type(value).__name__}"
        ) from None


@dataclass(frozen=True, slots=True)
class Placement:
    """For each axis of a mesh: the axis of the tensor that is cut along it, or None: a copy each.

    Written ``"S[0], R"``: the first axis of the mesh cuts axis 0, the second has copies.
    """

    axes: tuple[int | None, ...]

    @staticmethod
    def from_text(text: str) -> Placement:
        """The placement that ``text`` states, such as ``"S[0], R"``."""
        axes: list[int | None] = []
        for part in text.split(",") if text.strip() else ():
            word = part.strip()
            if word == "R":
                axes.append(None)
            elif word.startswith("S[") and word.endswith("]") and word[2:-1].isdigit():
                axes.append(int(word[2:-1]))
            else:
                raise TVMError(f'a placement is written like "S[0], R"; got {text!r}')
        return Placement(tuple(axes))

    def __str__(self) -> str:
        return ", ".join("R" if a is None else f"S[{a}]" for a in self.axes)
