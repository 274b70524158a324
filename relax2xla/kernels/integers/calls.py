"""What the function in C++ is called for: each call with its operands and its result.

``kernels/native.py`` says how a call stands in a program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Final

from relax2xla.kernels.integers.packing import Packing, Parts, named, packing
from relax2xla.kernels.native import FAR, Call, Family, Tensor, four, pair

_PREFIX: Final = "relax2xla.integers."
BYTES: Final = ("uint8", "int8")


@dataclass(frozen=True, slots=True)
class Convolution:
    """Convolution of bytes, [N, H, W, C] and a packed weight, and what is made of its sums.

    operands: the image; the weight; (1, O) int32: the bias of each sum, (3, O) with zero points and
    sums of columns of a weight in bytes; factors, (1,) or (O,) float32; addends, the same; (2,)
    int32: the zero points of the image and of the result.

    result: the sums (int32), ``sum * factor + addend`` (float32), or that rounded (bytes).

    ``added``: whether there are addends; ``relu``: whether results begin at their zero point.
    """

    image: Tensor
    window: tuple[int, int]
    results: int
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]
    groups: int
    packed: Packing
    dtype: str
    factors: int = 1
    addends: int = 1
    added: bool = False
    relu: bool = False

    name: ClassVar[str] = f"{_PREFIX}convolution"
    symbol: ClassVar[str] = "relax2xla_integers_convolve"

    @property
    def parts(self) -> Parts:
        """How the weight lies."""
        own = self.image.shape[-1] // self.groups
        return Parts(self.window, own, self.results, self.groups, self.dilation)

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`Call`."""
        return {
            "added": self.added,
            "dilation": self.dilation,
            "groups": self.groups,
            "packed": self.packed.name,
            "padding": self.padding,
            "relu": self.relu,
            "strides": self.strides,
            "window": self.window,
        }

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`Call`."""
        return [
            self.image,
            Tensor(self.parts.shape(self.packed), self.parts.dtype(self.packed)),
            Tensor((3 if self.packed.bytes else 1, self.results), "int32"),
            Tensor((self.factors,), "float32"),
            Tensor((self.addends,), "float32"),
            Tensor((2,), "int32"),
        ]

    @property
    def result(self) -> Tensor:
        """See :class:`Call`."""
        top, left, bottom, right = self.padding
        size = (self.image.shape[1] + top + bottom, self.image.shape[2] + left + right)
        extents = [
            (s - (taps - 1) * apart - 1) // step + 1
            for s, taps, apart, step in zip(
                size, self.window, self.dilation, self.strides, strict=True
            )
        ]
        return Tensor((self.image.shape[0], *extents, self.results), self.dtype)

    @property
    def numbers(self) -> list[int]:
        """See :class:`Call`."""
        return [
            *self.window,
            *self.strides,
            *self.padding,
            *self.dilation,
            self.groups,
            int(self.added),
            int(self.relu),
        ]

    def problem(self) -> str:
        """See :class:`Call`."""
        if len(self.image.shape) != 4 or self.image.dtype not in BYTES:
            return "the image has four axes, and numbers of 8 bits"
        if self.dtype not in (*BYTES, "int32", "float32"):
            return f"the result is of int8, uint8, int32 or float32, not {self.dtype}"
        pairs = (self.window, self.strides, self.dilation)
        if any(len(p) != 2 for p in pairs) or len(self.padding) != 4:
            return "window, strides and dilation have two numbers, and padding four"
        sizes = (*self.image.shape, *self.window, *self.strides, *self.dilation, self.groups)
        if min(*sizes, self.results) < 1 or min(self.padding) < 0:
            return "sizes are positive, and padding takes nothing away"
        if max(*self.window, *self.padding, *self.dilation, *self.strides) > FAR:
            return "the window is too large"
        if self.image.shape[-1] % self.groups or self.results % self.groups:
            return "channels do not fit the groups"
        if self.factors not in (1, self.results) or self.addends not in (1, self.results):
            return "factors and addends are one, or one for each channel"
        if self.relu and self.dtype not in BYTES:
            return "results of 8 bits alone begin at their zero point"
        if min(self.result.shape) < 1:
            return "the window is larger than the image"
        return ""


@dataclass(frozen=True, slots=True)
class ConvolutionSum(Convolution):
    """A convolution, and bytes that are added to what its factors and addends make of the sums.

    operands: those of :class:`Convolution`, with (3,) zero points: of the image, of the result, and
    of the bytes; these, of the shape of the result; their scale, (1,) float32
    """

    rest: str = "uint8"

    name: ClassVar[str] = f"{_PREFIX}convolution_sum"
    symbol: ClassVar[str] = "relax2xla_integers_convolve_and_add"

    @classmethod
    def of(cls, call: Convolution, rest: str) -> ConvolutionSum:
        """``call``, to whose results bytes of the dtype ``rest`` are added."""
        return cls(**{f.name: getattr(call, f.name) for f in fields(call)}, rest=rest)

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`Call`."""
        rest = Tensor(self.result.shape, self.rest)
        *own, _ = super(ConvolutionSum, self).operands
        return [*own, Tensor((3,), "int32"), rest, Tensor((1,), "float32")]

    def problem(self) -> str:
        """See :class:`Call`."""
        if self.rest not in BYTES:
            return "what is added is of int8 or uint8"
        if self.dtype == "int32":
            return "to sums in integers nothing is added"
        return super(ConvolutionSum, self).problem()


