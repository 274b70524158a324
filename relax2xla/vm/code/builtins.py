"""Builtins of the machine: what bytecode calls besides regions, packed functions and operators.

Those of ``INLINE`` are written into the generated Python as expressions; the others are functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla.dtypes import numpy_dtype
from relax2xla.errors import ArgumentTypeError, CallError, RunError
from relax2xla.runtime.registry import register_func
from relax2xla.runtime.shape_tuple import ShapeTuple
from relax2xla.tir.binary import truncdiv_int
from relax2xla.vm.code.size_bounds import check_condition, check_range

# Expressions of the arguments {0}, {1}, ...; "*" joins all of them.
INLINE: dict[str, str] = {
    "vm.builtin.copy": "{0}",
    "vm.builtin.make_tuple": "({*},)",
    "vm.builtin.tuple_getitem": "{0}[{1}]",
    "vm.builtin.add": "{0} + {1}",
    "vm.builtin.sub": "{0} - {1}",
    "vm.builtin.mul": "{0} * {1}",
    "vm.builtin.floordiv": "{0} // {1}",
    "vm.builtin.floormod": "{0} % {1}",
    "vm.builtin.truediv": "{0} / {1}",
    "vm.builtin.min": "min({0}, {1})",
    "vm.builtin.max": "max({0}, {1})",
    "vm.builtin.eq": "{0} == {1}",
    "vm.builtin.ne": "{0} != {1}",
    "vm.builtin.lt": "{0} < {1}",
    "vm.builtin.le": "{0} <= {1}",
    "vm.builtin.gt": "{0} > {1}",
    "vm.builtin.ge": "{0} >= {1}",
    "vm.builtin.and": "{0} and {1}",
    "vm.builtin.or": "{0} or {1}",
    "vm.builtin.not": "not {0}",
    "vm.builtin.shift_left": "{0} << {1}",
    "vm.builtin.shift_right": "{0} >> {1}",
    "vm.builtin.bitwise_and": "{0} & {1}",
    "vm.builtin.bitwise_or": "{0} | {1}",
    "vm.builtin.bitwise_xor": "{0} ^ {1}",
    "vm.builtin.bitwise_not": "~{0}",
    "vm.builtin.select": "({1} if {0} else {2})",
    "vm.builtin.to_int": "int({0})",
    "vm.builtin.to_float": "float({0})",
    "vm.builtin.to_bool": "bool({0})",
    "vm.builtin.invoke_closure": "{0}({1*})",
}


def make_closure(func: Any, *captured: Any) -> Callable[..., Any]:
    """``func`` with its last arguments fixed."""
    if not callable(func):
        raise RunError(f"make_closure takes a function; got {type(func).__name__}")

    # A function and no object that can be called: from Python 3.12 on, only calls of functions go
    # as deep as the recursion limit allows.
    def closure(*args: Any) -> Any:
        return func(*args, *captured)

    closure.__name__ = closure.__qualname__ = getattr(func, "__name__", "closure")
    return closure


def match(value: Any, pattern: Any, where: str, *known: Any) -> tuple[int, ...]:
    """Check ``value`` against a pattern; gives the dimensions that the pattern binds, in order.

    A pattern is ("tensor", dtype, ndim, dims), ("shape", ndim, dims), ("prim", dtype, dims),
    ("tuple", patterns) or ("object",); dims is None or a tuple whose entries are a number (which
    must be there), ("bind",) or ("known", i), the i-th of ``known``. CallError where it does not
    fit.
    """
    bound: list[int] = []
    _match(value, pattern, where, known, bound)
    return tuple(bound)


_array_dtype = functools.cache(numpy_dtype)


def _match(value: Any, pattern: Any, where: str, known: Sequence[Any], bound: list[int]) -> None:
    kind = pattern[0]
    if kind == "tensor":
        _, dtype, ndim, dims = pattern
        shape = getattr(value, "shape", None)
        if shape is None or not hasattr(value, "dtype"):
            raise ArgumentTypeError(f"{where} must be a tensor; got {type(value).__name__}")
        # numpy spells the name anew each time it is asked for, which takes longer than all else.
        if dtype and value.dtype != _array_dtype(dtype):
            raise CallError(f"{where} has dtype {value.dtype.name}, expected {dtype}")
        if ndim != -1 and len(shape) != ndim:
            raise CallError(f"{where} has ndim {len(shape)}, expected {ndim}")
        if dims is not None:
            _match_dims(shape, dims, where, known, bound)
    elif kind == "shape":
        _, ndim, dims = pattern
        if not isinstance(value, tuple):
            raise ArgumentTypeError(f"{where} must be a shape; got {type(value).__name__}")
        if ndim != -1 and len(value) != ndim:
            raise CallError(f"{where} has {len(value)} dimensions, expected {ndim}")
        if dims is not None:
            _match_dims(value, dims, where, known, bound)
    elif kind == "prim":
        if not isinstance(value, bool | int | float):
            raise ArgumentTypeError(f"{where} must be a number; got {type(value).__name__}")
        if pattern[2] is not None:
            _match_dims((value,), pattern[2], where, known, bound)
    elif kind == "tuple":
        fields = pattern[1]
        if not isinstance(value, tuple | list) or len(value) != len(fields):
            got = (
                f"{len(value)} fields" if isinstance(value, tuple | list) else type(value).__name__
            )
            raise CallError(f"{where} must be a tuple of {len(fields)}; got {got}")
        for i, (v, p) in enumerate(zip(value, fields, strict=True)):
            _match(v, p, f"{where}[{i}]", known, bound)


def _match_dims(
    values: Sequence[Any], dims: Sequence[Any], where: str, known: Sequence[Any], bound: list[int]
) -> None:
    for i, (v, d) in enumerate(zip(values, dims, strict=True)):
        if isinstance(d, tuple):
            if d[0] == "bind":
                bound.append(v)
                continue
            d = known[d[1]]
        if v != d:
            raise CallError(f"{where}: dimension {i} is {v}, expected {d}")


def check_dim(value: int, expected: int, where: str, text: str) -> None:
    """A dimension that is an expression: it must be what the expression gives."""
    if value != expected:
        raise CallError(f"{where}: a dimension is {value}, expected {expected} ({text})")


def truncdiv(a: Any, b: Any) -> Any:
    """The quotient, of integers rounded towards zero."""
    return truncdiv_int(a, b) if isinstance(a, int) and isinstance(b, int) else a / b


def truncmod(a: int, b: int) -> int:
    """The remainder of :func:`truncdiv`."""
    return a - b * truncdiv_int(a, b)


def shape_of(value: Any) -> ShapeTuple:
    """The shape of an array."""
    return ShapeTuple.of_sizes(*value.shape)


def tensor_to_shape(value: Any) -> ShapeTuple:
    """The values of a vector of integers."""
    return ShapeTuple(int(v) for v in value)


def tuple_reset_item(whole: Any, index: int) -> tuple[()]:
    """Say that a field has been read for the last time. Tuples here do not change: its array is
    freed when whoever gave it holds it no more.
    """
    return ()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "vm.builtin.make_shape": ShapeTuple.of_sizes,
    "vm.builtin.shape_of": shape_of,
    "vm.builtin.tensor_to_shape": tensor_to_shape,
    "vm.builtin.reshape": lambda value, shape: value.reshape(shape),
    "vm.builtin.read_if_cond": bool,
    "vm.builtin.null_value": lambda: None,
    "vm.builtin.make_closure": make_closure,
    "vm.builtin.match": match,
    "vm.builtin.check_dim": check_dim,
    "vm.builtin.check_range": check_range,
    "vm.builtin.check_condition": check_condition,
    "vm.builtin.truncdiv": truncdiv,
    "vm.builtin.truncmod": truncmod,
}

# Those that programs made by TVM call as packed functions.
register_func("vm.builtin.tensor_to_shape", tensor_to_shape, override=True)
register_func("vm.builtin.tuple_reset_item", tuple_reset_item, override=True)
