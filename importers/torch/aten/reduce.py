"""Reductions, scans, sorting and searching along axes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import op as R
from relax2xla.dtypes import is_float
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.shared.reductions import log_sum_exp, root
from relax2xla.importers.torch.aten.numbers.complex import REAL, is_complex, square_of_abs
from relax2xla.importers.torch.engine.context import (
    Context,
    as_bool,
    axes_of,
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
)
from relax2xla.importers.torch.engine.converters import Function, aten
from relax2xla.ir import Expr

Axes = Any


# -- sums and the like ----------------------------------------------------------------------------
def _total(reduce: Callable[..., Expr]) -> Function:
    """In the dtype of the result, which ``dtype`` chooses."""

    def convert(ctx: Context, self: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
        return reduce(ctx.cast(self, ctx.dtype()), written_axes(dim, ndim_of(self)), keepdim)

    return convert


def written_axes(dim: Axes, ndim: int) -> list[int] | None:
    """Axes as the program has them, negative ones too; None for all of them."""
    if dim is None or dim == []:
        return None
    return axes_of(dim, ndim) if not ndim else [dim] if isinstance(dim, int) else list(dim)


aten("sum", "sum.dim_IntList", ignored="dtype")(_total(R.sum))
aten("mean", "mean.dim", ignored="dtype")(_total(R.mean))
aten("prod", "prod.dim_int", ignored="dtype")(_total(R.prod))


def _extremum(reduce: Callable[..., Expr]) -> Function:
    def convert(ctx: Context, self: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
        axes = axes_of(dim, ndim_of(self))
        if dtype_of(self) == "bool":
            # The ends of uint8 are what nothing at all has: no True for "any", no False for "all".
            # TVM's importer takes int8, whose least number is no False.
            some = all(isinstance(dims_of(self)[a], int) and dims_of(self)[a] != 0 for a in axes)
            small = R.astype(self, "int8" if some else "uint8")
            return R.astype(reduce(small, written_axes(dim, ndim_of(self)), keepdim), "bool")
        return reduce(self, written_axes(dim, ndim_of(self)), keepdim)

    return convert


amax = aten("amax", "max")(_extremum(R.max))
amin = aten("amin", "min")(_extremum(R.min))


def _quantified(extremum: Function) -> Function:
    def convert(ctx: Context, self: Expr, dim: Axes = None, keepdim: bool = False) -> Expr:
        """No axes at all, where a list of them is asked for, reduce nothing."""
        made = as_bool(self) if dim == [] else extremum(ctx, as_bool(self), dim, keepdim)
        return ctx.cast(made, ctx.dtype())

    return convert


aten("any", "any.dim", "any.dims", "_is_any_true")(_quantified(amax))
aten("all", "all.dim", "all.dims", "_is_all_true")(_quantified(amin))


@aten("count_nonzero", "count_nonzero.dim_IntList")
def count_nonzero(ctx: Context, self: Expr, dim: Axes = None) -> Expr:
    return R.sum(R.astype(as_bool(self), "int64"), axes_of(dim, ndim_of(self)))


@aten("aminmax")
def aminmax(
    ctx: Context, self: Expr, dim: int | None = None, keepdim: bool = False
) -> tuple[Expr, Expr]:
    return amin(ctx, self, dim, keepdim), amax(ctx, self, dim, keepdim)


@aten("logsumexp", wide=True)
def logsumexp(ctx: Context, self: Expr, dim: Axes, keepdim: bool = False) -> Expr:
    x = ctx.emit(ctx.cast(self, ctx.dtype()))
    total = log_sum_exp(x, axes_of(dim, ndim_of(x)))
    return total if keepdim else ctx.reshape(total, ctx.dims())


# -- spread --------------------------------------------------------------------------------------
def _variance(
    ctx: Context, self: Expr, dim: Axes, correction: Any, keepdim: bool
) -> tuple[Expr, Expr]:
    """Variance and mean. ``correction`` is what is taken off the count (1: Bessel's)."""
    dtype = dtype_of(self)
    if not is_float(dtype) and not is_complex(self):
        raise Unsupported(f"the variance of a {dtype} tensor")
    dtype = REAL.get(dtype, dtype)
    axes = axes_of(dim, ndim_of(self))
    x = ctx.emit(self)
    centre = ctx.emit(R.mean(x, axes, True))
    off = ctx.emit(R.subtract(x, centre))
    squares = R.sum(square_of_abs(ctx, off), axes, keepdim)
    spread = R.divide(squares, ctx.count(x, axes, correction, dtype))
    return spread, centre if keepdim else R.squeeze(centre, axes) if axes else centre


def _scaled_variance(
    ctx: Context, self: Expr, dim: Axes, correction: Any, keepdim: bool
) -> Expr | None:
    """The variance as ``R.variance`` has it, of numbers of elements that are known."""
    sizes = [dims_of(self)[a] for a in axes_of(dim, ndim_of(self))]
    known = [d for d in sizes if isinstance(d, int)]
    count = math.prod(known)
    if len(known) < len(sizes) or not is_float(dtype_of(self)) or count <= correction:
        return None
    made = R.variance(self, written_axes(dim, ndim_of(self)), keepdim)
    if not correction:
        return made
    return R.multiply(made, scalar(count / (count - correction), dtype_of(self)))


def _running_mean(ctx: Context, self: Expr, dim: Axes, mean: Expr, keepdim: bool) -> Expr:
    """``mean`` as torch gives it beside a variance, of a mean that it moves from value to value.

    An infinite one cannot be moved: it is NaN unless nothing but the last value is infinite.
    """
    axes = axes_of(dim, ndim_of(self))
    if is_complex(self) or not axes:
        return mean
    before: Expr | None = None
    for a in axes:
        size = dims_of(self)[a]
        index = R.arange(0, size, 1, "int64")
        part = R.less(index, ctx.tensor(size - 1, "int64"))
        part = R.expand_dims(part, [i for i in range(ndim_of(self)) if i != a])
        before = part if before is None else R.logical_or(before, part)
    assert before is not None
    stuck = R.logical_and(before, R.logical_not(R.isfinite(self)))
    stuck = R.greater(R.max(R.astype(stuck, "uint8"), axes, keepdim), scalar(0, "uint8"))
    return R.where(stuck, scalar(math.nan, dtype_of(mean)), mean)


def _spread(finish: Callable[[Expr], Expr], with_mean: bool) -> Function:
    """What ``finish`` makes of the variance, and the mean where it is asked for."""

    def convert(
        ctx: Context,
        self: Expr,
        dim: Axes = None,
        unbiased: bool = True,
        correction: Any = None,
        keepdim: bool = False,
    ) -> Any:
        taken = int(unbiased) if correction is None else correction
        if not with_mean:
            known = _scaled_variance(ctx, self, dim, taken, keepdim)
            if known is not None:
                return finish(ctx.emit(known))
            return finish(_variance(ctx, self, dim, taken, keepdim)[0])
        spread, mean = _variance(ctx, self, dim, taken, keepdim)
        return finish(spread), _running_mean(ctx, self, dim, mean, keepdim)

    return convert


SPREADS: dict[str, Function] = {
    "var": _spread(lambda x: x, False),
    "std": _spread(root, False),
    "var_mean": _spread(lambda x: x, True),
    "std_mean": _spread(root, True),
}
for _name, _function in SPREADS.items():
    aten(_name, f"{_name}.dim", f"{_name}.correction", wide=True)(_function)


@aten(
    "linalg_vector_norm norm.ScalarOpt_dim norm.Scalar norm.ScalarOpt_dim_dtype",
    ignored="dtype",
)
def vector_norm(
    ctx: Context,
    self: Expr,
    ord: Any = None,
    p: Any = None,
    dim: Axes = None,
    keepdim: bool = False,
) -> Expr:
    order = ord if ord is not None else 2 if p is None else p
    wide = {"float32": "complex64", "float64": "complex128"}
    x = ctx.cast(self, wide[ctx.dtype()] if is_complex(self) else ctx.dtype())
    kind = ctx.dtype()
    if not is_float(kind):
        raise Unsupported(f"the norm of a {dtype_of(self)} tensor")
    return norm(ctx, x, order, written_axes(dim, ndim_of(self)), keepdim)


def norm(ctx: Context, x: Expr, order: Any, axes: list[int] | None, keepdim: bool = False) -> Expr:
    """The norm of an order along axes, None for all of them, in the real dtype."""
    if order == 2:
        return root(ctx.emit(R.sum(square_of_abs(ctx, x), axes, keepdim)))
    size = ctx.emit(R.abs(x))
    kind = dtype_of(size)
    if order == math.inf:
        return R.max(size, axes, keepdim)
    if order == -math.inf:
        return R.min(size, axes, keepdim)
    if order == 0:
        return R.sum(R.astype(as_bool(size), kind), axes, keepdim)
    if order == 1:
        return R.sum(size, axes, keepdim)
    powers = ctx.emit(R.power(size, scalar(order, kind)))
    if order < 1:
        # The power of 0 has no derivative, whatever the others are.
        zero = ctx.emit(R.equal(size, scalar(0, kind)))
        some = R.power(R.where(zero, scalar(1, kind), size), scalar(order, kind))
        powers = R.grad.differentiate_as(powers, R.where(zero, R.grad.no_grad(powers), some))
    total = ctx.emit(R.sum(powers, axes, keepdim))
    return R.power(total, scalar(1.0 / order, kind)) if order < 1 else root(total, order)


# -- positions -----------------------------------------------------------------------------------
def arg_extremum(ctx: Context, self: Expr, dim: int | None, keepdim: bool, largest: bool) -> Expr:
    """Position of the first extremum as int64; NaN counts as one, as in torch."""
    x = ctx.emit(self)
    ndim = ndim_of(x)
    if ndim == 0:
        return R.zeros((), "int64")
    if dtype_of(x) == "bool":
        x = R.astype(x, "int8")
    return (R.argmax if largest else R.argmin)(x, dim, keepdim)


def _position(largest: bool) -> Function:
    return lambda ctx, self, dim=None, keepdim=False: arg_extremum(ctx, self, dim, keepdim, largest)


def _with_position(extremum: Function, largest: bool) -> Function:
    """Extrema and their places; of equal ones the first alone has a derivative."""

    def convert(ctx: Context, self: Expr, dim: int, keepdim: bool = False) -> tuple[Expr, Expr]:
        value = extremum(ctx, self, dim, keepdim)
        place = arg_extremum(ctx, self, dim, keepdim, largest)
        if not is_float(dtype_of(self)) or not ndim_of(self):
            return value, place
        place = ctx.emit(place)
        axis = axis_of(dim, ndim_of(self))
        at = place if keepdim else ctx.emit(R.expand_dims(place, [axis]))
        found = R.gather_elements(self, at, axis)
        found = found if keepdim else R.squeeze(found, [axis])
        return R.grad.differentiate_as(value, found), place

    return convert


aten("argmax")(_position(True))
aten("argmin")(_position(False))
aten("max.dim")(_with_position(amax, True))
aten("min.dim")(_with_position(amin, False))


@aten("topk", ignored="sorted")
def topk(
    ctx: Context, self: Expr, k: Any, dim: int = -1, largest: bool = True
) -> tuple[Expr, Expr]:
    """Sorted also where ``sorted`` is False, which leaves the order open."""
    if ndim_of(self) == 0:
        return self, R.zeros((), "int64")
    pair = ctx.emit(R.topk(self, k, dim, "both", largest, "int64"))
    return pair[0], pair[1]


@aten("sort", "sort.stable", ignored="stable")
def sort(ctx: Context, self: Expr, dim: int = -1, descending: bool = False) -> tuple[Expr, Expr]:
    """Always stable."""
    if ndim_of(self) == 0:
        return self, R.zeros((), "int64")
    x = ctx.emit(self)
    order = ctx.emit(R.argsort(x, dim, descending, "int64"))
    return R.gather_elements(x, order, dim), order


@aten("argsort", "argsort.stable", ignored="stable")
def argsort(ctx: Context, self: Expr, dim: int = -1, descending: bool = False) -> Expr:
    return sort(ctx, self, dim, descending)[1]


@aten("kthvalue")
def kthvalue(
    ctx: Context, self: Expr, k: Any, dim: int = -1, keepdim: bool = False
) -> tuple[Expr, Expr]:
    if ndim_of(self) == 0:
        return self, R.zeros((), "int64")
    axis = axis_of(dim, ndim_of(self))
    values, order = (ctx.emit(v) for v in sort(ctx, self, axis))
    picked = [
        R.strided_slice(v, [axis], [k - 1], [k], assume_inbound=True) for v in (values, order)
    ]
    return kept_or_not(picked, axis, keepdim)


def kept_or_not(pair: Sequence[Expr], axis: int, keepdim: bool) -> tuple[Expr, Expr]:
    """Values and places with their axis of one element, or without."""
    first, second = pair if keepdim else [R.squeeze(v, [axis]) for v in pair]
    return first, second


# -- scans ---------------------------------------------------------------------------------------
def _cumulative(scan: Callable[..., Expr]) -> Function:
    def convert(ctx: Context, self: Expr, dim: int) -> Expr:
        if ndim_of(self) == 0:
            return ctx.cast(self, ctx.dtype())
        return scan(self, dim, None if dtype_of(self) == ctx.dtype() else ctx.dtype())

    return convert


aten("cumsum", ignored="dtype")(_cumulative(R.cumsum))
aten("cumprod", ignored="dtype")(_cumulative(R.cumprod))
