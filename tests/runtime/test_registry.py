"""The registry of packed functions: names, override rules, the decorator's forms."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import relax2xla as rx
from relax2xla.errors import TVMError
from relax2xla.runtime import list_global_func_names, remove_global_func


@pytest.fixture(autouse=True)
def clean() -> Iterator[None]:
    before = set(list_global_func_names())
    yield
    for name in set(list_global_func_names()) - before:
        remove_global_func(name)


def test_a_name_is_taken_until_it_is_overridden() -> None:
    assert rx.register_func("reg.one", abs) is abs
    assert rx.get_global_func("reg.one") is abs
    with pytest.raises(TVMError, match=r"'reg.one' is registered already; give override=True"):
        rx.register_func("reg.one", len)
    assert rx.get_global_func("reg.one") is abs
    rx.register_func("reg.one", len, override=True)
    assert rx.get_global_func("reg.one") is len


def test_the_forms_of_the_decorator() -> None:
    @rx.register_func("reg.named")
    def first() -> int:
        return 1

    @rx.register_func
    def reg_bare() -> int:
        return 2

    @rx.register_func("reg.named", override=True)
    def second() -> int:
        return 3

    assert first() == 1
    assert rx.get_global_func("reg.named") is second
    assert rx.get_global_func("reg_bare") is reg_bare


def test_what_is_missing() -> None:
    with pytest.raises(TVMError, match=r"no packed function 'reg.none'"):
        rx.get_global_func("reg.none")
    assert rx.get_global_func("reg.none", allow_missing=True) is None
    with pytest.raises(TVMError, match="no packed function"):
        remove_global_func("reg.none")


def test_only_callables_under_names() -> None:
    with pytest.raises(TypeError, match="must be callable; got int"):
        rx.register_func("reg.bad", 3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match="takes a name; got int"):
        rx.register_func(3)  # pyright: ignore[reportArgumentType]
