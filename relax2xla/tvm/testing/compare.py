"""CompareBeforeAfter: a transformation's result held against what is expected."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType
from typing import Any, ClassVar

import pytest

from relax2xla.ir import Function, IRModule, assert_structural_equal
from relax2xla.script import from_source
from relax2xla.tir import PrimFunc

_FUNCTIONS = (Function, PrimFunc)


class CompareBeforeAfter:
    """A test whose class says ``before``, ``transform`` and ``expected`` (or with capitals).

    ``before`` and ``expected``: a module, a PrimFunc; a method that gives one; a function of
    TVMScript without its decorator; a class of such, which is a module; or a fixture.
    ``expected`` may be an exception, which the transformation is to raise.
    ``transform``: a pass, a method that gives one, or a fixture.
    """

    check_well_formed: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        for name, made in (("before", _module), ("expected", _module), ("transform", _pass)):
            given = [n for n in (name, name.capitalize()) if n in vars(cls)]
            if len(given) > 1:
                raise TypeError(f"{cls.__name__} has both {given[0]} and {given[1]}; say one")
            if given and not _is_fixture(vars(cls)[given[0]]):
                setattr(cls, name, _fixture(vars(cls)[given[0]], made))

    def test_compare(self, before: Any, expected: Any, transform: Any) -> None:
        """The transformation of ``before`` is ``expected``, or raises it."""
        if inspect.isclass(expected) and issubclass(expected, BaseException):
            with pytest.raises(expected):
                _applied(transform, before)
            return
        sides: list[Any] = [_applied(transform, before), expected]
        if isinstance(sides[0], PrimFunc):  # what a function is called is not compared
            sides = [f.with_attr("global_symbol", "main") for f in sides]
        after, wanted = sides
        try:
            assert_structural_equal(after, wanted)
        except ValueError as e:
            e.add_note(f"before:\n{before.script()}\nafter:\n{after.script()}")
            raise


def _is_fixture(given: Any) -> bool:
    # pytest 8.4 has a class for it; before, a fixture is a function with a mark.
    return (
        type(given).__name__ == "FixtureFunctionDefinition"
        or getattr(given, "_pytestfixturefunction", None) is not None
    )


def _fixture(given: Any, made: Callable[[Any, Any], Any]) -> Any:
    """A fixture of what the class says; ``made`` gets the test and that."""

    @pytest.fixture
    def value(self: CompareBeforeAfter) -> Any:
        return made(self, given)

    return value


def _is_method(given: Any) -> bool:
    return inspect.isfunction(given) and "self" in inspect.signature(given).parameters


def _module(test: CompareBeforeAfter, given: Any) -> Any:
    """A module or a PrimFunc of one, of a method, of functions of TVMScript; or an exception."""
    if _is_method(given):
        return given(test)
    if inspect.isfunction(given):
        return _read(test, given)
    if not inspect.isclass(given) or issubclass(given, BaseException):
        return given
    functions: dict[str, Any] = {n: f for n, f in vars(given).items() if not n.startswith("_")}
    for name, value in functions.items():
        function = value if isinstance(value, _FUNCTIONS) else _read(test, value)
        functions[name] = function.with_attr("global_symbol", name)
    return IRModule(functions)


def _read(test: CompareBeforeAfter, function: FunctionType) -> Any:
    source = textwrap.dedent(inspect.getsource(function))
    # In the body of a class a decorator of TVMScript leaves the function as it is.
    text = function if source.startswith("@") else f"@T.prim_func\n{source}"
    return from_source(text, check_well_formed=test.check_well_formed)


def _pass(test: CompareBeforeAfter, given: Any) -> Any:
    return given(test) if _is_method(given) else given


def _applied(transform: Any, given: Any) -> Any:
    """What a pass makes of a module, or of a PrimFunc alone."""
    if isinstance(given, PrimFunc):
        return transform(IRModule({"main": given}))["main"]
    return transform(given)
