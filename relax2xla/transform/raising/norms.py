"""Patterns of norms: layer_norm, rms_norm, instance_norm, group_norm, batch_norm."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from relax2xla.dtypes import is_float
from relax2xla.ir import Call, Expr, ShapeExpr, TupleGetItem
from relax2xla.op.shared.lowering import (
    chlo,
    convert,
    full_like,
    hlo,
    in_float32,
    reduce,
    relax,
    spread,
)
from relax2xla.transform.raising.common import Guesses, core, hole, plus, shortest, times
from relax2xla.transform.raising.graph import Graph, dtype_of, row_name, shape_of
from relax2xla.transform.raising.match import Guess

How = tuple[bool, bool, bool]


def _mean_forms(times_: bool) -> Callable[[Expr, Sequence[int]], Expr]:
    def mean(x: Expr, axes: Sequence[int]) -> Expr:
        total = reduce(x, "add", axes)
        count = math.prod((shape_of(x) or ())[a] for a in axes)
        if times_:
            return times(total, 1.0 / count)
        return hlo("divide", total, full_like(total, count))

    return mean


def _square_forms(row: bool) -> Callable[[Expr], Expr]:
    return lambda x: chlo("square", x) if row else hlo("multiply", x, x)


def _normalised(x: Expr, axes: Sequence[int], epsilon: float, how: How, centred: bool) -> Expr:
    """``(x - mean) / sqrt(variance + epsilon)``; without the mean where not ``centred``.

    ``how``: mean by a factor, square as a row, reciprocal root by division.
    """
    mean, square = _mean_forms(how[0]), _square_forms(how[1])
    shape = shape_of(x) or ()
    if centred:
        x = hlo("subtract", x, spread(mean(x, axes), shape, axes))
    power = plus(mean(square(x), axes), epsilon)
    if how[2]:
        return hlo("divide", x, spread(hlo("sqrt", power), shape, axes))
    return hlo("multiply", x, spread(hlo("rsqrt", power), shape, axes))


def _root(graph: Graph, call: Call, steps: int = 3) -> Call | None:
    """The (reciprocal) root by which a norm, whose last rows ``call`` are, scales: only products
    stand between.
    """
    for name in ("rsqrt", "sqrt"):
        for a in call.args:
            if (found := graph.under(a, name)) is not None:
                return found
    for a in call.args if steps else ():
        for name in ("multiply", "divide"):
            inner = graph.under(a, name)
            found = None if inner is None else _root(graph, inner, steps - 1)
            if found is not None:
                return found
    return None


def _epsilon(graph: Graph, call: Call) -> tuple[float, tuple[int, ...], list[How]] | None:
    """The number that is added before the (reciprocal) root, the axes of the mean before, and in
    which ways the rows may be written.
    """
    root = _root(graph, call) if is_float(dtype_of(call)) else None
    added = None if root is None else graph.under(root.args[0], "add")
    known = [] if added is None else [graph.splat(a) for a in added.args]
    number = next((k for k in known if k is not None), None)
    if root is None or added is None or number is None:
        return None
    power = graph.find(added, "reduce")
    axes = () if power is None else tuple(power.attrs["dimensions"])
    squared = power is not None and row_name(graph.value(power.args[0])) == "chlo.square"
    ways = [(factor, squared, row_name(root) == "sqrt") for factor in (True, False)]
    return shortest(number), axes, ways


def _affine(x: Expr, dtype: str, parameters: Sequence[tuple[str, Expr]], axes: Any) -> Expr:
    shape = shape_of(x) or ()
    for name, parameter in parameters:
        others = [a for a in range(len(shape)) if a not in axes]
        x = hlo(name, x, spread(convert(parameter, dtype), shape, others))
    return x


def layer_norm(graph: Graph, call: Call) -> Guesses:
    """``(x - mean) / sqrt(var + eps) * gamma + beta`` over some axes; gamma and beta may lack.

    layer_norm and rms_norm have parameters on the axes of the mean, instance_norm on a channel.
    """
    found = _epsilon(graph, core(graph, call))
    shape, dtype = shape_of(call), dtype_of(call)
    if found is None or shape is None or not found[1] or not is_float(dtype):
        return
    epsilon, axes, ways = found
    if max(axes) >= len(shape):
        return
    kind = row_name(core(graph, call))
    both = ((True, True), (False, True)) if kind == "add" else ((True, False), (False, False))
    for scale, center in both:
        key = (call.struct_info, epsilon, axes, *ways)
        yield graph.once(
            ("nn.layer_norm", scale, center, key),
            lambda scale=scale, center=center: _layer(call, scale, center, epsilon, axes, ways),
        )
        if scale and not center:
            yield graph.once(
                ("nn.rms_norm", key), lambda: _layer(call, True, False, epsilon, axes, ways, True)
            )
    if kind == "add" and len(shape) > 2:
        for channel in (a for a in range(len(shape)) if a not in axes):

            def instance(channel: int = channel) -> Guess:
                names = ("gamma", "beta")
                parameters = [hole([shape[channel]], dtype, n) for n in names]
                kwargs: dict[str, Any] = {"channel_axis": channel, "axes": list(axes)}
                x = hole(shape, dtype)
                return Guess(relax("nn.instance_norm", x, *parameters, epsilon=epsilon, **kwargs))

            yield graph.once(
                ("nn.instance_norm", call.struct_info, channel, axes, epsilon), instance
            )


def _layer(
    call: Call,
    scale: bool,
    center: bool,
    epsilon: float,
    axes: tuple[int, ...],
    ways: Sequence[How],
    rms: bool = False,
) -> Guess:
    """layer_norm with ``scale`` or ``center``, or rms_norm, of a result like ``call``."""
    shape, dtype = shape_of(call) or (), dtype_of(call)
    x = hole(shape, dtype)
    own = [shape[a] for a in axes]
    gamma, beta = hole(own, dtype, "gamma"), hole(own, dtype, "beta")
    kwargs: dict[str, Any] = {"axes": [a - len(shape) for a in axes], "epsilon": epsilon}
    present = ([("multiply", gamma)] if scale else []) + ([("add", beta)] if center else [])

    def form(how: How) -> Expr:
        def body(y: Expr) -> Expr:
            y = _normalised(y, axes, epsilon, how, not rms)
            return _affine(y, dtype_of(y), present, axes)

        return in_float32(body, x)

    if rms:
        return Guess(relax("nn.rms_norm", x, gamma, **kwargs), (form(how) for how in ways))
    norm = relax(
        "nn.layer_norm",
        x,
        gamma if scale else relax("ones", ShapeExpr(own), dtype=dtype),
        beta if center else relax("zeros", ShapeExpr(own), dtype=dtype),
        center=center,
        scale=scale,
        **kwargs,
    )
    return Guess(norm, (form(how) for how in ways))


def group_norm(graph: Graph, call: Call) -> Guesses:
    """Channels as (group, channel of the group), normalised over the latter and other axes."""
    end = core(graph, call)
    inner = graph.value(end.args[0]) if end.args else end
    found = None
    if isinstance(inner, Call) and row_name(inner) == "add":
        found = _epsilon(graph, inner)
    shape, split = shape_of(call), shape_of(inner)
    if found is None or shape is None or split is None or len(split) != len(shape) + 1:
        return
    epsilon, axes, _ = found
    for channel in range(len(shape)):
        if channel + 1 in axes and split[:channel] == shape[:channel]:

            def make(channel: int = channel) -> Guess:
                dtype = dtype_of(call)
                parameters = [hole([shape[channel]], dtype, n) for n in ("gamma", "beta")]
                return Guess(
                    relax(
                        "nn.group_norm",
                        hole(shape, dtype),
                        *parameters,
                        num_groups=split[channel],
                        channel_axis=channel,
                        epsilon=epsilon,
                        axes=[a - 1 if a > channel else a for a in axes if a != channel + 1],
                    )
                )

            key = ("nn.group_norm", call.struct_info, split, channel, axes, epsilon)
            yield graph.once(key, make)


def batch_norm(graph: Graph, call: Call) -> Guesses:
    """``x * (gamma / sqrt(var + eps)) + (beta - mean * gamma / sqrt(var + eps))`` by channel."""
    end = core(graph, call)
    found = _epsilon(graph, end)
    root = _root(graph, end)
    shape, dtype = shape_of(call), dtype_of(call)
    vector = shape_of(root) if root is not None and row_name(root) == "rsqrt" else None
    if found is None or shape is None or vector is None or len(vector) != 1 or len(shape) < 2:
        return
    epsilon = found[0]
    for axis in (i for i, d in enumerate(shape) if d == vector[0]):

        def make(axis: int = axis) -> Guess:
            parameters = [hole(vector, dtype, n) for n in ("gamma", "beta", "mean", "var")]
            kwargs: dict[str, Any] = {"axis": axis, "epsilon": epsilon, "training": False}
            norm = relax("nn.batch_norm", hole(shape, dtype), *parameters, **kwargs)
            return Guess(TupleGetItem(norm, 0))

        yield graph.once(("nn.batch_norm", call.struct_info, axis, epsilon), make)


def batch_norm_row(graph: Graph, call: Call) -> Guesses:
    """The row ``batch_norm_inference``."""
    x, scale, offset, mean, variance = call.args
    norm = relax(
        "nn.batch_norm",
        x,
        scale,
        offset,
        mean,
        variance,
        axis=call.attrs["feature_index"],
        epsilon=float(call.attrs["epsilon"]),
        training=False,
    )
    yield Guess(TupleGetItem(norm, 0), (call,))
