"""Mean and variance of each channel, and the sums of norms' gradients, in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/moments.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Final

from relax2xla.kernels.native import Family, Plain, Reader, Tensor, is_measured


@dataclass(frozen=True, slots=True)
class _Two(Plain):
    """A call that gives two numbers for each channel, as (2, channels).

    shape: of what is read, channels as its second axis
    """

    shape: tuple[int, ...]

    axes: ClassVar[str]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((2, self.shape[1]), "float32")

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if len(self.shape) != len(self.axes.split()) or min(self.shape) < 1:
            return f"numbers have the axes {self.axes}, of positive sizes"
        return ""


@dataclass(frozen=True, slots=True)
class Moments(_Two):
    """The mean of each channel, and the variance without a correction.

    operands: numbers [outer, channels, inner]
    """

    axes: ClassVar[str] = "outer channels inner"
    name: ClassVar[str] = "relax2xla.moments.moments"
    symbol: ClassVar[str] = "relax2xla_moments_moments"

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [Tensor(self.shape, "float32")]


@dataclass(frozen=True, slots=True)
class Sums(_Two):
    """The sum of a gradient for each channel, and of its product with numbers without their mean.

    operands: the gradient [outer, channels, inner]; the numbers, alike; their means (channels,)
    """

    axes: ClassVar[str] = "outer channels inner"
    name: ClassVar[str] = "relax2xla.moments.sums"
    symbol: ClassVar[str] = "relax2xla_moments_sums"

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        shapes = (self.shape, self.shape, self.shape[1:2])
        return [Tensor(shape, "float32") for shape in shapes]


@dataclass(frozen=True, slots=True)
class RowSums(_Two):
    """The sums of a gradient's rows, and of their products with rows that a layer norm has made.

    operands: the gradient [rows, channels]; the rows, alike; the mean of each row (rows,); what it
    is multiplied by without that (rows,)
    """

    axes: ClassVar[str] = "rows channels"
    name: ClassVar[str] = "relax2xla.moments.row_sums"
    symbol: ClassVar[str] = "relax2xla_moments_row_sums"

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        rows = self.shape[:1]
        return [Tensor(shape, "float32") for shape in (self.shape, self.shape, rows, rows)]


def _reader(kind: type[Moments | Sums | RowSums]) -> Reader:
    """Makes the call of a kind that a composite asks for."""
    return lambda at, given, made: kind(given[0].shape)


FAMILY: Final = Family(
    name="moments",
    readers={kind: _reader(kind) for kind in (Moments, Sums, RowSums)},
    source="moments.cpp",
    headers=("activations.h", "numbers.h", "threads.h", "turn.h"),
)
# Numbers that are worth a call.
_LEAST: Final = 4096


def pays(call: Moments | Sums | RowSums) -> bool:
    """Whether a call is faster than its form in rows here; False where nobody knows."""
    return is_measured() and math.prod(call.shape) >= _LEAST
