# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: arithmetic, comparison, activations, casts, products of matrices.

Semantics: the operator specifications of ONNX. Families are tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from onnx import TensorProto

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import dtype_info, is_float, is_integer, limits
from relax2xla.importers.onnx.engine.context import Context, choice, known_number
from relax2xla.importers.onnx.engine.converters import Ints, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    axis_of,
    dims_of,
    dtype_of,
    info_of,
    like,
    ndim_of,
    scalar,
)
from relax2xla.importers.onnx.ops.strings import (
    is_text,
    known_rank,
    parsed,
    strings_too,
    widest,
    written,
)
from relax2xla.importers.onnx.read.tensors import dtype_of_code
from relax2xla.importers.shared import activations as activation
from relax2xla.importers.shared import conversion
from relax2xla.importers.shared.dims import product
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.tensors import row
from relax2xla.ir import Constant, Expr, TensorStructInfo

# The largest finite float32.
FLOAT_MAX = 3.4028234663852886e38

Unary = Callable[[Expr], Expr]
Binary = Callable[[Expr, Expr], Expr]


# -- one operand ---------------------------------------------------------------------------------
def _sign(x: Expr) -> Expr:
    """NaN stays, which it does not with Relax's operator."""
    return row("sign", x) if is_float(dtype_of(x)) else R.sign(x)


def _reciprocal(x: Expr) -> Expr:
    return R.divide(like(x, 1), x)


_UNARY: dict[str, Unary] = {
    "Abs": R.abs,
    "Acos": R.acos,
    "Acosh": R.acosh,
    "Asin": R.asin,
    "Asinh": R.asinh,
    "Atan": R.atan,
    "Atanh": R.atanh,
    "BitwiseNot": R.bitwise_not,
    "Ceil": R.ceil,
    "Cos": R.cos,
    "Cosh": R.cosh,
    "Erf": R.erf,
    "Exp": R.exp,
    "Floor": R.floor,
    "HardSwish": activation.hard_swish,
    "IsNaN": R.isnan,
    "Log": R.log,
    "Mish": activation.mish,
    "Neg": R.negative,
    "Not": R.logical_not,
    "Reciprocal": _reciprocal,
    "Relu": R.nn.relu,
    "Round": R.round,
    "Sigmoid": R.sigmoid,
    "Sign": lambda x: _sign(x),
    "Sin": R.sin,
    "Sinh": R.sinh,
    "Softplus": activation.softplus,
    "Softsign": activation.softsign,
    "Sqrt": R.sqrt,
    "Tan": R.tan,
    "Tanh": R.tanh,
}


def _register_unary(name: str, rule: Unary) -> None:
    @onnx_op(name)
    def _(ctx: Context, X: Expr) -> Expr:
        return rule(X)


for _name, _rule in _UNARY.items():
    _register_unary(_name, _rule)


@onnx_op("IsInf", since=10)
def isinf(ctx: Context, X: Expr, *, detect_negative: int = 1, detect_positive: int = 1) -> Expr:
    if detect_negative and detect_positive:
        return R.isinf(X)
    if not detect_negative and not detect_positive:
        return R.isinf(R.zeros_like(X))
    return R.equal(X, like(X, math.inf if detect_positive else -math.inf))


@onnx_op("Elu")
def elu(ctx: Context, X: Expr, *, alpha: float = 1.0) -> Expr:
    return activation.elu(X, alpha)


@onnx_op("Celu", since=12)
def celu(ctx: Context, X: Expr, *, alpha: float = 1.0) -> Expr:
    return activation.elu(X, alpha, 1, 1 / alpha)


@onnx_op("Selu")
def selu(
    ctx: Context,
    X: Expr,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
) -> Expr:
    return activation.elu(X, alpha, gamma)


@onnx_op("LeakyRelu")
def leaky_relu(ctx: Context, X: Expr, *, alpha: float = 0.01) -> Expr:
    return R.nn.leakyrelu(X, alpha)


@onnx_op("ThresholdedRelu")
def thresholded_relu(ctx: Context, X: Expr, *, alpha: float = 1.0) -> Expr:
    return activation.thresholded(X, alpha)


@onnx_op("HardSigmoid")
def hard_sigmoid(ctx: Context, X: Expr, *, alpha: float = 0.2, beta: float = 0.5) -> Expr:
    return activation.hard_sigmoid(X, alpha, beta)


