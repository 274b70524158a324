"""Convolutions of planes with as many groups as channels, by functions in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/depthwise.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relax2xla.kernels.native import ENDINGS, FAR, Call, Family, Tensor, four, pair
from relax2xla.kernels.products import PANEL, packed_shape

_PREFIX: Final = "relax2xla.depthwise."
#: The orders in which an image may lie.
LAYOUTS: Final = ("NHWC", "NCHW")
# Taps in a row of the window, which registers hold, and in all; distances between windows in a row.
_WIDEST: Final = 7
_TALLEST: Final = 64
_STEPS: Final = (1, 2)


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of float32, with a bias and what follows it.

    operands: the image; the weight [height, width, 1, C]; the bias (C,)

    image, result: their shapes as NHWC. ``padding``: top, left, bottom, right.
    """

    image: tuple[int, int, int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    image_layout: str = "NHWC"
    result_layout: str = "NHWC"
    ending: str = ""

    name: ClassVar[str] = f"{_PREFIX}convolution"
    symbol: ClassVar[str] = "relax2xla_depthwise_convolve"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "ending": self.ending,
            "image_layout": self.image_layout,
            "padding": self.padding,
            "result_layout": self.result_layout,
            "strides": self.strides,
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [
            _laid(self.image, self.image_layout),
            _weight(self.window, self.image[3]),
            Tensor(self.image[3:], "float32"),
        ]

    @property
    def made(self) -> tuple[int, int, int, int]:
        """The shape of the result as NHWC."""
        n, height, width, channels = self.image
        top, left, bottom, right = self.padding
        sizes = (height + top + bottom, width + left + right)
        rows, columns = (
            (size - taps) // step + 1
            for size, taps, step in zip(sizes, self.window, self.strides, strict=True)
        )
        return n, rows, columns, channels

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return _laid(self.made, self.result_layout)

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        firsts = (int(v == "NCHW") for v in (self.image_layout, self.result_layout))
        return [*self.strides, *self.padding[:2], *firsts, ENDINGS.index(self.ending)]

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.ending not in ENDINGS:
            return f"what follows is one of {ENDINGS}"
        if min(self.strides) < 1:
            return "windows are a positive distance apart"
        layouts = (self.image_layout, self.result_layout)
        return _problem(self.image, self.made, self.window, self.strides, self.padding, layouts)


@dataclass(frozen=True, slots=True)
class Expanded(Convolution):
    """A convolution of a product, which is made as far as it is read, and never there as a whole.

    operands: the rows [N, H, W, K] of the product; its weight [panels, K, PANEL] and bias (C,), as
    :class:`relax2xla.kernels.products.Product` takes them; then the weight of the convolution and
    its bias

    ``image``: the shape of the product, in NHWC; given: K; first: what follows the product.
    """

    given: int = 1
    first: str = ""

    name: ClassVar[str] = f"{_PREFIX}expanded"
    symbol: ClassVar[str] = "relax2xla_depthwise_convolve_product"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "ending": self.ending,
            "first": self.first,
            "padding": self.padding,
            "result_layout": self.result_layout,
            "strides": self.strides,
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        channels = self.image[3]
        bias = Tensor((channels,), "float32")
        rows = Tensor((*self.image[:3], self.given), "float32")
        panels = Tensor(packed_shape((self.given,), channels), "float32")
        return [rows, panels, bias, _weight(self.window, channels), bias]

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        endings = (ENDINGS.index(e) for e in (self.first, self.ending))
        return [*self.strides, *self.padding[:2], int(self.result_layout == "NCHW"), *endings]

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.first not in ENDINGS or self.given < 1:
            return f"what follows is one of {ENDINGS}, and a product has a positive depth"
        if self.image_layout != "NHWC":
            return "a product has its channels last"
        if problem := Convolution.problem(self):
            return problem
        # All channels are in memory at once.
        line = _line(self.image, self.made, self.window, self.strides, self.padding)
        if line * math.prod(packed_shape((), self.image[3])) > _MOST_NEAR:
            return "the lines under a row of results are too large"
        return ""


# Numbers under a row of results.
_MOST_NEAR: Final = 1 << 25
# The least size of a product that is made as far as it is read, the same where its rows are short,
# and the depth from which the tiles of one panel that it is made in are too slow: on Cascade Lake
# (caches of 1 MB, 11 with neighbours) 112 x 112 x 64 of 16 take 0.56 of the time of two calls, 56 x
# 56 x 72 of 24 0.75, 28 x 28 x 240 of 40 as long, 14 x 14 x 672 of 112 longer; eight images 0.3 to
# 0.7 for the first three, and 0.75 to 0.9.
_LARGE: Final = 200_000
_LARGE_SHORT: Final = 600_000
_SHORT: Final = 28
_DEEPEST: Final = 128


def pays(call: Expanded) -> bool:
    """Whether one call is faster than a product and a convolution: where that saves memory."""
    least = _LARGE if call.image[2] > _SHORT else _LARGE_SHORT
    return call.given <= _DEEPEST and math.prod(call.image) >= least


@dataclass(frozen=True, slots=True)
class WeightGradient:
    """The gradient of the weight of a convolution whose result has the gradient that is given.

    operands: the image; the gradient of the result. result: [height, width, 1, C]

    image, gradient: their shapes as NHWC. ``top``, ``left``: the padding before the image; behind
    it there is what windows that are ``strides`` apart reach.
    """

    image: tuple[int, int, int, int]
    gradient: tuple[int, int, int, int]
    window: tuple[int, int]
    strides: tuple[int, int]
    top: int
    left: int
    image_layout: str = "NHWC"
    gradient_layout: str = "NHWC"

    name: ClassVar[str] = f"{_PREFIX}weight_gradient"
    symbol: ClassVar[str] = "relax2xla_depthwise_weight_gradient"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "gradient_layout": self.gradient_layout,
            "image_layout": self.image_layout,
            "padding": (self.top, self.left),
            "strides": self.strides,
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [
            _laid(self.image, self.image_layout),
            _laid(self.gradient, self.gradient_layout),
        ]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return _weight(self.window, self.image[3])

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        firsts = (int(v == "NCHW") for v in (self.image_layout, self.gradient_layout))
        return [*self.strides, self.top, self.left, *firsts]

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if (self.image[0], self.image[3]) != (self.gradient[0], self.gradient[3]):
            return "image and gradient have one batch and the same channels"
        layouts = (self.image_layout, self.gradient_layout)
        padding = (self.top, self.left, 0, 0)
        return _problem(self.image, self.gradient, self.window, self.strides, padding, layouts)


def _problem(
    image: Sequence[int],
    made: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
    layouts: Sequence[str],
) -> str:
    """What is wrong with windows over an image that make planes; "" for nothing."""
    if any(v not in LAYOUTS for v in layouts):
        return f"images lie as one of {LAYOUTS}"
    if min(*image, *made, *window, strides[0]) < 1 or min(padding) < 0:
        return "sizes are positive, and padding takes nothing away"
    if window[1] > _WIDEST or window[0] > _TALLEST or strides[1] not in _STEPS:
        return f"a window has up to {_WIDEST} taps in a row, and is one or two from the next"
    line = _line(image, made, window, strides, padding)
    if max(strides[0], *padding) > FAR or line * PANEL > _MOST_NEAR:
        return "the window is too large"
    return ""


def _line(
    image: Sequence[int],
    made: Sequence[int],
    window: Sequence[int],
    strides: Sequence[int],
    padding: Sequence[int],
) -> int:
    """Pixels of the lines under a row of results, with what is around them."""
    reach = (made[2] - 1) * strides[1] + window[1]
    return window[0] * max(reach, padding[1] + image[2])


def _laid(shape: Sequence[int], layout: str) -> Tensor:
    """A tensor of the shape NHWC, in a layout."""
    return Tensor(tuple(shape["NHWC".index(axis)] for axis in layout), "float32")


def _weight(window: Sequence[int], channels: int) -> Tensor:
    return Tensor((*window, 1, channels), "float32")


def _lies(t: Tensor, layout: str) -> tuple[int, int, int, int]:
    """The shape of a tensor as NHWC; ValueError where it has not four axes."""
    n, height, width, channels = (t.shape[layout.index(axis)] for axis in "NHWC")
    if len(t.shape) != len(layout):
        raise ValueError("an image has four axes")
    return n, height, width, channels


def _convolution(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    height, width, _, _ = given[1].shape
    image, result = str(at["image_layout"]), str(at["result_layout"])
    where = (pair(at["strides"]), four(at["padding"]), image, result)
    return Convolution(_lies(given[0], image), (height, width), *where, str(at["ending"]))


def _expanded(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    n, rows, columns, depth = given[0].shape
    height, width, _, channels = given[3].shape
    where = (pair(at["strides"]), four(at["padding"]), "NHWC", str(at["result_layout"]))
    image = (n, rows, columns, channels)
    return Expanded(
        image, (height, width), *where, str(at["ending"]), given=depth, first=str(at["first"])
    )


def _weight_gradient(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    height, width, _, _ = made.shape
    layouts = str(at["image_layout"]), str(at["gradient_layout"])
    image, gradient = (_lies(t, v) for t, v in zip(given, layouts, strict=True))
    where = (pair(at["strides"]), *pair(at["padding"]))
    return WeightGradient(image, gradient, (height, width), *where, *layouts)


FAMILY: Final = Family(
    name="depthwise",
    readers={
        Convolution: _convolution,
        Expanded: _expanded,
        WeightGradient: _weight_gradient,
    },
    source="depthwise.cpp",
    headers=("activations.h", "products/tile.h", "threads.h", "turn.h"),
)
