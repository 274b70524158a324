"""Convolutions and products of float32 with weights, by functions in C++.

Weights that are known at load are laid out in panels there. Those that come with each call are
given as they lie, and a function packs a panel right before it is used.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/products.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from relax2xla import processor
from relax2xla.kernels.native import ENDINGS, FAR, TAPS, Call, Family, Tensor, four, pair

_PREFIX: Final = "relax2xla.products."
#: Results that lie together in a weight; as ``kPanel`` of products.cpp.
PANEL: Final = 16
#: How a weight lies, in the order of ``Lies`` in products/weights.h: in panels; with its results
#: along the last axis, as in HWIO; or along the first, as in OIHW; or ``turned``: channels first,
#: then results, and windows from their last tap to the first, as gradients by images read OIHW.
LIES: Final = ("", "last", "first", "turned")
# Channels that are few, as ``kFew`` of products.cpp, and padding that is copied with an image.
_FEW_TO_JOIN: Final = 16
_AROUND: Final = 32


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of an image [N, H, W, C], with a bias, an addition and what follows.

    operands: the image; the weight [panels, height, width, C / groups, PANEL], panels of results,
    with zeros behind the last of each group (or with channels interleaved, where groups have few
    results: :func:`interleaving`), or as it ``lies``; the bias (O,), or where results are
    ``scaled`` (2, O): the bias, and what their sums are multiplied by before; what is added: like
    the result, (1,) where nothing is

    ``padding``: top, left, bottom, right. ``planes``: an image of few channels may lie as [N, C, H,
    W]; ``image`` is its shape as [N, H, W, C] all the same.
    """

    image: tuple[int, int, int, int]
    window: tuple[int, int]
    results: int
    strides: tuple[int, int] = (1, 1)
    padding: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    added: bool = False
    ending: str = ""
    lies: str = ""
    scaled: bool = False
    planes: bool = False

    name: ClassVar[str] = f"{_PREFIX}convolution"
    symbol: ClassVar[str] = "relax2xla_products_convolve"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "added": self.added,
            "dilation": self.dilation,
            "ending": self.ending,
            "groups": self.groups,
            **_given(self),
            "padding": self.padding,
            **({"planes": True} if self.planes else {}),
            "strides": self.strides,
        }

    @property
    def channels(self) -> int:
        """Of a group."""
        return self.image[3] // self.groups

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        n, height, width, channels = self.image
        image = (n, channels, height, width) if self.planes else self.image
        return _operands(self, image, (*self.window, self.channels))

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
        where = [*self.window, *self.strides, *self.padding[:2], *self.dilation, self.groups]
        return [*where, int(self.planes), *_numbers(self)]

    @property
    def multiplications(self) -> int:
        """How many the call has."""
        return math.prod((*self.result.shape, *self.window, self.channels))

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if problem := _problem(self):
            return problem
        if self.lies and self.groups > 1:
            return "weights of groups are in panels"
        if min(*self.image, *self.window, *self.strides, *self.dilation, self.results) < 1:
            return "sizes and distances are positive"
        if self.groups < 1 or self.image[3] % self.groups or self.results % self.groups:
            return "channels and results are in groups of one size"
        if min(self.padding) < 0 or max(*self.padding, *self.strides, *self.dilation) > FAR:
            return "padding takes nothing away, and distances are moderate"
        if math.prod(self.window) > TAPS:
            return f"a window has at most {TAPS} taps"
        if min(self.result.shape) < 1:
            return "the window is larger than the image"
        if self.planes and not self.joins_rows:
            return (
                "planes are those of few channels, under windows of several, and little around them"
            )
        return ""

    @property
    def joins_rows(self) -> bool:
        """Whether rows of the window are taps: the image is copied with its padding, for few
        channels (``join_rows`` in products.cpp).
        """
        moderate = max(self.padding) <= _AROUND and self.dilation[1] == self.groups == 1
        return moderate and self.image[3] < _FEW_TO_JOIN and self.window[1] > 1