@onnx_op("Shrink", since=9)
def shrink(ctx: Context, input: Expr, *, bias: float = 0.0, lambd: float = 0.5) -> Expr:
    kind = dtype_of(input)
    # Thresholds are floats, even of integers.
    x = input if is_float(kind) else ctx.emit(R.astype(input, "float32"))
    inner = R.where(R.greater(x, like(x, lambd)), R.subtract(x, like(x, bias)), like(x, 0))
    made = R.where(R.less(x, like(x, -lambd)), R.add(x, like(x, bias)), inner)
    return conversion.converted(made, kind)


@onnx_op("Swish", since=24)
def swish(ctx: Context, X: Expr, *, alpha: float = 1.0) -> Expr:
    return activation.swish(X, alpha)


@onnx_op("Gelu", since=20)
def gelu(ctx: Context, X: Expr, *, approximate: str = "none") -> Expr:
    exact = choice(approximate, ("none", "tanh"), "approximate") == "none"
    return R.nn.gelu(X) if exact else R.nn.gelu_tanh(X)


@onnx_op("PRelu")
def prelu(ctx: Context, X: Expr, slope: Expr) -> Expr:
    lead = ndim_of(X) - ndim_of(slope)
    # Before opset 7 a slope for each channel was written without the axes after it.
    if ctx.opset < 7 and ndim_of(slope) == 1 and lead > 0 and dims_of(slope) != (1,):
        slope = R.reshape(slope, (*dims_of(slope), *[1] * (ndim_of(X) - 2)))
    return activation.prelu(X, slope)


@onnx_op("Clip", attributes="min max", min=-FLOAT_MAX, max=FLOAT_MAX)
@onnx_op("Clip", since=11)
def clip(
    ctx: Context, input: Expr, min: Expr | float | None = None, max: Expr | float | None = None
) -> Expr:
    """Bounds that are NaN bound nothing, as in ONNX Runtime.

    As attributes, infinities stop at bounds that are not given, too.
    """
    low, high = (known_number(b) if isinstance(b, Expr) else b for b in (min, max))
    if not any(isinstance(b, Expr) and n is None for b, n in ((min, low), (max, high))):
        return _clip(input, -math.inf if low is None else low, math.inf if high is None else high)
    x = R.maximum(input, _bound(ctx, min, -math.inf)) if isinstance(min, Expr) else input
    return R.minimum(x, _bound(ctx, max, math.inf)) if isinstance(max, Expr) else x


def _bound(ctx: Context, bound: Expr, none: float) -> Expr:
    bound = R.reshape(bound, ())
    if not is_float(dtype_of(bound)):
        return bound
    bound = ctx.emit(bound)
    return R.where(R.isnan(bound), like(bound, none), bound)


def _clip(x: Expr, low: float, high: float) -> Expr:
    """Clip by numbers; where they cross, the upper one wins, as in numpy. NaN bounds nothing.

    Bounds that no value exceeds are left out; the largest finite floats do stop infinities.
    """
    least, most = limits(dtype_of(x))
    finite = is_float(dtype_of(x))
    if low > least or (finite and low == least):
        x = R.maximum(x, like(x, low))
    return R.minimum(x, like(x, high)) if high < most or (finite and high == most) else x


# -- two operands --------------------------------------------------------------------------------
def _aligned(a: Expr, b: Expr, broadcast: int, axis: int | None) -> Expr:
    """``b`` as opset 1 broadcasts it: its axes lie at ``axis`` of ``a``, else at the end."""
    if not broadcast and ndim_of(a) != ndim_of(b):
        raise ValueError("operands of different rank need broadcast=1 before opset 7")
    if axis is None or ndim_of(b) == 0:
        return b
    behind = ndim_of(a) - axis_of(axis, ndim_of(a)) - ndim_of(b)
    return R.reshape(b, (*dims_of(b), *[1] * behind)) if behind else b


def _power(a: Expr, b: Expr) -> Expr:
    """The dtype is that of the base, whatever that of the exponent."""
    base, exponent = dtype_of(a), dtype_of(b)
    if known_number(b) == 2 and ndim_of(b) <= info_of(a).ndim:
        return R.multiply(a, a)
    if base == exponent:
        return R.power(a, b)
    if is_float(base) or is_integer(exponent):
        return R.power(a, R.astype(b, base))
    return conversion.converted(R.power(R.astype(a, exponent), b), base)


