"""Element-wise operators of two operands, comparisons, ``where`` and ``ewise_fma``.

Operands broadcast as in numpy and must have one dtype (nothing is promoted: use ``R.astype``); a
Python number takes the dtype of the tensor it meets. An operand may be a PrimValue, which counts
as a tensor of rank 0; two PrimValues give a PrimValue. Where symbolic dimensions leave the shape of
the result open, only its rank is known. Sources: TVM Relax v0.20 for names and inference, numpy
and IEEE 754 for values: maximum and minimum propagate NaN, integer arithmetic wraps around, integer
division by zero gives -1 (all ones if unsigned) and never traps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from relax2xla.dtypes import is_float, is_kind
from relax2xla.errors import LegalizeError, OperandTypeError, OpError
from relax2xla.ir.expr import Expr
from relax2xla.ir.op import Op, Rule, op
from relax2xla.ir.struct_info import PrimStructInfo, StructInfo, TensorStructInfo, show
from relax2xla.ir.traits import AsRow, Broadcasting, Division, Pointwise, Recognised, Trait
from relax2xla.op.shared.checks import (
    BOOL,
    FLOAT,
    INEXACT,
    INTEGER,
    NUMBER,
    broadcast_dims,
    common_dtype,
    tensor,
    want_tensor,
    with_dtype,
)
from relax2xla.op.shared.exports import composed
from relax2xla.op.shared.lowering import (
    broadcast_together,
    compare,
    convert,
    dtype_of,
    full_like,
    hlo,
    no_gradient,
    relax,
    scalar,
    select,
)
from relax2xla.op.shared.scalars import number, scalar_dtype
from relax2xla.op.unary import as_bool, whole

Lowering = Callable[[Expr, Expr], Expr]
# As in TVM, the result of bits of floating point is inferred, too; lowering refuses them.
BITS = (*INTEGER, *BOOL, *FLOAT)
ANY = (*NUMBER, *BOOL)
REAL_OR_BOOL = (*INTEGER, *FLOAT, *BOOL)
REAL = (*INTEGER, *FLOAT)


def _as_tensor(x: Expr, name: str, dtypes: Sequence[str]) -> TensorStructInfo:
    """Struct info of an operand; that of a PrimValue as a tensor of rank 0."""
    info = x.struct_info
    if isinstance(info, PrimStructInfo):
        info = TensorStructInfo.make((), info.dtype)
    if not isinstance(info, TensorStructInfo):
        raise OperandTypeError(f"`{name}` must be a tensor or a scalar; got {show(info)}")
    if info.dtype and info.dtype not in dtypes:
        raise OpError(
            f"`{name}` must be one of {', '.join(dtypes)}; got {info.dtype}. "
            f"Cast it first: R.astype({name}, ...)"
        )
    return info


def broadcasted(
    infos: Sequence[TensorStructInfo], dtype: str, names: str = "`x1` and `x2`"
) -> TensorStructInfo:
    """Struct info of tensors (``names`` in errors) broadcast together, as far as it is known."""
    device = next((i.vdevice for i in infos if i.vdevice is not None), None)
    shapes = [i.dims for i in infos if i.dims is not None]
    if len(shapes) == len(infos):
        same = bool(shapes) and all([s == shapes[0] for s in shapes])
        dims = shapes[0] if same else broadcast_dims(shapes, names)
        if dims is not None:
            return TensorStructInfo.make(dims, dtype, device)
    elif all(i.shape is not None and i.shape is infos[0].shape for i in infos):
        return with_dtype(infos[0], dtype)
    ndim = -1 if any(i.ndim == -1 for i in infos) else max(i.ndim for i in infos)
    return TensorStructInfo(None, dtype, device, ndim)


def as_operand(x: Expr) -> Expr:
    """A PrimValue as a constant of rank 0, for lowering."""
    if isinstance(x.struct_info, PrimStructInfo):
        return scalar(number(x, "operand"), scalar_dtype(x))
    return x


def binary(
    name: str,
    row: str | Lowering,
    dtypes: Sequence[str],
    text: str,
    *traits: Trait,
    result: str | None = None,
    smooth: Lowering | None = None,
) -> Op[[Expr, Expr]]:
    """One member of the family: a row, or a function of broadcast operands that lowers it.

    ``smooth``: another one of floats, for derivatives.
    """
    if isinstance(row, str):
        traits = (AsRow(row), *traits)
    accepted = "any dtype" if len(dtypes) >= len(ANY) else ", ".join(dtypes)
    doc = f"""{text}

    x1, x2: tensors of one dtype that broadcast together, {accepted}
    result: the common shape, {result or "dtype of the operands"}
    Raises ``OpError`` if the dtypes differ or the shapes cannot be broadcast.
    """

    @op(name, Broadcasting(), *traits, doc=doc)
    def made(x1: Expr, x2: Expr) -> StructInfo:
        infos = [_as_tensor(x1, "x1", dtypes), _as_tensor(x2, "x2", dtypes)]
        dtype = common_dtype(infos, ("x1", "x2"))
        if isinstance(x1.struct_info, PrimStructInfo) and isinstance(
            x2.struct_info, PrimStructInfo
        ):
            return PrimStructInfo(result or dtype)
        return broadcasted(infos, result or dtype)

    plain: Lowering = (lambda a, b: hlo(row, a, b)) if isinstance(row, str) else row

    def of_operands(rule: Lowering) -> Callable[..., Expr]:
        def lower(x1: Expr, x2: Expr) -> Expr:
            tensors = any(isinstance(x.struct_info, TensorStructInfo) for x in (x1, x2))
            if rule is plain and not tensors:
                raise LegalizeError(f"{name} of two scalars is computed by the virtual machine")
            a, b = broadcast_together(as_operand(x1), as_operand(x2))
            return (rule if is_float(dtype_of(a)) else plain)(a, b)

        return lower

    made.legalize(of_operands(plain))
    if smooth is not None:
        made.derivative(of_operands(smooth))
    return made


# ---- division with a quotient rounded down
def _signs_differ(a: Expr, b: Expr) -> Expr:
    zero = full_like(a, 0)
    return hlo("xor", compare(a, zero, "LT"), compare(b, zero, "LT"))


def _plain_mod(a: Expr, b: Expr) -> Expr:
    """The same but for the sign of a zero: differentiated, it is ``a - b * floor(a / b)``."""
    r = hlo("remainder", a, b)
    if is_kind(dtype_of(a), "uint"):
        return r
    wrong = hlo("and", compare(r, full_like(a, 0), "NE"), _signs_differ(r, b))
    return select(wrong, hlo("add", r, b), r)


def _floor_mod(a: Expr, b: Expr) -> Expr:
    """The remainder with the sign of the divisor, as Python's ``%`` and ``numpy.mod``."""
    moved, zero = _plain_mod(a, b), full_like(a, 0)
    if not is_float(dtype_of(a)):
        return moved
    # A zero remainder has the sign of the divisor too.
    signed_zero = select(compare(b, zero, "LT"), full_like(a, -0.0), zero)
    return select(compare(moved, zero, "EQ"), signed_zero, moved)


