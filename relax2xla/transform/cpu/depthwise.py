"""ExpandDepthwise: depthwise convolutions as sums of shifted products.

XLA:CPU has no fast road for ``groups == channels``: a 3x3 on 96 channels of 112x112 takes 33 ms as
a convolution and 0.6 ms as nine multiplications and additions, which fuse into one loop. Channels
must be last, so that the innermost loop runs over them.

Large windows of many channels do not stay in the fastest cache from one pixel to the next. With the
channels in blocks, each with its planes, they do: a 5x5 on 672 channels of 14x14 takes 0.04 ms
instead of 0.19, and putting the channels into blocks and back 0.02 (one core with AVX-512).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

from relax2xla.ir import Call, Expr, Function, IRModule, Var
from relax2xla.transform.core import Pass, PassContext, register
from relax2xla.transform.cpu.apart import Apart, Bind, computed_again, each_apart
from relax2xla.transform.cpu.windows import Windows, expand_convolutions, op, slice_of

# The channels of a block; the elements of a window and of the image under it that are many; taps
# that are worth the two copies.
_BLOCK: Final = 32
_MANY: Final = 9_000
_TAPS: Final = 20


@register(opt_level=2, stage="static", platform="cpu")
class ExpandDepthwise(Pass):
    """Expand ``nn.conv2d`` with ``groups`` equal to the channels, in NHWC and HWIO, static shapes.

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

    return expand_convolutions(func, _is_depthwise, expand)


def _is_depthwise(w: Windows) -> bool:
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
