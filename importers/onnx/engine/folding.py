"""Nodes whose inputs are known at import, computed with numpy as they are met.

This is how the inputs that say a shape (of Reshape, Slice, Expand, ...) become attributes. Arrays
of dtype object hold symbolic integers; numpy's functions that only move elements serve both. A
folder returns None where it cannot say the value (or only at the price of much memory): the node is
then converted like any other. Results that need new memory are limited (design decision D12).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import BY_ONNX, is_float, is_integer, limits
from relax2xla.errors import OpError
from relax2xla.importers.onnx.engine.known_values import Array, Host, sprawls, tidy

NODE_LIMIT = 1 << 20  # bytes of one folded result
MODEL_LIMIT = 1 << 28  # bytes of all folded results of a model

# What values that do not fit a node raise, in numpy or here.
MISFITS = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)

Result = Array | None


class TooLarge(Exception):
    """A result would take more memory than folding may."""


def room(count: Any, itemsize: int = 8) -> None:
    """Raise :class:`TooLarge` for more values than one folded result may have."""
    if count * itemsize > NODE_LIMIT:
        raise TooLarge


@dataclass(frozen=True, slots=True)
class Folder:
    """How to compute an operator's value; ``symbolic``: also on arrays of symbolic integers."""

    function: Callable[..., Any]
    symbolic: bool


FOLDERS: dict[str, Folder] = {}


def folds(*names: str, symbolic: bool = True) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a folder: arrays (None where left out), then attributes by keyword."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            FOLDERS[name] = Folder(function, symbolic)
        return function

    return register


class Budget:
    """Memory that folding may still take for one model."""

    def __init__(self) -> None:
        self.left = MODEL_LIMIT

    def fold(
        self, op: str, inputs: Sequence[Host | None], attributes: Mapping[str, Any]
    ) -> list[Host] | None:
        """The values of a node, or None where it is left to run time."""
        folder = FOLDERS.get(op)
        if folder is None or self.left <= 0:
            return None
        present = [h for h in inputs if h is not None]
        # A value that is the same everywhere takes no memory, what is computed from it does.
        if any(h.data.size > NODE_LIMIT for h in present) and op not in ("Shape", "Size"):
            return None
        symbolic = any(h.symbolic for h in present)
        if symbolic and not folder.symbolic:
            return None
        try:
            with np.errstate(all="ignore"):
                made = folder.function(
                    *(None if h is None else h.data for h in inputs), **attributes
                )
        except (TooLarge, *MISFITS) as e:
            if isinstance(e, OpError):
                raise
            # Values that do not fit the node: its operator says so in its own words.
            return None
        if made is None:
            return None
        outputs = made if isinstance(made, list) else [made]
        if any(a.dtype == object and any(map(sprawls, a.flat)) for a in map(np.asarray, outputs)):
            return None
        dtype = _dtype(op, present, attributes)
        results = [tidy(np.asarray(a), dtype) for a in outputs]
        self.left -= sum(_owned(h.data) for h in results)
        return results


def _owned(data: Array) -> int:
    return 0 if data.base is not None else data.nbytes


def _dtype(op: str, inputs: Sequence[Host], attributes: Mapping[str, Any]) -> str:
    """dtype of the results where they are symbolic."""
    if op == "Cast":
        return BY_ONNX[attributes["to"]].name
    return inputs[-1].dtype if inputs else "int64"


def _symbolic(*arrays: Array | None) -> bool:
    return any(a is not None and a.dtype == object for a in arrays)


def _ints(a: Any) -> list[int] | None:
    """Values of a vector that are all plain integers."""
    items = [tir.as_dim(v) for v in np.asarray(a).reshape(-1).tolist()]
    return cast("list[int]", items) if all(isinstance(v, int) for v in items) else None


# -- moving elements -----------------------------------------------------------------------------
def _reshaped(x: Array, shape: Sequence[int]) -> Result:
    """A reshape that shares memory where it can."""
    if x.size and not any(x.strides):
        return np.broadcast_to(x.reshape(-1)[:1].reshape(()), shape)
    if not x.flags.c_contiguous:
        room(x.size, x.itemsize)
    return x.reshape(shape)


