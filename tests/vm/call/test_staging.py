"""Numpy arguments: right whatever the caller writes to them later, and shared memory reused."""

from __future__ import annotations

from typing import Any

import jax
import ml_dtypes
import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op as R
from relax2xla import tir
from relax2xla.vm.call import roads, staging

T = rx.TensorStructInfo


def function(body: Any, *infos: rx.StructInfo) -> Any:
    builder = rx.BlockBuilder()
    params = [rx.Var(f"x{i}", info) for i, info in enumerate(infos)]
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(body(*params)))
    return rx.VirtualMachine(rx.build(builder.get()))["main"]


@pytest.fixture
def road(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "pjrt":
        monkeypatch.setattr(roads, "JIT_ARGUMENTS", 0)
    return request.param


BOTH = pytest.mark.parametrize("road", ["jit", "pjrt"], indirect=True)


@BOTH
def test_a_caller_may_write_to_its_array(road: str) -> None:
    f = function(lambda x: R.add(x, x), T((1000,), "float32"))
    value = np.zeros(1000, np.float32)
    results: list[Any] = []
    for i in range(200):
        value[:] = i
        results.append(f(value))
        value[:] = -1
    for i, result in enumerate(results):
        np.testing.assert_array_equal(result, np.full(1000, 2.0 * i))


@BOTH
def test_a_result_that_is_the_argument_is_its_own_memory(road: str) -> None:
    f = function(lambda x: rx.Tuple([x, R.reshape(x, (4, 1)), x]), T((4,), "float32"))
    kept = [f(np.full(4, i, np.float32)) for i in range(50)]
    for i, (a, b, c) in enumerate(kept):
        for array in (a, b, c):
            np.testing.assert_array_equal(np.ravel(array), np.full(4, i))


def test_a_program_that_runs_on_keeps_its_arguments() -> None:
    """Long programs run after the call has returned; the next call must not touch their input."""
    f = function(lambda x: R.matmul(R.matmul(R.matmul(x, x), x), x), T((400, 400), "float32"))
    eye = np.eye(400, dtype=np.float32)
    results = [f(eye * k) for k in (1, 2, 3, 1, 2, 3)]
    for k, result in zip((1, 2, 3, 1, 2, 3), results, strict=True):
        np.testing.assert_array_equal(result, eye * k**4)


@BOTH
@pytest.mark.parametrize(
    "dtype", [np.float32, np.int8, np.bool_, ml_dtypes.bfloat16, np.float64, np.int64, np.complex64]
)
def test_dtypes(road: str, dtype: Any) -> None:
    name = rx.dtypes.dtype_name(np.dtype(dtype))
    f = function(lambda x, y: R.concat((x, y), axis=0), T((3,), name), T((2,), name))
    for k in (0, 1, 1):
        x, y = np.full(3, k).astype(dtype), np.full(2, 1 - k).astype(dtype)
        result = f(x, y)
        assert result.dtype == x.dtype
        np.testing.assert_array_equal(np.asarray(result), np.concatenate([x, y]))


@BOTH
def test_layouts_kinds_and_shapes_change_between_calls(road: str) -> None:
    n = tir.Var("n")
    f = function(lambda x: R.add(x, x), T((n, 3), "float32"))
    base = np.arange(36, dtype=np.float32).reshape(6, 6)
    for value in (
        base[:, :3],
        base.T[:, ::2],
        np.asfortranarray(base[:, 3:]),
        base[:0, :3],
        base[:1, :3],
        jax.device_put(base[:, :3]),
        base[:, :3].tolist(),
        base[::-1, :3],
        base[:, :3].astype(">f4"),
    ):
        np.testing.assert_array_equal(f(value), 2 * np.asarray(value))
    for wrong in (base[:, :2], base[:, :3].astype(np.float64), base[0]):
        with pytest.raises(rx.errors.CallError):
            f(wrong)
        np.testing.assert_array_equal(f(base[:, :3]), 2 * base[:, :3])


def test_memory_is_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    f = function(lambda x: R.add(x, x), T((4,), "float32"))
    value = np.ones(4, np.float32)
    for _ in range(3):
        f(value).block_until_ready()
    made: list[Any] = []
    shared: Any = staging.shared

    def count(*args: Any) -> Any:
        made.append(args)
        return shared(*args)

    monkeypatch.setattr(staging, "shared", count)
    for _ in range(100):
        np.testing.assert_array_equal(f(value), 2.0)
    assert len(made) < 10


def test_large_arguments_are_not_staged() -> None:
    f = function(lambda x: R.add(x, x), T((1 << 19,), "float32"))
    value = np.ones(1 << 19, np.float32)
    result = f(value)
    value[:] = 5
    np.testing.assert_array_equal(result, 2.0)
    assert f._road.staged is None