def divisor(b: Expr) -> Expr:
    """An operand that is divided by. Raises ``ValueError`` for an integer zero that is known."""
    if isinstance(b, Constant) and not is_float(dtype_of(b)) and not b.data.all():
        raise ValueError("integers are divided by zero")
    return b


_BINARY: dict[str, Binary] = {
    "Add": R.add,
    "Sub": R.subtract,
    "Mul": R.multiply,
    "Div": lambda a, b: R.divide(a, divisor(b)),
    "Pow": _power,
    "And": R.logical_and,
    "Or": R.logical_or,
    "Xor": R.logical_xor,
    "Greater": R.greater,
    "Less": R.less,
}
# Those that no opset broadcasts by attributes, and their first opset.
_BINARY_LATER: dict[str, tuple[int, Binary]] = {
    "GreaterOrEqual": (12, R.greater_equal),
    "LessOrEqual": (12, R.less_equal),
    "BitwiseAnd": (18, R.bitwise_and),
    "BitwiseOr": (18, R.bitwise_or),
    "BitwiseXor": (18, R.bitwise_xor),
}


def _register_binary(name: str, rule: Binary, since: int | None = None) -> None:
    @onnx_op(name, since=since or 7, lacks="broadcast axis")
    def convert(
        ctx: Context, A: Expr, B: Expr, *, broadcast: int = 0, axis: int | None = None
    ) -> Expr:
        return rule(A, _aligned(A, B, broadcast, axis) if ctx.opset < 7 else B)

    if since is None:
        onnx_op(name)(convert)


for _name, _binary_rule in _BINARY.items():
    _register_binary(_name, _binary_rule)
for _name, (_since, _binary_rule) in _BINARY_LATER.items():
    _register_binary(_name, _binary_rule, _since)


@onnx_op("Equal")
@onnx_op("Equal", since=7, lacks="broadcast axis")
def equal(ctx: Context, A: Expr, B: Expr, *, broadcast: int = 0, axis: int | None = None) -> Expr:
    if is_text(A) and is_text(B):
        return known_rank(ctx, R.text.equal(A, B), widest(ctx, A, B))
    return R.equal(A, _aligned(A, B, broadcast, axis) if ctx.opset < 7 else B)


@onnx_op("BitShift", since=11)
def bit_shift(ctx: Context, X: Expr, Y: Expr, *, direction: str) -> Expr:
    left = choice(direction, ("LEFT", "RIGHT"), "direction") == "LEFT"
    return R.left_shift(X, Y) if left else R.right_shift(X, Y)


@onnx_op("Mod", since=10)
def mod(ctx: Context, A: Expr, B: Expr, *, fmod: int = 0) -> Expr:
    divisor(B)
    return R.mod(A, B) if fmod else R.floor_mod(A, B)


def _register_variadic(name: str, rule: Binary, mean: bool) -> None:
    @onnx_op(name)
    def _(ctx: Context, *data_0: Expr) -> Expr:
        if not data_0:
            raise ValueError("it has no inputs")
        total = data_0[0]
        for x in data_0[1:]:
            total = rule(total, x)
        return R.divide(total, like(total, len(data_0))) if mean else total


for _name, _binary_rule, _mean in (
    ("Max", R.maximum, False),
    ("Min", R.minimum, False),
    ("Sum", R.add, False),
    ("Mean", R.add, True),
):
    _register_variadic(_name, _binary_rule, _mean)


@onnx_op("Where", since=9)
@strings_too(1, 2)
def where(ctx: Context, condition: Expr, X: Expr, Y: Expr) -> Expr:
    return R.where(condition, X, Y)


# -- dtypes --------------------------------------------------------------------------------------
def converted(ctx: Context, x: Expr, dtype: str, saturate: int, round_mode: str = "up") -> Expr:
    """``x`` in another dtype. Narrow floats take the largest value in place of larger ones."""
    choice(round_mode, ("up", "down", "nearest"), "round_mode")
    if dtype_of(x) == dtype:
        return x
    info = dtype_info(dtype)
    if dtype == "float8_e8m0fnu":
        return _exponent(ctx, ctx.cast(x, "float32"), saturate, round_mode)
    if is_float(dtype) and info.bits < 16 and (saturate or info.bits < 8):
        wide = x if is_float(dtype_of(x)) else R.astype(x, "float32")
        low, high = limits(dtype)
        x = activation.clamped(wide, low, high)
    if is_integer(dtype) and info.bits < 8:
        x = conversion.converted(x, "int32")  # ONNX keeps the lowest bits
    return conversion.converted(x, dtype)


