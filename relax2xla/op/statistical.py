"""Reductions and running sums: sum, mean, max, min, prod, std, variance, median, cumsum, cumprod.

``axis=None`` reduces all axes; ``keepdims`` leaves them with size 1. The dtype of the result is
that of the operand (TVM Relax v0.20): integers wrap around, sums of booleans are their or, means of
integers are truncated towards zero. float16 and bfloat16 are summed in float32. max and min
propagate NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from relax2xla.dtypes import is_kind
from relax2xla.ir.expr import Expr, Tuple
from relax2xla.ir.op import Given, Op, Rule, op
from relax2xla.ir.op_param import AxesLike, DTypeLike
from relax2xla.ir.struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from relax2xla.ir.traits import AlongAxis, Reduction
from relax2xla.op.shared.checks import (
    BOOL,
    FLOAT,
    INTEGER,
    NUMBER,
    norm_axes,
    norm_axis,
    product,
    reduced,
    tensor,
    want_elements,
    want_tensor,
    with_dtype,
)
from relax2xla.op.shared.families import member
from relax2xla.op.shared.loops import while_loop
from relax2xla.op.shared.lowering import (
    chlo,
    compare,
    convert,
    dtype_of,
    elements,
    full_like,
    hlo,
    identity_of,
    in_float32,
    iota,
    known,
    pad,
    reduce,
    reshape,
    scalar,
    scalar_region,
    select,
    shape_of,
    slice_axis,
    spread,
    tensor_info,
    transpose,
)
from relax2xla.op.sorting import argsort_values, axis_of
from relax2xla.op.unary import cast

ANY = (*NUMBER, *BOOL)
REAL_OR_BOOL = (*INTEGER, *FLOAT, *BOOL)
HALF = ("float16", "bfloat16")
Lowering = Callable[[Expr, Sequence[int], bool], Expr]


def reduction(
    name: str, lower: Lowering, dtypes: Sequence[str], text: str, *of_rows: str
) -> Op[...]:
    """One member of the family; ``lower`` takes axes counted from the front.

    ``of_rows``: in whose ``reduce`` the operator is recognised.
    """
    accepted = "any dtype" if len(dtypes) >= len(ANY) else ", ".join(dtypes)
    doc = f"""{text}

    x: (*s), {accepted}
    result: (*s) without the reduced axes (of size 1 with ``keepdims``), dtype of ``x``
    Raises ``OpError`` if an axis is out of range or named twice.
    """

    @op(name, Reduction(of_rows), doc=doc)
    def made(x: Expr, axis: AxesLike = None, keepdims: bool = False) -> Rule:
        def rows() -> Expr:
            return lower(x, norm_axes(axis, len(shape_of(x))), keepdims)

        return reduced(want_tensor(x, "x", dtypes), axis, keepdims), rows

    return made


def _wide(x: Expr) -> Expr:
    """Halves in float32, everything else as it is."""
    return convert(x, "float32") if dtype_of(x) in HALF else x


def sum_of(x: Expr, axes: Sequence[int], keepdims: bool) -> Expr:
    """Sum over axes."""
    row = "or" if dtype_of(x) == "bool" else "add"
    return convert(reduce(_wide(x), row, axes, keepdims), dtype_of(x))


def _prod(x: Expr, axes: Sequence[int], keepdims: bool) -> Expr:
    row = "and" if dtype_of(x) == "bool" else "multiply"
    return convert(reduce(_wide(x), row, axes, keepdims), dtype_of(x))


def _extreme(row: str) -> Lowering:
    return lambda x, axes, keepdims: reduce(x, row, axes, keepdims)


def _count(x: Expr, axes: Sequence[int]) -> int:
    return elements(shape_of(x)[i] for i in axes)


def _mean(x: Expr, axes: Sequence[int], keepdims: bool) -> Expr:
    dtype = dtype_of(x)
    if is_kind(dtype, "int", "uint", "bool"):
        work = "uint64" if is_kind(dtype, "uint") else "int64"
        total = reduce(convert(x, work), "add", axes, keepdims)
        count = _count(x, axes) or 1
        return cast(hlo("divide", total, full_like(total, count)), dtype)
    total = reduce(_wide(x), "add", axes, keepdims)
    return convert(hlo("divide", total, full_like(total, _count(x, axes))), dtype)


def _variance(x: Expr, axes: Sequence[int], keepdims: bool) -> Expr:
    dtype = dtype_of(x)
    if is_kind(dtype, "int", "uint", "bool"):
        return cast(_variance(convert(x, "float64"), axes, keepdims), dtype)
    x = _wide(x)
    mean_ = _mean(x, axes, True)
    shape = shape_of(x)
    center = hlo(
        "broadcast_in_dim",
        mean_,
        out=TensorStructInfo.make(shape, dtype_of(x)),
        broadcast_dimensions=tuple(range(len(shape))),
    )
    off = hlo("subtract", x, center)
    return convert(_mean(hlo("multiply", off, off), axes, keepdims), dtype)


def _std(x: Expr, axes: Sequence[int], keepdims: bool) -> Expr:
    dtype = dtype_of(x)
    if is_kind(dtype, "int", "uint", "bool"):
        return cast(_std(convert(x, "float64"), axes, keepdims), dtype)
    return convert(hlo("sqrt", _variance(_wide(x), axes, keepdims)), dtype)


sum = reduction("relax.sum", sum_of, ANY, "Sum; of booleans their or.", "add", "or")
prod = reduction("relax.prod", _prod, ANY, "Product; of booleans their and.", "multiply", "and")
max = reduction(
    "relax.max",
    _extreme("maximum"),
    REAL_OR_BOOL,
    "Largest element, NaN if one is; of none the least value.",
    "maximum",
)
min = reduction(
    "relax.min",
    _extreme("minimum"),
    REAL_OR_BOOL,
    "Smallest element, NaN if one is; of none the largest value.",
    "minimum",
)
mean = reduction("relax.mean", _mean, ANY, "Arithmetic mean; NaN of no elements.")
variance = reduction(
    "relax.variance", _variance, REAL_OR_BOOL, "Mean squared distance from the mean (divided by n)."
)
std = reduction("relax.std", _std, REAL_OR_BOOL, "Square root of the variance.")


def _jax_variance(x: Expr, axis: AxesLike, keepdims: bool, root: bool = False) -> Expr:
    """JAX: the square of the centred values is a row of its own."""
    dims = norm_axes(axis, len(shape_of(x)))

    def over(y: Expr) -> Expr:
        total = reduce(y, "add", dims)
        return hlo("divide", total, full_like(total, _count(x, dims)))

    def body(x: Expr) -> Expr:
        off = hlo("subtract", x, spread(over(x), shape_of(x), dims))
        found = over(chlo("square", off))
        return hlo("sqrt", found) if root else found

    made = in_float32(body, x)
    shape = [1 if i in dims else d for i, d in enumerate(shape_of(x))]
    return reshape(made, shape) if keepdims else made


variance.spelling(_jax_variance)
std.spelling(partial(_jax_variance, root=True))


# ---- median
def _median_axis(axis: Sequence[int] | None) -> int | None:
    return axis[0] if axis is not None and len(axis) == 1 else None


@op("relax.median", Reduction())
def median(x: Expr, axis: AxesLike = None, keepdims: bool = False) -> StructInfo:
    """The middle element in sorted order, the lower one of two; NaN if one is, as in torch.

    x: (*s), any real dtype
    result: (*s) without the reduced axes, dtype of ``x``; for one axis a tuple of it and the int64
    positions of the medians along the axis
    Raises ``OpError`` for axes without elements.
    """
    whole = want_tensor(x, "x", REAL_OR_BOOL)
    info = reduced(whole, axis, keepdims)
    want_elements(whole, axis, "median")
    if _median_axis(axis) is None:
        return info
    return TupleStructInfo([info, with_dtype(info, "int64")])


@median.legalize
def _(x: Expr, axis: AxesLike = None, keepdims: bool = False) -> Expr:
    shape = shape_of(x)
    axes = norm_axes(axis, len(shape))
    rest = [i for i in range(len(shape)) if i not in axes]
    kept = [shape[i] for i in rest]
    size = _count(x, axes)
    flat_shape = [*kept, size]
    flat = reshape(transpose(x, [*rest, *axes]), flat_shape)
    values, where = argsort_values(flat, len(rest), False, "int64")
    middle = (size - 1) // 2

    def at(y: Expr, i: int) -> Expr:
        return slice_axis(y, len(rest), i, i + 1)

    last = at(values, size - 1)
    nan = compare(last, last, "NE")
    shown = [1 if i in axes else d for i, d in enumerate(shape)] if keepdims else kept
    value = reshape(select(nan, last, at(values, middle)), shown)
    if _median_axis(axis) is None:
        return value
    # The first NaN, as in torch.
    none = scalar(size, "int64")
    there = select(compare(flat, flat, "NE"), iota(flat_shape, len(rest), "int64"), none)
    first = reduce(there, "minimum", [len(rest)], True)
    return Tuple([value, reshape(select(nan, first, at(where, middle)), shown)])


# ---- running sums
# Elements of which one window computes a running sum; the best of 8, 16 and the square root of the
# size in most of the shapes measured.
BLOCK = 8


def scan(x: Expr, row: str, axis: int, exclusive: bool) -> Expr:
    """Running reduction along an axis; ``exclusive``: without the element itself."""
    shape, dtype = shape_of(x), dtype_of(x)
    size = shape[axis]
    if size == 0:
        return x
    init = scalar(identity_of(row, dtype), dtype)
    if exclusive:
        moved = [int(i == axis) for i in range(len(shape))]
        x = pad(x, moved, [-i for i in moved], init)
    if not known(size):
        return _scan_doubling(x, row, axis)
    if size > BLOCK:
        return _scan_blocks(x, row, axis)
    window = tuple(size if i == axis else 1 for i in range(len(shape)))
    padding = tuple((size - 1 if i == axis else 0, 0) for i in range(len(shape)))
    return hlo(
        "reduce_window",
        x,
        init,
        scalar_region(row, dtype),
        window_dimensions=window,
        padding=padding,
    )


def _scan_blocks(x: Expr, row: str, axis: int) -> Expr:
    """:func:`scan` of an axis longer than a block: blocks by themselves, then what precedes each.

    Windows as long as the axis take XLA:CPU time that grows with its square.
    """
    shape, dtype = shape_of(x), dtype_of(x)
    size, before, after = shape[axis], shape[:axis], shape[axis + 1 :]
    blocks = -(-size // BLOCK)
    high = [blocks * BLOCK - size if i == axis else 0 for i in range(len(shape))]
    neutral = scalar(identity_of(row, dtype), dtype)
    x = reshape(pad(x, [0] * len(shape), high, neutral), (*before, blocks, BLOCK, *after))
    x = scan(x, row, axis + 1, False)
    totals = reshape(slice_axis(x, axis + 1, BLOCK - 1, BLOCK), (*before, blocks, *after))
    offsets = scan(totals, row, axis, True)
    x = hlo(row, x, spread(offsets, shape_of(x), [axis + 1]))
    return slice_axis(reshape(x, (*before, blocks * BLOCK, *after)), axis, 0, size)


def _scan_doubling(x: Expr, row: str, axis: int) -> Expr:
    """:func:`scan` of an axis of symbolic size: each step adds what lies 1, 2, 4, ... before."""
    shape, dtype = shape_of(x), dtype_of(x)
    size = shape[axis]
    none = [0] * len(shape)
    before = [size if i == axis else 0 for i in range(len(shape))]

    def step(y: Expr, distance: Expr, count: Expr) -> list[Expr]:
        wide = pad(y, before, none, scalar(identity_of(row, dtype), dtype))
        zero = full_like(distance, 0)
        starts: list[Expr] = [zero] * len(shape)
        starts[axis] = hlo("subtract", count, distance)
        moved = hlo(
            "dynamic_slice", wide, *starts, slice_sizes=shape, out=tensor_info(shape, dtype)
        )
        return [hlo(row, moved, y), hlo("multiply", distance, full_like(distance, 2)), count]

    start = [x, scalar(1, "int64"), scalar(size, "int64")]
    return while_loop(start, lambda y, distance, count: compare(distance, count, "LT"), step)[0]


def _scan(x: Expr, rows: tuple[str, str], axis: int | None, dtype: str, exclusive: bool) -> Expr:
    if axis is None:
        x, axis = reshape(x, (elements(shape_of(x)),)), 0
    x = cast(x, dtype)
    if not shape_of(x):
        return reshape(_scan(reshape(x, (1,)), rows, 0, dtype, exclusive), ())
    at = norm_axis(axis, len(shape_of(x)))
    row = rows[1] if dtype == "bool" else rows[0]
    return convert(scan(_wide(x), row, at, exclusive), dtype)


_SCANNED = """Running {what} along an axis; ``axis=None`` flattens before.

