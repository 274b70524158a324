"""Random calls of the operators that need no more than arrays and an axis, against numpy or torch.

A table gives for each operator how to call it, what numpy or torch makes of the same arrays, and
which dtypes it takes. Hypothesis draws shapes, dtypes and values; the results' dtypes and shapes
are compared with what was inferred, too (by the harness). The other test_oracle_*.py do the same
for other operators; test_coverage.py says which are drawn nowhere, and why.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from relax2xla import op
from tests.op.draws import (
    RNG,
    Draw,
    call_of,
    case,
    examples,
    number,
    one_of,
    one_of_each,
    shape_of,
)
from tests.op.harness import Case, check

FLOATS = ("float32", "float64")
INTS = ("int8", "int32", "int64", "uint8", "uint32")
REAL = (*FLOATS, *INTS)
ALL = (*REAL, "bool")


class Oracle(NamedTuple):
    """How an operator is called on arrays of ``arity`` shapes, and what the truth is."""

    truth: Callable[..., Any]
    dtypes: tuple[str, ...] = FLOATS
    arity: int = 1
    options: Callable[[Any, Any], tuple[Any, ...]] = lambda draw, x: ()
    rank: int = 0
    tol: float = 2e-5


def _axis(draw: Any, x: Any) -> tuple[Any, ...]:
    return (draw(st.integers(-x.ndim, x.ndim - 1)),)


def _axes(draw: Any, x: Any) -> tuple[Any, ...]:
    chosen = draw(st.sets(st.integers(0, x.ndim - 1), min_size=1)) if x.ndim else set()
    return (sorted(chosen), draw(st.booleans()))


def _reduce(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, axes, keep: np.asarray(f(x, axis=tuple(axes), keepdims=keep)).astype(x.dtype)


def _as_torch(f: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *a: f(*(torch.from_numpy(np.array(x)) for x in a)).numpy()


def _with(f: Callable[..., Any]) -> Callable[..., Any]:
    """A torch function whose arguments after the first array are options."""
    return lambda x, *o: f(torch.from_numpy(np.array(x)), *o).numpy()


def _wrapping(f: Callable[..., Any]) -> Callable[..., Any]:
    def truth(*a: Any) -> Any:
        with np.errstate(all="ignore"):
            return f(*a)

    return truth


def _shift(f: Callable[..., Any]) -> Callable[..., Any]:
    """Shifts by the width or more give 0, or the sign; numpy leaves them open."""

    def truth(a: Any, b: Any) -> Any:
        bits = 8 * a.dtype.itemsize
        return np.array(
            [f(int(x), int(y), bits) for x, y in np.broadcast(a, b)], dtype=object
        ).reshape(np.broadcast_shapes(a.shape, b.shape))

    def wrapped(a: Any, b: Any) -> Any:
        bits = 8 * a.dtype.itemsize
        low = 0 if a.dtype.kind == "u" else -(2 ** (bits - 1))
        made = [(int(v) - low) % 2**bits + low for v in truth(a, b).reshape(-1)]
        return np.array(made, a.dtype).reshape(np.broadcast_shapes(a.shape, b.shape))

    return wrapped


UNARY = {
    "acos": np.arccos,
    "acosh": np.arccosh,
    "asin": np.arcsin,
    "asinh": np.arcsinh,
    "atan": np.arctan,
    "atanh": np.arctanh,
    "cos": np.cos,
    "cosh": np.cosh,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "tan": np.tan,
    "tanh": np.tanh,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "erf": _as_torch(torch.erf),
}
ANY_UNARY = {
    "abs": np.abs,
    "ceil": np.ceil,
    "floor": np.floor,
    "round": np.round,
    "trunc": np.trunc,
    "square": np.square,
    "sign": lambda x: np.where(x != x, 0, np.sign(x)).astype(x.dtype),
}
COMPARE = {
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
ARITHMETIC = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
LOGICAL = {
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}
BITWISE = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}
TORCH = {
    "relu": F.relu,
    "relu6": F.relu6,
    "gelu": lambda x: torch.where(x == math.inf, x, F.gelu(x)),  # NaN on some processors
    "silu": F.silu,
    "selu": F.selu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "leakyrelu": lambda x: F.leaky_relu(x, 0.01),
    "softplus": F.softplus,
}
POOL = ((2, 2), (1, 1))

TABLE: dict[str, Oracle] = {
    **{n: Oracle(_wrapping(f), tol=1e-4) for n, f in UNARY.items()},
    **{
        n: Oracle(_wrapping(lambda x, f=f: f(x).astype(x.dtype)), REAL)
        for n, f in ANY_UNARY.items()
    },
    **{
        n: Oracle(f, FLOATS)
        for n, f in (("isnan", np.isnan), ("isinf", np.isinf), ("isfinite", np.isfinite))
    },
    "negative": Oracle(_wrapping(np.negative), (*FLOATS, "int8", "int64")),
    "logical_not": Oracle(np.logical_not, ("bool",)),
    "bitwise_not": Oracle(np.bitwise_not, (*INTS, "bool")),
    **{n: Oracle(f, ALL, 2) for n, f in COMPARE.items()},
    **{n: Oracle(_wrapping(f), REAL, 2) for n, f in ARITHMETIC.items()},
    "power": Oracle(_wrapping(np.power), FLOATS, 2, tol=1e-4),
    "atan2": Oracle(np.arctan2, FLOATS, 2),
    "log_add_exp": Oracle(_wrapping(np.logaddexp), FLOATS, 2),
    **{n: Oracle(f, ("bool",), 2) for n, f in LOGICAL.items()},
    **{n: Oracle(f, (*INTS, "bool"), 2) for n, f in BITWISE.items()},
    "left_shift": Oracle(_shift(lambda x, y, b: x << y if 0 <= y < b else 0), INTS, 2),
    "right_shift": Oracle(
        _shift(lambda x, y, b: x >> y if 0 <= y < b else (-1 if x < 0 else 0)), INTS, 2
    ),
    "sum": Oracle(_wrapping(_reduce(np.sum)), REAL, options=_axes, tol=1e-4),
    "prod": Oracle(_wrapping(_reduce(np.prod)), REAL, options=_axes, tol=1e-4),
    "max": Oracle(_reduce(np.max), ALL, options=_axes, rank=1),
    "min": Oracle(_reduce(np.min), ALL, options=_axes, rank=1),
    "mean": Oracle(_wrapping(_reduce(np.mean)), FLOATS, options=_axes, rank=1, tol=1e-4),
    "variance": Oracle(_wrapping(_reduce(np.var)), FLOATS, options=_axes, rank=1, tol=1e-4),
    "std": Oracle(_wrapping(_reduce(np.std)), FLOATS, options=_axes, rank=1, tol=1e-4),
    "argmax": Oracle(np.argmax, REAL, options=_axis, rank=1),
    "argmin": Oracle(np.argmin, REAL, options=_axis, rank=1),
    "sort": Oracle(np.sort, REAL, options=_axis, rank=1),
    "argsort": Oracle(
        lambda x, a: np.argsort(x, a, kind="stable").astype(np.int32), REAL, options=_axis, rank=1
    ),
    "cumsum": Oracle(
        _wrapping(lambda x, a: np.cumsum(x, a, dtype=x.dtype)),
        REAL,
        options=_axis,
        rank=1,
        tol=1e-4,
    ),
    "cumprod": Oracle(
        _wrapping(lambda x, a: np.cumprod(x, a, dtype=x.dtype)),
        REAL,
        options=_axis,
        rank=1,
        tol=1e-4,
    ),
    "flip": Oracle(np.flip, ALL, options=_axis, rank=1),
    "flatten": Oracle(np.ravel, ALL),
    "expand_dims": Oracle(np.expand_dims, ALL, options=_axis, rank=1),
    "permute_dims": Oracle(np.transpose, ALL),
    "tile": Oracle(np.tile, ALL, options=lambda draw, x: ((2, draw(st.integers(0, 3))),)),
    "repeat": Oracle(
        np.repeat, ALL, options=lambda draw, x: (draw(st.integers(1, 3)), *_axis(draw, x)), rank=1
    ),
    "tril": Oracle(np.tril, ALL, options=lambda draw, x: (draw(st.integers(-3, 3)),), rank=2),
    "triu": Oracle(np.triu, ALL, options=lambda draw, x: (draw(st.integers(-3, 3)),), rank=2),
    "zeros_like": Oracle(np.zeros_like, ALL),
    "ones_like": Oracle(np.ones_like, ALL),
    "outer": Oracle(_wrapping(np.outer), REAL, 2, rank=-1),
    "where": Oracle(lambda x, y: np.where(x > y, x, y), REAL, 2),
    "matmul": Oracle(lambda x, y: x @ np.swapaxes(y, -1, -2), FLOATS, 2, rank=2, tol=1e-4),
    **{f"nn.{n}": Oracle(_as_torch(f), tol=1e-4) for n, f in TORCH.items()},
    "nn.softmax": Oracle(_with(F.softmax), options=_axis, rank=1, tol=1e-4),
    "nn.log_softmax": Oracle(_with(F.log_softmax), options=_axis, rank=1, tol=1e-4),
    "nn.batch_flatten": Oracle(lambda x: x.reshape(len(x), int(np.prod(x.shape[1:]))), ALL, rank=2),
    **{
        f"grad.{n}": Oracle(lambda x: x, ALL)
        for n in ("no_grad", "start_checkpoint", "end_checkpoint")
    },
    "builtin.stop_lift_params": Oracle(lambda x: x, ALL),
}
SPECIAL: dict[str, Callable[..., Any]] = {
    "where": lambda x, y: op.where(op.greater(x, y), x, y),
    "matmul": lambda x, y: op.matmul(
        x, op.permute_dims(y, [*range(len(y.struct_info.dims) - 2), -1, -2])
    ),
}
EDGES = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -1.0, 0.5)


def _values(draw: Any, shape: tuple[int, ...], dtype: str) -> Any:
    rng = draw(RNG)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in INTS:
        info = np.iinfo(dtype)
        small = rng.integers(max(-9, info.min), 40, shape)
        ends = rng.choice([info.min, info.max], shape) if draw(st.booleans()) else small
        return np.where(rng.random(shape) < 0.8, small, ends).astype(dtype)
    x = rng.normal(size=shape)
    if draw(st.booleans()):
        x = np.where(rng.random(shape) < 0.3, rng.choice(EDGES, shape), x)
    return x.astype(dtype)


def simple(draw: Any, name: str) -> Case:
    """One call of an operator of the table."""
    oracle = TABLE[name]
    shape = shape_of(draw)
    if oracle.rank == -1:
        shape = shape[:1] or (3,)
    while len(shape) < oracle.rank:
        shape = (*shape, number(draw, 1, 4))
    if oracle.rank > 0:
        shape = tuple(max(d, 1) for d in shape)
    dtype = one_of(draw, *oracle.dtypes)
    inputs = [_values(draw, shape, dtype)]
    if oracle.arity == 2:
        other = shape
        if oracle.rank == 0:
            other = tuple(one_of(draw, 1, d) for d in shape)[number(draw, 0, 3) :]
        inputs.append(_values(draw, other, dtype))
    if name == "matmul":
        inputs = [np.nan_to_num(x, posinf=1, neginf=-1) for x in inputs]
    options = oracle.options(draw, inputs[0])
    want = np.asarray(oracle.truth(*inputs, *options))
    make: Any = SPECIAL.get(name) or call_of(name, *options)
    tol = oracle.tol if want.dtype.kind == "f" else None
    atol = oracle.tol / 10 if want.dtype.kind == "f" else 0.0
    return Case(f"{name}{options}", make, inputs, want, tol, atol)


DIVISIONS: dict[str, Callable[[Any, Any], Any]] = {
    "floor_divide": np.floor_divide,
    "floor_mod": np.mod,
    "mod": np.fmod,
    "divide": lambda a, b: np.trunc(a / b) if a.dtype.kind in "iu" else a / b,
}


def division(draw: Any, name: str) -> Case:
    """Signs of quotients and remainders; numpy's are those of C and of Python."""
    dtype = one_of(draw, "float32", "float64", "int8", "int32", "int64", "uint8")
    low = 0 if dtype == "uint8" else -20
    a, b = (draw(RNG).integers(low, 20, (3, 5)) for _ in range(2))
    a, b = a.astype(dtype), np.where(b == 0, 3, b).astype(dtype)
    if dtype.startswith("float"):
        a, b = a / np.asarray(4, dtype), b / np.asarray(4, dtype)
    return case(name, call_of(name), [a, b], DIVISIONS[name](a, b), dtype)


SIMPLE: dict[str, Draw] = {
    **dict.fromkeys(TABLE, simple),
    **dict.fromkeys(DIVISIONS, division),
}


@examples(2)
@given(one_of_each(SIMPLE))
def test_values_are_those_of_numpy_and_torch(drawn: list[Case]):
    check(drawn)
