"""Derivatives that functions of JAX have by rules of their own, to modules and back.

``jax.jit`` lowers ``custom_jvp``, ``custom_vjp`` and ``stop_gradient`` to what they compute, and
the derivative of that is another one, or none. :func:`lowered` has them lowered to composites
(:mod:`relax2xla.stablehlo.own_derivatives`), and :data:`RULES` evaluates these in ``jax.lax``.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax import export, lax
from jax.custom_derivatives import custom_jvp_call_p, custom_vjp_call_p
from jax.extend.core import Primitive, jaxpr_as_fun
from jax.interpreters import mlir

from relax2xla.errors import UnsupportedError
from relax2xla.stablehlo.own_derivatives import (
    CUSTOM_JVP,
    CUSTOM_VJP,
    LINEAR_SOLVE,
    STOP_GRADIENT,
    UNKNOWN,
)

#: Rules call their function again, which has its rule again: so many times is one written out,
#: and so often can what comes back be differentiated.
ORDERS: Final = 3

_DEPTH: contextvars.ContextVar[int] = contextvars.ContextVar("own_derivatives", default=0)

Values = Sequence[Any]


def _has_derivative(x: Any) -> bool:
    return bool(jnp.issubdtype(jnp.result_type(x), jnp.inexact))


def _smooth(xs: Values) -> list[Any]:
    return [x for x in xs if _has_derivative(x)]


def _filled(smooth: Values, like: Values, other: Callable[[Any], Any]) -> list[Any]:
    """``smooth`` at the places of ``like`` that have a derivative, ``other`` of those between."""
    found = iter(smooth)
    return [next(found) if _has_derivative(x) else other(x) for x in like]


def _no_tangent(x: Any) -> Any:
    return np.zeros(jnp.shape(x), jax.dtypes.float0)


# ---- to modules
def lowered(
    jitted: Any, args: Values, kwargs: Mapping[str, Any], symbolic: bool, rules: bool
) -> tuple[Any, Values, Sequence[str]]:
    """A function for these arguments as JAX lowers or, of ``symbolic`` shapes, exports it.

    With what it knows of its results, and the names of functions whose rules it has not.
    ``rules``: whether the program has such rules, as far as it can.
    """
    lost: list[str] = []
    own = _lowerings(lost, symbolic) if rules else None
    if symbolic:
        made: Any = export.export(jitted, _override_lowering_rules=own)
        found = made(*args, **kwargs)
        results = found.out_avals
    else:
        # As the option of export.export does it.
        how = mlir.LoweringParameters(override_lowering_rules=own)
        found = jitted.trace(*args, **kwargs).lower(_private_parameters=how)
        results = jax.tree.leaves(found.out_info)
    return found, results, sorted(set(lost))


def _lowerings(lost: list[str], symbolic: bool) -> Any:
    """How JAX lowers these primitives for a module, in the place of its own way.

    ``lost``: gets the names of functions whose rules the module does not have: those that cannot be
    traced, and all of ``symbolic`` shapes, for which JAX's composites are not made.
    """
    (stop,) = (e.primitive for e in jax.make_jaxpr(lax.stop_gradient)(0.0).jaxpr.eqns)
    stopped = mlir.lower_fun(_as_bits if symbolic else _stopped, multiple_results=False)
    rules = (custom_jvp_call_p, CUSTOM_JVP), (custom_vjp_call_p, CUSTOM_VJP)
    if symbolic:
        return (stop, stopped), *((p, _without_rule(p, lost)) for p, _ in rules)
    solve = lax.linear_solve_p, _lowered_solve(lost)
    return (stop, stopped), solve, *((p, _lowered(p, name, lost)) for p, name in rules)


def _plain(primitive: Primitive, params: Mapping[str, Any]) -> Callable[..., Values]:
    """What a call of ``primitive`` computes, without its rule."""
    if "call_jaxpr" in params:
        return jaxpr_as_fun(params["call_jaxpr"])
    return functools.partial(primitive.impl, **params)


def _stopped(x: Any) -> Any:
    return lax.composite(lambda x: x, STOP_GRADIENT)(x) if _has_derivative(x) else x


def _as_bits(x: Any) -> Any:
    """``x`` by way of its bits, which have no derivative."""
    if jnp.iscomplexobj(x):
        return lax.complex(_as_bits(lax.real(x)), _as_bits(lax.imag(x)))
    if not _has_derivative(x):
        return x
    bits = np.dtype(f"uint{8 * x.dtype.itemsize}")
    return lax.bitcast_convert_type(lax.bitcast_convert_type(x, bits), x.dtype)


def _without_rule(primitive: Primitive, lost: list[str]) -> Callable[..., Any]:
    def form(*xs: Any, **params: Any) -> Values:
        lost.append(_name(params))
        return _plain(primitive, params)(*xs)

    return mlir.lower_fun(form, multiple_results=True)


def _name(params: Mapping[str, Any]) -> str:
    """The function's name."""
    jaxpr = params.get("call_jaxpr")
    return getattr(jaxpr, "jaxpr", jaxpr).debug_info.func_name if jaxpr else "linear_solve"


