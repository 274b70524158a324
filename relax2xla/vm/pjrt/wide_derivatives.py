"""Derivatives in 64 bits where JAX's x64 flag is off.

JAX runs backward passes when the function has returned, as its flag is then: constants of them are
narrow, and their products with what the function computed in float64 are errors. So the linear part
of a derivative is one primitive here, which knows its own transpose; what it stands for is traced
with the flag on, whenever JAX asks for it. Both compute the function once more, which XLA merges
with the first time where it sees both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from relax2xla.vm.pjrt import varying

#: Arrays to arrays.
Function = Callable[..., Sequence[Any]]


def in_64_bits(function: Callable[..., Sequence[Any]], *args: Any) -> list[Any]:
    """The arrays of ``function(*args)``, of trees, whose derivatives are traced with 64 bits."""
    leaves, tree = jax.tree.flatten(args)
    made = _with_derivatives(_known(lambda *xs: function(*tree.unflatten(xs))))
    return list(made(*leaves))


def _known(function: Function) -> Function:
    def call(*xs: Any) -> list[Any]:
        with jax.enable_x64(True):
            return [jnp.asarray(y) for y in function(*xs)]

    return call


def _with_derivatives(function: Function) -> Function:
    made = jax.custom_jvp(lambda *xs: tuple(function(*xs)))

    def derivative(primals: Any, tangents: Any) -> Any:
        outs = made(*primals)
        return outs, _tangents(function, primals, tangents, outs)

    made.defjvp(derivative, symbolic_zeros=True)
    return made


def _is_smooth(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, np.inexact)


def _is_still(tangent: Any) -> bool:
    """Whether JAX says that nothing moves there: 0 times an infinite derivative would be NaN."""
    return isinstance(tangent, SymbolicZero | ad.Zero)


def _tangents(
    function: Function, primals: Sequence[Any], tangents: Sequence[Any], outs: Sequence[Any]
) -> tuple[Any, ...]:
    """Tangents of ``outs``: the linear primitive where there are floats, nothing elsewhere."""
    moved = [not _is_still(t) for t in tangents]
    given = [i for i, x in enumerate(primals) if _is_smooth(x) and moved[i]]
    made = [i for i, y in enumerate(outs) if _is_smooth(y)]
    count = len(primals)

    def smooth(xs: Sequence[Any]) -> Function:
        """The floats of the result, of the floats among the arguments."""

        def call(*floats: Any) -> list[Any]:
            whole = list(xs)
            for i, x in zip(given, floats, strict=True):
                whole[i] = x
            results = function(*whole)
            return [results[i] for i in made]

        return call

    def forward(*xs: Any) -> Any:
        points, ways = xs[:count], xs[count:]
        return jax.jvp(smooth(points), tuple(points[i] for i in given), tuple(ways))[1]

    def backward(*xs: Any) -> Any:
        points, cotangents = xs[:count], xs[count:]
        results, pull = jax.vjp(smooth(points), *(points[i] for i in given))
        # What JAX made outside may be narrow.
        pairs = zip(cotangents, results, strict=True)
        return pull([c.astype(r.dtype) for c, r in pairs])

    found = [np.zeros(y.shape, jax.dtypes.float0) for y in outs]
    if given and made:
        ways = [tangents[i] for i in given]
        linear = _linear_p.bind(
            *primals, *ways, forward=_known(forward), backward=_known(backward), count=count
        )
        linear = varying.like([outs[i] for i in made], linear)
        found = dict(enumerate(found)) | dict(zip(made, linear, strict=True))
        return tuple(found.values())
    return tuple(found)


# ---- a linear function: ``forward(*constants, *arguments)``, linear in the arguments, which come
# after ``count`` constants, and ``backward(*constants, *cotangents)``
_linear_p = Primitive("relax2xla_linear_in_64_bits")
_linear_p.multiple_results = True


@_linear_p.def_impl
def _(*xs: Any, forward: Function, backward: Function, count: int) -> Sequence[Any]:
    return forward(*xs)


@_linear_p.def_abstract_eval
def _(*avals: Any, forward: Function, backward: Function, count: int) -> Any:
    with jax.enable_x64(True):
        return varying.results(forward, avals)


def _jvp(
    primals: Any, tangents: Any, *, forward: Function, backward: Function, count: int
) -> tuple[Any, Any]:
    outs = _linear_p.bind(*primals, forward=forward, backward=backward, count=count)
    return outs, list(_tangents(forward, primals, tangents, outs))


def _transpose(
    cotangents: Any, *xs: Any, forward: Function, backward: Function, count: int
) -> list[Any]:
    with jax.enable_x64(True):
        given = [ad.instantiate_zeros(c) for c in cotangents]
    made = _linear_p.bind(*xs[:count], *given, forward=backward, backward=forward, count=count)
    asked = [ad.is_undefined_primal(x) for x in xs[count:]]
    return [None] * count + [m if a else None for m, a in zip(made, asked, strict=True)]


def _batch(
    xs: Any, axes: Any, *, forward: Function, backward: Function, count: int
) -> tuple[Any, list[int]]:
    size = next(x.shape[a] for x, a in zip(xs, axes, strict=True) if a is not None)
    # Arguments have the axis, constants need not: nobody asks for their cotangents.
    ways = [
        batching.bdim_at_front(x, a, size) for x, a in zip(xs[count:], axes[count:], strict=True)
    ]

    def mapped(function: Function) -> Function:
        def call(*given: Any) -> Any:
            inner = [*axes[:count], *([0] * (len(given) - count))]
            return jax.vmap(function, inner)(*given)

        return _known(call)

    made = _linear_p.bind(
        *xs[:count], *ways, forward=mapped(forward), backward=mapped(backward), count=count
    )
    return made, [0] * len(made)


def _lowered(ctx: Any, *xs: Any, **params: Any) -> Any:
    def call(*xs: Any, forward: Function, backward: Function, count: int) -> Sequence[Any]:
        return forward(*xs)

    with jax.enable_x64(True):  # lowerings of JAX ask for the flag, too
        return mlir.lower_fun(call, multiple_results=True)(ctx, *xs, **params)


ad.primitive_jvps[_linear_p] = _jvp
ad.primitive_transposes[_linear_p] = _transpose
batching.primitive_batchers[_linear_p] = _batch
mlir.register_lowering(_linear_p, _lowered)
