"""Fields of tensors as scalars, in programs, in Python and in TVMScript, against numpy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import relax2xla as rx
from relax2xla.errors import DiagnosticError
from relax2xla.script import from_source

HEAD = "from tvm.script import ir as I, relax as R, tir as T\n@I.ir_module\nclass M:\n"
# A tensor of which nothing is known, one of known dtype and rank, and one that is known.
TENSORS = ("R.Tensor", 'R.Tensor(ndim=2, dtype="float16")', 'R.Tensor((2, "n"), dtype="float16")')
X = np.zeros((2, 3), np.float16)


@pytest.mark.parametrize("tensor", TENSORS)
def test_fields_in_a_program(tensor: str) -> None:
    text = f"""{HEAD}
    @R.function
    def main(A: {tensor}, axis: R.Prim("int64")):
        code = A.dtype.type_code
        bits = A.dtype.bits
        rank = A.ndim
        size = A.shape[axis]
        first = A.shape[0]
        step = A.strides[axis]
        return (code, bits, A.dtype.lanes, rank, size, first, step, A.byte_offset, A.elem_offset)
"""
    mod = from_source(text)
    assert isinstance(mod, rx.IRModule)
    rx.ir.assert_structural_equal(from_source(mod.script(show_meta=True)), mod)
    machine = rx.VirtualMachine(rx.build(mod))
    for axis in (0, 1):
        got = machine["main"](X, axis)
        steps = X.strides[axis] // X.itemsize
        assert tuple(got) == (2, 16, 1, 2, X.shape[axis], 2, steps, 0, 0)


def test_fields_in_python() -> None:
    x = rx.Var("x", rx.TensorStructInfo((2, 3), "float16"))
    known: dict[str, tuple[Any, int]] = {
        "relax.inspect.tensor_dtype_bits": (x.dtype.bits, 16),
        "relax.inspect.tensor_dtype_code": (x.dtype.type_code, 2),
        "relax.inspect.tensor_dtype_lanes": (x.dtype.lanes, 1),
        "relax.inspect.tensor_ndim": (x.ndim, 2),
        "relax.inspect.tensor_shape_i": (x.shape[1], 3),
        "relax.inspect.tensor_stride_i": (x.strides[0], 3),
        "relax.inspect.tensor_byte_offset": (x.byte_offset, 0),
        "relax.inspect.tensor_elem_offset": (x.elem_offset, 0),
    }
    for name, (call, value) in known.items():
        assert (call.op.name, call.struct_info.value.value) == (name, value)


def test_codes_are_those_of_tvm() -> None:
    codes = {"bool": 1, "int4": 0, "uint8": 1, "bfloat16": 4, "float8_e4m3fn": 6, "complex64": 5}
    for dtype, code in codes.items():
        x = rx.Var("x", rx.TensorStructInfo((2,), dtype))
        assert x.dtype.type_code.struct_info.value.value == code


def test_what_has_no_such_field() -> None:
    x = rx.Var("x", rx.TensorStructInfo((2, 3), "float16"))
    shape = rx.Var("s", rx.ShapeStructInfo(ndim=2))
    assert not hasattr(shape, "ndim")
    with pytest.raises(AttributeError, match="only a tensor has `shape`"):
        shape.shape[0]
    with pytest.raises(TypeError, match="cannot be iterated"):
        list(x.shape)
    for index, message in (("a", "must be an integer; got str"), (x, "must be R.Prim")):
        with pytest.raises(TypeError, match=message):
            x.shape[index]


def test_what_has_no_such_field_in_text() -> None:
    text = f"""{HEAD}
    @R.function
    def main(s: R.Shape(ndim=2)):
        return s.strides
"""
    with pytest.raises(DiagnosticError, match="no attribute 'strides'"):
        from_source(text)


class Shifted(np.ndarray[Any, Any]):
    """An array that says where its data starts in its memory, as views of tvm's arrays do."""

    byte_offset = 12


def test_layout_is_that_of_the_caller_s_array() -> None:
    text = f"""{HEAD}
    @R.function
    def main(A: R.Tensor("int32"), B: R.Tensor((3, 2), "int32")):
        return (A.strides[0], A.strides[1], A.byte_offset, A.elem_offset, B.strides[0], A)
"""
    mod = from_source(text)
    assert isinstance(mod, rx.IRModule)
    machine = rx.VirtualMachine(rx.build(mod))
    rows = np.arange(6, dtype=np.int32).reshape(2, 3)
    for given, layout in (
        (rows, (3, 1, 0, 0)),
        (rows.T, (1, 3, 0, 0)),
        (rows[:, ::2], (3, 2, 0, 0)),
        (rows.view(Shifted), (3, 1, 12, 3)),
        (jax.device_put(rows.T), (2, 1, 0, 0)),
    ):
        *got, array = machine["main"](given, rows.T)
        # Inference takes a tensor of known sizes to be row-major, as TVM's does.
        assert tuple(got) == (*layout, 2)
        np.testing.assert_array_equal(array, np.asarray(given))
