"""Memory made explicit: XLA plans it by itself, so what states it says so when it is lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op, tir
from relax2xla.errors import LegalizeError, OpError
from relax2xla.ir import Expr, ShapeExpr
from tests.op.harness import Case, check, tensor

X = tensor((2, 3))
SHAPE = ShapeExpr([24])
POINTLESS: dict[str, Callable[[], Expr]] = {
    "memory.alloc_storage": lambda: op.memory.alloc_storage(SHAPE, 0, "global", "float32"),
    "memory.alloc_tensor": lambda: op.memory.alloc_tensor(X, 0, ShapeExpr([2, 3]), "float32"),
    "memory.kill_storage": lambda: op.memory.kill_storage(X),
    "memory.kill_tensor": lambda: op.memory.kill_tensor(X),
    "vm.alloc_storage": lambda: op.vm.alloc_storage(SHAPE, 0, "float32"),
    "vm.alloc_tensor": lambda: op.vm.alloc_tensor(X, 0, ShapeExpr([2, 3]), "float32"),
    "vm.kill_object": lambda: op.vm.kill_object(X),
    "vm.call_tir_dyn": lambda: op.vm.call_tir_dyn(rx.GlobalVar("f"), rx.Tuple([X])),
}


@pytest.mark.parametrize("name", sorted(POINTLESS))
def test_what_xla_does_by_itself_is_an_error(name: str) -> None:
    builder = rx.BlockBuilder()
    with builder.function("main", [X], pure=False):
        builder.emit(POINTLESS[name]())
        builder.emit_func_output(X)
    with pytest.raises(LegalizeError, match=rf"relax\.{name} .*XLA plans") as error:
        rx.transform.LegalizeOps()(builder.get())
    assert any("main" in note for note in error.value.__notes__)


N = tir.Var("n")


def test_views() -> None:
    x = np.arange(6, dtype="float32").reshape(2, 3)
    check(
        [
            Case("shape", lambda x: op.memory.view(x, (3, 2)), [x], x.reshape(3, 2)),
            Case("dtype", lambda x: op.memory.view(x, (2, 3), "int32"), [x], x.view("int32")),
            Case("narrow", lambda x: op.memory.view(x, (4, 6), "uint8"), [x],
                 x.view("uint8").reshape(4, 6)),
            Case("wide", lambda x: op.memory.view(x, (3,), "int64"), [x],
                 x.reshape(-1).view("int64")),
            Case("offset", lambda x: op.memory.view(x, (4,), None, 8), [x], x.reshape(-1)[2:]),
            Case("empty", lambda x: op.memory.view(x, (0, 3)), [x], x[:0]),
            Case("zero offset", op.memory.ensure_zero_offset, [x], x),
        ]
    )  # fmt: skip


def test_an_offset_of_symbolic_sizes() -> None:
    x = tensor((N, 3))
    builder = rx.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(op.memory.view(x, (3,), None, (N - 1) * 12))
    data = np.arange(12, dtype="float32").reshape(4, 3)
    last = rx.VirtualMachine(rx.build(builder.get()))["main"](data)
    np.testing.assert_array_equal(last, data[-1])


def test_a_dtype_that_a_variable_holds() -> None:
    x, held = tensor((2, 3)), rx.Var("dtype", rx.ObjectStructInfo())
    made = op.memory.view(x, dtype=held)
    assert made.struct_info == rx.TensorStructInfo((2, 3), "")
    with pytest.raises(OpError, match="must be a dtype known here"):
        op.memory.view(x, dtype=rx.PrimValue(1))
    builder = rx.BlockBuilder()
    with builder.function("main", [x, held]):
        builder.emit_func_output(made)
    with pytest.raises(LegalizeError, match="must be known here"):
        rx.transform.LegalizeOps()(builder.get())


def unknown(ndim: int) -> rx.Var:
    return rx.Var("x", rx.TensorStructInfo(None, "float32", ndim=ndim))


@pytest.mark.parametrize(
    ("source", "view"),
    [
        (X, {"shape": (7,)}),
        (X, {"dtype": "float64"}),
        (X, {"relative_byte_offset": 4}),
        (X, {"relative_byte_offset": -4}),
        (X, {"shape": (2,), "relative_byte_offset": 20}),
        (tensor((4096,), ""), {"shape": (8192,)}),
        (tensor((N,), ""), {"shape": (N + 1,)}),
        (tensor((N, 6)), {"shape": (N + 1, 6)}),
        (tensor((N,)), {"shape": (N // 4 + 1, 4)}),
        (tensor((N,)), {"relative_byte_offset": 16}),
        (tensor((N, 6)), {"shape": (6,), "relative_byte_offset": N * 24}),
        (unknown(-1), {"relative_byte_offset": 16}),
        (unknown(2), {"dtype": "float64"}),
    ],
)
def test_views_that_reach_beyond_their_source(source: Expr, view: dict[str, Any]) -> None:
    with pytest.raises(OpError, match="reaches beyond"):
        op.memory.view(source, **view)


@pytest.mark.parametrize(
    ("source", "view"),
    [
        (tensor((N,)), {"shape": ((N + 3) // 4, 4)}),
        (tensor((N,)), {"shape": (5,)}),
        (tensor((N, 6)), {"shape": (N * 6,), "dtype": "float16"}),
        (tensor((N, 6)), {"shape": (6,), "relative_byte_offset": (N - 1) * 24}),
        (unknown(2), {"dtype": "float16", "relative_byte_offset": 4}),
        (unknown(-1), {"shape": (100,)}),
        (tensor((4,), ""), {"shape": (8,), "dtype": "int8"}),
    ],
)
def test_views_that_may_fit(source: Expr, view: dict[str, Any]) -> None:
    info = op.memory.view(source, **view).struct_info
    assert isinstance(info, rx.TensorStructInfo)
    assert info.ndim == len(view.get("shape", (1, 2)))
