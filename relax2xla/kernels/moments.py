"""Mean and variance of each channel, and the sums of norms' gradients, in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/moments.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relax2xla.kernels.native import Call, Family, Tensor, is_measured, pair


@dataclass(frozen=True, slots=True)
class Moments:
    """The mean of each channel, and the variance without a correction.

    operands: numbers [outer, channels, inner]. result: (2, channels), means and variances

    shape: of the numbers
    """

    shape: tuple[int, int, int]

    name: ClassVar[str] = "relax2xla.moments.moments"
    symbol: ClassVar[str] = "relax2xla_moments_moments"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [Tensor(self.shape, "float32")]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((2, self.shape[1]), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return []

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if len(self.shape) != 3 or min(self.shape) < 1:
            return "numbers are [outer, channels, inner], of positive sizes"
        return ""


@dataclass(frozen=True, slots=True)
class Sums:
    """The sum of a gradient for each channel, and of its product with numbers without their mean.

    operands: the gradient [outer, channels, inner]; the numbers, alike; their means (channels,).
    result: (2, channels), the one sum and the other

    shape: of the gradient
    """

    shape: tuple[int, int, int]

    name: ClassVar[str] = "relax2xla.moments.sums"
    symbol: ClassVar[str] = "relax2xla_moments_sums"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        shapes = (self.shape, self.shape, self.shape[1:2])
        return [Tensor(shape, "float32") for shape in shapes]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((2, self.shape[1]), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return []

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Moments(self.shape).problem()


@dataclass(frozen=True, slots=True)
class RowSums:
    """The sums of a gradient's rows, and of their products with rows that a layer norm has made.

    operands: the gradient [rows, channels]; the numbers, alike; the mean of each row (rows,); what
    it is multiplied by without that (rows,). result: (2, channels), the one sum and the other

    shape: of the gradient
    """

    shape: tuple[int, int]

    name: ClassVar[str] = "relax2xla.moments.row_sums"
    symbol: ClassVar[str] = "relax2xla_moments_row_sums"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        rows = self.shape[:1]
        return [Tensor(shape, "float32") for shape in (self.shape, self.shape, rows, rows)]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((2, self.shape[1]), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return []

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if len(self.shape) != 2 or min(self.shape) < 1:
            return "numbers are [rows, channels], of positive sizes"
        return ""


def _three(given: Sequence[Tensor]) -> tuple[int, int, int]:
    outer, channels, inner = given[0].shape
    return outer, channels, inner


def _moments(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return Moments(_three(given))


def _sums(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return Sums(_three(given))


def _row_sums(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return RowSums(pair(given[0].shape))


FAMILY: Final = Family(
    name="moments",
    readers={Moments: _moments, Sums: _sums, RowSums: _row_sums},
    source="moments.cpp",
    headers=("activations.h", "threads.h", "turn.h"),
)
# Numbers that are worth a call.
_LEAST: Final = 4096


def pays(call: Moments | Sums | RowSums) -> bool:
    """Whether a call is faster than its form in rows here; False where nobody knows."""
    return is_measured() and math.prod(call.shape) >= _LEAST