def _calls_back(jaxpr: Any) -> bool:
    """Whether a rule calls back into Python, as checks do: no module may have that."""
    for e in jaxpr.eqns:
        inner = [getattr(x, "jaxpr", x) for x in jax.tree.leaves(list(e.params.values()))]
        if "callback" in e.primitive.name:
            return True
        if any(_calls_back(x) for x in inner if hasattr(x, "eqns")):
            return True
    return False


def _pushed(call: Callable[..., Values], xs: Values, tangents: Values) -> Values:
    """The results, and their tangents."""
    given = _filled(tangents, xs, _no_tangent)
    made, moved = jax.jvp(call, tuple(xs), tuple(given))
    return [*made, *(t for t, x in zip(moved, made, strict=True) if _has_derivative(x))]


def _pulled(call: Callable[..., Values], xs: Values, cotangents: Values) -> Values:
    """The results, and the cotangents of the operands."""
    made: Any
    pull: Any
    made, pull = jax.vjp(call, *xs)
    back = pull(type(made)(_filled(cotangents, made, _no_tangent)))
    return [*made, *(c for c, x in zip(back, xs, strict=True) if _has_derivative(x))]


def _lowered(primitive: Primitive, name: str, lost: list[str]) -> Callable[..., Any]:
    """A lowering to the composite ``name``, by what JAX knows of ``primitive``."""
    rule = _pushed if name == CUSTOM_JVP else _pulled

    def form(*xs: Any, **params: Any) -> Values:
        depth = _DEPTH.get()

        # What the function closes over comes first. JAX refuses to differentiate by that.
        fixed = params.get("num_consts", 0)

        def call(*values: Any) -> Values:
            given = [*map(lax.stop_gradient, values[:fixed]), *values[fixed:]]
            return primitive.bind(*given, **primitive.get_bind_params(params))

        plain = _plain(primitive, params)
        results = jax.eval_shape(plain, *xs)
        if not _smooth(xs) or not _smooth(results):
            return plain(*xs)
        if depth > ORDERS:
            return lax.composite(lambda *xs: plain(*xs), UNKNOWN)(*xs)
        more = [jnp.zeros_like(x) for x in _smooth(xs if name == CUSTOM_JVP else results)]
        about = {"operands": len(xs), "more": len(more), "results": len(results)}

        def both(*given: Any) -> Values:
            xs, more = given[: about["operands"]], given[about["operands"] :]
            return [*plain(*xs), *rule(call, xs, more)]

        # Whatever a rule raises that is traced where nobody asked for it.
        with contextlib.suppress(Exception):
            made = jax.make_jaxpr(both)(*xs, *more)
            if not _calls_back(made.jaxpr):
                whole = jaxpr_as_fun(made)
                composite = lax.composite(lambda *given, **_: whole(*given), name)
                return composite(*xs, *more, **about)[: about["results"]]
        if depth == 1:
            _DEPTH.set(0)  # The functions that it calls are as if it were not there.
            lost.append(_name(params))
            return plain(*xs)
        return lax.composite(lambda *xs: plain(*xs), UNKNOWN)(*xs)

    lower = mlir.lower_fun(form, multiple_results=True)

    def deeper(*args: Any, **params: Any) -> Any:
        token = _DEPTH.set(_DEPTH.get() + 1)
        try:
            return lower(*args, **params)
        finally:
            _DEPTH.reset(token)

    return deeper


