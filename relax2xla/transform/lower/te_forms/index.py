"""Operators that read, or write, elements at places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import te, tir, topi
from relax2xla.ir import Expr, ShapeStructInfo, Tuple
from relax2xla.op import call_pure_packed
from relax2xla.transform.lower.te_forms.table import Site, Stays, form, prim, tensor_of


@form("relax.take")
def _(s: Site) -> Expr:
    return s.te(topi.take, s.x, s.args[1], s.attrs["axis"], mode=s.attrs["mode"])


@form("relax.gather_elements")
def _(s: Site) -> Expr:
    return s.te(topi.gather, s.x, s.attrs["axis"], s.args[1])


@form("relax.gather_nd")
def _(s: Site) -> Expr:
    return s.te(gather_nd, *s.args, s.attrs["batch_dims"], name="te_gather_nd")


def _places_first(indices: te.Tensor) -> te.Tensor:
    """The axis of the places, the last one in Relax, in front, where topi has it."""
    last = indices.ndim - 1
    return topi.transpose(indices, [last, *range(last)])


def gather_nd(data: te.Tensor, indices: te.Tensor, batch_dims: int) -> te.Tensor:
    """Elements, or slices, at ``indices[..., :]``."""
    return topi.gather_nd(data, _places_first(indices), batch_dims)


@form("relax.scatter_elements")
def _(s: Site) -> Expr:
    return s.te(topi.scatter_elements, *s.args, s.attrs["axis"], s.attrs["reduction"])


@form("relax.scatter_nd")
def _(s: Site) -> Expr:
    return s.te(scatter_nd, *s.args, s.attrs["reduction"])


def scatter_nd(
    data: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str
) -> te.Tensor:
    """``data`` with ``updates`` at ``indices[..., :]``."""
    return topi.scatter_nd(data, _places_first(indices), updates, reduction)


@form("relax.one_hot")
def _(s: Site) -> Expr:
    on, off = prim(s.args[1]), prim(s.args[2])
    if on.dtype != off.dtype:
        raise Stays(f"its on_value is {on.dtype}, its off_value {off.dtype}")
    return s.te(topi.one_hot, s.x, on, off, s.attrs["depth"], s.attrs["axis"], on.dtype)


@form("relax.strided_slice")
def _(s: Site) -> Expr:
    axes, begin, end, *rest = map(_numbers, s.args[1:])
    strides = rest[0] if rest else [tir.const(1, "int64")] * len(axes)
    inbound = s.attrs["assume_inbound"]
    return s.te(
        *(topi.strided_slice, s.x, begin, end, strides, axes),
        slice_mode="end",
        assume_inbound=inbound,
    )


def _numbers(value: Expr) -> list[Any]:
    if not isinstance(value, Tuple):
        raise Stays("its bounds are a value of the program")
    return [prim(f) for f in value.fields]


@form("relax.dynamic_strided_slice")
def _(s: Site) -> Expr:
    """How long the slice is, computed by a function; sizes of that; the slice."""
    ndim = tensor_of(s.x).ndim
    lengths = s.builder.emit(s.te(slice_lengths, *s.args, name="shape_func", part=True))
    shape = s.builder.emit(
        call_pure_packed(
            "vm.builtin.tensor_to_shape", lengths, sinfo_args=ShapeStructInfo(ndim=ndim)
        )
    )
    sizes = [tir.Var("s", "int64") for _ in range(ndim)]
    s.builder.match_cast(shape, ShapeStructInfo(sizes))
    return s.te(dynamic_strided_slice, *s.args, sizes)


def _bound(index: Any, size: Any, step: Any) -> Any:
    """The begin or the end of a slice, counted from the front and cut off as in Python."""
    low = tir.Select(step < 0, tir.const(-1, "int64"), tir.const(0, "int64"))
    high = tir.Select(step < 0, size - 1, size)
    index = tir.Select(index < 0, index + size, index)
    return tir.min(tir.max(index, low), high)


def slice_lengths(
    data: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor
) -> te.Tensor:
    """The sizes of ``data[begin:end:strides]``, a vector."""

    def length(*at: Any) -> Any:
        (i,) = at
        size: Any = tir.const(-1, "int64")
        for n, d in enumerate(data.shape):
            size = tir.Select(tir.EQ.make(i, tir.const(n, "int64")), d, size)
        step = strides(i)
        first, last = _bound(begin(i), size, step), _bound(end(i), size, step)
        back, on = tir.ceildiv(first - last, -step), tir.ceildiv(last - first, step)
        return tir.max(tir.Select(step < 0, back, on), tir.const(0, "int64"))

    return te.compute((begin.shape[0],), length, name="T_shape_func_strided_slice_dynamic")


def dynamic_strided_slice(
    data: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor, shape: Sequence[Any]
) -> te.Tensor:
    """``data[begin:end:strides]``, whose sizes are ``shape``.

    TVM's function takes begins as they are unless they are too large; these count from the end
    where they are negative, as the operator's do.
    """

    def element(*i: Any) -> Any:
        at: list[Any] = []
        for n, (v, d) in enumerate(zip(i, data.shape, strict=True)):
            place = tir.const(n, "int64")
            at.append(_bound(begin(place), d, strides(place)) + v * strides(place))
        return data(*at)

    return te.compute(list(shape), element, name="T_strided_slice_dynamic")


@form("relax.index_tensor")
def _(s: Site) -> Expr:
    return s.te(topi.adv_index, s.x, s.fields(s.args[1]))
