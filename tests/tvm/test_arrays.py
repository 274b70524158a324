"""Arrays of ``tvm.nd``: views over their memory, and arrays of other libraries."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from relax2xla.errors import UnsupportedError
from relax2xla.ir import Function, IRModule
from relax2xla.script import from_source
from relax2xla.tvm.frontend import detach_params
from relax2xla.tvm.runtime.arrays import HostArray, array, empty, from_dlpack
from relax2xla.tvm.runtime.containers import DataType
from relax2xla.tvm.runtime.rpc import connect_tracker
from relax2xla.tvm.testing.topi import strided_slice_python


def test_views() -> None:
    memory: Any = empty((64,), "int32")
    view = memory._create_view([2, 4], "int32", 64)._create_view([4], "int16", 8)
    assert isinstance(view, HostArray)
    assert (view.shape, view.dtype, view.byte_offset) == ((4,), np.int16, 72)
    view[:] = 1
    assert memory.numpy().tolist() == [0] * 18 + [0x10001] * 2 + [0] * 44
    with pytest.raises(ValueError, match="bytes 252 to 260 of an array of 256"):
        memory._create_view([2], "int32", 252)
    with pytest.raises(ValueError, match="only a contiguous array"):
        memory[::2]._create_view([2])


def test_equal_is_the_same_array() -> None:
    x, y = array([1.0, 2.0]), array([1.0, 2.0])
    assert x == x
    assert x != y
    assert x != jnp.array([1.0, 2.0])
    assert len({x, y, x}) == 2
    np.testing.assert_array_equal(x == np.array([1.0, 3.0]), [True, False])
    np.testing.assert_allclose(x, np.array([1.0, 2.0]))
    assert type(x + y) is np.ndarray


def test_arrays_of_other_libraries() -> None:
    x = np.arange(6.0).reshape(2, 3)
    made = from_dlpack(x.T, require_alignment=4)
    assert made.strides == x.T.strides
    assert np.shares_memory(made, x)
    with pytest.raises(ValueError, match="not contiguous"):
        from_dlpack(x.T, require_contiguous=True)
    with pytest.raises(ValueError, match="not aligned to 1048576 bytes"):
        from_dlpack(x.reshape(-1)[1:], require_alignment=1 << 20)


def test_a_capsule_of_another_library() -> None:
    x = np.arange(6.0).reshape(2, 3)
    capsule = x.T.__dlpack__()
    made = from_dlpack(capsule)
    assert made.strides == x.T.strides
    assert np.shares_memory(made, x)
    with pytest.raises(ValueError, match="PyCapsule"):
        from_dlpack(capsule)  # Whoever takes the memory takes it once.


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("float32", 4), ("float32x4", 16), ("float8_e5m2x4", 4), ("uint8", 1), ("bool", 1)),
        *(("int4x3", 2), ("float4_e2m1fn", 1), ("int3x8", 3)),
    ],
)
def test_bytes_of_a_dtype(name: str, size: int) -> None:
    assert DataType(name).itemsize() == size


def test_a_vector_of_unknown_length_has_no_dtype() -> None:
    with pytest.raises(ValueError, match="int32xvscalex4 is a vector whose length"):
        DataType("int32xvscalex4")


def test_a_function_that_is_only_there_to_be_imported() -> None:
    with pytest.raises(UnsupportedError, match=r"tvm\.rpc\.connect_tracker: there are no remote"):
        connect_tracker("localhost", 9090)


def test_slices_by_numpy() -> None:
    x = np.arange(60).reshape(3, 4, 5)
    cases: tuple[tuple[Any, dict[str, Any], Any], ...] = (
        (([0, 3], [3, 0], [2, -1]), {}, x[0:3:2, 3:0:-1]),
        (([1, 2], [2, -1], 1), {"slice_mode": "size", "axes": (1, 2)}, x[:, 1:3, 2:]),
    )
    for given, options, expected in cases:
        np.testing.assert_array_equal(strided_slice_python(x, *given, **options), expected)


def test_detached_weights_are_arrays_of_programs() -> None:
    mod = from_source(
        "@R.function\ndef main(x: R.Tensor((2,), 'float32'), w: R.Tensor((2,), 'float32')):\n"
        "    return R.add(x, w)\n"
    )
    assert isinstance(mod, Function)
    weight = np.ones(2, "float32")
    whole = IRModule({"main": mod.with_attrs({"num_input": 1, "params": [weight]})})
    made, params = detach_params(whole)
    assert "params" not in made["main"].attrs
    np.testing.assert_array_equal(params["main"][0].numpy(), weight)
