"""Order: sort, argsort, topk, argmax, argmin, bucketize.

NaN counts as larger than every number and 0 equals -0, as in numpy and torch. Sorting is stable in
both directions, so equal elements keep their order. Sources: TVM Relax v0.20 for names and
inference.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from relax2xla.dtypes import dtype_info, is_float
from relax2xla.errors import OpError
from relax2xla.ir.expr import Expr, Function, Tuple
from relax2xla.ir.op import Rule, op
from relax2xla.ir.op_param import DTypeLike
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.traits import AlongAxis, Opaque, Reduction
from relax2xla.op.shared.checks import (
    BOOL,
    FLOAT,
    INTEGER,
    norm_axis,
    reduced,
    tensor,
    want_elements,
    want_tensor,
    with_dtype,
)
from relax2xla.op.shared.families import member
from relax2xla.op.shared.lowering import (
    broadcast_in_dim,
    chlo,
    compare,
    convert,
    dtype_of,
    elements,
    full_like,
    hlo,
    identity_of,
    iota,
    known,
    outputs,
    reduce,
    region,
    relax,
    reshape,
    scalar,
    select,
    shape_of,
    slice_axis,
    spread,
    tensor_info,
    transpose,
)

ORDERED: Final = (*INTEGER, *FLOAT, *BOOL)


# ---- sorting
def _before(descending: bool, dtype: str, extra: str | None) -> Function:
    """The comparator: whether ``a`` comes before ``b``."""
    info = tensor_info((), dtype)
    params = [("a", info), ("b", info)]
    if extra is not None:
        params += [("i", tensor_info((), extra)), ("j", tensor_info((), extra))]

    def key(x: Expr) -> Expr:
        zero = scalar(0, dtype)
        x = select(compare(x, zero, "EQ"), zero, x)
        return select(compare(x, x, "NE"), scalar(float("nan"), dtype), x)

    def body(a: Expr, b: Expr, *_: Expr) -> Expr:
        direction = "GT" if descending else "LT"
        if not is_float(dtype):
            return compare(a, b, direction)
        return hlo(
            "compare", key(a), key(b), comparison_direction=direction, compare_type="TOTALORDER"
        )

    return region(params, body)


def sort_values(x: Expr, axis: int, descending: bool) -> Expr:
    """``x`` sorted along an axis."""
    before = _before(descending, dtype_of(x), None)
    return hlo("sort", x, before, dimension=axis, is_stable=True)


def argsort_values(x: Expr, axis: int, descending: bool, dtype: str) -> tuple[Expr, Expr]:
    """``x`` sorted along an axis, and where its elements were before."""
    positions = iota(shape_of(x), axis, "int32")
    before = _before(descending, dtype_of(x), "int32")
    values, where = outputs(hlo("sort", x, positions, before, dimension=axis, is_stable=True))
    return values, convert(where, dtype)


def _along(x: Expr, axis: int, name: str = "data") -> TensorStructInfo:
    info = want_tensor(x, name, ORDERED)
    if info.ndim != -1:
        axis_of(axis, info.ndim)
    return info


def axis_of(axis: int, ndim: int) -> int:
    """``norm_axis``, which takes a scalar for a vector of one, as torch does."""
    return norm_axis(axis, max(ndim, 1))


@op("relax.sort", AlongAxis())
def sort(x: Expr, axis: int = -1, descending: bool = False) -> StructInfo:
    """``x`` sorted along an axis; NaN last, or first if ``descending``.

    x: (*s), any real dtype
    result: (*s), dtype of ``x``
    """
    return _along(x, axis, "x")


@sort.legalize
def _(x: Expr, axis: int = -1, descending: bool = False) -> Expr:
    if not shape_of(x):
        return x
    return sort_values(x, norm_axis(axis, len(shape_of(x))), descending)


@op("relax.argsort", AlongAxis())
def argsort(
    data: Expr, axis: int = -1, descending: bool = False, dtype: DTypeLike = "int32"
) -> StructInfo:
    """The positions along an axis that sort ``data``.

    data: (*s), any real dtype
    result: (*s), ``dtype``
    """
    return with_dtype(_along(data, axis), dtype or "int32")


@argsort.legalize
def _(data: Expr, axis: int = -1, descending: bool = False, dtype: DTypeLike = "int32") -> Expr:
    if not shape_of(data):
        return scalar(0, dtype or "int32")
    at = norm_axis(axis, len(shape_of(data)))
    return argsort_values(data, at, descending, dtype or "int32")[1]


@op("relax.topk", AlongAxis())
def topk(
    data: Expr,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: DTypeLike = "int32",
) -> Rule:
    """The ``k`` largest (or smallest) elements along an axis, in order, and where they are.

    data: (*s), any real dtype; k: all elements if not positive or more than there are; ret_type:
    "both", "values" or "indices"
    result: k along the axis: values of dtype of ``data``, positions of ``dtype``, or both
    """
    info = _along(data, axis)
    if ret_type not in ("both", "values", "indices"):
        raise OpError(f'`ret_type` must be "both", "values" or "indices"; got {ret_type!r}')

    def lower() -> Expr:
        if ret_type == "values" and not _is_partial(data, k, axis):
            at = norm_axis(axis, len(shape_of(data)))
            return slice_axis(sort_values(data, at, largest), at, 0, _count(data, k, at))
        values, where = _topk(data, k, axis, largest, dtype or "int32")
        return {"both": Tuple([values, where]), "indices": where}.get(ret_type, values)

    if info.dims is not None:
        at = norm_axis(axis, info.ndim)
        size = info.dims[at]
        if not isinstance(k, int):
            return _picked(tensor(None, info.dtype, info.ndim, info), ret_type, dtype), lower
        count = size if k < 1 or (isinstance(size, int) and size < k) else k
        info = tensor((*info.dims[:at], count, *info.dims[at + 1 :]), info.dtype, like=info)
    return _picked(info, ret_type, dtype), lower


@topk.derivative
def _(
    data: Expr,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: DTypeLike = "int32",
) -> Expr:
    # Gathered: XLA's own operation is given other zeros than those of the operand.
    values, where = _topk(data, k, axis, largest, dtype or "int32")
    if _is_partial(data, k, axis):
        at = norm_axis(axis, len(shape_of(data)))
        values = relax("gather_elements", data, where, axis=at)
    return {"both": Tuple([values, where]), "indices": where}.get(ret_type, values)


def _count(x: Expr, k: int, axis: int) -> Any:
    """How many elements topk takes along an axis."""
    size = shape_of(x)[axis]
    return size if k < 1 else min(k, size) if known(size) else k


def _is_partial(x: Expr, k: int, axis: int) -> bool:
    """Whether XLA's own operation serves."""
    at = norm_axis(axis, len(shape_of(x)))
    count = _count(x, k, at)
    return dtype_of(x) == "float32" and known(count) and 0 < count != shape_of(x)[at]


