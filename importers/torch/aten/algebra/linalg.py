"""Linear algebra: factorisations by LAPACK, and what is made of them.

Where eager torch raises for a matrix that cannot be factored, the results here are NaN (or
infinite): a compiled program cannot raise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.importers.shared import loops as _loops
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.aten.numbers.complex import REAL, conjugate, is_complex, transposed
from relax2xla.importers.torch.aten.numbers.math import sign as each_sign
from relax2xla.importers.torch.aten.shape import diagonal_alone
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    Dims,
    axes_of,
    broadcast,
    dims_of,
    dtype_of,
    larger,
    ndim_of,
    row,
    scalar,
    smaller,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.importers.torch.engine.lapack_calls import call_lapack, failed, letter
from relax2xla.ir import Expr


# -- pieces --------------------------------------------------------------------------------------
def adjoint_of(x: Expr) -> Expr:
    """Each matrix transposed and conjugated."""
    return transposed(conjugate(x))


def triangle(x: Expr, upper: bool, diagonal: int = 0) -> Expr:
    """The upper or the lower triangle of each matrix."""
    return R.triu(x, diagonal) if upper else R.tril(x, diagonal)


def identity(ctx: Context, dims: Dims, dtype: str) -> Expr:
    """Unit matrices of the shape ``dims``."""
    *_, m, n = dims
    made = R.eye(m, n, 0, "float32")
    return R.broadcast_to(ctx.cast(made, dtype), dims)


def diagonal_of(ctx: Context, x: Expr) -> Expr:
    """The diagonal of each square matrix."""
    return R.sum(diagonal_alone(ctx, x), [ndim_of(x) - 1])


def sides(x: Expr) -> tuple[Dims, Dim, Dim, Dim]:
    """Batch axes, rows, columns, and the smaller of both."""
    *batch, m, n = dims_of(x)
    return tuple(batch), m, n, smaller(m, n)


def cut(x: Expr, rows: Dim | None, columns: Dim | None) -> Expr:
    """The first rows and columns of each matrix."""
    n = ndim_of(x)
    for axis, size in ((n - 2, rows), (n - 1, columns)):
        if size is not None and dims_of(x)[axis] != size:
            x = R.strided_slice(x, [axis], [0], [size], assume_inbound=True)
    return x


def solve_triangular(
    ctx: Context, a: Expr, b: Expr, upper: bool, unit: bool = False, left: bool = True
) -> Expr:
    """X with ``a X = b``, or ``X a = b``; matrices in both, with batch axes that broadcast."""
    batch = common(dims_of(a)[:-2], dims_of(b)[:-2])
    if not unit and 0 in dims_of(b):
        return b
    a, b = (broadcast(x, (*batch, *dims_of(x)[-2:])) for x in (a, b))
    return row(
        "triangular_solve",
        a,
        b,
        left_side=left,
        lower=not upper,
        unit_diagonal=unit,
        transpose_a="NO_TRANSPOSE",
    )


def common(a: Sequence[Any], b: Sequence[Any]) -> Dims:
    """The shape that batches of ``a`` and of ``b`` have together."""
    n = max(len(a), len(b))
    one, two = [1] * (n - len(a)) + list(a), [1] * (n - len(b)) + list(b)
    return tuple(y if isinstance(x, int) and x == 1 else x for x, y in zip(one, two, strict=True))


# -- LU ------------------------------------------------------------------------------------------
def lu_factor(ctx: Context, a: Expr) -> tuple[Expr, Expr, Expr]:
    """L and U in one matrix, the rows that changed places (counted from 1), LAPACK's report."""
    batch, m, n, k = sides(a)
    letter(a)
    if k == 0 or 0 in batch:
        pivots = R.zeros((*batch, k), "int32")
        return a, ctx.emit(pivots), ctx.emit(R.zeros(batch, "int32"))
    shapes = [((*batch, m, n), dtype_of(a)), ((*batch, k), "int32"), (batch, "int32")]
    lu, pivots, info = call_lapack(ctx, "getrf", [a], shapes)
    return lu, pivots, info


