"""Device meshes and placements: how a tensor is spread over devices.

A range of devices and the list of the same numbers are different meshes, as in TVM.

Source: TVM's ``relax.distributed``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from relax2xla.errors import TVMError


@dataclass(frozen=True, slots=True)
class DeviceMesh:
    """Devices in a grid: ``device_ids`` in row-major order of ``shape``.

    ``device_range``: the range by which they were given, None for a list.
    """

    shape: tuple[int, ...]
    device_ids: tuple[int, ...]
    device_range: range | None

    def __init__(self, shape: Iterable[int], device_ids: Any) -> None:
        """``device_ids``: a list, or a range (Python's, or one with ``min`` and ``extent``).

        Raises TVMError unless there are as many as the mesh has places.
        """
        if hasattr(device_ids, "extent"):
            first = int(device_ids.min)
            device_ids = range(first, first + int(device_ids.extent))
        object.__setattr__(self, "shape", tuple(int(d) for d in shape))
        object.__setattr__(self, "device_range", device_ids if type(device_ids) is range else None)
        # Compared before a tuple is made: a range may be of any length.
        count = prod(self.shape)
        if min(self.shape, default=1) < 1 or count != len(device_ids):
            raise TVMError(
                f"a mesh of shape {self.shape} has {count} devices; got {len(device_ids)}"
            )
        object.__setattr__(self, "device_ids", tuple(int(d) for d in device_ids))


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
