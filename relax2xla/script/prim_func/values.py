"""What expressions of a ``T.prim_func`` are made of: numbers as TVM reads them, calls, casts.

A Python number beside an expression becomes a literal: an int is an int32 (an int64 where it does
not fit), a float a float32 (a float64 where it would be infinite). Operators then bring both sides
to one dtype; comparisons take a number in the dtype of the other side.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import DTYPES, is_float, limits
from relax2xla.errors import OperandTypeError, OpError
from relax2xla.script import arithmetic as arith
from relax2xla.tir.buffer import Buffer, BufferLoad, BufferRegion, Let, PointerVar
from relax2xla.tir.intrinsic import ARITY, RULES, op_of
from relax2xla.tir.node import StandsForExpr, element_of, int_range, is_int, lanes_of
from relax2xla.tir.reduce import comm_reducer
from relax2xla.tir.vector import Broadcast, Ramp, is_dtype, with_lanes

Value = tir.PrimExpr


class Unread(Exception):
    """A construct that TVM may know and this parser does not: the function stays a text."""

    def __init__(self, node: ast.AST | None, why: str) -> None:
        super().__init__(why)
        self.node = node


class ValueRead:
    """``x.buffer[0]`` where ``x: T.int32 = ...`` defines x, which TVM 0.25 keeps in memory.

    Here x is a value: in ``T.reads`` this says no more than that it is used.
    """


VALUE_BUFFER: Final = (ValueRead(),)
"""``x.buffer`` of such a variable."""


def number(value: object) -> Value:
    """A value of the parser as an expression."""
    if isinstance(value, tir.PrimExpr):
        return value
    if isinstance(value, StandsForExpr):
        return value.as_expr()
    if isinstance(value, bool | np.bool_):
        return tir.IntImm("bool", int(value))
    if isinstance(value, int | np.integer):
        value = int(value)
        low, high = int_range("int32")
        return tir.IntImm("int32" if low <= value <= high else "int64", value)
    if isinstance(value, float | np.floating):
        return tir.as_prim_expr(float(value), None)
    if isinstance(value, str):
        return tir.StringImm(value)
    raise TypeError(f"expected a scalar expression or a number, got {arith.described(value)}")


def dim(value: object) -> tir.Dim:
    """A size, an index or a bound."""
    made = number(value)
    if not is_int(element_of(made.dtype)) and made.dtype != "bool":
        raise TypeError(f"expected an integer, got `{made}` of dtype {made.dtype}")
    return tir.as_dim(made)


def is_symbolic(value: object) -> bool:
    """Whether ``value`` is an expression rather than a value of Python."""
    return isinstance(value, tir.PrimExpr)


_BINARY: Final[dict[type[ast.operator], Callable[[Value, Value], Value]]] = {
    kind: arith.BINARY[kind]
    for kind in (
        *(ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod),
        *(ast.LShift, ast.RShift, ast.BitAnd, ast.BitOr, ast.BitXor),
    )
}
_COMPARE: Final[dict[type[ast.cmpop], type[tir.CmpExpr]]] = {
    ast.Eq: tir.EQ,
    ast.NotEq: tir.NE,
    ast.Lt: tir.LT,
    ast.LtE: tir.LE,
    ast.Gt: tir.GT,
    ast.GtE: tir.GE,
}


def binary(op: ast.operator, a: object, b: object) -> Any:
    """``a op b``; folded as TVM's operators fold."""
    if not is_symbolic(a) and not is_symbolic(b):
        return arith.binary(op, a, b)
    if type(op) not in _BINARY:
        raise TypeError(f"`{arith.SIGNS[type(op)]}` is no operator of expressions")
    return _BINARY[type(op)](number(a), number(b))


def _beside(value: object, other: object) -> Value:
    """A number of Python in the dtype of what it is compared with."""
    if isinstance(other, tir.PrimExpr) and type(value) in (int, float):
        dtype = element_of(other.dtype)
        if is_float(dtype) or (isinstance(value, int) and is_int(dtype)):
            return tir.const(value, dtype)  # pyright: ignore[reportArgumentType]
    return number(value)