def _floor_divide(a: Expr, b: Expr) -> Expr:
    """The quotient rounded down, as Python's ``//`` and ``numpy.floor_divide``."""
    dtype = dtype_of(a)
    zero = full_like(a, 0)
    if not is_float(dtype):
        q = hlo("divide", a, b)
        if is_kind(dtype, "uint"):
            return q
        r = hlo("remainder", a, b)
        wrong = hlo("and", compare(r, zero, "NE"), _signs_differ(r, b))
        # A remainder says nothing where the divisor is zero.
        wrong = hlo("and", wrong, compare(b, zero, "NE"))
        return select(wrong, hlo("subtract", q, full_like(a, 1)), q)
    if dtype in ("float16", "bfloat16"):
        return convert(_floor_divide(convert(a, "float32"), convert(b, "float32")), dtype)
    # floor(a / b) would be one too large where the division rounds up to an integer.
    r = hlo("remainder", a, b)
    q = hlo("divide", hlo("subtract", a, r), b)
    wrong = hlo("and", compare(r, zero, "NE"), _signs_differ(r, b))
    q = select(wrong, hlo("subtract", q, full_like(a, 1)), q)
    down = hlo("floor", q)
    near = compare(hlo("subtract", q, down), full_like(a, 0.5), "GT")
    down = select(near, hlo("add", down, full_like(a, 1)), down)
    quotient = hlo("divide", a, b)
    # A zero keeps the sign of the exact quotient; division by zero is IEEE's.
    down = select(compare(q, zero, "EQ"), hlo("multiply", quotient, zero), down)
    return select(compare(b, zero, "EQ"), quotient, down)


def _log_add_exp(a: Expr, b: Expr) -> Expr:
    high = hlo("maximum", a, b)
    gap = hlo("negate", hlo("abs", hlo("subtract", a, b)))
    sum_ = hlo("add", high, hlo("log_plus_one", hlo("exponential", gap)))
    # Equal infinities have no difference.
    twice = hlo("add", a, full_like(a, math.log(2)))
    return select(compare(a, b, "EQ"), twice, sum_)