def _lowered_solve(lost: list[str]) -> Callable[..., Any]:
    """A lowering of ``linear_solve`` to its composite, which has its functions.

    It is differentiated by solving again, and the functions of solvers are not, which stop the
    gradients of matrices, or go round until there is little left.
    """

    def form(*xs: Any, const_lengths: Any, jaxprs: Any) -> Values:
        closed = dict(
            zip(_PARTS, (jaxprs.matvec, jaxprs.solve, jaxprs.transpose_solve), strict=True)
        )
        counts = const_lengths.matvec, const_lengths.solve, const_lengths.transpose_solve
        skipped = const_lengths.matvec + const_lengths.vecmat
        begins = 0, skipped, skipped + const_lengths.solve
        consts = [xs[i : i + n] for i, n in zip(begins, counts, strict=True)]
        sides = xs[sum(const_lengths) :]
        functions = [j and jaxpr_as_fun(j) for j in closed.values()]
        plain = functions[1]
        if any(j and _calls_back(getattr(j, "jaxpr", j)) for j in closed.values()):
            lost.append("linear_solve")
            return plain(*consts[1], *sides)
        unknowns = len(sides)
        aux = len(jax.eval_shape(plain, *consts[1], *sides)) - unknowns

        def whole(*given: Any, **_: Any) -> Values:
            made: list[Any] = []
            rest = given[sum(counts) :]
            # The solution comes first, as all that a program reads.
            for part, at in ((1, 0), (0, 1), (2, 2)):
                call, begin = functions[part], sum(counts[:part])
                if call:
                    own = given[begin : begin + counts[part]]
                    made += call(*own, *rest[at * unknowns : (at + 1) * unknowns])
            return made

        about = dict(zip(_PARTS, counts, strict=True))
        if jaxprs.transpose_solve is None:
            about["transpose_solve"] = -1
        about |= {"unknowns": unknowns, "aux": aux}
        about["symmetric"] = int(jaxprs.vecmat is jaxprs.matvec)
        zeros = [jnp.zeros_like(b) for b in sides]
        given = [*(c for own in consts for c in own), *sides, *zeros, *zeros]
        return lax.composite(whole, LINEAR_SOLVE)(*given, **about)[: unknowns + aux]

    return mlir.lower_fun(form, multiple_results=True)


_PARTS: Final = ("matvec", "solve", "transpose_solve")


# ---- back to functions
class Decomposition(Protocol):
    """What a composite decomposes into. ``results``: how many it gives."""

    results: int

    def __call__(self, xs: Values, fields: slice = ..., /) -> Values:
        """Those results of operands ``xs``; what the others alone need is not computed."""
        ...

    def reads(self, begin: int) -> bool:
        """Whether anything reads a result of the composite from number ``begin`` on."""
        ...


OwnRule = Callable[[Decomposition, Mapping[str, Any], Values], Values]


_OF_ELEMENTS: contextvars.ContextVar[bool] = contextvars.ContextVar("of_elements", default=False)


def of_elements(rule: Callable[..., Any]) -> Callable[..., Any]:
    """``rule`` of a row with a computation for each element, in which functions have no rules.

    JAX's are for all elements together, and that of two infinities, say, is no number.
    """

    def computed(*args: Any) -> Any:
        token = _OF_ELEMENTS.set(True)
        try:
            return rule(*args)
        finally:
            _OF_ELEMENTS.reset(token)

    return computed


def rule_of(name: str) -> OwnRule | None:
    """How the results of a composite of this name are derived here; None: as those of its rows."""
    return None if _OF_ELEMENTS.get() else RULES.get(name)


def _rest(call: Decomposition, xs: Values, begin: int) -> Values:
    """What a composite gives from its result ``begin`` on: without a derivative.

    None where nothing reads it, as in all programs that JAX writes: rules hold functions that have
    rules, and so on.
    """
    if not call.reads(begin):
        return [None] * (call.results - begin)
    return call([*map(lax.stop_gradient, xs)], slice(begin, None))


def _stopped_again(call: Decomposition, attrs: Mapping[str, Any], xs: Values) -> Values:
    return [lax.stop_gradient(x) for x in xs]


class _Own:
    """A function with a rule, as a composite has both.

    ``operands``: its operands, those first that the composite closes over, ``fixed`` of them;
    ``results``: how many it has
    """

    def __init__(self, call: Decomposition, attrs: Mapping[str, Any], xs: Values) -> None:
        said = [attrs.get(name) for name in ("operands", "more", "results")]
        count, more, results = (n if type(n) is int and n >= 0 else len(xs) + 1 for n in said)
        if count + more > len(xs):
            raise UnsupportedError(
                "a composite of a function of JAX with a rule of its own needs the attributes "
                f"operands, more and results, for {len(xs)} operands in all; it has {dict(attrs)}"
            )
        self.operands, self.results = xs[: len(xs) - more], results
        self.fixed = len(self.operands) - count
        self._call, self._xs = call, xs
        self._more = [(x.shape, x.dtype) for x in xs[len(xs) - more :]]

    def plain(self, *given: Any) -> list[Any]:
        """The function. Nothing that it closes over can be differentiated, so zeros are new."""
        zeros = (jnp.zeros(*of) for of in self._more)
        return list(self._call([*given, *zeros], slice(self.results)))

    def ruled(self, *given: Any) -> tuple[list[Any], Values]:
        """The results that its rule gives, and what it gives besides."""
        found = self._call(given, slice(self.results, None))
        return list(found[: self.results]), found[self.results :]

    def all(self, made: Callable[..., Values]) -> Values:
        """What the composite gives."""
        return [*made(*self.operands), *_rest(self._call, self._xs, self.results)]


