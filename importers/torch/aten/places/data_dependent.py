"""Shapes and numbers that depend on data: nonzero, masks as indices, ``.item()``.

torch.export names what it cannot know by a symbol (``u0``). Here an ``R.match_cast`` gives that
symbol its value as soon as the data are there; the virtual machine runs such steps on the host.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from relax2xla import op as R
from relax2xla import tir
from relax2xla.importers.shared.gaps import Unsupported
from relax2xla.importers.torch.engine.context import (
    Context,
    axis_of,
    broadcast,
    dims_of,
    dtype_of,
    ndim_of,
)
from relax2xla.importers.torch.engine.converters import aten
from relax2xla.ir import Expr, ShapeStructInfo, TensorStructInfo

#: Operators that read one element of a tensor as a number.
ITEMS = frozenset({"item", "_local_scalar_dense"})


def settled(expected: Any) -> Any:
    """The value of an item that later assertions leave one value for; None where there are more."""
    if not isinstance(expected, torch.SymInt | torch.SymBool) or expected.node.expr.free_symbols:
        return None
    return expected.node.pytype(expected.node.expr)


def item(ctx: Context, x: Expr, expected: Any) -> Any:
    """``x.item()`` for a tensor of one element; ``expected`` is torch's symbol for it."""
    if isinstance(expected, torch.SymFloat):
        value = ctx.emit(ctx.cast(ctx.reshape(x, ()), "float64"))
        ctx.symbols.numbers[str(expected.node.expr)] = value
        return value
    if not isinstance(expected, torch.SymInt | torch.SymBool):
        raise Unsupported(f"a number of type {type(expected).__name__} read from a tensor")
    expr: Any = expected.node.expr
    (symbol,) = expr.free_symbols
    vector = ctx.emit(ctx.reshape(ctx.cast(x, "int64"), (1,)))
    if expected.node.shape_env.bound_sympy(symbol).lower >= 0:
        shape = ctx.emit(R.tensor_to_shape(vector))
        ctx.builder.match_cast(shape, ShapeStructInfo((ctx.symbols.convert(symbol),)))
        return ctx.symbols.value(expected)
    # Shapes hold no negative numbers: this is the difference of two that are not.
    zero = ctx.tensor(0, "int64")
    sides = [R.maximum(v, zero) for v in (vector, R.negative(vector))]
    shape = ctx.emit(R.tensor_to_shape(ctx.emit(R.concat(sides, 0))))
    above, below = (tir.Var(f"{symbol}_{side}", "int64") for side in ("above", "below"))
    ctx.builder.match_cast(shape, ShapeStructInfo((above, below)))
    ctx.symbols.define(symbol, above - below)
    return ctx.symbols.value(expected)


# -- symbolic floats -----------------------------------------------------------------------------
_NAMED = ("exp", "log", "cos", "sin", "tanh")
_FLOATS: dict[str, Any] = {
    "FloatTrueDiv": R.divide,
    "IntTrueDiv": R.divide,
    "FloatPow": R.power,
    "Pow": R.power,
    "PowByNatural": R.power,
    "Max": R.maximum,
    "Min": R.minimum,
    "Abs": R.abs,
    "OpaqueUnaryFn_sqrt": R.sqrt,
    **{prefix + name: getattr(R, name) for prefix in ("", "OpaqueUnaryFn_") for name in _NAMED},
}


def number(ctx: Context, value: Any) -> Expr:
    """A symbolic float, such as ``math.sqrt(x.shape[0])``, as a float64 scalar."""
    made = ctx.emit(_number(ctx, value.node.expr))
    ctx.symbols.numbers[str(value.node.expr)] = made
    return made


def _number(ctx: Context, expr: Any) -> Expr:
    """One sympy expression; they are as deep as the user's formula, so this recurses."""
    known = ctx.symbols.numbers.get(str(expr))
    if known is not None:
        return known
    if expr.is_Integer or expr.is_Float or expr.is_Rational:
        return ctx.tensor(float(expr), "float64")
    if expr.is_integer:
        return ctx.tensor(ctx.symbols.convert(expr), "float64")
    kind = type(expr).__name__
    if kind in ("ToFloat", "Identity"):
        return _number(ctx, expr.args[0])
    args = [_number(ctx, a) for a in expr.args]
    if kind in ("Add", "Mul"):
        return functools.reduce(R.add if kind == "Add" else R.multiply, args)
    if kind not in _FLOATS:
        raise Unsupported(f"the symbolic number {expr} has no Relax counterpart")
    return _FLOATS[kind](*args)


# -- nonzero and masks ---------------------------------------------------------------------------
def places(ctx: Context, mask: Expr, count: Any) -> Expr:
    """Indices of the elements that are not zero, (rank, count); binds the symbol ``count``."""
    found = ctx.emit(R.nonzero(mask))
    wanted = TensorStructInfo((ndim_of(mask), count), "int64")
    return ctx.builder.match_cast(found, wanted)


