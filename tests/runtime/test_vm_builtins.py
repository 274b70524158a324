"""The packed functions that TVM's machine brings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relax2xla.errors import DeviceError, RunError, TVMError
from relax2xla.runtime import ShapeTuple, get_global_func, register_func, remove_global_func


def builtin(name: str) -> Callable[..., Any]:
    found = get_global_func(f"vm.builtin.attention_kv_cache_{name}")
    assert found is not None
    return found


def test_a_cache_grows_and_shows_its_last_entries() -> None:
    create, append, view = builtin("create"), builtin("append"), builtin("view")
    cache = create(np.zeros((2, 3), np.float32), (2, 3), 0)
    entries = np.arange(21, dtype=np.float32).reshape(7, 3)
    assert append(cache, entries[:1]) is cache
    append(cache, entries[1:6])
    append(cache, entries[6])
    np.testing.assert_array_equal(view(cache, (7, 3)), entries)
    np.testing.assert_array_equal(view(cache, (2, 3)), entries[5:])
    seen = view(cache, (7, 3))
    builtin("array_popn")([cache], 5)
    append(cache, np.zeros((2, 3), np.float32))
    np.testing.assert_array_equal(seen, entries)  # a view stays what it was
    np.testing.assert_array_equal(view(cache, (4, 3)), [*entries[:2], [0] * 3, [0] * 3])
    builtin("array_clear")([cache])
    assert view(cache, (0, 3)).shape == (0, 3)


def test_what_a_cache_starts_with() -> None:
    cache = builtin("create")(np.ones((4, 2), np.int32), (4, 2), 3)
    assert builtin("view")(cache, (3, 2)).tolist() == [[1, 1]] * 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: builtin("view")(c, (3, 3)), "a cache with 2 entries"),
        (lambda c: builtin("view")(c, (1, 4)), r"entries of \(3,\)"),
        (lambda c: builtin("append")(c, np.zeros((1, 3))), "the cache is of float32"),
        (lambda c: builtin("append")(c, np.zeros((3, 2), np.float32)), "no whole number"),
        (lambda c: builtin("array_popn")([c], 3), "cannot take 3 of 2"),
        (lambda c: builtin("create")(np.zeros(2), (2,), 3), "3 of 2 entries in a cache of 2"),
    ],
)
def test_mistakes_leave_a_cache_as_it_was(call: Callable[[Any], Any], message: str) -> None:
    cache = builtin("create")(np.ones((2, 3), np.float32), (2, 3), 2)
    with pytest.raises(RunError, match=message):
        call(cache)
    assert builtin("view")(cache, (2, 3)).tolist() == [[1, 1, 1]] * 2


def test_multinomial_from_uniform() -> None:
    draw = get_global_func("vm.builtin.multinomial_from_uniform")
    assert draw is not None
    prob = np.float32([[0.25, 0.25, 0.5, 0.0], [0.0, 0.5, 0.5, 0.0]])
    for limits, expected in (([0, 0], [0, 1]), ([0.25, 0.49], [1, 1]), ([1, 1], [2, 2])):
        made = draw(prob, np.float32(limits)[:, None])
        assert made.dtype == np.int64
        assert made.tolist() == [[e] for e in expected]
    # About as often as the probabilities say.
    rng = np.random.default_rng(0)
    many = draw(np.tile(prob[:1], (4000, 1)), rng.random((4000, 1)))
    np.testing.assert_allclose(np.bincount(many[:, 0], minlength=4) / 4000, prob[0], atol=0.03)
    with pytest.raises(RunError, match=r"\(rows, n\)"):
        draw(prob, np.zeros(2))


def test_to_device() -> None:
    move = get_global_func("vm.builtin.to_device")
    assert move is not None
    moved = move(np.arange(3), 1, 0)
    assert moved.tolist() == [0, 1, 2]
    assert moved.device.platform == "cpu"
    assert moved.dtype == np.int64
    with pytest.raises(DeviceError, match="no kind 99 of device; 1 for cpu"):
        move(np.arange(3), 99, 0)


def test_a_function_of_the_user_comes_first() -> None:
    name = "vm.builtin.debug_print"
    register_func(name, len)
    try:
        assert get_global_func(name) is len
    finally:
        remove_global_func(name)
    assert get_global_func(name) is not len
    with pytest.raises(TVMError, match=r"vm\.builtin\.nothing"):
        get_global_func("vm.builtin.nothing")


def test_reshape() -> None:
    reshape = get_global_func("vm.builtin.reshape")
    assert reshape is not None
    x = np.arange(6)
    np.testing.assert_array_equal(reshape(x, ShapeTuple([2, 3])), x.reshape(2, 3))
    assert reshape([1, 2], (2, 1)).shape == (2, 1)


def test_copy() -> None:
    copy = get_global_func("vm.builtin.copy")
    assert copy is not None
    x = np.arange(6, dtype="int16")
    made = copy(x)
    x[0] = 7
    assert made.dtype == "int16"
    assert made.tolist() == [0, 1, 2, 3, 4, 5]
