"""Layer norm and RMS norm over the last axis, by a function in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/norms.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relax2xla.kernels.native import Call, Family, Plain, Tensor, is_measured, pair

# The most numbers that a vector has: the function takes no shorter rows.
_SHORTEST: Final = 16


@dataclass(frozen=True, slots=True)
class Norm:
    """``(x - mean) / sqrt(variance + epsilon) * scale + shift`` of each row; a layer norm.

    operands: the rows [..., C]; the scale (C,); the shift (C,), which is (1,) and not read where
    rows are not centered. result: like the rows

    shape: of the rows. Not ``centered`` it is an RMS norm, ``x / sqrt(mean(x^2) + epsilon) *
    scale``.
    """

    shape: tuple[int, ...]
    epsilon: float
    centered: bool

    name: ClassVar[str] = "relax2xla.norms.norm"
    symbol: ClassVar[str] = "relax2xla_norms_normalise"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {"centered": self.centered, "epsilon": self.epsilon}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        scale = self.shape[-1:]
        shapes = (self.shape, scale, scale if self.centered else (1,))
        return [Tensor(shape, "float32") for shape in shapes]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor(self.shape, "float32")

    @property
    def numbers(self) -> list[int | float]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [int(self.centered), self.epsilon]

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if min(self.shape, default=0) < 1 or self.shape[-1] < _SHORTEST:
            return f"sizes are positive, and a row has at least {_SHORTEST} numbers"
        if not 0 <= self.epsilon < math.inf:
            return "what is added to a variance is finite, and takes nothing away"
        return ""


@dataclass(frozen=True, slots=True)
class NormGradient(Plain):
    """The gradient of a layer norm's rows, given that of its result.

    operands: the gradient [rows, C]; the rows, alike; the mean of each (rows,); what it is
    multiplied by without that, the reciprocal root of its variance (rows,); the scale (C,). result:
    like the gradient

    shape: of the rows
    """

    shape: tuple[int, int]

    name: ClassVar[str] = "relax2xla.norms.gradient"
    symbol: ClassVar[str] = "relax2xla_norms_differentiate"

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        rows, scale = self.shape[:1], self.shape[1:]
        shapes = (self.shape, self.shape, rows, rows, scale)
        return [Tensor(shape, "float32") for shape in shapes]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor(self.shape, "float32")

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if len(self.shape) != 2 or min(self.shape) < 1:
            return "rows are [rows, numbers], of positive sizes"
        return ""


def _gradient(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return NormGradient(pair(given[0].shape))


def _norm(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return Norm(given[0].shape, float(at["epsilon"]), bool(at["centered"]))


FAMILY: Final = Family(
    name="norms",
    readers={Norm: _norm, NormGradient: _gradient},
    source="norms.cpp",
    headers=("activations.h", "numbers.h", "threads.h", "turn.h"),
)
# The least size that pays, in more than one row. One core with AVX-512 (Sapphire Rapids), other
# programs at work, beside the loops of XLA: layer norms of 197 x 768 0.3 of the time, 128 x 768
# 0.45, 49 x 1024 0.5, 1024 x 32 0.75, 64 x 64 0.7; RMS norms 0.65 to 0.85. One row of an RMS norm
# takes as long either way. Two cores: 0.4 to 0.55, RMS norms 0.6 to 0.75; smaller ones up to 1.3.
_LEAST: Final = 4096


def pays(call: Norm | NormGradient) -> bool:
    """Whether a call is faster than its form in rows here; False where nobody knows."""
    return is_measured() and math.prod(call.shape) >= max(_LEAST, 2 * call.shape[-1])
