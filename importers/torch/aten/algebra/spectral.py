"""Linear algebra: singular values and eigenvalues by LAPACK, and what is made of them.

As in linalg.py, NaN stands where eager torch raises.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.shared import loops as _loops
from relax2xla.importers.torch.aten.algebra.linalg import (
    adjoint_of,
    identity,
    lu_factor,
    lu_solve,
    sides,
)
from relax2xla.importers.torch.aten.numbers.complex import REAL, is_complex, transposed
from relax2xla.importers.torch.engine.context import (
    Context,
    Dim,
    dims_of,
    dtype_of,
    larger,
    ndim_of,
    row,
    scalar,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.importers.torch.engine.lapack_calls import call_lapack, failed, letter
from relax2xla.ir import Expr


# -- singular values -----------------------------------------------------------------------------
def svd(ctx: Context, a: Expr, mode: str) -> tuple[Expr, Expr, Expr]:
    """U, S, V^H by LAPACK's mode: "A" (square), "S" (reduced), "N" (only S)."""
    batch, m, n, k = sides(a)
    dtype = dtype_of(a)
    letter(a)
    full = mode != "S"
    rows, columns = (m, n) if full else (k, k)
    if k == 0 or 0 in batch:
        u = identity(ctx, (*batch, m, rows), dtype)
        vh = identity(ctx, (*batch, columns, n), dtype)
        return u, R.zeros((*batch, k), REAL[dtype]), vh
    shapes = [
        ((*batch, m, n), dtype),
        ((*batch, k), REAL[dtype]),
        ((*batch, m, rows), dtype),
        ((*batch, columns, n), dtype),
        (batch, "int32"),
    ]
    _, s, u, vh, info = call_lapack(ctx, "gesdd", [a], shapes, mode=mode)
    return failed(ctx, info, u, 2), failed(ctx, info, s, 1), failed(ctx, info, vh, 2)


@aten("_linalg_svd", ignored="driver")
def linalg_svd(
    ctx: Context, A: Expr, full_matrices: bool = False, compute_uv: bool = True
) -> tuple[Expr, Expr, Expr]:
    """``driver`` chooses a routine on GPUs only."""
    a = ctx.emit(A)
    if compute_uv:
        return svd(ctx, a, "A" if full_matrices else "S")
    _, s, _ = svd(ctx, a, "N")
    return R.zeros(ctx.dims(0), dtype_of(a)), s, R.zeros(ctx.dims(2), dtype_of(a))


@aten("linalg_polar")
def linalg_polar(ctx: Context, A: Expr) -> list[Expr]:
    """Of torch 2.14. No derivatives where singular values are equal: NaN."""
    u, s, vh = (ctx.emit(x) for x in svd(ctx, ctx.emit(A), "S"))
    scaled = R.multiply(ctx.cast(R.expand_dims(s, [-1]), dtype_of(vh)), vh)
    return [R.matmul(u, vh), R.matmul(adjoint_of(vh), scaled)]