def _exponent(ctx: Context, x: Expr, saturate: int, round_mode: str) -> Expr:
    """The exponents of float32 values, as float8_e8m0fnu: a power of two that is above or below.

    The sign is lost, and infinities are NaN, as in the reference of ONNX.
    """
    bits = ctx.emit(_reinterpreted(x, "uint32"))

    def number(value: int) -> Expr:
        return scalar(value, "uint32")

    def masked(mask: int) -> Expr:
        return R.bitwise_and(bits, number(mask))

    exponent = ctx.emit(R.bitwise_and(R.right_shift(bits, number(23)), number(0xFF)))
    if round_mode == "up":
        more = R.greater(masked(0x7FFFFF), number(0))
    else:
        # A tie goes up where the exponent is not zero.
        rest = R.logical_or(R.greater(masked(0x3FFFFF), number(0)), R.greater(exponent, number(0)))
        more = R.logical_and(R.greater(masked(0x400000), number(0)), rest)
    if round_mode != "down":
        last = 0xFE if saturate else 0xFF
        more = R.logical_and(more, R.less(exponent, number(last)))
        exponent = R.add(exponent, R.astype(more, "uint32"))
    return _reinterpreted(R.astype(exponent, "uint8"), "float8_e8m0fnu")


@onnx_op("Cast")
def cast_by_name(ctx: Context, input: Expr, *, to: str) -> Expr:
    """Until opset 5 the type is said by its name."""
    names = TensorProto.DataType
    return cast(ctx, input, to=names.Value(choice(to, names.keys(), "to")))


@onnx_op("Cast", since=6, lacks="round_mode")
@onnx_op("Cast", since=24)
def cast(ctx: Context, input: Expr, *, to: int, saturate: int = 1, round_mode: str = "up") -> Expr:
    """``round_mode`` says how to round to float8e8m0."""
    if to == TensorProto.STRING:
        return written(ctx, input)
    dtype = dtype_of_code(to, "the result of Cast").name
    if is_text(input):
        return parsed(ctx, input, dtype)
    return converted(ctx, input, dtype, saturate, round_mode)


@onnx_op("CastLike", since=15, lacks="round_mode")
@onnx_op("CastLike", since=24)
def cast_like(
    ctx: Context, input: Expr, target_type: Expr, *, saturate: int = 1, round_mode: str = "up"
) -> Expr:
    if is_text(target_type):
        return written(ctx, input)
    if is_text(input):
        return parsed(ctx, input, dtype_of(target_type))
    return converted(ctx, input, dtype_of(target_type), saturate, round_mode)


@onnx_op("BitCast", since=26)
def bit_cast(ctx: Context, input: Expr, *, to: int) -> Expr:
    dtype = dtype_of_code(to, "the result of BitCast").name
    # A boolean is a byte of 0 or 1; any other byte is true.
    if dtype == dtype_of(input):
        return input
    if dtype_info(dtype).nbytes != dtype_info(dtype_of(input)).nbytes:
        raise ValueError(f"{dtype_of(input)} and {dtype} have different widths")
    if dtype == "bool":
        return R.not_equal(_reinterpreted(input, "uint8"), scalar(0, "uint8"))
    if dtype_of(input) == "bool":
        return _reinterpreted(R.astype(input, "uint8"), dtype)
    return _reinterpreted(input, dtype)


def _reinterpreted(x: Expr, dtype: str) -> Expr:
    if dtype_of(x) == dtype:
        return x
    return row("bitcast_convert", x, sinfo_args=(TensorStructInfo(dims_of(x), dtype),))


# -- softmax -------------------------------------------------------------------------------------
def _hardmax(x: Expr, axis: int) -> Expr:
    """One at the first maximum along ``axis``, zero elsewhere."""
    dims = dims_of(x)
    at = axis_of(axis, len(dims))
    dtype, size = dtype_of(x), dims[at]
    if size == 0:
        return x
    if isinstance(size, int):
        return R.one_hot(R.argmax(x, axis=at), tir.const(1, dtype), tir.const(0, dtype), size, at)
    others = [i for i in range(len(dims)) if i != at]
    places = R.expand_dims(R.arange(0, size, 1, "int64"), others)
    # The last place, which is never the first maximum, is for an axis without elements.
    behind = [int(i == at and side == 1) for i in range(len(dims)) for side in (0, 1)]
    padded = R.nn.pad(x, behind, "constant", -math.inf)
    hit = R.equal(R.argmax(padded, axis=at, keepdims=True), places)
    return R.where(hit, like(x, 1), like(x, 0))


