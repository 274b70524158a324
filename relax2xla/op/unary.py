"""Element-wise operators of one operand: one line a member, after the few that need code.

Every operator keeps shape and dtype unless its docstring says otherwise. Those that take floating
point only (``FLOAT``, ``INEXACT``) refuse integers, as TVM does: cast first. Edge cases are IEEE's
and numpy's. Sources: TVM Relax v0.20 for names and inference, numpy for values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from relax2xla.dtypes import is_float, is_integer, is_kind, limits
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Op, Rule, op
from relax2xla.ir.op_param import DTypeLike, PrimLike
from relax2xla.ir.struct_info import PrimStructInfo, StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import AsRow, Pointwise, Recognised, Trait
from relax2xla.op.shared.checks import (
    BOOL,
    FLOAT,
    INEXACT,
    INTEGER,
    NUMBER,
    want_tensor,
    with_dtype,
)
from relax2xla.op.shared.lowering import (
    binary,
    broadcast_in_dim,
    chlo,
    compare,
    convert,
    dtype_of,
    full_like,
    hlo,
    scalar,
    select,
    shape_of,
    tensor_info,
)
from relax2xla.op.shared.lowering import full as full_constant
from relax2xla.op.shared.scalars import clamp_to, number


class Lowering(Protocol):
    """The rows of an operator of one operand."""

    def __call__(self, x: Expr) -> Expr: ...


ANY = (*NUMBER, *BOOL)
REAL_OR_BOOL = (*INTEGER, *FLOAT, *BOOL)
REAL_PART = {"complex64": "float32", "complex128": "float64"}


def _row(name: str) -> Lowering:
    """The row ``name`` of StableHLO; ``chlo.name`` of CHLO."""
    if name.startswith("chlo."):
        return lambda x: chlo(name[5:], x)
    return lambda x: hlo(name, x)


def unary(
    name: str,
    row: str | Lowering,
    dtypes: Sequence[str],
    text: str,
    *traits: Trait,
    result: str | None = None,
) -> Op[[Expr]]:
    """One member of the family: a row, or a function that lowers it; ``result``: its dtype."""
    if isinstance(row, str):
        traits = (AsRow(row), *traits)
    accepted = "any dtype" if len(dtypes) >= len(ANY) else ", ".join(dtypes)
    doc = f"""{text}

    x: (*s), {accepted}
    result: (*s), {result or "dtype of ``x``"}
    Raises ``OpError`` for another dtype.
    """

    @op(name, Pointwise(), *traits, doc=doc)
    def made(x: Expr) -> StructInfo:
        info = want_tensor(x, "x", dtypes)
        if result is not None:
            return with_dtype(info, result)
        return info

    made.legalize(_row(row) if isinstance(row, str) else row)
    return made


# ---- lowerings that are more than a row
def _on_floats(row: str) -> Lowering:
    """The row on floats; integers are what they are already."""
    return lambda x: hlo(row, x) if is_float(dtype_of(x)) else x


def _trunc(x: Expr) -> Expr:
    if not is_float(dtype_of(x)):
        return x
    return select(compare(x, full_like(x, 0), "LT"), hlo("ceil", x), hlo("floor", x))


def _abs(x: Expr) -> Expr:
    return x if is_kind(dtype_of(x), "uint", "bool") else hlo("abs", x)


def _sign(x: Expr) -> Expr:
    if is_kind(dtype_of(x), "bool"):
        return x
    if is_kind(dtype_of(x), "uint"):
        return hlo("minimum", x, full_like(x, 1))
    if not is_float(dtype_of(x)):
        return hlo("sign", x)
    # The row keeps NaN; TVM's kernel and torch say 0.
    return select(compare(x, x, "NE"), full_like(x, 0), hlo("sign", x))


def whole(x: Expr, name: str) -> Expr:
    """``x``; ``LegalizeError`` if it is floating point, which only inference lets ``name`` have."""
    if is_float(dtype_of(x)):
        raise LegalizeError(f"{name} of {dtype_of(x)}: use R.astype to integers or booleans first")
    return x


def as_bool(x: Expr) -> Expr:
    """``x != 0``, the truth value of numbers (NaN is true)."""
    return x if dtype_of(x) == "bool" else compare(x, full_like(x, 0), "NE")


def _logical_not(x: Expr) -> Expr:
    if dtype_of(x) == "bool":
        return hlo("not", x)
    return convert(compare(x, full_like(x, 0), "EQ"), dtype_of(x))


def _always(x: Expr, value: bool) -> Expr:
    return full_constant(shape_of(x), value, "bool")


def _isnan(x: Expr) -> Expr:
    return _always(x, False) if is_kind(dtype_of(x), "int", "uint", "bool") else compare(x, x, "NE")


def _isinf(x: Expr) -> Expr:
    if is_kind(dtype_of(x), "complex"):
        return hlo("or", *(_isinf(hlo(part, x)) for part in ("real", "imag")))
    if not is_float(dtype_of(x)):
        return _always(x, False)
    return compare(hlo("abs", x), full_like(x, math.inf), "EQ")


def _isfinite(x: Expr) -> Expr:
    if is_kind(dtype_of(x), "complex"):
        return hlo("and", *(_isfinite(hlo(part, x)) for part in ("real", "imag")))
    return hlo("is_finite", x) if is_float(dtype_of(x)) else _always(x, True)


def _square(x: Expr) -> Expr:
    return hlo("multiply", x, x)


# ---- the family
acos = unary("relax.acos", "chlo.acos", INEXACT, "The angle whose cosine is x, in [0, pi].")
acosh = unary("relax.acosh", "chlo.acosh", INEXACT, "The inverse of cosh, for x >= 1.")
asin = unary("relax.asin", "chlo.asin", INEXACT, "The angle whose sine is x, in [-pi/2, pi/2].")
asinh = unary("relax.asinh", "chlo.asinh", INEXACT, "The inverse of sinh.")
atan = unary("relax.atan", "chlo.atan", INEXACT, "The angle whose tangent is x.")
atanh = unary("relax.atanh", "chlo.atanh", INEXACT, "The inverse of tanh, for -1 < x < 1.")
cos = unary("relax.cos", "cosine", INEXACT, "Cosine of x in radians.")
cosh = unary("relax.cosh", "chlo.cosh", INEXACT, "(e^x + e^-x) / 2.")
erf = unary("relax.erf", "chlo.erf", FLOAT, "The error function.")
exp = unary("relax.exp", "exponential", INEXACT, "e to the power x.")
log = unary("relax.log", "log", INEXACT, "Natural logarithm: -inf at 0, NaN below.")
rsqrt = unary("relax.rsqrt", "rsqrt", INEXACT, "1 / sqrt(x).")
sigmoid = unary("relax.sigmoid", "logistic", INEXACT, "1 / (1 + e^-x).", Recognised())


@sigmoid.spelling
def _(x: Expr) -> Expr:
    """JAX: ``1 / (1 + e^-x)``, which is what XLA makes of ``logistic``."""
    below = hlo("add", hlo("exponential", hlo("negate", x)), full_like(x, 1.0))
    return hlo("divide", full_like(x, 1.0), below)


sin = unary("relax.sin", "sine", INEXACT, "Sine of x in radians.")
sinh = unary("relax.sinh", "chlo.sinh", INEXACT, "(e^x - e^-x) / 2.")
sqrt = unary("relax.sqrt", "sqrt", INEXACT, "Square root; NaN below 0.")
tan = unary("relax.tan", "tan", INEXACT, "Tangent of x in radians.")
tanh = unary("relax.tanh", "tanh", INEXACT, "Hyperbolic tangent.")

ceil = unary(
    "relax.ceil", _on_floats("ceil"), REAL_OR_BOOL, "The next integer upwards.", AsRow("ceil")
)
floor = unary(
    "relax.floor", _on_floats("floor"), REAL_OR_BOOL, "The next integer downwards.", AsRow("floor")
)
round = unary(
    "relax.round",
    _on_floats("round_nearest_even"),
    REAL_OR_BOOL,
    "The nearest integer, halves to the even one.",
    AsRow("round_nearest_even"),
)
trunc = unary("relax.trunc", _trunc, REAL_OR_BOOL, "The next integer towards zero.", Recognised())
negative = unary("relax.negative", "negate", NUMBER, "-x; unsigned integers wrap around.")
sign = unary(
    "relax.sign",
    _sign,
    ANY,
    "-1, 0 or 1, of NaN 0; of complex numbers x / abs(x).",
    Recognised(),
)
square = unary("relax.square", _square, ANY, "x * x.")
logical_not = unary(
    "relax.logical_not", _logical_not, ANY, "x == 0, in the dtype of x.", AsRow("not", on="bool")
)
bitwise_not = unary(
    "relax.bitwise_not",
    lambda x: hlo("not", whole(x, "bitwise_not")),
    REAL_OR_BOOL,
    "Every bit inverted. Floating point is refused when it is lowered.",
    AsRow("not"),
)
isfinite = unary(
    "relax.isfinite", _isfinite, ANY, "x is neither inf nor NaN.", AsRow("is_finite"), result="bool"
)
isinf = unary("relax.isinf", _isinf, ANY, "x is inf or -inf.", Recognised(), result="bool")
isnan = unary("relax.isnan", _isnan, ANY, "x is NaN.", Recognised(), result="bool")


@op("relax.abs", Pointwise(), AsRow("abs"))
def abs(x: Expr) -> Rule:
    """Absolute value; the smallest signed integer stays itself.

    x: (*s), any dtype
    result: (*s), dtype of ``x``; of complex numbers that of their parts
    """
    info = want_tensor(x, "x", ANY)

    def lower() -> Expr:
        return _abs(x)

    return with_dtype(info, REAL_PART[info.dtype]) if info.dtype in REAL_PART else info, lower


@abs.derivative
def _(x: Expr) -> Expr:
    # 0 at 0.
    return hlo("multiply", x, hlo("sign", x)) if is_float(dtype_of(x)) else _abs(x)


@op("relax.clip", Pointwise())
def clip(x: Expr, min: PrimLike, max: PrimLike) -> Rule:
    """``minimum(maximum(x, min), max)``: NaN stays NaN, and ``max`` wins where ``min > max``.

    x: (*s), any real dtype; min, max: numbers (of an integer ``x`` rounded inwards, and cut at the
    limits of its dtype) or tensors of rank 0
    result: (*s), dtype of ``x``
    """
    info = want_tensor(x, "x", REAL_OR_BOOL)
    for name, bound in (("min", min), ("max", max)):
        known = bound.struct_info
        rank = known.ndim if isinstance(known, TensorStructInfo) else 0
        if not isinstance(known, PrimStructInfo | TensorStructInfo) or rank not in (-1, 0):
            raise OpError(f"`{name}` must be a number or a tensor of rank 0; got {show(known)}")

    def lower() -> Expr:
        low, high = _bound(x, min, "min"), _bound(x, max, "max")
        if info.dtype != "bool":
            return hlo("clamp", low, x, high)
        # XLA has no clamp of these.
        low, high = (broadcast_in_dim(b, shape_of(x), ()) for b in (low, high))
        return binary("and", binary("or", x, low), high)

    return info, lower


def _bound(x: Expr, bound: Expr, name: str) -> Expr:
    if isinstance(bound.struct_info, TensorStructInfo):
        return convert(bound, dtype_of(x))
    dtype, value = dtype_of(x), number(bound, name)
    if not is_float(dtype):
        if isinstance(value, float) and math.isfinite(value):
            value = math.ceil(value) if name == "min" else math.floor(value)
        value = clamp_to(value, *limits(dtype))
    return scalar(value, dtype)


@clip.derivative
def _(x: Expr, min: PrimLike, max: PrimLike) -> Expr:
    # 1 at the bounds, to which it belongs where they cross.
    low, high = _bound(x, min, "min"), _bound(x, max, "max")
    low, high = (broadcast_in_dim(b, shape_of(x), ()) for b in (low, high))
    x = select(compare(x, low, "LT"), low, x)
    return select(compare(x, high, "GT"), high, x)


# ---- dtypes
def cast(x: Expr, dtype: str) -> Expr:
    """``x`` in another dtype by the rules of :func:`astype`."""
    source = dtype_of(x)
    if source == dtype:
        return x
    if dtype == "bool":
        return as_bool(x)
    if is_kind(source, "complex") and not is_kind(dtype, "complex"):
        return convert(hlo("real", x), dtype)
    if is_float(source) and is_integer(dtype):
        x = select(compare(x, x, "NE"), full_like(x, 0), x)
    return hlo("convert", x, out=tensor_info(shape_of(x), dtype))


@op("relax.astype", Pointwise())
def astype(x: Expr, dtype: DTypeLike) -> Rule:
    """``x`` in another dtype.

    Floats to integers truncate towards zero and stop at the limits (NaN becomes 0); integers to
    narrower ones wrap around; to bool is ``x != 0``; complex to real drops the imaginary part.

    x: (*s), any dtype
    result: (*s), ``dtype``
    """
    info = want_tensor(x, "x")
    if not dtype:
        raise OpError("`dtype` must be given, for example R.astype(x, 'float32')")
    return with_dtype(info, dtype), lambda: cast(x, dtype)


@op("relax.wrap_param", Pointwise())
def wrap_param(data: Expr, dtype: DTypeLike = "float32") -> Rule:
    """A parameter of the model that is converted where it is used (:func:`astype`).

    data: (*s), any dtype
    result: (*s), ``dtype``
    """

    def lower() -> Expr:
        return cast(data, dtype or "float32")

    return with_dtype(want_tensor(data, "data"), dtype or "float32"), lower
