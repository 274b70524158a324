"""Slices of volumes side by side, by a function in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/slices.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relax2xla.kernels.native import FAR, TAPS, Call, Family, Tensor, is_measured


@dataclass(frozen=True, slots=True)
class Joined:
    """The slices under a window's depth as channels of one.

    operands: a volume [N, D, H, W, C]. result: [N, ``slices``, H, W, ``groups``, ``depth`` * C /
    ``groups``]: in slice ``s`` each group has its channels of the slices ``s * step - before``,
    ``apart`` behind it and so on, ``depth`` of them; zeros where the volume has none
    """

    volume: tuple[int, int, int, int, int]
    depth: int
    slices: int
    step: int = 1
    apart: int = 1
    before: int = 0
    groups: int = 1

    name: ClassVar[str] = "relax2xla.slices.join"
    symbol: ClassVar[str] = "relax2xla_slices_join"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "apart": self.apart,
            "before": self.before,
            "depth": self.depth,
            "groups": self.groups,
            "slices": self.slices,
            "step": self.step,
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [Tensor(self.volume, "float32")]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        batch, _, height, width, channels = self.volume
        row = self.groups, self.depth * channels // self.groups
        return Tensor((batch, self.slices, height, width, *row), "float32")

    @property
    def numbers(self) -> list[int | float]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [self.depth, self.step, self.apart, self.before]

    @property
    def behind(self) -> int:
        """How many slices behind the volume's last one are asked for."""
        last = (self.slices - 1) * self.step + (self.depth - 1) * self.apart - self.before
        return max(0, last + 1 - self.volume[1])

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if min(*self.volume, self.slices, self.step, self.apart) < 1 or self.before < 0:
            return "sizes and distances are positive"
        if max(self.step, self.apart, self.before, self.behind) > FAR:
            return "distances are moderate"
        if not 1 <= self.depth <= TAPS:
            return f"a window is at most {TAPS} slices deep"
        if self.groups < 1 or self.volume[4] % self.groups:
            return "channels are in groups of one size"
        return ""


def _joined(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    batch, deep, height, width, channels = given[0].shape
    where = (int(at[name]) for name in ("depth", "slices", "step", "apart", "before", "groups"))
    return Joined((batch, deep, height, width, channels), *where)


FAMILY: Final = Family(
    name="slices",
    readers={Joined: _joined},
    source="slices.cpp",
    headers=("activations.h", "threads.h"),
)
# The least numbers of a result that pay; fewer take as long either way.
_LEAST: Final = 8192


def pays(call: Joined) -> bool:
    """Whether a call is faster than XLA here; False where nobody knows.

    One core with AVX-512: XLA's loop decides at each number where it comes from, for 2 ns.
    """
    return is_measured() and math.prod(call.result.shape) >= _LEAST
