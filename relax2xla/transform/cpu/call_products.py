"""CallProducts: convolutions and products with constant weights, as composites.

XLA:CPU gives products to YNNPACK or Eigen, each with a loop of its own behind it for a bias, an
addition and an activation, and convolves planes by Eigen's copies of them. A function in C++ reads
pixels where they lie and finishes a tile of results while it is in the nearest cache; weights are
laid out for it once, at load.

As with oneDNN (:mod:`relax2xla.transform.cpu.call_onednn`) programs hold composites with their
forms in rows, and the choice is made where they run (:mod:`relax2xla.vm.pjrt.native_calls`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule
from relax2xla.ir import Expr, Function, IRModule, Tuple
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs
from relax2xla.kernels.native import ENDINGS, may_call
from relax2xla.kernels.products import (
    FAMILY,
    PANEL,
    SMALL,
    Convolution,
    Product,
    Winograd,
    by_winograd,
    packed_shape,
    pays,
    points,
)
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.native_sites import (
    Site,
    Sites,
    ended,
    tensor_of,
    with_composites,
)
from relax2xla.transform.cpu.windows import LAYOUTS, Windows, is_known
from relax2xla.transform.layout.feature_major import is_linear

Described: TypeAlias = Convolution | Product | Winograd

_x, _w, _both = wildcard(), wildcard(), wildcard()


@register(opt_level=2, platform="cpu", one_device=True)
class CallProducts(Pass):
    """Make composites of convolutions and products with constant weights, static shapes.

    In NHWC and HWIO, in float32; with a bias, an addition and an activation behind
    them. Exact up to the order of the additions, and in activations within 2e-7 of the input. Which
    these are says :func:`relax2xla.kernels.products.pays`. ``winograd``: 3x3 windows by Winograd's
    minimal filtering where that is faster, whose rounding is about 1e-6 of the largest value.
    """

    def __init__(self, winograd: bool = True) -> None:
        self.winograd = winograd

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        """The functions with composites, and the functions that these name."""
        if not may_call():
            return mod
        return with_composites(mod, lambda name: _Calls(name, self.winograd))


class _Calls(Sites):
    """The composites of one function."""

    family = FAMILY
    adds = True
    endings = ENDINGS

    def __init__(self, name: str, winograd: bool = True) -> None:
        super().__init__(name)
        self.winograd = winograd
        self._least: int | None = None

    def function(self, func: Function) -> Function:
        """See :class:`Sites`. Small calls where there are large ones, for which all is compiled."""
        made = super().function(func)
        if made is func:
            return func
        self._least = SMALL
        return super().function(made)

    def rules(self) -> list[Rule]:
        """See :class:`Sites`."""
        return [
            Rule(is_op("relax.nn.conv2d")(_x, _w), self._convolution),
            Rule(is_op("relax.matmul")(_x, _w), lambda m: self._product(m, m[_x], m[_w])),
            Rule(is_op("relax.einsum")(_both), self._linear),
        ]

    def rows(self, described: Described, params: Sequence[Expr]) -> Expr:
        """See :class:`Sites`."""
        x, weight, bias, added = params
        depth = described.operands[1].shape[1:-1]
        plain = unpacked(weight, depth, described.results, described.groups)
        if isinstance(described, Product):
            made: Expr = R.matmul(x, plain)
        else:
            convolution = described
            if isinstance(described, Winograd):
                convolution = described.convolution
                plain = windows_of(plain, described.size)
            assert isinstance(convolution, Convolution)
            made = R.nn.conv2d(
                x,
                plain,
                convolution.strides,
                convolution.padding,
                convolution.dilation,
                groups=convolution.groups,
                data_layout="NHWC",
                kernel_layout="HWIO",
            )
        made = R.add(made, bias)
        return ended(R.add(made, added) if described.added else made, described.ending)

    def _convolution(self, m: Match) -> Expr | None:
        if not is_known(m.call) or not m.from_constants(m[_w]):
            return None
        w = Windows(m.call, m.var, m.bind)
        if w.dtype != "float32" or w.layouts != LAYOUTS:
            return None
        n, height, width, channels = w.image
        top, left, bottom, right = (int(p) for p in w.attrs["padding"])
        strides, dilation = ((int(a), int(b)) for a, b in (w.attrs["strides"], w.attrs["dilation"]))
        described = Convolution(
            (n, height, width, channels),
            (w.weight[0], w.weight[1]),
            w.weight[3],
            strides,
            (top, left, bottom, right),
            dilation,
            w.attrs["groups"],
        )
        return self._call(m, described, m[_x], m[_w])

    def _product(self, m: Match, x: Expr, weight: Expr) -> Expr | None:
        given, matrix = _known(x), _known(weight)
        if not given or not matrix or len(matrix) != 2 or not m.from_constants(weight):
            return None
        return self._call(m, Product(given, matrix[1]), x, weight)

    def _linear(self, m: Match) -> Expr | None:
        operands = m[_both]
        if not isinstance(operands, Tuple) or len(operands.fields) != 2:
            return None
        x, weight = operands.fields
        subscripts = str(call_attrs(m.call)["subscripts"])
        if is_linear(subscripts, "io"):
            return self._product(m, x, weight)
        if not is_linear(subscripts) or not m.from_constants(weight):
            return None
        given, matrix = _known(x), _known(weight)
        if not given or not matrix:
            return None
        matrix_of = m.bind("matrix", R.permute_dims(weight))
        return self._call(m, Product(given, matrix[0]), x, matrix_of)

    def _call(
        self, m: Match, described: Convolution | Product, x: Expr, weight: Expr
    ) -> Expr | None:
        if described.problem() or not pays(described, self._least):
            return None
        if self.winograd and isinstance(described, Convolution):
            filtered = by_winograd(described)
            if filtered is not None:
                # One axis after the other: LiftWeights computes what grows up to twofold.
                halved = m.bind("halved", values_along(weight, 0, filtered.size))
                values = m.bind("values", values_along(halved, 1, filtered.size))
                shape = filtered.operands[1].shape
                flat = R.reshape(values, (shape[1], shape[2], filtered.results))
                panels = m.bind("panels", packed(m.bind("flat", flat)))
                return self.composite(m, Site(filtered, x, panels))
        panels = m.bind("panels", packed(weight, described.groups))
        return self.composite(m, Site(described, x, panels))


def form(call: Described) -> Function:
    """The function of rows that a composite for ``call`` names."""
    return _Calls("").form(call)


def values_along(weight: Expr, axis: int, size: int) -> Expr:
    """The values at the points of windows [height, width, C, O] along one of the two axes."""
    given = "hwio"
    subscripts = f"p{given[axis]},{given}->{given.replace(given[axis], 'p')}"
    return R.einsum((const(points(size).astype("float32")), weight), subscripts)


def windows_of(values: Expr, size: int) -> Expr:
    """The inverse of :func:`values_along` along both axes, of values [points**2, C, O]."""
    inverse = const(np.linalg.pinv(points(size)).astype("float32"))
    dims = _known(values)
    assert dims is not None
    square = R.reshape(values, (size + 2, size + 2, *dims[1:]))
    half = R.einsum((inverse, square), "hp,pqio->hqio")
    return R.einsum((inverse, half), "wq,hqio->hwio")


def packed(weight: Expr, groups: int = 1) -> Expr:
    """A weight [..., results] as the functions want it."""
    dims = _known(weight)
    assert dims is not None
    *depth, results = dims
    shape, own, numbers = packed_shape(depth, results, groups), results // groups, math.prod(depth)
    each = shape[0] // groups
    flat: Expr = R.reshape(weight, (numbers, groups, own))
    if each * PANEL > own:
        flat = R.nn.pad(flat, (0, 0, 0, 0, 0, each * PANEL - own))
    turned = R.permute_dims(R.reshape(flat, (numbers, shape[0], PANEL)), (1, 0, 2))
    return R.reshape(turned, shape)


def unpacked(weight: Expr, depth: Sequence[int], results: int, groups: int = 1) -> Expr:
    """The inverse of :func:`packed`: [*depth, results]."""
    panels, own, numbers = (
        packed_shape(depth, results, groups)[0],
        results // groups,
        math.prod(depth),
    )
    turned = R.permute_dims(R.reshape(weight, (panels, numbers, PANEL)), (1, 0, 2))
    flat: Expr = R.reshape(turned, (numbers, groups, panels // groups * PANEL))
    if panels // groups * PANEL > own:
        flat = R.strided_slice(flat, (2,), (0,), (own,))
    return R.reshape(flat, (*depth, results))


def _known(value: Expr) -> tuple[int, ...] | None:
    """The shape of a value of float32, where it is known."""
    tensor = tensor_of(value)
    return tensor.shape if tensor is not None and tensor.dtype == "float32" else None
