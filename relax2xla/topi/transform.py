"""Tensors of the same elements in another shape or order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.shared import (
    compute,
    is_same,
    known,
    listed,
    one_axis,
    product,
    ravel,
    replaced,
    shown,
    size,
    some_axes,
    unravel,
    want_int,
    want_one_of,
)


def expand_dims(a: te.Tensor, axis: int, num_newaxis: int = 1) -> te.Tensor:
    """``num_newaxis`` axes of size 1 before ``axis``, which counts those of the result."""
    at = one_axis(axis, a.ndim + 1, "expand_dims")
    shape = [*a.shape[:at], *[1] * num_newaxis, *a.shape[at:]]

    def element(*i: Any) -> Any:
        return a(*i[:at], *i[at + num_newaxis :])

    return compute(shape, element, "T_expand_dims", "broadcast")


def expand_like(a: te.Tensor, shape_like: te.Tensor, axis: Any) -> te.Tensor:
    """``a`` with new axes ``axis``, as often along them as ``shape_like`` is long."""
    axes = some_axes(axis, shape_like.ndim, "expand_like")
    if a.ndim + len(axes) != shape_like.ndim:
        raise ValueError("topi.expand_like: axis names another number of axes than are missing")

    def element(*i: Any) -> Any:
        return a(*(v for n, v in enumerate(i) if n not in axes))

    return compute(shape_like.shape, element, "T_expand_like", "broadcast")


def transpose(a: te.Tensor, axes: Sequence[int] | None = None) -> te.Tensor:
    """The axes in the order ``axes``, reversed by default."""
    given = range(a.ndim)[::-1] if axes is None else axes
    order = [one_axis(x, a.ndim, "transpose") for x in given]
    if sorted(order) != list(range(a.ndim)):
        raise ValueError(f"topi.transpose: {axes} names not each of {a.ndim} axes once")

    def element(*i: Any) -> Any:
        return a(*(i[order.index(n)] for n in range(a.ndim)))

    return compute([a.shape[n] for n in order], element, "T_transpose")


def flip(a: te.Tensor, axis: int = 0) -> te.Tensor:
    """Backwards along one axis."""
    at = one_axis(axis, a.ndim, "flip")

    def element(*i: Any) -> Any:
        return a(*replaced(i, at, a.shape[at] - 1 - i[at]))

    return compute(a.shape, element, "T_reverse_sequence")


def reverse_sequence(
    a: te.Tensor, seq_lengths: te.Tensor, seq_axis: int = 1, batch_axis: int = 0
) -> te.Tensor:
    """The first ``seq_lengths[b]`` elements along ``seq_axis`` backwards, of each batch b."""
    along = one_axis(seq_axis, a.ndim, "reverse_sequence")
    batch = one_axis(batch_axis, a.ndim, "reverse_sequence")

    def element(*i: Any) -> Any:
        length = tir.cast(i[along].dtype, seq_lengths(i[batch]))
        at = tir.if_then_else(
            tir.Or.make(length <= 1, length <= i[along]), i[along], length - 1 - i[along]
        )
        return a(*replaced(i, along, at))

    return compute(a.shape, element, "T_reverse_sequence")


def reshape(a: te.Tensor, newshape: Sequence[Any]) -> te.Tensor:
    """The elements in row-major order in another shape; one size may be -1."""
    shape = list(newshape)
    open_ = [n for n, d in enumerate(shape) if known(d) == -1]
    if len(open_) > 1:
        raise ValueError("topi.reshape: only one size can be -1")
    for n in open_:
        others = product(shape[:n] + shape[n + 1 :])
        shape[n] = size(product(a.shape) // others)
    old, new = known(product(a.shape)), known(product(shape))
    if old is not None and new is not None and old != new:
        raise ValueError(
            f"topi.reshape: {shown(a.shape)} has {old} elements, {shown(shape)} has {new}"
        )

    def element(*i: Any) -> Any:
        return a(*unravel(ravel(i, shape), a.shape))

    return compute(shape, element, "T_reshape")


def squeeze(a: te.Tensor, axis: Any = None) -> te.Tensor:
    """Without axes of size 1: ``axis``, or all that are known to be of size 1."""
    if axis is None:
        axes = [n for n, d in enumerate(a.shape) if known(d) == 1]
    else:
        axes = some_axes(axis, a.ndim, "squeeze")
        for n in axes:
            if known(a.shape[n]) not in (1, None):
                raise ValueError(f"topi.squeeze: the axis {n} has size {shown(a.shape[n])}")

    def element(*i: Any) -> Any:
        rest = iter(i)
        return a(*(0 if n in axes else next(rest) for n in range(a.ndim)))

    return compute([d for n, d in enumerate(a.shape) if n not in axes], element, "T_squeeze")


def concatenate(a_tuple: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    """Tensors one after another along an axis."""
    first, *others = _some(a_tuple, "concatenate")
    at = one_axis(axis, first.ndim, "concatenate")
    for t in others:
        fits = t.ndim == first.ndim and all(
            n == at or is_same(t.shape[n], first.shape[n]) for n in range(t.ndim)
        )
        if not fits:
            raise ValueError(f"topi.concatenate: {shown(t.shape)} beside {shown(first.shape)}")
    sizes = [t.shape[at] for t in a_tuple]
    shape = replaced(first.shape, at, size(sum(sizes[1:], sizes[0])))

    def element(*i: Any) -> Any:
        made, here = first(*i), i[at]
        for n, t in enumerate(others):
            here = here - sizes[n]
            made = tir.if_then_else(here >= 0, t(*replaced(i, at, here)), made)
        return made

    return compute(shape, element, "T_concat")


def stack(a_tuple: Sequence[te.Tensor], axis: int = 0) -> te.Tensor:
    """Tensors of one shape side by side, along a new axis."""
    first, *others = _some(a_tuple, "stack")
    at = one_axis(axis, first.ndim + 1, "stack")

    def element(*i: Any) -> Any:
        rest = (*i[:at], *i[at + 1 :])
        made = first(*rest)
        for n, t in enumerate(others, 1):
            made = tir.if_then_else(tir.EQ.make(i[at], n), t(*rest), made)
        return made

    shape = [*first.shape[:at], 1 + len(others), *first.shape[at:]]
    return compute(shape, element, "T_stack")


def _some(tensors: Sequence[te.Tensor], what: str) -> Sequence[te.Tensor]:
    if not tensors:
        raise ValueError(f"topi.{what} takes one tensor or more")
    return tensors


def split(ary: te.Tensor, indices_or_sections: Any, axis: int = 0) -> list[te.Tensor]:
    """Equal parts along an axis (a number), or parts that begin at given places (a list)."""
    at = one_axis(axis, ary.ndim, "split")
    whole = ary.shape[at]
    if isinstance(indices_or_sections, list | tuple):
        begins: list[Any] = [0, *indices_or_sections]
        name = "T_split"
    else:
        parts = want_int(indices_or_sections, "the number of parts")
        if parts <= 0:
            raise ValueError(f"topi.split: there are one or more parts; got {parts}")
        step = (whole + (parts - 1)) // parts
        begins, name = [step * n for n in range(parts)], "T_split_sections"
    ends = [*begins[1:], whole]

    def part(begin: Any, end: Any) -> te.Tensor:
        shape = replaced(ary.shape, at, size(end - begin))
        return compute(shape, lambda *i: ary(*replaced(i, at, i[at] + begin)), name)

    return [part(b, e) for b, e in zip(begins, ends, strict=True)]


def strided_slice(
    a: te.Tensor,
    begin: Any,
    end: Any,
    strides: Any = None,
    axes: Any = None,
    slice_mode: str = "end",
    assume_inbound: bool = True,
) -> te.Tensor:
    """``a[begin:end:strides]`` along ``axes`` (all of the first ones by default).

    Negative ends count from the back, and what is outside is cut off, as in numpy;
    ``slice_mode="size"``: ``end`` holds sizes, of which -1 is all that is left. Symbolic bounds are
    taken as they are if ``assume_inbound``, and cut off otherwise.
    """
    want_one_of(slice_mode, ("end", "size"), "strided_slice: slice_mode")
    first, last = listed(begin), listed(end)
    steps = [1] * len(first) if strides is None else listed(strides)
    steps += [1] * (len(first) - len(steps))
    named = list(range(len(first))) if axes is None else listed(axes)
    where = [one_axis(n, a.ndim, "strided_slice") for n in named]
    starts: dict[int, Any] = {}
    jumps: dict[int, int] = {}
    shape = list(a.shape)
    for n, b, e, s in zip(where, first, last, steps, strict=True):
        jump = 1 if slice_mode == "size" else want_int(s, "a stride of a slice")
        if jump == 0:
            raise ValueError("topi.strided_slice: a stride cannot be 0")
        if slice_mode == "size":
            e = a.shape[n] if known(e) == -1 else b + e
        starts[n], shape[n] = _span(a.shape[n], b, e, jump, assume_inbound)
        jumps[n] = jump

    def element(*i: Any) -> Any:
        return a(*(v * jumps[n] + starts[n] if n in starts else v for n, v in enumerate(i)))

    return compute(shape, element, "T_strided_slice")


def _span(whole: Any, begin: Any, end: Any, step: int, inbound: bool) -> tuple[Any, Any]:
    """The first index and the number of elements of one axis of a slice."""
    n, b, e = known(whole), known(begin), known(end)
    if n is not None and b is not None and e is not None:
        taken = range(*slice(b, e, step).indices(n))
        return taken.start, len(taken)

    def bound(value: Any, number_: int | None) -> Any:
        low, high = (0, whole) if step > 0 else (-1, whole - 1)
        if number_ is None:
            return value if inbound else tir.max(tir.min(value, high), low)
        if number_ < -(2**31) + 1:
            return low
        if number_ >= 2**31 - 1:
            return high
        made: Any = whole + number_ if number_ < 0 else number_
        if inbound or (number_ in (0, -1) and step > 0):
            return made
        return tir.max(tir.min(made, high), low)

    first, last = bound(begin, b), bound(end, e)
    span = last - first if step > 0 else first - last
    return first, size((span + (abs(step) - 1)) // abs(step))


def repeat(a: te.Tensor, repeats: int, axis: int) -> te.Tensor:
    """Each element ``repeats`` times in a row."""
    at = one_axis(axis, a.ndim, "repeat")
    shape = replaced(a.shape, at, size(a.shape[at] * repeats))
    return compute(shape, lambda *i: a(*replaced(i, at, i[at] // repeats)), "T_repeat", "broadcast")


def tile(a: te.Tensor, reps: Any) -> te.Tensor:
    """The whole ``reps`` times along each axis; axes that are missing are added in front."""
    times = listed(reps)
    ndim = max(a.ndim, len(times))
    sizes = [*[1] * (ndim - a.ndim), *a.shape]
    times = [*[1] * (ndim - len(times)), *times]
    shape = [size(d * t) for d, t in zip(sizes, times, strict=True)]

    def element(*i: Any) -> Any:
        own = zip(i[ndim - a.ndim :], a.shape, strict=True)
        return a(*(0 if known(d) == 1 else v % d for v, d in own))

    return compute(shape, element, "T_tile", "broadcast")


def meshgrid(a_tuple: Sequence[te.Tensor], indexing: str = "ij") -> list[te.Tensor]:
    """Each vector along an axis of its own; ``indexing="xy"`` swaps the first two axes."""
    want_one_of(indexing, ("ij", "xy"), "meshgrid: indexing")
    order = list(range(len(a_tuple)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = [1, 0]
    shape = [a_tuple[n].shape[0] if a_tuple[n].ndim else 1 for n in order]

    def grid(n: int) -> te.Tensor:
        t = a_tuple[n]
        return compute(shape, lambda *i: t(i[order.index(n)]) if t.ndim else t(), "T_meshgrid")

    return [grid(n) for n in range(len(a_tuple))]


def sliding_window(
    data: te.Tensor, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> te.Tensor:
    """Windows over the axes from ``axis`` on: their places, and then their elements."""
    at = one_axis(axis, data.ndim, "sliding_window")
    count = data.ndim - at
    if len(window_shape) != count or len(strides) != count:
        raise ValueError(f"topi.sliding_window: there are {count} axes from {at} on")
    places = [
        size((n - w) // s + 1)
        for n, w, s in zip(data.shape[at:], window_shape, strides, strict=True)
    ]

    def element(*i: Any) -> Any:
        moved = zip(i[at : at + count], i[at + count :], strides, strict=True)
        return data(*i[:at], *(p * s + w for p, w, s in moved))

    return compute([*data.shape[:at], *places, *window_shape], element, "T_sliding_window")


def flatten(data: te.Tensor) -> te.Tensor:
    """All axes but the first as one."""
    shape = [data.shape[0], product(data.shape[1:])]

    def element(*i: Any) -> Any:
        return data(i[0], *unravel(i[1], data.shape[1:]))

    return compute(shape, element, "tensor")


# -- layouts ---------------------------------------------------------------------------------------
def _axes(layout: str) -> list[tuple[str, int | None]]:
    """The axes of a layout: a letter, and the size of a part (``4c``)."""
    made: list[tuple[str, int | None]] = []
    factor = ""
    for c in layout:
        if c.isdigit():
            factor += c
        elif c.isalpha() and c.islower() is bool(factor):
            made.append((c, int(factor) if factor else None))
            factor = ""
        else:
            raise ValueError(f"topi.layout_transform: {layout!r} is no layout such as 'NCHW4c'")
    if factor or len({c for c, _ in made}) != len(made):
        raise ValueError(f"topi.layout_transform: {layout!r} is no layout such as 'NCHW4c'")
    return made


def layout_transform(
    array: te.Tensor, src_layout: str, dst_layout: str, schedule_rule: str = "None"
) -> te.Tensor:
    """From one layout, such as "NCHW", to another, such as "NCHW4c"; what is padded is 0."""
    source, target = _axes(src_layout), _axes(dst_layout)
    if {c.upper() for c, _ in source} != {c.upper() for c, _ in target}:
        raise ValueError(f"topi.layout_transform: {src_layout} and {dst_layout} have other axes")
    if len(source) != array.ndim:
        raise ValueError(f"topi.layout_transform: {src_layout} is no layout of {array.ndim} axes")
    if source == target:
        return array
    whole: dict[str, Any] = {}
    for (c, factor), n in zip(source, array.shape, strict=True):
        whole[c.upper()] = whole.get(c.upper(), 1) * (factor or n)
    parts = {c.upper(): f for c, f in target if f is not None}
    inner = {c.upper(): f for c, f in source if f is not None}
    shape: list[Any] = []
    for c, factor in target:
        f = parts.get(c)
        shape.append(factor or size((whole[c] + (f - 1)) // f if f else whole[c]))

    def element(*i: Any) -> Any:
        at: dict[str, Any] = {}
        for (c, factor), v in zip(target, i, strict=True):
            if factor is None:
                at[c] = at.get(c, 0) + v * parts.get(c, 1)
            else:
                at[c.upper()] = at.get(c.upper(), 0) + v
        own: list[Any] = []
        for c, factor in source:
            place = at[c.upper()]
            own.append(place // inner.get(c, 1) if factor is None else place % factor)
        inside = tir.const(True)
        for v, n, (c, _) in zip(own, array.shape, source, strict=True):
            whole_size = known(whole[c.upper()])
            if c in parts and (whole_size is None or whole_size % parts[c]):
                inside = tir.And.make(inside, v < n)
        value = array(*own)
        if isinstance(inside, tir.IntImm):
            return value
        return tir.if_then_else(inside, value, tir.const(0, array.dtype))

    attrs = {
        "schedule_rule": schedule_rule,
        "src_layout": src_layout,
        "dst_layout": dst_layout,
        "input_shape": list(array.shape),
    }
    return compute(shape, element, "T_layout_trans", "injective", attrs)
