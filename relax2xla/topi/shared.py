"""What functions of topi share: sizes, axes, indices, and loops whose axes are ax0, ax1 ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.script.prim_func.values import FUNCTIONS as FUNCTIONS
from relax2xla.script.prim_func.values import number as number
from relax2xla.tir.node import PrimExpr


def compute(
    shape: Sequence[Any],
    element: Callable[..., Any],
    name: str,
    tag: str = "injective",
    attrs: dict[str, Any] | None = None,
) -> te.Tensor:
    """:func:`te.compute` with axes ax0, ax1 ..., as TVM's functions in C++ have them."""
    names = [f"ax{i}" for i in range(len(shape))]
    return te.compute(shape, element, name, tag, attrs, names)


def scalar(value: Any) -> PrimExpr:
    """A number of Python as TVM takes it: an int32 (int64 if need be) or a float32."""
    return number(value)


def of_dtype(value: Any, dtype: str) -> PrimExpr:
    """A number or an expression in ``dtype``."""
    return tir.cast(dtype, value) if isinstance(value, PrimExpr) else tir.const(value, dtype)


def size(value: Any) -> PrimExpr:
    """A size in normal form."""
    if not isinstance(value, PrimExpr):
        return number(value)
    return tir.as_prim_expr(tir.simplify(value), value.dtype)


def known(value: Any) -> int | None:
    """The number that a size is, or None of a symbolic one."""
    if isinstance(value, int):
        return value
    made = tir.simplify(value)
    return int(made) if isinstance(made, int | tir.IntImm) else None


def want_int(value: Any, what: str) -> int:
    """The number that ``value`` is; ValueError of a symbolic one."""
    made = known(value)
    if made is None:
        raise ValueError(f"topi: {what} must be a known number; got {value}")
    return made


def shown(value: Any) -> str:
    """A size, or a shape, as messages have it."""
    if isinstance(value, list | tuple):
        return f"({', '.join(map(shown, value))})"
    number_ = known(value)
    return str(value if number_ is None else number_)


def is_same(a: Any, b: Any) -> bool:
    """Whether two sizes are equal for certain."""
    x, y = known(a), known(b)
    if x is not None and y is not None:
        return x == y
    return tir.can_prove_equal(tir.as_prim_expr(a), tir.as_prim_expr(b))


def one_axis(axis: Any, ndim: int, what: str) -> int:
    """``axis`` counted from the front; ValueError outside of the tensor."""
    made = want_int(axis, f"{what}: axis")
    if not -ndim <= made < ndim:
        raise ValueError(f"topi.{what}: axis {made} of a tensor of {ndim} axes")
    return made % ndim


def listed(value: Any) -> list[Any]:
    """One value or several, as a list."""
    return list(value) if isinstance(value, list | tuple) else [value]


def some_axes(axis: Any, ndim: int, what: str) -> list[int]:
    """Axes counted from the front, in order; None is all of them."""
    if axis is None:
        return list(range(ndim))
    made = sorted({one_axis(a, ndim, what) for a in listed(axis)})
    if len(made) != len(listed(axis)):
        raise ValueError(f"topi.{what}: an axis is named twice in {axis}")
    return made


def want_one_of(value: Any, allowed: Sequence[str], what: str) -> None:
    """ValueError where ``value`` is none of ``allowed``."""
    if value not in allowed:
        raise ValueError(f"topi.{what} is one of {', '.join(map(repr, allowed))}; got {value!r}")


def product(sizes: Sequence[Any]) -> PrimExpr:
    """The product of sizes; 1 of none."""
    made = number(1)
    for s in sizes:
        made = made * s
    return size(made)


def ravel(indices: Sequence[Any], sizes: Sequence[Any]) -> PrimExpr:
    """The place of an element in row-major order."""
    made = number(0)
    for i, n in zip(indices, sizes, strict=True):
        made = made * n + i
    return made


def unravel(index: PrimExpr, sizes: Sequence[Any]) -> list[PrimExpr]:
    """The indices of the element at a place in row-major order."""
    made: list[PrimExpr] = []
    for n in reversed(sizes):
        made.append(index % n)
        index = index // n
    return made[::-1]


def replaced(values: Sequence[Any], at: int, value: Any) -> list[Any]:
    """``values`` with another one at ``at``."""
    made = list(values)
    made[at] = value
    return made
