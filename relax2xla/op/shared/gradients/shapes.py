"""Gradients of operators that move elements, sum them or pick some of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from relax2xla.ir.expr import Expr, Tuple
from relax2xla.ir.make import const
from relax2xla.ir.struct_info import TensorStructInfo, TupleStructInfo
from relax2xla.op.shared.gradients.table import (
    Backward,
    dims_of,
    gradient,
    none,
    sizes_of,
    tensor_of,
)
from relax2xla.op.shared.lowering import relax


# ---- sums
def _restored(s: Backward, grad: Expr) -> Expr:
    """``grad`` with the axes that a reduction took away, of size 1."""
    axis = s.attrs["axis"]
    return relax("expand_dims", grad, axis) if axis and not s.attrs["keepdims"] else grad


def _count(s: Backward) -> int:
    """How many elements a reduction makes one of."""
    sizes, axis = sizes_of(s.x), s.attrs["axis"]
    return math.prod(sizes if axis is None else (sizes[i] for i in axis))


@gradient("relax.sum")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("broadcast_to", _restored(s, s.grad), dims_of(s.x))]


@gradient("relax.mean")
def _(s: Backward) -> Sequence[Expr]:
    grad = s.grad / const(_count(s), tensor_of(s.grad).dtype)
    return [relax("broadcast_to", _restored(s, grad), dims_of(s.x))]


@gradient("relax.variance")
def _(s: Backward) -> Sequence[Expr]:
    count, total = _count(s), relax("sum", s.x, s.attrs["axis"], keepdims=True)
    off = s.number(2 / count) * s.x - s.number(2 / count / count) * total
    return [_restored(s, s.grad) * off]


@gradient("relax.cumsum")
def _(s: Backward) -> Sequence[Expr] | None:
    """What comes after an element, and itself: the sum less what comes before."""
    axis = s.attrs["axis"]
    if s.attrs["exclusive"]:
        return None
    if axis is not None:
        rest = relax("sum", s.grad, axis, keepdims=True) - relax("cumsum", s.grad, axis)
        grad = rest + s.grad
    else:
        rest = relax("sum", s.grad, keepdims=True) - relax("cumsum", s.grad)
        grad = relax("reshape", rest + relax("flatten", s.grad), dims_of(s.x))
    if s.attrs["dtype"] is not None:
        grad = relax("astype", grad, tensor_of(s.x).dtype)
    return [grad]


# ---- the same elements in another shape
@gradient("relax.reshape")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("reshape", s.grad, dims_of(s.x)), none(s.args[1])]


@gradient("relax.squeeze", "relax.flatten", "relax.nn.batch_flatten")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("reshape", s.grad, dims_of(s.x))]


@gradient("relax.expand_dims")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("squeeze", s.grad, s.attrs["axis"])]


@gradient("relax.permute_dims")
def _(s: Backward) -> Sequence[Expr]:
    axes = s.attrs["axes"]
    if not axes:
        return [relax("permute_dims", s.grad)]
    back = [0] * len(axes)
    for i, axis in enumerate(axes):
        back[axis] = i
    return [relax("permute_dims", s.grad, back)]


@gradient("relax.flip")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("flip", s.grad, axis=s.attrs["axis"])]


@gradient("relax.broadcast_to")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("collapse_sum_to", s.grad, dims_of(s.x)), none(s.args[1])]


@gradient("relax.collapse_sum_to")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("broadcast_to", s.grad, dims_of(s.x)), none(s.args[1])]


# ---- parts
@gradient("relax.concat")
def _(s: Backward) -> Sequence[Expr] | None:
    info, axis = s.x.struct_info, s.attrs["axis"]
    if axis is None or not isinstance(info, TupleStructInfo):
        return None
    places: list[Any] = []
    end: Any = 0
    for field in info.fields[:-1]:
        if not isinstance(field, TensorStructInfo) or field.dims is None:
            return None
        end = end + field.dims[axis]
        places.append(end)
    # Without a place to cut, `split` gives a tensor; what was joined is a tuple of one.
    return [relax("split", s.grad, places, axis) if places else Tuple([s.grad])]


@gradient("relax.split")
def _(s: Backward) -> Sequence[Expr]:
    whole = not isinstance(s.grad.struct_info, TupleStructInfo)
    return [s.grad if whole else relax("concat", s.grad, s.attrs["axis"])]


@gradient("relax.triu")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("triu", s.grad, *s.args[1:])]


@gradient("relax.tril")
def _(s: Backward) -> Sequence[Expr]:
    return [relax("tril", s.grad, *s.args[1:])]


@gradient("relax.take")
def _(s: Backward) -> Sequence[Expr] | None:
    if s.attrs["mode"] not in ("fast", "clip"):
        return None
    indices = s.args[1]
    grad = relax("grad.take_backward", s.grad, s.x, indices, axis=s.attrs["axis"])
    return [grad, none(indices)]
