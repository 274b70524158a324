"""Device meshes and placements: how a tensor is spread over devices.

A range of devices and the list of the same numbers are different meshes, as in TVM.

Source: TVM's ``relax.distributed``.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.errors import TVMError


@dataclass(frozen=True, slots=True)
class DeviceMesh:
    """Devices in a grid: ``device_ids`` in row-major order of ``shape``.

    ``ranged``: they were given by a range, not by a list.
    """

    shape: tuple[int, ...]
    device_ids: tuple[int, ...]
    ranged: bool

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
        object.__setattr__(self, "ranged", type(device_ids) is range)
        # Compared before a tuple is made: a range may be of any length.
        count = prod(self.shape)
        if min(self.shape, default=1) < 1 or count != len(device_ids):
            raise TVMError(
                f"a mesh of shape {self.shape} has {count} devices; got {len(device_ids)}"
            )
        object.__setattr__(self, "device_ids", tuple(map(_number, device_ids)))

    @property
    def device_range(self) -> tir.Range | None:
        """The range by which the devices were given, None for a list."""
        first = self.device_ids[0]
        return tir.Range(first, first + len(self.device_ids)) if self.ranged else None


def _number(value: Any, what: str = "the shape and the devices of a mesh are") -> int:
    value = getattr(value, "value", value)
    try:
        return operator.index(value)
    except TypeError:
        raise TVMError(f"{what} integers; got {value!r}, of type {type(value).__name__}") from None


class PlacementSpecKind(IntEnum):
    """What an axis of a mesh does with a tensor, numbered as in TVM."""

    kSharding = 0
    kReplica = 1


@dataclass(frozen=True, slots=True)
class PlacementSpec:
    """What one axis of a mesh does: ``sharding(axis)`` or ``replica()``.

    ``axis``: the axis of the tensor that is cut, -1 where each device has a copy.
    """

    axis: int

    @staticmethod
    def sharding(axis: int) -> PlacementSpec:
        """The tensor is cut along ``axis``, counted from the front."""
        number = _number(axis, "the axes of a placement are")
        if number < 0:
            raise TVMError(f"a placement names axes from the front, 0 the first; got {axis}")
        return PlacementSpec(number)

    @staticmethod
    def replica() -> PlacementSpec:
        """Every device has a copy of the tensor."""
        return PlacementSpec(-1)

    @property
    def kind(self) -> PlacementSpecKind:
        """Whether the tensor is cut or copied."""
        return PlacementSpecKind.kReplica if self.axis < 0 else PlacementSpecKind.kSharding

    def __str__(self) -> str:
        return "R" if self.axis < 0 else f"S[{self.axis}]"


@dataclass(frozen=True, slots=True)
class Placement:
    """For each axis of a mesh: the axis of the tensor that is cut along it, or None: a copy each.

    Written ``"S[0], R"``: the first axis of the mesh cuts axis 0, the second has copies. Made of
    these axes, or of a PlacementSpec each.
    """

    axes: tuple[int | None, ...]

    def __init__(self, axes: Iterable[int | PlacementSpec | None]) -> None:
        object.__setattr__(self, "axes", tuple(map(_cut, axes)))

    @property
    def dim_specs(self) -> tuple[PlacementSpec, ...]:
        """What each axis of the mesh does, under TVM's name."""
        return tuple(PlacementSpec(-1 if a is None else a) for a in self.axes)

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
        return ", ".join(map(str, self.dim_specs))


def _cut(spec: int | PlacementSpec | None) -> int | None:
    """The axis that is cut, None where nothing is."""
    if isinstance(spec, PlacementSpec):
        return None if spec.axis < 0 else spec.axis
    return spec if spec is None else PlacementSpec.sharding(spec).axis