@aten("linalg_lstsq", ignored="driver")
def linalg_lstsq(
    ctx: Context, self: Expr, b: Expr, rcond: float | None = None
) -> tuple[Expr, Expr, Expr, Expr]:
    """By singular values, whatever the driver: the solution of least length.

    Where the rank decides whether there are residuals, torch's shape of them is taken: they are
    given exactly where the export says so.
    """
    a, dtype = ctx.emit(self), dtype_of(self)
    batch, m, n, _ = sides(a)
    vectors = ndim_of(b) == ndim_of(self) - 1
    rhs = ctx.emit(R.expand_dims(b, [-1]) if vectors else b)
    u, s, vh = (ctx.emit(x) for x in svd(ctx, a, "S"))
    eps = _rounding(ctx, m, n, REAL[dtype]) if rcond is None else scalar(rcond, REAL[dtype])
    peak = R.max(s, [ndim_of(s) - 1], True)
    kept, inverse = _inverses(ctx, s, R.multiply(peak, eps))
    scaled = ctx.cast(R.expand_dims(inverse, [-1]), dtype)
    x = ctx.emit(R.matmul(adjoint_of(vh), R.multiply(scaled, R.matmul(adjoint_of(u), rhs))))
    values = [ctx.reshape(x, ctx.dims(0))]
    if 0 in ctx.dims(1):
        values.append(R.zeros(ctx.dims(1), ctx.dtype(1)))
    else:
        off = ctx.emit(R.abs(R.subtract(R.matmul(a, x), rhs)))
        values.append(ctx.reshape(R.sum(R.multiply(off, off), [ndim_of(x) - 2]), ctx.dims(1)))
    if ctx.dims(2) == batch:
        values.append(R.sum(R.astype(kept, "int64"), [ndim_of(s) - 1]))
    else:
        values.append(R.zeros(ctx.dims(2), "int64"))
    values.append(s if ctx.dims(3) == dims_of(s) else R.zeros(ctx.dims(3), ctx.dtype(3)))
    return values[0], values[1], values[2], values[3]


@aten("linalg_pinv.atol_rtol_tensor")
def linalg_pinv(
    ctx: Context, self: Expr, atol: Any = None, rtol: Any = None, hermitian: bool = False
) -> Expr:
    a = ctx.emit(self)
    _, m, n, _ = sides(a)
    dtype = dtype_of(a)
    if 0 in dims_of(a):
        return R.zeros(ctx.dims(), dtype)
    real = REAL[dtype]
    if hermitian:
        values, v = _eigh(ctx, a, "L")
        s, u, vh = ctx.emit(R.abs(values)), ctx.emit(v), ctx.emit(adjoint_of(v))
        sign: Expr | None = R.sign(values)
    else:
        u, s, vh = (ctx.emit(x) for x in svd(ctx, a, "S"))
        sign = None
    peak = R.max(s, [ndim_of(s) - 1], True)
    least = None if atol is None else _column(ctx.cast(atol, real))
    if rtol is not None:
        share: Expr = _column(ctx.cast(rtol, real))
    else:
        eps = _rounding(ctx, m, n, real)
        share = eps
        if least is not None:
            share = R.where(R.greater(least, scalar(0, real)), scalar(0, real), eps)
    bound = R.multiply(peak, share)
    bound = bound if least is None else R.maximum(bound, least)
    _, inverse = _inverses(ctx, s, bound)
    if sign is not None:
        inverse = R.multiply(inverse, sign)
    scaled = ctx.emit(ctx.cast(R.expand_dims(inverse, [-1]), dtype))
    made = R.matmul(adjoint_of(vh), R.multiply(scaled, adjoint_of(u)))
    if not is_float(dtype):
        return made
    return R.grad.differentiate_as(made, _smooth_pinv(ctx, a, u, scaled, vh))


def _smooth_pinv(ctx: Context, a: Expr, u: Expr, inverse: Expr, vh: Expr) -> Expr:
    """A function of ``a`` alone, which has derivatives where singular values are equal or 0.

    With U and V the fixed bases and D the inverse values, 0 for those that do not count, and
    ``C = A V D``, ``B = D U^T A``, ``W = D U^T A V D``: a matrix of this rank is ``C W^-1 B``, and
    its inverse ``B^+ W C^+``, where C and B have full rank.
    """
    u, vh = (ctx.emit(R.grad.no_grad(x)) for x in (u, vh))
    scale = ctx.emit(R.grad.no_grad(inverse))
    left = ctx.emit(R.multiply(scale, transposed(u)))
    right = ctx.emit(R.multiply(transposed(scale), transposed(vh)))
    c, b = ctx.emit(R.matmul(a, right)), ctx.emit(R.matmul(left, a))
    dtype = dtype_of(a)
    unit = identity(ctx, (*dims_of(scale)[:-1], dims_of(scale)[-2]), dtype)
    # 1 on the diagonal for what does not count.
    rest = ctx.emit(R.multiply(unit, ctx.cast(R.equal(scale, scalar(0, dtype)), dtype)))

    def solved(gram: Expr, x: Expr) -> Expr:
        lu, pivots, _ = lu_factor(ctx, ctx.emit(R.add(gram, rest)))
        return ctx.emit(lu_solve(ctx, lu, pivots, x))

    of_c = solved(R.matmul(transposed(c), c), ctx.emit(transposed(c)))
    middle = ctx.emit(R.matmul(R.matmul(left, c), of_c))
    return R.matmul(transposed(b), solved(R.matmul(b, transposed(b)), middle))


