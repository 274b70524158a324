"""Estimates of memory."""

from __future__ import annotations

from relax2xla import op, tir
from relax2xla.analysis import estimate_memory_usage
from relax2xla.builder import BlockBuilder
from relax2xla.ir import IRModule, TensorStructInfo, Var

MIB = 2**20


def test_a_chain_needs_two_tensors_at_once() -> None:
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((MIB // 4, 256)))  # 256 MiB
    with bb.function("main", [x]):
        y = x
        for _ in range(8):
            y = bb.emit(op.sin(y))
            t = bb.emit((y, x))
            y = bb.emit(t[0])
        bb.emit_func_output(y)
    text = estimate_memory_usage(bb.get())
    assert text == estimate_memory_usage(bb.get()["main"])
    assert "there are 8 constant-size memory allocation(s) with total size 2.0 GB" in text
    assert "at most 0.5 GB are in use at once" in text
    assert "reduces constant memory size to 25.0%" in text


def test_sizes() -> None:
    bb, x = BlockBuilder(), Var("x", TensorStructInfo((tir.Var("n"), 4)))
    with bb.function("main", [x]):
        y = bb.emit(op.zeros((2**30,), "int8"))
        z = bb.emit(op.zeros((2**30,), "int4"))
        bb.emit_func_output((bb.emit(op.sin(x)), y, z))
    text = estimate_memory_usage(bb.get())
    assert "total size 1.5 GB" in text
    assert "1 tensor(s) have shapes that are known at run time only" in text
    assert estimate_memory_usage(IRModule()) == ""