def compare(op: ast.cmpop, a: object, b: object) -> Any:
    """``a op b``; of expressions a node that is not folded."""
    if not is_symbolic(a) and not is_symbolic(b):
        if isinstance(op, ast.Is | ast.IsNot):
            return (a is b) is isinstance(op, ast.Is)
        return arith.compare(op, a, b)
    if type(op) not in _COMPARE:
        raise TypeError("only < <= > >= == != compare expressions")
    x, y = _beside(a, b), _beside(b, a)
    if lanes_of(x.dtype) != lanes_of(y.dtype):
        x, y = tir.match_dtypes(x, y)
    return _COMPARE[type(op)](x, y)


def boolean(op: ast.boolop, values: Sequence[object]) -> Any:
    """``and`` and ``or``, from left to right; of expressions nodes that are not folded."""
    result = values[0]
    for other in values[1:]:
        if not is_symbolic(result) and not is_symbolic(other):
            both = isinstance(op, ast.And)
            result = (result and other) if both else (result or other)
        else:
            x, y = number(result), number(other)
            result = (tir.And if isinstance(op, ast.And) else tir.Or)(x, y)
    return result


def unary(op: ast.unaryop, a: object) -> Any:
    """``op a``."""
    if isinstance(op, ast.Not) and isinstance(a, tir.PrimExpr):
        return tir.Not(a)
    return arith.unary(op, a)


# -- reading buffers -----------------------------------------------------------------------------
def load(buffer: Buffer, index: object, *, region: bool) -> BufferLoad | BufferRegion:
    """``buffer[index]``; with a slice a region where ``region``, else a vector."""
    indices = index if isinstance(index, tuple | list) else (index,)
    if region and any(isinstance(i, slice) and i.step is None for i in indices):
        if len(indices) != buffer.ndim:
            raise ValueError(
                f"the buffer {buffer.name} has {buffer.ndim} axes; got {len(indices)} indices"
            )
        return BufferRegion(
            buffer, tuple(_range(i, size) for i, size in zip(indices, buffer.shape, strict=True))
        )
    return BufferLoad(buffer, [vector_index(i) for i in indices])


def vector_index(index: object) -> Value:
    """An index; a slice is a ramp."""
    if not isinstance(index, slice):
        return number(index)
    start = number(0 if index.start is None else index.start)
    stop = number(index.stop)
    step = number(1 if index.step is None else index.step)
    lanes = tir.simplify((stop - start + step - 1) // step)
    start, step = tir.match_dtypes(start, step)
    if isinstance(lanes, int | tir.IntImm):
        if int(lanes) < 1:
            raise ValueError(f"the slice has {int(lanes)} elements; a vector has one or more")
        return start if int(lanes) == 1 else Ramp(start, step, int(lanes))
    try:
        return Ramp(start, step, lanes)
    except OpError:
        raise ValueError("the number of lanes of a slice must be known") from None


def _range(index: object, size: tir.Dim) -> tir.Range:
    if isinstance(index, slice):
        start = number(0 if index.start is None else index.start)
        stop = number64(size) if index.stop is None else number(index.stop)
        return tir.Range.from_min_extent(tir.as_dim(start), simplified(stop - start))
    at = number(index)
    return tir.Range.from_min_extent(tir.as_dim(at), tir.as_dim(tir.const(1, at.dtype)))


def number64(value: object) -> Value:
    """A dimension as an expression: an int is the int64 that it stands for."""
    return tir.as_prim_expr(value) if isinstance(value, int) else number(value)  # type: ignore[arg-type]


def simplified(value: Value) -> tir.Dim:
    """``value`` in normal form, in its own dtype."""
    if isinstance(value, tir.IntImm):
        return tir.as_dim(value)
    made = tir.simplify(value)
    return made if value.dtype == "int64" or not isinstance(made, int) else number(made)


def region_of(value: object) -> BufferRegion:
    """What ``T.reads`` and ``T.writes`` are given: a region, or one element of a buffer."""
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, BufferLoad):
        ranges: list[tir.Range] = []
        for i in value.indices:
            if isinstance(i, Ramp):
                extent = number(i.lanes)
                extent = tir.cast(i.base.dtype, extent)
                ranges.append(tir.Range.from_min_extent(tir.as_dim(i.base), tir.as_dim(extent)))
            else:
                ranges.append(_range(i, 0))
        return BufferRegion(value.buffer, tuple(ranges))
    raise TypeError(f"expected a region such as A[0:4, i]; got {arith.described(value)}")


