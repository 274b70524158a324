"""Operators that make tensors: full, ones, zeros, arange, eye, tril, triu.

Sources: TVM Relax v0.20 for names and inference (its docs say "ones: all zeros", a slip), numpy
for values.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import is_float, is_kind, numpy_dtype
from relax2xla.errors import OpError
from relax2xla.ir.base import VDevice
from relax2xla.ir.expr import Constant, Expr
from relax2xla.ir.make import const
from relax2xla.ir.op import Given, Rule, op
from relax2xla.ir.op_param import DTypeLike, PrimLike, ShapeLike
from relax2xla.ir.struct_info import PrimStructInfo, StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import Fills, Opaque, Pointwise
from relax2xla.op.shared.checks import (
    fold,
    known_shape,
    literal_dims,
    tensor,
    want_shape,
    want_tensor,
    with_dtype,
)
from relax2xla.op.shared.families import member
from relax2xla.op.shared.lowering import (
    broadcast_to,
    compare,
    convert,
    dtype_of,
    hlo,
    iota,
    known,
    scalar,
    select,
    shape_of,
    static,
    symbolic,
)
from relax2xla.op.shared.lowering import full as constant
from relax2xla.op.shared.lowering import full_like as constant_like
from relax2xla.op.shared.scalars import dim_of, integer, number, prim_of
from relax2xla.op.unary import cast
from relax2xla.tir import Dim


def _of_shape(shape: Expr, dtype: str, device: VDevice | None = None) -> TensorStructInfo:
    """A tensor whose shape is the value of a shape operand."""
    want_shape(shape, "shape")
    return TensorStructInfo(known_shape(shape), dtype, device)


def _target(shape: Expr) -> tuple[int, ...]:
    return static(literal_dims(shape, "shape"), "`shape`")


def _want_scalar(x: Expr, name: str) -> str:
    """dtype of an operand that must be a tensor of rank 0, and known to be one, or a PrimValue."""
    info = x.struct_info
    if isinstance(info, PrimStructInfo):
        return info.dtype
    scalar_info = want_tensor(x, name, ndim=0)
    if scalar_info.ndim != 0:
        raise OpError(
            f"`{name}` must be known to have rank 0; got {show(scalar_info)}. "
            f"R.match_cast({name}, R.Tensor(())) says so"
        )
    return scalar_info.dtype


def _fill(shape: tuple[int, ...], value: Expr, dtype: str) -> Expr:
    if isinstance(value.struct_info, PrimStructInfo):
        return constant(shape, number(value, "fill_value"), dtype)
    if isinstance(value, Constant):
        return constant(shape, value.data.astype(numpy_dtype(dtype)), dtype)
    return broadcast_to(cast(value, dtype), shape)


def _exact(value: Any, dtype: Any) -> dict[str, Any]:
    """A Python number as a constant of the dtype that is asked for, so that nothing is rounded."""
    if isinstance(value, bool | int | float) and dtype:
        return {"fill_value": const(value, dtype)}
    return {}


@op("relax.full", Fills())
def full(shape: ShapeLike, fill_value: Expr, dtype: DTypeLike = None) -> Rule:
    """A tensor that holds one value everywhere.

    shape: a shape; fill_value: a tensor of rank 0 or a number
    result: ``shape``, ``dtype`` or else the dtype of ``fill_value``, on its device
    """
    own, value = _want_scalar(fill_value, "fill_value"), fill_value.struct_info
    device = value.vdevice if isinstance(value, TensorStructInfo) else None
    info = _of_shape(shape, dtype or own, device)
    return info, lambda: _fill(_target(shape), fill_value, info.dtype)


@full.shorthand
def _(given: Given) -> Given:
    return _exact(given["fill_value"], given["dtype"])


@op("relax.full_like", Pointwise(flops=0))
def full_like(x: Expr, fill_value: Expr, dtype: DTypeLike = None) -> Rule:
    """A tensor of the shape of ``x`` that holds one value everywhere.

    x: (*s), any dtype; fill_value: a tensor of rank 0 or a number
    result: (*s), ``dtype`` or else the dtype of ``x``
    """
    info = want_tensor(x, "x")
    _want_scalar(fill_value, "fill_value")

    def lower() -> Expr:
        return _fill(shape_of(x), fill_value, dtype or dtype_of(x))

    return with_dtype(info, dtype or info.dtype), lower


@full_like.shorthand
def _(given: Given) -> Given:
    info = given["x"].struct_info_
    known = info.dtype if isinstance(info, TensorStructInfo) else None
    return _exact(given["fill_value"], given["dtype"] or known)


def _given(dtype: str | None) -> str:
    if not dtype:
        raise OpError("`dtype` must be given, for example 'float32'")
    return dtype


def _filled(value: int, shape: ShapeLike, dtype: DTypeLike) -> Rule:
    return _of_shape(shape, _given(dtype)), lambda: constant(_target(shape), value, dtype)


def _filled_like(value: int, x: Expr, dtype: DTypeLike = None) -> Rule:
    info = want_tensor(x, "x")
    made = with_dtype(info, dtype or info.dtype)
    return made, lambda: constant(shape_of(x), value, dtype or dtype_of(x))


_FILLED = "A tensor of {}.\n\nresult: ``shape``, ``dtype``"
_FILLED_LIKE = """{} in the shape of ``x``.