def _inverses(ctx: Context, s: Expr, bound: Expr) -> tuple[Expr, Expr]:
    """Which values are above a bound, and the inverses of these, with 0 for the others."""
    zero, one = scalar(0, dtype_of(s)), scalar(1, dtype_of(s))
    kept = ctx.emit(R.greater(s, bound))
    return kept, R.where(kept, R.divide(one, R.where(kept, s, one)), zero)


def _rounding(ctx: Context, m: Dim, n: Dim, dtype: str) -> Expr:
    """The precision of ``dtype`` times the longer side: the share below which values count as 0."""
    eps, long = float(np.finfo(dtype).eps), larger(m, n)
    if isinstance(long, int):
        return scalar(eps * long, dtype)
    return R.multiply(ctx.tensor(long, dtype), scalar(eps, dtype))


def _column(x: Expr) -> Expr:
    return R.expand_dims(x, [-1]) if ndim_of(x) else x


# -- eigenvalues ---------------------------------------------------------------------------------
@aten("_linalg_eigh")
def linalg_eigh(
    ctx: Context, A: Expr, UPLO: str = "L", compute_v: bool = True
) -> tuple[Expr, Expr]:
    a = ctx.emit(A)
    batch, n, _, _ = sides(a)
    dtype = dtype_of(a)
    letter(a)
    if n == 0 or 0 in batch:
        return R.zeros(ctx.dims(0), REAL[dtype]), R.zeros(ctx.dims(1), dtype)
    w, v = _eigh(ctx, a, UPLO, compute_v)
    return w, v if compute_v else R.zeros(ctx.dims(1), dtype)


def _eigh(ctx: Context, a: Expr, part: str, vectors: bool = True) -> tuple[Expr, Expr]:
    """Eigenvalues and vectors of Hermitian matrices, of which one triangle is read."""
    batch, n, _, _ = sides(a)
    dtype = dtype_of(a)
    routine = "heevd" if is_complex(a) else "syevd"
    shapes = [((*batch, n, n), dtype), ((*batch, n), REAL[dtype]), (batch, "int32")]
    mode = "V" if vectors else "N"
    v, w, info = call_lapack(ctx, routine, [a], shapes, mode=mode, uplo=part.upper())
    return ctx.emit(failed(ctx, info, w, 1)), ctx.emit(failed(ctx, info, v, 2))


@aten("linalg_matrix_sqrth")
def linalg_matrix_sqrth(ctx: Context, self: Expr) -> Expr:
    """Of torch 2.14: eigenvalues below 0 count as 0. No derivatives where some are equal: NaN."""
    a = ctx.emit(self)
    if 0 in dims_of(a):
        return a
    letter(a)
    w, v = _eigh(ctx, a, "L")
    roots = R.sqrt(R.maximum(w, scalar(0, dtype_of(w))))
    scaled = R.multiply(v, ctx.cast(R.expand_dims(roots, [-2]), dtype_of(v)))
    return R.matmul(scaled, adjoint_of(v))


