"""Orthogonal polynomials of a degree that is data: recurrences up to the highest degree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relax2xla import op as R
from relax2xla.importers.shared import loops as _loops
from relax2xla.importers.torch.aten.numbers.special import DOUBLE, number
from relax2xla.importers.torch.engine.context import Context, broadcast, scalar
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Expr

Next = Callable[[Expr, Expr, Expr, Expr], Expr]


@dataclass(frozen=True, slots=True)
class Family:
    """P_0 is 1, P_1 is ``slope * x + offset``; ``step``: P_(k+1) of x, k, P_k and P_(k-1).

    ``shifted``: of 2 x - 1 instead of x.
    """

    slope: float
    offset: float
    step: Next
    shifted: bool = False


def _chebyshev(x: Expr, k: Expr, p: Expr, before: Expr) -> Expr:
    return R.subtract(R.multiply(R.multiply(number(2.0), x), p), before)


def _hermite_e(x: Expr, k: Expr, p: Expr, before: Expr) -> Expr:
    return R.subtract(R.multiply(x, p), R.multiply(k, before))


def _hermite(x: Expr, k: Expr, p: Expr, before: Expr) -> Expr:
    return R.multiply(number(2.0), _hermite_e(x, k, p, before))


def _of_odd(factor: Callable[[Expr, Expr], Expr]) -> Next:
    """(f(2 k + 1, x) P_k - k P_(k-1)) / (k + 1)"""

    def step(x: Expr, k: Expr, p: Expr, before: Expr) -> Expr:
        odd = R.add(R.multiply(number(2.0), k), number(1.0))
        whole = R.subtract(R.multiply(factor(odd, x), p), R.multiply(k, before))
        return R.divide(whole, R.add(k, number(1.0)))

    return step


FAMILIES: dict[str, Family] = {
    "chebyshev_polynomial_t": Family(1.0, 0.0, _chebyshev),
    "chebyshev_polynomial_u": Family(2.0, 0.0, _chebyshev),
    "chebyshev_polynomial_v": Family(2.0, -1.0, _chebyshev),
    "chebyshev_polynomial_w": Family(2.0, 1.0, _chebyshev),
    "shifted_chebyshev_polynomial_t": Family(1.0, 0.0, _chebyshev, True),
    "shifted_chebyshev_polynomial_u": Family(2.0, 0.0, _chebyshev, True),
    "shifted_chebyshev_polynomial_v": Family(2.0, -1.0, _chebyshev, True),
    "shifted_chebyshev_polynomial_w": Family(2.0, 1.0, _chebyshev, True),
    "hermite_polynomial_h": Family(2.0, 0.0, _hermite),
    "hermite_polynomial_he": Family(1.0, 0.0, _hermite_e),
    "laguerre_polynomial_l": Family(-1.0, 1.0, _of_odd(R.subtract)),
    "legendre_polynomial_p": Family(1.0, 0.0, _of_odd(R.multiply)),
}


def _polynomial(family: Family) -> Function:
    def convert(ctx: Context, x: Any, n: Any) -> Expr:
        """Of a negative degree it is 0; a degree is rounded towards zero."""
        dims = ctx.dims()
        values = [ctx.tensor(v, DOUBLE) for v in (x, n)]
        at, degree = (broadcast(v, dims) for v in values)
        if family.shifted:
            at = R.subtract(R.multiply(number(2.0), at), number(1.0))
        at, degree = ctx.emit(at), ctx.emit(R.trunc(degree))
        if 0 in dims:
            return R.zeros(dims, ctx.dtype())
        one = ctx.emit(R.ones(dims, DOUBLE))
        first = ctx.emit(R.add(R.multiply(at, number(family.slope)), number(family.offset)))
        none = scalar(0.0, DOUBLE)
        found = R.where(R.equal(degree, none), one, none)
        found = R.where(R.equal(degree, number(1.0)), first, found)

        def going(state: Sequence[Expr]) -> Expr:
            return R.less(state[0], R.max(degree))

        def step(state: Sequence[Expr]) -> Sequence[Expr]:
            k, p, before, result = state
            following = ctx.emit(family.step(at, k, p, before))
            k = ctx.emit(R.add(k, number(1.0)))
            return [k, following, p, R.where(R.equal(degree, k), following, result)]

        state = [number(1.0), first, one, ctx.emit(found)]
        made = _loops.while_loop(ctx.builder, going, step, state)[3]
        return ctx.cast(made, ctx.dtype())

    return convert


for _name, _family in FAMILIES.items():
    aten(f"special_{_name}", f"special_{_name}.x_scalar", f"special_{_name}.n_scalar")(
        _polynomial(_family)
    )