def mapping(value: object, what: str) -> dict[str, Any]:
    """Annotations or attributes: a dictionary whose keys are strings; none for None."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise TypeError(f"{what} is a dictionary; got {arith.described(value)}")
    held: dict[Any, Any] = value
    for key in held:
        if not isinstance(key, str):
            raise TypeError(f"the keys of {what} are strings; got {arith.described(key)}")
    return held


def text(value: object, what: str) -> str:
    """A name: a string of Python, or a literal of one."""
    if isinstance(value, tir.StringImm):
        return value.value
    if not isinstance(value, str):
        raise TypeError(f"{what} is a string; got {arith.described(value)}")
    return value


def bind(what: str, func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """TypeError, which says what ``what`` takes, where ``func`` does not take these arguments."""
    try:
        signature = inspect.signature(func)
    except ValueError:  # a builtin of Python
        return
    try:
        signature.bind(*args, **kwargs)
    except TypeError as e:
        taken = [
            p.replace(annotation=p.empty)
            for p in signature.parameters.values()
            if p.kind is not p.VAR_KEYWORD
        ]
        shown = signature.replace(parameters=taken, return_annotation=signature.empty)
        raise TypeError(f"{what} takes {shown}: {e}") from None


# -- functions of T ------------------------------------------------------------------------------
class Dtype:
    """``T.float32``: of nothing a variable, of a number a literal, of an expression a cast."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, value: Any = None, *, is_size_var: bool = False) -> Value:
        if value is None:
            return (tir.SizeVar if is_size_var else tir.Var)("", self.name)
        if isinstance(value, str):
            value = float(value)
        return cast(value, self.name)

    def __repr__(self) -> str:
        return f"T.{self.name}"


def handle(dtype: object = None, storage_scope: str = "global", **_: bool) -> tir.Var:
    """``T.handle``: a pointer, of which ``dtype`` and ``storage_scope`` say what it points to."""
    if dtype is None:
        return tir.Var("", "handle")
    return PointerVar("", dtype_name(dtype), storage_scope)


def dtype_name(value: object) -> str:
    """The name of a dtype, from a string or from ``T.float32``."""
    if isinstance(value, Dtype):
        return value.name
    if value is handle:
        return "handle"
    if isinstance(value, tir.StringImm):
        value = value.value
    name = str(value) if isinstance(value, str) else getattr(value, "name", None)
    if not isinstance(name, str) or not (is_dtype(name) or name in ("handle", "void", "")):
        raise TypeError(f'expected a dtype such as "float32"; got {arith.described(value)}')
    return name or "void"


def cast(value: object, dtype: object) -> Value:
    """``value`` in another dtype; literals fold."""
    target = dtype_name(dtype)
    element = element_of(target)
    if isinstance(value, float | np.floating) and is_float(element):
        given = tir.FloatImm(element, float(value))
    elif type(value) is int and (is_int(element) or element == "bool"):
        given = tir.IntImm(element, value)  # an error where it does not fit
    else:
        given = number(value)
    if given.dtype == "handle":
        raise TypeError(f"a handle cannot be cast to {target}")
    lanes = lanes_of(target)
    if lanes == 1:
        return tir.cast(target, given)
    if lanes_of(given.dtype) == 1:
        return Broadcast(tir.cast(element_of(target), given), lanes)
    if isinstance(given, Broadcast):
        return Broadcast(tir.cast(element_of(target), given.value), given.lanes)
    return given if given.dtype == target else tir.Cast(target, given)