@dataclass(frozen=True, slots=True)
class Product:
    """Products of matrices of bytes, [B, M, K] by [B, K, N] or, ``turned``, by [B, N, K].

    operands: the two; a factor, (1,) float32; (3,) int32: the zero points of both and of the result
    result: as of :class:`Convolution`, without addends
    """

    left: Tensor
    right: Tensor
    turned: bool
    dtype: str

    name: ClassVar[str] = f"{_PREFIX}product"
    symbol: ClassVar[str] = "relax2xla_integers_multiply"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`Call`."""
        return {"turned": self.turned}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`Call`."""
        return [self.left, self.right, Tensor((1,), "float32"), Tensor((3,), "int32")]

    @property
    def result(self) -> Tensor:
        """See :class:`Call`."""
        columns = self.right.shape[1 if self.turned else 2]
        return Tensor((*self.left.shape[:2], columns), self.dtype)

    @property
    def numbers(self) -> list[int]:
        """See :class:`Call`."""
        return [int(self.turned)]

    def problem(self) -> str:
        """See :class:`Call`."""
        left, right = self.left, self.right
        if len(left.shape) != 3 or len(right.shape) != 3 or {left.dtype, right.dtype} - {*BYTES}:
            return "operands have three axes, and numbers of 8 bits"
        if self.dtype not in (*BYTES, "int32", "float32"):
            return f"the result is of int8, uint8, int32 or float32, not {self.dtype}"
        depth = right.shape[2 if self.turned else 1]
        if left.shape[0] != right.shape[0] or left.shape[2] != depth:
            return "the matrices do not fit each other"
        return "" if min(*left.shape, *right.shape) >= 1 else "sizes are positive"


@dataclass(frozen=True, slots=True)
class Sum:
    """``round((s[0] * (a - p[0]) + s[1] * (b - p[1])) / s[2]) + p[2]``, bytes of one shape.

    operands: a; b; s, (3,) float32; p, (3,) int32. ``relu``: results begin at their zero point.
    """

    a: Tensor
    b: Tensor
    dtype: str
    relu: bool = False

    name: ClassVar[str] = f"{_PREFIX}sum"
    symbol: ClassVar[str] = "relax2xla_integers_add"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`Call`."""
        return {"relu": self.relu}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`Call`."""
        return [self.a, self.b, Tensor((3,), "float32"), Tensor((3,), "int32")]

    @property
    def result(self) -> Tensor:
        """See :class:`Call`."""
        return Tensor(self.a.shape, self.dtype)

    @property
    def numbers(self) -> list[int]:
        """See :class:`Call`."""
        return [int(self.relu)]

    def problem(self) -> str:
        """See :class:`Call`."""
        if {self.a.dtype, self.b.dtype, self.dtype} - {*BYTES}:
            return "operands and result are of 8 bits"
        return "" if self.a.shape == self.b.shape else "operands have one shape"


