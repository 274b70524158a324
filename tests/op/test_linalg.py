"""Matrix products: values against numpy and torch, struct info, errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relax2xla import op, tir
from relax2xla.errors import OpError
from relax2xla.ir import Call, Op, TensorStructInfo, Var
from tests.op.nn.support import Batch

N, M = tir.Var("n", "int64"), tir.Var("m", "int64")

MATMULS = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (1, 4, 5)),
    ((4,), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((1, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)),
    ((6, 3, 4), (2, 1, 4, 5)),
    ((3, 4), (1, 1, 4, 5)),
    ((0, 3, 4), (4, 5)),
    ((2, 3, 0), (0, 5)),
]

EINSUMS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("bij,kj->bik", (2, 3, 4), (5, 4)),
    ("bhqd,bkhd->bhqk", (2, 3, 4, 5), (2, 6, 3, 5)),
    ("i,j->ij", (3,), (4,)),
    ("i,i->", (3,), (3,)),
    ("i,i->i", (3,), (3,)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->j", (3, 4)),
    ("ba", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("iij,jk->ik", (3, 3, 4), (4, 5)),
    ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
    ("...ij,...jk->...ik", (2, 1, 3, 4), (6, 4, 5)),
    ("...ij->...ji", (2, 3, 4)),
    ("i...,i...", (3, 2), (3, 2)),
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 6)),
    ("ij,jk,ik,l->l", (3, 4), (4, 5), (3, 5), (2,)),
    ("bij,bjk->bik", (1, 3, 4), (2, 4, 5)),
    ("ij,kl->", (2, 3), (4, 5)),
    ("aij,jk->ik", (2, 3, 4), (4, 5)),
    (" i j , j k -> k i ", (3, 4), (4, 5)),
    (",ij->ij", (), (3, 4)),
    ("b,b,b->b", (3,), (3,), (3,)),
]


def random(*shape: int, dtype: str = "float32") -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(dtype)


def test_matmul() -> None:
    batch = Batch()
    for a, b in MATMULS:
        x, y = random(*a), random(*b)
        made = op.matmul(batch.var(x), batch.var(y))
        batch.add(f"{a} {b}", made, np.asarray(np.matmul(x, y)), 1e-5)
    batch.check()


def test_dtypes() -> None:
    batch = Batch()
    for dtype, tol in (("float64", 1e-12), ("complex64", 1e-5), ("int64", 0), ("uint8", 0)):
        x, y = (10 * random(3, 4)).astype(dtype), (10 * random(4, 5)).astype(dtype)
        batch.add(dtype, op.matmul(batch.var(x), batch.var(y)), x @ y, tol)
    big = np.array([[2**62 + 1, 3]], np.int64)
    batch.add("int64", op.matmul(batch.var(big), batch.var(big.T // 2**60)), big @ (big.T // 2**60))
    for dtype in (torch.float16, torch.bfloat16):
        # A running sum in the narrow dtype would stop at 2048 or 256.
        ones = torch.ones(2, 4096, dtype=dtype)
        want = torch.full((2, 2), 4096, dtype=dtype)
        batch.add(f"{dtype}", op.matmul(batch.var(ones), batch.var(ones.T)), want, 0)
        made = op.einsum((batch.var(ones), batch.var(ones)), "ij,kj->ik")
        batch.add(f"einsum {dtype}", made, want, 0)
    x, y = random(3, 4, dtype="float16"), random(4, 5, dtype="float16")
    made = op.matmul(batch.var(x), batch.var(y), out_dtype="float32")
    batch.add("wider", made, x.astype("f") @ y.astype("f"), 1e-5)
    made = op.matmul(batch.var(x.astype("f")), batch.var(y.astype("f")), out_dtype="float16")
    batch.add("narrower", made, (x.astype("f") @ y.astype("f")).astype("float16"), 2e-3)
    i = np.arange(-6, 6, dtype=np.int8).reshape(3, 4) * 20
    made = op.matmul(batch.var(i), batch.var(i.T.copy()), out_dtype="int32")
    batch.add("int8", made, i.astype(np.int32) @ i.T.astype(np.int32))
    made = op.matmul(batch.var(i), batch.var(np.uint8(i.T.astype(np.uint8))), out_dtype="int32")
    batch.add("mixed", made, i.astype(np.int32) @ i.T.astype(np.uint8).astype(np.int32))
    batch.check()


def test_linear_and_outer() -> None:
    batch = Batch()
    x, w, b = (torch.tensor(random(*s)) for s in ((2, 3, 4), (5, 4), (5,)))
    vx, vw, vb = map(batch.var, (x, w, b))
    batch.add("linear", op.linear(vx, vw, vb), F.linear(x, w, b))
    batch.add("no bias", op.linear(vx, vw), F.linear(x, w))
    batch.add("vector", op.linear(vx, batch.var(w[0])), x @ w[0])
    batch.add("outer", op.outer(vb, batch.var(w[0])), torch.outer(b, w[0]))
    batch.check()
    built = op.linear(vx, vw, vb)
    assert built.op is Op.get("relax.add")
    product = built.args[0]
    assert isinstance(product, Call)
    assert product.op is Op.get("relax.matmul")
    assert isinstance(product.args[1], Call)
    assert product.args[1].op is Op.get("relax.permute_dims")


def test_einsum() -> None:
    batch = Batch()
    for subscripts, *shapes in EINSUMS:
        values = [random(*s) for s in shapes]
        made = op.einsum([batch.var(v) for v in values], subscripts)
        batch.add(subscripts, made, np.asarray(np.einsum(subscripts, *values)), 1e-4)
    v = (10 * random(3, 4)).astype("int64")
    batch.add("int64", op.einsum((batch.var(v), batch.var(v)), "ij,ij->i"), (v * v).sum(1))
    batch.check()


def tensor(*shape: Any, dtype: str = "float32") -> Var:
    return Var("x", TensorStructInfo(shape, dtype))


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [  # TVM 0.25 infers the same (recorded)
        ((2, 3, 4), (4, 5), TensorStructInfo((2, 3, 5), "float32")),
        ((4,), (4,), TensorStructInfo((), "float32")),
        ((N, 3, 4), (M, 4, 5), TensorStructInfo(None, "float32", ndim=3)),
        ((N, 3, 4), (1, 4, 5), TensorStructInfo((N, 3, 5), "float32")),
        ((N, 3, M), (4, 5), TensorStructInfo((N, 3, 5), "float32")),
        ((4,), (N, 4, M), TensorStructInfo((N, M), "float32")),
    ],
)
def test_matmul_struct_info(a: Any, b: Any, want: TensorStructInfo) -> None:
    assert op.matmul(tensor(*a), tensor(*b)).struct_info == want


def test_unknown_shapes() -> None:
    some, any_ = Var("x", TensorStructInfo(ndim=3)), Var("x", TensorStructInfo())
    assert op.matmul(some, tensor(4, 5)).struct_info == TensorStructInfo(ndim=3)
    assert op.matmul(any_, tensor(4, 5)).struct_info == TensorStructInfo()
    assert op.outer(Var("x", TensorStructInfo(ndim=1)), tensor(4)).struct_info.ndim == 2
    assert op.einsum((some, tensor(4, 5)), "bij,jk->bik").struct_info == TensorStructInfo(ndim=3)
    assert op.einsum((any_, tensor(4, 5)), "bij,jk->bik").struct_info == TensorStructInfo()
    made = op.einsum((tensor(N, 3, 4), tensor(5, 4)), "bij,kj->bik")
    assert made.struct_info == TensorStructInfo((N, 3, 5), "float32")
    made = op.einsum((tensor(N, 3), tensor(M, 3)), "...i,...i->...")
    assert made.struct_info == TensorStructInfo(ndim=1)


X = tensor(3, 4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: op.matmul(X, tensor(5, 6)),
            r"the last axis of `x1` .*\(3, 4\).* has size 4, .* 5",
        ),
        (lambda: op.matmul(X, tensor()), "`x2` must not be a scalar"),
        (lambda: op.matmul(tensor(2, 3, 4), tensor(3, 4, 5)), "the batch axes .* cannot be broad"),
        (lambda: op.matmul(X, tensor(4, 5, dtype="float16")), "must have one dtype"),
        (lambda: op.matmul(X, tensor(4, 5, dtype="bool")), "`x2` must be one of"),
        (lambda: op.matmul(X, tensor(4, 5), out_dtype="float31"), "parameter `out_dtype`"),
        (lambda: op.outer(X, tensor(4)), "`x1` must have rank 1"),
        (lambda: op.outer(tensor(3), tensor(4, dtype="int32")), "must have one dtype"),
        (lambda: op.einsum((X,), "ij,jk->ik"), "name 2 operands; got 1"),
        (lambda: op.einsum((X,), "ijk->i"), "'ijk' does not fit an operand of rank 2"),
        (lambda: op.einsum((X,), "ij->k"), "'k' of the result is in no operand"),
        (lambda: op.einsum((X,), "ij->ii"), "names an axis twice"),
        (lambda: op.einsum((X,), "i1->i"), "'1' is no axis"),
        (lambda: op.einsum((X,), "ii->i"), "axis 'i' has size 3 in one operand and 4"),
        (lambda: op.einsum((X,), "...j->j"), "the result needs '...'"),
        (lambda: op.einsum((X, tensor(5, 2)), "ij,jk->ik"), "axis 'j' has size 4 .* and 5"),
        (lambda: op.einsum((X, tensor(4, 2, dtype="int32")), "ij,jk->ik"), "must have one dtype"),
        (lambda: op.einsum(X, "ij->i"), "`operands` must be a tuple"),
        (lambda: op.einsum((), "->"), "name 1 operands; got 0"),
    ],
)
def test_errors(call: Any, message: str) -> None:
    with pytest.raises(OpError, match=message):
        call()