@aten("nonzero", "argwhere")
def nonzero(ctx: Context, self: Expr) -> Expr:
    """One row of indices for each element that is not zero."""
    if ndim_of(self) == 0:
        count = ctx.dims()[0]
        places(ctx, ctx.emit(R.reshape(self, (1,))), count)
        return R.zeros((count, 0), "int64")
    return R.permute_dims(places(ctx, self, ctx.dims()[0]), [1, 0])


@aten("nonzero_numpy", "where")
def nonzero_numpy(ctx: Context, self: Expr) -> list[Expr]:
    """One vector of indices for each dimension."""
    if ndim_of(self) == 0:
        self = ctx.emit(R.reshape(self, (1,)))
    return _rows(ctx, places(ctx, self, ctx.dims(0)[0]))


@aten("masked_select")
def masked_select(ctx: Context, self: Expr, mask: Expr) -> Expr:
    """The elements where ``mask`` holds, as a vector, after broadcasting."""
    x, m = ctx.emit(self), ctx.emit(mask)
    if dims_of(x) != dims_of(m):
        shapes = (n.meta["val"].shape for n in ctx.node.args)
        common = ctx.symbols.dims(torch.broadcast_shapes(*shapes))
        x, m = (broadcast(v, common) for v in (x, m))
    flat = ctx.emit(R.reshape(m, (-1,)))
    (at,) = _rows(ctx, places(ctx, flat, ctx.dims()[0]))
    return R.take(R.reshape(x, (-1,)), at, 0)


@aten("repeat_interleave.Tensor")
def repeat_interleave(ctx: Context, repeats: Expr, output_size: Any = None) -> Expr:
    """Each place as many times as ``repeats`` says."""
    return ctx.cast(_runs(ctx, repeats, ctx.dims()[0], output_size), ctx.dtype())


@aten("repeat_interleave.self_Tensor")
def repeat_interleave_along(
    ctx: Context, self: Expr, repeats: Expr, dim: int | None = None, output_size: Any = None
) -> Expr:
    """Each slice along ``dim``, without one each element, as many times as ``repeats`` says."""
    if dim is None or not ndim_of(self):
        self, dim = ctx.emit(R.reshape(self, (-1,))), 0
    axis = axis_of(dim, ndim_of(self))
    each = broadcast(ctx.reshape(repeats, (-1,)), dims_of(self)[axis : axis + 1])
    return R.take(self, ctx.emit(_runs(ctx, each, ctx.dims()[axis], output_size)), axis)


def _runs(ctx: Context, repeats: Expr, total: Any, output_size: Any) -> Expr:
    """Places, each ``repeats`` times, ``total`` in all: the number of runs that end before."""
    ends = ctx.emit(R.cumsum(ctx.cast(repeats, "int64"), 0))
    if output_size is None:
        vector = ctx.emit(R.sum(ctx.cast(repeats, "int64"), [0], keepdims=True))
        shape = ctx.emit(R.tensor_to_shape(vector))
        ctx.builder.match_cast(shape, ShapeStructInfo((total,)))
    return R.bucketize(ctx.emit(R.arange(0, total, 1, "int64")), ends, right=True)


def without_masks(ctx: Context, indices: Sequence[Expr | None]) -> list[Expr | None]:
    """Indices with each mask replaced by the places where it holds, one vector for each axis."""
    made: list[Expr | None] = []
    count: Any = None
    for i in indices:
        if i is None or not is_mask(i):
            made.append(i)
            continue
        if ndim_of(i) == 0:
            raise Unsupported("a scalar mask as an index", "use torch.where")
        if count is None:
            count = _count(ctx, indices)
        made += _rows(ctx, places(ctx, i, count))
    return made


def _rows(ctx: Context, found: Expr) -> list[Expr]:
    rank, count = dims_of(found)
    assert isinstance(rank, int)
    taken = (R.strided_slice(found, [0], [k], [k + 1]) for k in range(rank))
    return [ctx.emit(R.reshape(row, (count,))) for row in taken]


def _count(ctx: Context, indices: Sequence[Expr | None]) -> Any:
    """The number of elements that the masks select: a symbol of the result's shape."""
    fresh = [d for d in ctx.dims() if isinstance(d, tir.Var) and d.name.startswith("u")]
    tensors = [i for i in indices if i is not None]
    if len(fresh) == 1 and len(tensors) == 1:
        return fresh[0]
    # Beside other indices its place is not certain; torch's shape of the result is compared later.
    return fresh[0] if len(fresh) == 1 else tir.Var("selected", "int64")


def is_mask(index: Expr) -> bool:
    """Whether an index selects by a condition; uint8 does so in torch too."""
    return dtype_of(index) in ("bool", "uint8")
