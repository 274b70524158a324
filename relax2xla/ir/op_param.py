"""Parameters of operators: operands and attributes, and what they take for one.

The annotation of a parameter says what it is: ``Expr`` and the kinds of operands here are operands,
everything else an attribute. ``ShapeLike``, ``DTypeLike``, ``IntsLike`` and the like convert what
users write (see ``relax2xla.ir.op``).
"""

from __future__ import annotations

import inspect
import operator
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from relax2xla import tir
from relax2xla.dtypes import dtype_name, is_float
from relax2xla.ir.expr import Expr, PrimValue, ShapeExpr, StringImm, Tuple
from relax2xla.ir.make import const


@dataclass(frozen=True, slots=True)
class Kind:
    """What a parameter is: an operand or an attribute, and how user values are converted."""

    operand: bool
    convert: Callable[[Any], Any]


def as_tuple_operand(value: Any) -> Expr:
    """A sequence of expressions as a Tuple."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, tuple | list):
        return Tuple([v if isinstance(v, Expr) else const(v) for v in value])
    raise TypeError(f"expected a tuple of tensors; got {type(value).__name__}")


def as_shape_operand(value: Any) -> Expr:
    """A sequence of dimensions or an expression, as a shape operand."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, Iterable) and not isinstance(value, str):
        dims: list[Any] = list(value)
        for d in dims:
            if not isinstance(d, int | np.integer | tir.PrimExpr | PrimValue):
                raise TypeError(f"a dimension must be an integer or symbolic; got {shown(d)}")
        return ShapeExpr(dims)
    raise TypeError(f"expected a shape, such as (2, 3); got {shown(value)}")


def as_prim_operand(value: Any) -> Expr:
    """A number or symbolic integer as a PrimValue."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        # Not PrimValue's float32: the operator converts to the tensor's dtype, which may be wider.
        value = tir.const(value, "float64")
    return value if isinstance(value, Expr) else PrimValue(value)


def as_ints(value: Any) -> tuple[int, ...]:
    """One integer or a sequence of integers, as a tuple.

    A symbolic integer stays one until the function is specialised; until then the operator's result
    is of unknown shape (see :meth:`Op.infer_call`).
    """
    if isinstance(value, Iterable) and not isinstance(value, tir.PrimExpr):
        return tuple(map(as_int, value))
    return (as_int(value),)


def as_floats(value: Any) -> tuple[float, ...]:
    """Numbers, as floats; see :func:`as_float`."""
    return tuple(map(as_float, value))


def as_axes(value: Any) -> tuple[int, ...] | None:
    """None (all axes), one axis or several."""
    return None if value is None else as_ints(value)


def as_dtype(value: Any) -> str | None:
    """A dtype name; None, "" and TVM's "void" (unknown or default) are None."""
    return None if value is None or value in ("", "void") else dtype_name(value)


def as_int(value: Any) -> Any:
    """An integer; a symbolic one stays until the function is specialised."""
    if isinstance(value, tir.IntImm):
        return value.value
    if isinstance(value, PrimValue):
        return as_int(value.value)
    if isinstance(value, tir.PrimExpr) and "int" in value.dtype and tir.free_vars(value):
        return tir.as_dim(value)
    plain: Any = value
    try:
        return operator.index(plain)
    except TypeError:
        raise TypeError(f"expected an integer; got {shown(value)}") from None


def as_float(value: Any) -> Any:
    """A number, as a float; a symbolic one stays until the function is specialised."""
    if isinstance(value, PrimValue):
        value = value.value
    if isinstance(value, tir.PrimExpr) and is_float(value.dtype) and tir.free_vars(value):
        return value
    if isinstance(value, tir.IntImm | tir.FloatImm):
        value = value.value
    if isinstance(value, int | float | np.integer | np.floating):
        return float(value)
    raise TypeError(f"expected a number; got {shown(value)}")


def as_bool(value: Any) -> bool:
    """A truth value; 0 and 1 are two."""
    if isinstance(value, tir.IntImm):
        value = value.value
    if isinstance(value, bool | int | np.bool_ | np.integer) and value in (0, 1):
        return bool(value)
    raise TypeError(f"expected True or False; got {shown(value)}")


def as_str(value: Any) -> str:
    """A string."""
    if isinstance(value, StringImm):
        return value.value
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"expected a string; got {shown(value)}")


def shown(value: Any) -> str:
    """A value in a message: numbers and strings as they are, else the name of the type."""
    plain = isinstance(value, int | float | str | tuple | list | tir.PrimExpr)
    return f"{type(value).__name__} {value!r}" if plain else type(value).__name__


def _keep(value: Any) -> Any:
    return value


EXPR = Kind(True, _keep)
OPTIONAL_EXPR = Kind(True, _keep)
ATTR = Kind(False, _keep)
PLAIN: dict[Any, Callable[[Any], Any]] = {int: as_int, float: as_float, bool: as_bool, str: as_str}
"""How attributes annotated with a type of Python are converted; with ``| None``, None stays."""
TupleLike = Annotated[Any, Kind(True, as_tuple_operand)]
ShapeLike = Annotated[Any, Kind(True, as_shape_operand)]
PrimLike = Annotated[Any, Kind(True, as_prim_operand)]
DTypeLike = Annotated[Any, Kind(False, as_dtype)]
FloatsLike = Annotated[Any, Kind(False, as_floats)]
IntsLike = Annotated[Any, Kind(False, as_ints)]
AxesLike = Annotated[Any, Kind(False, as_axes)]


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of an operator."""

    name: str
    kind: Kind
    default: Any
    variadic: bool
    keyword: bool = False  # given by name only

    @property
    def required(self) -> bool:
        """Whether a call must give it."""
        return self.default is inspect.Parameter.empty and not self.variadic


def _plain(hint: Any) -> Kind:
    """An attribute that is a type of Python, or that and None; any other is kept as it is."""
    if hint in PLAIN:
        return Kind(False, PLAIN[hint])
    choices = [c for c in typing.get_args(hint) if c is not type(None)]
    if len(choices) == 1 and len(typing.get_args(hint)) == 2 and choices[0] in PLAIN:
        convert = PLAIN[choices[0]]
        return Kind(False, lambda value: None if value is None else convert(value))
    return ATTR


def param_of(name: str, parameter: inspect.Parameter, hint: Any) -> Param:
    """The parameter of an operator that a parameter of its function is."""
    variadic = parameter.kind is inspect.Parameter.VAR_POSITIONAL
    kind = next((m for m in getattr(hint, "__metadata__", ()) if isinstance(m, Kind)), None)
    if kind is None:
        if hint is Expr:
            kind = EXPR
        elif set(typing.get_args(hint)) == {Expr, type(None)}:
            kind = OPTIONAL_EXPR
        else:
            kind = _plain(hint)
    keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
    return Param(name, kind, parameter.default, variadic, keyword)
