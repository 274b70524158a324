"""Operators on the host against numpy, and the registry that others extend."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import relax2xla as rx
from relax2xla import op as R
from relax2xla.errors import CallError
from relax2xla.vm.host import operators as host_room
from relax2xla.vm.host.operators import HOST, host


def run(body: Any, *values: Any, known: bool = True) -> Any:
    """``body`` of parameters that fit ``values``, run by the machine."""
    arrays = [np.asarray(v) for v in values]
    params = [
        rx.Var(f"x{i}", rx.TensorStructInfo(a.shape if known else None, a.dtype.name))
        for i, a in enumerate(arrays)
    ]
    builder = rx.BlockBuilder()
    with builder.function("main", params):
        builder.emit_func_output(builder.emit(body(*params)))
    result = rx.VirtualMachine(rx.build(builder.get()))["main"](*arrays)
    return tuple(map(np.asarray, result)) if isinstance(result, tuple) else np.asarray(result)


@pytest.mark.parametrize(
    "x",
    [
        np.array([[0, 1], [2, 0]], np.int64),
        np.array([0.0, -0.0, np.nan, 1.5]),
        np.array([True, False]),
        np.zeros((0, 3), np.float32),
        np.float32(3),
        np.float32(0),
    ],
    ids=["int64", "nan", "bool", "empty", "scalar", "zero"],
)
@pytest.mark.parametrize("known", [True, False])
def test_nonzero(x: Any, known: bool) -> None:
    expected = np.stack(np.nonzero(np.atleast_1d(x))).astype(np.int64)
    got = run(R.nonzero, x, known=known)
    assert got.dtype == np.int64
    np.testing.assert_array_equal(got, expected)


@settings(max_examples=20, deadline=None)
@given(
    st.lists(st.integers(-3, 3), max_size=12),
    st.sampled_from([None, 0, -1, 1]),
    st.booleans(),
)
def test_unique_gives_the_array_back(values: list[int], axis: int | None, ordered: bool) -> None:
    x = np.array(values, np.int32).reshape(-1, 2 if len(values) % 2 == 0 else 1)
    found, index, inverse, counts = host_room.unique(
        x, sorted=ordered, return_index=1, return_inverse=1, return_counts=1, axis=axis
    )
    flat = x if axis is not None else x.reshape(-1)
    along = axis or 0
    np.testing.assert_array_equal(np.take(flat, index, along), found)
    np.testing.assert_array_equal(np.take(found, inverse, along), flat)
    assert counts.sum() == flat.shape[along]
    if not ordered:
        assert (np.diff(index) > 0).all()
    np.testing.assert_array_equal(np.unique(found, axis=axis), np.unique(x, axis=axis))


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float64", "bool"])
def test_unique_keeps_dtypes(dtype: str) -> None:
    x = np.array([1, 0, 1, 0, 0]).astype(dtype)
    values, inverse, counts = run(lambda v: R.unique(v, return_inverse=True, return_counts=True), x)
    assert (values.dtype, inverse.dtype, counts.dtype) == (x.dtype, np.int64, np.int64)
    expected = np.unique(x, return_inverse=True, return_counts=True)
    for got, e in zip((values, inverse, counts), expected, strict=True):
        np.testing.assert_array_equal(got, e)


BOUNDS = st.integers(-7, 7)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(BOUNDS, BOUNDS, BOUNDS.filter(bool)), min_size=2, max_size=2))
def test_dynamic_strided_slice_is_as_with_constants(parts: list[tuple[int, int, int]]) -> None:
    """The rule of the lowering for bounds that are constants: a Python slice of each axis."""
    x = np.arange(20).reshape(5, 4)
    begin, end, strides = (np.array(c) for c in zip(*parts, strict=True))
    expected = x[tuple(slice(b, e, s) for b, e, s in parts)]
    got = host_room.dynamic_strided_slice(x, begin, end, strides)
    np.testing.assert_array_equal(got, expected)


def test_dynamic_strided_slice_runs() -> None:
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    bounds = [np.array(v) for v in ([4, 0], [-6, 3], [-2, 2])]
    np.testing.assert_array_equal(run(R.dynamic_strided_slice, x, *bounds), x[4::-2, 0:3:2])
    with pytest.raises(CallError, match="a stride must not be 0"):
        run(R.dynamic_strided_slice, x, *bounds[:2], np.array([0, 1]))


@pytest.mark.parametrize("declared", [True, False])
def test_dynamic_strided_slice_of_constants_runs(declared: bool) -> None:
    x = rx.Var("x", rx.TensorStructInfo((5, 4), "float32"))
    bounds = [rx.const(np.array(v)) for v in ([4, 0], [-6, 3], [-2, 2])]
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        y = R.dynamic_strided_slice(x, *bounds)
        if declared:  # as TVM's text does, which knows the rank alone
            y = builder.match_cast(y, rx.TensorStructInfo(None, "float32", ndim=2))
        builder.emit_func_output(builder.emit(R.negative(y)))
    given = np.arange(20, dtype=np.float32).reshape(5, 4)
    found = rx.VirtualMachine(rx.build(builder.get()))["main"](given)
    np.testing.assert_array_equal(found, -given[4::-2, 0:3:2])


def test_properties_need_no_region() -> None:
    x = rx.Var("x", rx.TensorStructInfo(None, "float32"))
    builder = rx.BlockBuilder()
    inspect = rx.op.inspect
    with builder.function("main", [x]):
        parts = [
            builder.emit(inspect.tensor_ndim(x)),
            builder.emit(inspect.tensor_shape_i(x, 1)),
            builder.emit(inspect.tensor_stride_i(x, 0)),
            builder.emit(inspect.tensor_dtype_bits(x)),
            builder.emit(R.shape_of(x)),
            builder.emit(R.call_pure_packed("host.none", x, sinfo_args=rx.ObjectStructInfo())),
        ]
        builder.emit_func_output(rx.Tuple(parts))
    rx.register_func("host.none", lambda v: None, override=True)
    ex = rx.build(builder.get())
    assert not ex.regions
    vm = rx.VirtualMachine(ex)
    assert vm["main"](np.zeros((2, 3), "f")) == (2, 3, 3, 32, (2, 3), None)


@pytest.fixture
def registered() -> Iterator[None]:
    before = set(HOST)
    yield
    for name in set(HOST) - before:
        del HOST[name]


@pytest.mark.usefixtures("registered")
def test_operators_of_others() -> None:
    @host("relax.flip", applies=lambda call: call.attrs["axis"] == 0)
    def flip(data: np.ndarray[Any, Any], axis: int) -> np.ndarray[Any, Any]:
        assert isinstance(data, np.ndarray)
        assert axis == 0
        return data[::-1] + 100

    x = np.arange(4).reshape(2, 2)
    np.testing.assert_array_equal(run(lambda v: R.flip(v, axis=0), x), x[::-1] + 100)
    np.testing.assert_array_equal(run(lambda v: R.flip(v, axis=1), x), x[:, ::-1])
    with pytest.raises(RuntimeError, match=r"relax.flip already has"):
        host("relax.flip")(flip)


def test_random_keys_follow_the_seed_of_numpy() -> None:
    state = np.random.get_state()
    np.random.seed(3)
    keys = [run(lambda: R.random_key("a")) for _ in range(2)]
    np.random.seed(3)
    want = [np.random.randint(0, 1 << 63, 1, np.uint64) for _ in keys]
    np.random.set_state(state)
    np.testing.assert_array_equal(keys, want)
    assert keys[0] != keys[1]
    assert keys[0].dtype == np.uint64