def _topk(x: Expr, k: int, axis: int, largest: bool, dtype: str) -> tuple[Expr, Expr]:
    at = norm_axis(axis, len(shape_of(x)))
    count = _count(x, k, at)
    if _is_partial(x, k, axis):
        return _partial_sort(x, count, at, largest, dtype)
    values, where = argsort_values(x, at, largest, dtype)
    return slice_axis(values, at, 0, count), slice_axis(where, at, 0, count)


def _picked(values: TensorStructInfo, ret_type: str, dtype: DTypeLike) -> StructInfo:
    where = with_dtype(values, dtype or "int32")
    if ret_type == "both":
        return TupleStructInfo([values, where])
    return values if ret_type == "values" else where


def _partial_sort(x: Expr, count: int, axis: int, largest: bool, dtype: str) -> tuple[Expr, Expr]:
    """topk of float32 by XLA's own operation, fifty times as fast as sorting 50,000 elements.

    It orders by the total order of bits, in which -0 lies below 0 and NaN goes by its sign; so
    both are made one of a kind before. Zeros lose their sign.
    """
    key = x if largest else hlo("negate", x)
    key = select(compare(x, full_like(x, 0), "EQ"), full_like(x, 0), key)
    # The largest of all, or the smallest of the negated.
    nan = np.copysign(np.float32(np.nan), 1 if largest else -1)
    key = select(compare(x, x, "NE"), full_like(x, nan), key)
    order = [*(i for i in range(len(shape_of(x))) if i != axis), axis]
    back = [order.index(i) for i in range(len(order))]
    values, where = outputs(chlo("top_k", transpose(key, order), k=count))
    values, where = (transpose(y, back) for y in (values, where))
    return values if largest else hlo("negate", values), convert(where, dtype)