def permutation(ctx: Context, pivots: Expr, rows: Dim) -> Expr:
    """Where each row of the permuted matrix comes from, of the exchanges ``pivots``: int32."""
    *batch, count = dims_of(pivots)
    places = ctx.grid((rows,), (1,), dtype="int32")
    axis = len(batch)
    start = ctx.emit(R.broadcast_to(places, (*batch, rows)))
    if count == 0:
        return start

    def step(k: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        (order,) = values
        other = R.subtract(_loops.element(pivots, k, axis), scalar(1, "int32"))
        other = ctx.emit(R.expand_dims(other, [axis]))
        here = R.equal(places, R.astype(k, "int32"))
        there = ctx.emit(R.equal(places, other))
        zero = scalar(0, "int32")
        mine = ctx.emit(R.sum(R.where(here, order, zero), [axis], True))
        theirs = ctx.emit(R.sum(R.where(there, order, zero), [axis], True))
        return [R.where(there, mine, R.where(here, theirs, order))], []

    return _loops.scan(ctx.builder, count, step, [start], [])[0][0]


def permutation_matrix(ctx: Context, order: Expr, dtype: str) -> Expr:
    """P of ``A = P L U``: column i has its 1 in the row ``order[i]``."""
    rows = dims_of(order)[-1]
    places = ctx.grid((rows,), (1,), dtype="int32")
    n = ndim_of(order)
    hit = R.equal(R.expand_dims(places, [1]), R.expand_dims(order, [n - 1]))
    return ctx.cast(ctx.cast(hit, REAL[dtype]), dtype)


def sign_of(ctx: Context, pivots: Expr, dtype: str) -> Expr:
    """1 or -1 for an even or odd number of exchanges."""
    *batch, count = dims_of(pivots)
    own = ctx.grid((count,), (1,), 1, "int32")
    moved = R.astype(R.not_equal(pivots, own), "int32")
    odd = R.bitwise_and(R.sum(moved, [len(batch)]), scalar(1, "int32"))
    sign = R.subtract(scalar(1, "int32"), R.multiply(odd, scalar(2, "int32")))
    return ctx.cast(ctx.cast(sign, REAL[dtype]), dtype)


def lu_solve(
    ctx: Context, lu: Expr, pivots: Expr, b: Expr, left: bool = True, adjointed: bool = False
) -> Expr:
    """X with ``A X = b`` (``left`` not: ``X A = b``) for A in its factors, or for A^H."""
    if not left:  # X A = B is A^H X^H = B^H
        flipped = lu_solve(ctx, lu, pivots, adjoint_of(b), True, not adjointed)
        return adjoint_of(ctx.emit(flipped))
    _, m, _, _ = sides(lu)
    order = permutation(ctx, pivots, m)
    shift = permutation_matrix(ctx, order, dtype_of(b))
    lu, b = ctx.emit(lu), ctx.emit(b)
    if adjointed:
        other = ctx.emit(adjoint_of(lu))
        y = solve_triangular(ctx, other, b, upper=False)
        x = solve_triangular(ctx, other, ctx.emit(y), upper=True, unit=True)
        return R.matmul(shift, x)
    y = solve_triangular(ctx, lu, R.matmul(transposed(shift), b), upper=False, unit=True)
    return solve_triangular(ctx, lu, ctx.emit(y), upper=True)


@aten("linalg_lu_factor_ex", ignored="check_errors")
def linalg_lu_factor_ex(ctx: Context, A: Expr, pivot: bool = True) -> tuple[Expr, Expr, Expr]:
    """``check_errors`` raises in torch; here a zero on U's diagonal stays."""
    if not pivot:
        raise Unsupported("an LU factorisation without pivots", "use pivot=True")
    return lu_factor(ctx, ctx.emit(A))


@aten("linalg_lu_factor")
def linalg_lu_factor(ctx: Context, A: Expr, pivot: bool = True) -> tuple[Expr, Expr]:
    lu, pivots, _ = linalg_lu_factor_ex(ctx, A, pivot)
    return lu, pivots


@aten("linalg_lu")
def linalg_lu(ctx: Context, A: Expr, pivot: bool = True) -> tuple[Expr, Expr, Expr]:
    return lu_unpack(ctx, *linalg_lu_factor(ctx, A, pivot))


@aten("lu_unpack")
def lu_unpack(
    ctx: Context,
    LU_data: Expr,
    LU_pivots: Expr,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> tuple[Expr, Expr, Expr]:
    """What is not unpacked is an empty tensor."""
    x = ctx.emit(LU_data)
    _, m, _, k = sides(x)
    none = R.zeros((0,), dtype_of(x))
    p, lower, upper = none, none, none
    if unpack_pivots:
        order = permutation(ctx, LU_pivots, m)
        p = permutation_matrix(ctx, order, dtype_of(x))
    if unpack_data:
        left = ctx.emit(triangle(cut(x, None, k), False, -1))
        lower = R.add(left, identity(ctx, dims_of(left), dtype_of(x)))
        upper = triangle(cut(x, k, None), True)
    return p, lower, upper


@aten("linalg_lu_solve")
def linalg_lu_solve(
    ctx: Context, LU: Expr, pivots: Expr, B: Expr, left: bool = True, adjoint: bool = False
) -> Expr:
    *_, n = dims_of(LU)
    batch = ctx.dims()[:-2]
    lu = ctx.emit(broadcast(LU, (*batch, n, n)))
    places = ctx.emit(broadcast(pivots, (*batch, n)))
    b = broadcast(B, (*batch, *dims_of(B)[-2:]))
    return lu_solve(ctx, lu, places, b, left, adjoint)


def _factors_of_det(ctx: Context, A: Expr) -> tuple[Expr, Expr]:
    """The factors and pivots that torch makes for a determinant, with which it differentiates.

    They are those of the transposed matrix where that is real and its rows lie together.
    """
    x = ctx.emit(A)
    (operand,) = ctx.node.all_input_nodes
    if operand.meta["val"].is_contiguous() and not is_complex(x):
        x = ctx.emit(transposed(x))
    lu, pivots, _ = lu_factor(ctx, x)
    return lu, pivots


@aten("_linalg_det")
def linalg_det(ctx: Context, A: Expr) -> tuple[Expr, Expr, Expr]:
    lu, pivots = _factors_of_det(ctx, A)
    sign = sign_of(ctx, pivots, dtype_of(lu))
    made = R.multiply(sign, R.prod(diagonal_of(ctx, lu), [ndim_of(lu) - 2]))
    if dims_of(A)[-1] in (2, 3):
        # The polynomial, which has a derivative where the factors have none: of singular matrices.
        made = R.grad.differentiate_as(made, _determinant(ctx, ctx.emit(A)))
    return made, lu, pivots


def _determinant(ctx: Context, x: Expr) -> Expr:
    """Of matrices of two or three rows, along the first of them."""
    n, last = dims_of(x)[-1], ndim_of(x) - 1
    assert isinstance(n, int)

    def entry(i: int, j: int) -> Expr:
        part = R.strided_slice(x, [last - 1, last], [i, j], [i + 1, j + 1])
        return ctx.emit(R.squeeze(part, [last - 1, last]))

    def minor(row: int, columns: Sequence[int]) -> Expr:
        if len(columns) == 1:
            return entry(row, columns[0])
        parts: list[Expr] = []
        for k, column in enumerate(columns):
            below = minor(row + 1, [c for c in columns if c != column])
            part = R.multiply(entry(row, column), below)
            parts.append(R.negative(part) if k % 2 else part)
        return functools.reduce(R.add, parts)

    return minor(0, range(n))


@aten("_linalg_slogdet")
def linalg_slogdet(ctx: Context, A: Expr) -> tuple[Expr, Expr, Expr, Expr]:
    lu, pivots = _factors_of_det(ctx, A)
    last = ndim_of(lu) - 2
    entries = ctx.emit(diagonal_of(ctx, lu))
    size = ctx.emit(R.abs(entries))
    turns = R.prod(each_sign(entries), [last])
    sign = R.multiply(sign_of(ctx, pivots, dtype_of(lu)), turns)
    return sign, R.sum(R.log(size), [last]), lu, pivots


@aten("linalg_inv_ex", ignored="check_errors")
def linalg_inv_ex(ctx: Context, A: Expr) -> tuple[Expr, Expr]:
    a = ctx.emit(A)
    lu, pivots, info = lu_factor(ctx, a)
    made = lu_solve(ctx, lu, pivots, identity(ctx, dims_of(a), dtype_of(a)))
    return made, info


@aten("linalg_inv", "inverse")
def linalg_inv(ctx: Context, A: Expr) -> Expr:
    return linalg_inv_ex(ctx, A)[0]


@aten("linalg_tensorinv")
def linalg_tensorinv(ctx: Context, self: Expr, ind: int = 2) -> Expr:
    n = math.prod(dims_of(self)[ind:])
    return ctx.reshape(ctx.emit(linalg_inv(ctx, ctx.reshape(self, (n, n)))), ctx.dims())


@aten("linalg_tensorsolve")
def linalg_tensorsolve(
    ctx: Context, self: Expr, other: Expr, dims: Sequence[int] | None = None
) -> Expr:
    if dims:
        away = axes_of(dims, ndim_of(self))
        rest = [i for i in range(ndim_of(self)) if i not in away]
        self = R.permute_dims(self, [*rest, *away])
    n = math.prod(dims_of(other))
    a = ctx.emit(ctx.reshape(self, (n, n)))
    lu, pivots, _ = lu_factor(ctx, a)
    x = lu_solve(ctx, lu, pivots, ctx.emit(ctx.reshape(other, (n, 1))))
    return ctx.reshape(x, ctx.dims())


@aten("linalg_solve_ex", "linalg_solve", ignored="check_errors")
def linalg_solve(ctx: Context, A: Expr, B: Expr, left: bool = True) -> Any:
    several = isinstance(ctx.out, list | tuple)
    x, _, _, info = linalg_solve_ex(ctx if several else ctx.giving(ctx.out), A, B, left)
    return (x, info) if several else x


@aten("_linalg_solve_ex", ignored="check_errors")
def linalg_solve_ex(
    ctx: Context, A: Expr, B: Expr, left: bool = True
) -> tuple[Expr, Expr, Expr, Expr]:
    """``B`` may hold vectors, one for each matrix."""
    a = ctx.emit(A)
    lu, pivots, info = lu_factor(ctx, a)
    *lead, n, _ = dims_of(a)
    vectors = ndim_of(B) == 1 or (
        ndim_of(B) == ndim_of(A) - 1 and dims_of(B) == (*dims_of(A)[:-2], n)
    )
    b = R.expand_dims(B, [-1]) if vectors else B
    batch = common(lead, dims_of(b)[:-2])
    wide, places = broadcast(lu, (*batch, n, n)), broadcast(pivots, (*batch, n))
    wide, places = ctx.emit(wide), ctx.emit(places)
    b = ctx.emit(broadcast(b, (*batch, *dims_of(b)[-2:])))
    x = ctx.emit(lu_solve(ctx, wide, places, b, left))
    return ctx.reshape(x, ctx.dims(0)), lu, pivots, info


@aten("linalg_solve_triangular")
def linalg_solve_triangular(
    ctx: Context, self: Expr, B: Expr, upper: bool, left: bool = True, unitriangular: bool = False
) -> Expr:
    return solve_triangular(ctx, self, B, upper, unitriangular, left)


@aten("triangular_solve")
def triangular_solve(
    ctx: Context,
    self: Expr,
    A: Expr,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
) -> tuple[Expr, Expr]:
    a = transposed(A) if transpose else A
    x = solve_triangular(ctx, ctx.emit(a), self, upper != transpose, unitriangular)
    return x, broadcast(A, ctx.dims(1))


# -- Cholesky ------------------------------------------------------------------------------------
def _factor(ctx: Context, self: Expr, upper: bool) -> tuple[Expr, Expr]:
    a = ctx.emit(self)
    batch, n, _, _ = sides(a)
    if n == 0 or 0 in batch:
        return a, ctx.emit(R.zeros(batch, "int32"))
    shape = ((*batch, n, n), dtype_of(a))
    part = "U" if upper else "L"
    made, info = call_lapack(ctx, "potrf", [a], [shape, (batch, "int32")], uplo=part)
    return triangle(made, upper), info


@aten("linalg_cholesky_ex")
def linalg_cholesky_ex(
    ctx: Context, self: Expr, upper: bool = False, check_errors: bool = False
) -> tuple[Expr, Expr]:
    """Without ``check_errors`` the failed factor is what LAPACK leaves, as in torch."""
    made, info = _factor(ctx, self, upper)
    return (failed(ctx, info, made, 2) if check_errors else made), info


@aten("cholesky", "linalg_cholesky")
def cholesky(ctx: Context, self: Expr, upper: bool = False) -> Expr:
    return linalg_cholesky_ex(ctx, self, upper, True)[0]


@aten("cholesky_solve")
def cholesky_solve(ctx: Context, self: Expr, input2: Expr, upper: bool = False) -> Expr:
    factor = ctx.emit(triangle(input2, upper))
    other = ctx.emit(adjoint_of(factor))
    low, high = (other, factor) if upper else (factor, other)
    y = solve_triangular(ctx, low, self, upper=False)
    return solve_triangular(ctx, high, ctx.emit(y), upper=True)


@aten("cholesky_inverse")
def cholesky_inverse(ctx: Context, self: Expr, upper: bool = False) -> Expr:
    unit = identity(ctx, dims_of(self), dtype_of(self))
    return cholesky_solve(ctx, unit, self, upper)


# -- QR ------------------------------------------------------------------------------------------
@aten("geqrf")
def geqrf(ctx: Context, self: Expr) -> tuple[Expr, Expr]:
    a = ctx.emit(self)
    batch, m, n, k = sides(a)
    if k == 0 or 0 in batch:
        return a, R.zeros((*batch, k), dtype_of(a))
    shapes = [((*batch, m, n), dtype_of(a)), ((*batch, k), dtype_of(a))]
    factors, tau = call_lapack(ctx, "geqrf", [a], shapes)
    return factors, tau


@aten("linalg_householder_product", "orgqr")
def householder_product(ctx: Context, input: Expr, tau: Expr) -> Expr:
    a = ctx.emit(input)
    dtype = dtype_of(a)
    if 0 in dims_of(a):
        return a
    if 0 in dims_of(tau):
        return identity(ctx, dims_of(a), dtype)
    routine = "ungqr" if is_complex(a) else "orgqr"
    return call_lapack(ctx, routine, [a, ctx.emit(tau)], [(dims_of(a), dtype)])[0]


@aten("ormqr")
def ormqr(
    ctx: Context,
    self: Expr,
    input2: Expr,
    input3: Expr,
    left: bool = True,
    transpose: bool = False,
) -> Expr:
    """With Q made whole: it is square."""
    _, _, n, _ = sides(self)
    if 0 in dims_of(input3):
        return input3
    size = dims_of(input3)[-2 if left else -1]
    q = ctx.emit(householder_product(ctx, _widened(self, larger(size, n)), input2))
    q = cut(q, size, size)
    q = adjoint_of(q) if transpose else q
    return R.matmul(q, input3) if left else R.matmul(input3, q)


def _widened(x: Expr, columns: Dim) -> Expr:
    """Columns of zeros added."""
    *lead, m, n = dims_of(x)
    if n == columns:
        return x
    more = R.zeros((*lead, m, columns - n), dtype_of(x))
    return R.concat([x, more], ndim_of(x) - 1)


@aten("linalg_qr")
def linalg_qr(ctx: Context, A: Expr, mode: str = "reduced") -> tuple[Expr, Expr]:
    a = ctx.emit(A)
    batch, m, _, k = sides(a)
    dtype = dtype_of(a)
    if k == 0 or 0 in batch:
        letter(a)
        q_dims = ctx.dims(0)
        q = R.zeros(q_dims, dtype) if mode == "r" or 0 in q_dims else identity(ctx, q_dims, dtype)
        return q, R.zeros(ctx.dims(1), dtype)
    factors, tau = geqrf(ctx, a)
    square = mode == "complete"
    upper = triangle(cut(factors, m if square else k, None), True)
    if mode == "r":
        return R.zeros(ctx.dims(0), dtype), upper
    base = cut(factors, None, k)
    base = _widened(base, m) if square else base
    return householder_product(ctx, base, tau), upper