def _call(name: str, rule: str) -> Callable[..., Value]:
    def make(*args: Any, dtype: Any = None, **kwargs: Any) -> Value:
        given = [*args, *kwargs.values()]
        wanted = ARITY.get(name, len(given))
        if len(given) != wanted:
            raise TypeError(f"T.{name} takes {wanted} operand(s); got {len(given)}")
        if rule == "given":
            result = dtype_name(dtype if dtype is not None else given.pop(0))
        elif rule == "last":
            result = dtype_name(dtype if dtype is not None else given.pop())
        else:
            result = rule
        operands = [operand(a) for a in given]
        if rule in ("first", "second"):
            result = operands[rule == "second"].dtype
        return tir.Call(result, op_of(name), operands)

    return make


def operand(value: object) -> Value:
    """An argument of a call; a buffer is handed on as TVM packs it."""
    if isinstance(value, Buffer):
        return packed(value)
    return number(value)


def packed(buffer: Buffer) -> Value:
    """A buffer as a packed function takes it."""

    def shape(sizes: Sequence[tir.Dim]) -> Value:
        return tir.Call("handle", "tir.tvm_stack_make_shape", [number64(d) for d in sizes])

    strides = shape(buffer.strides) if buffer.strides else number(0)
    args = [
        *(buffer.data, shape(buffer.shape), strides, number(buffer.ndim)),
        *(tir.const(0, buffer.dtype), number64(buffer.elem_offset)),
    ]
    return tir.Call("handle", "tir.tvm_stack_make_array", args)


def _rounding(name: str, compute: Callable[[float], float]) -> Callable[..., Value]:
    def make(x: object, **_: object) -> Value:
        value = number(x)
        if is_int(value.dtype) or value.dtype == "bool":
            return value
        if isinstance(value, tir.FloatImm) and math.isfinite(value.value):
            return tir.FloatImm(value.dtype, compute(value.written))
        return tir.Call(value.dtype, f"tir.{name}", (value,))

    return make


def _abs(x: object, **_: object) -> Value:
    value = number(x)
    if isinstance(value, tir.IntImm):
        return tir.IntImm(value.dtype, abs(value.value))
    if isinstance(value, tir.FloatImm):
        return tir.FloatImm(value.dtype, abs(value.written))
    if value.dtype.startswith("uint"):
        return value
    if is_int(value.dtype):
        return tir.Select(value >= tir.const(0, value.dtype), value, -value)
    return tir.Call(value.dtype, "tir.fabs", (value,))


def _isnan(x: object, **_: object) -> Value:
    value = number(x)
    dtype = with_lanes("bool", lanes_of(value.dtype))
    if isinstance(value, tir.FloatImm):
        return tir.IntImm("bool", math.isnan(value.value))
    if is_int(value.dtype) or value.dtype == "bool":
        return tir.IntImm("bool", 0)
    if value.dtype == "float16":
        value = tir.cast("float32", value)
    return tir.Call(dtype, "tir.isnan", (value,))


def _negated(value: Value) -> Value:
    return tir.Not(value).rebuild((value,))


def _isinf(x: object, **_: object) -> Value:
    value = number(x)
    if is_int(value.dtype):
        return tir.IntImm("bool", 0)
    return tir.And.make(tir.EQ.make(_abs(value), _infinity(value.dtype)), _negated(_isnan(value)))


def _isfinite(x: object, **_: object) -> Value:
    return tir.And.make(_negated(_isinf(x)), _negated(_isnan(x)))


def _infinity(dtype: object, **_: object) -> Value:
    return tir.FloatImm(dtype_name(dtype), math.inf)


def _limit(which: int) -> Callable[..., Value]:
    def make(dtype: object, **_: object) -> Value:
        name = dtype_name(dtype)
        # TVM takes float32's for bfloat16.
        low_high = limits("float32" if name == "bfloat16" else name)
        return tir.const(low_high[which], name)

    return make


