"""Rows in the place of kernels by name: grouped products, and those that users register."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import relax2xla as rx
from relax2xla import op, te, tir
from relax2xla.errors import LegalizeError
from relax2xla.frontend import nn
from relax2xla.frontend.nn.llm.experts import chosen_matmul
from relax2xla.op.intrinsic import call_tir, call_tir_inplace
from relax2xla.script import from_source
from relax2xla.te import functions as f
from relax2xla.tir.kernel.interpret import interpret
from relax2xla.transform.lower.kernel_rows import KernelCall, rows_for

SIZES = [3, 0, 40, 0, 2, 0]
B, K, N, GROUPS = sum(SIZES), 24, 5, len(SIZES)
BOUNDS = np.concatenate([[0], np.cumsum(SIZES)]).astype(np.int32)
X = np.random.default_rng(0).normal(size=(B, K)).astype(np.float32)


def run(name: str, func: tir.PrimFunc, arrays: list[Any], shape: tuple[int, ...]) -> Any:
    builder = rx.BlockBuilder()
    callee = builder.add_func(func, name)
    params = [
        rx.Var(f"p{i}", rx.TensorStructInfo(a.shape, str(a.dtype))) for i, a in enumerate(arrays)
    ]
    with builder.function("main", params):
        call = call_tir(callee, params, rx.TensorStructInfo(shape, "float32"))
        builder.emit_func_output(builder.emit(call))
    ex = rx.build(builder.get())
    return np.asarray(rx.VirtualMachine(ex)["main"](*arrays)), ex.stats()


GEMV = """
@T.prim_func
def main(x: T.Buffer((GIVEN, 7), "float32"), w: T.Buffer((5, 3, 7), "float32"),
         which: T.Buffer((1, 4), "int32"), o: T.Buffer((4, 3), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.y"):
        with T.block("o"):
            e = T.axis.spatial(4, b)
            for i0, j0 in T.grid(3, 7):
                with T.block("gemv"):
                    i, j = T.axis.remap("SR", [i0, j0])
                    with T.init():
                        o[e, i] = T.float32(0)
                    o[e, i] += x[AT, j] * w[which[0, e], i, j]
"""
PACKED_GEMV = """
@T.prim_func
def main(x: T.Buffer((GIVEN, 13), "float32"), w: T.Buffer((5, 3, WORDS), "uint32"),
         s: T.Buffer((5, 3, PARTS), "float32"), which: T.Buffer((1, 4), "int32"),
         o: T.Buffer((4, 3), "float32")):
    for b in T.thread_binding(4, thread="blockIdx.y"):
        with T.block("o"):
            e = T.axis.spatial(4, b)
            y = T.alloc_buffer((3, 13), "float32")
            for i0, j0 in T.grid(3, 13):
                with T.block("dequantize"):
                    i, j = T.axis.remap("SS", [i0, j0])
                    y[i, j] = (T.Cast("float32", T.bitwise_and(T.shift_right(
                        w[which[0, e], i, j // EACH], T.Cast("uint32", j % EACH * BITS)),
                        T.uint32(MASK))) - T.float32(ZERO)) * s[which[0, e], i, j // SIZE]
            for i0, j0 in T.grid(3, 13):
                with T.block("gemv"):
                    i, j = T.axis.remap("SR", [i0, j0])
                    with T.init():
                        o[e, i] = T.float32(0)
                    o[e, i] += x[AT, j] * y[i, j]
"""
BITMASK = """
@T.prim_func
def main(logits: T.Buffer((B, V), "float32"), ids: T.Buffer((S,), "int32"),
         words: T.Buffer((B, (V + 31) // 32), "int32")):
    for o in T.thread_binding((S * V + 15) // 16, thread="blockIdx.x"):
        for i in T.thread_binding(16, thread="threadIdx.x"):
            with T.block("block"):
                s = T.axis.spatial(S, (o * 16 + i) // V)
                v = T.axis.spatial(V, (o * 16 + i) % V)
                T.where(o * 16 + i < S * V)
                logits[ids[s], v] = T.if_then_else(
                    (words[ids[s], v // 32] >> (v % 32)) & 1 == 1,
                    logits[ids[s], v], T.min_value("float32"))
"""


def three_ways(text: str, name: str, arrays: list[Any], place: int | None) -> list[Any]:
    """What a kernel gives by its name, by its loops, and by the interpreter.

    place: the argument that it writes; None: a result like the last of ``arrays``.
    """
    func: Any = from_source("from relax2xla.script import tir as T\n" + text)
    given = arrays if place is not None else arrays[:-1]
    out = arrays[-1 if place is None else place]
    info = rx.TensorStructInfo(out.shape, str(out.dtype))
    made: list[Any] = []
    for called in (name, "by_loops"):
        builder = rx.BlockBuilder()
        params = [
            rx.Var(f"p{i}", rx.TensorStructInfo(a.shape, str(a.dtype))) for i, a in enumerate(given)
        ]
        with builder.function("main", params):
            callee = builder.add_func(func, called)
            if place is None:
                call = call_tir(callee, params, info)
            else:
                call = call_tir_inplace(callee, rx.Tuple(params), [place], info)
            builder.emit_func_output(builder.emit(call))
        ex = rx.build(builder.get())
        (form,) = ex.kernels()
        assert form.by_name == (called == name)
        made.append(np.asarray(rx.VirtualMachine(ex)["main"](*given)))
    copies = [np.array(a) for a in arrays]
    interpret(func, *copies)
    return [*made, copies[-1 if place is None else place]]


@pytest.mark.parametrize(("given", "at"), [(1, "0"), (4, "e")])
def test_one_row_for_each_chosen_expert(given: int, at: str) -> None:
    rng = np.random.default_rng(4)
    x = rng.normal(size=(given, 7)).astype(np.float32)
    w = rng.normal(size=(5, 3, 7)).astype(np.float32)
    which = np.array([[4, 0, 4, 2]], np.int32)  # one twice
    w[[1, 3]] = np.nan  # that nobody chose
    text = GEMV.replace("GIVEN", str(given)).replace("AT", at)
    for got in three_ways(text, "moe_gemv", [x, w, which, np.zeros((4, 3), np.float32)], None):
        np.testing.assert_allclose(
            got, np.einsum("ek,enk->en", np.broadcast_to(x, (4, 7)), w[which[0]]), rtol=1e-4
        )


@pytest.mark.parametrize(("bits", "size", "given", "at"), [(4, 8, 1, "0"), (3, 10, 4, "e")])
def test_one_row_for_each_chosen_packed_expert(bits: int, size: int, given: int, at: str) -> None:
    rng, each, mask = np.random.default_rng(5), 32 // bits, 2**bits - 1
    parts = -(-13 // size)
    words = rng.integers(0, 2**32, (5, 3, -(-size // each) * parts), dtype=np.uint32)
    scale = rng.normal(size=(5, 3, parts)).astype(np.float32)
    x = rng.normal(size=(given, 13)).astype(np.float32)
    which = np.array([[3, 3, 0, 1]], np.int32)
    text = PACKED_GEMV
    numbers = {"GIVEN": given, "AT": at, "WORDS": words.shape[-1], "PARTS": parts, "EACH": each}
    numbers |= {"BITS": bits, "MASK": mask, "ZERO": mask >> 1, "SIZE": size}
    for key, value in numbers.items():
        text = text.replace(key, str(value))
    fields = (words[..., None] >> (np.arange(each, dtype=np.uint32) * bits)) & np.uint32(mask)
    values = fields.reshape(5, 3, -1)[..., :13].astype(np.float32) - (mask >> 1)
    w = values * np.repeat(scale, size, -1)[..., :13]
    want = np.einsum("ek,enk->en", np.broadcast_to(x, (4, 13)), w[which[0]])
    arrays = [x, words, scale, which, np.zeros((4, 3), np.float32)]
    for got in three_ways(text, "moe_dequantize_gemv", arrays, None):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("b", "v", "ids"), [(3, 70, [2, 0, 2]), (1, 32, [0]), (2, 33, [1])])
def test_a_mask_of_bits(b: int, v: int, ids: list[int]) -> None:
    """Also where an id stands twice, and where none names a row."""
    rng = np.random.default_rng(6)
    logits = rng.normal(size=(b, v)).astype(np.float32)
    words = rng.integers(0, 2**32, (b, -(-v // 32)), dtype=np.uint32)
    text = re.sub(r"\(B,", f"({b},", BITMASK)
    for key, value in {"V": v, "S": len(ids)}.items():
        text = re.sub(rf"\b{key}\b", str(value), text)
    bits = (words[..., None] >> np.arange(32, dtype=np.uint32)) & 1
    allowed = bits.reshape(b, -1)[:, :v] == 1
    allowed[[i for i in range(b) if i not in ids]] = True
    want = np.where(allowed, logits, np.finfo(np.float32).min)
    arrays = [logits, np.array(ids, np.int32), words.view(np.int32)]
    for got in three_ways(text, "apply_bitmask_inplace", arrays, 0):
        np.testing.assert_array_equal(got, want)


def stand_in(*shapes: tuple[tuple[int, ...], str], element: Any = None) -> tir.PrimFunc:
    """A kernel of these parameters and the result (B, N), which does not compute it."""
    given = [te.placeholder(s, d, f"p{i}") for i, (s, d) in enumerate(shapes)]
    made = te.compute((B, N), element(given) if element else lambda i, j: given[0][i, 0])
    return te.create_prim_func([*given, made])


def products(weights: Any) -> Any:
    parts = zip(BOUNDS, BOUNDS[1:], weights, strict=False)
    return np.concatenate([X[a:b] @ w.T for a, b, w in parts])


def test_a_grouped_product() -> None:
    w = np.random.default_rng(1).normal(size=(GROUPS, N, K)).astype(np.float32)
    func = stand_in(((B, K), "float32"), (w.shape, "float32"), ((GROUPS + 1,), "int32"))
    got, stats = run("group_gemm1", func, [X, w, BOUNDS], (B, N))
    np.testing.assert_allclose(got, products(w), rtol=1e-4, atol=1e-5)
    assert "kernel group_gemm1: rows by its name" in stats


@pytest.mark.parametrize(("bits", "size"), [(4, 8), (3, 20)])
def test_a_grouped_product_of_packed_weights(bits: int, size: int) -> None:
    rng, each = np.random.default_rng(2), 32 // bits
    parts = -(-K // size)
    words = rng.integers(0, 2**32, (GROUPS, N, -(-size // each) * parts), dtype=np.uint32)
    scale = rng.normal(size=(GROUPS, N, parts)).astype(np.float32)
    mask = 2**bits - 1

    def element(given: list[Any]) -> Any:
        def one(i: Any, j: Any) -> Any:
            field = f.bitwise_and(given[1][0, 0, j // each], tir.const(mask, "uint32"))
            return field.astype("float32") * given[2][0, 0, j // size]

        return one

    shapes = [(B, K), words.shape, scale.shape, BOUNDS.shape]
    dtypes = ["float32", "uint32", "float32", "int32"]
    func = stand_in(*zip(shapes, dtypes, strict=True), element=element)
    got, _ = run("dequantize_group_gemm", func, [X, words, scale, BOUNDS], (B, N))
    fields = (words[..., None] >> (np.arange(each, dtype=np.uint32) * bits)) & np.uint32(mask)
    values = fields.reshape(GROUPS, N, -1)[..., :K].astype(np.float32) - (mask >> 1)
    spread = np.repeat(scale, size, -1)[..., :K]
    np.testing.assert_allclose(got, products(values * spread), rtol=1e-4, atol=1e-4)


def test_a_kernel_of_that_name_with_other_arguments_is_lowered_by_its_loops() -> None:
    func = stand_in(((B, K), "float32"), ((4,), "float32"))
    got, _ = run("group_gemm", func, [X, np.zeros(4, np.float32)], (B, N))
    np.testing.assert_array_equal(got, np.repeat(X[:, :1], N, 1))


@pytest.mark.parametrize(("rows", "same"), [(1, True), (3, False), (40, False)])
def test_weights_that_rows_choose(rows: int, same: bool) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(size=(rows, 1 if same else 2, K)).astype(np.float32)
    w = rng.normal(size=(GROUPS, N, K)).astype(np.float32)
    which = rng.integers(0, GROUPS, (rows, 2)).astype(np.int32)
    w[[g for g in range(GROUPS) if g not in which]] = np.nan  # that nobody chose

    class Model(nn.Module):
        def forward(self, x: nn.Tensor, w: nn.Tensor, which: nn.Tensor) -> nn.Tensor:
            return chosen_matmul(x, w, which)

    infos = {
        "x": nn.spec.Tensor(["b", x.shape[1], K], "float32"),
        "w": nn.spec.Tensor([GROUPS, N, K], "float32"),
        "which": nn.spec.Tensor(["b", 2], "int32"),
    }
    mod = Model().export_tvm({"forward": infos})[0]
    got = np.asarray(rx.VirtualMachine(rx.build(mod))["forward"](x, w, which))
    want = np.einsum("bsk,bsnk->bsn", np.broadcast_to(x, (rows, 2, K)), w[which])
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_rows_of_a_user() -> None:
    name = "test_kernel_rows_sum"
    assert rows_for(name) is None

    @rx.register_kernel_rows(name)
    def _(call: KernelCall) -> Any:
        assert call.shapes == [(B, K), (B, N)]
        return [op.add(call.tensors[1], call.tensors[1])]

    func = stand_in(((B, K), "float32"), ((B, N), "float32"))
    y = np.ones((B, N), np.float32)
    got, _ = run(f"{name}_3", func, [X, y], (B, N))
    np.testing.assert_array_equal(got, 2 * y)
    with pytest.raises(ValueError, match="pass override=True"):
        rx.register_kernel_rows(name, lambda call: None)
    rx.register_kernel_rows(name, lambda call: [call.tensors[0]], override=True)
    with pytest.raises(LegalizeError, match=r"give \[\(\(45, 24\), 'float32'\)\]"):
        run(name, func, [X, y], (B, N))


def test_the_largest_of_rows() -> None:
    x = np.random.default_rng(3).integers(-4, 4, (7, 6)).astype(np.float32)  # with equal ones
    order = np.argsort(-x, axis=1, kind="stable")[:, :2]
    values = np.take_along_axis(x, order, 1)
    infos = [rx.TensorStructInfo((7, 2), d) for d in ("float32", "int32")]
    given = te.placeholder((7, 6), "float32", "x")
    parts = [
        te.compute((7, 2), lambda i, j: given[i, j]),
        te.compute((7, 2), lambda i, j: given[i, j].astype("int32")),
    ]
    func = te.create_prim_func([given, *parts])
    builder = rx.BlockBuilder()
    callees = [
        builder.add_func(func.with_attr("name", name), name) for name in ("top2", "top2_softmax1")
    ]
    param = rx.Var("x", rx.TensorStructInfo(x.shape, "float32"))
    with builder.function("main", [param]):
        calls = [builder.emit(call_tir(c, [param], infos)) for c in callees]
        builder.emit_func_output(builder.emit(rx.Tuple(calls)))
    plain, shares = rx.VirtualMachine(rx.build(builder.get()))["main"](x)
    np.testing.assert_array_equal(plain[0], values)
    for made in (plain, shares):
        np.testing.assert_array_equal(made[1], order)
    powers = np.exp(values - values[:, :1])
    np.testing.assert_allclose(shares[0], powers / powers.sum(1, keepdims=True), rtol=1e-6)