def _own_jvp(call: Decomposition, attrs: Mapping[str, Any], xs: Values) -> Values:
    own = _Own(call, attrs, xs)
    made = jax.custom_jvp(own.plain)

    @made.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        pairs = zip(primals[own.fixed :], tangents[own.fixed :], strict=True)
        again, moved = own.ruled(*primals, *(t for x, t in pairs if _has_derivative(x)))
        filled = _filled(moved, again, _no_tangent)
        return again, [_cast(t, x) for t, x in zip(filled, again, strict=True)]

    return own.all(made)


def _own_vjp(call: Decomposition, attrs: Mapping[str, Any], xs: Values) -> Values:
    own = _Own(call, attrs, xs)
    made = jax.custom_vjp(own.plain)

    def forward(*given: Any) -> Any:
        zeros = (jnp.zeros_like(y) for y in _smooth(own.plain(*given)))
        return own.ruled(*given, *zeros)[0], given

    def backward(given: Any, cotangents: Any) -> Any:
        smooth = [c for c in cotangents if c.dtype != jax.dtypes.float0]
        back = _filled(own.ruled(*given, *smooth)[1], given[own.fixed :], lambda _: None)
        pairs = zip(back, given[own.fixed :], strict=True)
        return (None,) * own.fixed + tuple(c if c is None else _cast(c, x) for c, x in pairs)

    made.defvjp(forward, backward)
    return own.all(made)


def _linear_solve(call: Decomposition, attrs: Mapping[str, Any], xs: Values) -> Values:
    said = [attrs.get(name) for name in (*_PARTS, "unknowns", "aux", "symmetric")]
    *counts, unknowns, aux, symmetric = (n if type(n) is int else -2 for n in said)
    transposes, counts = counts[2] >= 0, [max(0, n) if n >= -1 else n for n in counts]
    first = unknowns + aux
    if (
        min(*counts, unknowns - 1, aux) < 0
        or len(xs) != sum(counts) + 3 * unknowns
        or call.results != first + unknowns + transposes * first
    ):
        raise UnsupportedError(
            f"a composite of a linear solver needs the attributes {', '.join(_PARTS)}, unknowns "
            f"and aux, for {len(xs)} operands and {call.results} results; it has {dict(attrs)}"
        )
    sides = xs[sum(counts) : sum(counts) + unknowns]
    zeros = [jnp.zeros_like(b) for b in sides]

    def part(n: int, at: int, fields: slice) -> Callable[[Values], list[Any]]:
        """Function ``n``; what the others close over is not of its derivative."""
        begin, end = sum(counts[:n]), sum(counts[: n + 1])
        own = [
            x if begin <= i < end else lax.stop_gradient(x) for i, x in enumerate(xs[: sum(counts)])
        ]

        def of(values: Values) -> list[Any]:
            given = [*zeros * at, *values, *zeros * (2 - at)]
            made = call([*own, *given], fields)
            return [
                *(_cast(m, b) for m, b in zip(made[:unknowns], sides, strict=True)),
                *made[unknowns:],
            ]

        return of

    matvec = part(0, 1, slice(first, first + unknowns))

    def solver(n: int, at: int, fields: slice) -> Callable[[Any, Values], Any]:
        """The same as JAX calls it: with the map, for the solution and what is found beside it."""
        function = part(n, at, fields)

        def of(_: Any, b: Values) -> Any:
            made = function(b)
            return (made[:unknowns], made[unknowns:]) if aux else made

        return of

    made = lax.custom_linear_solve(
        matvec,
        list(sides),
        solver(1, 0, slice(first)),
        solver(2, 2, slice(first + unknowns, None)) if transposes else None,
        symmetric=symmetric == 1,
        has_aux=aux > 0,
    )
    solution, beside = made if aux else (made, [])
    return [*solution, *beside, *_rest(call, xs, first)]


def _unknown(call: Decomposition, attrs: Mapping[str, Any], xs: Values) -> Values:
    made = jax.custom_jvp(lambda *given: list(call(given)))

    @made.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        raise UnsupportedError(
            "the derivative of a function of JAX that has a rule of its own is not known: modules "
            f"have such rules for {ORDERS} derivatives; differentiate the function itself"
        )

    return made(*xs)


def _cast(tangent: Any, x: Any) -> Any:
    """A tangent in the dtype of its value, which a policy may have lowered."""
    return tangent.astype(x.dtype) if _has_derivative(x) else tangent


#: By the name of the composite: its results, of a function that calls its decomposition.
RULES: Final[Mapping[str, OwnRule]] = {
    STOP_GRADIENT: _stopped_again,
    CUSTOM_JVP: _own_jvp,
    CUSTOM_VJP: _own_vjp,
    LINEAR_SOLVE: _linear_solve,
    UNKNOWN: _unknown,
}