def _power(x: object, y: object, **_: object) -> Value:
    a, b = tir.match_dtypes(number(x), number(y))
    if not is_float(element_of(a.dtype)):
        raise OperandTypeError(f"pow: expected floating-point operands, got {a.dtype}")
    return tir.Call(a.dtype, "tir.pow", (a, b))


def _likely(cond: object, **_: object) -> Value:
    value = number(cond)
    return value if isinstance(value, tir.IntImm) else tir.Call(value.dtype, "tir.likely", (value,))


def _reinterpret(first: object, second: object = None, *, dtype: object = None, **kw: Any) -> Value:
    value = second if second is not None else kw.get("value", first)
    target = dtype_name(dtype if dtype is not None else first)
    given = number(value)
    if given.dtype == target:
        return given
    bits = [_bits(d) for d in (given.dtype, target)]
    if bits[0] != bits[1]:
        raise TypeError(f"reinterpret: {given.dtype} and {target} differ in size")
    return tir.Call(target, "tir.reinterpret", (given,))


def _bits(dtype: str) -> int:
    return 64 if dtype == "handle" else DTYPES[element_of(dtype)].bits * lanes_of(dtype)


def _operator(name: str) -> Callable[..., Value]:
    """A function that folds as the operator does."""

    def make(a: object, b: object, **_: object) -> Value:
        return getattr(tir, name)(number(a), number(b))

    return make


def _python(compute: Callable[[Any, Any], Any]) -> Callable[..., Value]:
    def make(a: object, b: object, **_: object) -> Value:
        return compute(number(a), number(b))

    return make


def _node(kind: type[tir.BinaryExpr]) -> Callable[..., Value]:
    """The constructor of a node: nothing is folded, both sides have one dtype."""

    def make(a: object, b: object) -> Value:
        x, y = _beside(a, b), _beside(b, a)
        return kind(x, y)

    return make


def _fold(kind: type[tir.And | tir.Or]) -> Callable[..., Value]:
    def make(*args: object, **_: object) -> Value:
        if not args:
            raise ValueError("expected one condition or more")
        conditions = [number(a) for a in args]
        for c in conditions:
            if element_of(c.dtype) != "bool" and len(conditions) > 1:
                raise OperandTypeError(f"{kind.__name__}: `{c}` is {c.dtype}, not a condition")
        result = conditions[0]
        for c in conditions[1:]:
            result = kind.make(result, c)
        return result

    return make


def _if_then_else(condition: object, yes: object, no: object, **_: object) -> Value:
    return tir.if_then_else(number(condition), number(yes), number(no))


def _select(condition: object, true_value: object, false_value: object) -> Value:
    yes, no = _beside(true_value, false_value), _beside(false_value, true_value)
    return tir.Select(number(condition), yes, no)


def _let(expr: object, where: dict[Any, Any]) -> Value:
    if len(where) != 1:
        raise ValueError("T.Let takes one variable and its value")
    ((var, value),) = where.items()
    if not isinstance(var, tir.Var):
        raise TypeError(f"T.Let binds a variable; got {arith.described(var)}")
    return Let(var, number(value), number(expr))


def _lanes(value: object) -> int | Value:
    lanes = number(value)
    if not isinstance(lanes, tir.IntImm):
        return lanes
    if lanes.value < 1:
        raise ValueError(f"a vector has one lane or more; got {lanes.value}")
    return lanes.value


def _call_intrin(dtype: object, name: object, *args: object, **_: object) -> Value:
    op = name if isinstance(name, str) else str(getattr(name, "name", name))
    return tir.Call(dtype_name(dtype), op, [operand(a) for a in args])


