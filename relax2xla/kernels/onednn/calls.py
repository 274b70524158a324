"""What oneDNN can be called for: convolutions and products with what is fused behind them.

A call is written into programs as a composite: its name, its attributes and its form in rows. What
it does not say about itself, such as shapes, is that of its operands and its result.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from relax2xla.kernels.native import Tensor

#: How the names of composites begin that oneDNN can take over.
PREFIX: Final = "relax2xla.onednn."
#: What the names of functions hold that are their forms in rows.
FORMS: Final = "__onednn_form_"

#: What may follow in one call, to whether it takes an operand of its own.
FUSIONS: Final[Mapping[str, bool]] = {
    "BIAS": True,
    "BINARY_ADD": True,
    "RELU": False,
    "RELU6": False,
    "SIGMOID": False,
    "TANH": False,
    "GELU_ERF": False,
    "GELU_TANH": False,
    "ELU": False,
}
# More than these in one call are not worth a test.
_MOST_FUSIONS: Final = 3
# oneDNN counts elements of a tensor, and steps over them, in 32 bits in places.
_MOST_ELEMENTS: Final = (1 << 31) - 1


class Call(Protocol):
    """A call of oneDNN."""

    @property
    def name(self) -> str:
        """Of the composite."""
        ...

    @property
    def target(self) -> str:
        """Of XLA's custom call."""
        ...

    @property
    def fusions(self) -> tuple[str, ...]:
        """What follows in the same call, in order."""
        ...

    @property
    def attributes(self) -> dict[str, Any]:
        """Of the composite: what :func:`read` makes the call of."""
        ...

    @property
    def features(self) -> frozenset[str]:
        """What of oneDNN the call needs, each to be tried on its own; see ``FEATURES``."""
        ...

    @property
    def multiplications(self) -> int:
        """How many the call makes."""
        ...

    @property
    def operands(self) -> list[Tensor]:
        """What the call takes."""
        ...

    @property
    def result(self) -> Tensor:
        """What the call gives."""
        ...

    def problem(self) -> str:
        """Why oneDNN must not be called so; "" where it may."""
        ...

    def config(self) -> str:
        """The custom call's configuration: XLA's ``BackendConfig``, as JSON."""
        ...


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of float32: images [N, space..., C], windows [space..., C / groups, O].

    ``padding``: before and behind each axis of space, one after the other. ``dilation``: of the
    window, 1 is none.
    """

    image: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int = 1
    fusions: tuple[str, ...] = ()

    name = f"{PREFIX}convolution"
    target = "__onednn$convolution"

    @property
    def space(self) -> int:
        """How many axes of space there are."""
        return len(self.image) - 2

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`Call`."""
        return {
            "dilation": self.dilation,
            "fusions": self.fusions,
            "groups": self.groups,
            "padding": self.padding,
            "strides": self.strides,
        }

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel has windows of its own."""
        return self.groups > 1 and self.window[-2] == 1

    @property
    def features(self) -> frozenset[str]:
        """See :class:`Call`."""
        kind = "depthwise" if self.is_depthwise else "grouped" if self.groups > 1 else "dense"
        return frozenset({f"{kind} {self.space}", *(f"convolution {f}" for f in self.fusions)})

    @property
    def result(self) -> Tensor:
        """See :class:`Call`; only where the parts fit each other."""
        extents = [
            (size + low + high - (taps - 1) * apart - 1) // step + 1
            for size, taps, step, apart, low, high in zip(
                self.image[1:-1],
                self.window[:-2],
                self.strides,
                self.dilation,
                self.padding[::2],
                self.padding[1::2],
                strict=True,
            )
        ]
        return Tensor((self.image[0], *extents, self.window[-1]), "float32")

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`Call`."""
        own = [Tensor(self.image, "float32"), Tensor(self.window, "float32")]
        return own + _fused(self.fusions, self.result)

    @property
    def multiplications(self) -> int:
        """See :class:`Call`."""
        return math.prod(self.result.shape) * math.prod(self.window[:-1])

    def problem(self) -> str:
        """See :class:`Call`."""
        space = self.space
        if not 1 <= space <= 3 or len(self.window) != space + 2:
            return "it has 1 to 3 axes of space, in image and window alike"
        given = (self.strides, self.dilation, self.padding[::2], self.padding[1::2])
        if any(len(g) != space for g in given) or len(self.padding) != 2 * space:
            return "strides, dilation and padding are for each axis of space"
        if min((*self.image, *self.window, *self.strides, *self.dilation, self.groups)) < 1:
            return "sizes, strides, dilation and groups are positive"
        if self.window[-2] * self.groups != self.image[-1] or self.window[-1] % self.groups:
            return "channels do not fit the groups"
        reach = [(t - 1) * d + 1 for t, d in zip(self.window, self.dilation, strict=False)]
        if any(not 0 <= p < reach[i // 2] for i, p in enumerate(self.padding)):
            return "padding is smaller than the window"
        if min(self.result.shape) < 1:
            return "the window is larger than the image"
        return _common_problem(self)

    def config(self) -> str:
        """See :class:`Call`."""
        rank, space = self.space + 2, list(range(self.space))
        data = {
            "batch_dim": 0,
            "feature_dim": rank - 1,
            "spatial_dims": [1 + a for a in space],
        }
        filters = {
            "input_feature_dim": rank - 2,
            "output_feature_dim": rank - 1,
            "spatial_dims": space,
        }
        made: dict[str, Any] = {
            "dims": rank,
            "input": {"dims": rank, "data": data},
            "kernel": {"dims": rank, "filter": filters},
            "output": {"dims": rank, "data": data},
            "window": {
                "size": self.window[:-2],
                "pad_left": self.padding[::2],
                "pad_right": self.padding[1::2],
                "strides": self.strides,
                "window_dilations": self.dilation,
            },
            "feature_groups": self.groups,
        }
        return _json("onednn_conv_config", made, self.fusions)


@dataclass(frozen=True, slots=True)
class Product:
    """A product of matrices [..., M, K] and [..., K, N], or with the last two axes exchanged.

    Of float32, or of int8 or uint8 with int8, which gives int32.
    """

    left: Tensor
    right: Tensor
    transpose_left: bool = False
    transpose_right: bool = False
    fusions: tuple[str, ...] = ()

    name = f"{PREFIX}product"
    target = "__onednn$matmul"

    @property
    def attributes(self) -> dict[str, Any]:
        """See :class:`Call`."""
        return {
            "fusions": self.fusions,
            "transpose_left": self.transpose_left,
            "transpose_right": self.transpose_right,
        }

    @property
    def sizes(self) -> tuple[int, int, int]:
        """M, K and N."""
        *_, m, k = _exchanged(self.left.shape, self.transpose_left)
        return m, k, _exchanged(self.right.shape, self.transpose_right)[-1]

    @property
    def features(self) -> frozenset[str]:
        """See :class:`Call`."""
        kind = f"{self.left.dtype} product {min(len(self.left.shape), 3)}"
        turned = [f"{kind} transposed"] if self.transpose_left or self.transpose_right else []
        return frozenset({kind, *turned, *(f"product {f}" for f in self.fusions)})

    @property
    def result(self) -> Tensor:
        """See :class:`Call`."""
        m, _, n = self.sizes
        dtype = "float32" if self.left.dtype == "float32" else "int32"
        return Tensor((*self.left.shape[:-2], m, n), dtype)

    @property
    def operands(self) -> list[Tensor]:
        """See :class:`Call`."""
        return [self.left, self.right, *_fused(self.fusions, self.result, product=True)]

    @property
    def multiplications(self) -> int:
        """See :class:`Call`."""
        return math.prod(self.left.shape) * self.sizes[2]

    def problem(self) -> str:
        """See :class:`Call`."""
        left, right = self.left, self.right
        if not 2 <= len(left.shape) == len(right.shape) <= 5 or left.shape[:-2] != right.shape[:-2]:
            return "both operands have 2 to 5 axes, and the same in front of the matrices"
        if min((*left.shape, *right.shape)) < 1:
            return "sizes are positive"
        if _exchanged(right.shape, self.transpose_right)[-2] != self.sizes[1]:
            return "the matrices do not fit each other"
        if (left.dtype, right.dtype) not in _PRODUCTS:
            return f"it multiplies {_PRODUCTS}"
        if self.fusions and left.dtype != "float32":
            return "nothing is fused behind a product of integers"
        return _common_problem(self)

    def config(self) -> str:
        """See :class:`Call`."""
        own = {"transpose_a": self.transpose_left, "transpose_b": self.transpose_right}
        return _json("onednn_matmul_config", own, self.fusions)


_PRODUCTS: Final = (("float32", "float32"), ("int8", "int8"), ("uint8", "int8"))


def _exchanged(shape: Sequence[int], transposed: bool) -> tuple[int, ...]:
    *batch, rows, columns = shape
    return (*batch, columns, rows) if transposed else (*batch, rows, columns)


def _fused(fusions: Sequence[str], result: Tensor, product: bool = False) -> list[Tensor]:
    """The operands of what follows in a call."""
    last = result.shape[-1]
    bias = (*[1] * (len(result.shape) - 1), last) if product else (last,)
    shapes = {"BIAS": bias, "BINARY_ADD": result.shape}
    return [Tensor(shapes[f], result.dtype) for f in fusions if FUSIONS.get(f)]


def _common_problem(call: Call) -> str:
    fusions = call.fusions
    if not FUSIONS.keys() >= set(fusions) or len(fusions) > _MOST_FUSIONS:
        return f"at most {_MOST_FUSIONS} of {', '.join(FUSIONS)} are fused"
    if "BIAS" in fusions[1:] or fusions.count("BINARY_ADD") > 1:
        return "a bias comes first, and one tensor is added"
    if any(math.prod(t.shape) > _MOST_ELEMENTS for t in (*call.operands, call.result)):
        return f"its tensors have at most {_MOST_ELEMENTS} elements"
    return ""


def _json(name: str, config: dict[str, Any], fusions: Sequence[str]) -> str:
    if fusions:
        config["fusions"] = {"ops": list(fusions)}
    return json.dumps({name: config})


def read(
    name: str, attributes: Mapping[str, Any], operands: Sequence[Tensor], results: Sequence[Tensor]
) -> Call | str:
    """The call that a composite asks for, or what is wrong with it; for what files may bring."""
    make = _READERS.get(name)
    if make is None:
        return f"there is no call {name}"
    if len(operands) < 2 or len(results) != 1:
        return "it takes two operands and more, and gives one result"
    if make is _convolution and {t.dtype for t in operands} != {"float32"}:
        return "it convolves float32"
    try:
        call = make(attributes, operands)
    except (KeyError, TypeError, ValueError) as e:
        return f"its attributes are not those of {name} ({e})"
    problem = call.problem()
    if problem:
        return problem
    if call.operands != list(operands) or [call.result] != list(results):
        return "its operands and its result are not those that its attributes say"
    return call


def _convolution(attributes: Mapping[str, Any], operands: Sequence[Tensor]) -> Call:
    return Convolution(
        operands[0].shape,
        operands[1].shape,
        strides=_numbers(attributes["strides"]),
        padding=_numbers(attributes["padding"]),
        dilation=_numbers(attributes["dilation"]),
        groups=_numbers([attributes["groups"]])[0],
        fusions=_texts(attributes["fusions"]),
    )


def _product(attributes: Mapping[str, Any], operands: Sequence[Tensor]) -> Call:
    return Product(
        operands[0],
        operands[1],
        transpose_left=_truth(attributes["transpose_left"]),
        transpose_right=_truth(attributes["transpose_right"]),
        fusions=_texts(attributes["fusions"]),
    )


_READERS: Final[Mapping[str, Callable[[Mapping[str, Any], Sequence[Tensor]], Call]]] = {
    Convolution.name: _convolution,
    Product.name: _product,
}


def _numbers(given: Any) -> tuple[int, ...]:
    if not isinstance(given, tuple | list) or any(type(n) is not int for n in given):
        raise TypeError(f"{given!r} are no integers")
    return tuple(given)


def _texts(given: Any) -> tuple[str, ...]:
    if not isinstance(given, tuple | list) or any(type(n) is not str for n in given):
        raise TypeError(f"{given!r} are no names")
    return tuple(given)


def _truth(given: Any) -> bool:
    if type(given) is not bool:
        raise TypeError(f"{given!r} is no truth value")
    return given


def _examples() -> dict[str, Call]:
    """For each feature a small call that needs it."""
    made: dict[str, Call] = {}
    # Odd sizes, and every number another, so that none can stand for another.
    image, window = (2, 7, 6, 5), (3, 2, 3)
    strides, padding, dilation = (1, 2, 1), (1, 0, 0, 1, 2, 1), (2, 1, 1)
    for space in (1, 2, 3):
        for kind, groups, per_group, out in (
            ("dense", 1, 24, 16),
            ("grouped", 3, 8, 24),
            ("depthwise", 24, 1, 24),
        ):
            call = Convolution(
                (*image[: space + 1], 24),
                (*window[:space], per_group, out),
                strides[:space],
                padding[: 2 * space],
                dilation[:space],
                groups,
            )
            made[f"{kind} {space}"] = call
    for fusion in FUSIONS:
        made[f"convolution {fusion}"] = Convolution(
            (1, 6, 6, 8), (3, 3, 8, 16), (1, 1), (1, 1, 1, 1), (1, 1), 1, (fusion,)
        )
    for left, right in _PRODUCTS:
        for batch in ((), (3,)):
            a, b = Tensor((*batch, 5, 16), left), Tensor((*batch, 16, 24), right)
            kind = f"{left} product {len(batch) + 2}"
            made[kind] = Product(a, b)
            turned = [Tensor(_exchanged(t.shape, True), t.dtype) for t in (a, b)]
            made[f"{kind} transposed"] = Product(turned[0], turned[1], True, True)
    for fusion in FUSIONS:
        a, b = Tensor((5, 16), "float32"), Tensor((16, 24), "float32")
        made[f"product {fusion}"] = Product(a, b, fusions=(fusion,))
    return made


#: What calls may need, each with a small call by which it is tried.
FEATURES: Final[Mapping[str, Call]] = _examples()