x: (*s), any dtype
result: (*s), ``dtype`` or else the dtype of ``x``
"""
ones = member("relax.ones", _filled, 1, traits=[Fills()], doc=_FILLED.format("ones"))
zeros = member("relax.zeros", _filled, 0, traits=[Fills()], doc=_FILLED.format("zeros"))
ones_like = member(
    "relax.ones_like", _filled_like, 1, traits=[Pointwise(flops=0)], doc=_FILLED_LIKE.format("Ones")
)
zeros_like = member(
    "relax.zeros_like",
    _filled_like,
    0,
    traits=[Pointwise(flops=0)],
    doc=_FILLED_LIKE.format("Zeros"),
)


# ---- ranges
def _arange_dtype(dtype: str | None, *values: Any) -> str:
    if dtype:
        return dtype
    known = [x.struct_info for x in values if isinstance(x, Expr)]
    floats = any(isinstance(i, PrimStructInfo) and is_float(i.dtype) for i in known)
    literals = (x for x in values if isinstance(x, float | tir.PrimExpr))
    floats = floats or any(isinstance(x, float) or is_float(x.dtype) for x in literals)
    return "float32" if floats else "int64"


def _count(start: int | float, end: int | float, step: int | float) -> int:
    if isinstance(start, int) and isinstance(end, int) and isinstance(step, int):
        return len(range(start, end, step))
    return max(0, math.ceil((end - start) / step))


@op("relax.arange", Opaque())
def arange(
    start: PrimLike, end: PrimLike = None, step: PrimLike = 1, dtype: DTypeLike = None
) -> StructInfo:
    """``start, start + step, ...`` up to and without ``end``; ``arange(n)`` counts from 0.

    start, end, step: numbers or symbolic integers; ``step`` is not 0
    result: (n,), ``dtype`` or else float32 if one of the three is a float, int64 if none is
    """
    values = [prim_of(v, n) for v, n in ((start, "start"), (end, "end"), (step, "step"))]
    dtype = _arange_dtype(dtype, start, end, step)
    if isinstance(values[2], tir.IntImm | tir.FloatImm) and values[2].value == 0:
        raise OpError("`step` must not be 0")
    numbers = [v.value for v in values if isinstance(v, tir.IntImm | tir.FloatImm)]
    if len(numbers) == 3:
        return tensor((_count(*numbers),), dtype)
    if any(v is None or isinstance(v, tir.FloatImm) for v in values):
        return tensor(None, dtype, 1)
    low, high, by = (dim_of(v, n) for v, n in ((start, "start"), (end, "end"), (step, "step")))
    if low is None or high is None or by is None:
        return tensor(None, dtype, 1)
    return tensor((_steps(low, high, by),), dtype)


def _steps(low: Dim, high: Dim, by: Dim) -> Dim:
    """How many steps there are from ``low`` to ``high``, of which one is symbolic."""
    down = isinstance(by, int) and by < 0
    return fold((low - high - by - 1) // (-by) if down else (high - low + by - 1) // by)


@arange.shorthand
def _(given: Given) -> Given:
    first, last = (0, given["start"]) if given["end"] is None else (given["start"], given["end"])
    dtype = _arange_dtype(given["dtype"], first, last, given["step"])
    return {"start": first, "end": last, "dtype": dtype}


@arange.legalize
def _(start: PrimLike, end: PrimLike = None, step: PrimLike = 1, dtype: DTypeLike = None) -> Expr:
    first, last, by = number(start, "start"), number(end, "end"), number(step, "step")
    dtype = _arange_dtype(dtype, start, end, step)
    count: Any = _steps if symbolic(first, last, by) else _count
    shape = (count(first, last, by),)
    # One rounding at the end: integers count in int64, all else in float64.
    whole = not isinstance(first, float) and not isinstance(by, float)
    work = "int64" if whole else "float64"
    if whole and dtype == "int32" and known(first, last, by):
        # XLA has vectors of it. What the product loses the sum gives back.
        ends = (first, by, first + (shape[0] - 1) * by)
        work = dtype if all(-(2**31) <= end < 2**31 for end in ends) else work
    steps = iota(shape, 0, work)
    if by != 1:
        steps = hlo("multiply", steps, constant_like(steps, by))
    if first != 0:
        steps = hlo("add", steps, constant_like(steps, first))
    return convert(steps, dtype)


# ---- triangles and diagonals
def _diagonal(rows: int, columns: int, k: int, direction: str) -> Expr:
    """A (rows, columns) mask: ``column - row`` DIRECTION ``k``."""
    row, column = iota((rows, columns), 0, "int32"), iota((rows, columns), 1, "int32")
    limit = max(-(2**31) + rows, min(2**31 - 1 - rows, k)) if known(rows, k) else k
    if limit != 0:
        row = hlo("add", row, constant_like(row, limit))
    return compare(column, row, direction)


@op("relax.eye", Opaque())
def eye(
    n: PrimLike, m: PrimLike = None, k: PrimLike = 0, dtype: DTypeLike = "float32"
) -> StructInfo:
    """Ones on diagonal ``k`` (positive: above the main one), zeros elsewhere.

    n, m: rows and columns (``m`` None: as many); k: an integer
    result: (n, m), ``dtype``
    """
    rows, columns = dim_of(n, "n"), dim_of(m, "m")
    dim_of(k, "k")
    if rows is None or columns is None:
        return tensor(None, dtype or "float32", 2)
    for name, size in (("n", rows), ("m", columns)):
        if isinstance(size, int) and size < 0:
            raise OpError(f"`{name}` must not be negative; got {size}")
    return tensor((rows, columns), dtype or "float32")


@eye.shorthand
def _(given: Given) -> Given:
    return {"m": given["n"]} if given["m"] is None else {}


@eye.legalize
def _(n: PrimLike, m: PrimLike = None, k: PrimLike = 0, dtype: DTypeLike = "float32") -> Expr:
    mask = _diagonal(integer(n, "n"), integer(m, "m"), integer(k, "k"), "EQ")
    return convert(mask, dtype or "float32")


@op("relax.eye_like", Opaque())
def eye_like(x: Expr, k: PrimLike = 0, dtype: DTypeLike = None) -> StructInfo:
    """:func:`eye` in the shape of a matrix.

    x: (n, m), any dtype; k: an integer
    result: (n, m), ``dtype`` or else the dtype of ``x``
    """
    info = want_tensor(x, "x", ndim=2)
    dim_of(k, "k")
    return with_dtype(info, dtype or info.dtype)


@eye_like.legalize
def _(x: Expr, k: PrimLike = 0, dtype: DTypeLike = None) -> Expr:
    rows, columns = shape_of(x)
    return convert(_diagonal(rows, columns, integer(k, "k"), "EQ"), dtype or dtype_of(x))


_TRIANGLE = """The {which} triangles of matrices: zero {where} diagonal ``k``.

