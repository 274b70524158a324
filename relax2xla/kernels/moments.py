"""Mean and variance of each channel, the sums of norms' gradients, and a batch norm's, in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/moments.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from relax2xla.kernels.native import Call, Family, Plain, Reader, Tensor, is_measured


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


@dataclass(frozen=True, slots=True)
class BatchGradient(Plain):
    """The gradient of what a batch norm in training reads, given that of its result.

    ``(gradient - (x - mean) * s * power / count - r / count) * factor`` with the sums of
    :class:`Sums`, ``r`` of the gradient and ``s`` of the product, of ``count`` numbers a channel.

    operands: the gradient [outer, channels, inner]; the numbers ``x``, alike; their means
    (channels,); ``power``, by which a variance is divided (channels,); ``factor``, by which the
    batch norm multiplied (channels,). results: like the gradient; the sums (2, channels)

    shape: of what is read
    """

    shape: tuple[int, ...]

    name: ClassVar[str] = "relax2xla.moments.batch_gradient"
    symbol: ClassVar[str] = "relax2xla_moments_batch_gradient"

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        channels = self.shape[1:2]
        shapes = (self.shape, self.shape, channels, channels, channels)
        return [Tensor(shape, "float32") for shape in shapes]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor(self.shape, "float32")

    @property
    def sums(self) -> Sums:
        """The call for the sums alone."""
        return Sums(self.shape)

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return self.sums.problem()


AnyCall = Moments | Sums | RowSums | BatchGradient


def _reader(kind: type[AnyCall]) -> Reader:
    """Makes the call of a kind that a composite asks for."""
    return lambda at, given, made: kind(given[0].shape)


def _further(call: Call) -> Sequence[Tensor]:
    return [call.sums.result] if isinstance(call, BatchGradient) else []


FAMILY: Final = Family(
    name="moments",
    readers={kind: _reader(kind) for kind in (Moments, Sums, RowSums, BatchGradient)},
    source="moments.cpp",
    headers=("activations.h", "numbers.h", "threads.h", "turn.h"),
    further=_further,
)
# Numbers that are worth a call.
_LEAST: Final = 4096


def pays(call: AnyCall) -> bool:
    """Whether a call is faster than its form in rows here; False where nobody knows."""
    return is_measured() and math.prod(call.shape) >= _LEAST
