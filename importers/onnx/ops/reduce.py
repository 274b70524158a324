# ruff: noqa: D103  (a converter's documentation is the ONNX schema; it says what differs)
"""ai.onnx: reductions, positions of extremes, the k largest.

Semantics: the operator specifications of ONNX. Until opset 13 (ReduceSum) or 18 (the others) the
axes are an attribute, then an input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import op as R
from relax2xla import tir
from relax2xla.dtypes import is_float, limits
from relax2xla.importers.onnx.engine import computed_shapes
from relax2xla.importers.onnx.engine.bound_numbers import count_of
from relax2xla.importers.onnx.engine.context import Context
from relax2xla.importers.onnx.engine.converters import Lazy, Sizes, onnx_op
from relax2xla.importers.onnx.engine.known_values import (
    axis_of,
    dims_of,
    dtype_of,
    ndim_of,
    scalar,
    statics,
)
from relax2xla.importers.shared.dims import fold_dim, larger
from relax2xla.importers.shared.reductions import log_sum_exp, marked_root
from relax2xla.ir import Expr

Reduce = Callable[[Expr, Sequence[int] | None, bool], Expr]


def _extreme(reduce: Reduce, end: int) -> Reduce:
    """Of no elements the value that any other beats; of booleans by way of integers.

    end: which of the least and the largest value of a dtype that is
    """

    def rule(x: Expr, axes: Sequence[int] | None, keep: bool) -> Expr:
        dtype = dtype_of(x)
        if dtype == "bool":
            return R.astype(reduce(R.astype(x, "uint8"), axes, keep), "bool")
        dims = dims_of(x)
        over = range(len(dims)) if axes is None else axes
        if any(isinstance(a, int) and dims[a] == 0 for a in over):
            ends = (-math.inf, math.inf) if is_float(dtype) else limits(dtype)
            kept = [1 if i in over else d for i, d in enumerate(dims) if keep or i not in over]
            return R.full(kept, scalar(ends[end], dtype), dtype)
        return reduce(x, axes, keep)

    return rule


def _log_sum_exp(x: Expr, axes: Sequence[int] | None, keep: bool) -> Expr:
    if any(d == 0 for d in dims_of(x)):
        return R.log(R.sum(R.exp(x), axes, keep))
    made = log_sum_exp(x, axes)
    return made if keep else R.squeeze(made, axes)


_REDUCTIONS: dict[str, Reduce] = {
    "ReduceSum": R.sum,
    "ReduceMean": R.mean,
    "ReduceProd": R.prod,
    "ReduceMax": _extreme(R.max, 0),
    "ReduceMin": _extreme(R.min, 1),
    "ReduceL1": lambda x, axes, keep: R.sum(R.abs(x), axes, keep),
    "ReduceL2": lambda x, axes, keep: _sqrt(R.sum(R.multiply(x, x), axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: R.log(R.sum(x, axes, keep)),
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSumSquare": lambda x, axes, keep: R.sum(R.multiply(x, x), axes, keep),
}


def _sqrt(x: Expr) -> Expr:
    dtype = dtype_of(x)
    return marked_root(x) if is_float(dtype) else R.astype(R.sqrt(R.astype(x, "float64")), dtype)


# Each of these, applied to one element at a time, is what is left of it without axes.
def _reduced(
    ctx: Context, name: str, x: Expr, axes: Sequence[Any] | Expr | None, keepdims: int, noop: int
) -> Expr:
    rule = _REDUCTIONS[name]
    ndim = ndim_of(x)
    if isinstance(axes, Expr) and count_of(axes, "the input axes"):
        return _reduced_late(ctx, name, x, axes, bool(keepdims))
    if isinstance(axes, Expr):
        axes = None
    if not axes:
        if noop:
            # Over a new axis of size one.
            return rule(R.expand_dims(x, [ndim]), [ndim], False)
        return rule(x, None if ndim else [], bool(keepdims))
    return rule(x, [axis_of(a, ndim) for a in statics(axes, "an axis")], bool(keepdims))


# Where reducing one axis after the other is not the same rule for each: the first, the others, and
# what is done last.
_STEPS: dict[str, tuple[str, str, Callable[[Expr], Expr]]] = {
    "ReduceSumSquare": ("ReduceSumSquare", "ReduceSum", lambda x: x),
    "ReduceLogSum": ("ReduceSum", "ReduceSum", lambda x: R.log(x)),
    "ReduceL2": ("ReduceSumSquare", "ReduceSum", _sqrt),
}


def _reduced_late(ctx: Context, name: str, x: Expr, axes: Expr, keep: bool) -> Expr:
    """Over axes that are computed at run time, one after the other."""
    ndim = ndim_of(x)
    gone = computed_shapes.axes_in_order(ctx, axes, ndim)
    first, then, last = _STEPS.get(name, (name, name, lambda x: x))
    if len(gone) == 1:
        first, last = name, lambda x: x
    rules = [first, *[then] * (len(gone) - 1)]
    made = x
    for a, step in zip(gone, rules, strict=True):
        rule: Any = _REDUCTIONS[step]
        made = ctx.pinned(rule(made, [a], True), [None] * ndim)
    made = last(made)
    for a in [] if keep else reversed(gone):
        made = ctx.pinned(R.squeeze(made, [a]), [None] * (ndim_of(made) - 1))
    return made


def _register(name: str) -> None:
    @onnx_op(name, attributes="axes", lacks="noop_with_empty_axes")
    @onnx_op(name, since=13 if name == "ReduceSum" else 18)
    def _(
        ctx: Context,
        data: Expr,
        axes: Lazy | None = None,
        *,
        keepdims: int = 1,
        noop_with_empty_axes: int = 0,
    ) -> Expr:
        return _reduced(ctx, name, data, axes, keepdims, noop_with_empty_axes)


for _name in _REDUCTIONS:
    _register(_name)


def _register_position(name: str, pick: Callable[..., Expr]) -> None:
    @onnx_op(name)
    def _(
        ctx: Context, data: Expr, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
    ) -> Expr:
        """The first, or the last, position of an extreme."""
        at = axis_of(axis, ndim_of(data))
        dims = dims_of(data)
        if dims[at] == 0 and any(d == 0 for i, d in enumerate(dims) if i != at):
            kept = [1 if i == at else d for i, d in enumerate(dims) if keepdims or i != at]
            return R.zeros(kept, "int64")  # nothing is asked for a position of nothing
        if not select_last_index:
            return pick(data, axis=at, keepdims=bool(keepdims))
        found = pick(R.flip(data, at), axis=at, keepdims=bool(keepdims))
        return R.subtract(ctx.size(fold_dim(dims[at] - 1), "int64"), found)


_register_position("ArgMax", R.argmax)
_register_position("ArgMin", R.argmin)


@onnx_op("TopK")
def topk_attribute(ctx: Context, X: Expr, *, k: int, axis: int = -1) -> Any:
    return topk(ctx, X, [k], axis=axis)


@onnx_op("TopK", since=10, lacks="largest sorted")
@onnx_op("TopK", since=11)
def topk(
    ctx: Context, X: Expr, K: Sizes, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> Any:
    """Sorted even where ``sorted`` leaves the order open."""
    if len(K) != 1:
        raise ValueError(f"K has {len(K)} values; it must have one")
    x, k = X, tir.as_dim(K[0])
    at = axis_of(axis, ndim_of(x))
    size = dims_of(x)[at]
    if (isinstance(k, int) and k == 0) or (size == 0 and not isinstance(k, int)):
        dims = [0 if i == at else d for i, d in enumerate(dims_of(x))]
        return [R.zeros(dims, kind) for kind in (dtype_of(x), "int64")]
    if not isinstance(k, int):
        # None of them is a part of the first: R.topk takes 0 for all.
        some: Any = larger(k, 1)
        made = ctx.emit(R.topk(x, some, at, "both", bool(largest), "int64"))
        dims = [k if i == at else d for i, d in enumerate(dims_of(x))]
        parts = [R.strided_slice(made[i], [at], [0], [k]) for i in (0, 1)]
        return [ctx.pinned(part, dims) for part in parts]
    if k < 1 or (isinstance(size, int) and k > size):
        raise ValueError(f"k={k} of {size} values")
    return R.topk(x, k, at, "both", bool(largest), "int64")