@dataclass(frozen=True, slots=True)
class MaxPool:
    """The largest number in each window of an image of bytes [N, H, W, C]; padding has none."""

    image: Tensor
    window: tuple[int, int]
    strides: tuple[int, int]
    padding: tuple[int, int, int, int]
    dilation: tuple[int, int]

    name: ClassVar[str] = f"{_PREFIX}max_pool"
    symbol: ClassVar[str] = "relax2xla_integers_max_pool"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`Call`."""
        return {
            "dilation": self.dilation,
            "padding": self.padding,
            "strides": self.strides,
            "window": self.window,
        }

    @property
    def _as_convolution(self) -> Convolution:
        channels = self.image.shape[-1]
        where = (self.strides, self.padding, self.dilation)
        return Convolution(
            self.image, self.window, channels, *where, 1, packing(), self.image.dtype
        )

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`Call`."""
        return [self.image]

    @property
    def result(self) -> Tensor:
        """See :class:`Call`."""
        return self._as_convolution.result

    @property
    def numbers(self) -> list[int]:
        """See :class:`Call`."""
        return [*self.window, *self.strides, *self.padding, *self.dilation]

    def problem(self) -> str:
        """See :class:`Call`."""
        return self._as_convolution.problem()


@dataclass(frozen=True, slots=True)
class Quantisation:
    """``round(x / s) + p`` in the limits of bytes: x float32; s, (1,) float32; p, (1,) int32."""

    x: Tensor
    dtype: str

    name: ClassVar[str] = f"{_PREFIX}quantisation"
    symbol: ClassVar[str] = "relax2xla_integers_quantise"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`Call`."""
        return {}

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`Call`."""
        return [self.x, Tensor((1,), "float32"), Tensor((1,), "int32")]

    @property
    def result(self) -> Tensor:
        """See :class:`Call`."""
        return Tensor(self.x.shape, self.dtype)

    @property
    def numbers(self) -> list[int]:
        """See :class:`Call`."""
        return []

    def problem(self) -> str:
        """See :class:`Call`."""
        right = self.x.dtype == "float32" and self.dtype in BYTES
        return "" if right else "it makes bytes of float32"


def _convolution(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Convolution:
    packed = named(str(at["packed"]))
    if packed is None:
        raise ValueError(f"there is no packing {at['packed']}")
    return Convolution(
        given[0],
        pair(at["window"]),
        made.shape[-1],
        pair(at["strides"]),
        four(at["padding"]),
        pair(at["dilation"]),
        int(at["groups"]),
        packed,
        made.dtype,
        given[3].shape[0],
        given[4].shape[0],
        bool(at["added"]),
        bool(at["relu"]),
    )


def _convolution_sum(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    return ConvolutionSum.of(_convolution(at, given, made), given[6].dtype)


def _pool(at: Mapping[str, Any], given: Sequence[Tensor], made: Tensor) -> Call:
    where = (pair(at["strides"]), four(at["padding"]), pair(at["dilation"]))
    return MaxPool(given[0], pair(at["window"]), *where)


FAMILY: Final = Family(
    name="integers",
    readers={
        Convolution: _convolution,
        ConvolutionSum: _convolution_sum,
        Product: lambda at, t, made: Product(t[0], t[1], bool(at["turned"]), made.dtype),
        Sum: lambda at, t, made: Sum(t[0], t[1], made.dtype, bool(at["relu"])),
        MaxPool: _pool,
        Quantisation: lambda at, t, made: Quantisation(t[0], made.dtype),
    },
    source="integers.cpp",
    headers=("integers/product.h", "integers/image.h", "integers/tiles.h"),
    # Sums are of integers, and each step of float32 is rounded by itself, as XLA's are.
    options=("-ffp-contract=off",),
    flags=lambda: packing().flags,
    runs_here=lambda call: not isinstance(call, Convolution) or call.packed == packing(),
    needed=True,
)