def _target(config: Any, host: Any = None) -> Any:
    """A target among the attributes of a function."""
    made = importlib.import_module("relax2xla.target").Target
    return made(config) if host is None else made(config, host)


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    **{name: _call(name, rule) for name, rule in RULES.items()},
    **{name: _operator(name) for name in ("min", "max", "floordiv", "floormod", "div")},
    **{name: _operator(name) for name in ("truncdiv", "truncmod", "ceildiv")},
    **{
        kind.__name__: _node(kind)
        for kind in (
            *(tir.Add, tir.Sub, tir.Mul, tir.Div, tir.Mod, tir.FloorDiv, tir.FloorMod),
            *(tir.Min, tir.Max, tir.EQ, tir.NE, tir.LT, tir.LE, tir.GT, tir.GE, tir.And, tir.Or),
        )
    },
    "Not": lambda a, **_: tir.Not(number(a)),
    "Select": _select,
    "Cast": lambda dtype, value: tir.Cast(dtype_name(dtype), number(value)),
    "cast": cast,
    "Ramp": lambda base, stride, lanes: Ramp(number(base), _beside(stride, base), _lanes(lanes)),
    "Broadcast": lambda value, lanes: Broadcast(number(value), _lanes(lanes)),
    "IntImm": lambda dtype, value: tir.IntImm(dtype_name(dtype), value),
    "FloatImm": lambda dtype, value: tir.FloatImm(dtype_name(dtype), value),
    "StringImm": tir.StringImm,
    "BufferLoad": lambda buffer, indices: load(buffer, tuple(indices), region=False),
    "Range": lambda begin, end: tir.Range(number(begin), number(end)),
    "Let": _let,
    "floor": _rounding("floor", math.floor),
    "ceil": _rounding("ceil", math.ceil),
    "trunc": _rounding("trunc", math.trunc),
    "round": _rounding("round", round),
    "nearbyint": _rounding("nearbyint", round),
    "abs": _abs,
    "fabs": _abs,
    "isnan": _isnan,
    "isinf": _isinf,
    "isfinite": _isfinite,
    "infinity": _infinity,
    "max_value": _limit(1),
    "min_value": _limit(0),
    "pow": _power,
    "power": _power,
    "likely": _likely,
    "reinterpret": _reinterpret,
    "if_then_else": _if_then_else,
    "all": _fold(tir.And),
    "any": _fold(tir.Or),
    "shift_left": _python(lambda a, b: a << b),
    "shift_right": _python(lambda a, b: a >> b),
    "bitwise_and": _python(lambda a, b: a & b),
    "bitwise_or": _python(lambda a, b: a | b),
    "bitwise_xor": _python(lambda a, b: a ^ b),
    "bitwise_not": lambda a, **_: ~number(a),
    "type_annotation": lambda dtype: tir.Call(dtype_name(dtype), "tir.type_annotation", ()),
    "call_intrin": _call_intrin,
    "ret": lambda value, **_: tir.Call(number(value).dtype, "tir.ret", (number(value),)),
    "handle": handle,
    "ptr": handle,
    "target": _target,
    "Ptr": handle,
    "index_map": tir.IndexMap.from_func,
    "Var": lambda name, dtype="int32": tir.Var(name, dtype_name(dtype)),
    "SizeVar": lambda name, dtype="int32": tir.SizeVar(name, dtype_name(dtype)),
    "var": lambda dtype, name="": tir.Var(name, dtype_name(dtype)),
    "comm_reducer": lambda combiner, identity: comm_reducer(combiner, list(map(number, identity))),
}
for _alias, _name in (
    *(("ramp", "Ramp"), ("broadcast", "Broadcast")),
    *((f"tvm_{n}", n) for n in ("call_packed", "call_cpacked")),
    *((f"tvm_{n}", n) for n in ("call_packed_lowered", "call_cpacked_lowered")),
):
    FUNCTIONS[_alias] = FUNCTIONS[_name]
_LANES: Final = (1, 2, 4, 8, 16, 32, 64)
DTYPE_NAMES: Final = {
    **{
        f"{name}x{n}" if n > 1 else name: Dtype(f"{name}x{n}" if n > 1 else name)
        for name in DTYPES
        for n in _LANES
    },
    "boolean": Dtype("bool"),
    "void": Dtype("void"),
}
