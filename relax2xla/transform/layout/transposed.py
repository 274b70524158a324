"""Forms of transposed convolutions without dilation: phases, and blocks of one product.

Along an axis with steps of ``s``, place ``s * q + r`` of the result, before its ends are cut off,
is the sum over ``t`` of pixel ``q - t`` times tap ``s * t + r`` of the window. So

* what the places of one remainder ``r`` hold, a *phase*, is a convolution with steps of 1 by every
  ``s``-th tap, and phases interleave;
* or one product gives each pixel times each tap, of a weight as it lies. To a pixel belong *blocks*
  of ``s`` taps, which lie side by side in the result; where the window is wider than a step, those
  of neighbours lie on each other, and are added.

Both put results together with channels last, so that those of a pixel move together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from relax2xla import op as R
from relax2xla.ir import Call, Expr, Op, TensorStructInfo
from relax2xla.ir.make import const
from relax2xla.ir.op import call_attrs
from relax2xla.op.shared.spatial import SPATIAL
from relax2xla.tir import Dim
from relax2xla.transform.core.values import tensor_of
from relax2xla.transform.layout.propagation import dims_of

Bind = Callable[[str, Expr], Expr]
# By how many axes of space there are.
CONVOLUTIONS = {2: R.nn.conv2d, 3: R.nn.conv3d}


class _Phase(NamedTuple):
    """Of one axis: the first of its taps in the window turned around, and zeros at the ends."""

    tap: int
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Transposed:
    """A transposed convolution in NC... and IO..., of known sizes but for the batch.

    bind: of what is computed on the way; results: channels of the result, of all groups; before:
    what is cut off; made: the sizes of the result's axes of space
    """

    bind: Bind
    image: Expr
    weight: Expr
    dtype: str
    batch: Dim
    channels: int
    results: int
    groups: int
    space: tuple[int, ...]
    window: tuple[int, ...]
    strides: tuple[int, ...]
    before: tuple[int, ...]
    made: tuple[int, ...]

    @property
    def pixels(self) -> int:
        """Of the images of a batch; of one where the batch is not known."""
        return math.prod(self.space) * (self.batch if isinstance(self.batch, int) else 1)

    @property
    def blocks(self) -> tuple[int, ...]:
        """By axis, how many a pixel has."""
        return tuple(-(-k // s) for k, s in zip(self.window, self.strides, strict=True))

    # -- phases ----------------------------------------------------------------------------------
    def by_phases(self) -> Expr | None:
        """As a convolution for each phase; None where one has no taps, or does not read all of the
        image.
        """
        rank = len(self.space)
        many = [-(-size // step) for size, step in zip(self.made, self.strides, strict=True)]
        phases = [self._phases(axis, many[axis]) for axis in range(rank)]
        covers = all(k >= step for k, step in zip(self.window, self.strides, strict=True))
        if not covers or min(n for axis in phases for p in axis for n in p[1:]) < 0:
            return None
        turned = self.bind("turned", turned_around(self.weight, self.groups))
        parts: list[Expr] = []
        for at in product(*phases):
            first = [p.tap for p in at]
            taps = R.strided_slice(turned, range(2, 2 + rank), first, self.window, self.strides)
            around = [p.before for p in at] + [p.after for p in at]
            made = CONVOLUTIONS[rank](self.image, taps, padding=around, groups=self.groups)
            parts.append(self.bind("phase", R.permute_dims(made, (0, *range(2, 2 + rank), 1))))
        return R.permute_dims(self._interleaved(parts, many), (0, 1 + rank, *range(1, 1 + rank)))

    def _phases(self, axis: int, many: int) -> list[_Phase]:
        """Those of an axis, in the order in which they interleave, each of as ``many`` places."""
        step, window, size = self.strides[axis], self.window[axis], self.space[axis]
        found: list[_Phase] = []
        for at in range(step):
            skipped, r = divmod(self.before[axis] + at, step)
            taps = len(range(r, window, step))
            before = taps - 1 - skipped
            found.append(_Phase((window - 1 - r) % step, before, many - size - before + taps - 1))
        return found

    def _interleaved(self, parts: list[Expr], many: list[int]) -> Expr:
        apart = [n for places in many for n in (places, 1)]
        joined = [R.reshape(part, (self.batch, *apart, self.results)) for part in parts]
        for axis, step in reversed([*enumerate(self.strides)]):
            along = [joined[i : i + step] for i in range(0, len(joined), step)]
            joined = [R.concat(those, axis=2 + 2 * axis) for those in along]
        sizes = [places * step for places, step in zip(many, self.strides, strict=True)]
        whole = R.reshape(joined[0], (self.batch, *sizes, self.results))
        axes = [*range(1, 1 + len(sizes))]
        return R.strided_slice(whole, axes, [0] * len(sizes), [*self.made])

    # -- blocks ----------------------------------------------------------------------------------
    def by_blocks(self) -> Expr:
        """As one product, and the sum of its blocks. Not of groups."""
        rank, taps = len(self.space), math.prod(self.window)
        # As a convolution of planes, of which ChannelsLast makes the product.
        *above, columns = self.space
        planes = R.reshape(self.image, (self.batch, self.channels, math.prod(above), columns))
        matrix = R.reshape(self.weight, (self.channels, self.results * taps, 1, 1))
        made = R.permute_dims(R.nn.conv2d(planes, matrix, kernel_layout="IOHW"), (0, 2, 3, 1))
        apart = R.reshape(made, (self.batch, *self.space, self.results, *self.window))
        # Behind each axis of space that of its taps.
        order = [0, *(a for i in range(rank) for a in (1 + i, 2 + rank + i)), 1 + rank]
        by_pixel = self.bind("by_pixel", R.permute_dims(apart, order))
        places = product(*map(range, self.blocks))
        total = _sum([self._block(by_pixel, at) for at in places])
        sizes = [
            (size + many - 1) * step
            for size, many, step in zip(self.space, self.blocks, self.strides, strict=True)
        ]
        whole: Expr = R.reshape(total, (self.batch, *sizes, self.results))
        if any(self.before) or (*sizes,) != self.made:
            before = [-cut for cut in self.before]
            after = [m - b - s for m, b, s in zip(self.made, before, sizes, strict=True)]
            whole = _between(whole, self.dtype, (0, *before, 0), (0, *after, 0))
        return R.permute_dims(whole, (0, rank + 1, *range(1, rank + 1)))

    def _block(self, by_pixel: Expr, at: tuple[int, ...]) -> Expr:
        """The block ``at`` that place of those of each pixel, where it lies in the result."""
        begin = [i * step for i, step in zip(at, self.strides, strict=True)]
        end = [min(b + s, k) for b, s, k in zip(begin, self.strides, self.window, strict=True)]
        taps = range(2, 2 * len(at) + 1, 2)
        block: Expr = by_pixel
        if max(self.blocks) > 1:
            block = R.strided_slice(by_pixel, [*taps], begin, end)
        widths = [0, 0]
        for i, many, b, e, s in zip(at, self.blocks, begin, end, self.strides, strict=True):
            widths += [i, many - 1 - i, 0, s - (e - b)]
        return R.nn.pad(block, [*widths, 0, 0]) if any(widths) else block


def transposed(call: Call, bind: Bind) -> Transposed | None:
    """What a call of a transposed convolution says; None of one that has no such forms.

    They are for float32 and float64, as sums in half precision would be rounded more often.
    """
    attrs, weight = call_attrs(call), tensor_of(call.args[1])
    image, result = dims_of(call.args[0]), dims_of(call)
    if weight is None or image is None or result is None:
        return None
    rank = len(image) - 2
    data = f"NC{SPATIAL[rank]}"
    layouts = (attrs["data_layout"], attrs["kernel_layout"], attrs["out_layout"] or data)
    if layouts != (data, f"IO{SPATIAL[rank]}", data) or max(attrs["dilation"]) > 1:
        return None
    space, made = (tuple(d for d in v[2:] if isinstance(d, int)) for v in (image, result))
    if len(space) < rank or len(made) < rank or min(*space, *made) < 1:
        return None
    infos = [v.struct_info_ for v in (*call.args, call)]
    dtypes = {i.dtype for i in infos if isinstance(i, TensorStructInfo)}
    if dtypes not in ({"float32"}, {"float64"}):
        return None
    channels, of_group, *window = weight.shape
    return Transposed(
        bind,
        image=call.args[0],
        weight=call.args[1],
        dtype=weight.dtype,
        batch=image[0],
        channels=channels,
        results=of_group * attrs["groups"],
        groups=attrs["groups"],
        space=space,
        window=tuple(window),
        strides=tuple(attrs["strides"]),
        before=tuple(attrs["padding"][:rank]),
        made=made,
    )


def turned_around(weight: Expr, groups: int) -> Expr:
    """The weight of a convolution, of that of a transposed one: turned, results before channels."""
    given = tensor_of(weight)
    assert given is not None
    channels, results, *window = given.shape
    space = range(2, 2 + len(window))
    if groups > 1:
        apart = R.reshape(weight, (groups, channels // groups, results, *window))
        turned = R.permute_dims(apart, (0, 2, 1, *(a + 1 for a in space)))
        weight = R.reshape(turned, (groups * results, channels // groups, *window))
    else:
        weight = R.permute_dims(weight, (1, 0, *space))
    for axis, size in zip(space, window, strict=True):
        weight = R.flip(weight, axis) if size > 1 else weight
    return weight


def _between(x: Expr, dtype: str, before: tuple[int, ...], after: tuple[int, ...]) -> Expr:
    """``x`` between zeros; of which a negative number cuts off."""
    zeros = {"edge_padding_low": before, "edge_padding_high": after}
    zero = const(0, dtype)
    return Op.get("relax.stablehlo.pad")(x, zero, **zeros, interior_padding=(0,) * len(before))


def _sum(terms: list[Expr]) -> Expr:
    total, *others = terms
    for term in others:
        total = R.add(total, term)
    return total
