"""ExpandDepthwise: depthwise convolutions as sums of shifted products.

XLA:CPU has no fast road for ``groups == channels``: a 3x3 on 96 channels of 112x112 takes 33 ms as
a convolution and 0.6 ms as nine multiplications and additions, which fuse into one loop. Channels
must be last, so that the innermost loop runs over them.

Large windows of many channels do not stay in the fastest cache from one pixel to the next. With the
channels in blocks, each with its planes, they do: a 5x5 on 672 channels of 14x14 takes 0.04 ms
instead of 0.19, and putting the channels into blocks and back 0.02 (one core with AVX-512).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from itertools import product
from typing import Final

from relax2xla import op as R
from relax2xla.dpl.make import is_op, wildcard
from relax2xla.dpl.rules import Match, Rule, rewrite
from relax2xla.ir import Call, Expr, Function, IRModule, Var
from relax2xla.kernels.depthwise import LAYOUTS, WeightGradient
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.apart import Apart, Bind, computed_again, each_apart
from relax2xla.transform.cpu.convolutions.weight_gradients import Gradient, behind, gradient_of
from relax2xla.transform.cpu.convolutions.windows import (
    MAX_TAPS,
    Windows,
    expand_convolutions,
    op,
    slice_of,
)

# The channels of a block; the elements of a window and of the image under it that are many; taps
# that are worth the two copies.
_BLOCK: Final = 32
_MANY: Final = 9_000
_TAPS: Final = 20
# Terms in the sums of a gradient; more make programs that take long to compile.
_TERMS: Final = 512


@register(opt_level=2, stage="static", platform="cpu")
class ExpandDepthwise(Pass):
    """Expand ``nn.conv2d`` with ``groups`` equal to the channels, in NHWC and HWIO, static shapes.

    And the convolution that gives the gradient of its weight, with as many groups in the batch.
    Exact up to the order of the additions.
    """

    def transform_module(self, mod: IRModule, context: PassContext) -> IRModule:
        return each_apart(mod, "depthwise", _expand)


def _expand(func: Function, apart: Apart) -> Function:
    again = computed_again(func)

    def expand(w: Windows) -> Expr:
        if _is_large(w):
            return _in_blocks(w, apart)
        return w.apart(apart, _expanded) if again(w.var) else _expanded(w)

    func = rewrite(func, [Rule(_convolution, _gradient)], inside=False)[0]
    return expand_convolutions(func, is_depthwise, expand)


def is_depthwise(w: Windows) -> bool:
    """Whether each channel is by itself, in a window of more than one tap."""
    height, width, per_group, channels = w.weight
    return w.attrs["groups"] == channels == w.image[3] and per_group == 1 < height * width


def _is_large(w: Windows) -> bool:
    height, width, _, channels = w.weight
    taps = height * width
    many = taps >= _TAPS and 2 * taps * channels >= _MANY
    return w.image[0] == 1 and many and channels % _BLOCK == 0


def _expanded(w: Windows) -> Expr:
    def term(i: int, j: int) -> Expr:
        factor = op("reshape", w.bind("tap", w.tap(i, j)), (1, 1, 1, w.weight[3]))
        return op("multiply", w.shifted(i, j), w.bind("factor", factor))

    return _sum(w, term, w.bind)


def _in_blocks(w: Windows, apart: Apart) -> Call:
    """With the blocks of channels in the place of the batch."""
    blocks = w.weight[3] // _BLOCK
    top, left, bottom, right = w.attrs["padding"]
    planes = (w.image[1] + top + bottom, w.image[2] + left + right, blocks, _BLOCK)
    split = w.bind("split", op("reshape", w.padded, planes))
    image = w.bind("blocks", op("permute_dims", split, [2, 0, 1, 3]))

    def body(params: list[Var], bind: Bind) -> Expr:
        def term(i: int, j: int) -> Expr:
            shifted = bind("shifted", slice_of(params[0], [1, 2], *w.pixels(i, j)))
            tap = bind("tap", slice_of(params[1], [0, 1], [i, j], [i + 1, j + 1], [1, 1]))
            return op(
                "multiply", shifted, bind("factor", op("reshape", tap, (blocks, 1, 1, _BLOCK)))
            )

        return _sum(w, term, bind)

    made = w.bind("convolved", apart.call([image, w.call.args[1]], body))
    joined = w.bind("joined", op("permute_dims", made, [1, 2, 0, 3]))
    return op("reshape", joined, w.result)


def _sum(w: Windows, term: Callable[[int, int], Expr], bind: Bind) -> Expr:
    """The sum of the terms of all taps."""
    first, *others = product(range(w.weight[0]), range(w.weight[1]))
    total = term(*first)
    for i, j in others:
        total = op("add", bind("sum", total), bind("product", term(i, j)))
    return total


# -- the gradient of the weight --------------------------------------------------------------------
_image, _given = wildcard(), wildcard()
_convolution = is_op("relax.stablehlo.convolution")(_image, _given)


def _gradient(m: Match) -> Expr | None:
    found = gradient_of(m.call)
    call = by_channel(found)
    if found is None or call is None or call.window[0] * call.window[1] > MAX_TAPS:
        return None
    return found.in_its_order(gradient_rows(call, m[_image], m[_given]), "HWIO")


def by_channel(found: Gradient | None) -> WeightGradient | None:
    """The gradient of a depthwise weight, [height, width, 1, C], that a gradient is.

    The batch has a group for each channel. None for others.
    """
    if found is None or not found.is_depthwise or found.dilation != (1, 1):
        return None
    image, gradient = (_LAYOUTS.get(order) for order in (found.image, found.gradient))
    if image is None or gradient is None:
        return None
    where = (found.window, found.strides, found.top, found.left)
    return WeightGradient(found.image_sizes, found.gradient_sizes, *where, image, gradient)


# How the axes of an image in NHWC lie in it, to the name of that.
_LAYOUTS: Final = {tuple(v.index(axis) for axis in "NHWC"): v for v in LAYOUTS}


def gradient_rows(call: WeightGradient, image: Expr, gradient: Expr) -> Expr:
    """For each tap the sum of the products of the gradient with the pixels under the tap.

    The products of images, and of bands of their rows, are added up before the sum: it then reads
    what stays in the fastest cache.
    """
    x, g = (
        v if layout == "NHWC" else R.permute_dims(v, [0, 2, 3, 1])
        for v, layout in ((image, call.image_layout), (gradient, call.gradient_layout))
    )
    (height, width), (rows, columns) = call.window, call.strides
    n, high, wide, channels = call.gradient
    bottom, right = behind(call, (1, 1))
    x = R.nn.pad(x, [0, 0, call.top, bottom, call.left, right, 0, 0])
    images = _parts(n, _TERMS // (height * width))
    bands = _parts(high, _TERMS // (height * width * images))
    many, lines = n // images, high // bands

    def products(i: int, j: int) -> Expr:
        made: list[Expr] = []
        for b, y in product(range(images), range(bands)):
            first, row = b * many, y * lines
            begin = [first, i + row * rows, j]
            end = [first + many, begin[1] + (lines - 1) * rows + 1, j + (wide - 1) * columns + 1]
            under = R.strided_slice(x, [0, 1, 2], begin, end, [1, rows, columns])
            given = R.strided_slice(g, [0, 1], [first, row], [first + many, row + lines], [1, 1])
            made.append(R.multiply(under, given))
        return R.sum(functools.reduce(R.add, made), [0, 1, 2])

    sums = [products(i, j) for i, j in product(range(height), range(width))]
    return R.reshape(R.stack(sums, 0), (height, width, 1, channels))


def _parts(size: int, most: int) -> int:
    """Into how many equal parts an axis goes, ``most`` at the most."""
    return max((n for n in range(1, min(size, most) + 1) if size % n == 0), default=1)
