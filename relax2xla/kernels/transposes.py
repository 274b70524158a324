"""Transpositions by a function in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/transposes.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Final

from relax2xla.kernels.native import Call, Family, Tensor, is_measured

#: What the function moves: numbers of four bytes, as they are.
DTYPES: Final = ("float32", "int32", "uint32")
# The function takes the order as one number, four bits for each axis.
_MOST_AXES: Final = 8


@dataclass(frozen=True, slots=True)
class Transpose:
    """A tensor with its axes in another order, another one of them the last.

    operands: the tensor, of ``shape``. result: its axis i is the axis ``order[i]`` of the tensor,
    backwards where it is ``flipped``
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    dtype: str = "float32"
    flipped: tuple[int, ...] = ()

    name: ClassVar[str] = "relax2xla.transposes.transpose"
    symbol: ClassVar[str] = "relax2xla_transposes_transpose"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        flipped = {"flipped": list(self.flipped)} if self.flipped else {}
        return {"order": list(self.order), **flipped}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [Tensor(self.shape, self.dtype)]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor(tuple(self.shape[a] for a in self.order), self.dtype)

    @property
    def numbers(self) -> list[int | float]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        axes = sum(axis << 4 * i for i, axis in enumerate(self.order))
        return [axes, sum(1 << axis for axis in self.flipped)]

    @property
    def runs(self) -> int:
        """How many there are of axes that stay neighbours."""
        axes = [a for a in self.order if self.shape[a] != 1]
        kept = [a for a in range(len(self.shape)) if self.shape[a] != 1]
        follows = dict(pairwise(kept))
        return 1 + sum(follows.get(a) != b for a, b in pairwise(axes))

    @property
    def block(self) -> tuple[int, int]:
        """Numbers that lie together in the result, but not in the operand; and the other way round.

        In the operand the former are as far from each other as the latter are many. Both are 1
        where the last axis stays the last.
        """
        axes = [a for a in self.order if self.shape[a] != 1]
        rows, columns = axes[axes.index(max(axes)) + 1 :], range(axes[-1] + 1, len(self.shape))
        return math.prod(self.shape[a] for a in rows), math.prod(self.shape[a] for a in columns)

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if min(self.shape, default=0) < 1 or len(self.shape) > _MOST_AXES:
            return f"sizes are positive, of at most {_MOST_AXES} axes"
        if sorted(self.order) != list(range(len(self.shape))):
            return "the order has each axis once"
        if max(self.shape) == 1 or self.block == (1, 1):
            return "the last axis becomes another one"
        wide = [i for i, axis in enumerate(self.order) if self.shape[axis] > 1]
        if [*self.flipped] != sorted({*self.flipped} & {*wide[:-1]}):
            return "axes that are flipped are in order, and the last is none of them"
        return "" if self.dtype in DTYPES else f"numbers are of {' or '.join(DTYPES)}"


def _transpose(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    order, flipped = (tuple(map(int, at.get(name, ()))) for name in ("order", "flipped"))
    return Transpose(given[0].shape, order, given[0].dtype, flipped)


FAMILY: Final = Family(
    name="transposes",
    readers={Transpose: _transpose},
    source="transposes.cpp",
    headers=("activations.h", "threads.h", "turn.h"),
)
# The least sizes that pay: of the tensor, of a block, and of a block's sides. One core with AVX-512
# (Sapphire Rapids), beside the loops of XLA: 0.25 to 0.8 of the time; 64 x 64 takes as long either
# way, and 3 channels 1.3 to 1.5 times as long. Where runs stay together XLA is as fast.
_LEAST, _LEAST_BLOCK, _LEAST_SIDE = 8192, 1024, 8
# The least rows beside a loop that reads the result, which takes 0.45 to 0.65 of the time together
# with a call; of 64 it takes up to 1.2.
_LEAST_READ: Final = 128
# Beside a loop that computes the operand: rows, numbers between them, and of 64 sets of lines of a
# cache those that it keeps of each. Where it does not keep the lines until a loop over the result
# is through with them, calls take 0.2 to 0.8 of the time, elsewhere 0.9 to 1.8.
_LEAST_COMPUTED, _LEAST_APART, _KEPT = 96, 32, 12
_SETS, _LINE = 64, 16


def pays(call: Transpose, computed: bool, read: bool) -> bool:
    """Whether a call is faster than XLA here; False where nobody knows.

    computed, read: whether a loop computes the operand, or loops alone read the result, of which
    XLA and the transposition make one
    """
    rows, columns = call.block
    small = math.prod(call.shape) < _LEAST or rows * columns < _LEAST_BLOCK
    if not is_measured() or small or min(rows, columns) < _LEAST_SIDE:
        return False
    if not computed:
        return not read or rows >= _LEAST_READ
    # Rows that are a whole number of lines apart share as few sets as these have in common.
    lines = _KEPT * _SETS // math.gcd(columns // _LINE, _SETS)
    return columns % _LEAST_APART == 0 and rows > max(_LEAST_COMPUTED, lines)
