"""Sums, extrema and the like over axes of a tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relax2xla import te, tir
from relax2xla.topi.math import identity
from relax2xla.topi.shared import FUNCTIONS, compute, is_same, known, ravel, shown, some_axes


def over_axes(
    data: te.Tensor, axis: Any, keepdims: bool, what: str
) -> tuple[list[Any], list[int], list[Any], Callable[[Sequence[Any]], list[Any]]]:
    """Sizes of the result, the axes, loops over them (k0, k1 ...), and where an element reads."""
    axes = some_axes(axis, data.ndim, what)
    loops = [te.reduce_axis((0, data.shape[a]), f"k{a}") for a in axes]
    kept = [1 if a in axes else n for a, n in enumerate(data.shape) if keepdims or a not in axes]

    def place(index: Sequence[Any]) -> list[Any]:
        rest = iter(index)
        inside = iter(loops)
        made: list[Any] = []
        for a in range(data.ndim):
            if a in axes:
                made.append(next(inside))
                if keepdims:
                    next(rest)
            else:
                made.append(next(rest))
        return made

    return kept, axes, loops, place


def _reduction(name: str, reducer: Callable[..., Any], doc: str) -> Callable[..., Any]:
    def function(data: te.Tensor, axis: Any = None, keepdims: bool = False) -> te.Tensor:
        kept, axes, loops, place = over_axes(data, axis, keepdims, name)
        if not axes:
            return identity(data)

        def element(*i: Any) -> Any:
            return reducer(data(*place(i)), axis=loops)

        return compute(kept, element, f"{data.name}_red", "comm_reduce")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc} ``axis``: one or several; all by default."
    return function


_all = te.comm_reducer(lambda x, y: tir.And.make(x, y), lambda t: tir.const(True), name="all")
_any = te.comm_reducer(lambda x, y: tir.Or.make(x, y), lambda t: tir.const(False), name="any")

sum = _reduction("sum", te.sum, "The sum over axes, in the dtype of ``data``.")
prod = _reduction("prod", te.prod, "The product over axes, in the dtype of ``data``.")
max = _reduction("max", te.max, "The largest element over axes.")
min = _reduction("min", te.min, "The smallest element over axes.")
all = _reduction("all", _all, "Whether all elements, which are bools, are true.")
any = _reduction("any", _any, "Whether one of the elements, which are bools, is true.")


def arg_reducer(
    name: str, better: Callable[[Any, Any], Any], worst: str, last: bool = False
) -> Callable[..., Any]:
    """Of pairs of a place and a value the better one; of equal ones the first, or the ``last``."""

    def combine(x: Any, y: Any) -> Any:
        stays = better(x[1], y[1])
        earlier = x[0] > y[0] if last else x[0] < y[0]
        tie = tir.And.make(tir.EQ.make(x[1], y[1]), earlier)
        first = tir.Or.make(stays, tie)
        return tir.Select(first, x[0], y[0]), tir.Select(stays, x[1], y[1])

    def identity(index: str, value: str) -> Any:
        return tir.const(-1, index), FUNCTIONS[worst](value)

    return te.comm_reducer(combine, identity, name=name)


def _arg(name: str, better: Callable[[Any, Any], Any], worst: str, doc: str) -> Callable[..., Any]:
    """The first (or the last) place of the best element."""

    def function(
        data: te.Tensor, axis: Any = None, keepdims: bool = False, select_last_index: bool = False
    ) -> te.Tensor:
        kept, axes, loops, place = over_axes(data, axis, keepdims, name)
        sizes = [data.shape[a] for a in axes]
        made = arg_reducer(name, better, worst, select_last_index)

        def element(*i: Any) -> Any:
            # The place among all elements that are reduced.
            at = loops[0].var if len(loops) == 1 else ravel([k.var for k in loops], sizes)
            return made((at, data(*place(i))), axis=loops)

        if not axes:
            raise ValueError(f"topi.{name} takes one axis or more; the tensor is a scalar")
        pair: Any = compute(kept, element, f"{data.name}_red_temp", "comm_reduce_idx")
        return compute(kept, lambda *i: pair[0](*i), f"{data.name}_red", "comm_reduce_idx")

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{doc} Over several axes it is the place in row-major order. Of equal elements the first, "
        "or the last if ``select_last_index``."
    )
    return function


argmax = _arg("argmax", tir.GT.make, "min_value", "Where the largest element is.")
argmin = _arg("argmin", tir.LT.make, "max_value", "Where the smallest element is.")


def collapse_sum(data: te.Tensor, target_shape: Sequence[Any]) -> te.Tensor:
    """Sum of what broadcasting repeats: of ``data`` to ``target_shape``, which broadcasts to it."""
    target = list(target_shape)
    extra = data.ndim - len(target)
    if extra < 0:
        raise ValueError(
            f"topi.collapse_sum: {shown(target)} has more axes than {shown(data.shape)}"
        )
    axes = list(range(extra))
    for a, n in enumerate(target, extra):
        if not is_same(n, data.shape[a]):
            if known(n) != 1:
                raise ValueError(
                    f"topi.collapse_sum: {shown(target)} does not broadcast to {shown(data.shape)}"
                )
            axes.append(a)
    if not axes:
        return data
    loops = [te.reduce_axis((0, data.shape[a]), f"k{a}") for a in axes]

    def element(*i: Any) -> Any:
        at = [*([0] * extra), *i]
        for a, k in zip(axes, loops, strict=True):
            at[a] = k
        return te.sum(data(*at), axis=loops)

    return compute(target, element, f"{data.name}_red", "comm_reduce")
