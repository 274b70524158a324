"""Fixtures of tests: parameters, several that go together, and values that are computed once."""

from __future__ import annotations

import copy
import functools
import os
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Column:
    """One parameter of several that go together: ``of`` is the group, ``values`` one a set."""

    of: object
    values: tuple[Any, ...]
    ids: Sequence[str] | None


# What :func:`parameters` gave, for the plugin, which alone sees which of them a test takes.
COLUMNS: dict[Any, Column] = {}


def parameter(
    *values: Any, ids: Sequence[str] | None = None, by_dict: Mapping[str, Any] | None = None
) -> Any:
    """A fixture that has each of the values in turn.

    ids: a name for each; by_dict: names and values, in the place of both. A test that takes several
    parameters runs with all combinations.
    """
    if by_dict is not None:
        if values or ids:
            raise RuntimeError("parameter takes either values and ids or by_dict, not both")
        ids, values = list(by_dict), tuple(by_dict.values())

    # A parameter of a class is called with the instance of the test.
    @pytest.fixture(params=values, ids=ids, scope="session")
    def chosen(*_owner: Any, request: pytest.FixtureRequest) -> Any:
        return request.param

    return chosen


def parameters(*value_sets: Sequence[Any], ids: Sequence[str] | None = None) -> list[Any]:
    """Fixtures that go together: a test runs once for each set, whichever of them it takes.

    value_sets: each has one value for each fixture; ids: a name for each set
    """
    group = object()

    def column(values: tuple[Any, ...]) -> Any:
        @pytest.fixture
        def chosen(*_owner: Any, request: pytest.FixtureRequest) -> Any:
            return request.param

        COLUMNS[chosen] = Column(group, values, ids)
        return chosen

    return [column(values) for values in zip(*value_sets, strict=True)]


def fixture(func: Any = None, *, cache_return_value: bool = False) -> Any:
    """A fixture that is set up for each test.

    cache_return_value: it is computed once for each set of its arguments, and tests get copies,
    unless the environment's TVM_TEST_DISABLE_CACHE is not zero.
    """
    cached = cache_return_value and not int(os.environ.get("TVM_TEST_DISABLE_CACHE", "0"))

    def decorate(make: Callable[..., Any]) -> Any:
        return pytest.fixture(_computed_once(make) if cached else make)

    return decorate if func is None else decorate(func)


def _computed_once(make: Callable[..., Any]) -> Callable[..., Any]:
    known: dict[Any, Any] = {}

    @functools.wraps(make)
    def value(*owner: Any, **given: Any) -> Any:
        # pytest gives arguments by name; what is before them is the instance of one test.
        key = _key(given)
        if key not in known:
            known[key] = make(*owner, **given)
        return copy.deepcopy(known[key])

    return value


def _key(given: Mapping[str, Any]) -> Any:
    key = tuple(given.items())
    try:
        hash(key)
    except TypeError:
        return pickle.dumps(key)
    return key