def _smooth_log_add_exp(a: Expr, b: Expr) -> Expr:
    # Of equal ones each has a half; around them it is (a + b) / 2 + log(2) + (a - b)^2 / 8. What is
    # not equal, and infinity, must not come near the square, not even where nobody selects it.
    half, zero, equal = full_like(a, 0.5), full_like(a, 0), compare(a, b, "EQ")
    finite = compare(hlo("abs", a), full_like(a, math.inf), "LT")
    apart = select(hlo("and", equal, finite), hlo("subtract", a, b), zero)
    curved = hlo("multiply", hlo("multiply", apart, apart), full_like(a, 0.125))
    middle = hlo("add", hlo("multiply", a, half), hlo("multiply", b, half))
    twice = hlo("add", hlo("add", middle, curved), full_like(a, math.log(2)))
    return select(equal, twice, _log_add_exp(a, b))


def _smooth_power(a: Expr, b: Expr) -> Expr:
    # To the power of 0 it is 1 around every number, to that of 1 the number, 0 and NaN included.
    # Elsewhere its derivatives are finite numbers; there they are products of 0 and infinity.
    one, zero, still = full_like(a, 1), full_like(a, 0), no_gradient(a)
    odd = hlo("or", compare(a, zero, "EQ"), compare(a, a, "NE"))
    flat = hlo("and", odd, compare(b, zero, "EQ"))
    line = hlo("and", odd, compare(b, one, "EQ"))
    around = hlo("power", still, select(flat, b, zero))
    along = hlo("power", still, select(line, hlo("subtract", b, one), zero))
    either = hlo("or", flat, line)
    rest = hlo("power", select(either, one, a), select(either, one, b))
    return select(flat, around, select(line, hlo("multiply", a, along), rest))


def _smooth_atan2(a: Expr, b: Expr) -> Expr:
    # None at the origin.
    zero = full_like(a, 0)
    origin = hlo("and", compare(a, zero, "EQ"), compare(b, zero, "EQ"))
    rest = hlo("atan2", a, select(origin, full_like(b, 1), b))
    return select(origin, hlo("atan2", no_gradient(a), no_gradient(b)), rest)


def _right_shift(a: Expr, b: Expr) -> Expr:
    kind = "shift_right_arithmetic" if is_kind(dtype_of(a), "int") else "shift_right_logical"
    return hlo(kind, a, b)


def _logical(row: str) -> Lowering:
    """A row on the truth values, in the dtype of the operands."""

    def lower(a: Expr, b: Expr) -> Expr:
        return convert(hlo(row, as_bool(a), as_bool(b)), dtype_of(a))

    return lower


def _bitwise(row: str, text: str) -> Op[[Expr, Expr]]:
    """An operator on every bit; floating point has none to speak of."""

    def lower(a: Expr, b: Expr) -> Expr:
        return hlo(row, whole(a, f"bitwise_{row}"), b)

    text = f"{text}. Floating point is refused when it is lowered."
    return binary(f"relax.bitwise_{row}", lower, BITS, text, AsRow(row))


def comparison(name: str, direction: str, dtypes: Sequence[str], text: str) -> Op[[Expr, Expr]]:
    """One comparison, in a direction of StableHLO."""
    return binary(
        name,
        lambda a, b: compare(a, b, direction),
        dtypes,
        text,
        AsRow("compare", direction=direction),
        result="bool",
    )


# ---- arithmetic
add = binary("relax.add", "add", ANY, "x1 + x2; of booleans their or.")
subtract = binary("relax.subtract", "subtract", NUMBER, "x1 - x2.")
multiply = binary("relax.multiply", "multiply", ANY, "x1 * x2; of booleans their and.")
divide = binary(
    "relax.divide", "divide", NUMBER, "x1 / x2; of integers truncated towards zero.", Division()
)
floor_divide = binary(
    "relax.floor_divide",
    _floor_divide,
    REAL,
    "x1 / x2 rounded down.",
    Division(),
    Recognised(floats=False, by="remainder"),
)
mod = binary(
    "relax.mod",
    "remainder",
    REAL,
    "The remainder of the quotient rounded to zero, as C's ``%`` and ``numpy.fmod``: the sign is "
    "x1's. As in TVM, Python's ``%`` on expressions is this operator.",
    Division(),
)
floor_mod = binary(
    "relax.floor_mod",
    _floor_mod,
    REAL,
    "The remainder of floor_divide, as Python's ``%`` on numbers and ``numpy.mod``: the sign is "
    "x2's.",
    Division(),
    Recognised(floats=False, by="remainder"),
    smooth=_plain_mod,
)
power = binary("relax.power", "power", NUMBER, "x1 to the power x2.", smooth=_smooth_power)
maximum = binary("relax.maximum", "maximum", ANY, "The larger of the two; NaN if one is.")
minimum = binary("relax.minimum", "minimum", ANY, "The smaller of the two; NaN if one is.")
atan2 = binary(
    "relax.atan2",
    "atan2",
    INEXACT,
    "The angle of the point (x2, x1), in [-pi, pi].",
    smooth=_smooth_atan2,
)
log_add_exp = binary(
    "relax.log_add_exp",
    _log_add_exp,
    FLOAT,
    "log(e^x1 + e^x2), without overflow on the way.",
    Recognised(),
    smooth=_smooth_log_add_exp,
)

