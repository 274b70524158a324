"""Products of matrices, vectors and three operands, with what is added to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import is_integer
from relax2xla.importers.torch.engine.context import (
    NARROW,
    Context,
    broadcast,
    dtype_of,
    ndim_of,
    scalar,
    stated_dtype,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr


def product(a: Expr, b: Expr) -> Expr:
    """The product of matrices, with the dtype that it is summed up in as TVM's importer says it."""
    return R.matmul(a, b, stated_dtype(a))


@aten("matmul", "mm", "bmm", "mv", "dot", "inner")
def matmul(
    ctx: Context,
    self: Expr,
    other: Any = None,
    mat2: Any = None,
    vec: Any = None,
    tensor: Any = None,
) -> Expr:
    right = next(v for v in (other, mat2, vec, tensor) if v is not None)
    return product(self, right)


@aten("linear")
def linear(ctx: Context, input: Expr, weight: Expr, bias: Expr | None = None) -> Expr:
    right = weight if ndim_of(weight) == 1 else R.permute_dims(weight)
    if bias is None:
        return product(input, right)
    dtype = dtype_of(input)
    if dtype not in NARROW:
        return R.add(product(input, right), bias)
    wide = R.matmul(input, right, "float32")
    return ctx.cast(R.add(wide, ctx.cast(bias, "float32")), dtype)


def _scale(x: Expr, factor: Any) -> Expr:
    return x if factor == 1 else R.multiply(x, scalar(factor, dtype_of(x)))


@aten("addmm", "addmv", "baddbmm", "_sparse_addmm")
def addmm(
    ctx: Context,
    self: Expr,
    mat1: Any = None,
    mat: Any = None,
    batch1: Any = None,
    mat2: Any = None,
    vec: Any = None,
    batch2: Any = None,
    beta: Any = 1,
    alpha: Any = 1,
) -> Expr:
    left, right = (x for x in (mat1, mat, batch1, mat2, vec, batch2) if x is not None)
    narrow = dtype_of(left) in NARROW
    if narrow:
        raw = R.matmul(left, right, "float32")
    else:
        raw = R.matmul(left, right) if batch1 is not None else product(left, right)
    added = ctx.emit(_scale(ctx.emit(raw), alpha))
    dtype = dtype_of(self)
    self = ctx.cast(self, dtype_of(added))
    # With beta 0 torch does not read `self`, whose NaN must not spread.
    if beta == 0:
        return ctx.cast(broadcast(added, ctx.dims()), dtype)
    terms = (_scale(self, beta), added)
    return ctx.cast(R.add(*(reversed(terms) if batch1 is not None else terms)), dtype)


@aten("outer", "ger")
def outer(ctx: Context, self: Expr, vec2: Expr) -> Expr:
    a, b = ctx.promote(self, vec2, dtype=ctx.dtype())
    return R.outer(a, b)


@aten("einsum")
def einsum(ctx: Context, equation: str, tensors: Sequence[Expr]) -> Expr:
    """``path`` only says in which order torch would multiply; R.einsum chooses by itself."""
    return R.einsum(list(tensors), equation.replace(" ", ""))


@aten("_trilinear", ignored="unroll_dim", wide=True)
def trilinear(
    ctx: Context,
    i1: Expr,
    i2: Expr,
    i3: Expr,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
) -> Expr:
    """Each operand gets new axes; their product is summed. ``unroll_dim`` is about speed."""
    ops = [
        R.expand_dims(x, sorted(e)) if e else x
        for x, e in ((i1, expand1), (i2, expand2), (i3, expand3))
    ]
    whole = ctx.emit(R.multiply(R.multiply(ops[0], ops[1]), ops[2]))
    return R.sum(whole, [a % ndim_of(whole) for a in sumdim])


@aten("addbmm")
def addbmm(
    ctx: Context, self: Expr, batch1: Expr, batch2: Expr, beta: Any = 1, alpha: Any = 1
) -> Expr:
    total = R.sum(R.matmul(batch1, batch2), [0])
    dtype = dtype_of(total)
    if is_integer(dtype):
        alpha, beta = int(alpha), int(beta)  # torch cuts the fractions off here, and only here
    if alpha != 1:
        total = R.multiply(total, scalar(alpha, dtype))
    # With beta 0 torch does not read `self`, whose NaN must not spread.
    if beta == 0:
        return broadcast(total, ctx.dims())
    return R.add(self if beta == 1 else R.multiply(self, scalar(beta, dtype)), total)