def _softmax(x: Expr, axis: int) -> Expr:
    """In half precision each step is rounded, as in ONNX's reference.

    The rounding is said as such, because XLA may leave out a conversion and the one back.
    """
    if dtype_of(x) != "float16":
        return R.nn.softmax(x, axis)

    def rounded(y: Expr) -> Expr:
        return row("reduce_precision", y, exponent_bits=5, mantissa_bits=10)

    wide = R.astype(x, "float32")
    powers = rounded(R.exp(rounded(R.subtract(wide, R.max(wide, [axis], True)))))
    return R.astype(R.divide(powers, rounded(R.sum(powers, [axis], True))), "float16")


_SOFT: dict[str, Callable[[Expr, int], Expr]] = {
    "Softmax": _softmax,
    "LogSoftmax": R.nn.log_softmax,
    "Hardmax": _hardmax,
}


def _register_soft(name: str, rule: Callable[[Expr, int], Expr]) -> None:
    @onnx_op(name, axis=1)
    @onnx_op(name, since=13)
    def _(ctx: Context, input: Expr, *, axis: int = -1) -> Expr:
        """Before opset 13 all axes from ``axis`` on are one."""
        return along_or_from(ctx, rule, input, axis, ctx.opset < 13)


def along_or_from(
    ctx: Context, rule: Callable[[Expr, int], Expr], x: Expr, axis: int, all_behind: bool
) -> Expr:
    """``rule`` along an axis, or over all axes from it on as one."""
    if not all_behind:
        return rule(x, axis_of(axis, ndim_of(x)))
    dims = dims_of(x)
    at = len(dims) if axis == len(dims) else axis_of(axis, len(dims))
    if at == len(dims) - 1:
        return rule(x, at)
    flat = ctx.reshape(x, (product(dims[:at]), product(dims[at:])))
    return ctx.reshape(rule(flat, 1), dims)


for _name, _soft_rule in _SOFT.items():
    _register_soft(_name, _soft_rule)


# -- products ------------------------------------------------------------------------------------
@onnx_op("MatMul")
def matmul(ctx: Context, A: Expr, B: Expr) -> Expr:
    return R.matmul(A, B)


@onnx_op("Gemm", needs="C")
@onnx_op("Gemm", since=7, lacks="broadcast")
def gemm(
    ctx: Context,
    A: Expr,
    B: Expr,
    C: Expr | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 0,
    transA: int = 0,
    transB: int = 0,
) -> Expr:
    """``broadcast`` only allows what later opsets always do."""
    a = R.permute_dims(A) if transA else A
    b = R.permute_dims(B) if transB else B
    made = _scaled(R.matmul(a, b), alpha)
    return made if C is None or beta == 0 else R.add(made, _scaled(C, beta))


def _scaled(x: Expr, factor: float) -> Expr:
    if factor == 1:
        return x
    if is_integer(dtype_of(x)) and not float(factor).is_integer():
        raise Unsupported(f"a factor of {factor} for {dtype_of(x)}")
    return R.multiply(x, like(x, factor))


@onnx_op("Einsum", since=12)
def einsum(ctx: Context, *Inputs: Expr, equation: str) -> Expr:
    return R.einsum(list(Inputs), equation.replace(" ", ""))


# -- running totals ------------------------------------------------------------------------------
def _register_running(name: str, since: int, scan: Callable[..., Expr]) -> None:
    @onnx_op(name, since=since)
    def _(ctx: Context, x: Expr, axis: Ints, *, exclusive: int = 0, reverse: int = 0) -> Expr:
        if len(axis) != 1:
            raise ValueError(f"{len(axis)} axes")
        at = tir.as_dim(axis[0])
        if isinstance(at, int):
            at = axis_of(at, ndim_of(x))
        turned = R.flip(x, at) if reverse else x
        made = scan(turned, at, exclusive=bool(exclusive))
        made = R.flip(made, at) if reverse else made
        return made if isinstance(at, int) else ctx.pinned(made, dims_of(x))


_register_running("CumSum", 11, R.cumsum)
_register_running("CumProd", 26, R.cumprod)