# ---- where the extreme element is
def _extreme_at(x: Expr, axis: int | None, keepdims: bool, largest: bool) -> Expr:
    shape, dtype = shape_of(x), dtype_of(x)
    shown = [1] * len(shape)
    if axis is None:
        x, at = reshape(x, (elements(shape),)), 0
    else:
        at = norm_axis(axis, len(shape))
        shown = [1 if i == at else d for i, d in enumerate(shape)]
    if not keepdims:
        shown = [] if axis is None else [d for i, d in enumerate(shape) if i != at]
    size = shape_of(x)[at]
    if at < len(shape_of(x)) - 1 and dtype != "bool" and isinstance(size, int) and size < 2**24:
        return reshape(_extreme_in_two(x, at, largest), shown)
    value, index = tensor_info((), dtype), tensor_info((), "int32")
    kept = [d for i, d in enumerate(shape_of(x)) if i != at]

    def better(a: Expr, i: Expr, b: Expr, j: Expr) -> list[Expr]:
        wins = compare(a, b, "GT" if largest else "LT")
        if is_float(dtype):
            # The first NaN wins.
            wins = hlo("or", wins, compare(a, a, "NE"))
        first = hlo("and", compare(a, b, "EQ"), compare(i, j, "LT"))
        return [select(wins, a, b), select(hlo("or", wins, first), i, j)]

    init = scalar(identity_of("maximum" if largest else "minimum", dtype), dtype)
    _, where = outputs(
        hlo(
            "reduce",
            x,
            iota(shape_of(x), at, "int32"),
            init,
            scalar(0, "int32"),
            region([("a", value), ("i", index), ("b", value), ("j", index)], better),
            dimensions=(at,),
            out=(tensor_info(kept, dtype), tensor_info(kept, "int32")),
        )
    )
    return reshape(convert(where, "int64"), shown)


def _extreme_in_two(x: Expr, at: int, largest: bool) -> Expr:
    """Where the extreme element is, as int64: the first position that holds the extreme value.

    XLA:CPU vectorises two plain reductions across the last axis, but not one of pairs (argmax over
    axis 0 of (50257, 64) float32 takes a ninth of the time). Positions are float32, which holds
    them exactly up to 2**24, because a maximum of floats is what it is fastest at.
    """
    shape = shape_of(x)
    best = spread(reduce(x, "maximum" if largest else "minimum", [at]), shape, [at])
    hit = compare(x, best, "EQ")
    if is_float(dtype_of(x)):
        # A NaN is the extreme, and equals nothing.
        hit = select(compare(best, best, "NE"), compare(x, x, "NE"), hit)
    position = hlo("negate", iota(shape, at, "float32"))
    first = select(hit, position, full_like(position, -np.inf))
    return convert(hlo("negate", reduce(first, "maximum", [at])), "int64")


_EXTREME = """\
Position of the {which} element, the first of several; of the first NaN if there is one.

x: (*s), any real dtype; ``axis=None`` counts in the flattened tensor
result: (*s) without the axis (of size 1 with ``keepdims``), int64
Raises ``OpError`` for axes without elements.
"""


def _extreme(largest: bool, x: Expr, axis: int | None = None, keepdims: bool = False) -> Rule:
    info = want_tensor(x, "x", ORDERED)
    axes = None if axis is None else [axis]
    want_elements(info, axes, "position")
    made = reduced(with_dtype(info, "int64"), axes, keepdims)
    return made, lambda: _extreme_at(x, axis, keepdims, largest)


argmax = member(
    "relax.argmax",
    _extreme,
    True,
    traits=[Reduction(places=True)],
    doc=_EXTREME.format(which="largest"),
)
argmin = member(
    "relax.argmin",
    _extreme,
    False,
    traits=[Reduction(places=True)],
    doc=_EXTREME.format(which="smallest"),
)


@op("relax.bucketize", Opaque())
def bucketize(
    input_tensor: Expr, boundaries: Expr, out_int32: bool = False, right: bool = False
) -> StructInfo:
    """How many boundaries lie below each element: the bucket that it falls into, as in torch.

    ``right``: a boundary equal to the element counts too. NaN falls into the last bucket.

    input_tensor: (*s), any real dtype; boundaries: (m,), sorted, same dtype
    result: (*s), int64, or int32 with ``out_int32``
    """
    info = want_tensor(input_tensor, "input_tensor", ORDERED)
    want_tensor(boundaries, "boundaries", ORDERED, ndim=1)
    return with_dtype(info, "int32" if out_int32 else "int64")


@bucketize.legalize
def _(input_tensor: Expr, boundaries: Expr, out_int32: bool = False, right: bool = False) -> Expr:
    shape, count = shape_of(input_tensor), shape_of(boundaries)[0]
    dtype = np.result_type(
        dtype_info(dtype_of(input_tensor)).numpy, dtype_info(dtype_of(boundaries)).numpy
    ).name
    wide = (*shape, count)
    x = broadcast_in_dim(convert(input_tensor, dtype), wide, list(range(len(shape))))
    marks = broadcast_in_dim(convert(boundaries, dtype), wide, [len(shape)])
    # "Not at or above" instead of "below", so that NaN lies above all.
    above = compare(marks, x, "GT" if right else "GE")
    below = hlo("not", above)
    return reduce(convert(below, "int32" if out_int32 else "int64"), "add", [len(shape)])
