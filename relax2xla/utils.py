"""Helpers of programs that make programs, under the name of their home in TVM, `relax.utils`."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from relax2xla.ir.copy import copy_with_new_vars as copy_with_new_vars
from relax2xla.ir.expr import Expr
from relax2xla.ir.expr import convert_to_expr as convert_to_expr

F = TypeVar("F", bound=Callable[..., Any])
_Convert = Callable[[Any], Any]


class ArgsConverter:
    """Decorators of functions whose arguments may be given as Python values, and arrive as Relax.

    ``to_expr("x", "args")`` converts the named arguments (``convert_to_expr``), of a ``*`` or a
    ``**`` parameter each; ``to_list_expr`` those that are lists; ``auto`` those of the annotation
    ``Expr``, ``list[Expr]``, or either of them or None. None stays.
    """

    def to_expr(self, *arg_names: str) -> Callable[[F], F]:
        """Make expressions of the named arguments."""
        return lambda function: _converting(function, dict.fromkeys(arg_names, convert_to_expr))

    def to_list_expr(self, *arg_names: str) -> Callable[[F], F]:
        """Make lists of expressions of the named arguments; TypeError for what is no list."""
        return lambda function: _converting(function, dict.fromkeys(arg_names, _as_list))

    def auto(self, function: F) -> F:
        """Convert what the annotations of ``function`` say."""
        hints = {k: h for k, h in get_type_hints(function).items() if k != "return"}
        return _converting(function, {k: c for k, h in hints.items() if (c := _converter(h))})


args_converter = ArgsConverter()


def _as_list(value: Any) -> list[Expr]:
    if not isinstance(value, list | tuple):
        raise TypeError(f"expected a list or a tuple of expressions, got {type(value).__name__}")
    return [convert_to_expr(x) for x in value]


def _converter(hint: Any) -> _Convert | None:
    """What an annotation asks for; None for an annotation of something else."""
    if get_origin(hint) in (Union, types.UnionType):
        parts = [x for x in get_args(hint) if x is not type(None)]
        return _converter(parts[0]) if len(parts) == 1 else None
    if hint is Expr:
        return convert_to_expr
    return _as_list if get_origin(hint) is list and get_args(hint) == (Expr,) else None


def _converting(function: F, converters: Mapping[str, _Convert]) -> F:
    signature = inspect.signature(function)
    if unknown := [name for name in converters if name not in signature.parameters]:
        raise TypeError(f"{function.__name__} has no parameter {', '.join(unknown)}")

    def convert(name: str, value: Any) -> Any:
        try:
            return None if value is None else converters[name](value)
        except TypeError as error:
            raise TypeError(f"the argument {name} of {function.__name__}: {error}") from error

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            if name in converters:
                match signature.parameters[name].kind:
                    case inspect.Parameter.VAR_POSITIONAL:
                        made: Any = tuple(convert(name, x) for x in value)
                    case inspect.Parameter.VAR_KEYWORD:
                        made = {k: convert(name, x) for k, x in value.items()}
                    case _:
                        made = convert(name, value)
                bound.arguments[name] = made
        return function(*bound.args, **bound.kwargs)

    return call  # pyright: ignore[reportReturnType] - of the signature of ``function``
