"""Which values of a function are integers in disguise: numbers of 8 bits, and products of these.

One look at each binding, front to back, says what it holds beside its dtype: bytes less their zero
point, such times a scale, sums of products of them, those times a scale. A later binding reads what
the earlier ones were found to be, so that a quantised operator is known by its last step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import limits
from relax2xla.ir import (
    Call,
    Constant,
    DataTypeImm,
    Expr,
    Op,
    PrimValue,
    ShapeExpr,
    StringImm,
    TensorStructInfo,
    Var,
)
from relax2xla.ir.op import call_attrs, constant_value
from relax2xla.ir.rewrite import children
from relax2xla.kernels.integers.calls import BYTES


@dataclass(frozen=True)
class Number:
    """``(bytes - zero) * scale``: int32 without a scale yet, float32 with it or ``real``."""

    bytes: Expr
    zero: Expr | None = None
    scale: Expr | None = None
    real: bool = False


@dataclass(frozen=True)
class Product:
    """The sums of products of two numbers, and what was made of them since.

    ``kind``: "conv2d" (with ``attrs``), "matmul", or "pixels": images [N, H, W, C] by a matrix
    (results, channels). The value is ``(sum + bias) * factor + addend + rest``, float32 where
    ``real``, and of that the largest in each window of ``pool``, behind which it has another shape.
    """

    kind: str
    left: Number
    right: Number
    attrs: Mapping[str, Any]
    shape: tuple[int, ...]
    channel: int
    real: bool
    bias: Expr | None = None
    factor: Expr | None = None
    addend: Expr | None = None
    rest: Number | None = None
    relu: bool = False
    pool: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Addition:
    """The sum of two numbers of one shape, in float32."""

    left: Number
    right: Number
    relu: bool = False


@dataclass(frozen=True)
class Quotient:
    """``x / scale``, or ``x * scale`` where it is ``inverse``, in float32, and what ``x`` holds."""

    x: Expr
    scale: Expr
    value: Product | Addition | Number | None = None
    inverse: bool = False

    def divided(self, value: Expr) -> Expr:
        """A value in place of ``x``."""
        return R.multiply(value, self.scale) if self.inverse else R.divide(value, self.scale)


@dataclass(frozen=True)
class Rounded:
    """The nearest integers, with a zero point that was added; still in float32."""

    value: Product | Quotient
    zero: Expr | None = None
    cut: frozenset[float] = frozenset()


@dataclass(frozen=True)
class Quantised:
    """Bytes again."""

    value: Product | Quotient
    zero: Expr | None
    dtype: str


@dataclass(frozen=True)
class Pooled:
    """The largest bytes of each window."""

    bytes: Expr
    attrs: Mapping[str, Any]


Description = Number | Product | Addition | Quotient | Rounded | Quantised | Pooled


class Values:
    """What the variables of a function hold; ``uses``: how often each is read."""

    def __init__(self, uses: Counter[Var]) -> None:
        self.uses = uses
        self.found: dict[Var, Description] = {}
        self.fixed: set[Var] = set()
        self._bound: dict[Var, Expr] = {}

    def see(self, var: Var, value: Expr) -> None:
        """The next binding."""
        self._bound[var] = value
        kids = children(value)
        if all(
            isinstance(k, Constant | ShapeExpr) or k in self.fixed or _is_plain(k) for k in kids
        ):
            self.fixed.add(var)
        if not isinstance(value, Call) or not isinstance(value.op, Op):
            return
        rule = _RULES.get(value.op.name)
        made = None if rule is None or dims_of(var) is None else rule(self, value, var)
        if made is not None:
            self.found[var] = made

    def of(self, value: Expr) -> Description | None:
        """What a value holds, where it may be taken apart: nobody else reads a product."""
        found = self.found.get(value) if isinstance(value, Var) else None
        single = isinstance(found, Product | Addition | Quotient | Rounded)
        return None if single and isinstance(value, Var) and self.uses[value] != 1 else found

    def is_fixed(self, value: Expr) -> bool:
        """Whether a value is computed from constants alone."""
        todo = [value]
        while todo:
            v = todo.pop()
            if isinstance(v, Call):
                todo += v.args
            elif not (isinstance(v, Constant | ShapeExpr) or v in self.fixed or _is_plain(v)):
                return False
        return True

    def number(self, value: Expr) -> float | None:
        """The one number that a constant holds, or what is converted from it; None: no such."""
        data = self._constant(value)
        if data is None or data.size != 1:
            return None
        return float(data.astype("float64").reshape(()))

    def points(self, value: Expr) -> np.ndarray[Any, Any] | None:
        """Integers of a constant, which bytes may have as their zero points; None: no such."""
        data = self._constant(value)
        if data is None or not data.size or not np.all(data == np.round(data)):
            return None
        return data if data.min() >= -128 and data.max() <= 255 else None

    def _constant(self, value: Expr) -> np.ndarray[Any, Any] | None:
        """The array of a constant that may have been converted, and had another shape since."""
        while isinstance(value, Var) and value in self._bound:
            value = self._bound[value]
            if isinstance(value, Call) and isinstance(value.op, Op):
                if value.op.name not in ("relax.astype", "relax.reshape"):
                    return None
                value = value.args[0]
        return np.asarray(value.data) if isinstance(value, Constant) else None


def dims_of(value: Expr) -> tuple[int, ...] | None:
    """The shape of a tensor; None where it is not known."""
    info = value.struct_info_
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        return None
    dims = tuple(d for d in info.dims if isinstance(d, int))
    return dims if len(dims) == len(info.dims) else None


def dtype_of(value: Expr) -> str:
    """The dtype of a tensor; "" for what is none."""
    info = value.struct_info_
    return info.dtype if isinstance(info, TensorStructInfo) else ""


def is_single(value: Expr | None) -> bool:
    """Whether a value is one number; None, which stands for none, is."""
    dims = () if value is None else dims_of(value)
    return dims is not None and all(d == 1 for d in dims)


def _is_plain(value: Expr) -> bool:
    return isinstance(value, PrimValue | StringImm | DataTypeImm | Op)


def _name(call: Call) -> str:
    assert isinstance(call.op, Op)
    return call.op.name


def _along(value: Expr, shape: tuple[int, ...], channel: int) -> bool:
    """Whether a value broadcasts to ``shape`` as one number, or as one for each channel."""
    dims = dims_of(value)
    if dims is None or len(dims) > len(shape):
        return False
    behind = len(shape) - len(dims)
    return all(
        d == 1 or (i + behind == channel and d == shape[channel]) for i, d in enumerate(dims)
    )


# -- rules -----------------------------------------------------------------------------------------
def _astype(values: Values, call: Call, var: Var) -> Description | None:
    (x,), to = call.args, dtype_of(var)
    found = values.of(x)
    if to in ("int32", "int64") and dtype_of(x) in BYTES:
        return Number(x)
    if to == "float32":
        if dtype_of(x) in BYTES:
            return Number(x, real=True)
        if isinstance(found, Number) and not found.real:
            return replace(found, real=True)
        if isinstance(found, Product) and not found.real:
            return replace(found, real=True)
    if (
        to in BYTES
        and isinstance(found, Rounded)
        and found.cut == frozenset(map(float, limits(to)))
    ):
        return Quantised(found.value, found.zero, to)
    return None


def _subtract(values: Values, call: Call, var: Var) -> Description | None:
    x, zero = call.args
    found = values.of(x)
    plain = isinstance(found, Number) and found.zero is None and found.scale is None
    if not plain or not isinstance(found, Number) or dims_of(var) != dims_of(x):
        return None
    points = values.points(zero)
    if points is not None:
        return replace(found, zero=zero) if points.any() else found
    point = values.of(zero)
    # A zero point is of 8 bits, or it is no zero point; in float32 differences would round.
    if found.real or not isinstance(point, Number) or point.zero is not None or point.real:
        return None
    return replace(found, zero=zero)


def _multiply(values: Values, call: Call, var: Var) -> Description | None:
    for x, other in (call.args, call.args[::-1]):
        found = values.of(x)
        if dtype_of(other) != "float32" or dims_of(x) != dims_of(var):
            continue
        if isinstance(found, Number) and found.real and found.scale is None:
            return replace(found, scale=other)
        if isinstance(found, Product) and found.real and found.factor is None:
            if not found.relu and _along(other, found.shape, found.channel):
                return replace(found, factor=other)
        elif dtype_of(var) == "float32" and is_single(other):
            return _quotient(found, x, other, True)
    return None


def _divide(values: Values, call: Call, var: Var) -> Description | None:
    x, scale = call.args
    if dtype_of(var) != "float32" or dims_of(x) != dims_of(var) or not is_single(scale):
        return None
    return _quotient(values.of(x), x, scale, False)


def _quotient(found: Description | None, x: Expr, scale: Expr, inverse: bool) -> Description | None:
    if isinstance(found, Product):
        return Quotient(x, scale, found, inverse) if found.factor is not None else None
    known = found if isinstance(found, Addition | Number) else None
    return Quotient(x, scale, known, inverse)


def _add(values: Values, call: Call, var: Var) -> Description | None:
    left, right = map(values.of, call.args)
    if isinstance(left, Number) and isinstance(right, Number):
        shapes = {dims_of(a) for a in (*call.args, var)}
        single = all(is_single(v) for n in (left, right) for v in (n.zero, n.scale))
        scaled = left.scale is not None and right.scale is not None
        return Addition(left, right) if single and scaled and len(shapes) == 1 else None
    for x, other in (call.args, call.args[::-1]):
        found, more = values.of(x), values.of(other)
        if dims_of(x) != dims_of(var):
            continue
        if isinstance(found, Product) and isinstance(more, Number):
            single = more.scale is not None and is_single(more.zero) and is_single(more.scale)
            ready = found.real and found.factor is not None and not found.relu
            if single and ready and not found.rest and not found.pool:
                return replace(found, rest=more) if dims_of(other) == dims_of(var) else None
            continue
        if isinstance(found, Rounded) and found.zero is None and not found.cut:
            return replace(found, zero=other) if is_single(other) else None
        if isinstance(found, Product) and _along(other, found.shape, found.channel):
            if found.kind == "matmul" and not values.is_fixed(found.right.bytes):
                return None
            if not found.real:
                fresh = found.bias is None and values.is_fixed(other)
                return replace(found, bias=other) if fresh else None
            fresh = found.addend is None and found.rest is None and found.pool is None
            if found.factor is not None and fresh and not found.relu:
                return replace(found, addend=other)
    return None


def _relu(values: Values, call: Call, var: Var) -> Description | None:
    found = values.of(call.args[0])
    if isinstance(found, Product) and found.factor is not None and found.real:
        return None if found.pool else replace(found, relu=True)
    return replace(found, relu=True) if isinstance(found, Addition) else None


def _round(values: Values, call: Call, var: Var) -> Description | None:
    found = values.of(call.args[0])
    if isinstance(found, Product):
        return Rounded(found) if found.real and found.factor is not None else None
    return Rounded(found) if isinstance(found, Quotient) else None


def _clip(values: Values, call: Call, var: Var) -> Description | None:
    found = values.of(call.args[0])
    ends = [constant_value(a) for a in call.args[1:]]
    if not isinstance(found, Rounded) or None in ends:
        return None
    return replace(found, cut=found.cut | {*map(float, ends)})


def _limit(values: Values, call: Call, var: Var) -> Description | None:
    for x, other in (call.args, call.args[::-1]):
        found, bound = values.of(x), values.number(other)
        if isinstance(found, Rounded) and bound is not None and dims_of(x) == dims_of(var):
            highest = _name(call) == "relax.minimum"
            if highest == (bound > 0):
                return replace(found, cut=found.cut | {bound})
    return None


def _moved(values: Values, call: Call, var: Var) -> Description | None:
    """Axes in another order, and another shape: of the bytes, where the rest is single."""
    found = values.of(call.args[0])
    if not isinstance(found, Number):
        return None
    single = is_single(found.zero) and is_single(found.scale)
    name = _name(call)
    if single and name == "relax.reshape":
        return replace(found, bytes=R.reshape(found.bytes, call.args[1]))
    if name != "relax.permute_dims":
        return None
    rank = len(dims_of(var) or ())
    parts: dict[str, Expr] = {}
    for field in ("zero", "scale"):
        value = getattr(found, field)
        if value is None or is_single(value):
            continue
        if len(dims_of(value) or ()) != rank:
            return None
        parts[field] = R.permute_dims(value, call_attrs(call)["axes"])
    return replace(found, bytes=R.permute_dims(found.bytes, call_attrs(call)["axes"]), **parts)


def _pool(values: Values, call: Call, var: Var) -> Description | None:
    x, attrs = call.args[0], call_attrs(call)
    if attrs["layout"] not in ("NCHW", "NHWC") or attrs["ceil_mode"]:
        return None
    if attrs["out_layout"] not in (None, "", attrs["layout"]):
        return None
    if dtype_of(x) in BYTES:
        return Pooled(x, attrs)
    # The largest number is that of the largest byte where the scale is positive, and where each
    # window has a number.
    size, padding = attrs["pool_size"], attrs["padding"]
    if any(int(d) != 1 for d in attrs["dilation"]) or any(
        int(p) >= int(n) for p, n in zip(padding, (*size, *size), strict=True)
    ):
        return None
    found = values.of(x)
    if isinstance(found, Product) and found.kind == "conv2d":
        images = str(found.attrs["out_layout"] or found.attrs["data_layout"]) == attrs["layout"]
        ready = images and found.real and found.factor is not None and found.pool is None
        return replace(found, pool=attrs) if ready else None
    if not isinstance(found, Number) or not found.real or found.scale is None:
        return None
    scale = values.number(found.scale)
    if scale is None or not 0 < scale < float("inf") or not is_single(found.zero):
        return None
    return replace(found, bytes=R.nn.max_pool2d(found.bytes, **attrs))


def pooled(value: Expr) -> Pooled | None:
    """The largest bytes of windows that an expression is; None where it is another."""
    if not isinstance(value, Call) or not isinstance(value.op, Op):
        return None
    is_pool = value.op.name == "relax.nn.max_pool2d"
    return Pooled(value.args[0], call_attrs(value)) if is_pool else None


def _product(values: Values, call: Call, var: Var) -> Description | None:
    name = _name(call)
    if name == "relax.einsum":
        fields = getattr(call.args[0], "fields", ())
        operands = list(fields)
        if call_attrs(call)["subscripts"] != "nhwi,oi->nhwo":
            return None
    else:
        operands = list(call.args)
    left, right = (values.of(v) for v in operands)
    shape = dims_of(var)
    if not isinstance(left, Number) or not isinstance(right, Number) or shape is None:
        return None
    if left.real != right.real or dtype_of(var) != ("float32" if left.real else "int32"):
        return None
    if left.real and (left.scale is None or right.scale is None):
        return None
    if not is_single(left.zero) or not is_single(left.scale):
        return None
    if any(dims_of(v) is None for v in operands):
        return None
    kind, attrs, channel = name.rpartition(".")[2], call_attrs(call), len(shape) - 1
    if kind == "einsum":
        kind = "pixels"
    if kind == "conv2d":
        channel = str(attrs["out_layout"] or attrs["data_layout"]).index("C")
    made = Product(kind, left, right, attrs, shape, channel, left.real)
    if not _right_fits(values, made, dims_of(operands[1]) or ()):
        return None
    if left.real:
        assert left.scale is not None
        assert right.scale is not None
        own = _by_channel(right.scale, made)
        return replace(made, factor=R.multiply(R.reshape(left.scale, ()), own))
    return made


def _right_fits(values: Values, made: Product, dims: tuple[int, ...]) -> bool:
    """Whether the operand on the right is a weight with zero points and scales by results."""
    right = made.right
    if not values.is_fixed(right.bytes):
        return made.kind == "matmul" and is_single(right.zero) and is_single(right.scale)
    if made.kind == "conv2d":
        at = str(made.attrs["kernel_layout"]).index("O")
    elif made.kind == "pixels":
        at = 0
    else:
        at = len(dims) - 1
        if len(dims) < 2 or any(d != 1 for d in dims[:-2]):
            return False
    fixed = all(values.is_fixed(v) for v in (right.zero,) if v is not None)
    return fixed and all(_along(v, dims, at) for v in (right.zero, right.scale) if v is not None)


def _by_channel(value: Expr, made: Product) -> Expr:
    """A scale of the right operand where it broadcasts with the result."""
    if is_single(value):
        return R.reshape(value, ())
    shape = [1] * len(made.shape)
    shape[made.channel] = -1
    return R.reshape(value, shape)


_RULES: Final[Mapping[str, Callable[[Values, Call, Var], Description | None]]] = {
    "relax.astype": _astype,
    "relax.subtract": _subtract,
    "relax.multiply": _multiply,
    "relax.divide": _divide,
    "relax.add": _add,
    "relax.nn.relu": _relu,
    "relax.round": _round,
    "relax.clip": _clip,
    "relax.minimum": _limit,
    "relax.maximum": _limit,
    "relax.permute_dims": _moved,
    "relax.reshape": _moved,
    "relax.nn.max_pool2d": _pool,
    "relax.nn.conv2d": _product,
    "relax.matmul": _product,
    "relax.einsum": _product,
}