data: (*s), any dtype; dtype: converted to before {doing}; exclusive: element i is left out
of {what} i, so that the first is {first}; None is False
result: (*s), ``dtype`` or else the dtype of ``data``
"""


def _scanned(
    rows: tuple[str, str],
    data: Expr,
    axis: int | None = None,
    dtype: DTypeLike = None,
    exclusive: bool = False,
) -> Rule:
    info = want_tensor(data, "data")
    info = with_dtype(info, dtype or info.dtype)

    def lower() -> Expr:
        return _scan(data, rows, axis, dtype or dtype_of(data), exclusive)

    if axis is not None:
        if info.ndim != -1:
            axis_of(axis, info.ndim)
    elif info.dims is None and info.ndim != 1:
        info = tensor(None, info.dtype, -1 if info.ndim == -1 else 1, info)
    elif info.ndim != 1:
        info = tensor((product(info.dims or ()),), info.dtype, like=info)
    return info, lower


cumsum = member(
    *("relax.cumsum", _scanned, ("add", "or")),
    traits=[AlongAxis(("add", "or"))],
    doc=_SCANNED.format(what="sum", doing="summing", first=0),
)
cumprod = member(
    *("relax.cumprod", _scanned, ("multiply", "and")),
    traits=[AlongAxis(("multiply", "and"))],
    doc=_SCANNED.format(what="product", doing="multiplying", first=1),
)


@cumsum.shorthand
@cumprod.shorthand
def _scanned_default(given: Given) -> Given:
    return {"exclusive": False} if given["exclusive"] is None else {}