# ---- bits and truth values
left_shift = binary("relax.left_shift", "shift_left", INTEGER, "x1 * 2^x2, cut to the dtype.")
right_shift = binary(
    "relax.right_shift",
    _right_shift,
    INTEGER,
    "x1 / 2^x2 rounded down (signed: arithmetic shift).",
    AsRow("shift_right_arithmetic"),
    AsRow("shift_right_logical"),
)
bitwise_and = _bitwise("and", "The and of every bit")
bitwise_or = _bitwise("or", "The or of every bit")
bitwise_xor = _bitwise("xor", "The exclusive or of every bit")
logical_and = binary(
    "relax.logical_and", _logical("and"), ANY, "x1 != 0 and x2 != 0.", AsRow("and", on="bool")
)
logical_or = binary(
    "relax.logical_or", _logical("or"), ANY, "x1 != 0 or x2 != 0.", AsRow("or", on="bool")
)
logical_xor = binary(
    "relax.logical_xor",
    _logical("xor"),
    ANY,
    "Exactly one of the two is not 0.",
    AsRow("xor", on="bool"),
)

# ---- comparison
equal = comparison("relax.equal", "EQ", ANY, "x1 == x2; NaN differs.")
not_equal = comparison("relax.not_equal", "NE", ANY, "x1 != x2.")
less = comparison("relax.less", "LT", REAL_OR_BOOL, "x1 < x2.")
less_equal = comparison("relax.less_equal", "LE", REAL_OR_BOOL, "x1 <= x2.")
greater = comparison("relax.greater", "GT", REAL_OR_BOOL, "x1 > x2.")
greater_equal = comparison("relax.greater_equal", "GE", REAL_OR_BOOL, "x1 >= x2.")


# ---- three operands
@op("relax.where", Broadcasting(), AsRow("select"))
def where(condition: Expr, x1: Expr, x2: Expr) -> Rule:
    """``x1`` where the condition holds, else ``x2``; NaN in the branch not taken does no harm.

    condition: bool; x1, x2: of one dtype; all three broadcast together
    result: the common shape, dtype of ``x1``
    """
    infos = [
        _as_tensor(condition, "condition", BOOL),
        _as_tensor(x1, "x1", ANY),
        _as_tensor(x2, "x2", ANY),
    ]
    if not infos[0].dtype:  # a number of another dtype is no condition, as in TVM
        raise OpError(
            f"`condition` must be bool; the dtype of {show(infos[0])} is not known. Annotate it, "
            'or cast it: R.astype(condition, "bool")'
        )
    dtype = common_dtype(infos[1:], ("x1", "x2"))

    def lower() -> Expr:
        return select(as_operand(condition), as_operand(x1), as_operand(x2))

    return broadcasted(infos, dtype, "`condition`, `x1` and `x2`"), lower


@op("relax.ewise_fma", Pointwise())
def ewise_fma(x1: Expr, x2: Expr, x3: Expr) -> Rule:
    """``x1 * x2 + x3`` on tensors of one shape and dtype.

    x1, x2, x3: (*s), any number
    result: (*s), dtype of the operands
    """
    names = ("x1", "x2", "x3")
    infos = [want_tensor(x, n, NUMBER) for x, n in zip((x1, x2, x3), names, strict=True)]
    dtype = common_dtype(infos, names)
    ranks = {i.ndim for i in infos if i.ndim != -1}
    if len(ranks) > 1:
        raise OpError(f"`x1`, `x2` and `x3` must have one rank; got {', '.join(map(show, infos))}")
    shapes = [i.dims for i in infos if i.dims is not None]
    for axis in range(max(ranks, default=0)):
        sizes = {s[axis] for s in shapes if isinstance(s[axis], int)}
        if len(sizes) > 1:
            raise OpError(
                f"`x1`, `x2` and `x3` must have one shape; got {', '.join(map(show, infos))}"
            )
    same = len(shapes) == 3 and shapes[0] == shapes[1] == shapes[2]
    # Or all have the shape that one variable holds.
    same = same or (infos[0].shape is not None and len({id(i.shape) for i in infos}) == 1)
    info = infos[0] if same else tensor(None, dtype, max(ranks, default=-1), infos[0])
    return info, lambda: hlo("add", hlo("multiply", x1, x2), x3)


@composed
def masked_fill(x: Expr, mask: Expr, value: Expr | float) -> Expr:
    """``x`` with ``value`` (a number or a tensor of rank 0) where ``mask`` holds.

    A composition, as in TVM: ``where(mask, full_like(x, value), x)``.
    """
    return where(mask, relax("full_like", x, value), x)