@folds("Identity")
def _identity(x: Array) -> Result:
    return x


@folds("Reshape")
def _reshape(x: Array, target: Any = None, *, shape: Any = None, allowzero: int = 0) -> Result:
    wanted = _ints(shape if target is None else target)
    if wanted is None:
        return None
    if not allowzero:
        wanted = [x.shape[i] if d == 0 else d for i, d in enumerate(wanted)]
    if any(d < 0 for d in wanted):
        rest = math.prod(d for d in wanted if d >= 0)
        if wanted.count(-1) != 1 or rest == 0:
            return None
        wanted[wanted.index(-1)] = x.size // rest
    return _reshaped(x, wanted) if math.prod(wanted) == x.size else None


@folds("Flatten")
def _flatten(x: Array, *, axis: int = 1) -> Result:
    axis = axis % x.ndim if x.ndim and axis != x.ndim else axis
    return _reshaped(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


@folds("Squeeze")
def _squeeze(x: Array, by_input: Any = None, *, axes: Any = None) -> Result:
    given = axes if by_input is None else _ints(by_input)
    return np.squeeze(x, None if given is None else tuple(given))


@folds("Unsqueeze")
def _unsqueeze(x: Array, by_input: Any = None, *, axes: Any = None) -> Result:
    given = axes if by_input is None else _ints(by_input)
    return None if given is None else np.expand_dims(x, tuple(given))


@folds("Transpose")
def _transpose(x: Array, *, perm: Any = None) -> Result:
    return np.transpose(x, perm)


@folds("Concat")
def _concat(*xs: Array, axis: int = 1) -> Result:
    room(sum(x.size for x in xs), xs[0].itemsize)
    return np.concatenate(xs, axis)


@folds("Gather")
def _gather(x: Array, indices: Array, *, axis: int = 0) -> Result:
    where = _ints(indices)
    if where is None:
        return None
    size = x.shape[axis]
    if any(not -size <= i < size for i in where):
        raise OpError(f"Gather takes an index out of range for {size} elements")
    if len(where) == 1:  # a view
        part = (
            np.take(x, where[0], axis)
            if _symbolic(x)
            else x[(slice(None),) * (axis % x.ndim) + (where[0],)]
        )
        at = axis % x.ndim
        return np.asarray(part).reshape(x.shape[:at] + indices.shape + x.shape[at + 1 :])
    room(x.size // max(size, 1) * len(where), x.itemsize)
    return np.take(x, np.array(where, np.int64).reshape(indices.shape), axis)


@folds("Slice")
def _slice(
    x: Array,
    starts_in: Any = None,
    ends_in: Any = None,
    axes_in: Any = None,
    steps_in: Any = None,
    *,
    starts: Any = None,
    ends: Any = None,
    axes: Any = None,
) -> Result:
    first = _ints(starts if starts_in is None else starts_in)
    last = _ints(ends if ends_in is None else ends_in)
    if first is None or last is None:
        return None
    where = axes if axes_in is None else _ints(axes_in)
    steps = [1] * len(first) if steps_in is None else _ints(steps_in)
    where = list(range(len(first))) if where is None else where
    if steps is None:
        return None
    index = [slice(None)] * x.ndim
    for a, start, end, step in zip(where, first, last, steps, strict=True):
        index[a] = slice(start, None if step < 0 and end < -x.shape[a] else end, step)
    return x[tuple(index)]


@folds("Split")
def _split(
    x: Array, sizes: Any = None, *, axis: int = 0, split: Any = None, num_outputs: Any = None
) -> Any:
    lengths = split if sizes is None else _ints(sizes)
    if lengths is None:
        if num_outputs is None:
            return None
        step = -(-x.shape[axis] // num_outputs)
        lengths = [step] * (num_outputs - 1)
        lengths.append(x.shape[axis] - sum(lengths))
    return np.split(x, np.cumsum(lengths)[:-1], axis)


@folds("Expand")
def _expand(x: Array, shape: Array) -> Result:
    wanted = _ints(shape)
    if wanted is None:
        return None
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(wanted)))


@folds("Tile")
def _tile(x: Array, repeats: Array) -> Result:
    times = _ints(repeats)
    if times is None:
        return None
    room(x.size * math.prod(times), x.itemsize)
    return np.tile(x, times)


@folds("ScatterND")
def _scatter_nd(data: Array, indices: Array, updates: Array, *, reduction: str = "none") -> Result:
    if _symbolic(indices) or reduction != "none":
        return None
    room(data.size, data.itemsize)
    made = data.astype(object) if _symbolic(updates) else data.copy()
    for at in np.ndindex(indices.shape[:-1]):
        made[tuple(indices[at])] = updates[at]
    return made


# -- making --------------------------------------------------------------------------------------
@folds("ConstantOfShape", symbolic=True)
def _constant_of_shape(shape: Array, *, value: Any = None) -> Result:
    dims = _ints(shape)
    fill = np.zeros(1, np.float32) if value is None else value
    return None if dims is None else np.broadcast_to(fill.reshape(()), dims)


@folds("Range")
def _range(start: Array, limit: Array, delta: Array, *, stash_type: int = 1) -> Result:
    if _symbolic(start, limit, delta):
        return None
    a, b, d = (v.reshape(()) for v in (start, limit, delta))
    if d == 0:
        raise OpError("Range has a step of 0")
    count = max(math.ceil((b.item() - a.item()) / d.item()), 0)
    room(count, start.itemsize)
    return (a + np.arange(count, dtype=start.dtype) * d).astype(start.dtype)


@folds("NonZero", symbolic=False)
def _nonzero(x: Array) -> Result:
    room(x.size * max(x.ndim, 1))
    return np.array(np.nonzero(np.atleast_1d(x)), np.int64)


@folds("Cast")
def _cast(x: Array, *, to: int, saturate: int = 1) -> Result:
    info = BY_ONNX.get(to)
    if info is None or (saturate == 0) or info.name.startswith(("float8", "float4")):
        return None
    if x.dtype == object:
        return x if info.name in ("int64", "int32") else None
    if info.bits < 8 or x.dtype.itemsize < 1:
        return None
    if is_integer(info.name) and x.dtype.kind == "f":
        low, high = limits(info.name)
        whole = np.trunc(x)
        if not ((whole >= low) & (whole <= high)).all():
            return None  # what becomes of a value that does not fit is said in one place
    room(x.size, info.nbytes)
    return x.astype(info.numpy)


# -- element by element --------------------------------------------------------------------------
def _elementwise(function: Callable[..., Any]) -> Callable[..., Result]:
    """Without symbols, and within the limit."""

    def folder(*xs: Array) -> Result:
        shape = np.broadcast_shapes(*(x.shape for x in xs))
        room(math.prod(shape), max(x.itemsize for x in xs))
        made = np.asarray(function(*xs))
        return made

    return folder


def _divide(a: Array, b: Array) -> Any:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    if (b == 0).any():
        raise TooLarge
    quotient, rest = np.divmod(a, b)  # rounded down; no abs, which the least integer has not
    return quotient + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype)


