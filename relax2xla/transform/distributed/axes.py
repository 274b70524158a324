"""What is said of one axis of a tensor, at all others that go along with it.

An axis of a tensor goes on in results (down), comes from operands (up), or is summed over together
with another (beside). What an annotation says of an axis holds where it is; then where it goes
down; then along mixed ways; then up. Source: TVM's ``relax.distributed`` axis groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from relax2xla.errors import TransformError
from relax2xla.ir import DeviceMesh, Expr

UP, BESIDE, DOWN = 1, 2, 4
_REVERSED: Final = {UP: DOWN, DOWN: UP, BESIDE: BESIDE}
# How much counts what came by a way: here, down, mixed, up.
_WEIGHT: Final = {0: 3, DOWN: 2, UP: 0}


class Axis(NamedTuple):
    """An axis of a tensor, or of a field of a tuple of tensors; -1: the tensor, as on a mesh."""

    tensor: Expr
    number: int
    field: int = 0


class Cut(NamedTuple):
    """An axis of a mesh, along which an axis of a tensor is cut; -1: it is on the mesh."""

    mesh: DeviceMesh
    axis: int


class AxisGraph:
    """Axes, the ways between them, and what is said of some."""

    def __init__(self) -> None:
        self._ways: dict[Axis, list[tuple[Axis, int]]] = {}
        self._said: dict[Axis, Cut] = {}
        self._whole: set[Axis] = set()
        self._found: dict[Axis, Cut] = {}

    def join(self, a: Axis, b: Axis, way: int = DOWN) -> None:
        """``b`` is what ``a`` goes on as (or is summed over together with)."""
        self._ways.setdefault(a, []).append((b, way))
        self._ways.setdefault(b, []).append((a, _REVERSED[way]))

    def say(self, axis: Axis, cut: Cut) -> None:
        """An annotation says what an axis is cut along."""
        self._said[axis] = cut

    def meshes(self) -> list[DeviceMesh]:
        """The meshes that annotations name, each once."""
        return list(dict.fromkeys(cut.mesh for cut in self._said.values()))

    def keep_whole(self, axes: Iterable[Axis]) -> None:
        """Nothing that is said goes to these axes, nor through them."""
        self._whole.update(axes)

    def cut(self, axis: Axis) -> Cut | None:
        """What an axis is cut along, as far as something is known of it."""
        return self._found.get(axis)

    def spread(self) -> None:
        """Find out what is said of each axis; TransformError where two say different things."""
        found: dict[Axis, dict[Cut, tuple[int, Axis]]] = {}
        for source, cut in self._said.items():
            for axis, weight in self._reached(source, cut).items():
                found.setdefault(axis, {})[cut] = max(
                    (weight, source), found.get(axis, {}).get(cut, (-1, source)), key=lambda w: w[0]
                )
        self._found = {axis: _one(axis, cuts) for axis, cuts in found.items()}
        # One axis of a mesh cuts one axis of a tensor: that of which most is said.
        rivals: dict[tuple[Expr, int, Cut], list[tuple[int, Axis]]] = {}
        for axis, cut in self._found.items():
            if cut.axis >= 0:
                entry = (found[axis][cut][0], axis)
                rivals.setdefault((axis.tensor, axis.field, cut), []).append(entry)
        for several in rivals.values():
            most = max(weight for weight, _ in several)
            for weight, axis in several:
                if weight < most:
                    del self._found[axis]

    def _reached(self, source: Axis, cut: Cut) -> dict[Axis, int]:
        """Axes that an annotation reaches, and how much it counts there, by the shortest ways."""
        if source in self._whole:
            return {}
        ways: dict[Axis, set[int]] = {source: {0}}
        level = [source]
        while level:
            following: dict[Axis, set[int]] = {}
            for axis in level:
                for other, step in self._ways.get(axis, ()):
                    blocked = other in self._whole or self._said.get(other, cut) != cut
                    if other not in ways and not blocked:
                        following.setdefault(other, set()).update(w | step for w in ways[axis])
            ways |= following
            level = list(following)
        return {axis: max(_WEIGHT.get(w, 1) for w in found) for axis, found in ways.items()}


def _one(axis: Axis, cuts: dict[Cut, tuple[int, Axis]]) -> Cut:
    most = max(weight for weight, _ in cuts.values())
    left = [(cut, source) for cut, (weight, source) in cuts.items() if weight == most]
    if len(left) == 1:
        return left[0][0]
    told = " and ".join(
        f"{source.tensor} (axis {cut.axis} of the mesh of {cut.mesh.shape})"
        if cut.axis >= 0
        else f"{source.tensor} (on the mesh of devices {list(cut.mesh.device_ids)})"
        for cut, source in left[:2]
    )
    what = f"axis {axis.number} of {axis.tensor}" if axis.number >= 0 else str(axis.tensor)
    raise TransformError(
        f"{what} is told how to be spread by two annotations, which count alike: {told}. Annotate "
        f"{axis.tensor} itself (R.dist.annotate_sharding)"
    )
