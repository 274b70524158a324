"""Families of operators that differ in one fact each, and what all operators use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from relax2xla.frontend.nn.eager import eager
from relax2xla.frontend.nn.values import Tensor, expr_of, wrap_nested
from relax2xla.ir import Expr

Build = Callable[..., Expr]


class Unary(Protocol):
    """An operator of one tensor."""

    def __call__(self, x: Tensor, name: str = ...) -> Tensor: ...


class Binary(Protocol):
    """An operator of two tensors that broadcasts; one of them may be a number."""

    def __call__(self, a: Any, b: Any, name: str = ...) -> Tensor: ...


class Extremum(Protocol):
    """A binary operator whose operands are called ``x1`` and ``x2``."""

    def __call__(self, x1: Any, x2: Any, name: str = ...) -> Tensor: ...


class Reduction(Protocol):
    """An operator that folds axes."""

    def __call__(
        self,
        x: Tensor,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        name: str = ...,
    ) -> Tensor: ...


def unary(build: Build, hint: str, doc: str) -> Unary:
    """The operator that ``build`` makes; ``hint`` is the default of ``name``."""

    def function(x: Tensor, name: str = hint) -> Tensor:
        return wrap_nested(build(expr_of(x)), name)

    return _named(function, build, doc)


def binary(build: Build, hint: str, doc: str) -> Binary:
    """The operator of two tensors that ``build`` makes."""

    def function(a: Any, b: Any, name: str = hint) -> Tensor:
        return wrap_nested(build(expr_of(a, b), expr_of(b, a)), name)

    return _named(function, build, doc + " Broadcasts as numpy does.")


def extremum(build: Build, doc: str) -> Extremum:
    """The operator of ``x1`` and ``x2`` that ``build`` makes."""

    def function(x1: Any, x2: Any, name: str = short_name(build)) -> Tensor:
        return wrap_nested(build(expr_of(x1, x2), expr_of(x2, x1)), name)

    return _named(function, build, doc + " Broadcasts as numpy does.")


def reduction(build: Build, doc: str) -> Reduction:
    """The operator that folds axes as ``build`` does."""

    def function(
        x: Tensor,
        axis: int | Sequence[int] | None = None,
        keepdims: bool = False,
        name: str = short_name(build),
    ) -> Tensor:
        return wrap_nested(build(expr_of(x), axis, keepdims), name)

    rest = " axis: one or several, None: all; negative ones count from the back. keepdims: folded"
    return _named(function, build, doc + rest + " axes stay, with size 1.")


def short_name(build: Any) -> str:
    """The last part of an operator's name."""
    return str(build.name).rpartition(".")[2]


def _named(function: Any, build: Any, doc: str) -> Any:
    function.__name__ = function.__qualname__ = short_name(build)
    function.__doc__ = doc
    return eager(function)