def _divide_one(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    if isinstance(b, int) and b > 0 and _at_least(a, 0):
        return a // b
    return tir.truncdiv(a, b)


def _at_least(value: Any, low: int) -> bool:
    if isinstance(value, int):
        return value >= low
    # A variable of a shape is never negative.
    analyzer = tir.Analyzer(tir.free_vars(value))
    return analyzer.can_prove_greater_equal(value, low)


def _equal_one(a: Any, b: Any) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if tir.can_prove_equal(a, b):
        return True
    for x, y in ((a, b), (b, a)):
        if isinstance(y, int) and y < 0 and _at_least(x, 0):
            return False
    raise TooLarge


def _less_one(a: Any, b: Any) -> bool:
    if isinstance(a, int) and isinstance(b, int):
        return a < b
    variables = [v for x in (a, b) if isinstance(x, tir.PrimExpr) for v in tir.free_vars(x)]
    analyzer = tir.Analyzer(variables)
    if analyzer.can_prove_less(a, b):
        return True
    if analyzer.can_prove_greater_equal(a, b):
        return False
    raise TooLarge


def _extreme(pick: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def one(a: Any, b: Any) -> Any:
        return (
            pick(tir.as_prim_expr(a), b) if not isinstance(a, int) else pick(tir.as_prim_expr(b), a)
        )

    return one


def _int_only(function: Callable[[Any, Any], Any], symbolic: Callable[[Any, Any], Any]) -> Any:
    def one(a: Any, b: Any) -> Any:
        if isinstance(a, int) and isinstance(b, int):
            return function(a, b)
        return symbolic(a, b)

    return one


# name: (numpy, on one pair of integers that may be symbolic, or None)
_BINARY: dict[str, tuple[Callable[..., Any], Callable[[Any, Any], Any] | None]] = {
    "Add": (np.add, operator.add),
    "Sub": (np.subtract, operator.sub),
    "Mul": (np.multiply, operator.mul),
    "Div": (_divide, _divide_one),
    "Mod": (np.mod, operator.mod),
    "Min": (np.minimum, _int_only(min, _extreme(tir.min))),
    "Max": (np.maximum, _int_only(max, _extreme(tir.max))),
    "Pow": (np.power, None),
    "Equal": (np.equal, _equal_one),
    "Less": (np.less, _less_one),
    "Greater": (np.greater, lambda a, b: _less_one(b, a)),
    "LessOrEqual": (np.less_equal, lambda a, b: not _less_one(b, a)),
    "GreaterOrEqual": (np.greater_equal, lambda a, b: not _less_one(a, b)),
    "And": (np.logical_and, None),
    "Or": (np.logical_or, None),
    "Xor": (np.logical_xor, None),
}
_TRUTH = {"Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"}
_UNARY: dict[str, Callable[..., Any]] = {
    "Neg": np.negative,
    "Abs": np.abs,
    "Not": np.logical_not,
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Sqrt": np.sqrt,
    "Sign": np.sign,
}


def _binary(name: str) -> Callable[..., Result]:
    plain, one = _BINARY[name]
    on_arrays = _elementwise(plain)

    def folder(*xs: Array, **attributes: Any) -> Result:
        # The old broadcast and axis of opset 1, fmod: left to the converter.
        if attributes or len(xs) != 2:
            return None
        if not _symbolic(*xs):
            if xs[0].dtype != xs[1].dtype and name == "Pow":
                return None
            return on_arrays(*xs)
        if one is None:
            return None
        a, b = (
            np.array([tir.as_dim(v) for v in x.reshape(-1).tolist()], object).reshape(x.shape)
            for x in xs
        )
        made = np.asarray(np.frompyfunc(one, 2, 1)(a, b), object)
        return made.astype(bool) if name in _TRUTH else made

    return folder


for _name in _BINARY:
    FOLDERS[_name] = Folder(_binary(_name), True)
for _name, _function in _UNARY.items():
    FOLDERS[_name] = Folder(_elementwise(_function), False)


@folds("Where")
def _where(condition: Array, x: Array, y: Array) -> Result:
    if _symbolic(condition):
        return None
    room(math.prod(np.broadcast_shapes(condition.shape, x.shape, y.shape)), x.itemsize)
    if _symbolic(x, y):
        return np.where(condition, x.astype(object), y.astype(object))
    return np.where(condition, x, y)


# -- reductions ----------------------------------------------------------------------------------
def _reduction(plain: Callable[..., Any]) -> Callable[..., Result]:
    def folder(
        x: Array,
        by_input: Any = None,
        *,
        axes: Any = None,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Result:
        given = axes if by_input is None else _ints(by_input)
        if not given:
            if noop_with_empty_axes:
                return x
            given = None
        if is_float(str(x.dtype)) or x.size == 0:
            return None
        made = plain(x, axis=None if given is None else tuple(given), keepdims=bool(keepdims))
        made = np.asarray(made, None if x.dtype == object else x.dtype)
        return made

    return folder


FOLDERS["ReduceSum"] = Folder(_reduction(np.sum), True)
FOLDERS["ReduceProd"] = Folder(_reduction(np.prod), True)
FOLDERS["ReduceMax"] = Folder(_reduction(np.max), False)
FOLDERS["ReduceMin"] = Folder(_reduction(np.min), False)
