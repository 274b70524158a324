"""Errors go from process to process as they are: class, message and attributes."""

from __future__ import annotations

import copy
import inspect
import pickle
from pathlib import Path

import pytest

from relax2xla import errors
from relax2xla.errors import Gap, OpNotImplemented, TVMError, WellFormedError
from relax2xla.ir import Span

CLASSES = [
    c
    for _, c in inspect.getmembers(errors, inspect.isclass)
    if issubclass(c, BaseException) and c.__module__ == errors.__name__
]


def same(error: BaseException) -> None:
    """``error`` survives pickling by every protocol, and copying."""
    copies = [pickle.loads(pickle.dumps(error, p)) for p in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in (*copies, copy.copy(error), copy.deepcopy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.args == error.args
        assert repr(vars(other)) == repr(vars(error))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
def test_every_class_survives_pickling(kind: type[TVMError]) -> None:
    error = kind("what, where\n  and the fix")
    error.add_note("a note")
    same(error)


def test_attributes_survive_pickling() -> None:
    gaps = [Gap("Foo", "no such thing", ("a", "b"), "use Bar"), Gap("Baz", "not yet")]
    error = OpNotImplemented("cannot convert", gaps)
    same(error)
    assert pickle.loads(pickle.dumps(error)).report() == error.report()
    span = Span("conv", "model.py", 3, 1, 3, 9)
    wrong = WellFormedError("a rule", "main", span)
    same(wrong)
    assert pickle.loads(pickle.dumps(wrong)).span == span


def test_classes_of_errors_are_in_one_place() -> None:
    """Else the test above would miss them."""
    root = Path(errors.__file__).parent
    others = [
        (path.name, line)
        for path in root.rglob("*.py")
        if path.name != "errors.py"
        for line in path.read_text().splitlines()
        if line.startswith("class ") and "Error)" in line and "TVMError" in line
    ]
    assert not others


def test_programs_for_tvm_may_catch_runtime_errors() -> None:
    assert issubclass(TVMError, RuntimeError)
    assert not issubclass(TVMError, NotImplementedError)