@aten("linalg_eig")
def linalg_eig(ctx: Context, self: Expr) -> tuple[Expr, Expr]:
    a = ctx.emit(self)
    batch, n, _, _ = sides(a)
    dtype, kind = dtype_of(a), letter(a)
    wide = dtype if is_complex(a) else {"s": "complex64", "d": "complex128"}[kind]
    if n == 0 or 0 in batch:
        return R.zeros(ctx.dims(0), wide), R.zeros(ctx.dims(1), wide)
    parts = [((*batch, n), dtype)] * (1 if is_complex(a) else 2)
    matrices = [((*batch, n, n), wide)] * 2
    flags = {"compute_left": "N", "compute_right": "V"}
    made = call_lapack(ctx, "geev", [a], [*parts, *matrices, (batch, "int32")], **flags)
    values = made[0] if is_complex(a) else row("complex", made[0], made[1])
    info = made[-1]
    return failed(ctx, info, ctx.emit(values), 1), failed(ctx, info, made[-2], 2)


@aten("linalg_eigvals", "_linalg_eigvals")
def linalg_eigvals(ctx: Context, self: Expr) -> Expr:
    return linalg_eig(ctx.giving(ctx.out, ctx.out), self)[0]


# -- functions of matrices -----------------------------------------------------------------------
#: Beyond this norm (in float64) Taylor's polynomial of degree 18 is applied to a power-of-two part.
TAYLOR_DEGREE = 18
TAYLOR_NORM = 1.09
#: As many for derivatives, which are NaN beyond a norm of 4e9.
SQUARINGS = 32


@aten("linalg_matrix_exp", "matrix_exp")
def matrix_exp(ctx: Context, self: Expr) -> Expr:
    """Scaling and squaring: exp(A) is exp(A / 2^s) to the power of 2^s; in double precision."""
    if 0 in dims_of(self):
        return self
    dtype = "complex128" if is_complex(self) else "float64"
    a = ctx.emit(ctx.cast(self, dtype))
    real = REAL[dtype]
    last = ndim_of(a) - 1
    norm = ctx.emit(R.max(R.sum(R.abs(a), [last - 1], True), [last], True))
    ratio = R.maximum(R.divide(norm, scalar(TAYLOR_NORM, real)), scalar(1, real))
    halvings = R.ceil(R.divide(R.log(ratio), scalar(math.log(2.0), real)))
    halvings = ctx.emit(R.where(R.isfinite(halvings), halvings, scalar(0, real)))
    scale = R.power(scalar(0.5, real), halvings)
    x = ctx.emit(R.multiply(a, ctx.cast(scale, dtype)))
    unit = ctx.emit(identity(ctx, dims_of(a), dtype))
    total: Expr = unit
    for k in range(TAYLOR_DEGREE, 0, -1):
        step = R.multiply(R.matmul(x, total), scalar(1.0 / k, dtype))
        total = ctx.emit(R.add(unit, step))

    def more(values: Sequence[Expr]) -> Expr:
        return R.greater(R.max(values[1]), scalar(0, real))

    def square(values: Sequence[Expr]) -> Sequence[Expr]:
        y, left = values
        active = R.greater(left, scalar(0, real))
        return [R.where(active, R.matmul(y, y), y), R.subtract(left, scalar(1, real))]

    made = _loops.while_loop(ctx.builder, more, square, [total, halvings])[0]

    def counted(k: Expr, values: Sequence[Expr]) -> tuple[Sequence[Expr], Sequence[Expr]]:
        (y,) = values
        active = ctx.emit(R.greater(halvings, R.astype(k, real)))
        once = ctx.emit(R.where(active, y, scalar(0, dtype)))
        return [R.where(active, R.matmul(once, once), y)], []

    # Loops that end by a value have no derivative in reverse mode; counted ones do.
    (smooth,), _ = _loops.scan(ctx.builder, SQUARINGS, counted, [total], [])
    enough = R.less_equal(halvings, scalar(SQUARINGS, real))
    smooth = R.where(enough, smooth, scalar(math.nan, dtype))
    return ctx.cast(R.grad.differentiate_as(made, smooth), dtype_of(self))