x: (..., n, m), any dtype; k: an integer
result: (..., n, m), dtype of ``x``
"""


def _triangle(direction: str, x: Expr, k: PrimLike = 0) -> Rule:
    info = want_tensor(x, "x")
    dim_of(k, "k")
    if info.ndim in (0, 1):
        raise OpError(f"`x` must have rank 2 or more; got {show(info)}")

    def lower() -> Expr:
        shape, dtype = shape_of(x), dtype_of(x)
        mask = _diagonal(shape[-2], shape[-1], integer(k, "k"), direction)
        return select(broadcast_to(mask, shape), x, scalar(0, dtype))

    return info, lower


tril = member(
    "relax.tril",
    _triangle,
    "LE",
    traits=[Opaque()],
    doc=_TRIANGLE.format(which="lower", where="above"),
)
triu = member(
    "relax.triu",
    _triangle,
    "GE",
    traits=[Opaque()],
    doc=_TRIANGLE.format(which="upper", where="below"),
)


def hamming_window_values(
    size: int, periodic: bool, alpha: float, beta: float
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The window of :func:`hamming_window` in float64."""
    span = size if periodic else size - 1
    return alpha - beta * np.cos(2 * np.pi * np.arange(size) / max(span, 1))


@op("relax.hamming_window", Opaque())
def hamming_window(
    window_size: PrimLike, periodic: PrimLike, alpha: PrimLike, beta: PrimLike, dtype: DTypeLike
) -> Rule:
    """``alpha - beta * cos(2 pi i / n)`` with ``n = window_size`` if ``periodic``, one less if not.

    window_size: a positive integer; periodic: 0 or 1; alpha, beta: numbers
    result: (window_size,), ``dtype`` (a floating-point one)
    """
    if not is_kind(_given(dtype), "float"):
        raise OpError(f"`dtype` must be floating point; got {dtype}")
    size = dim_of(window_size, "window_size")
    if isinstance(size, int) and size < 1:
        raise OpError(f"`window_size` must be positive; got {size}")

    def lower() -> Expr:
        values = hamming_window_values(
            integer(window_size, "window_size"),
            bool(number(periodic, "periodic")),
            float(number(alpha, "alpha")),
            float(number(beta, "beta")),
        )
        return Constant(values.astype(numpy_dtype(dtype or "float32")))

    return tensor(None if size is None else (size,), dtype, 1), lower
