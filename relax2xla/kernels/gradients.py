"""Gradients of the weights of convolutions and products, by a function in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/gradients.cpp`` how it is computed. Those of depthwise convolutions are
in ``kernels/depthwise.py``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relax2xla.kernels.native import FAR, TAPS, Call, Family, Plain, Tensor, pair

#: How the weight lies, its results along the last axis or the first, with the axes of a window.
LAYOUTS: Final = {"last": "HWIO", "first": "OIHW"}


@dataclass(frozen=True, slots=True)
class WeightGradient:
    """The gradient of the weight of a convolution whose result has the gradient that is given.

    operands: the image [N, H, W, C]; the gradient of the result [N, rows, columns, O]. result: in
    the layout that ``lies`` names, with the C / groups channels of a group

    ``top``, ``left``: the padding before the image; behind it there is what windows reach.
    """

    image: tuple[int, int, int, int]
    gradient: tuple[int, int, int, int]
    window: tuple[int, int] = (1, 1)
    strides: tuple[int, int] = (1, 1)
    top: int = 0
    left: int = 0
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    lies: str = "first"

    name: ClassVar[str] = "relax2xla.gradients.weight"
    symbol: ClassVar[str] = "relax2xla_gradients_of_weight"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "dilation": self.dilation,
            "groups": self.groups,
            "lies": self.lies,
            "padding": (self.top, self.left),
            "strides": self.strides,
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [Tensor(self.image, "float32"), Tensor(self.gradient, "float32")]

    @property
    def sizes(self) -> dict[str, int]:
        """Of the axes of the weight, by their letters."""
        axes = (*self.window, self.image[3] // self.groups, self.gradient[3])
        return dict(zip("HWIO", axes, strict=True))

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor(tuple(self.sizes[axis] for axis in LAYOUTS[self.lies]), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        where = [*self.strides, self.top, self.left, *self.dilation]
        return [*where, self.groups, int(self.lies == "first")]

    @property
    def multiplications(self) -> int:
        """How many the call has."""
        return math.prod((*self.gradient[:3], *self.result.shape))

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.lies not in LAYOUTS:
            return f"a weight lies as one of {tuple(LAYOUTS)}"
        sizes = (*self.image, *self.gradient, *self.window)
        if min(*sizes, *self.strides, *self.dilation) < 1:
            return "sizes and distances are positive"
        if self.image[0] != self.gradient[0]:
            return "image and gradient have one batch"
        if self.groups < 1 or self.image[3] % self.groups or self.gradient[3] % self.groups:
            return "channels and results are in groups of one size"
        if min(self.top, self.left) < 0:
            return "padding takes nothing away"
        if max(self.top, self.left, *self.strides, *self.dilation) > FAR:
            return "padding and distances are moderate"
        if math.prod(self.window) > TAPS:
            return f"a window has at most {TAPS} taps"
        return ""


@dataclass(frozen=True, slots=True)
class MatrixGradient(Plain):
    """The gradient of the matrix (results, channels) of a product whose result has the one given.

    operands: the rows [pixels, channels]; the gradient of the result [pixels, results]

    It is that of a convolution without windows, whose operands XLA would compute twice where
    something else reads them as matrices.
    """

    rows: tuple[int, int]
    results: int

    name: ClassVar[str] = "relax2xla.gradients.matrix"
    symbol: ClassVar[str] = "relax2xla_gradients_of_matrix"

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [Tensor(self.rows, "float32"), Tensor((self.rows[0], self.results), "float32")]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((self.results, self.rows[1]), "float32")

    @property
    def convolution(self) -> WeightGradient:
        """The same of a convolution."""
        pixels, channels = self.rows
        return WeightGradient((1, 1, pixels, channels), (1, 1, pixels, self.results))

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return self.convolution.problem()


def _weight(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    lies = str(at["lies"])
    n, height, width, channels = given[0].shape
    m, rows, columns, results = given[1].shape
    sizes = dict(zip(LAYOUTS[lies], made.shape, strict=True))
    return WeightGradient(
        (n, height, width, channels),
        (m, rows, columns, results),
        (sizes["H"], sizes["W"]),
        pair(at["strides"]),
        *pair(at["padding"]),
        pair(at["dilation"]),
        int(at["groups"]),
        lies,
    )


def _matrix(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return MatrixGradient(pair(given[0].shape), given[1].shape[1])


FAMILY: Final = Family(
    name="gradients",
    readers={WeightGradient: _weight, MatrixGradient: _matrix},
    source="gradients.cpp",
    headers=(
        "activations.h",
        "pages.h",
        "products/interleaved.h",
        "products/tile.h",
        "threads.h",
        "turn.h",
    ),
)
# Multiplications that are worth a call, and results along an axis that fill half a vector.
_LEAST: Final = 1 << 16
_HALF: Final = 8


def pays(call: WeightGradient) -> bool:
    """Whether a call is faster than its form in rows."""
    few = min(call.image[3] * math.prod(call.window), call.gradient[3]) < _HALF
    return call.multiplications >= _LEAST and not few
