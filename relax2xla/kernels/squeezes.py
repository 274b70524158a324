"""Global average pooling, and squeeze and excitation, each in one call of a function in C++.

``kernels/native.py`` says how a call stands in a program, and
``runtime/include/relax2xla/squeezes.cpp`` how it is computed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

from relax2xla.kernels.native import ENDINGS, Call, Family, Plain, Tensor, is_measured
from relax2xla.kernels.products import packed_shape

#: What makes a gate of a sum.
GATES: Final = ("sigmoid", "hardsigmoid")


@dataclass(frozen=True, slots=True)
class Pool(Plain):
    """The mean of each channel over all pixels.

    operands: an image [N, H, W, C]; result: [N, C]
    """

    image: tuple[int, int, int, int]

    name: ClassVar[str] = "relax2xla.squeezes.pool"
    symbol: ClassVar[str] = "relax2xla_squeezes_pool"

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [Tensor(self.image, "float32")]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor((self.image[0], self.image[3]), "float32")

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return "sizes are positive" if min(self.image) < 1 else ""


@dataclass(frozen=True, slots=True)
class Excitation:
    """An image, each channel multiplied by a gate that two products make of all channels' means.

    operands: the image [N, H, W, C]; the weight of the first product [panels, C, PANEL] and its
    bias (S,); that of the second [panels, S, PANEL] and its bias (C,), weights as
    :class:`relax2xla.kernels.products.Product` takes them; result: like the image

    ``first``: what follows the first product; ``gate``: what follows the second.
    """

    image: tuple[int, int, int, int]
    squeezed: int
    first: str = ""
    gate: str = "sigmoid"

    name: ClassVar[str] = "relax2xla.squeezes.excitation"
    symbol: ClassVar[str] = "relax2xla_squeezes_excite"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return {"first": self.first, "gate": self.gate}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        channels, squeezed = self.image[3], self.squeezed
        shapes: list[tuple[int, ...]] = [
            self.image,
            packed_shape((channels,), squeezed),
            (squeezed,),
            packed_shape((squeezed,), channels),
            (channels,),
        ]
        return [Tensor(shape, "float32") for shape in shapes]

    @property
    def result(self) -> Tensor:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return Tensor(self.image, "float32")

    @property
    def numbers(self) -> list[int]:
        """See :class:`~relax2xla.kernels.native.Call`."""
        return [ENDINGS.index(self.first), ENDINGS.index(self.gate)]

    def problem(self) -> str:
        """See :class:`~relax2xla.kernels.native.Call`."""
        if self.first not in ENDINGS or self.gate not in GATES:
            return f"what follows is one of {ENDINGS}, and a gate one of {GATES}"
        return "sizes are positive" if min(*self.image, self.squeezed) < 1 else ""


Described: TypeAlias = Pool | Excitation


def _pool(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    n, height, width, channels = given[0].shape
    return Pool((n, height, width, channels))


def _excitation(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    n, height, width, channels = given[0].shape
    (squeezed,) = given[2].shape
    return Excitation((n, height, width, channels), squeezed, str(at["first"]), str(at["gate"]))


FAMILY: Final = Family(
    name="squeezes",
    readers={Pool: _pool, Excitation: _excitation},
    source="squeezes.cpp",
    headers=("activations.h", "numbers.h", "products/few_rows.h", "products/tile.h", "threads.h"),
    in_place=lambda call: isinstance(call, Excitation),
)
# Numbers of an image from which its means are worth a call.
_LEAST: Final = 10_000


def pays(call: Described) -> bool:
    """Whether a call is faster than its form in rows here; False where nobody knows."""
    return is_measured() and (isinstance(call, Excitation) or math.prod(call.image) >= _LEAST)
