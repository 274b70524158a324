"""Convolutions and products of float32 with constant weights, by functions in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/products.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from relax2xla import processor
from relax2xla.kernels.native import ENDINGS, Call, Family, Tensor, four, pair

_PREFIX: Final = "relax2xla.products."
#: Results that lie together in a weight; as ``kPanel`` of products.cpp.
PANEL: Final = 16
# Taps of a window in all, and distances.
_TAPS: Final = 1 << 10
_FAR: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of an image [N, H, W, C], with a bias, an addition and what follows.

    operands: the image; the weight [panels, height, width, C, PANEL], panels of results, with zeros
    behind the last; the bias (O,); what is added: like the result, (1,) where nothing is

    ``padding``: top, left, bottom, right.
    """

    image: tuple[int, int, int, int]
    window: tuple[int, int]
    results: int
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    added: bool = False
    ending: str = ""

    name: ClassVar[str] = f"{_PREFIX}convolution"
    symbol: ClassVar[str] = "relax2xla_products_convolve"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "added": self.added,
            "dilation": self.dilation,
            "ending": self.ending,
            "padding": self.padding,
            "strides": self.strides,
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        weight = packed_shape((*self.window, self.image[3]), self.results)
        return _operands(Tensor(self.image, "float32"), weight, self.result, self.added)

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        n, height, width, _ = self.image
        top, left, bottom, right = self.padding
        sizes = (height + top + bottom, width + left + right)
        rows, columns = (
            (size - (taps - 1) * apart - 1) // step + 1
            for size, taps, apart, step in zip(
                sizes, self.window, self.dilation, self.strides, strict=True
            )
        )
        return Tensor((n, rows, columns, self.results), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        where = [*self.window, *self.strides, *self.padding[:2], *self.dilation]
        return [*where, int(self.added), ENDINGS.index(self.ending)]

    @property
    def multiplications(self) -> int:
        """How many the call has."""
        return math.prod((*self.result.shape, *self.window, self.image[3]))

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.ending not in ENDINGS:
            return f"what follows is one of {ENDINGS}"
        if min(*self.image, *self.window, *self.strides, *self.dilation, self.results) < 1:
            return "sizes and distances are positive"
        if min(self.padding) < 0 or max(*self.padding, *self.strides, *self.dilation) > _FAR:
            return "padding takes nothing away, and distances are moderate"
        if math.prod(self.window) > _TAPS:
            return f"a window has at most {_TAPS} taps"
        if min(self.result.shape) < 1:
            return "the window is larger than the image"
        return ""


@dataclass(frozen=True, slots=True)
class Product:
    """A product of [..., K] and a matrix [K, N], with a bias, an addition and what follows.

    operands: the rows; the weight [panels, K, PANEL], panels of columns, with zeros behind the
    last; the bias (N,); what is added: like the result, (1,) where nothing is
    """

    rows: tuple[int, ...]
    results: int
    added: bool = False
    ending: str = ""

    name: ClassVar[str] = f"{_PREFIX}product"
    symbol: ClassVar[str] = "relax2xla_products_multiply"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {"added": self.added, "ending": self.ending}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        weight = packed_shape(self.rows[-1:], self.results)
        return _operands(Tensor(self.rows, "float32"), weight, self.result, self.added)

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((*self.rows[:-1], self.results), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [int(self.added), ENDINGS.index(self.ending)]

    @property
    def multiplications(self) -> int:
        """How many the call has."""
        return math.prod(self.rows) * self.results

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.ending not in ENDINGS:
            return f"what follows is one of {ENDINGS}"
        if not self.rows or min(*self.rows, self.results) < 1:
            return "sizes are positive"
        return ""


def packed_shape(depth: Sequence[int], results: int) -> tuple[int, ...]:
    """The shape of a weight of ``depth`` numbers for each of ``results``, as the functions want."""
    return (-(-results // PANEL), *depth, PANEL)


def _operands(given: Tensor, weight: tuple[int, ...], result: Tensor, added: bool) -> list[Tensor]:
    bias = Tensor(result.shape[-1:], "float32")
    other = result if added else Tensor((1,), "float32")
    return [given, Tensor(weight, "float32"), bias, other]


def _convolution(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    n, h, w, c = given[0].shape
    _, height, width, _, _ = given[1].shape
    where = (pair(at["strides"]), four(at["padding"]), pair(at["dilation"]))
    then = (bool(at["added"]), str(at["ending"]))
    return Convolution((n, h, w, c), (height, width), made.shape[-1], *where, *then)


def _product(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return Product(given[0].shape, made.shape[-1], bool(at["added"]), str(at["ending"]))


# By kind of processor the multiplications from which a call is faster than its form in rows.
_LEAST: Final[Mapping[str, int]] = {"avx2": 200_000}
# Rows that are few: what reads weights at the speed of memory is as fast. Channels that are few:
# other forms are (ExpandFewChannels).
_FEW_ROWS: Final = 4
_FEW_CHANNELS: Final = 8


def pays(call: Convolution | Product) -> bool:
    """Whether a call is faster than its form in rows on this processor; False where nobody knows.

    Measured: ``python -m benchmarks forms``.
    """
    least = _LEAST.get(processor.kind())
    rows = math.prod(call.result.shape[:-1])
    if least is None or call.multiplications < least or rows < _FEW_ROWS:
        return False
    return isinstance(call, Product) or call.image[3] >= _FEW_CHANNELS


FAMILY: Final = Family(
    name="products",
    readers={Convolution: _convolution, Product: _product},
    source="products.cpp",
    headers=("activations.h", "threads.h"),
)