@dataclass(frozen=True, slots=True)
class Product:
    """A product of [..., K] and a matrix [K, N], with a bias, an addition and what follows.

    operands: the rows; the weight [panels, K, PANEL], panels of columns, with zeros behind the
    last, or as it ``lies``; the bias (N,), or where results are ``scaled`` (2, N), as for
    :class:`Convolution`; what is added: like the result, (1,) where nothing is
    """

    rows: tuple[int, ...]
    results: int
    added: bool = False
    ending: str = ""
    lies: str = ""
    scaled: bool = False

    name: ClassVar[str] = f"{_PREFIX}product"
    symbol: ClassVar[str] = "relax2xla_products_multiply"
    groups: ClassVar[int] = 1

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {"added": self.added, "ending": self.ending, **_given(self)}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return _operands(self, self.rows, self.rows[-1:])

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((*self.rows[:-1], self.results), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return _numbers(self)

    @property
    def multiplications(self) -> int:
        """How many the call has."""
        return math.prod(self.rows) * self.results

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if problem := _problem(self):
            return problem
        if not self.rows or min(*self.rows, self.results) < 1:
            return "sizes are positive"
        return "a product has no windows to turn" if self.lies == "turned" else ""


@dataclass(frozen=True, slots=True)
class JoinedProduct:
    """A product of several [..., K1], [..., K2], joined along their last axes, and a matrix [K, N].

    operands: what is joined; where it is ``prepared`` (2, K): what numbers are multiplied by, and
    what is added to them, before negative ones are made zero, as a batch norm with a relu does; the
    weight, the bias and what is added as those of a :class:`Product`
    """

    given: tuple[int, ...]
    parts: tuple[int, ...]
    results: int
    prepared: bool = False
    added: bool = False
    ending: str = ""

    name: ClassVar[str] = f"{_PREFIX}joined"
    symbol: ClassVar[str] = "relax2xla_products_multiply_joined"
    groups: ClassVar[int] = 1
    lies: ClassVar[str] = ""
    scaled: ClassVar[bool] = False

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {"added": self.added, "ending": self.ending, "prepared": self.prepared}

    @property
    def channels(self) -> int:
        """Numbers in a row."""
        return sum(self.parts)

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        parts = [Tensor((*self.given, part), "float32") for part in self.parts]
        by = [Tensor((2, self.channels), "float32")] if self.prepared else []
        return [*parts, *by, *_operands(self, (), (self.channels,))[1:]]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((*self.given, self.results), "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [int(self.prepared), *_numbers(self)[1:]]

    @property
    def multiplications(self) -> int:
        """How many the call has."""
        return math.prod(self.given) * self.channels * self.results

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if problem := _problem(self):
            return problem
        if not 0 < len(self.parts) <= PARTS:
            return f"1 to {PARTS} are joined"
        if min(*self.given, *self.parts, self.results) < 1:
            return "sizes are positive"
        return ""


@dataclass(frozen=True, slots=True)
class Winograd:
    """A convolution with 3x3 windows one pixel apart, by Winograd's minimal filtering.

    operands: the image; the weight [panels, points**2, C, PANEL], values of windows at pairs of
    points (:func:`points`), or as that of a convolution ``lies``; bias and what is added, as there

    ``padding``: top, left, bottom, right. ``size``: a patch makes size x size results.
    """

    image: tuple[int, int, int, int]
    results: int
    padding: tuple[int, int, int, int]
    size: int
    added: bool = False
    ending: str = ""
    lies: str = ""
    scaled: bool = False

    name: ClassVar[str] = f"{_PREFIX}winograd"
    symbol: ClassVar[str] = "relax2xla_products_winograd"
    groups: ClassVar[int] = 1

    @property
    def convolution(self) -> Convolution:
        """The convolution that it is."""
        where = ((3, 3), self.results, (1, 1), self.padding, (1, 1), 1)
        then = (self.added, self.ending, self.lies, self.scaled)
        return Convolution(self.image, *where, *then)

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {
            "added": self.added,
            "ending": self.ending,
            **_given(self),
            "padding": self.padding,
            "size": self.size,
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.lies:
            return self.convolution.operands
        return _operands(self, self.image, ((self.size + 2) ** 2, self.image[3]))

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return self.convolution.result

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [self.size, *self.padding[:2], *_numbers(self)]

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.size not in SIZES:
            return f"a patch makes squares of one of {SIZES}"
        if self.image[3] % PANEL or self.results % PANEL:
            return f"channels come in multiples of {PANEL}"
        return self.convolution.problem()


Described: TypeAlias = Convolution | Product | JoinedProduct | Winograd

#: What a call joins, at most.
PARTS: Final = 64
#: Rows of a product whose time is that of reading the weight, as ``kFewRows`` of few_rows.h.
FEW_ROWS: Final = 4
#: Results of a patch along an axis.
SIZES: Final = (2, 4)


def points(size: int) -> npt.NDArray[np.float64]:
    """What three numbers of a window are multiplied by for its values at ``size + 2`` points.

    The points of products/winograd.h, infinity last.
    """
    finite = [0.0, 1.0, -1.0] if size == 2 else [0.0, *_NEAR_AND_FAR]
    return np.array([*([1.0, p, p * p] for p in finite), [0.0, 0.0, 1.0]])


_NEAR_AND_FAR: Final = (math.sqrt(0.5), -math.sqrt(0.5), math.sqrt(2.0), -math.sqrt(2.0))
# Patches from which it pays to read a weight that is larger.
_PATCHES: Final = 36


def winograds(call: Convolution) -> list[Winograd]:
    """The same by minimal filtering, by :data:`SIZES`; none where windows are others."""
    if call.window != (3, 3) or (*call.strides, *call.dilation, call.groups) != (1, 1, 1, 1, 1):
        return []
    then = (call.added, call.ending, call.lies, call.scaled)
    made = [Winograd(call.image, call.results, call.padding, size, *then) for size in SIZES]
    return [w for w in made if not w.problem()]


def by_winograd(call: Convolution) -> Winograd | None:
    """The same by minimal filtering, where that takes less time."""
    n, rows, columns, _ = call.result.shape
    for made in reversed(winograds(call)):
        if n * -(-rows // made.size) * -(-columns // made.size) >= _PATCHES:
            return made
    return None


def interleaving(depth: Sequence[int], results: int, groups: int) -> int:
    """How many channels are interleaved in the panels of a weight, as ``interleaving_of`` in C++.

    Groups with too few results to fill a panel have those of several channels in it: numbers of a
    result for these lie side by side, which ``products/interleaved.h`` is for. 1: none are.
    """
    own = results // groups
    if groups == 1 or own not in (4, 8) or results % PANEL or depth[-1] % (PANEL // own):
        return 1
    return PANEL // own


def packed_shape(depth: Sequence[int], results: int, groups: int = 1) -> tuple[int, ...]:
    """The shape of a weight of ``depth`` numbers for each of ``results``, as the functions want."""
    interleaved = interleaving(depth, results, groups)
    if interleaved > 1:
        return (groups, *depth[:-1], depth[-1] // interleaved, PANEL)
    return (groups * -(-results // groups // PANEL), *depth, PANEL)


def _operands(call: Described, given: tuple[int, ...], depth: tuple[int, ...]) -> list[Tensor]:
    results = call.results
    lying = {
        "": packed_shape(depth, results, call.groups),
        "last": (*depth, results),
        "first": (results, depth[-1], *depth[:-1]),
        "turned": (depth[-1], results, *depth[:-1]),
    }
    bias = (2, results) if call.scaled else (results,)
    shapes = [given, lying[call.lies], bias, call.result.shape if call.added else (1,)]
    return [Tensor(shape, "float32") for shape in shapes]


def _given(call: Described) -> dict[str, Any]:
    """The attributes of a call whose weight comes with it."""
    return {"lies": call.lies, "scaled": call.scaled} if call.lies else {}


def _numbers(call: Described) -> list[int]:
    return [LIES.index(call.lies), int(call.added), ENDINGS.index(call.ending)]


def _problem(call: Described) -> str:
    if call.ending not in ENDINGS:
        return f"what follows is one of {ENDINGS}"
    if call.lies not in LIES:
        return f"a weight lies in one of {LIES}"
    return "weights in panels are scaled already" if call.scaled and not call.lies else ""


def _then(at: Mapping[str, Any]) -> tuple[bool, str, str, bool]:
    return (bool(at["added"]), str(at["ending"]), str(at.get("lies", "")), bool(at.get("scaled")))


def _convolution(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    planes = bool(at.get("planes"))
    n, h, w, c = (given[0].shape[i] for i in ((0, 2, 3, 1) if planes else range(4)))
    if len(given[0].shape) != 4:
        raise ValueError("an image has four axes")
    places = {"": (1, 2), "last": (0, 1), "first": (2, 3), "turned": (2, 3)}[
        str(at.get("lies", ""))
    ]
    height, width = (given[1].shape[i] for i in places)
    where = (pair(at["strides"]), four(at["padding"]), pair(at["dilation"]), int(at["groups"]))
    window, then = (height, width), (*where, *_then(at), planes)
    return Convolution((n, h, w, c), window, made.shape[-1], *then)


def _winograd(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    n, h, w, c = given[0].shape
    where = (four(at["padding"]), int(at["size"]))
    return Winograd((n, h, w, c), made.shape[-1], *where, *_then(at))


def _product(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return Product(given[0].shape, made.shape[-1], *_then(at))


def _joined(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    parts = given[: len(given) - 3 - bool(at["prepared"])]
    own = tuple(part.shape[-1] for part in parts)
    then = (bool(at["prepared"]), bool(at["added"]), str(at["ending"]))
    return JoinedProduct(parts[0].shape[:-1], own, made.shape[-1], *then)


#: The multiplications from which calls are faster than their forms in rows, by kind of processor:
#:
#: * avx2 (Zen 3, one core of 94 GFLOPS): convolutions reach 85 to 93 GFLOPS, with 3x3 windows one
#:   pixel apart as much as 220; products 70 to 90. Whole networks, beside YNNPACK's products and
#:   XLA's convolutions, take 0.86 (ResNet-50) to 1.0 (ViT) of the time.
#: * avx512 (Zen 5, one core of 255 GFLOPS): products reach 200 to 250 GFLOPS. Whole networks,
#:   beside Eigen's products, take 0.61 (group norms) to 1.04 (ViT, GPT-2) of the time.
FASTER: Final[Mapping[str, int]] = {"avx2": 200_000, "avx512": 200_000}
#: The same where the functions are needed anyway: what XLA does for a product before it multiplies
#: takes 8 us, a call 1.
SMALL: Final = 1_000
#: The same of a product of single pixels, as squeeze and excitation has two: one call takes them in
#: (:mod:`relax2xla.kernels.squeezes`), and the image.
SQUEEZED: Final = 100
# Pixels from which it pays to pack a weight in each call, by how it lies. One core with AVX-512,
# beside XLA's product of a weight that comes with the call: results first, 2 to 23 pixels of 2,048
# channels 0.05 (XLA transposes it), 24 to 64 0.5 to 0.7, 128 0.76, 400 1.0; results last, 8 pixels
# 1.1 to 1.25, 16 0.8 to 1.0, 32 0.7, 400 0.97.
_LEAST_PIXELS: Final[Mapping[str, int]] = {"first": 2, "last": 16, "turned": 2}
#: Rows of a product from which a call beats XLA where weights were laid out for that at load, as
#: those of programs of symbolic sizes are. One core with AVX-512 and AMX, 768 to 5,632 channels,
#: (out, in): 16 rows 1.04 to 1.6, 24 0.6 to 0.9, 64 0.7 to 1.0, 2,048 0.65 to 0.8. A matrix (in,
#: out) XLA reads as fast as it multiplies: 1.1 to 1.9, up to 64 rows, 0.7 to 1.2 beyond.
LAID_OUT: Final = 24
# Channels of a group that are few: tiles are too small.
_FEW_CHANNELS: Final = 8


def pays(call: Convolution | Product, least: int | None = None) -> bool:
    """Whether a call is faster than its form in rows here; False where nobody knows.

    least: the multiplications from which it is; None for what ``FASTER`` says
    """
    known = FASTER.get(processor.kind())
    if known is None or call.multiplications < (known if least is None else least):
        return False
    if call.lies and math.prod(call.result.shape[:-1]) < _LEAST_PIXELS[call.lies]:
        return False
    if isinstance(call, Product) or call.groups == 1 or call.channels >= _FEW_CHANNELS:
        return True
    return interleaving((call.channels,), call.results, call.groups) > 1


FAMILY: Final = Family(
    name="products",
    readers={
        Convolution: _convolution,
        Product: _product,
        JoinedProduct: _joined,
        Winograd: _winograd,
    },
    source="products.cpp",
    headers=(
        "activations.h",
        "numbers.h",
        "products/exchanged.h",
        "products/few_rows.h",
        "products/interleaved.h",
        "products/joined.h",
        "products/tile.h",
        "products/weights.h",
        "products/winograd.h",
        "threads.h",
        "turn.h",
    ),
)
